"""Which M are tried next: a search by covariance matrix adaptation in a few directions of windows.

M maps a window of ŵ, h d_w numbers, to an action. Most directions of windows are never met, so M is
searched for in the main ones of the record: M = P B with rows of B the components, P the point.
"""

from typing import Any

import numpy as np

from windward import checks
from windward.adapt import cma
from windward.adapt.pace import Pace
from windward.adapt.record import Record

NARROW, WIDE = 0.03, 10.0  # of the first step: with less or more the search begins anew
STATE = "search_"  # arrays of a file that are the search's
COUNTS = ("begun", "begun_scale")


class Drawing:
    """Draws M of shape (h, d_u, d_w) around a mean, which follows those that cost least."""

    def __init__(self, shape: tuple[int, int, int], step: float, components: int) -> None:
        self._shape, self._components = shape, components
        self.basis = np.zeros((0, shape[0] * shape[2]))
        """B: components of the window"""
        self.state = cma.start(np.zeros(0), step)
        self.begun = 0
        """steps of the record when the search last began; 0 lets it begin anew"""
        self.begun_scale = 0

    def renew(self, record: Record, pace: Pace, M: np.ndarray) -> None:
        """Begins the search anew around M, when the record is twice as long or it came to rest."""
        step = self.state.step / pace.first_step
        moves = np.tile(record.per_size > 0, self._shape[0])
        met = not np.any(moves & ~self.basis.any(axis=0))  # no coordinate moves for the first time
        same = met and self.begun_scale == pace.scale
        if NARROW < step < WIDE and same and record.steps < 2 * self.begun:
            return
        self.basis, self.begun = record.features(self._components), record.steps
        self.begun_scale = pace.scale
        d_u = self._shape[1]
        mean = M.swapaxes(0, 1).reshape(d_u, -1) @ np.linalg.pinv(self.basis)
        self.state = cma.start(mean.ravel(), pace.first_step)

    def ask(self, rng: np.random.Generator) -> np.ndarray:
        """The points of this generation."""
        return cma.ask(self.state, rng)

    def tell(self, points: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """Moves on by what the points cost; the best of them and the new mean, as M."""
        self.state = cma.tell(self.state, points, costs)
        return self.maps(np.stack([points[costs.argmin()], self.state.mean]))

    def maps(self, points: np.ndarray) -> np.ndarray:
        """Points of the search as M: (n, h, d_u, d_w)."""
        h, d_u, d_w = self._shape
        maps = points.reshape(-1, d_u, len(self.basis)) @ self.basis
        return np.asarray(maps.reshape(-1, d_u, h, d_w).swapaxes(1, 2))

    def arrays(self) -> dict[str, np.ndarray]:
        """Its numbers, for a file."""
        state = {f"{STATE}{name}": each for name, each in self.state._asdict().items()}
        return {"basis": self.basis, **state}

    def memory(self) -> dict[str, Any]:
        """The rest, as JSON can hold it."""
        return {name: getattr(self, name) for name in COUNTS}

    def restore(self, arrays: dict[str, np.ndarray], memory: Any) -> None:
        """Goes on from what `arrays` and `memory` gave; what does not fit changes nothing."""
        h, d_u, d_w = self._shape
        basis = checks.finite_array("basis", arrays["basis"])
        checks.shape("basis", basis, (len(basis), h * d_w), "(components, h d_w)")
        state = cma.restored(arrays, STATE, d_u * len(basis))
        counts = {name: checks.integer(name, memory[name], 0) for name in COUNTS}
        self.basis, self.state = basis, state
        for name, value in counts.items():
            setattr(self, name, value)
