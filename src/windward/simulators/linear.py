"""A linear system with quadratic costs as an environment, and its physics."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks
from windward.simulators.parameters import NoParameters, Parameters


class LinearEnv(gym.Env[np.ndarray, np.ndarray]):
    """x_{t+1} = Ax_t + Bu_t, reward -(xᵀQx + uᵀRu), x_0 ~ N(0, I); observations are states.

    Actions are cut off at ±half. Episodes do not end by themselves: make it with a time limit. Wind
    is added by `Disturbed`, on channel "state".
    """

    def __init__(self, A: Any, B: Any, Q: Any, R: Any, half: Any) -> None:
        self.A, self.B, self.Q, self.R = (
            checks.finite_array(name, each, ndim=2)
            for name, each in zip("ABQR", (A, B, Q, R), strict=True)
        )
        d_x, d_u = self.B.shape
        checks.shape("A", self.A, (d_x, d_x), "(d_x, d_x)")
        checks.shape("Q", self.Q, (d_x, d_x), "(d_x, d_x)")
        checks.shape("R", self.R, (d_u, d_u), "(d_u, d_u)")
        self.half = np.broadcast_to(checks.positive("half", half), (d_u,))
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (d_x,), np.float64)
        self.action_space = gym.spaces.Box(-self.half, self.half, dtype=np.float64)
        self.state: np.ndarray | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed)
        self.state = self.np_random.normal(size=len(self.A))
        return self.state.copy(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step."""
        x_next, cost = self.rows(_state(self)[None], np.asarray(action, dtype=np.float64)[None])
        self.state = x_next[0]
        return self.state.copy(), -float(cost[0]), False, False, {}

    def rows(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(x_next, cost) of rows."""
        u = np.clip(u, -self.half, self.half)
        cost = ((x @ self.Q) * x).sum(axis=1) + ((u @ self.R) * u).sum(axis=1)
        return x @ self.A.T + u @ self.B.T, cost


def _state(env: LinearEnv) -> np.ndarray:
    if env.state is None:
        raise gym.error.ResetNeeded("the environment has no state yet: call reset() first")
    return env.state


class LinearPhysics:
    """A `LinearEnv` in place."""

    steered = False

    def __init__(self, env: LinearEnv) -> None:
        self.env = env
        self.parts: Mapping[str, np.ndarray] = {"state": np.arange(len(env.A))}
        self.pushes: Mapping[str, int] = {}
        self.parameters: Parameters = NoParameters()

    def state(self) -> np.ndarray:
        """See Physics."""
        return _state(self.env).copy()

    def add(self, part: str, w: np.ndarray) -> None:
        """See Physics."""
        self.env.state = self.state() + w

    def refresh(self, action: Any) -> tuple[np.ndarray, bool]:
        """See Physics."""
        return self.state(), False

    def push(self, name: str, action: Any, w: np.ndarray) -> None:
        """See Physics; there are no forces."""

    def release(self) -> None:
        """See Physics."""

    def check(self) -> None:
        """See Physics."""


class LinearDynamics:
    """The equations of a `LinearEnv` on rows."""

    def __init__(self, env: LinearEnv, nominal: Any = None) -> None:
        self.env = env
        self.d_x, self.d_v = env.B.shape
        self.parts: Mapping[str, np.ndarray] = {"state": np.arange(self.d_x)}
        self.parameters: Parameters = NoParameters()

    def state(self) -> np.ndarray:
        """See Dynamics."""
        return _state(self.env).copy()

    def advance(self, x: np.ndarray | None, u: Any, forces: Mapping[str, np.ndarray]) -> np.ndarray:
        """See Dynamics."""
        start = np.broadcast_to(self.state(), (len(u), self.d_x)) if x is None else x
        return self.step(start, u, forces)[0]

    def step(
        self, x: np.ndarray, u: Any, forces: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See Dynamics."""
        x_next, cost = self.env.rows(x, np.asarray(u, dtype=np.float64))
        return x_next, cost, self.terminated(x_next, u)

    def terminated(self, x: np.ndarray, u: Any) -> np.ndarray:
        """See Dynamics."""
        return np.zeros(len(x), dtype=bool)

    def observation(self, x: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        return x.copy()

    def state_of(self, observation: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        return np.array(observation, dtype=np.float64)

    def rest(self) -> np.ndarray:
        """See Dynamics."""
        return np.zeros(self.d_x)

    def driven(self, x: np.ndarray, v: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        return self.advance(x, v, {})

    def gap(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        return x - y
