"""Cost and termination of Gymnasium's MuJoCo tasks as functions of qpos and qvel, for batches.

Only tasks whose reward reads nothing else are here; others run their own step code
(`physics/shell.py`). c = -reward throughout.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv
from gymnasium.envs.mujoco.inverted_pendulum_v5 import InvertedPendulumEnv
from gymnasium.envs.mujoco.swimmer_v5 import SwimmerEnv
from gymnasium.envs.mujoco.walker2d_v5 import Walker2dEnv


class Task(NamedTuple):
    """A task on states x = (qpos, qvel), one or rows of them; `env` holds the settings.

    x.T[i] is coordinate i either way, and a plain number for one state: the quick path of a step.
    """

    cost: Callable[[Any, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    """(env, x, u, x_next) -> costs"""
    terminated: Callable[[Any, np.ndarray], np.ndarray]
    """(env, x_next) -> flags"""
    clip: float
    """observations clip velocities to this size"""

    def observation(self, env: Any, x: np.ndarray) -> np.ndarray:
        """(qpos without what the environment skips, clipped qvel)."""
        nq, nv = env.init_qpos.size, env.init_qvel.size
        speeds = x[..., nq : nq + nv]
        if self.clip < np.inf:
            speeds = np.minimum(np.maximum(speeds, -self.clip), self.clip)
        skipped = nq - env.observation_structure["qpos"]
        return np.concatenate([x[..., skipped:nq], speeds], axis=-1)


def _within(value: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    return (bounds[0] < value) & (value < bounds[1])


def _forward(env: Any, x: np.ndarray, u: np.ndarray, x_next: np.ndarray) -> np.ndarray:
    """Minus the speed along the first coordinate, plus the effort."""
    speed = (x_next.T[0] - x.T[0]) / env.dt
    effort = np.square(u).sum(axis=-1)
    return env._ctrl_cost_weight * effort - env._forward_reward_weight * speed


def _upright(healthy: Callable[[Any, np.ndarray], np.ndarray]) -> tuple[Any, Any]:
    """Cost and termination of a task that pays a bonus while healthy."""

    def cost(env: Any, x: np.ndarray, u: np.ndarray, x_next: np.ndarray) -> np.ndarray:
        return _forward(env, x, u, x_next) - env._healthy_reward * healthy(env, x_next)

    def terminated(env: Any, x: np.ndarray) -> np.ndarray:
        return np.logical_not(healthy(env, x)) & env._terminate_when_unhealthy

    return cost, terminated


def _walker_healthy(env: Any, x: np.ndarray) -> np.ndarray:
    return _within(x.T[1], env._healthy_z_range) & _within(x.T[2], env._healthy_angle_range)


def _hopper_healthy(env: Any, x: np.ndarray) -> np.ndarray:
    calm = np.logical_and.reduce(_within(x.T[2:], env._healthy_state_range), axis=0)
    return _walker_healthy(env, x) & calm


def _fallen(env: Any, x: np.ndarray) -> np.ndarray:
    return ~np.isfinite(x).all(axis=-1) | (np.abs(x.T[1]) > 0.2)


def _balance(env: Any, x: np.ndarray, u: np.ndarray, x_next: np.ndarray) -> np.ndarray:
    return _fallen(env, x_next) - 1.0


def _never(env: Any, x: np.ndarray) -> np.ndarray:
    return np.zeros(x.shape[:-1], dtype=bool)


TASKS: dict[type, Task] = {
    HopperEnv: Task(*_upright(_hopper_healthy), clip=10.0),
    Walker2dEnv: Task(*_upright(_walker_healthy), clip=10.0),
    HalfCheetahEnv: Task(_forward, _never, clip=np.inf),
    SwimmerEnv: Task(_forward, _never, clip=np.inf),
    InvertedPendulumEnv: Task(_balance, _fallen, clip=np.inf),
}
