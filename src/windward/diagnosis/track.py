"""Measured states in pieces of consecutive steps, and the states smoothed."""

from itertools import pairwise
from typing import Any

import numpy as np

from windward.diagnosis.fit import MAD
from windward.diagnosis.kalman import Linear, kalman
from windward.diagnosis.residuals import Residuals, Rows
from windward.diagnosis.sensors import pairs_of, regression


class Track:
    """Measured states in pieces of consecutive steps, (pieces, steps + 1, coordinates)."""

    def __init__(self, residuals: Residuals, rows: Rows, length: int) -> None:
        self.residuals, self.rows = residuals, rows
        dynamics = residuals.dynamics
        pairs = pairs_of(dynamics, rows)
        own = set(np.r_[pairs[:, 0], dynamics.parts["qvel"]].tolist())
        self.columns = np.array(sorted(own))
        self.position = np.isin(self.columns, pairs[:, 0])
        self.index, self.kept = _pieces(rows.run, length)
        shape = (*self.index.shape, dynamics.d_x)
        self.y = np.zeros((shape[0], shape[1] + 1, shape[2]))
        self.y[:, :-1] = rows.x[self.index]
        self.y[:, 1:][self.kept] = rows.x_next[self.index][self.kept]
        self.seen = np.concatenate([self.kept[:, :1], self.kept], axis=1)
        """moments that were measured"""
        self.x = self.y.copy()
        """the states, smoothed"""
        self._pairs = pairs

    def take(self, pieces: Any) -> "Track":
        """Some of the pieces; what is smoothed there is smoothed here too."""
        other = object.__new__(Track)
        other.__dict__.update(self.__dict__)
        for name in ("index", "kept", "y", "seen", "x"):
            setattr(other, name, getattr(self, name)[pieces])
        return other

    @property
    def u(self) -> np.ndarray:
        """Actions of the kept steps."""
        return self.rows.u[self.index][self.kept]

    def full(self, values: np.ndarray) -> np.ndarray:
        """Values of kept steps where they belong, 0 elsewhere."""
        found = np.zeros((*self.kept.shape, *values.shape[1:]))
        found[self.kept] = values
        return found

    def predicted(self, x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """f_θ on states x, measured coordinates; where it cannot be computed, x_next itself."""
        found = self.residuals.physics([theta], x[:, :-1][self.kept], self.u)[0]
        after = x[:, 1:][self.kept]
        return self.full(np.where(np.isfinite(found), found, after)[:, self.columns])

    def gap(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """a - b of measured coordinates, angles the short way round."""
        return self.residuals.dynamics.gap(a, b)[..., self.columns]

    def smooth_positions(self) -> None:
        """A first guess of positions, from their own measurements and the velocities'."""
        seconds = self._seconds()
        for q, v in self._pairs:
            moved = seconds * (self.y[:, :-1, v] + self.y[:, 1:, v]) / 2
            miss = (self.y[:, 1:, q] - self.y[:, :-1, q] - moved)[self.kept]
            size = MAD * float(np.median(np.abs(miss))) / np.sqrt(2) + 1e-12
            jerk = float(np.median(np.abs(np.diff(self.y[:, :, v], axis=1)[self.kept])))
            shape = (*self.kept.shape, 1)
            found = kalman(
                Linear(np.ones((*shape, 1)), np.zeros((*shape, 0)), -moved[..., None],
                       self.y[..., [q]], self.kept),
                np.array([size**2]), np.full(shape, (seconds * size) ** 2
                                             + (0.1 * seconds * jerk) ** 2),
            )  # fmt: skip
            self.x[..., q] = np.where(self.seen, found.states[..., 0], self.y[..., q])

    def _seconds(self) -> float:
        """Of a step: what positions move by for each unit of velocity."""
        ratios = []
        for q, v in self._pairs:
            speed = (self.y[:, :-1, v] + self.y[:, 1:, v])[self.kept] / 2
            moved = (self.y[:, 1:, q] - self.y[:, :-1, q])[self.kept]
            ratios.append(regression(moved, speed)[0])
        return float(np.median(ratios))

    def smoothed(self) -> Rows:
        """The rows with smoothed states in place of measured ones."""
        run = np.repeat(np.arange(len(self.kept)), self.kept.sum(axis=1))
        return self.rows.take(self.index[self.kept])._replace(
            x=self.x[:, :-1][self.kept], x_next=self.x[:, 1:][self.kept], run=run
        )

    def some(self, steps: int) -> "Track":
        """Pieces of so many steps at least, spread evenly."""
        lengths = self.kept.sum(axis=1)
        order = np.argsort(np.arange(len(lengths)) * 0.618034 % 1)
        enough = int(np.searchsorted(np.cumsum(lengths[order]), steps)) + 1
        return self.take(np.sort(order[:enough]))


def _pieces(run: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows of each piece, which of them count), both (pieces, steps)."""
    starts = np.flatnonzero(np.r_[True, run[1:] != run[:-1]])
    pieces = []
    for start, end in zip(starts, np.r_[starts[1:], len(run)], strict=True):
        cuts = np.linspace(start, end, max(1, round((end - start) / length)) + 1).astype(int)
        pieces += list(pairwise(cuts))
    longest = max(end - start for start, end in pieces)
    steps = np.array([np.arange(start, start + longest) for start, _ in pieces])
    ends = np.array([end for _, end in pieces])[:, None]
    return np.minimum(steps, ends - 1), steps < ends
