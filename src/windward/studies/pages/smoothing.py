"""Curves of several runs as the paper's appendix draws them (`app:exper`, Plotting).

Each run is smoothed, then interpolated linearly to a fine grid, and then come the mean over runs
and σ/√N. Beside it: the interquartile mean with bootstrap intervals. No run is left out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windward import checks

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
