"""Episode ends, invalid steps, hostile numbers, and environments that share M."""

from itertools import product

import jax
import numpy as np
import pytest

import windward as ww

from .drive import compiled, leaves_equal, play, step

pytestmark = pytest.mark.usefixtures("x64")

nan, inf = float("nan"), float("inf")
M0 = np.array([1.0, -2.0]).reshape(2, 1, 1)
NAMES = ["mf_gpc", "bandit_gpc", "bpc", "dmf_gpc", "dmf_gpc paper"]


def make(name, **more):
    """h = 2, d_w = 1, one action (or two where they are discrete); M starts away from 0."""
    d_u = 2 if name.startswith("dmf") else 1
    kind = {"mf_gpc": ww.mf_gpc, "bandit_gpc": ww.bandit_gpc, "bpc": ww.bpc, "dmf_gpc": ww.dmf_gpc}
    if "paper" in name:
        more["preset"] = "paper"
    more = {"signal": "w", "eta": 0.1, "M0": np.repeat(M0, d_u, axis=1) * [[1.0], [-0.5]][:d_u],
            **more}  # fmt: skip
    return kind[name.split()[0]](d_u, 1, h=2, **more)


def a_step(name, c, w, B=1, **more):
    """A step of B equal environments."""
    discrete = {"u": np.zeros(B, int), "logits": np.tile([0.3, -0.2], (B, 1))}
    aux = discrete if name.startswith("dmf") else {}
    return step(np.broadcast_to(c, B), w=np.broadcast_to(w, (B, 1)), **{**aux, **more})


def units_of(algorithm, count, B=1, seed=0):
    shape = jax.eval_shape(lambda key: algorithm.unit(key, B), jax.random.key(0)).shape
    return np.random.default_rng(seed).normal(size=(count, *shape))


def warmed(name, B=1, **more):
    """An algorithm and its state and plan after three steps, the windows full."""
    algorithm = make(name, **more)
    units = units_of(algorithm, 4, B)
    steps = [a_step(name, c, w, B) for c, w in [(1, 1), (2, -1), (0.5, 2)]]
    trace = play(algorithm, units, steps)
    return algorithm, trace.state, trace.plans[-1]


@pytest.mark.parametrize("end", ["terminated", "truncated"])
@pytest.mark.parametrize("name", NAMES)
def test_an_ended_episode_ends_the_windows_and_keeps_M(name, end):
    algorithm, state, _ = warmed(name)
    unit = units_of(algorithm, 2, seed=5)
    after, plan, info = compiled(algorithm.observe)(
        state, a_step(name, 3, 4, **{end: True}), unit[0]
    )
    # The last step still teaches (unless the delay holds it back), and nothing is forgotten.
    assert np.abs(info.gradient).max() > 0
    if name.split()[0] in ("mf_gpc", "dmf_gpc"):
        np.testing.assert_allclose(
            after.learner.M,
            np.asarray(state.learner.M) - 0.1 * np.asarray(info.gradient),
            rtol=1e-12,
        )
    assert np.abs(after.learner.M).max() > 0
    # The windows end: no ŵ, no record, so no correction and, at the next step, no old score.
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(after.local.w_hist))
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(after.local.records))
    assert np.all(plan.correction == 0)
    assert after.local.t.item() == 4
    # From here on it is a new run that starts with this M (the fresh one has no delay to empty).
    fresh = make(name, M0=np.asarray(after.learner.M))
    start, start_plan = compiled(fresh.init)(fresh.hyper, unit[0])
    assert leaves_equal(plan, start_plan)
    tr = a_step(name, 2, 1)
    _, _, continued = compiled(algorithm.observe)(after, tr, unit[1])
    _, _, begun = compiled(fresh.observe)(start, tr, unit[1])
    np.testing.assert_allclose(continued.gradient, begun.gradient, rtol=1e-12, atol=1e-14)


def test_an_end_in_one_environment_leaves_the_others_windows():
    algorithm, state, _ = warmed("mf_gpc", B=2)
    tr = a_step("mf_gpc", 3, 4, B=2, terminated=[True, False])
    after, plan, _ = compiled(algorithm.observe)(state, tr, units_of(algorithm, 1, B=2)[0])
    assert np.all(after.local.w_hist[0] == 0)
    np.testing.assert_array_equal(after.local.w_hist[1, :, 0], [4, 2, -1])
    assert plan.correction[0].item() == 0
    M = np.asarray(after.learner.M).ravel()
    assert plan.correction[1].item() == pytest.approx(4 * M[0] + 2 * M[1], rel=1e-12)


def test_delayed_gradients_outlive_the_episode():
    # BPC, h = 2: the gradient of step 3, where the episode ends, reaches M two steps later.
    algorithm = make("bpc", M0=None, projection=None)
    steps = [a_step("bpc", c, 1, terminated=c == 7) for c in (0, 0, 7, 0, 0)]
    trace = play(algorithm, units_of(algorithm, 6), steps)
    assert np.all(trace.Ms[4] == 0)
    np.testing.assert_allclose(trace.Ms[5], -0.1 * trace.infos[2].gradient, rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_an_invalid_step_changes_nothing_at_all(name):
    algorithm, state, plan = warmed(name)
    tr = a_step(name, 3, 4, valid=False, terminated=True)
    unit = units_of(algorithm, 1, seed=6)[0]
    after, after_plan, info = compiled(algorithm.observe)(state, tr, unit)
    assert leaves_equal(after, state)
    assert leaves_equal(after_plan, plan)
    assert not info.accepted.any()
    assert np.all(info.gradient == 0)


HOSTILE = [
    pytest.param({"c": nan}, id="c nan"),
    pytest.param({"c": inf}, id="c inf"),
    pytest.param({"c": -inf}, id="c -inf"),
    pytest.param({"w": nan}, id="w nan"),
    pytest.param({"w": inf}, id="w inf"),
]


@pytest.mark.parametrize("numbers", HOSTILE)
@pytest.mark.parametrize("valid", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_hostile_numbers_are_refused(name, valid, numbers):
    algorithm, state, plan = warmed(name)
    tr = a_step(name, **{"c": 3.0, "w": 4.0, **numbers}, valid=valid)
    unit = units_of(algorithm, 2, seed=6)
    after, after_plan, info = compiled(algorithm.observe)(state, tr, unit[0])
    assert not info.accepted.any()
    assert leaves_equal(after, state)
    assert leaves_equal(after_plan, plan)
    # ... and the next good step is taken as if nothing had happened.
    good = a_step(name, 3, 4)
    assert leaves_equal(
        compiled(algorithm.observe)(after, good, unit[1]),
        compiled(algorithm.observe)(state, good, unit[1]),
    )


@pytest.mark.parametrize("signal", ["pd1", "pd2", "pd3"])
def test_a_signal_that_is_not_finite_is_refused(signal):
    algorithm = ww.mf_gpc(1, 1, h=2, signal=signal, eta=0.1)
    aux = {"pd1": {"v_next": [nan], "q": [1]}, "pd3": {"x_pred": [[inf]]},
           "pd2": {"c_vec": [[1]], "v_vec_next": [[inf]], "q_vec": [[1]]}}  # fmt: skip
    trace = play(algorithm, np.ones((2, 1, 1)), [step([1], x_next=[[0]], **aux[signal])])
    assert not trace.infos[0].accepted.any()
    assert leaves_equal(trace.plans[0], trace.plans[1])


def test_the_value_of_a_terminal_state_may_be_anything():
    # V(x_next) counts as 0 on termination, so what a critic says there must not matter.
    algorithm = ww.mf_gpc(1, 1, h=2, sigma=1, signal="pd1", gamma=0.5)
    tr = step([3], v_next=[nan], q=[1], terminated=True)
    trace = play(algorithm, np.ones((2, 1, 1)), [tr])
    assert trace.infos[0].accepted.all()
    assert trace.infos[0].w_hat.item() == 2  # (3 - 1)·1


@pytest.mark.parametrize("valid", [True, False])
@pytest.mark.parametrize("name", ["dmf_gpc", "dmf_gpc paper"])
def test_logits_that_are_not_finite_are_refused(name, valid):
    algorithm, state, plan = warmed(name)
    tr = a_step(name, 3, 4, logits=[[nan, 0.0]], valid=valid)
    after, after_plan, info = compiled(algorithm.observe)(state, tr, units_of(algorithm, 1)[0])
    assert not info.accepted.any()
    assert leaves_equal(after, state)
    assert leaves_equal(after_plan, plan)


@pytest.mark.parametrize(
    ("name", "hostile"),
    [
        *product(NAMES, ["invalid", "c nan", "w nan", "all nan"]),
        *product(["dmf_gpc", "dmf_gpc paper"], ["logits nan"]),
    ],
)
def test_the_other_environment_learns_as_if_alone(name, hostile):
    two, one = warmed(name, B=2), warmed(name, B=1)
    algorithm = two[0]
    # Both environments have seen the same; the draws of environment 1 are now those of `one`.
    state = two[1]._replace(
        local=jax.tree.map(
            lambda pair, single: np.concatenate([np.asarray(pair)[:1], single]),
            two[1].local,
            one[1].local,
        ),
        learner=one[1].learner,
    )
    everything = hostile == "all nan"
    tr = a_step(
        name,
        [nan if hostile == "c nan" or everything else 3.0, 3.0],
        [[nan if hostile == "w nan" or everything else 4.0], [4.0]],
        B=2,
        valid=[hostile not in ("invalid", "all nan"), True],
        terminated=[hostile == "invalid", False],
    )
    if name.startswith("dmf") and (everything or hostile == "logits nan"):
        logits = np.array(tr.aux["logits"])
        logits[0] = nan
        tr = tr._replace(aux={**tr.aux, "logits": logits})
    unit = units_of(algorithm, 1, B=2, seed=8)[0]
    after, plan, info = compiled(algorithm.observe)(state, tr, unit)
    alone, plan_alone, info_alone = compiled(algorithm.observe)(
        one[1], a_step(name, 3, 4), unit[1:]
    )
    assert info.accepted.tolist() == [False, True]
    np.testing.assert_allclose(info.gradient, info_alone.gradient, rtol=1e-12)
    for a, b in zip(jax.tree.leaves(after.learner), jax.tree.leaves(alone.learner), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    for a, b in zip(plan, plan_alone, strict=True):
        np.testing.assert_allclose(a[1:], b, rtol=1e-12)
    # The refused environment keeps its windows and its draw.
    assert leaves_equal(lane(after.local, 0), lane(state.local, 0))
    assert all(np.isfinite(leaf).all() for leaf in plan)


@pytest.mark.parametrize("name", ["mf_gpc", "dmf_gpc"])
def test_an_episode_ends_even_with_a_cost_that_is_not_finite(name):
    # The step teaches nothing, but the next episode must not inherit this one's windows.
    algorithm, state, _ = warmed(name)
    tr = a_step(name, nan, 4, terminated=True)
    after, plan, info = compiled(algorithm.observe)(state, tr, units_of(algorithm, 1)[0])
    assert not info.accepted.any()
    np.testing.assert_array_equal(after.learner.M, state.learner.M)
    assert np.all(after.local.w_hist == 0)
    assert np.all(plan.correction == 0)


def test_an_episode_that_ends_with_a_refused_step_still_counts():
    # Two steps teach, the third ends the episode with a cost of nan: their sum is applied.
    algorithm = make("mf_gpc", every_episodes=1)
    steps = [a_step("mf_gpc", 1, 1), a_step("mf_gpc", 2, -1)]
    steps.append(a_step("mf_gpc", nan, 4, terminated=True))
    trace = play(algorithm, units_of(algorithm, 4), steps)
    np.testing.assert_array_equal(trace.Ms[2], M0)
    total = trace.infos[0].gradient + trace.infos[1].gradient
    assert np.abs(total).max() > 0
    assert np.all(trace.infos[2].gradient == 0)
    np.testing.assert_allclose(trace.Ms[3], M0 - 0.1 * total, rtol=1e-12)


def test_a_gradient_that_overflows_is_not_applied():
    with jax.enable_x64(False):
        algorithm = ww.mf_gpc(1, 1, h=2, eta=1.0, sigma=1e-3, signal="w")
        trace = play(algorithm, np.ones((4, 1, 1)), [step([c], w=[[1]]) for c in (1, 3e38, 1)])
        assert np.all(trace.Ms[2] == trace.Ms[1])
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(trace.state))
        assert np.abs(trace.Ms[3]).max() > 0  # the next good step is learnt from


# ---------------------------------------------------------------- environments that share M


def random_steps(name, B, seed):
    """Four steps of B environments with numbers of their own."""
    rng = np.random.default_rng(seed)

    def one():
        more = {}
        if name.startswith("dmf"):
            more = {"u": rng.integers(0, 2, B), "logits": rng.normal(size=(B, 2))}
        return step(rng.normal(size=B), w=rng.normal(size=(B, 1)), **more)

    return [one() for _ in range(4)]


def lane(tree, b):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[b : b + 1], tree)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_environments_that_share_M_are_averaged(name):
    # At a fixed M each environment's gradient is the one it would have alone, and its plan too.
    algorithm = make(name, eta=0)
    steps, units = random_steps(name, 2, seed=1), units_of(algorithm, 5, B=2, seed=2)
    shared = play(algorithm, units, steps)
    alone = [play(algorithm, units[:, b : b + 1], [lane(tr, b) for tr in steps]) for b in (0, 1)]
    for t in range(4):
        mean = sum(np.asarray(one.infos[t].gradient) for one in alone) / 2
        np.testing.assert_allclose(shared.infos[t].gradient, mean, rtol=1e-10, atol=1e-12)
        for b in (0, 1):
            for a, c in zip(lane(shared.plans[t + 1], b), alone[b].plans[t + 1], strict=True):
                np.testing.assert_allclose(a, c, rtol=1e-10, atol=1e-12)
    assert np.abs(shared.infos[3].gradient).max() > 0.1


def test_episodes_of_environments_that_share_M_are_counted_in_total():
    # every_episodes = 3 and three environments: two end at step 2, one at step 4. M moves at
    # step 4 and only there, by -η times the sum of the (averaged) gradients of all four steps.
    algorithm = make("mf_gpc", every_episodes=3)
    steps = random_steps("mf_gpc", 3, seed=3)
    steps[1] = steps[1]._replace(
        terminated=np.array([True, False, False]), truncated=np.array([False, True, False])
    )
    steps[3] = steps[3]._replace(truncated=np.array([False, False, True]))
    trace = play(algorithm, units_of(algorithm, 5, B=3, seed=4), steps)
    for M in trace.Ms[:4]:
        np.testing.assert_array_equal(M, M0)
    total = sum(np.asarray(info.gradient) for info in trace.infos)
    assert np.abs(total).max() > 0.1
    np.testing.assert_allclose(trace.Ms[4], M0 - 0.1 * total, rtol=1e-12)


def test_the_end_of_an_invalid_step_is_no_episode():
    algorithm = make("mf_gpc", every_episodes=1)
    steps = random_steps("mf_gpc", 2, seed=5)[:2]
    steps[1] = steps[1]._replace(terminated=np.array([True, False]), valid=np.array([False, True]))
    trace = play(algorithm, units_of(algorithm, 3, B=2, seed=6), steps)
    assert trace.infos[1].accepted.tolist() == [False, True]
    assert np.abs(trace.infos[1].gradient).max() > 0
    np.testing.assert_array_equal(trace.Ms[2], M0)
