"""What Disturbed and simulators ask of an environment's physics."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from windward.simulators.parameters import Parameters


class Unstable(RuntimeError):
    """The physics blew up: a state became non-finite or too large to go on from."""


class Physics(Protocol):
    """The physics of one environment, bound to it: reads its state, pushes it, looks again."""

    env: Any
    parts: Mapping[str, np.ndarray]
    """names of state coordinates ("qpos", "qvel", "state") -> their indices in x"""
    pushes: Mapping[str, int]
    """names of forces ("force:torso") -> how many numbers each takes"""
    parameters: Parameters
    steered: bool
    """whether a force depends on the action it acts with"""

    def state(self) -> np.ndarray:
        """The state x now, in float64."""
        ...

    def add(self, part: str, w: np.ndarray) -> None:
        """x[part] += w; follow it by `refresh`."""
        ...

    def refresh(self, action: Any) -> tuple[Any, bool]:
        """(observation, terminated) of the state as it is now."""
        ...

    def push(self, name: str, action: Any, w: np.ndarray) -> None:
        """Applies a force through the coming step."""
        ...

    def release(self) -> None:
        """Ends all forces."""
        ...

    def check(self) -> None:
        """Raises Unstable if the last step blew up."""
        ...


class Dynamics(Protocol):
    """The undisturbed dynamics f of an environment on batches of states; never changes it."""

    parts: Mapping[str, np.ndarray]
    """as in Physics"""
    parameters: Parameters

    @property
    def d_x(self) -> int:
        """How many numbers a state has."""
        ...

    def state(self) -> np.ndarray:
        """The environment's state x now, in float64."""
        ...

    def advance(self, x: np.ndarray | None, u: Any, forces: Mapping[str, np.ndarray]) -> np.ndarray:
        """f(x, u), rows; x = None stands for the environment's state now."""
        ...

    def step(
        self, x: np.ndarray, u: Any, forces: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(x_next, cost, terminated), rows."""
        ...

    def terminated(self, x: np.ndarray, u: Any) -> np.ndarray:
        """Whether states are terminal, rows."""
        ...

    def observation(self, x: np.ndarray) -> np.ndarray:
        """Observations of states, rows."""
        ...

    def state_of(self, observation: np.ndarray) -> np.ndarray:
        """States of observations, rows; refuses where something was dropped or clipped."""
        ...

    d_v: int
    """numbers in the control that `driven` takes"""

    def rest(self) -> np.ndarray:
        """A state to linearise at."""
        ...

    def driven(self, x: np.ndarray, v: np.ndarray) -> np.ndarray:
        """f with a continuous control v (0 at rest), rows; the same as u where u is continuous."""
        ...

    def gap(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """x - y, angles wrapped where the physics has them so."""
        ...
