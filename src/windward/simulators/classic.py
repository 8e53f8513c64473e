"""Gymnasium's Pendulum and CartPole: their physics in place, and by their equations for batches."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.classic_control.pendulum import PendulumEnv

from windward.simulators.parameters import AttributeParameters

PENDULUM = {"mass": {"bob": "m"}, "gravity": {"gravity": "g"}, "length": {"rod": "l"}}
PENDULUM_PARTS = {"qpos": np.array([0]), "qvel": np.array([1]), "state": np.arange(2)}
CARTPOLE = {
    "mass": {"cart": "masscart", "pole": "masspole"},
    "gravity": {"gravity": "gravity"},
    "gain": {"motor": "force_mag"},
    "length": {"pole": "length"},
}

CARTPOLE_PARTS = {"qpos": np.array([0, 2]), "qvel": np.array([1, 3]), "state": np.arange(4)}


def _state(env: Any) -> np.ndarray:
    state = getattr(env, "state", None)
    if state is None:
        raise gym.error.ResetNeeded("the environment has no state yet: call reset() first")
    return np.array(state, dtype=np.float64)


def _wrap(angle: np.ndarray) -> np.ndarray:
    """An angle in [-π, π)."""
    return ((angle + np.pi) % (2 * np.pi)) - np.pi


class _InPlace:
    """What both have in common: the state is an attribute, and the equations stay finite."""

    env: Any
    parts: Mapping[str, np.ndarray]

    def state(self) -> np.ndarray:
        """See Physics."""
        return _state(self.env)

    def add(self, part: str, w: np.ndarray) -> None:
        """See Physics."""
        x = self.state()
        x[self.parts[part]] += w
        self.env.state = x

    def check(self) -> None:
        """See Physics."""


class PendulumPhysics(_InPlace):
    """Pendulum in place; x = (angle, angular velocity), the angle 0 when upright."""

    steered = False

    def __init__(self, env: PendulumEnv) -> None:
        self.env = env
        self.parts = PENDULUM_PARTS
        self.pushes: Mapping[str, int] = {}
        self.parameters = AttributeParameters(env, PENDULUM)

    def refresh(self, action: Any) -> tuple[np.ndarray, bool]:
        """See Physics."""
        return self.env._get_obs(), False

    def push(self, name: str, action: Any, w: np.ndarray) -> None:
        """See Physics; Pendulum has none."""

    def release(self) -> None:
        """See Physics."""


class CartPolePhysics(_InPlace):
    """CartPole in place; x = (position, velocity, angle, angular velocity)."""

    steered = True

    def __init__(self, env: CartPoleEnv) -> None:
        self.env = env
        self.parts = CARTPOLE_PARTS
        self.pushes: Mapping[str, int] = {"force:cart": 1}
        self.parameters = AttributeParameters(env, CARTPOLE)
        self._motor: float | None = None

    def refresh(self, action: Any) -> tuple[np.ndarray, bool]:
        """See Physics."""
        x = self.state()
        terminated = bool(_fallen(self.env, x[None])[0])
        if not terminated:
            self.env.steps_beyond_terminated = None  # the push undid the fall
        elif self.env.steps_beyond_terminated is None:
            self.env.steps_beyond_terminated = 0
        return np.array(x, dtype=np.float32), terminated

    def push(self, name: str, action: Any, w: np.ndarray) -> None:
        """See Physics; the motor pushes with ±force_mag, so the wind goes into it."""
        if self._motor is None:
            self._motor = self.env.force_mag
        self.env.force_mag += float(w[0]) if action == 1 else -float(w[0])

    def release(self) -> None:
        """See Physics."""
        if self._motor is not None:
            self.env.force_mag, self._motor = self._motor, None


def _fallen(env: Any, x: np.ndarray) -> np.ndarray:
    return (np.abs(x[:, 0]) > env.x_threshold) | (np.abs(x[:, 2]) > env.theta_threshold_radians)


class _Settings:
    """The attributes of an environment that its equations read, with parameters as at first."""

    def __init__(self, env: Any, nominal: AttributeParameters | None) -> None:
        self.__dict__.update(
            {
                key: value
                for key, value in vars(env).items()
                if isinstance(value, (int, float, str, np.number))
            }
        )
        if nominal is not None:
            self.__dict__.update(nominal.first)


def _start(dynamics: Any, x: np.ndarray | None, u: Any) -> np.ndarray:
    """Rows to start from: those given, or the environment's state for every action."""
    return np.broadcast_to(dynamics.state(), (len(u), dynamics.d_x)) if x is None else x


class PendulumDynamics:
    """θ' = θ + θ̇'dt, θ̇' = clip(θ̇ + (3g/2l · sin θ + 3u/ml²)dt), cost θ² + 0.1θ̇² + 0.001u²."""

    d_x, d_v, parts = 2, 1, PENDULUM_PARTS

    def __init__(self, env: PendulumEnv, nominal: AttributeParameters | None = None) -> None:
        self.env, self.p = env, _Settings(env, nominal)
        self.parameters = AttributeParameters(self.p, PENDULUM)

    def state(self) -> np.ndarray:
        """See Dynamics."""
        return _state(self.env)

    def advance(self, x: np.ndarray | None, u: Any, forces: Mapping[str, np.ndarray]) -> np.ndarray:
        """See Dynamics."""
        return self.step(_start(self, x, u), u, forces)[0]

    def step(
        self, x: np.ndarray, u: Any, forces: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See Dynamics."""
        p: Any = self.p
        angle, speed = x.T
        torque = np.clip(u, -p.max_torque, p.max_torque)[:, 0]
        cost = _wrap(angle) ** 2 + 0.1 * speed**2 + 0.001 * torque**2
        turn = 3 * p.g / (2 * p.l) * np.sin(angle) + 3.0 / (p.m * p.l**2) * torque
        speed = np.clip(speed + turn * p.dt, -p.max_speed, p.max_speed)
        x_next = np.stack([angle + speed * p.dt, speed], axis=1)
        return x_next, cost, self.terminated(x_next, u)

    def terminated(self, x: np.ndarray, u: Any) -> np.ndarray:
        """See Dynamics."""
        return np.zeros(len(x), dtype=bool)

    def observation(self, x: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        columns = [np.cos(x[:, 0]), np.sin(x[:, 0]), x[:, 1]]
        return np.stack(columns, axis=1).astype(np.float32)

    def state_of(self, observation: np.ndarray) -> np.ndarray:
        """See Dynamics; whole turns of the angle are not in the observation, nor do they matter."""
        cos, sin, speed = np.asarray(observation, dtype=np.float64).T
        return np.stack([np.arctan2(sin, cos), speed], axis=1)

    def rest(self) -> np.ndarray:
        """See Dynamics: upright."""
        return np.zeros(2)

    def driven(self, x: np.ndarray, v: np.ndarray) -> np.ndarray:
        """See Dynamics: v is the torque."""
        return self.advance(x, v, {})

    def gap(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        return np.concatenate([_wrap(x[..., :1] - y[..., :1]), x[..., 1:] - y[..., 1:]], axis=-1)


class CartPoleDynamics:
    """CartPole's equations (Barto, Sutton and Anderson, with Florian's corrections)."""

    d_x, d_v, parts = 4, 1, CARTPOLE_PARTS

    def __init__(self, env: CartPoleEnv, nominal: AttributeParameters | None = None) -> None:
        self.env, self.p = env, _Settings(env, nominal)
        self.parameters = AttributeParameters(self.p, CARTPOLE)
        self.parameters.restore()  # what follows from masses

    def state(self) -> np.ndarray:
        """See Dynamics."""
        return _state(self.env)

    def advance(self, x: np.ndarray | None, u: Any, forces: Mapping[str, np.ndarray]) -> np.ndarray:
        """See Dynamics."""
        return self.step(_start(self, x, u), u, forces)[0]

    def step(
        self, x: np.ndarray, u: Any, forces: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See Dynamics."""
        p: Any = self.p
        position, velocity, angle, turning = x.T
        force = np.where(np.asarray(u).reshape(len(x)) == 1, p.force_mag, -p.force_mag)
        for wind in forces.values():
            force = force + wind[:, 0]
        cos, sin = np.cos(angle), np.sin(angle)
        temp = (force + p.polemass_length * np.square(turning) * sin) / p.total_mass
        turn = (p.gravity * sin - cos * temp) / (
            p.length * (4.0 / 3.0 - p.masspole * np.square(cos) / p.total_mass)
        )
        push = temp - p.polemass_length * turn * cos / p.total_mass
        faster, spinning = velocity + p.tau * push, turning + p.tau * turn
        # Explicit Euler moves by the speeds before, semi-implicit by those after.
        explicit = p.kinematics_integrator == "euler"
        moved = position + p.tau * (velocity if explicit else faster)
        turned = angle + p.tau * (turning if explicit else spinning)
        x_next = np.stack([moved, faster, turned, spinning], axis=1)
        fallen = _fallen(p, x_next)
        cost = fallen * 1.0 if p._sutton_barto_reward else np.full(len(x), -1.0)
        return x_next, cost, fallen

    def terminated(self, x: np.ndarray, u: Any) -> np.ndarray:
        """See Dynamics."""
        return _fallen(self.p, x)

    def observation(self, x: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        return x.astype(np.float32)

    def state_of(self, observation: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        return np.array(observation, dtype=np.float64)

    def rest(self) -> np.ndarray:
        """See Dynamics: upright in the middle."""
        return np.zeros(4)

    def driven(self, x: np.ndarray, v: np.ndarray) -> np.ndarray:
        """See Dynamics: v is the force on the cart, the motor's share taken off."""
        p: Any = self.p
        return self.advance(x, np.ones(len(x), dtype=int), {"force:cart": v - p.force_mag})

    def gap(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        return x - y
