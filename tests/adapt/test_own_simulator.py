"""A user's own `step` and `state`: it has everything that known physics has."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.simulators.shell import Unsupported

BASE = ww.policies.load("Pendulum-v1")


def step(x: np.ndarray, u: np.ndarray, m: float = 1.0) -> tuple[Any, Any, Any]:
    """Pendulum, by hand."""
    angle, speed = x.T
    u = np.clip(u[:, 0], -2, 2)
    turned = (angle + np.pi) % (2 * np.pi) - np.pi
    cost = turned**2 + 0.1 * speed**2 + 0.001 * u**2
    speed = np.clip(speed + (15 * np.sin(angle) + 3 / m * u) * 0.05, -8, 8)
    return np.stack([angle + 0.05 * speed, speed], axis=1), cost, np.zeros(len(x), dtype=bool)


def observation(x: np.ndarray) -> np.ndarray:
    return np.stack([np.cos(x[:, 0]), np.sin(x[:, 0]), x[:, 1]], axis=1).astype(np.float32)


OWN = {"step": step, "state": lambda env: np.array(env.state), "observation": observation,
       "parameters": {"m": 1.0}}  # fmt: skip


def world() -> gym.Env:
    return ww.envs.Disturbed(gym.make("Pendulum-v1"), "bias:value=0.2", "qvel")


def returns(env: gym.Env, episodes: int = 3) -> list[float]:
    totals = []
    for seed in range(5000, 5000 + episodes):
        x, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            x, reward, terminated, truncated, _ = env.step(BASE.predict(x)[0])
            total, over = total + float(reward), terminated or truncated
        totals.append(total)
    return totals


def test_matching_works_as_with_known_physics() -> None:
    """`state` is not called on an environment that was not reset."""
    own = ww.RobustWrapper(world(), "pd3", model=BASE, simulator=OWN, learner="matching")
    known = ww.RobustWrapper(world(), "pd3", model=BASE, learner="matching")
    base, mine, theirs = (np.mean(returns(each)) for each in (world(), own, known))
    assert mine > 0.6 * base  # both are negative
    assert mine == pytest.approx(theirs, rel=0.2)
    assert "acting" in own.decisions[0]
    assert not own.faults


class Cart(gym.Env):
    """A mass on a line; observations leave its position out, or its speed."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float64)

    def __init__(self, shown: int = 1) -> None:
        self.shown = shown

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1, 1, 2)
        return self.x[[self.shown]], {}

    def step(self, u: Any) -> Any:
        self.x = move(self.x[None], np.asarray(u)[None])[0][0]
        return self.x[[self.shown]], -float(self.x[1] ** 2), False, False, {}


def move(x: np.ndarray, u: np.ndarray) -> tuple[Any, Any, Any]:
    speed = 0.9 * x[:, 1] + 0.1 * u[:, 0]
    return np.stack([x[:, 0] + speed, speed], axis=1), x[:, 1] ** 2, np.zeros(len(x), dtype=bool)


def seen(shown: int) -> Any:
    return ww.simulator(
        Cart(shown), noisy=False, step=move, state=lambda env: env.x,
        observation=lambda x: x[:, [shown]],
    )  # fmt: skip


def test_a_position_that_moves_nothing_is_filled_with_0() -> None:
    found, known = seen(1).states_seen(np.array([[0.3], [-0.2]]))
    np.testing.assert_array_equal(found, [[0.0, 0.3], [0.0, -0.2]])
    assert known.all()


def test_what_the_motion_depends_on_cannot_be_left_out() -> None:
    with pytest.raises(Unsupported, match=r"number 1 of the state.*the motion depends"):
        seen(0).states_seen(np.zeros((1, 1)))
    mixed = ww.simulator(
        Cart(), noisy=False, step=move, state=lambda env: env.x,
        observation=lambda x: x[:, :1] + x[:, 1:],
    )  # fmt: skip
    with pytest.raises(Unsupported, match="the state that is observed so: record states"):
        mixed.states_seen(np.zeros((1, 1)))
