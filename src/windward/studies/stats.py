"""Statistics over seeds: intervals, differences, slopes, and curves drawn as in the appendix.

Curves (`app:exper`, Plotting): each run is smoothed, then interpolated linearly to a fine grid, and
then come the mean over runs and σ/√N. Beside it: the interquartile mean with bootstrap intervals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from windward import checks

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


def span(each: Interval) -> str:
    """A number with its interval, if it has one.

    >>> span(Interval(2.0, 1.0, 3.0)), span(Interval(2.0, -np.inf, np.inf))
    ('2.0 [1.0, 3.0]', '2.0')
    """
    if not np.isfinite([each.low, each.high]).all():
        return f"{each.value:.1f}"
    return f"{each.value:.1f} [{each.low:.1f}, {each.high:.1f}]"


def counted(count: int, what: str) -> str:
    """A number of things: 1 seed, 3 seeds."""
    return f"{count:,} {what}{'s' * (count != 1)}"


SMOOTHING = 0.1
"""the paper's, here as a part of the whole domain (deviation 20)"""
GRID = 400
"""points of the fine grid"""
RESAMPLES = 1000


class Band(NamedTuple):
    """A line with a band around it on the grid; NaN where there is no run."""

    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    runs: np.ndarray
    """how many there are at each point"""


def smooth(x: np.ndarray, y: np.ndarray, domain: float, smoothing: float = SMOOTHING) -> np.ndarray:
    """s_k = d_k s_{k-1} + (1 - d_k) y_k with the decay d_k = exp(-(x_k - x_{k-1}) / (0.1·domain)).

    The decay depends on the spacing, so that it makes no difference how densely a run was looked
    at: a point put between two others, with the later one's value, changes neither.

    >>> smooth(np.array([1.0, 2.0]), np.array([0.0, 1.0]), domain=10.0).round(4).tolist()
    [0.0, 0.6321]
    """
    checks.positive("domain", domain)
    checks.positive("smoothing", smoothing, zero=True)
    x, y = np.asarray(x, float), np.asarray(y, float)
    if (np.diff(x) <= 0).any():
        raise ValueError(f"x must increase; got {x}")
    if smoothing == 0:
        return y.copy()
    decay = np.exp(-np.diff(x) / (smoothing * domain))
    smoothed = y.copy()
    for k, d in enumerate(decay, 1):
        smoothed[k] = d * smoothed[k - 1] + (1.0 - d) * y[k]
    return smoothed


def on_grid(
    runs: Sequence[tuple[np.ndarray, np.ndarray]], domain: float, points: int = GRID
) -> tuple[np.ndarray, np.ndarray]:
    """(grid, rows): each run (x, y) smoothed and interpolated; NaN before it begins and after.

    The grid begins with the first point of any run and ends with the last.
    """
    if not runs:
        raise ValueError("there are no runs to draw")
    grid = np.linspace(min(x[0] for x, _ in runs), max(x[-1] for x, _ in runs), points)
    rows = [np.interp(grid, x, smooth(x, y, domain), left=np.nan, right=np.nan) for x, y in runs]
    return grid, np.stack(rows)


def mean_band(grid: np.ndarray, rows: np.ndarray) -> Band:
    """The mean, and one standard error σ/√N around it; of a single run no band."""
    count = np.isfinite(rows).sum(axis=0)
    mean = np.full(grid.shape, np.nan)
    error = np.zeros(grid.shape)
    for i in range(len(grid)):
        values = rows[np.isfinite(rows[:, i]), i]
        if len(values):
            mean[i] = values.mean()
        if len(values) > 1:
            error[i] = values.std(ddof=1) / np.sqrt(len(values))
    return Band(grid, mean, mean - error, mean + error, count)


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """The mean of the middle half along the first axis, fractions of a value counted as such.

    >>> interquartile_mean(np.array([0.0, 1.0, 2.0, 100.0])).item()
    1.5
    >>> round(interquartile_mean(np.array([0.0, 1.0, 50.0])).item(), 6)  # 0/6 + 1·2/3 + 50/6
    9.0
    """
    ordered = np.sort(np.asarray(values, float), axis=0)
    n = len(ordered)
    # How much of the i-th of n equal pieces of [0, 1] lies in [1/4, 3/4].
    edges = np.clip(np.arange(n + 1) / n, 0.25, 0.75)
    weights = np.diff(edges) / 0.5
    mean: np.ndarray = np.tensordot(weights, ordered, axes=1)
    return mean


def interquartile_band(
    grid: np.ndarray, rows: np.ndarray, seed: int = 0, resamples: int = RESAMPLES
) -> Band:
    """The interquartile mean, and its 95 % percentile bootstrap interval over whole runs."""
    count = np.isfinite(rows).sum(axis=0)
    y, low, high = (np.full(grid.shape, np.nan) for _ in range(3))
    rng = np.random.default_rng(seed)
    # Points with the same runs are done together: those before the first ends are all but few.
    there = np.isfinite(rows)
    for pattern in np.unique(there.T, axis=0):
        at = (there == pattern[:, None]).all(axis=0)
        values = rows[pattern][:, at]
        if not len(values):
            continue
        y[at] = interquartile_mean(values)
        drawn = rng.integers(len(values), size=(resamples, len(values)))
        means = np.stack([interquartile_mean(values[each]) for each in drawn])
        low[at], high[at] = np.percentile(means, [2.5, 97.5], axis=0)
    return Band(grid, y, low, high, count)


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
        return bare(mean_band(self.grid, self.rows))

    @cached_property
    def iqm(self) -> Band:
        """Interquartile mean and its bootstrap interval."""
        return bare(interquartile_band(self.grid, self.rows))


def drawing(raw: Raw, domain: float, drop: int = 0) -> Drawing:
    """The curves of a group; `drop` leaves so many of the lowest at their end out of the bands.

    The paper does so in one figure (deviation 17); no number in a table ever does.
    """
    order = sorted(raw, key=lambda each: -last(each[2], FINAL))
    kept = order[: max(1, len(order) - drop)] if drop else raw
    return Drawing(raw, *on_grid([(x, y) for _, x, y in kept], domain))


FINAL = 0.1
"""the share of evaluations, the last ones, that make the final return"""


def last(values: np.ndarray, share: float) -> float:
    """The mean of the last part of a column, at least of its last number."""
    return float(values[-max(1, int(share * len(values))) :].mean())


Rows = Sequence[Mapping[str, Any]]
"""raw results, as runs.csv has them"""


def select(rows: Rows, **where: Any) -> list[Mapping[str, Any]]:
    """The rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in where.items())]


def column(rows: Rows, name: str) -> np.ndarray:
    """A column as numbers."""
    return np.array([row[name] for row in rows], dtype=float)


def distinct(rows: Rows, name: str) -> list[Any]:
    """The values of a column, each once, in their order."""
    return list(dict.fromkeys(row[name] for row in rows))
