"""Dynamics that a user gives as a function, for environments whose physics windward cannot read."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from windward import checks
from windward.simulators.parameters import DictParameters, NoParameters, Parameters
from windward.simulators.shell import Unsupported


class FunctionDynamics:
    """step(x, u, **parameters) -> (x_next, cost, terminated) on rows, and state(env) -> x."""

    d_v = 0
    parts: Mapping[str, np.ndarray] = {}

    def __init__(
        self,
        env: Any,
        step: Callable[..., tuple[Any, Any, Any]],
        state: Callable[[Any], Any],
        parameters: Mapping[str, float] | None = None,
    ) -> None:
        self.env, self._step, self._state = env, step, state
        self._own = DictParameters(parameters or {})
        self.parameters: Parameters = self._own if parameters else NoParameters()

    @property
    def d_x(self) -> int:
        """As many as the state has; an environment may have one only after reset."""
        return self.state().size

    def state(self) -> np.ndarray:
        """See Dynamics."""
        return checks.finite_array("state(env)", self._state(self.env), ndim=1)

    def advance(self, x: np.ndarray | None, u: Any, forces: Mapping[str, np.ndarray]) -> np.ndarray:
        """See Dynamics."""
        start = np.tile(self.state(), (len(u), 1)) if x is None else x
        return self.step(start, u, forces)[0]

    def step(
        self, x: np.ndarray, u: Any, forces: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See Dynamics; checks what the function returns."""
        n = len(x)
        x_next, cost, terminated = self._step(x, u, **self._own.now)
        x_next = np.array(x_next, dtype=np.float64)
        checks.shape("x_next from step(x, u)", x_next, (n, self.d_x), "a row for each state")
        cost = np.array(cost, dtype=np.float64)
        checks.shape("cost from step(x, u)", cost, (n,), "one for each state")
        terminated = np.array(terminated, dtype=bool)
        checks.shape("terminated from step(x, u)", terminated, (n,), "one for each state")
        return x_next, cost, terminated

    def terminated(self, x: np.ndarray, u: Any) -> np.ndarray:
        """See Dynamics."""
        raise self._unknown("which states are terminal")

    def observation(self, x: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        raise self._unknown("how a state is observed")

    def state_of(self, observation: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        raise self._unknown("how a state is observed")

    def rest(self) -> np.ndarray:
        """See Dynamics."""
        raise self._unknown("a state at rest")

    def driven(self, x: np.ndarray, v: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        raise self._unknown("a continuous control")

    def gap(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        return x - y

    def _unknown(self, what: str) -> Unsupported:
        return Unsupported(f"a simulator from a function does not know {what}")
