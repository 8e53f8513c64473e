"""The physics under an environment: MuJoCo, Pendulum, CartPole, linear systems."""

from typing import Any

from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.envs.mujoco.mujoco_env import MujocoEnv

from windward.simulators.base import Dynamics, Physics
from windward.simulators.classic import (
    CartPoleDynamics,
    CartPolePhysics,
    PendulumDynamics,
    PendulumPhysics,
)
from windward.simulators.linear import LinearDynamics, LinearEnv, LinearPhysics
from windward.simulators.mujoco import MujocoDynamics, MujocoPhysics

_KNOWN: list[tuple[Any, Any, Any]] = [
    (MujocoEnv, MujocoPhysics, MujocoDynamics),
    (PendulumEnv, PendulumPhysics, PendulumDynamics),
    (CartPoleEnv, CartPolePhysics, CartPoleDynamics),
    (LinearEnv, LinearPhysics, LinearDynamics),
]


def _known(base: Any) -> tuple[Any, Any] | None:
    for kind, physics, dynamics in _KNOWN:
        # MuJoCo environments run their own step code; the others' equations are ours to know, so
        # a class that changes them is not one of them.
        if isinstance(base, kind) and (kind is MujocoEnv or type(base).step is kind.step):
            return physics, dynamics
    return None


def physics_of(base: Any) -> Physics | None:
    """The physics of an unwrapped environment in place; None if windward does not know it."""
    known = _known(base)
    return None if known is None else known[0](base)


def dynamics_of(base: Any, nominal: Any = None) -> Dynamics | None:
    """The undisturbed dynamics of an unwrapped environment; None if windward does not know it.

    `nominal` are Parameters that remember the values from before any disturbance.
    """
    known = _known(base)
    return None if known is None else known[1](base, nominal)
