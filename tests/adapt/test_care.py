"""Where episodes end by themselves, noise begins small and grows only while it does no harm."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt.guard import CARE, EARLY, LEAST, Guard


def end(guard: Guard, total: float, fell: bool = True) -> bool:
    guard.step(total)
    return guard.end(fell)


def test_an_early_fall_brings_care_and_forgets_M() -> None:
    guard = Guard()
    assert not end(guard, 100.0, fell=False)
    assert guard.reach == 1.0
    assert end(guard, 5.0)
    assert guard.reach == CARE
    assert guard.bound == CARE**2
    assert guard.adapted == []  # what came before was of other noise
    assert "after episode 2: episodes end by themselves" in guard.decisions[0]
    assert not end(guard, 5.0)  # the second fall is no news
    assert len(guard.decisions) == 1


def test_a_fall_after_many_whole_episodes_is_left_to_the_returns() -> None:
    guard = Guard()
    for _ in range(EARLY):
        end(guard, 100.0, fell=False)
    assert not end(guard, 5.0)
    assert guard.reach == 1.0
    assert guard.decisions == []


def test_falls_of_the_base_policy_bring_care_before_anything_is_adapted() -> None:
    guard = Guard((5, 2))
    end(guard, 5.0)
    assert guard.waiting
    assert guard.reach == CARE


def test_what_does_no_harm_dares_twice_as_much_each_time() -> None:
    guard, rng = Guard(), np.random.default_rng(0)
    cares, adapted = [], 0
    for _ in range(120):
        adapted += not guard.resting
        end(guard, 100.0 + rng.standard_normal())
        if not cares or guard.care != cares[-1]:
            cares.append(guard.care)
            assert len(cares) < 3 or adapted >= LEAST[0]  # evidence of its own for each size
            adapted = 0
    assert cares == [CARE * 2**i for i in range(7)]
    assert guard.care == 1.0


def test_in_doubt_little_is_dared() -> None:
    """A pole that stands every other time tells little in forty episodes."""
    cares = []
    for seed in range(40):
        guard, rng = Guard(), np.random.default_rng(seed)
        for _ in range(40):
            end(guard, 1000.0 if rng.random() < 0.5 else 50.0)
        cares.append(guard.care)
    assert np.mean(np.array(cares) > 2 * CARE) <= 0.1
    assert np.median(cares) == CARE


class Cliff(gym.Env[np.ndarray, np.ndarray]):
    """Twenty steps, unless an action goes too far: that is a fall."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict]:  # type: ignore[type-arg]
        super().reset(seed=seed)
        self._t = 0
        return self.np_random.uniform(-1, 1, 2), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:  # type: ignore[type-arg]
        self._t += 1
        fell = bool(np.abs(action).max() > 0.1)
        return self.np_random.uniform(-1, 1, 2), 1.0, fell, self._t == 20, {}


def wrapped(**options: object) -> ww.RobustWrapper:
    signal = ww.adapt.Own(lambda x, u, reward, x_next: x_next, 2)
    return ww.RobustWrapper(Cliff(), signal=signal, sigma=0.2, eta=1e-3, every_steps=1, **options)  # type: ignore[arg-type]


def lengths(env: ww.RobustWrapper, episodes: int, seed: int | None = 0) -> list[int]:
    found = []
    for i in range(episodes):
        env.reset(seed=seed if i == 0 else None)
        steps, over = 0, False
        while not over:
            *_, terminated, truncated, _ = env.step(np.zeros(1, np.float32))
            steps, over = steps + 1, terminated or truncated
        found.append(steps)
    return found


def test_noise_that_fells_is_given_up_after_one_episode() -> None:
    env, bold = wrapped(), wrapped(guard=False)
    careful = lengths(env, 20)
    assert careful[0] < 20
    assert careful[1:] == [20] * 19
    assert np.mean(lengths(bold, 20)) < 10


def test_M_stays_in_a_ball_that_shrinks_with_it() -> None:
    env = wrapped(projection=ww.frobenius_ball(2.0))
    lengths(env, 2)
    env.M = np.ones_like(env.M)
    lengths(env, 1, None)
    care = env._module.guard.care
    assert care < 1
    assert 0 < np.linalg.norm(env.M) <= 2.0 * care**2 * (1 + 1e-5)
    env.reset_adaptation()
    assert float(env._module.engine.state.learner.hyper["radius"]) == pytest.approx(2.0)


def test_a_file_keeps_the_care(tmp_path: Path) -> None:
    env, other = wrapped(), wrapped()
    lengths(env, 7)
    env.save(tmp_path / "module.npz")
    other.load(tmp_path / "module.npz")
    assert other._module.guard.care == env._module.guard.care < 1
    assert other._module.engine.algorithm.hyper == env._module.engine.algorithm.hyper
    lengths(env, 12, 3)
    lengths(other, 12, 3)
    np.testing.assert_array_equal(env.M, other.M)
