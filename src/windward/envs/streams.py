"""One disturbance on one channel as a stream of rows, reproducible from (seed, episode, step)."""

import math
from typing import Any

import numpy as np

from windward import checks
from windward.envs.disturbances import Ask, Disturbance, Shape
from windward.envs.recorded import Recorded
from windward.envs.schedules import When, as_schedules

BLOCK = 64
"""Rows drawn at a time: the generator is asked once in so many steps."""

_ALL = [True] * BLOCK


def _generator(seed: int, *key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


class Stream:
    """w_0, w_1, ... of the present episode, with the schedule's factor applied.

    `key` tells streams of one environment apart; a generator is made for each episode, so the
    sequence does not depend on how long the episodes before were.
    """

    def __init__(
        self, disturbance: Disturbance, when: When, shape: Shape, key: tuple[int, ...]
    ) -> None:
        self.disturbance, self.shape, self.key = disturbance, shape, key
        schedules = as_schedules(when)
        self.planned: list[Any] = [each for each in schedules if hasattr(each, "factors")]
        self.called: list[Any] = [each for each in schedules if not hasattr(each, "factors")]
        self._due = _ALL
        self._length = disturbance.length() if isinstance(disturbance, Recorded) else None
        self.restart(0, 0)
        self._draw()  # a wrong shape shows now, not in the middle of a run
        self.restart(0, 0)

    def restart(self, seed: int, episode: int) -> None:
        """Begins an episode."""
        self.seed, self.episode, self.t = seed, episode, 0
        self._rng, self._coin = (_generator(seed, *self.key, episode, part) for part in (0, 1))
        self._carry: Any = None
        self._row = BLOCK
        self.active = False
        """whether the last row has anything but zeros"""

    def _draw(self) -> None:
        ask = Ask(self._rng, self.t, BLOCK, self.shape, self._carry)
        rows, self._carry = self.disturbance.block(ask)
        self._check(rows)
        if self.planned:
            factors = [
                each.factors(self._coin, self.episode, self.t, BLOCK) for each in self.planned
            ]
            factor = np.prod(factors, axis=0)
            rows = rows * factor.reshape((BLOCK,) + (1,) * len(self.shape))
            self._due = (factor != 0).tolist()
        self._rows = rows
        # Most have no zero at all, which is quick to see.
        self._moves = (
            _ALL if rows.all() else np.asarray(rows.reshape(BLOCK, -1).any(axis=1)).tolist()
        )
        self._row = 0

    def _check(self, rows: np.ndarray) -> None:
        """What a disturbance of one's own may get wrong."""
        kind = type(self.disturbance).__name__
        checks.shape(f"the rows of {kind}.block", rows, (BLOCK, *self.shape))
        if not math.isfinite(rows.sum()):
            raise ValueError(f"{kind}.block gave a disturbance that is not finite")

    def next(self) -> np.ndarray:
        """The row of this step, shape `shape`."""
        if self._row == BLOCK:
            self._draw()
        if self._length is not None and self.t >= self._length and self._due[self._row]:
            raise ValueError(
                f"the recorded sequence has {self._length} rows and this is step {self.t} of the "
                'episode: record more, or set after="repeat" or after="zero"'
            )
        w = self._rows[self._row]
        self.active = self._moves[self._row]
        for function in self.called:
            factor = factor_of(function(self.t, self.episode))
            w = w * factor
            self.active = self.active and factor != 0
        self._row += 1
        self.t += 1
        return w

    def factors(self, rng: np.random.Generator, n: int) -> np.ndarray | None:
        """The schedule's factors of the coming step for n copies; None for all ones."""
        if not self.planned and not self.called:
            return None
        factor = np.ones(n)
        for schedule in self.planned:
            each = [schedule.factors(rng, self.episode, self.t, 1)[0] for _ in range(n)]
            factor = factor * np.array(each)
        for function in self.called:
            factor = factor * factor_of(function(self.t, self.episode))
        return factor


class Redraw:
    """Fresh rows of an iid stream for the copies of a simulator, from the simulator's generator."""

    def __init__(self, stream: Stream, rng: np.random.Generator) -> None:
        self.stream, self._rng = stream, rng
        self._rows = np.empty((0, *stream.shape))
        self._used = 0
        self._before: Any = None  # the generator's state before the rows were drawn

    def _draw(self, n: int) -> None:
        self._before = self._rng.bit_generator.state
        ask = Ask(self._rng, 0, n, self.stream.shape, None)
        self._rows, _ = self.stream.disturbance.block(ask)
        self._used = 0

    def memory(self) -> dict[str, Any]:
        """What rows are left, as JSON can hold it."""
        return {"before": self._before, "drawn": len(self._rows), "used": self._used}

    def remember(self, memory: dict[str, Any]) -> None:
        """Draws again the rows that were left; the generator is then anywhere."""
        drawn, used = int(memory["drawn"]), int(memory["used"])
        self._rows, self._used, self._before = self._rows[:0], 0, None
        if drawn:
            self._rng.bit_generator.state = memory["before"]
            self._draw(drawn)
            self._used = used

    def next(self, n: int) -> np.ndarray:
        """n rows for the coming step, shape (n, *shape)."""
        if self._used + n > len(self._rows):
            self._draw(max(n, 4 * BLOCK))
        rows = self._rows[self._used : self._used + n]
        self._used += n
        factor = self.stream.factors(self._rng, n)
        return rows if factor is None else rows * factor.reshape((n,) + (1,) * (rows.ndim - 1))


def factor_of(value: Any) -> float:
    """What a user's schedule returned, as a finite number."""
    return float(checks.finite_array("the factor that when() returned", value, ndim=0))
