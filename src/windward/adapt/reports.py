"""What a step of the adaptive layer came to: `info["windward"]`."""

from typing import Any, NamedTuple

import numpy as np


class Report(NamedTuple):
    """What a step came to, rows: `info["windward"]`.

    `fault` marks steps that taught nothing: one that met bad input, and the one after it.
    `resting` ones were left to the base policy. With `decided` ones something was decided: the last
    of `decisions` says what.
    """

    w_hat: np.ndarray
    correction: np.ndarray
    noise: np.ndarray
    action: np.ndarray
    clipped: np.ndarray
    fault: np.ndarray
    resting: np.ndarray
    decided: np.ndarray

    def row(self, i: int) -> dict[str, Any]:
        """What the step of one row came to, arrays and bools only."""
        return {
            "w_hat": self.w_hat[i], "correction": self.correction[i], "noise": self.noise[i],
            "action": self.action[i], "clipped": self.clipped.item(i),
            "fault": self.fault.item(i), "resting": self.resting.item(i),
            "decided": self.decided.item(i),
        }  # fmt: skip
