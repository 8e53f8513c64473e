"""Planning on the host for as long as M stays: a few products need no compiled call."""

from typing import Any, NamedTuple

import numpy as np

from windward.core.algorithm import Algorithm

TOLD = ("M", "past", "sigma", "counted")
"""what a planner takes over from the core"""


HUGE = 1e20  # squares beyond it might overflow in the core, which looks at such steps singly


class Planned(NamedTuple):
    """A plan, rows."""

    w_hat: np.ndarray  # of the step before it
    correction: np.ndarray
    draw: np.ndarray
    added: list[float]  # correction and noise, row after row


class Planner:
    """correction = Σ_{i=1..h} M_i ŵ_{t-i} and noise = σ·unit, as the core has them.

    It keeps the steps that it planned, `past` and `table`, for the core: M may move with the
    `left`-th of them.
    """

    def __init__(
        self, algorithm: Algorithm, rows: int, steps: int, told: dict[str, np.ndarray]
    ) -> None:
        held = algorithm.held
        assert held is not None
        self._w_hat, self._gamma = held.w_hat, algorithm.gamma
        self.steps = 0
        """planned so far"""
        self.left = steps
        if held.steps is not None:
            self.left = min(steps, held.steps - int(told["counted"].max()))
        h, d_u, d_w = algorithm.h, algorithm.d_u, algorithm.d_w
        M = told["M"].reshape(-1, h, d_u, d_w).transpose(0, 1, 3, 2).reshape(-1, h * d_w, d_u)
        self._M = M[0] if len(M) == 1 else M
        self._sigma = float(told["sigma"][0])
        # Newest first: ŵ of steps to come are written before those that are there.
        self._d_w, self._window, self._start = d_w, h * d_w, steps * d_w
        before = told["past"].reshape(rows, -1)
        self.past = np.zeros((rows, self._start + before.shape[1]), M.dtype)
        self.past[:, self._start :] = before
        self.table = np.zeros((steps + 1, rows, 1 + d_u), M.dtype)
        self._look()

    def plan(self, c: np.ndarray, aux: dict[str, np.ndarray], unit: np.ndarray) -> Planned | None:
        """The plan after a step that ended no episode; None where a number is not finite."""
        newest, at = self._start - self._d_w, self.steps
        w_hat = self.past[:, newest : self._start]
        w_hat[:] = self._w_hat(aux, self._gamma)
        window = self.past[:, newest : newest + self._window]
        if self._M.ndim == 2:
            correction = window.dot(self._M)
        else:
            correction = np.matmul(window[:, None], self._M)[:, 0]
        draw = self._sigma * unit
        added = (correction + draw).ravel().tolist()
        self._costs[at], self._units[at] = c, unit
        # A sum is not finite with any of its parts; what is huge is left to the core.
        total = np.vdot(w_hat, w_hat) + sum(added) + sum([each * each for each in c.tolist()])
        if not -HUGE < total < HUGE:
            w_hat[:], self.table[at] = 0, 0
            return None
        self._start, self.steps = newest, at + 1
        return Planned(w_hat.copy(), correction, draw, added)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy's views are of its own table."""
        self.__dict__.update(state)
        self._look()

    def _look(self) -> None:
        self._costs, self._units = self.table[:, :, 0], self.table[:, :, 1:]

    def kept(self, learn: bool) -> tuple[np.ndarray, np.ndarray]:
        """All that it planned; `learn` says whether these steps teach."""
        self.table[-1, 0, :2] = self.steps, learn
        return self.past, self.table
