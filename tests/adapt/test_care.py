"""Where episodes end by themselves, noise begins small and grows only while it does no harm."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt.guard import CARE, EARLY, Guard
from windward.adapt.trial import FIRST, LEAST


def end(guard: Guard, total: float, fell: bool = True) -> bool:
    guard.step(total)
    return guard.end(fell)


def test_an_early_fall_brings_care_and_forgets_M() -> None:
    guard = Guard(careful=True)
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
    guard = Guard(careful=True)
    for _ in range(2 * EARLY):  # some of which are the base policy's
        end(guard, 100.0, fell=False)
    assert not end(guard, 5.0)
    assert guard.reach == 1.0
    assert guard.decisions == []


def test_falls_of_the_base_policy_bring_care_before_anything_is_adapted() -> None:
    guard = Guard((5, 2), careful=True)
    for _ in range(2 * EARLY):  # nothing was dared in them
        end(guard, 100.0, fell=False)
    assert not end(guard, 5.0)  # and there is nothing to forget
    assert guard.waiting
    assert guard.reach == CARE


def test_a_fall_of_the_base_policy_beside_an_M_that_stands_is_no_harm() -> None:
    guard = Guard(careful=True)
    for _ in range(FIRST):
        end(guard, 100.0, fell=False)
    assert guard.resting
    assert not end(guard, 5.0)
    assert guard.care == 1.0
    assert guard.adapted == [100.0] * FIRST


def test_stepping_back_dares_less_next_time() -> None:
    """Noise of a sixteenth does no harm, of an eighth it does."""
    guard, rng, cares = Guard(careful=True), np.random.default_rng(0), []
    for _ in range(300):
        harm = not guard.resting and guard.care > 1 / 16
        end(guard, (20.0 if harm else 100.0) + rng.standard_normal())
        cares.append(guard.care)
    back = [i for i, each in enumerate(cares[1:]) if each < cares[i]]
    assert len(back) >= 2
    assert max(cares) == 1 / 8
    assert all(cares[i + 1] == max(cares[i] / 4, CARE) for i in back)


def test_harm_without_a_fall_makes_noise_smaller_too() -> None:
    guard, rng = Guard(careful=True), np.random.default_rng(0)
    while not guard.decisions:
        end(guard, (100.0 if guard.resting else 50.0) + rng.standard_normal(), fell=False)
    assert guard.care == 1 / 4
    assert not guard.wary
    assert "noise has 25.0 % of its size after that" in guard.decisions[0]


def test_others_take_no_care() -> None:
    guard = Guard()
    assert not end(guard, 5.0)
    assert guard.care == 1.0
    assert guard.decisions == []


def test_what_does_no_harm_dares_twice_as_much_each_time() -> None:
    guard, rng = Guard(careful=True), np.random.default_rng(0)
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
        guard, rng = Guard(careful=True), np.random.default_rng(seed)
        for _ in range(40):
            end(guard, 1000.0 if rng.random() < 0.5 else 50.0)
        cares.append(guard.care)
    assert np.mean(np.array(cares) > 2 * CARE) <= 0.1
    assert np.median(cares) == CARE


class Cliff(gym.Env[np.ndarray, np.ndarray]):
    """A hundred steps in a slow sine, unless an action is far from the base policy's: a fall."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    t = 0

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict]:  # type: ignore[type-arg]
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2), {}

    @property
    def base(self) -> np.ndarray:
        return np.array([0.5 * (-1) ** self.t], np.float32)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:  # type: ignore[type-arg]
        off = float(np.abs(action - self.base).max())
        fell, reward = off > 0.1, 1.0 - off
        self.t += 1
        return np.full(2, np.sin(self.t / 8)), reward, fell, self.t == 100, {}


def wrapped(**options: object) -> ww.RobustWrapper:
    signal = ww.adapt.Own(lambda x, u, reward, x_next: x_next, 2)
    return ww.RobustWrapper(Cliff(), signal=signal, **options)  # type: ignore[arg-type]


def episode(env: ww.RobustWrapper, seed: int | None = None) -> tuple[int, np.ndarray]:
    """Its length, and the noise of each step."""
    env.reset(seed=seed)
    noise, over = [], False
    while not over:
        *_, terminated, truncated, info = env.step(env.unwrapped.base)  # type: ignore[attr-defined]
        noise.append(info["windward"]["noise"])
        over = terminated or truncated
    return len(noise), np.array(noise)


def lengths(env: ww.RobustWrapper, episodes: int, seed: int | None = 0) -> list[int]:
    return [episode(env, seed if i == 0 else None)[0] for i in range(episodes)]


def test_noise_that_fells_is_given_up_after_one_episode() -> None:
    careful = lengths(wrapped(), 20)
    assert careful[0] < 100
    assert careful[1:] == [100] * 19
    for bold in (wrapped(guard=False), wrapped(sigma=0.2)):
        assert np.mean(lengths(bold, 20)) < 50


def test_a_fall_while_waiting_leaves_the_actions_as_they_are() -> None:
    env = wrapped()
    env.reset(seed=0)
    env.step(-env.unwrapped.base)  # type: ignore[attr-defined]
    assert env._module.guard.wary
    _, noise = episode(env)
    assert not noise[:60].any()
    assert noise.any()
    assert np.abs(noise).max() < 0.2 * CARE * 5


def test_M_stays_in_a_ball_that_shrinks_with_it() -> None:
    env = wrapped(projection=ww.frobenius_ball(2.0))
    lengths(env, 2)
    env._module.engine.M = np.full_like(env.M, 2e-3)  # which does not fell, as if learned
    lengths(env, 1, None)
    care = env._module.guard.care
    assert care < 1
    assert 0 < np.linalg.norm(env.M) <= 2.0 * care**2 * (1 + 1e-5)
    env.reset_adaptation()
    assert float(env._module.engine.state.learner.hyper["radius"]) == pytest.approx(2.0)


def test_the_hidden_layers_of_a_network_stay_as_large_as_they_are() -> None:
    env = wrapped(parametrisation=ww.mlp(4))
    engine = env._module.engine
    engine.scale(CARE, CARE**2)
    hyper = engine.state.learner.hyper
    assert float(hyper["radius"]) == float(wrapped()._module.engine.state.learner.hyper["radius"])


def test_a_file_keeps_the_care(tmp_path: Path) -> None:
    env, other = wrapped(), wrapped()
    lengths(env, 7)
    env.save(tmp_path / "module.npz")
    other.load(tmp_path / "module.npz")
    assert other._module.guard.care == env._module.guard.care < 1
    assert other._module.guard.wary
    assert other._module.engine.algorithm.hyper == env._module.engine.algorithm.hyper
    lengths(env, 12, 3)
    lengths(other, 12, 3)
    np.testing.assert_array_equal(env.M, other.M)
