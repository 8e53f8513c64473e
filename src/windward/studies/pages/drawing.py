"""Curves of several runs, as they are and smoothed on one grid, ready to be drawn."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from windward.studies.pages import smoothing
from windward.studies.pages.smoothing import Band

Raw = list[tuple[int, np.ndarray, np.ndarray]]
"""(seed, x, y) of each run"""


def bare(band: Band) -> Band:
    """Without a band where there is only one run: one of no width would look like certainty."""
    many = band.runs > 1
    low, high = (np.where(many, side, np.nan) for side in (band.low, band.high))
    return band._replace(low=low, high=high)


@dataclass(frozen=True, eq=False)
class Drawing:
    """The curves of a group: as they are, and smoothed on one grid."""

    raw: Raw
    grid: np.ndarray
    rows: np.ndarray

    @cached_property
    def mean(self) -> Band:
        """Mean and σ/√N."""
        return bare(smoothing.mean_band(self.grid, self.rows))

    @cached_property
    def iqm(self) -> Band:
        """Interquartile mean and its bootstrap interval."""
        return bare(smoothing.interquartile_band(self.grid, self.rows))
