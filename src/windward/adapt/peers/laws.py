"""What a peer is to the slot that it is in."""

from typing import Protocol

import numpy as np

from windward.adapt.sources import Happened

AUTHORITY = 2.0
"""largest correction, in actions scaled to [-1, 1]: from one bound to the other"""


class Law(Protocol):
    """What is added to the base actions of one environment, in actions scaled to [-1, 1]."""

    def plan(self, x: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(correction, noise), (d_u,) each; called with one row each before a step."""

    def observe(self, step: Happened, w_hat: np.ndarray) -> None:
        """What followed on the last plan, if that was usable; ŵ is empty without a signal."""

    def begin(self) -> None:
        """The next step does not follow on the last one."""

    def forget(self) -> None:
        """All is as when it was made."""
