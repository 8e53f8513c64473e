"""Replays: what was recorded comes out again, other candidates meet the same wind."""

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt.record import FORECAST_BOUND, PIECE, Record, Start, begins
from windward.adapt.replay import replay
from windward.adapt.replayed import Boxed, nothing
from windward.policies.predictor import predictor

from .worlds import Plant, wind

NEVER = ww.adapt.Search(every=10**6, per_episode=0)
SINE = ww.envs.Sinusoid(0.35, 63)
WORLDS = {
    "Pendulum-v1": (SINE, [0.0, 0.8]),
    "InvertedPendulum-v5": (ww.envs.Sinusoid((0.0, 0.02), 90), [0.0, 0.0, 0.0, 1.5]),
}


class Spy:
    """A simulator that remembers the states it was asked about."""

    def __init__(self, simulator):
        self.simulator, self.seen = simulator, []

    def __getattr__(self, name):
        return getattr(self.simulator, name)

    def step(self, x, u):
        self.seen.append(x.copy())
        return self.simulator.step(x, u)


def recorded(name, row, steps, channel="qvel", disturbance=None):
    """A wrapper with M in use that does not change, after one episode, and its rewards."""
    base = ww.policies.load(name)
    wind = WORLDS[name][0] if disturbance is None else disturbance
    inner = ww.envs.Disturbed(gym.make(name), wind, channel=channel)
    env = ww.RobustWrapper(inner, "pd3", model=base, learner="replay", search=NEVER)
    x, _ = env.reset(seed=3)
    if row is not None:
        env._module.engine.M = np.tile(row, (5, 1, 1))
    rewards, ended = [], False
    while len(rewards) < steps and not ended:
        x, reward, terminated, truncated, _ = env.step(base.predict(x)[0])
        rewards.append(float(reward))
        ended = terminated or truncated
    return env, np.array(rewards)


def replayed(env, starts, candidates, gamma=1.0, simulator=None):
    """A replay with the simulator and the policy of a wrapper."""
    space, simulator = env.action_space, simulator or env._module.teacher.simulator
    policy = Boxed(space, predictor(ww.policies.load(env.spec.id), space))
    return replay(simulator, policy, starts, np.asarray(candidates, float), gamma)[0]


def again(env, i, horizon, gamma=1.0):
    """The last episode from step i on under its own M; calm where it ended. Costs and states."""
    episode = env._module.teacher.record.pieces[-1][i:]
    wind = np.zeros((horizon, len(episode[0].w_hat)))
    wind[: len(episode)] = [visit.w_hat for visit in episode]
    spy = Spy(env._module.teacher.simulator)
    start = Start(episode[0].x, episode[0].window, wind, nothing(None, horizon))
    costs = replayed(env, [start], [env.M], gamma, spy)
    return costs, np.concatenate(spy.seen)


@pytest.mark.parametrize("begin", [0, 17], ids=["start", "middle"])
@pytest.mark.parametrize("corrected", [True, False], ids=["M", "base"])
@pytest.mark.parametrize("name", WORLDS)
def test_the_same_M_gives_what_was_recorded(name, corrected, begin):
    steps = 80
    env, rewards = recorded(name, WORLDS[name][1] if corrected else None, steps)
    (episode,) = env._module.teacher.record.pieces
    assert len(episode) == len(rewards) == steps
    costs, states = again(env, begin, steps - begin, gamma=0.99)
    np.testing.assert_allclose(states, [visit.x for visit in episode[begin:]], atol=2e-5)
    weights = 0.99 ** np.arange(steps - begin)
    np.testing.assert_allclose(costs, [[-weights @ rewards[begin:]]], rtol=1e-6)
    env._module.engine.M = 1.1 * env.M
    assert (np.abs(again(env, begin, steps - begin)[1] - states).max() > 1e-3) == corrected


@pytest.mark.parametrize(
    ("channel", "push"),
    [("qvel", (0.0, 0.1)), ("qpos", (0.0, 0.15))],
    ids=["by the physics", "by the push"],
)
def test_an_episode_that_fell_ends_where_it_ended(channel, push):
    """A push on positions throws it over within the step: the disturbed state is the end."""
    wind = ww.envs.Sinusoid(push, 90 if channel == "qvel" else 40)
    env, rewards = recorded("InvertedPendulum-v5", None, 200, channel, wind)
    assert len(rewards) < 100
    assert len(env._module.teacher.record) == len(rewards)
    costs, states = again(env, 0, 200)
    assert len(states) == len(rewards)
    assert costs[0, 0] == -rewards.sum()


def test_candidates_do_not_touch_each_other():
    env, _ = recorded("InvertedPendulum-v5", None, 200, disturbance=ww.envs.Sinusoid(0.1, 90))
    rng = np.random.default_rng(0)
    many = np.concatenate([np.zeros((1, 5, 1, 4)), 3 * rng.normal(size=(4, 5, 1, 4))])
    teacher = env._module.teacher
    starts = teacher.record.starts(3, 40, np.random.default_rng(1))

    def cost(starts, candidates):
        return replayed(env, starts, candidates, 0.995)

    together = cost(starts, many)
    assert together.shape == (3, 5)
    assert len(np.unique(together)) > 3  # some fell, at times of their own
    for i, start in enumerate(starts):
        for j, M in enumerate(many):
            np.testing.assert_allclose(cost([start], M[None]), together[i : i + 1, j : j + 1])


class Toy:
    """x' = x + u, cost x² + 1; ends beyond `end`; beyond `breaks` the physics breaks down."""

    def __init__(self, end=np.inf, breaks=np.inf):
        self.end, self.breaks = end, breaks

    def observation(self, x):
        return x

    def terminated(self, x, u):
        return np.abs(x[:, 0]) > self.end

    def step(self, x, u):
        x_next, cost = x + u, (x[:, 0] ** 2 + 1.0)
        lost = np.abs(x_next[:, 0]) > self.breaks
        x_next, cost = np.where(lost[:, None], np.nan, x_next), np.where(lost, np.nan, cost)
        return x_next, cost, self.terminated(x_next, u) | lost


NOTHING = Boxed(gym.spaces.Box(-1.0, 1.0, (1,)), lambda x: np.zeros((len(x), 1)))
"""a policy that does nothing by itself"""


def toy_costs(toy, candidates, gamma=1.0, starts=1):
    wind = np.ones((6, 1))
    given = [
        Start(np.full(1, 0.1 * i), np.ones((1, 1)), wind, nothing(None, 6)) for i in range(starts)
    ]
    M = np.array(candidates, float).reshape(-1, 1, 1, 1)
    return replay(toy, NOTHING, given, M, gamma)[0]


def test_costs_by_hand():
    gamma = 0.5
    wanted = [sum(gamma**t * ((1 - k) ** 2 * t**2 + 1.0) for t in range(6)) for k in (0, 1, 0.5)]
    np.testing.assert_allclose(toy_costs(Toy(), [0, -1, -0.5], gamma), [wanted])


def test_a_window_begins_with_zeros():
    """Half of it cancels half of a wind of 1."""
    start = Start(np.zeros(1), np.zeros((2, 1)), np.ones((6, 1)), nothing(None, 6))
    costs, _ = replay(Toy(), NOTHING, [start], np.array([[[[-0.5]], [[-0.5]]]]), 1.0)
    np.testing.assert_allclose(costs, [[6 + 1 + 4 * 1.5**2]])  # x: 0 1 1.5 1.5 1.5 1.5


def test_corrections_are_clipped():
    np.testing.assert_array_equal(toy_costs(Toy(), [-1, 1]), toy_costs(Toy(), [-9, 50]))


def test_who_ends_pays_no_more():
    # M = 1 is at 0 and 2, and ends at 3; M = -1 stays at 0.
    costs = toy_costs(Toy(end=2.5), [-1, 1], gamma=0.5)
    np.testing.assert_allclose(costs[0], [2 * (1 - 0.5**6), 1 + 0.5 * 5])


def test_who_stood_is_told():
    given = [Start(np.zeros(1), np.ones((1, 1)), np.ones((6, 1)), nothing(None, 6))]
    M = np.array([-1.0, 1.0, 0.0]).reshape(-1, 1, 1, 1)
    _, stood = replay(Toy(end=5.5), NOTHING, given, M, 1.0)
    assert stood.tolist() == [[True, False, False]]  # the last ends with the last step


def test_all_end_at_once():
    np.testing.assert_allclose(toy_costs(Toy(end=0.5), [1, 1]), [[1.0, 1.0]])


@pytest.mark.parametrize("starts", [1, 3])
def test_broken_physics_is_the_worst(starts):
    costs = toy_costs(Toy(breaks=3.5), [0, -1, 1, -0.9], starts=starts)
    assert np.isfinite(costs).all()
    assert (costs[:, [0, 2]].min() > costs[:, [1, 3]].max()).all()
    everything = toy_costs(Toy(breaks=0.05), [0, 1, 2], starts=starts)
    assert np.isfinite(everything).all()


def filled(w, h=3, kept=8, cuts=()):
    record = Record(h, w.shape[1], 1, kept)
    for t, each in enumerate(w):
        if t in cuts:
            record.cut()
        record.add(np.array([float(t), 0.0]), each, np.zeros(1))
    return record


def test_windows_are_newest_first_and_begin_with_zeros():
    w = np.arange(1.0, 17.0).reshape(8, 2)
    record = filled(w, cuts=(5,))
    assert [len(episode) for episode in record.pieces] == [5, 3]
    for episode, own in zip(record.pieces, (w[:5], w[5:]), strict=True):
        padded = np.concatenate([np.zeros((3, 2)), own])
        for i, visit in enumerate(episode):
            np.testing.assert_array_equal(visit.window, padded[i : i + 3][::-1])
            np.testing.assert_array_equal(visit.w_hat, own[i])
    record.cut()
    record.cut()  # twice is once
    record.add(np.zeros(2), w[0], np.zeros(1))
    assert len(record.pieces) == 3
    assert not record.pieces[2][0].window.any()


def test_sizes_are_root_mean_squares():
    w = np.random.default_rng(0).normal(size=(50, 3)) * [0.1, 0.0, 7.0]
    per_size = filled(w).per_size
    rms = np.sqrt((w**2).mean(axis=0))
    np.testing.assert_allclose(per_size[[0, 2]], 1 / rms[[0, 2]])
    assert per_size[1] == 0.0
    assert not Record(3, 2, 1, 10).per_size.any()


def test_beginnings_outlive_the_rest():
    w = np.ones((1000, 1))
    record = filled(w, kept=2, cuts=(15, 30, 45))
    # Of four beginnings two stay, of the last episode's later pieces one.
    assert [piece[0].x[0] for piece in record.pieces] == [30, 45, 45 + 4 * PIECE]
    assert [begins(piece) for piece in record.pieces] == [True, True, False]
    assert record.steps == 1000  # sizes are of all
    rng = np.random.default_rng(0)
    starts = [start.x[0] for start in record.starts(20, 5, rng)]
    assert {x for i, x in enumerate(starts) if i % 4 != 3} == {30.0, 45.0}
    assert max(starts) > 45 + 4 * PIECE


@pytest.mark.parametrize("period", [20, 63, 90])
def test_a_sine_goes_on(period):
    t = np.arange(120)
    w = np.stack([0.0 * t, 0.35 * np.sin(2 * np.pi * t / period)], axis=1)
    record = filled(w[:60], h=5)
    (ahead,) = record.winds([(record.pieces[0], 59)], 61)
    np.testing.assert_allclose(ahead[1:], w[60:], atol=0.2 * 0.35)


def test_the_forecast_of_noise_is_bounded():
    w = np.random.default_rng(0).uniform(-0.3, 0.3, (60, 2))
    record = filled(w, h=5)
    (wind,) = record.winds([(record.pieces[0], 59)], 500)
    assert np.abs(wind).max() <= FORECAST_BOUND / record.per_size.min() + 1e-12
    assert np.abs(wind[-100:]).max() < 0.3


@pytest.mark.parametrize(
    "w",
    [np.full((40, 2), 0.2), np.full((1, 2), 0.2), np.zeros((40, 2)), np.eye(2), 1e30 * np.eye(2)],
    ids=["constant", "one", "zeros", "two", "huge"],
)
def test_singular_records(w):
    record = filled(w, h=5)
    starts = record.starts(4, 30, np.random.default_rng(0))
    for start in starts:
        assert start.wind.shape == (30, 2)
        assert start.window.shape == (5, 2)
        assert np.isfinite(start.wind).all()
        assert (np.abs(start.wind) <= FORECAST_BOUND * (np.abs(w).max() + 1e-12)).all()
    if len(w) == 40:
        np.testing.assert_allclose(starts[0].wind[-1], w[0], rtol=0.2)


def test_starts_have_the_recorded_wind_to_the_end():
    w = np.random.default_rng(0).normal(size=(30, 2))
    record = filled(w, cuts=(12,))
    starts = record.starts(40, 10, np.random.default_rng(1))
    for start in [start for i, start in enumerate(starts) if i % 4 in (0, 3)]:
        t = int(start.x[0])
        end = 12 if t < 12 else 30
        own = w[t : min(t + 10, end)]
        np.testing.assert_array_equal(start.wind[: len(own)], own)


def test_episodes_begin_at_any_moment_of_the_wind():
    """A recorded beginning, and the wind from any recorded step on."""
    w = np.random.default_rng(0).normal(size=(30, 2))
    starts = filled(w, cuts=(12,)).starts(60, 4, np.random.default_rng(1))
    begun = [start for i, start in enumerate(starts) if i % 4 in (1, 2)]
    assert {start.x[0] for start in begun} == {0.0, 12.0}
    assert not any(start.window.any() for start in begun)
    moments = [int(np.flatnonzero((w == start.wind[0]).all(axis=1))[0]) for start in begun]
    assert sorted(moments) == list(range(30))  # spread over the record


def test_few_starts_meet_the_wind_in_all_its_phases():
    record = filled(np.sin(2 * np.pi * np.arange(720) / 90)[:, None])
    rng, met = np.random.default_rng(0), set()
    first = record.pieces[0][0].x[0]
    for _ in range(60):
        starts = record.starts(32, 3, rng)
        begun = [start.wind for start in starts[1::4] + starts[2::4] if start.x[0] == first]
        assert len(begun) == 16
        met |= {tuple(np.round(wind[:, 0], 6)) for wind in begun}
    assert len(met) > 85  # of 90


def test_replays_are_spread_over_episodes_that_last():
    """What they are worth is not decided in their first steps."""
    length, horizon = 5 * PIECE, 50
    w = np.arange(1.0, 3 * length + 1)[:, None] * [[1.0, 0.5]]
    record = filled(w, cuts=(length, 2 * length), kept=40)
    at = {}
    for spread in (0, length):
        starts = record.starts(400, horizon, np.random.default_rng(1), spread=spread)
        at[spread] = np.array([start.x[0] for start in starts]) % length
        if spread:  # each in its own wind, to the end of its episode
            for start in starts:
                t = int(start.x[0])
                own = w[t : min(t + horizon, length * (t // length + 1))]
                np.testing.assert_array_equal(start.wind[: len(own)], own)
    assert np.mean(at[0] == 0) > 0.7
    assert 0.24 < np.mean(at[length] == 0) < 0.28
    late = at[length][at[length] > 0]
    assert np.mean(late >= PIECE) == pytest.approx(0.8, abs=0.08)
    assert {int(each // PIECE) for each in late} == {0, 1, 2, 3, 4}


def test_the_wind_goes_on_in_the_next_piece():
    """To where an episode ended; from there on it is forecast."""
    w = np.random.default_rng(0).normal(size=(3 * PIECE, 2))
    record = filled(w, cuts=(2 * PIECE,))
    first, second, third = record.pieces
    found = record.winds([(first, 50), (second, 50), (third, 50)], PIECE)
    np.testing.assert_array_equal(found[0], w[50 : 50 + PIECE])
    for row, step in ((1, PIECE + 50), (2, 2 * PIECE + 50)):
        known = PIECE - 50
        np.testing.assert_array_equal(found[row, :known], w[step : step + known])
        assert np.abs(found[row, known:]).max() < np.abs(w).max() / 3  # noise has no forecast


def test_features_tell_phases_and_beginnings():
    """A slow sine is two numbers; the first windows of an episode are others, and weigh little."""
    t = np.arange(150)
    w = np.stack([0.0 * t, 0.1 * np.sin(2 * np.pi * t / 75 + 1)], axis=1)
    record = filled(w, h=5, cuts=(60,))
    found = record.features(20).reshape(-1, 5, 2)
    assert not found[..., 0].any()  # what does not move is left alone
    assert len(found) == 5
    windows = np.array([visit.window for visit in record.visits]) * record.per_size
    sizes = np.sqrt(np.square(np.einsum("khd,thd->tk", found, windows)).mean(axis=0))
    assert 0.9 < sizes[0] <= 1.05  # all of it is in windows that are full
    assert sizes[1] > 2 * sizes[2:].max()  # the phase
    assert sizes[2:].max() < 0.15  # nearly all of these is in beginnings
    assert len(record.features(2)) == 2


def test_recorded_is_what_happened():
    env, _ = recorded("Pendulum-v1", None, 40)
    record = env._module.teacher.record
    pushed = 0.35 * np.sin(2 * np.pi * np.arange(40) / 63)
    np.testing.assert_allclose([visit.w_hat[1] for visit in record.pieces[0]], pushed, atol=1e-6)
    env.reset()  # before its end
    env.step(np.zeros(1, np.float32))
    assert [len(episode) for episode in record.pieces] == [40, 1]
    assert not record.pieces[1][0].window.any()


def still(x, u):
    return x, np.zeros(len(x)), np.zeros(len(x), bool)


def test_a_simulator_that_knows_no_observations():
    """What is wider than observations cannot be replayed: "auto" leaves it, asking is refused."""
    plant = Plant(wind(200))
    own = {"step": still, "state": lambda env: np.append(env.x, 0.0)}
    with pytest.raises(ValueError, match="replay"):
        ww.RobustWrapper(plant, "pd3", learner="replay", model=plant.base, simulator=own)
    env = ww.RobustWrapper(plant, "pd3", model=plant.base, simulator=own)
    assert env.learner == "mf-gpc"


def test_winds_of_several_moments_are_those_of_each():
    w = np.random.default_rng(0).normal(size=(30, 2))
    record = filled(w, cuts=(12,))
    moments = [(record.pieces[0], 3), (record.pieces[1], 0), (record.pieces[1], 17)]
    together = record.winds(moments, 14)
    for moment, own in zip(moments, together, strict=True):
        np.testing.assert_allclose(record.winds([moment], 14)[0], own, rtol=1e-12)
    np.testing.assert_array_equal(together[1], w[12:26])
    np.testing.assert_array_equal(together[0][:9], w[3:12])
