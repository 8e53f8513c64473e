"""The pseudo-disturbances: numbers worked by hand, and what an episode's end does to V."""

import jax.numpy as jnp
import numpy as np
import pytest

import windward as ww
from windward.core import signals

from .drive import play, step

pytestmark = pytest.mark.usefixtures("x64")


def w_hats(algorithm, units, steps):
    trace = play(algorithm, units, steps)
    assert all(info.accepted.all() for info in trace.infos)
    return np.stack([info.w_hat for info in trace.infos])


def close(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)


def test_formulas():
    # pd1_exact: ½·(4, 8) - (1, 1)
    close(signals.pd1_exact(jnp.array([4.0, 8.0]), jnp.array([1.0, 1.0]), 0.5), [1, 3])
    # pd1_value: ½·6·(2, -1) - (1, 2)
    close(
        signals.pd1_value(jnp.array(6.0), jnp.array([2.0, -1.0]), jnp.array([1.0, 2.0]), 0.5),
        [5, -5],
    )
    # pd1: (3 + ½·4 - 1)·(2, -1)
    close(
        signals.pd1(jnp.array(3.0), jnp.array(4.0), jnp.array(1.0), jnp.array([2.0, -1.0]), 0.5),
        [8, -4],
    )
    # pd2: (1, 2) + ½·(4, 6) - (2, 2)
    close(
        signals.pd2(jnp.array([1.0, 2.0]), jnp.array([4.0, 6.0]), jnp.array([2.0, 2.0]), 0.5),
        [1, 3],
    )
    close(signals.pd3(jnp.array([1.0, 5.0]), jnp.array([3.0, 2.0])), [-2, 3])


ENDS = [
    pytest.param({}, 1, id="goes on"),
    pytest.param({"truncated": True}, 1, id="truncated: bootstrapped"),
    pytest.param({"terminated": True}, 0, id="terminated: V = 0"),
    pytest.param({"terminated": True, "truncated": True}, 0, id="both: V = 0"),
]


@pytest.mark.parametrize(("end", "alive"), ENDS)
def test_pd1_of_a_step(end, alive):
    # σ = 2, z = (3, -1): n = (6, -2), Σ⁻¹n = (3/2, -1/2); γ = ½, c = 3, V = 8, Q = 1:
    # TD error 3 + 4·alive - 1.
    algorithm = ww.mf_gpc(2, 2, h=2, sigma=2, signal="pd1", gamma=0.5)
    got = w_hats(algorithm, [[[3, -1]], [[0, 0]]], [step([3], v_next=[8], q=[1], **end)])
    close(got[0, 0], (2 + 4 * alive) * np.array([3 / 2, -1 / 2]))


@pytest.mark.parametrize(("end", "alive"), ENDS)
def test_pd1_value_of_a_step(end, alive):
    # As above with ∇(Q - c) = (1, 2): ½·8·alive·(3/2, -1/2) - (1, 2).
    algorithm = ww.mf_gpc(2, 2, h=2, sigma=2, signal="pd1-value", gamma=0.5)
    got = w_hats(
        algorithm, [[[3, -1]], [[0, 0]]], [step([3], v_next=[8], grad_q_minus_c=[[1, 2]], **end)]
    )
    close(got[0, 0], 4 * alive * np.array([3 / 2, -1 / 2]) - [1, 2])


@pytest.mark.parametrize(("end", "alive"), ENDS)
def test_pd2_of_a_step(end, alive):
    # (1, 2, 3) + ½·(2, 4, 6)·alive - (1, 1, 1)
    algorithm = ww.mf_gpc(1, 3, h=2, signal="pd2", gamma=0.5)
    aux = {"c_vec": [[1, 2, 3]], "v_vec_next": [[2, 4, 6]], "q_vec": [[1, 1, 1]]}
    got = w_hats(algorithm, [[[0]], [[0]]], [step([0], **aux, **end)])
    close(got[0, 0], np.array([0, 1, 2]) + alive * np.array([1, 2, 3]))


@pytest.mark.parametrize(("end", "alive"), ENDS)
def test_pd3_has_no_value_to_stop(end, alive):
    algorithm = ww.mf_gpc(1, 2, h=2, signal="pd3")
    got = w_hats(algorithm, [[[0]], [[0]]], [step([0], x_next=[[5, 1]], x_pred=[[2, 3]], **end)])
    close(got[0, 0], [3, -2])


def test_each_environment_has_its_own_end():
    algorithm = ww.mf_gpc(1, 1, h=2, sigma=1, signal="pd1", gamma=0.5)
    tr = step([3, 3, 3], v_next=[8, 8, 8], q=[1, 1, 1],
              terminated=[True, False, False], truncated=[False, True, False])  # fmt: skip
    got = w_hats(algorithm, np.ones((2, 3, 1)), [tr])
    close(got[0, :, 0], [2, 6, 6])


@pytest.mark.parametrize("preset", [None, "paper"])
def test_discrete_pd1_is_td_error_times_one_hot_minus_probabilities(preset):
    # Step 1: logits ln(1, 2, 5)/8, correction 0: p = (1, 2, 5)/8; u = 2; TD 3 + ½·8 - 1 = 6:
    # ŵ_1 = 6(-1, -2, 3)/8 = (-3/4, -3/2, 9/4).
    # Step 2: M_1 = the identity, so the correction is ŵ_1; base logits ln(1/2, 1/4, 1/4) - ŵ_1
    # make p = (1/2, 1/4, 1/4); u = 0; terminated, so TD 3 - 1 = 2: ŵ_2 = 2(1/2, -1/4, -1/4).
    algorithm = ww.dmf_gpc(
        3, 3, h=1, eta=0, signal="pd1", gamma=0.5, preset=preset, M0=np.eye(3)[None]
    )
    w_1 = np.array([-3 / 4, -3 / 2, 9 / 4])
    got = w_hats(
        algorithm,
        np.zeros((3, 1, 3)),
        [
            step([3], u=np.array([2]), v_next=[8], q=[1], logits=[np.log([1, 2, 5])]),
            step([3], u=np.array([0]), v_next=[8], q=[1],
                 logits=[np.log([1 / 2, 1 / 4, 1 / 4]) - w_1], terminated=True),
        ],
    )  # fmt: skip
    close(got[0, 0], w_1)
    close(got[1, 0], [1, -1 / 2, -1 / 2])


def test_sphere_noise_gives_pd1_its_own_score():
    # δ = 5, unit (3, 4): n of the action is (3, 4), its score (d_u/δ)(3/5, 4/5) = (6, 8)/25.
    algorithm = ww.bandit_gpc(2, 2, h=1, delta=5, signal="pd1", gamma=0.5)
    got = w_hats(algorithm, [[[3, 4]], [[1, 0]]], [step([3], v_next=[8], q=[1])])
    close(got[0, 0], 6 * np.array([6, 8]) / 25)


def test_a_signal_of_ones_own_and_what_it_needs():
    own = ww.Signal("own", ("a", "b"), lambda tr, score, gamma: gamma * tr.aux["a"] - tr.aux["b"])
    algorithm = ww.mf_gpc(1, 2, h=2, signal=own, gamma=0.5)
    assert algorithm.needs == ("a", "b")
    assert algorithm.signal == "own"
    got = w_hats(algorithm, [[[0]], [[0]]], [step([0], a=[[2, 4]], b=[[1, 1]])])
    close(got[0, 0], [0, 1])


@pytest.mark.parametrize(
    ("algorithm", "needs"),
    [
        (ww.base_only(1, 1), ()),
        (ww.mf_gpc(1, 1, signal="w"), ("w",)),
        (ww.mf_gpc(1, 1, signal="pd1"), ("v_next", "q")),
        (ww.mf_gpc(1, 1, signal="pd1-value"), ("v_next", "grad_q_minus_c")),
        (ww.mf_gpc(1, 1, signal="pd2"), ("c_vec", "v_vec_next", "q_vec")),
        (ww.dmf_gpc(2, 1, signal="pd3"), ("x_pred", "logits")),
    ],
)
def test_needs_name_the_aux_values(algorithm, needs):
    assert algorithm.needs == needs


def test_a_missing_aux_value_is_named():
    algorithm = ww.mf_gpc(1, 1, h=2, signal="pd1")
    state, _ = algorithm.init(algorithm.hyper, jnp.ones((1, 1)))
    with pytest.raises(ValueError, match=r"aux must hold v_next, q; missing: q"):
        algorithm.observe(state, step([1], v_next=[2]), jnp.ones((1, 1)))


def test_a_signal_of_the_wrong_size_is_named():
    algorithm = ww.mf_gpc(1, 3, h=2, signal="w")
    state, _ = algorithm.init(algorithm.hyper, jnp.ones((1, 1)))
    with pytest.raises(ValueError, match=r"signal 'w' must give d_w = 3 numbers; got shape \(2,\)"):
        algorithm.observe(state, step([1], w=[[1, 2]]), jnp.ones((1, 1)))
