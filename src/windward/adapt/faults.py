"""Kinds of bad input: said once each and counted. What is done about it is in `runtime.py`."""

import math
import warnings
from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np

BASE = "the base action is executed alone"
FAULTS = {
    "action": ("the base action is not usable", "the middle of the action space is executed"),
    "observation": ("an observation is not finite", BASE),
    "reward": ("a reward is not finite", BASE),
    "signal": ("the signal cannot be computed", BASE),
    "late": ("the signal is late", BASE),
}
"""what happened, and what is done"""


class Fault(UserWarning):
    """Bad input in a control loop: the base action is executed, and adaptation goes on after it."""


class Faults(Counter[str]):
    """How often each kind of fault was met."""

    def note(self, kind: str, rows: np.ndarray, why: str = "") -> None:
        """Counts a fault of rows, and says so the first time."""
        if not some(rows):
            return
        if not self[kind]:
            what, done = FAULTS[kind]
            warnings.warn(
                f"{what}{': ' if why else ''}{why}; {done}, and adaptation goes on when input is "
                "good again (counted in .faults, said once)",
                Fault,
                stacklevel=5,
            )
        self[kind] += int(rows.sum())


def some(rows: np.ndarray) -> bool:
    """Whether a flag is set; for a few rows a list is quicker than an array's `any`."""
    return True in rows.tolist()


def every(rows: np.ndarray) -> bool:
    """Whether all flags are set."""
    return False not in rows.tolist()


@lru_cache(maxsize=64)
def flags(rows: int, value: bool) -> np.ndarray:
    """The same for each row, not to be written to."""
    made = np.full(rows, value)
    made.flags.writeable = False
    return made


def finite(x: np.ndarray) -> bool:
    """Whether all numbers are finite."""
    if x.dtype.kind != "f":
        return True
    # A sum of squares is quick; where it overflows the numbers themselves are looked at.
    return math.isfinite(np.vdot(x, x)) or bool(np.isfinite(x).all())


def finite_rows(x: Any) -> np.ndarray:
    """Which rows have finite numbers only."""
    array = np.asarray(x)
    if array.dtype.kind not in "fc" or (array.dtype.kind == "f" and finite(array)):
        return flags(len(array), True)
    return np.isfinite(array).reshape(len(array), -1).all(axis=1)
