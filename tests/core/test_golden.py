"""Five steps of each algorithm with h = 2, worked by hand: they fix every index.

In all of them ŵ_1..ŵ_5 = 1, 2, -1, 3, 1 (through signal="w"), so that the windows
(ŵ_{t-1}, ŵ_{t-2}) seen at steps 1 to 6 are

    (0, 0)  (1, 0)  (2, 1)  (-1, 2)  (3, -1)  (1, 3)

and the correction at step t is M_1 ŵ_{t-1} + M_2 ŵ_{t-2}.
"""

import math

import numpy as np
import pytest

import windward as ww

from .drive import play, step

pytestmark = pytest.mark.usefixtures("x64")

W = [1, 2, -1, 3, 1]


def run(algorithm, units, costs):
    """Five steps; (corrections, draws, Ms, gradients) as lists of numbers and pairs."""
    steps = [step([c], w=[[w]]) for c, w in zip(costs, W, strict=True)]
    trace = play(algorithm, [np.reshape(unit, (1, -1)) for unit in units], steps)
    return (
        [plan.correction.item() for plan in trace.plans],
        [plan.draw.item() for plan in trace.plans],
        [M.ravel().tolist() for M in trace.Ms],
        [info.gradient.ravel().tolist() for info in trace.infos],
    )


def close(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)


def test_mf_gpc():
    # σ = 2, so n_t = 2z_t and Σ⁻¹n_t = n_t/4. η = 1/2, M¹ = (1, 2), costs 2, 1, 4, -1, 2.
    #   z_t = 1, -1, 2, 1, -1/2, 3     n_t = 2, -2, 4, 2, -1, 6     n_t/4 = 1/2, -1/2, 1, 1/2, -1/4
    #
    # t=1: window (0, 0), correction 0. ∇ = 2·[½(0, 0)] = 0.                     M² = (1, 2)
    # t=2: window (1, 0), correction 1·1 = 1.
    #      ∇ = 1·[-½(1, 0) + ½(0, 0)] = (-½, 0).                                 M³ = (5/4, 2)
    # t=3: window (2, 1), correction 5/4·2 + 2·1 = 9/2.
    #      ∇ = 4·[1(2, 1) - ½(1, 0)] = (6, 4).         M⁴ = (5/4 - 3, 2 - 2) = (-7/4, 0)
    # t=4: window (-1, 2), correction -7/4·(-1) + 0·2 = 7/4.
    #      ∇ = -1·[½(-1, 2) + 1(2, 1)] = (-3/2, -2).   M⁵ = (-7/4 + 3/4, 0 + 1) = (-1, 1)
    # t=5: window (3, -1), correction -3 - 1 = -4.
    #      ∇ = 2·[-¼(3, -1) + ½(-1, 2)] = (-5/2, 5/2). M⁶ = (-1 + 5/4, 1 - 5/4) = (1/4, -1/4)
    # t=6: window (1, 3), correction 1/4 - 3/4 = -1/2.
    algorithm = ww.mf_gpc(1, 1, h=2, eta=1 / 2, sigma=2, signal="w", M0=[[[1]], [[2]]])
    corrections, draws, Ms, gradients = run(
        algorithm, units=[1, -1, 2, 1, -1 / 2, 3], costs=[2, 1, 4, -1, 2]
    )
    close(corrections, [0, 1, 9 / 2, 7 / 4, -4, -1 / 2])
    close(draws, [2, -2, 4, 2, -1, 6])
    close(gradients, [[0, 0], [-1 / 2, 0], [6, 4], [-3 / 2, -2], [-5 / 2, 5 / 2]])
    close(Ms, [[1, 2], [1, 2], [5 / 4, 2], [-7 / 4, 0], [-1, 1], [1 / 4, -1 / 4]])


def test_bandit_gpc_with_its_delay():
    # δ = 2 and d_u = 1: n_t is the sign of the unit draw, ∇̂_t = (c_t/2) Σ_i n_{t-i} window_{t-i}.
    # η = 1/4, M¹ = (1, 2), costs 2, 4, 2, -2, 2; n_t = +, -, +, +, -, +.
    #   ∇̂_1 = 1·(0, 0) = 0
    #   ∇̂_2 = 2·[-(1, 0) + (0, 0)] = (-2, 0)
    #   ∇̂_3 = 1·[(2, 1) - (1, 0)] = (1, 1)
    #   ∇̂_4 = -1·[(-1, 2) + (2, 1)] = (-1, -3)
    #   ∇̂_5 = 1·[-(3, -1) + (-1, 2)] = (-4, 3)
    # M^{t+1} = M^t - η∇̂_{t-2}: ∇̂_1 = 0 reaches M⁴, ∇̂_2 reaches M⁵, ∇̂_3 reaches M⁶:
    #   M¹..M⁴ = (1, 2), M⁵ = (1 + ½, 2) = (3/2, 2), M⁶ = (3/2 - ¼, 2 - ¼) = (5/4, 7/4)
    # corrections: 0; 1·1; 1·2 + 2·1 = 4; -1 + 4 = 3; 3/2·3 - 2 = 5/2; 5/4 + 21/4 = 13/2
    algorithm = ww.bandit_gpc(1, 1, h=2, eta=1 / 4, delta=2, projection=None, M0=[[[1]], [[2]]])
    corrections, draws, Ms, gradients = run(
        algorithm, units=[1, -3, 0.5, 2, -1, 7], costs=[2, 4, 2, -2, 2]
    )
    close(corrections, [0, 1, 4, 3, 5 / 2, 13 / 2])
    close(draws, [2, -2, 2, 2, -2, 2])
    close(gradients, [[0, 0], [-2, 0], [1, 1], [-1, -3], [-4, 3]])
    close(Ms, [[1, 2]] * 4 + [[3 / 2, 2], [5 / 4, 7 / 4]])


def test_bpc_whose_first_gradient_first_changes_M_of_step_h_plus_2():
    # δ = 5, dim M = 2: ε_t is the unit draw over its length, ∇̂_t = (2c_t/5)(ε_t + ε_{t-1}).
    # η = 5/2, M¹ = (1, 2), costs 5, 5, 10, 5, -5, so 2c_t/5 = 2, 2, 4, 2, -2.
    #   5ε_t = (3, 4), (0, 5), (-4, 3), (5, 0), (0, -5), (3, -4)
    #   ∇̂_1 = 2(3, 4)/5 = (6, 8)/5
    #   ∇̂_2 = 2(3, 9)/5 = (6, 18)/5
    #   ∇̂_3 = 4(-4, 8)/5 = (-16, 32)/5
    #   ∇̂_4 = 2(1, 3)/5 = (2, 6)/5
    #   ∇̂_5 = -2(5, -5)/5 = (-2, 2)
    # M^{t+1} = M^t - η∇̂_{t-2}: M³ = M¹; M⁴ = (1, 2) - (3, 4) = (-2, -2);
    #   M⁵ = (-2, -2) - (3, 9) = (-5, -11); M⁶ = (-5, -11) - (-8, 16) = (3, -27)
    # correction M^t·window and draw 5ε_t·window, the windows as above:
    #   0, 0 | 1, 0 | 4, -8 + 3 = -5 | 2 - 4 = -2, -5 | -15 + 11 = -4, 5 | 3 - 81 = -78, 3 - 12 = -9
    algorithm = ww.bpc(1, 1, h=2, eta=5 / 2, delta=5, projection=None, M0=[[[1]], [[2]]])
    corrections, draws, Ms, gradients = run(
        algorithm,
        units=[(3, 4), (0, 2), (-8, 6), (1, 0), (0, -3), (0.3, -0.4)],
        costs=[5, 5, 10, 5, -5],
    )
    close(corrections, [0, 1, 4, -2, -4, -78])
    close(draws, [0, 0, -5, -5, 5, -9])
    close(
        gradients,
        [[6 / 5, 8 / 5], [6 / 5, 18 / 5], [-16 / 5, 32 / 5], [2 / 5, 6 / 5], [-2, 2]],
    )
    close(Ms, [[1, 2]] * 3 + [[-2, -2], [-5, -11], [3, -27]])


def test_mf_gpc_in_two_dimensions_with_a_full_covariance():
    # σ = 2, Σ = [[4, 2], [2, 2]] = LLᵀ with L = [[2, 0], [1, 1]]: n = 2Lz has covariance 4Σ, and
    # (4Σ)⁻¹ n = ½ L⁻ᵀ z with L⁻ᵀ = [[½, -½], [0, 1]].
    #   z_1 = (4, 0): n = (16, 8),  score (1, 0)
    #   z_2 = (0, 4): n = (0, 8),   score (-1, 2)
    #   z_3 = (4, 4): n = (16, 16), score (0, 2)
    # ŵ_1 = (1, 2), ŵ_2 = (3, -1), ŵ_3 = (2, 4); η = ½; M¹ = 0; costs 7, 2, -1.
    # t=2: ∇ = 2·(-1, 2) ⊗ (ŵ_1, 0): M_1 part [[-2, -4], [4, 8]], M_2 part 0.
    #      M³_1 = [[1, 2], [-2, -4]], M³_2 = 0; correction at 3: M³_1 (3, -1) = (1, -2)
    # t=3: ∇ = -[(0, 2) ⊗ (ŵ_2, ŵ_1) + (-1, 2) ⊗ (ŵ_1, 0)]:
    #      M_1 part -([[0, 0], [6, -2]] + [[-1, -2], [2, 4]]) = [[1, 2], [-8, -2]]
    #      M_2 part -[[0, 0], [2, 4]]
    #      M⁴_1 = [[½, 1], [2, -3]], M⁴_2 = [[0, 0], [1, 2]]
    #      correction at 4: M⁴_1 (2, 4) + M⁴_2 (3, -1) = (5, -8) + (0, 1) = (5, -7)
    algorithm = ww.mf_gpc(2, 2, h=2, eta=1 / 2, sigma=2, Sigma=[[4, 2], [2, 2]], signal="w")
    trace = play(
        algorithm,
        [[[4, 0]], [[0, 4]], [[4, 4]], [[0, 0]]],
        [step([7], w=[[1, 2]]), step([2], w=[[3, -1]]), step([-1], w=[[2, 4]])],
    )
    close([plan.draw[0] for plan in trace.plans], [[16, 8], [0, 8], [16, 16], [0, 0]])
    close([plan.correction[0] for plan in trace.plans], [[0, 0], [0, 0], [1, -2], [5, -7]])
    close(trace.infos[0].gradient, np.zeros((2, 2, 2)))
    close(trace.infos[1].gradient, [[[-2, -4], [4, 8]], [[0, 0], [0, 0]]])
    close(trace.infos[2].gradient, [[[1, 2], [-8, -2]], [[0, 0], [-2, -4]]])
    close(trace.Ms[3], [[[1 / 2, 1], [2, -3]], [[0, 0], [1, 2]]])


def test_bandit_gpc_in_two_dimensions_has_the_factor_d_u():
    # h = 1, δ = 5: draw (6, 8)·5/10 = (3, 4), n = (3/5, 4/5), (d_u c/δ) n = (2·25/5)(3/5, 4/5)
    # = (6, 8); times ŵ_1 = (1, 2) it is [[6, 12], [8, 16]].
    algorithm = ww.bandit_gpc(2, 2, h=1, delta=5, eta=0)
    trace = play(
        algorithm,
        [[[1, 0]], [[6, 8]], [[1, 0]]],
        [step([1], w=[[1, 2]]), step([25], w=[[0, 0]])],
    )
    close(trace.plans[1].draw[0], [3, 4])
    close(trace.infos[1].gradient, [[[6, 12], [8, 16]]])


def test_bpc_in_two_dimensions_has_the_factor_dim_M():
    # h = 1, d_u = d_w = 2: dim M = 4. ε = (1, 1, 1, 1)/2 as [[½, ½], [½, ½]]; δ = 4:
    # (4·3/4) ε_1 = 3/2 everywhere; at the second step ε = (0, 1, 0, 0), M̃ = M + 4ε, and the
    # draw on ŵ_1 = (5, 7) is (4·7, 0).
    algorithm = ww.bpc(2, 2, h=1, delta=4, eta=0)
    trace = play(algorithm, [[[9, 9, 9, 9]], [[0, 2, 0, 0]]], [step([3], w=[[5, 7]])])
    close(trace.infos[0].gradient, [[[3 / 2, 3 / 2], [3 / 2, 3 / 2]]])
    close(trace.plans[1].draw[0], [28, 0])
    close(trace.plans[1].correction[0], [0, 0])


# Two actions, d_w = 1, η = 1, M¹ = 0. Base logits are ln p_t - correction_t, which makes the
# probabilities at the drawing M exactly p_t = (½, ½), (¼, ¾), (1/5, 4/5). Actions 0, 1, 0, so
# the scores one-hot - p are s_1 = (½, -½), s_2 = (-¼, ¼), s_3 = (4/5, -4/5). Costs 1, 4, 5.
# t=2: ∇ = 4 s_2 ⊗ (1, 0): M_1 part (-1, 1), M_2 part 0. M³_1 = (1, -1), M³_2 = 0.
#      correction at 3 on (2, 1): (2, -2)
# t=3: ∇ = 5[s_3 ⊗ (2, 1) + s ⊗ (1, 0)], where s is step 2's score:
#      drawn: s = s_2 = (-¼, ¼): M_1 part 5(8/5 - ¼)(1, -1) = 27/4 (1, -1), M_2 part (4, -4)
#      as printed: s at M³, whose logits at step 2 are ln(¼, ¾) + (1, -1); then
#      p = (e/4, 3/(4e)) up to scale, p(0) = e²/(e² + 3) = q, s = (-q, q), 5(8/5 - q)(1, -1)
# M⁴_1 = (1, -1) - that, M⁴_2 = (-4, 4); correction at 4 on (-1, 2).
Q = math.e**2 / (math.e**2 + 3)


@pytest.mark.parametrize(("preset", "first"), [(None, 27 / 4), ("paper", 8 - 5 * Q)])
def test_dmf_gpc(preset, first):
    algorithm = ww.dmf_gpc(2, 1, h=2, eta=1, signal="w", preset=preset)
    logits = np.log([[0.5, 0.5], [0.25, 0.75], [0.2, 0.8]]) - [[0, 0], [0, 0], [2, -2]]
    steps = [
        step([c], u=np.array([u]), w=[[w]], logits=[row])
        for c, u, w, row in zip([1, 4, 5], [0, 1, 0], W, logits, strict=False)
    ]
    trace = play(algorithm, np.zeros((4, 1, 2)), steps)
    close(trace.infos[0].gradient, np.zeros((2, 2, 1)))
    close(trace.infos[1].gradient[..., 0], [[-1, 1], [0, 0]])
    close(trace.infos[2].gradient[..., 0], [[first, -first], [4, -4]])
    M_1 = 1 - first
    close(trace.Ms[3][..., 0], [[M_1, -M_1], [-4, 4]])
    close(trace.plans[2].correction[0], [2, -2])
    close(trace.plans[3].correction[0], [-M_1 - 8, M_1 + 8])
    close(trace.plans[3].draw, np.zeros((1, 2)))
