"""The size of a user's own signal, by which ŵ is divided: a learner's numbers are for order 1."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class SizeSettings:
    """How a size is found."""

    span: int = 1000
    """steps that count: the size follows a signal that grows or shrinks for as many"""
    rise: float = 4.0
    """times the size so far that a step counts for at most: one glitch must not set the size"""
    slack: float = 2.0
    """factor by which the size must be off to be set anew"""
    largest: int = 60
    """of its exponent: larger numbers than 2^60 are as good as none"""


class Size:
    """The root mean square of ŵ, to the next power of two: dividing by it loses no bit."""

    def __init__(self, settings: SizeSettings | None = None) -> None:
        self.settings = settings or SizeSettings()
        self.reset()

    def reset(self) -> None:
        """Nothing is known."""
        self.value = 1.0
        self.fixed = False
        """whether it stays as it is: an M was given in its units"""
        self._square, self._count = 0.0, 0

    def see(self, w_hat: np.ndarray) -> None:
        """Rows of a step; one without a wind tells nothing of the size of winds."""
        s = self.settings
        with np.errstate(over="ignore"):
            square = float(np.mean(np.square(w_hat)))
        if self.fixed or not 0.0 < square < math.inf:
            return
        self._count = min(self._count + 1, s.span)
        if self._count > 1:
            square = min(square, s.rise**2 * self._square)
        self._square += (square - self._square) / self._count
        size = math.sqrt(self._square)
        if self._count == 1 or not self.value / s.slack <= size <= self.value * s.slack:
            exponent = round(math.log2(max(size, 2.0**-s.largest)))
            self.value = 2.0 ** min(exponent, s.largest)

    def over(self, w_hat: np.ndarray) -> np.ndarray:
        """ŵ over it; what no float32 holds is no number."""
        with np.errstate(over="ignore", invalid="ignore"):
            inside = np.abs(w_hat) < np.finfo(np.float32).max
            return np.where(inside, w_hat / self.value, np.nan)

    def memory(self) -> list[Any]:
        """What a file must hold."""
        return [self.value, self.fixed, self._square, self._count]

    def remember(self, memory: Any) -> None:
        """Goes on from what `memory` gave."""
        value, fixed, square, count = memory
        numbers = all(isinstance(each, float | int) for each in (value, square, count))
        if not numbers or not value > 0.0 or not 0.0 <= square < math.inf:
            raise ValueError(f"'size' is {memory!r}")
        self.value, self.fixed = float(value), bool(fixed)
        self._square, self._count = float(square), int(count)
