"""The lemmas of the paper's appendix, measured on a stable system with K = 0, as there."""

import itertools
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import windward as ww
from windward.linear.costs import quadratic_cost

from . import reference

pytestmark = pytest.mark.usefixtures("x64")

A = np.array([[0.5, 0.2], [0.0, 0.4]])
B = np.array([[0.3], [0.8]])
K, Q, R = np.zeros((1, 2)), np.eye(2), np.eye(1)
SYSTEM = ww.linear.System(A, B)
G = 2.0  # ‖∇c‖ ≤ 2D and c ≤ 2D² for ‖x‖, ‖u‖ ≤ D
T = 300
STRONG = ww.linear.strong_stability(A, B)
H = STRONG.memory(T)
D = STRONG.state_bound(W=1.0, h=H)


def unit_rows(rng, shape):
    w = rng.normal(size=shape)
    return w / np.linalg.norm(w, axis=-1, keepdims=True)


def m_on_the_border(rng):
    """A random M of the paper's set with every M_i as large as may be."""
    return STRONG.radii(H)[:, None, None] * unit_rows(rng, (H, 1, 2))


@pytest.fixture(scope="module")
def hard_run():
    """Bandit GPC with steps so large that M jumps along the border of its set; ‖w‖ = W = 1."""
    delta = ww.theorem_rates(T, d_u=1, d_x=2).delta
    w = unit_rows(np.random.default_rng(0), (4, T, 2))
    w[0] = [1.0, 0.0]
    algorithm = ww.bandit_gpc(
        1, 2, h=H, eta=1e3, delta=delta, projection=ww.dac_set(STRONG.kappa, STRONG.alpha)
    )
    with jax.enable_x64(True):
        run = ww.linear.simulate(
            SYSTEM, algorithm, w, K=K, Q=Q, R=R, seed=range(4), M_every=1,
            keep=("x", "u", "gradient_norm"),
        )  # fmt: skip
    return run, w, delta


def test_states_and_controls_stay_bounded(hard_run):
    """lem:lem6-cassel, part 1."""
    run, _, _ = hard_run
    norms = np.linalg.norm(run.M_history, 2, axis=(-2, -1))  # (seeds, T, h)
    assert (norms <= STRONG.radii(H) * (1 + 1e-9)).all()
    assert (norms[:, -1] > 0.99 * STRONG.radii(H)).any()  # on the border
    largest = max(np.linalg.norm(part, axis=-1).max() for part in (run.x, run.u))
    assert largest <= D
    assert largest > 2  # and the controls were large: without them ‖x‖ ≤ 2.1
    assert run.cost.max() <= 2 * D**2


def test_gradient_estimates_stay_bounded(hard_run):
    """lem:cost_tracking, and the sharper d_u c_t h^{3/2} W/δ that its proof gives."""
    run, _, delta = hard_run
    assert run.gradient_norm.max() <= 1 * H**2 * 1.0 * G * D**2 / delta
    assert (run.gradient_norm <= run.cost * H**1.5 / delta * (1 + 1e-9)).all()
    assert run.gradient_norm.max() > 10


def test_gradient_norm_is_that_of_the_estimate(hard_run):
    run, w, delta = hard_run
    algorithm = ww.bandit_gpc(1, 2, h=H)
    steps = 60  # the plain loop is slow
    for seed in (0, 2):
        trace = reference.bandit_gpc(
            A, B, K, reference.quadratic(Q, R), w[seed, :steps],
            reference.draws(algorithm, seed, T)[:steps], M0=np.zeros((H, 1, 2)), eta=1e3,
            delta=delta, project=lambda M: reference.to_dac_set(M, STRONG.kappa, STRONG.alpha),
        )  # fmt: skip
        norms = np.sqrt((trace.gradient**2).sum((1, 2, 3)))
        np.testing.assert_allclose(run.gradient_norm[seed, :steps], norms, rtol=1e-7, atol=1e-9)


def test_idealised_cost_is_close_to_the_counterfactual():
    """lem:lem6-cassel, part 2: |c_t(x^M, u^M) - C̃_t(M)| ≤ GD²/T for the paper's memory."""
    rng = np.random.default_rng(1)
    data = jax.tree.map(jnp.asarray, {"A": A, "B": B, "K": K, "Q": Q, "R": R})

    @jax.jit
    def idealised(M, w_hist):
        return jax.vmap(
            lambda w_hist: ww.linear.idealised_cost(M, w_hist, jnp.asarray(0), data, quadratic_cost)
        )(w_hist)

    def largest_gap(h, M, w):
        true = reference.fixed(A, B, K, reference.quadratic(Q, R), w, M[:h]).cost
        padded = np.concatenate([np.zeros((2 * h, 2)), w])
        w_hist = np.stack([padded[t : t + 2 * h][::-1] for t in range(T)])
        return np.abs(np.asarray(idealised(jnp.asarray(M[:h]), jnp.asarray(w_hist))) - true).max()

    for _ in range(3):
        w, M = unit_rows(rng, (T, 2)), m_on_the_border(rng)
        gap = largest_gap(H, M, w)
        assert gap <= G * D**2 / T
        assert gap < 1e-2 * largest_gap(3, M, w)  # a memory of 3 steps is too short


# Smoothing (lem:smooth, lem:smooth2). With one control the sphere is {-1, +1}, so that the mean
# over all exploration of h + 1 steps is a finite sum, and no Monte Carlo error blurs the slopes.

SHORT = 3
SIGNS = np.array(list(itertools.product([-1.0, 1.0], repeat=SHORT + 1)))
DELTAS = np.array([0.4, 0.2, 0.1, 0.05])
REACH = [np.linalg.matrix_power(A, i) @ B for i in range(SHORT)]  # of u_{t-1-i} on x_t


def l1(x, u):
    return jnp.sum(jnp.abs(x)) + jnp.sum(jnp.abs(u))


def smooth(x, u):
    """Convex and 1-smooth, not quadratic."""
    return jnp.sum(jnp.log(jnp.cosh(x))) + jnp.sum(jnp.sqrt(1 + u**2))


def drive(algorithm, hyper, units, w, cost):
    """Steps an algorithm by hand: the cost at each step, and the sum of its gradients."""
    flag = jnp.zeros((1,), bool)

    def advance(carry, now):
        x, state, plan = carry
        w, unit = now
        u = algorithm.apply(plan, jnp.zeros((1, 1)))[0]
        c = cost(x, u)
        x_next = A @ x + B @ u + w
        step = ww.Transition(
            x[None], u[None], c[None], x_next[None], {"w": w[None]}, flag, flag, ~flag
        )
        state, plan, info = algorithm.observe(state, step, unit[None])
        return (x_next, state, plan), (c, info.gradient)

    start = (jnp.zeros(2), *algorithm.init(hyper, units[0][None]))
    # The draw after the last step is never acted on.
    _, (costs, gradients) = jax.lax.scan(advance, start, (w, jnp.roll(units, -1, axis=0)))
    return costs, gradients.sum(0)


@lru_cache
def costs_of_all_signs(cost):
    """The last cost of `drive` for each δ of DELTAS and each of SIGNS, as a function of M, w."""
    algorithm = ww.bandit_gpc(1, 2, h=SHORT, eta=0.0, projection=None)

    @jax.jit
    def each(M, w):
        def last_cost(delta, signs):
            hyper = {**algorithm.hyper, "delta": delta, "M0": M}
            return drive(algorithm, hyper, signs[:, None], w, cost)[0][-1]

        return jax.vmap(jax.vmap(last_cost, (None, 0)), (0, None))(DELTAS, SIGNS)

    return each


def smoothing_bias(cost, M, w):
    """Mean over all exploration of c_h(x_h, u_h), minus C̃_h(M), for each δ of DELTAS."""
    y, u = reference.idealised(A, B, K, M, w, SHORT)
    return np.asarray(costs_of_all_signs(cost)(M, w)).mean(1) - cost(y, u)


def slope(bias):
    return np.polyfit(np.log(DELTAS), np.log(bias), 1)[0]


def test_smoothing_bias_of_a_kink_is_of_order_delta():
    """At x = u = 0, where |x|₁ + |u|₁ has its kink; at most δ Σ_i ‖A^iB‖₁ + δ."""
    bias = smoothing_bias(l1, np.zeros((SHORT, 1, 2)), np.zeros((SHORT + 1, 2)))
    print(f"smoothing bias of |x|₁ + |u|₁: {bias}, slope {slope(bias):.3f}")
    assert slope(bias) == pytest.approx(1, abs=0.02)
    lipschitz = 1 + sum(np.abs(column).sum() for column in REACH)
    assert (bias > 0).all()
    assert (bias <= DELTAS * lipschitz * (1 + 1e-9)).all()


def test_smoothing_away_from_a_kink_changes_nothing():
    """|x|₁ + |u|₁ is linear there: bias 0 until δ reaches the kink."""
    M = np.zeros((SHORT, 1, 2))
    M[0, 0] = [1.0, 1.0]
    bias = smoothing_bias(l1, M, np.full((SHORT + 1, 2), 2.0))
    np.testing.assert_allclose(bias, 0, atol=1e-12)


def test_smoothing_bias_of_a_smooth_cost_is_of_order_delta_squared():
    rng = np.random.default_rng(2)
    M, w = 0.5 * rng.normal(size=(SHORT, 1, 2)), rng.normal(size=(SHORT + 1, 2))
    bias = smoothing_bias(smooth, M, w)
    print(f"smoothing bias of a smooth cost: {bias}, slope {slope(bias):.3f}")
    assert slope(bias) == pytest.approx(2, abs=0.05)
    curvature = 1 + sum((column**2).sum() for column in REACH)
    assert (bias > 0).all()  # Jensen
    assert (bias <= DELTAS**2 / 2 * curvature).all()  # Taylor, 1-smooth


# The estimates' mean is the gradient (first part of lem:smooth; quadratics hide the smoothing).

ESTIMATORS = {
    "bandit_gpc": ww.bandit_gpc(1, 2, h=4, eta=0.0, delta=1.0, projection=None),
    "bpc": ww.bpc(1, 2, h=4, eta=0.0, delta=2.0, projection=None),
    "mf_gpc": ww.mf_gpc(1, 2, h=4, eta=0.0, sigma=1.0, signal="w"),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_mean_of_the_estimates_is_the_gradient(name):
    """Σ_{t≤h} ∇̂_t against Σ_{t≤h} ∇C̃_t(M), which is exact up to step h."""
    algorithm, h, rng = ESTIMATORS[name], 4, np.random.default_rng(6)
    M, w = 0.3 * rng.normal(size=(h, 1, 2)), rng.normal(size=(h + 1, 2))
    hyper = {**algorithm.hyper, "M0": M}
    size = h * 2 if name == "bpc" else 1
    units = rng.normal(size=(40_000, h + 1, size))

    def quadratic(x, u):
        return x @ Q @ x + u @ R @ u

    @jax.jit
    @jax.vmap
    def gradients(units):
        return drive(algorithm, hyper, units, w, quadratic)[1]

    def total(M):
        return sum(quadratic(*reference.idealised(A, B, K, M, w, t)) for t in range(h + 1))

    estimates = np.asarray(gradients(jnp.asarray(units)))
    standard = estimates.std(0) / np.sqrt(len(estimates))
    exact = reference.complex_step(total, M)
    assert (np.abs(estimates.mean(0) - exact) < 4 * standard).all()
    # Precise enough to tell a gradient of half the size apart.
    assert np.sqrt(((exact / 2) ** 2).sum()) > 5 * np.sqrt((standard**2).sum())
