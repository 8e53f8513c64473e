"""Registered environments with the paper's settings.

The paper adds U[-0.1, 0.1] to qpos at every step (deviation 13); of the pendulums it says only
"sinusoidal" and "FGSM" (deviation 16), so those sizes are ours.
"""

from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.envs.mujoco.ant_v5 import AntEnv
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv
from gymnasium.envs.mujoco.inverted_pendulum_v5 import InvertedPendulumEnv
from gymnasium.envs.mujoco.walker2d_v5 import Walker2dEnv
from gymnasium.wrappers import TimeLimit

from windward import checks
from windward.envs.disturbances import Numbers
from windward.envs.disturbed import Disturbed

NOISY: dict[str, Any] = {
    "Hopper": HopperEnv,
    "Walker2d": Walker2dEnv,
    "Ant": AntEnv,
    "HalfCheetah": HalfCheetahEnv,
}


def _text(name: str, value: Any) -> str:
    """Numbers as a spec's text: the spec of the environment then goes to JSON and back."""
    return "/".join(str(each) for each in checks.finite_array(name, value, ndim=(0, 1)).ravel())


def noisy(task: str, bound: Numbers = 0.1, channel: str = "qpos", **settings: Any) -> gym.Env:
    """A MuJoCo task with U[-bound, bound] on a channel at every step."""
    return Disturbed(NOISY[task](**settings), f"uniform:bound={_text('bound', bound)}", channel)


def _pendulum(pendulum: str, **settings: Any) -> gym.Env:
    checks.choice("pendulum", pendulum, ("InvertedPendulum", "Pendulum"))
    if pendulum == "Pendulum":
        return TimeLimit(PendulumEnv(**settings), 200)
    return InvertedPendulumEnv(**settings)


def sine_pendulum(
    pendulum: str = "InvertedPendulum",
    amplitude: float | None = None,
    period: float = 63.0,
    **settings: Any,
) -> gym.Env:
    """A pendulum whose pole is pushed by a sinusoid on its velocity.

    The amplitude is 0.05 for InvertedPendulum and 0.2 for Pendulum, in radians a second.
    """
    env = _pendulum(pendulum, **settings)
    if amplitude is None:
        amplitude = 0.2 if pendulum == "Pendulum" else 0.05
    sizes = amplitude if pendulum == "Pendulum" else (0.0, amplitude)
    spec = f"sine:amplitude={_text('amplitude', sizes)},period={_text('period', period)}"
    return Disturbed(env, spec, "qvel")


def fgsm_pendulum(
    pendulum: str = "InvertedPendulum",
    epsilon: Numbers = 0.01,
    **settings: Any,
) -> gym.Env:
    """A pendulum pushed by ε·sign(∇V) on its state, V that of the system linearised upright."""
    spec = f"fgsm:epsilon={_text('epsilon', epsilon)}"
    return Disturbed(_pendulum(pendulum, **settings), spec, "state")


def windy_cartpole(amplitude: float = 3.0, period: float = 60.0, **settings: Any) -> gym.Env:
    """CartPole in a sinusoidal wind on the cart; the motor pushes with 10 newtons."""
    spec = f"sine:amplitude={_text('amplitude', amplitude)},period={_text('period', period)}"
    return Disturbed(CartPoleEnv(**settings), spec, "force:cart")


IDS: dict[str, dict[str, Any]] = {
    **{
        f"windward/Noisy{task}-v0": {
            "entry_point": f"{__name__}:noisy",
            "kwargs": {"task": task},
            "max_episode_steps": 1000,
        }
        for task in NOISY
    },
    "windward/SinePendulum-v0": {
        "entry_point": f"{__name__}:sine_pendulum",
        "max_episode_steps": 1000,
    },
    "windward/FGSMPendulum-v0": {
        "entry_point": f"{__name__}:fgsm_pendulum",
        "max_episode_steps": 1000,
    },
    "windward/WindyCartPole-v0": {
        "entry_point": f"{__name__}:windy_cartpole",
        "max_episode_steps": 500,
    },
}


def register() -> None:
    """Registers the ids with Gymnasium; done when windward is imported."""
    for name, settings in IDS.items():
        if name not in gym.registry:
            gym.register(id=name, **settings)
