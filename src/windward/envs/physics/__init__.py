"""The physics under an environment: MuJoCo, Pendulum, CartPole."""

from typing import Any

from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.envs.mujoco.mujoco_env import MujocoEnv

from windward.envs.physics.base import Dynamics, Physics, Unstable
from windward.envs.physics.classic import (
    CartPoleDynamics,
    CartPolePhysics,
    PendulumDynamics,
    PendulumPhysics,
)
from windward.envs.physics.mujoco import MujocoDynamics, MujocoPhysics
from windward.envs.physics.shell import Unsupported

__all__ = ["Dynamics", "Physics", "Unstable", "Unsupported", "dynamics_of", "physics_of"]

_KNOWN: list[tuple[type, type, type]] = [
    (MujocoEnv, MujocoPhysics, MujocoDynamics),
    (PendulumEnv, PendulumPhysics, PendulumDynamics),
    (CartPoleEnv, CartPolePhysics, CartPoleDynamics),
]


def physics_of(base: Any) -> Physics | None:
    """The physics of an unwrapped environment in place; None if windward does not know it."""
    for kind, physics, _ in _KNOWN:
        if isinstance(base, kind):
            return physics(base)
    return None


def dynamics_of(base: Any, nominal: Any = None) -> Dynamics | None:
    """The undisturbed dynamics of an unwrapped environment; None if windward does not know it.

    `nominal` are Parameters that remember the values from before any disturbance.
    """
    for kind, _, dynamics in _KNOWN:
        if isinstance(base, kind):
            return dynamics(base, nominal)
    return None
