"""A simulator that is put right as its flaws are found: f_sim(x, u) + Θφ, φ = (f_sim - x, u)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from windward.simulators import Simulator
from windward.simulators.learned import LearnedSimulator


class Amended:
    """What replays run in. The simulator itself, which may be somebody else's too, stays."""

    def __init__(
        self,
        simulator: Simulator | LearnedSimulator,
        d_u: int,
        coded: Callable[[Any], np.ndarray],
    ) -> None:
        self._simulator, self._coded = simulator, coded
        self.Theta: np.ndarray = np.zeros((simulator.d_x, simulator.d_x + d_u))
        self.observation, self.terminated = simulator.observation, simulator.terminated

    def phi(self, x: np.ndarray, u: Any, x_next: np.ndarray) -> np.ndarray:
        """What its error is told from, rows: the motion that it gives to x under u, and u."""
        return np.concatenate([self._simulator.gap(x_next, x), self._coded(u)], axis=1)

    def step(self, x: np.ndarray, u: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As the simulator, with a state that is put right."""
        x_next, cost, ended = self._simulator.step(x, u)
        if self.Theta.any():
            x_next = x_next + self.phi(x, u, x_next) @ self.Theta.T
        return x_next, cost, ended
