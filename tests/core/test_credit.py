"""What draws are credited with: small cases by hand, and what a credit must not know."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import windward as ww
from windward.core import credit, models
from windward.types import Local

from .drive import compiled, on_host, step


def transition(c, aux, **flags):
    """A step whose aux values may be called as the arguments of `step` are."""
    dtype = jnp.zeros(()).dtype
    aux = {
        name: each if isinstance(each, jax.Array) else np.asarray(each, dtype)
        for name, each in aux.items()
    }
    return step(c, **flags)._replace(aux=aux)


def look(c, w_hist=None, accepted=None, records=None, **aux):
    c = c if isinstance(c, jax.Array) else np.asarray(c, np.float32)
    B = len(c)
    w_hist = jnp.zeros((B, 2, 1)) if w_hist is None else jnp.asarray(w_hist, jnp.float32)
    local = Local(w_hist, records, jnp.zeros((B, 1)), jnp.zeros(B, jnp.int32))
    ok = np.ones(B, bool) if accepted is None else np.asarray(accepted)
    return credit.Look(step(c, **aux), local, jnp.zeros((B, 1)), ok)


HYPER = {"sigma": jnp.asarray(0.5)}


def test_running_mean_is_of_the_past_alone():
    part = credit.chain(credit.cost(), credit.running_mean())
    state, seen = part.init(), []
    for c in (4.0, 6.0, 11.0):
        state, out = part.update(state, look([c]), HYPER)
        seen.append(float(out[0]))
    assert seen == [0.0, 2.0, 6.0]  # nothing to compare with; 6 - 4; 11 - (4 + 6)/2


def test_running_mean_leaves_refused_rows_out():
    part = credit.chain(credit.cost(), credit.running_mean())
    state, _ = part.update(part.init(), look([4.0, 100.0], accepted=[True, False]), HYPER)
    state, out = part.update(state, look([6.0, 7.0]), HYPER)
    # Rows in turn: 6 - 4, then 7 - (4 + 6)/2.
    np.testing.assert_allclose(out, [2.0, 2.0])


def test_residual_takes_the_last_cost_before_each_draw():
    records = {"c": jnp.array([[5.0, 3.0, 1.0]])}  # c_t, c_{t-1}, c_{t-2}
    _, out = credit.residual(2).update((), look([5.0], records=records), HYPER)
    np.testing.assert_allclose(out, [[5 - 3, 5 - 1, 0]])


def test_advantage_by_hand_and_on_termination():
    part = credit.advantage(0.9)
    assert part.needs == ("v", "v_next")
    both = look([1.0, 1.0], terminated=[False, True], v=[3.0, 3.0], v_next=[10.0, 10.0])
    np.testing.assert_allclose(part.update((), both, HYPER)[1], [1 + 9 - 3, 1 - 3])


def test_normalised_credits_have_no_unit():
    def outcome(cost_unit, w_unit):
        part = credit.chain(credit.cost(), credit.normalised(2, lambda hyper: hyper["sigma"] ** 2))
        state = part.init()
        for c, w in ((1.0, 1.0), (-2.0, 0.5), (0.5, 2.0)):
            w_hist = w_unit * np.array([[[w], [1.0]]])
            state, out = part.update(state, look([cost_unit * c], w_hist), HYPER)
        return float(out[0]) * w_unit**2

    np.testing.assert_allclose(outcome(1.0, 1.0), outcome(1e4, 1e-3), rtol=1e-4)
    # The last: c over its rms, σ² over the windows' mean square.
    rms, square = np.sqrt((1 + 4 + 0.25) / 3), (2 + 1.25 + 5) / 3
    np.testing.assert_allclose(outcome(1.0, 1.0), 0.5 / rms * 0.25 / square, rtol=1e-5)


def test_regression_learns_a_quadratic_of_the_window_and_not_the_noise():
    part = credit.chain(credit.cost(), credit.on_disturbances(2, 1))
    update = jax.jit(lambda state, c, w: part.update(state, look(c, w), HYPER))
    rng = np.random.default_rng(0)
    w, noise = rng.normal(size=402), rng.normal(size=400)
    state, left = part.init(), []
    for t in range(400):
        window = w[t : t + 2][::-1]
        c = 3 + 2 * window[0] ** 2 - window[0] * window[1] + window[1] + noise[t]
        state, out = update(state, np.array([c]), window.reshape(1, 2, 1))
        left.append(float(out[0]))
    # Of what the window explains, variance 8 + 1 + 1, at least 95 % is taken away; not all, since
    # the components of a window without a leading direction go on turning.
    assert np.var(np.array(left[200:]) - noise[200:]) < 0.05 * 10


@lru_cache
def program(init, observe, apply, needs):
    """A scalar system x' = 0.5x + v + w with cost x² + v²/2, the base policy u = 0."""

    def advance(carry, now):
        x, state, plan = carry
        w, unit = now
        v = apply(plan, jnp.zeros((1, 1)))
        x_next = 0.5 * x + v + w
        c = jnp.sum(x**2 + 0.5 * v**2, axis=1)
        aux = {"w": jnp.broadcast_to(w, (1, 1)), "x": x, "x_next": x_next}
        tr = transition(c, {name: aux[name] for name in needs})
        state, plan, _ = observe(state, tr, unit)
        return (x_next, state, plan), c[0]

    def run(hyper, w, units):
        state, plan = init(hyper, units[0])
        (_, state, _), costs = jax.lax.scan(
            advance, (jnp.zeros((1, 1)), state, plan), (w, units[1:])
        )
        return state, costs

    return jax.jit(run)


T = 1500
SINE = np.sin(0.3 * np.arange(T))


def linear_world(algorithm, w=SINE):
    """The state after T steps of `program`, and the costs; equal recipes share their program."""
    run = program(algorithm.init, algorithm.observe, algorithm.apply, algorithm.needs)
    units = np.random.default_rng(0).normal(size=(T + 1, 1, 1))
    return on_host(run(algorithm.hyper, np.float32(w), np.float32(units)))


def test_response_finds_the_system_and_the_cost():
    algorithm = ww.mf_gpc(1, 1, h=2, signal="w", gradient="response")
    assert algorithm.needs == ("w", "x", "x_next")
    state, costs = linear_world(algorithm)
    model = state.learner.credit
    rms = np.sqrt(np.asarray(model.sizes.square))  # of x, v, ŵ
    np.testing.assert_allclose(model.dynamics.theta[0, :3] / rms, [0.5, 1.0, 1.0], atol=0.02)
    assert costs[-200:].mean() < 0.75 * costs[:70].mean()


@pytest.mark.parametrize("gradient", ["quadratic", "response"])
def test_models_meet_a_sinusoid(gradient):
    state, costs = linear_world(ww.mf_gpc(1, 1, h=2, signal="w", gradient=gradient))
    assert costs[-200:].mean() < 0.8 * costs[:70].mean()
    assert np.isfinite(state.learner.M).all()


NEW = [
    {"baseline": "mean"},
    {"baseline": "regression"},
    {"gradient": "residual"},
    {"gradient": "quadratic"},
    {"gradient": "response"},
]


@pytest.mark.parametrize("chosen", NEW, ids=str)
def test_constant_and_absent_wind_leave_M_finite(chosen):
    algorithm = ww.mf_gpc(1, 1, h=2, signal="w", **chosen)
    for w in (0.5, 0.0):
        state, costs = linear_world(algorithm, np.full(T, w))
        assert np.isfinite(state.learner.M).all()
        assert np.isfinite(costs).all()
        assert np.abs(state.learner.M).max() <= 10
    assert (state.learner.M == 0).all()  # where no wind is, nothing is corrected


AUX = {
    "w": [[0.3], [0.1]], "x": [[1.0], [2.0]], "x_next": [[0.5], [0.2]], "v": [1.0, 0.5],
    "v_next": [2.0, 3.0],
}  # fmt: skip


@pytest.mark.parametrize("chosen", [*NEW, {"gradient": "advantage"}], ids=str)
def test_environments_share_what_they_learn_and_hostile_steps_change_nothing(chosen):
    algorithm = ww.mf_gpc(1, 1, h=2, signal="w", **chosen)
    usual = transition([1.0, 2.0], {name: AUX[name] for name in algorithm.needs})
    unit = np.ones((2, 1), np.float32)
    observe = compiled(algorithm.observe)
    state, _ = compiled(algorithm.init)(algorithm.hyper, unit)
    for _ in range(3):
        state, plan, _ = observe(state, usual, unit)
    assert state.learner.M.shape == (2, 1, 1)
    assert plan.correction.shape == (2, 1)
    for name in ("c", *algorithm.needs):
        bad = np.full(np.shape(AUX.get(name, [1.0, 2.0])), np.nan, np.float32)
        tr = usual._replace(c=bad) if name == "c" else usual._replace(aux=usual.aux | {name: bad})
        after, plan, info = observe(state, tr, unit)
        assert not np.asarray(info.accepted).any()
        for a, b in zip(
            jax.tree.leaves(after.learner), jax.tree.leaves(state.learner), strict=True
        ):
            np.testing.assert_array_equal(a, b)
        assert np.isfinite(plan.correction).all()


def test_exploration_falls_for_all_but_the_papers_update():
    for chosen, falls in (({}, False), ({"gradient": "quadratic"}, True)):
        algorithm = ww.mf_gpc(1, 1, h=2, signal="w", **chosen)
        assert ("sigma_end" in algorithm.hyper) == falls
    state, _ = linear_world(algorithm)
    first, end = algorithm.hyper["sigma"], algorithm.hyper["sigma_end"]
    expected = end + (first - end) * (1 - 1 / 1500) ** T
    np.testing.assert_allclose(state.learner.hyper["sigma"], expected, rtol=1e-3)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"gradient": "newton"}, "gradient must be one of"),
        ({"baseline": "critic"}, "baseline must be one of"),
        ({"gradient": "response", "baseline": "mean"}, "no score"),
        ({"gradient": "residual", "baseline": "regression"}, "its own baseline"),
        ({"sigma_end": 0.1}, "not for the paper's update"),
    ],
)
def test_what_does_not_fit_together_is_refused(chosen, message):
    with pytest.raises(ValueError, match=message):
        ww.mf_gpc(1, 1, signal="w", **chosen)


def test_many_states_are_fitted_by_squares_alone():
    small, large = (jax.eval_shape(models.response(2, 2, 3, d_x).init) for d_x in (3, 60))
    assert small.cost.theta.shape == (1, 21)  # pairs of 1, x, v
    assert large.cost.theta.shape == (1, 2 * 62 + 1)
