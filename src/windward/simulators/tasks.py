"""Cost and termination of Gymnasium's MuJoCo tasks as functions of qpos and qvel, for batches.

Only tasks whose reward reads nothing else are here; others run their own step code
(`shell.py`). c = -reward throughout.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv
from gymnasium.envs.mujoco.inverted_pendulum_v5 import InvertedPendulumEnv
from gymnasium.envs.mujoco.swimmer_v5 import SwimmerEnv
from gymnasium.envs.mujoco.walker2d_v5 import Walker2dEnv

Coordinates = Sequence[Any] | np.ndarray
"""x by coordinates: plain numbers for one state (x.tolist()), columns for a batch (x.T)."""


class Task(NamedTuple):
    """A task on states x = (qpos, qvel); `env` holds the settings.

    Written with operators that numbers and columns share: one formula, and on plain numbers it
    costs a step of Disturbed a tenth of what it costs on arrays.
    """

    cost: Callable[[Any, Coordinates, np.ndarray, Coordinates], np.ndarray]
    """(env, x, u, x_next) -> costs of a batch; u has rows"""
    terminated: Callable[[Any, Coordinates], Any]
    """(env, x_next) -> a flag, or flags"""
    clip: float
    """observations clip velocities to this size"""

    def observation(self, env: Any, x: np.ndarray) -> np.ndarray:
        """(qpos without what the environment skips, clipped qvel) of one state or rows."""
        nq, nv = env.init_qpos.size, env.init_qvel.size
        speeds = x[..., nq : nq + nv]
        if self.clip < np.inf:
            speeds = np.minimum(np.maximum(speeds, -self.clip), self.clip)
        skipped = nq - env.observation_structure["qpos"]
        return np.concatenate([x[..., skipped:nq], speeds], axis=-1)


def _within(value: Any, bounds: tuple[float, float]) -> Any:
    return (bounds[0] < value) & (value < bounds[1])


def _no(flag: Any) -> Any:
    return flag ^ True


def _forward(env: Any, x: Coordinates, u: np.ndarray, x_next: Coordinates) -> np.ndarray:
    """Minus the speed along the first coordinate, plus the effort."""
    speed = (x_next[0] - x[0]) / env.dt
    effort = np.square(u).sum(axis=-1)
    return env._ctrl_cost_weight * effort - env._forward_reward_weight * speed


def _upright(healthy: Callable[[Any, Coordinates], Any]) -> tuple[Any, Any]:
    """Cost and termination of a task that pays a bonus while healthy."""

    def cost(env: Any, x: Coordinates, u: np.ndarray, x_next: Coordinates) -> np.ndarray:
        return _forward(env, x, u, x_next) - env._healthy_reward * healthy(env, x_next)

    def terminated(env: Any, x: Coordinates) -> Any:
        return _no(healthy(env, x)) & env._terminate_when_unhealthy

    return cost, terminated


def _walker_healthy(env: Any, x: Coordinates) -> Any:
    return _within(x[1], env._healthy_z_range) & _within(x[2], env._healthy_angle_range)


def _hopper_healthy(env: Any, x: Coordinates) -> Any:
    healthy = _walker_healthy(env, x)
    bounds = env._healthy_state_range
    for value in x[2:]:
        healthy = healthy & _within(value, bounds)
    return healthy


def _fallen(env: Any, x: Coordinates) -> Any:
    fallen = abs(x[1]) > 0.2
    for value in x:
        fallen = fallen | _no(abs(value) < np.inf)
    return fallen


def _balance(env: Any, x: Coordinates, u: np.ndarray, x_next: Coordinates) -> np.ndarray:
    return _fallen(env, x_next) - 1.0


def _never(env: Any, x: Coordinates) -> Any:
    return abs(x[0]) < 0


TASKS: dict[type, Task] = {
    HopperEnv: Task(*_upright(_hopper_healthy), clip=10.0),
    Walker2dEnv: Task(*_upright(_walker_healthy), clip=10.0),
    HalfCheetahEnv: Task(_forward, _never, clip=np.inf),
    SwimmerEnv: Task(_forward, _never, clip=np.inf),
    InvertedPendulumEnv: Task(_balance, _fallen, clip=np.inf),
}
