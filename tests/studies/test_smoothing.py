"""Smoothing, grid, mean and interquartile mean: numbers by hand, and what must not matter."""

import numpy as np
import pytest
import scipy.stats

from windward.studies import stats as smoothing


def test_smoothing_by_hand() -> None:
    x, y = np.array([0.0, 1.0, 3.0]), np.array([2.0, 4.0, 8.0])
    d1, d2 = np.exp(-1.0), np.exp(-2.0)  # 0.1 of a domain of 10 is 1
    second = d1 * 2 + (1 - d1) * 4
    expected = [2.0, second, d2 * second + (1 - d2) * 8]
    np.testing.assert_allclose(smoothing.smooth(x, y, 10.0), expected)


def test_neither_units_nor_density_matter() -> None:
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.uniform(0.1, 1.0, 40))
    y = rng.normal(size=40)
    plain = smoothing.smooth(x, y, 20.0)
    np.testing.assert_allclose(smoothing.smooth(1e6 * x, y, 20e6), plain)
    # A look between two, at the value that holds until the later one, changes nothing elsewhere.
    between = np.insert(x, 17, (x[16] + x[17]) / 2)
    np.testing.assert_allclose(
        np.delete(smoothing.smooth(between, np.insert(y, 17, y[17]), 20.0), 17), plain
    )


def test_no_smoothing_and_a_constant_stay_as_they_are() -> None:
    x, y = np.arange(5.0), np.array([3.0, -1.0, 2.0, 0.0, 5.0])
    np.testing.assert_array_equal(smoothing.smooth(x, y, 4.0, smoothing=0.0), y)
    np.testing.assert_allclose(smoothing.smooth(x, np.full(5, 7.0), 4.0), 7.0)


@pytest.mark.parametrize(("x", "domain"), [([0.0, 0.0], 1.0), ([1.0, 0.0], 1.0), ([0.0, 1.0], 0.0)])
def test_what_cannot_be_smoothed_is_refused(x: list[float], domain: float) -> None:
    with pytest.raises(ValueError, match="must"):
        smoothing.smooth(np.array(x), np.zeros(2), domain)


def test_smoothing_comes_before_the_grid_and_the_mean_after() -> None:
    """The order of the appendix: with another one the numbers would differ."""
    runs = [
        (np.array([10.0, 20.0, 40.0]), np.array([0.0, 10.0, 20.0])),
        (np.array([10.0, 25.0, 40.0]), np.array([4.0, 4.0, 40.0])),
    ]
    grid, rows = smoothing.on_grid(runs, domain=50.0, points=31)
    np.testing.assert_allclose(grid, np.arange(10.0, 41.0))
    for (x, y), row in zip(runs, rows, strict=True):
        smoothed = smoothing.smooth(x, y, 50.0)
        np.testing.assert_allclose(row[[0, 30]], smoothed[[0, 2]])
        middle = int(x[1]) - 10
        half = (10 + middle + 40) // 2 - 10  # in a linear piece
        assert row[middle] == pytest.approx(smoothed[1])
        part = (half - middle) / (30 - middle)
        assert row[half] == pytest.approx((1 - part) * smoothed[1] + part * smoothed[2])
    band = smoothing.mean_band(grid, rows)
    np.testing.assert_allclose(band.y, rows.mean(axis=0))
    error = rows.std(axis=0, ddof=1) / np.sqrt(2)
    np.testing.assert_allclose(band.high - band.y, error)
    np.testing.assert_allclose(band.y - band.low, error)


def test_a_run_that_is_shorter_counts_as_far_as_it_is() -> None:
    runs = [(np.array([0.0, 10.0]), np.zeros(2)), (np.array([0.0, 4.0]), np.full(2, 6.0))]
    grid, rows = smoothing.on_grid(runs, 10.0, points=11)
    for band in (smoothing.mean_band(grid, rows), smoothing.interquartile_band(grid, rows)):
        np.testing.assert_array_equal(band.runs, [2] * 5 + [1] * 6)
        np.testing.assert_allclose(band.y, [3.0] * 5 + [0.0] * 6)
        assert (band.high[:5] > 3.0).all()
        np.testing.assert_allclose(band.low[5:], 0.0)


def test_the_interquartile_mean_is_scipys_where_quarters_are_whole() -> None:
    values = np.random.default_rng(1).normal(size=(8, 3)) ** 3
    expected = scipy.stats.trim_mean(values, 0.25, axis=0)
    np.testing.assert_allclose(smoothing.interquartile_mean(values), expected)
    assert smoothing.interquartile_mean(np.array([5.0])) == 5.0


def test_the_interquartile_band_covers_and_an_outlier_does_not_move_it() -> None:
    rng = np.random.default_rng(2)
    grid = np.arange(200.0)
    rows = rng.normal(size=(25, 200))  # the truth is 0 everywhere
    band = smoothing.interquartile_band(grid, rows)
    inside = ((band.low <= 0) & (band.high >= 0)).mean()
    assert 0.85 < inside < 1.0
    rows[3] = 1e6
    moved = smoothing.interquartile_band(grid, rows)
    assert np.abs(moved.y).max() < 2.0
