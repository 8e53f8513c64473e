"""Observer and L1 augmentation: their equations, what they cancel, and bad input."""

import copy
import re
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt.learners.input_maps import LeastSquares, inverse
from windward.adapt.learners.l1 import L1Settings, PiecewiseConstant
from windward.adapt.learners.laws import signal_rows
from windward.adapt.learners.observer import ObserverSettings, QFilter
from windward.adapt.sources import Happened, ObservedPD3

from .slots import (
    BAD,
    BASE,
    Broken,
    assert_alone,
    broken_signal,
    faulty,
    plant_simulator,
    run,
    settle,
)
from .test_hostile import BOX, Garbage, One, inside, own
from .worlds import GAMMA, A, B, Plant, ScalarValues, VectorValues, assert_same, drive, true_w, wind

PEERS = ["observer", "l1"]
observer = partial(ww.RobustWrapper, learner="observer")
LN2 = np.log(2.0)
MATCHED = 0.3 * B.T  # a wind that an action of -0.3 cancels
NUMBERS = [np.nan, np.inf, -np.inf]


def wrapped(kind, env, signal="auto", **options):
    """An environment with a law around it."""
    return ww.RobustWrapper(env, signal, learner=kind, **options)


def map_of(env):
    """The input map B as it is now."""
    return env._runtime.learner.laws[0].input_map.B


# Equations, with numbers worked by hand.


def test_the_observer_filters_and_cancels():
    law = QFilter(ObserverSettings(gain=2.0, bandwidth=LN2))  # a half of the way at each step
    B_inverse = np.array([[4.0, 0.0]])
    np.testing.assert_allclose(law(np.array([1.0, 9.0]), B_inverse), [4.0])  # 2·4·0.5
    np.testing.assert_allclose(law(np.array([0.0, 9.0]), B_inverse), [2.0])
    law.begin()
    np.testing.assert_allclose(law(np.array([0.0, 9.0]), B_inverse), [0.0])


def test_l1_adapts_by_its_predictor():
    law = PiecewiseConstant(L1Settings(a=LN2, bandwidth=LN2))  # A_s = 1/2, Φ = 1/(2 ln 2)
    B_inverse = np.array([[4.0, 0.0]])
    first = law(np.array([1.0, 9.0]), B_inverse)
    np.testing.assert_allclose(law.e, [-1.0, -9.0])
    np.testing.assert_allclose(law.sigma_hat, [LN2, 9.0 * LN2])  # a/(e^a - 1) = ln 2
    np.testing.assert_allclose(first, [1.0])  # half of 4 ln 2, and half of the bound 2 at most
    second = law(np.array([0.1, 0.0]), B_inverse)
    np.testing.assert_allclose(law.e, [-0.1, 0.0], atol=1e-12)
    np.testing.assert_allclose(second, [0.5 + 0.2 * LN2])


def test_the_predictor_of_l1_is_one_of_the_state():
    """x̂ runs beside a plant; its error is what the law computes from ŵ alone."""
    law, a = PiecewiseConstant(L1Settings(a=0.4, bandwidth=1.0)), 0.4
    rng, x, x_hat = np.random.default_rng(0), np.zeros(2), np.zeros(2)
    A_s, Phi = np.exp(-a), (1 - np.exp(-a)) / a
    for w in wind(20):
        u, sigma_hat = rng.normal(size=1), law.sigma_hat
        f = A @ x + B @ u
        x, x_hat = f + w, f + A_s * (x_hat - x) + Phi * sigma_hat
        law(w, np.zeros((1, 2)))
        np.testing.assert_allclose(law.e, x_hat - x, atol=1e-12)


def test_least_squares_fade():
    fit = LeastSquares(1, 1, forget=0.5)
    fit.add(np.array([[1.0]]), np.array([[2.0]]))
    fit.add(np.array([[1.0]]), np.array([[5.0]]))
    np.testing.assert_allclose(fit.theta, [[(0.5 * 2 + 5) / 1.5]], rtol=1e-6)
    assert fit.count == 1.5


def test_doubt_is_the_covariance_of_least_squares():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(500, 3))
    y = z @ rng.normal(size=(3, 2)) + [0.1, 0.4] * rng.normal(size=(500, 2))
    fit = LeastSquares(3, 2, forget=1.0)
    fit.add(z, y)
    expected = np.linalg.inv(z.T @ z) * (1.0 * 0.1**2 + 2.0 * 0.4**2)
    np.testing.assert_allclose(fit.doubt(np.array([1.0, 2.0])), expected, rtol=0.2, atol=1e-5)


def test_w_hat_of_pd2_has_no_value_after_the_end():
    source = ww.PD2(VectorValues())
    x, u, x_next = np.array([[0.3, -0.2]]), np.array([[0.1]]), np.array([[0.5, 0.4]])
    values, no = source.values, np.zeros(1, dtype=bool)
    for ended in (False, True):
        step = Happened(x, u, np.zeros(1), x_next, np.array([ended]), no)
        ahead = 0.0 if ended else GAMMA * values.V(x_next)[0]
        expected = x[0] + ahead - values.Q(x, u)[0]
        np.testing.assert_allclose(signal_rows(source, step)[0], expected, rtol=1e-6)


def test_the_inverse_weighs_coordinates_and_doubts():
    column, none = np.array([[1.0], [2.0]]), np.zeros((1, 1))
    np.testing.assert_allclose(inverse(column, np.ones(2), none), [[0.2, 0.4]], rtol=2e-3)
    np.testing.assert_allclose(inverse(column, np.array([0.0, 1.0]), none), [[0.0, 0.5]], rtol=2e-3)
    half = inverse(column, np.ones(2), np.array([[5.0]]))
    np.testing.assert_allclose(half, [[0.1, 0.2]], rtol=2e-3)
    assert not inverse(np.zeros((2, 1)), np.ones(2), none).any()


# What they cancel.


@pytest.mark.parametrize("kind", PEERS)
@pytest.mark.parametrize("half", [1.0, 2.5])
def test_a_matched_wind_is_cancelled(kind, half):
    def plant():
        return Plant(MATCHED, half=half, middle=0.5)

    alone = settle(plant())
    env = plant()
    peer = wrapped(kind, env, simulator=plant_simulator(env))
    assert settle(peer) < 0.02 * alone  # L1 leaves 1 - a/(e^a - 1) = 0.005, damping 0.001
    np.testing.assert_allclose(map_of(peer), B, atol=1e-3)  # of actions scaled to [-1, 1]
    upside_down = wrapped(kind, plant(), true_w_of(half), input_map=-B)
    assert settle(upside_down) > 1.5 * alone


def true_w_of(half):
    return lambda x, u, reward, x_next: true_w(x, (u - 0.5) / half, reward, x_next)


@pytest.mark.parametrize("kind", PEERS)
def test_values_have_an_input_map_too(kind):
    """PD2's ŵ is T w, and the differences of its Q are T B."""
    env = wrapped(kind, Plant(MATCHED), ww.PD2(VectorValues()))
    assert env.signal == "pd2"
    assert settle(env) < 0.02 * settle(Plant(MATCHED))


@pytest.mark.parametrize("kind", PEERS)
def test_an_online_map_is_learned_in_the_wind(kind):
    # Slow, so that the correction goes with the wind: a regression that takes both for one fails.
    gusts = (0.3 * np.sin(np.arange(400) / 15))[:, None] * B.T
    env = wrapped(kind, Plant(gusts), true_w, seed=3)
    x, _ = env.reset(seed=0)
    told, _ = drive(env, env.unwrapped.base, 400, x)
    np.testing.assert_allclose(map_of(env), B, atol=0.02)
    assert not any(each["correction"].any() for each in told[:8])  # four unknowns, twice
    assert np.std([each["noise"] for each in told]) == pytest.approx(0.05, rel=0.2)
    late = np.mean([np.abs(each["x"]).sum() for each in told[200:]])
    assert late < 0.5 * settle(Plant(gusts))


def test_a_simulator_that_reads_observations_has_the_same_map():
    env = gym.make("Pendulum-v1")
    source = ObservedPD3(ww.simulator(env, noisy=False))
    live, observed = observer(env), observer(env, source)
    for peer in (live, observed):
        peer.reset(seed=0)
        peer.step(np.zeros(1, np.float32))
    np.testing.assert_allclose(map_of(live), [[0.015], [0.3]], rtol=1e-5)
    np.testing.assert_allclose(map_of(observed), map_of(live), rtol=1e-4)
    seen = observer(env, ww.PD3(source.simulator, coordinates="observation"))
    seen.reset(seed=0)
    seen.step(np.zeros(1, np.float32))
    assert map_of(seen).shape == (3, 1)
    np.testing.assert_allclose(map_of(seen)[2], 0.3, rtol=1e-5)


def test_weights_choose_what_is_cancelled():
    w = np.array([[0.0, 0.2]])  # no action reaches it alone
    first, second = (
        observer(Plant(w), true_w, input_map=B, weights=weights, bandwidth=9.0)
        for weights in ([1.0, 0.0], [0.0, 1.0])
    )
    np.testing.assert_allclose(run(first)[-1]["correction"], [0.0])
    np.testing.assert_allclose(run(second)[-1]["correction"], [-0.2], rtol=2e-3)


@pytest.mark.parametrize("kind", PEERS)
def test_a_pendulum_in_constant_wind(kind):
    policy = ww.policies.load("Pendulum-v1")

    def angle(wrap):
        env = wrap(ww.envs.Disturbed(gym.make("Pendulum-v1"), "bias:value=0.15", "qvel"))
        x, _ = env.reset(seed=3)
        sizes = []
        for _ in range(200):
            x, *_ = env.step(policy.predict(x)[0])
            sizes.append(abs(np.arctan2(x[1], x[0])))
        return np.mean(sizes[150:])

    assert angle(partial(wrapped, kind)) < 0.2 * angle(lambda env: env)


def test_where_nothing_blows_the_action_is_the_agents_own():
    env = Plant(np.zeros((1, 2)))
    peer = observer(env, simulator=plant_simulator(env))
    peer.reset(seed=0)
    for action in (np.array([0.25]), np.array([-1.0])):
        *_, info = peer.step(action)
        np.testing.assert_array_equal(env.executed[-1], action)
        assert not info["windward"]["correction"].any()


# Habits of the slot.


@pytest.mark.parametrize("kind", PEERS)
def test_the_same_seed_gives_the_same_floats(kind):
    def played(seed, again=False):
        env = wrapped(kind, Plant(wind(80), length=30), true_w, seed=seed)
        x, _ = env.reset(seed=0)
        told, _ = drive(env, env.unwrapped.base, 80, x)
        if not again:
            return told
        env.reset_adaptation()
        assert env.faults == {}
        assert not map_of(env).any()
        env.unwrapped.t = 0
        x, _ = env.reset(seed=0)
        return drive(env, env.unwrapped.base, 80, x)[0]

    assert_same(played(1), played(1))
    assert_same(played(1), played(1, again=True))
    assert any((a["noise"] != b["noise"]).any() for a, b in zip(played(1), played(2), strict=True))


@pytest.mark.parametrize("kind", PEERS)
def test_frozen_it_keeps_its_map_and_makes_no_noise(kind):
    env = wrapped(kind, Plant(MATCHED), true_w)
    x, _ = env.reset(seed=0)
    _, x = drive(env, env.unwrapped.base, 50, x)
    env.freeze()
    before = map_of(env)
    told, x = drive(env, env.unwrapped.base, 20, x)
    np.testing.assert_array_equal(map_of(env), before)
    assert not any(each["noise"].any() for each in told)
    assert told[-1]["correction"].any()
    env.unfreeze()
    told, _ = drive(env, env.unwrapped.base, 20, x)
    assert (before != map_of(env)).any()
    assert told[-1]["noise"].any()


@pytest.mark.parametrize("kind", PEERS)
def test_an_episode_begins_without_wind(kind):
    env = wrapped(kind, Plant(MATCHED, length=10), true_w, input_map=B)
    x, _ = env.reset(seed=0)
    told, _ = drive(env, env.unwrapped.base, 21, x)
    for first in (0, 10, 20):
        assert not told[first]["correction"].any()
    assert told[9]["correction"].any()


@pytest.mark.parametrize("kind", PEERS)
def test_a_copy_goes_its_own_way(kind):
    env = Plant(wind(60))
    peer = wrapped(kind, env, simulator=plant_simulator(env))
    x, _ = peer.reset(seed=0)
    _, x = drive(peer, env.base, 10, x)
    other = copy.deepcopy(peer)
    other.unwrapped.w = -env.w
    before = map_of(peer)
    drive(other, env.base, 10, x)
    np.testing.assert_array_equal(map_of(peer), before)
    other = copy.deepcopy(peer)
    assert_same(drive(peer, env.base, 10, x)[0], drive(other, env.base, 10, x)[0])


def test_what_is_told_is_what_was_done():
    env = observer(Plant(5 * MATCHED, half=2.0, middle=1.0), true_w_of(2.0), input_map=B)
    told = run(env)
    for each in told:
        wanted = BASE + 2.0 * (each["correction"] + each["noise"])
        np.testing.assert_allclose(each["action"], np.clip(wanted, -1.0, 3.0))
        assert each["clipped"] == (not -1.0 <= wanted[0] <= 3.0)
    assert 0 < env.clipped == sum(each["clipped"] for each in told)


# Bad input.


@pytest.mark.parametrize("kind", PEERS)
@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize("what", ["observation", "reward"])
def test_bad_observations_and_rewards(kind, what, value):
    told = faulty(wrapped(kind, Broken(what, value), true_w, input_map=B), what)
    assert_alone(told, BAD + 1)


@pytest.mark.parametrize("kind", PEERS)
@pytest.mark.parametrize("raises", [True, False])
def test_a_bad_signal(kind, raises):
    told = faulty(wrapped(kind, Broken(), broken_signal(raises), input_map=B), "signal")
    assert_alone(told, BAD + 1)
    assert not told[BAD]["w_hat"].any()


@pytest.mark.parametrize("kind", PEERS)
@pytest.mark.parametrize("value", NUMBERS)
def test_a_bad_action(kind, value):
    told = faulty(wrapped(kind, Broken(), true_w, input_map=B), "action", bad_action=value)
    assert_alone(told, BAD, base=0.0)  # the middle


@pytest.mark.parametrize("kind", PEERS)
def test_a_simulator_that_fails(kind):
    env = Broken()
    options = plant_simulator(env)
    inner = options["step"]

    def step(x, u):
        if env.t == BAD and len(u) == 1:  # the prediction, not the differences around it
            raise ArithmeticError("no step")
        return inner(x, u)

    told = faulty(wrapped(kind, env, simulator={**options, "step": step}), "signal")
    assert_alone(told, BAD)


def test_physics_that_break_down_teach_the_map_nothing():
    env = Broken()
    options = plant_simulator(env)
    inner = options["step"]

    def step(x, u):
        x_next, *rest = inner(x, u)
        return np.where(u > BASE + 0.05, np.nan, x_next), *rest

    peer = observer(env, simulator={**options, "step": step})
    run(peer)
    assert not map_of(peer).any()
    assert peer.faults == {}


@pytest.mark.filterwarnings("ignore::windward.Fault", "ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", PEERS)
@pytest.mark.parametrize("input_map", ["online", "given"])
def test_two_thousand_hostile_steps(kind, input_map):
    garbage = Garbage(0)

    def signal(x, u, reward, x_next):
        return own(garbage).function(x, u, reward, x_next)[[0, 1, 1]]

    given = "online" if input_map == "online" else np.eye(3, 2)
    env = wrapped(kind, One(garbage, BOX), ww.adapt.Own(signal, 3), input_map=given)
    env.reset()
    for t in range(2000):
        _, _, terminated, truncated, info = env.step(garbage(2))
        told = info["windward"]
        assert inside(BOX, told["action"])
        assert all(np.isfinite(told[name]).all() for name in ("correction", "noise", "w_hat"))
        assert np.isfinite(map_of(env)).all()
        if terminated or truncated or t % 211 == 0:
            env.reset()
    assert env.faults["signal"] > 10
    assert env.faults["observation"] > 10
    garbage.evil = 0.0
    env.reset()
    corrections = [env.step([0.0, 4.0])[4]["windward"]["correction"] for _ in range(60)]
    assert np.any(corrections[-1])


# Refusals.


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"signal": "pd1", "model": ScalarValues()}, "gradient in the action"),
        ({"signal": true_w, "input_map": "simulator"}, "is for signal 'pd3'"),
        ({"signal": true_w, "input_map": "values"}, "is for signal 'pd2'"),
        ({"signal": true_w, "input_map": "guess"}, "input_map must be one of"),
        ({"signal": true_w, "input_map": B.T}, r"input_map must have shape \(2, 1\)"),
        ({"signal": true_w, "input_map": [[np.nan], [0.0]]}, "input_map must be finite"),
        ({"signal": lambda x, u, reward, x_next: np.zeros(3)}, "of 2 numbers, and ŵ has 3"),
        ({"signal": true_w, "weights": [1.0]}, "weights must have shape"),
        ({"signal": true_w, "weights": [1.0, -1.0]}, "weights must be at least 0"),
        ({"signal": true_w, "input_map": B, "sigma": 0.1}, "sigma is for input_map='online'"),
        ({"signal": true_w, "bandwidth": 0.0}, "bandwidth must be greater than 0"),
        ({"signal": true_w, "seed": -1}, "seed must be"),
        ({}, "windward has no physics of Plant"),
    ],
)
@pytest.mark.parametrize("kind", PEERS)
def test_what_cannot_work_is_refused(kind, options, says):
    with pytest.raises(ValueError, match=says):
        wrapped(kind, Plant(MATCHED), **options)


@pytest.mark.parametrize("kind", PEERS)
def test_other_spaces_and_orders_are_refused(kind):
    with pytest.raises(ValueError, match="adds to continuous actions"):
        wrapped(kind, gym.make("CartPole-v1"))
    with pytest.raises(ValueError, match="takes one environment"):
        wrapped(kind, gym.make_vec("Pendulum-v1", 2))
    env = wrapped(kind, Plant(MATCHED), true_w)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.zeros(1))
    env.reset()
    with pytest.raises(ValueError, match=r"shape \(1,\)"):
        env.step(np.zeros(2))


def test_the_code_of_the_page_of_peers_runs():
    page = (Path(__file__).parents[2] / "docs" / "peers.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    scope = {}
    exec(block.replace("range(200)", "range(5)"), scope)
    assert scope["info"]["windward"]["w_hat"].shape == (2,)
