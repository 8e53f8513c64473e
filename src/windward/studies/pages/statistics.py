"""Means, slopes and differences of means over seeds, with 95 % intervals."""

from typing import NamedTuple

import numpy as np
import scipy.stats

FEW = 10
"""seeds below which a bootstrap interval is too narrow"""
TOO_NARROW = f"which is too narrow with fewer than {FEW}"
"""said of bootstrap intervals of so few"""


class Interval(NamedTuple):
    """A point estimate and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return format(self)

    def __format__(self, spec: str) -> str:
        """All three numbers in one format, three digits if none is given.

        >>> f"{Interval(0.5, 0.25, 0.75):.2f}, {Interval(0.5, 0.25, 0.71234)}"
        '0.50 [0.25, 0.75], 0.5 [0.25, 0.712]'
        """
        value, low, high = (format(each, spec or ".3g") for each in self)
        return f"{value} [{low}, {high}]"


def mean_interval(values: np.ndarray, seed: int = 0) -> Interval:
    """The mean over seeds, with the percentile bootstrap over seeds."""
    values = np.asarray(values, float)
    if len(values) < 2 or np.ptp(values) == 0:
        return Interval(*[float(values.mean())] * 3)
    result = scipy.stats.bootstrap(
        (values,), np.mean, method="percentile", rng=np.random.default_rng(seed)
    )
    low, high = result.confidence_interval
    return Interval(float(values.mean()), float(low), float(high))


def difference(ours: np.ndarray, theirs: np.ndarray) -> Interval:
    """The difference of means with Welch's 95 % interval, which a few runs do not make narrow.

    A bootstrap of two or three runs would: it knows no values but theirs. With one run on a side
    anything is possible.
    """
    gap = float(ours.mean() - theirs.mean())
    if min(len(ours), len(theirs)) < 2:
        return Interval(gap, -np.inf, np.inf)
    if np.ptp(ours) == 0 and np.ptp(theirs) == 0:
        return Interval(gap, gap, gap)
    low, high = scipy.stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
    return Interval(gap, float(low), float(high))


def paired_difference(ours: np.ndarray, theirs: np.ndarray) -> Interval:
    """The mean difference of pairs with Student's 95 % interval, for runs that met the same."""
    return student_interval(ours - theirs)


def student_interval(values: np.ndarray) -> Interval:
    """The mean with Student's 95 % interval, which is not too narrow for a few values either."""
    mean = float(values.mean())
    if len(values) < 2:
        return Interval(mean, -np.inf, np.inf)
    if np.ptp(values) == 0:
        return Interval(mean, mean, mean)
    # Not ttest_1samp, which warns of values that are nearly equal.
    low, high = scipy.stats.t.interval(0.95, len(values) - 1, mean, scipy.stats.sem(values))
    return Interval(mean, float(low), float(high))


def slope_interval(x: np.ndarray, y: np.ndarray, seed: int = 0, resamples: int = 2000) -> Interval:
    """The slope of log(mean over seeds of y) in log x; y is (len(x), seeds), all means positive.

    Seeds are resampled at each x on their own.
    """
    log_x = np.log(np.asarray(x, float))

    def slope(y: np.ndarray) -> float:
        return float(np.polyfit(log_x, np.log(y.mean(axis=1)), 1)[0])

    rng = np.random.default_rng(seed)
    seeds = y.shape[1]
    draws = [
        slope(np.take_along_axis(y, rng.integers(seeds, size=y.shape), axis=1))
        for _ in range(resamples)
    ]
    low, high = np.percentile(draws, [2.5, 97.5])
    return Interval(slope(y), float(low), float(high))
