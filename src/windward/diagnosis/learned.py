"""A learned simulator as one with parameters: how strongly each coordinate answers, and offsets."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from windward.simulators.learned import LearnedSimulator


class ResponseParameters:
    """`response`: factor on a coordinate's change in a step. `offset`: a constant added to it."""

    def __init__(self, d_x: int) -> None:
        names = [str(i) for i in range(d_x)]
        self.elements: Mapping[str, Sequence[str]] = {"response": names, "offset": names}
        self.restore()

    def write(self, kind: str, value: np.ndarray) -> None:
        """See Parameters."""
        self.now[kind] = np.asarray(value, dtype=np.float64)

    def restore(self) -> None:
        """See Parameters."""
        size = len(self.elements["response"])
        self.now = {"response": np.ones(size), "offset": np.zeros(size)}


class LearnedDynamics:
    """x + response·(f(x, u) - x) + offset, in coordinates of the observation."""

    parts: Mapping[str, np.ndarray] = {}

    def __init__(self, simulator: LearnedSimulator) -> None:
        self.simulator = simulator
        self.d_x = simulator.d_x
        self.parameters = ResponseParameters(self.d_x)
        self.env = None
        self.action_space = simulator.action_space
        # Of coordinates that lie on a circle the response cannot change alone.
        self.motion = np.maximum(simulator.fit.motion, 1e-12)

    def advance(self, x: np.ndarray, u: Any, forces: Mapping[str, np.ndarray]) -> np.ndarray:
        """See Dynamics."""
        now = self.parameters.now
        change = self.simulator.step(x, u)[0] - x
        return x + now["response"] * change + now["offset"] * self.motion

    def gap(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        return x - y
