"""Intervals: against normal theory, and slopes against a known power law."""

import numpy as np

from windward.studies.statistics import mean_interval, slope_interval


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
