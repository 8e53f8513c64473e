"""When the wind stops, what explores stops too; and signals that may be no wind are doubted."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt.guard import CARE, CARE_OF_NOISE, LOOK, VAIN, Guard
from windward.adapt.trial import LEAST

STEPS = 100
SILENT = LOOK[0] * VAIN  # adapted episodes after which the wind has stopped
SINE = np.sin(np.arange(STEPS) / 5)
STILL = np.zeros(STEPS)


def episode(guard: Guard, wind: np.ndarray, total: float = 1.0) -> bool:
    """ŵ of one episode, as a module shows it; whether M is to be forgotten."""
    for w in wind:
        if guard.looks and not guard.resting:
            guard.feel(np.atleast_1d(w))
    guard.step(total)
    return guard.end()


def blown() -> Guard:
    """A guard that has begun to adapt."""
    guard = Guard((5, 1))
    episode(guard, SINE)
    assert not guard.waiting
    return guard


@pytest.mark.parametrize("calm", [STILL, np.random.default_rng(0).uniform(-1, 1, STEPS)])
def test_it_waits_again_when_the_past_tells_nothing_any_more(calm: np.ndarray) -> None:
    guard = blown()
    forgets = [episode(guard, calm) for _ in range(2 * SILENT)]  # some of them the base's
    assert sum(forgets) == 1
    assert guard.waiting
    assert "the past tells nothing of the disturbance any more" in guard.decisions[-1]
    for _ in range(3):
        episode(guard, SINE)
    assert not guard.waiting
    assert "began to adapt" in guard.decisions[-1]


@pytest.mark.parametrize("phase", [0, 1])
def test_a_wind_of_every_other_episode_goes_on(phase: int) -> None:
    guard = blown()
    said = len(guard.decisions)
    for i in range(90):
        assert not episode(guard, SINE if i % 2 == phase else STILL)
    assert not guard.waiting
    assert len(guard.decisions) == said


def test_a_few_steps_decide_nothing() -> None:
    guard = blown()
    for _ in range(LOOK[1] // 20):
        assert not episode(guard, STILL[:20])  # the first h of which predict nothing
    assert not guard.waiting


def test_a_wind_that_goes_on_is_not_looked_at_all_the_time() -> None:
    """It costs time at every step; once told, the rest of the episodes is not looked at."""
    guard, looked = blown(), []
    for _ in range(LOOK[0]):
        for w in SINE:
            looked.append(guard.looks and not guard.resting)
            if looked[-1]:
                guard.feel(np.atleast_1d(w))
        guard.step(1.0)
        guard.end()
    assert 0 < sum(looked) <= STEPS


def test_M_that_was_set_is_never_forgotten_for_a_calm() -> None:
    guard = Guard((5, 1))
    guard.trust()
    assert not any(episode(guard, STILL) for _ in range(10))
    assert not guard.waiting


def test_one_glitch_does_not_lose_what_was_learned() -> None:
    for at in range(0, 5 * STEPS, 17):
        guard, wind = blown(), np.tile(SINE, 12)
        wind[at] += 30.0
        assert not any(episode(guard, each) for each in np.split(wind, 12))


def test_a_wind_that_takes_long_to_be_told_takes_long_to_be_missed() -> None:
    """Of noise in which every value has half of the last one the past tells a quarter."""
    guard, rng, w = Guard((5, 1)), np.random.default_rng(0), 0.0
    for _ in range(300):
        wind = []
        for _ in range(STEPS):
            w = 0.5 * w + rng.standard_normal()
            wind.append(w)
        episode(guard, np.array(wind), rng.standard_normal())
    assert not guard.waiting
    assert not any("any more" in each for each in guard.decisions)


def test_M_that_was_set_stays_where_signals_are_doubted_and_episodes_fall() -> None:
    guard = Guard((5, 1), careful=True, doubtful=True)
    assert guard.bound < 1e-3
    guard.trust()
    assert guard.bound == 1.0  # of the ball; noise stays small
    assert guard.reach == CARE
    guard.step(1.0)
    assert not guard.end(fell=True)


@pytest.mark.parametrize("signal", ["pd1", "pd2"])
def test_M_that_was_set_is_not_cut_to_a_small_ball(signal: str) -> None:
    base = ww.policies.load("Pendulum-v1")
    env = ww.RobustWrapper(gym.make("Pendulum-v1"), signal, model=base, learner="advantage")
    env.M = 0.3 * np.ones_like(env.M)
    x, _ = env.reset(seed=0)
    for _ in range(3):
        x = env.step(base.predict(x, deterministic=True)[0])[0]
    assert np.abs(env.M).max() > 0.29


def test_a_memory_goes_on_exactly() -> None:
    first, again = blown(), Guard((5, 1))
    episode(first, STILL)
    again.restore(first.memory())
    for guard in (first, again):
        for _ in range(2 * SILENT):
            episode(guard, STILL)
    assert again.waiting
    assert first.memory() == again.memory()


class Pushed(gym.Env[np.ndarray, np.ndarray]):
    """A wind that stops after some episodes; actions cost, and nothing can be gained by them."""

    observation_space = gym.spaces.Box(-9.0, 9.0, (2,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    episode, blows = -1, 10

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict]:  # type: ignore[type-arg]
        super().reset(seed=seed)
        self.t, self.episode = 0, self.episode + 1
        return np.zeros(2), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:  # type: ignore[type-arg]
        self.t += 1
        w = np.sin(self.t / 5) if self.episode < self.blows else 0.0
        cost = float(np.square(action).sum())
        return np.array([w, 0.5 * w]), -cost, False, self.t == STEPS, {}


def returns(env: gym.Env, episodes: int, action: float = 0.5) -> np.ndarray:
    found = []
    for _ in range(episodes):
        env.reset()
        total, over = 0.0, False
        while not over:
            _, reward, _, over, _ = env.step(np.full(1, action, np.float32))
            total += float(reward)
        found.append(total)
    return np.array(found)


def own(**options: object) -> ww.RobustWrapper:
    signal = ww.adapt.Own(lambda x, u, reward, x_next: x_next, 2)
    return ww.RobustWrapper(Pushed(), signal=signal, learner="residual", **options)  # type: ignore[arg-type]


def test_in_the_wrapper_the_base_action_is_executed_after_the_wind_has_stopped() -> None:
    env = own()
    played = returns(env, Pushed.blows + 4 * SILENT)
    base = returns(Pushed(), 1)[0]
    assert played[0] != base  # it explored in the wind
    np.testing.assert_array_equal(played[-SILENT:], base)
    assert not np.any(env.M)


def test_a_guard_that_waits_again_survives_a_file(tmp_path: Path) -> None:
    env = own()
    returns(env, Pushed.blows + 4 * SILENT)
    env.save(tmp_path / "M.npz")
    other = own()
    other.load(tmp_path / "M.npz")
    other.unwrapped.episode = Pushed.blows  # type: ignore[attr-defined]
    assert other.decisions == env.decisions
    np.testing.assert_array_equal(returns(other, 2)[:1], returns(Pushed(), 1))


# What is told of an odd disturbance.


def test_a_constant_wind_and_numbers_that_do_not_move_are_told() -> None:
    guard = Guard((5, 3))
    for _ in range(80):
        guard.feel(np.array([0.1, 0.0, -2.0], np.float32))
    assert not guard.waiting
    said = " ".join(guard.decisions)
    assert "1 of the 3 numbers of the disturbance do not move" in said
    assert "the disturbance is constant" in said
    assert f"judged by returns, of {LEAST[0]} adapted episodes" in said
    assert not any("constant" in each or "move" in each for each in blown().decisions)


# Signals that are made of values.


@pytest.mark.parametrize("signal", ["pd1", "pd2"])
def test_signals_of_values_begin_with_little_noise(signal: str) -> None:
    base = ww.policies.load("Pendulum-v1")
    options = {"learner": "advantage", "baseline": "regression", "model": base}
    env = ww.RobustWrapper(gym.make("Pendulum-v1"), signal, **options)
    least = CARE_OF_NOISE if signal == "pd1" else CARE
    assert env._module.guard is not None
    assert env._module.guard.care == least
    full = ww.mf_gpc(1, 1, gradient="advantage", baseline="regression").hyper
    assert env._module.engine.algorithm.hyper["sigma"] == pytest.approx(least * full["sigma"])
    env.reset_adaptation()
    assert env._module.engine.algorithm.hyper["sigma"] == pytest.approx(least * full["sigma"])
    given = ww.RobustWrapper(gym.make("Pendulum-v1"), signal, sigma=0.2, **options)
    assert given._module.engine.algorithm.hyper["sigma"] == pytest.approx(0.2)


def test_doubtful_signals_dare_more_the_more_slowly() -> None:
    grown = []
    for doubtful in (False, True):
        guard = Guard(careful=True, doubtful=doubtful)
        guard.care = CARE
        for _ in range(40):
            guard.step(100.0)
            guard.end()
        grown.append(guard.care)
    assert CARE < grown[1] < grown[0]


def test_the_ball_shrinks_with_a_signal_that_grows_as_noise_shrinks() -> None:
    guard = Guard(careful=True, doubtful=True, of_noise=True)
    assert guard.care == CARE_OF_NOISE
    assert guard.bound == CARE_OF_NOISE**3
    assert Guard(careful=True, doubtful=True).bound == CARE**2


def test_values_do_no_harm_without_a_wind() -> None:
    """Their error can be told from its past, and noise of the usual size ruined the swing-up."""
    base, played = ww.policies.load("Pendulum-v1"), []
    for adapts in (False, True):
        env: gym.Env = gym.make("Pendulum-v1")
        if adapts:
            env = ww.RobustWrapper(env, "pd1", model=base)
        total = 0.0
        for number in range(8):
            x, _ = env.reset(seed=number)
            over = False
            while not over:
                x, reward, _, over, _ = env.step(base.predict(x, deterministic=True)[0])
                total += float(reward)
        played.append(total / 8)
    assert played[0] != played[1]  # PD1 always explores
    assert played[1] == pytest.approx(played[0], rel=0.01)
