"""Intervals: against normal theory, and slopes against a known power law."""

import numpy as np
import pytest
import scipy.stats

from windward.studies.stats import (
    difference,
    mean_interval,
    paired_difference,
    slope_interval,
)


def test_mean_interval_agrees_with_normal_theory() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, 400)
    interval = mean_interval(values)
    half = 1.96 * values.std(ddof=1) / 20
    assert interval.value == values.mean()
    assert abs(interval.low - (values.mean() - half)) < 0.15 * half
    assert abs(interval.high - (values.mean() + half)) < 0.15 * half


def test_mean_interval_of_equal_values_is_a_point() -> None:
    assert mean_interval(np.full(5, 2.0)) == (2.0, 2.0, 2.0)
    assert mean_interval(np.array([2.0])) == (2.0, 2.0, 2.0)


def test_slope_interval_covers_a_known_power_law() -> None:
    rng = np.random.default_rng(1)
    T = np.array([1e3, 1e4, 1e5])
    noisy = 5.0 * T[:, None] ** 0.7 * rng.lognormal(0.0, 0.2, (3, 40))
    slope = slope_interval(T, noisy)
    assert slope.low < 0.7 < slope.high
    assert slope.high - slope.low < 0.1


def test_slope_is_exact_without_noise() -> None:
    T = np.array([10.0, 100.0, 1000.0])
    slope = slope_interval(T, np.repeat(2 * T[:, None] ** 0.75, 4, axis=1), resamples=10)
    np.testing.assert_allclose(slope, 0.75)


def test_differences_by_hand() -> None:
    there = np.array([103.0, 203.0, 603.0])
    gap = difference(there, there - 50)
    assert gap.value == pytest.approx(50)
    assert gap.low < 0 < gap.high
    sure = difference(np.arange(100.0) + 500, np.arange(100.0))
    assert sure.low > 480
    # Two runs of each tell next to nothing, whatever a bootstrap of them says: t of 1 to 2 degrees.
    few = difference(np.array([10.0, 12.0]), np.array([5.0, 8.0]))
    expected = scipy.stats.ttest_ind([10, 12], [5, 8], equal_var=False).confidence_interval()
    assert (few.low, few.high) == pytest.approx(tuple(expected))
    assert few.low < 0
    assert difference(np.full(3, 2.0), np.full(3, 1.0)) == (1.0, 1.0, 1.0)
    assert difference(np.array([3.0]), np.array([1.0])) == (2.0, -np.inf, np.inf)


def test_differences_of_pairs_by_hand() -> None:
    """Seeds that are far apart, and every one a little better: only pairs tell."""
    theirs, gaps = np.array([10.0, 200.0, 3000.0]), np.array([1.0, 2.0, 3.0])
    assert difference(theirs + gaps, theirs).low < 0
    told = paired_difference(theirs + gaps, theirs)
    half = scipy.stats.t.ppf(0.975, 2) * 1.0 / np.sqrt(3)
    assert told == pytest.approx((2.0, 2 - half, 2 + half))
    assert paired_difference(theirs + 4, theirs) == (4.0, 4.0, 4.0)
    assert paired_difference(theirs[:1], theirs[1:2]) == (-190.0, -np.inf, np.inf)


def test_pairs_that_are_nearly_equally_far_apart_are_no_reason_to_warn() -> None:
    gaps = np.array([1000.0, np.nextafter(1000.0, 2000.0), 1000.0])
    assert paired_difference(gaps, np.zeros(3)) == pytest.approx((1000.0, 1000.0, 1000.0))
