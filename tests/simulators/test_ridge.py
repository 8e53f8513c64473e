"""Robust ridge regression against closed forms, and what blocks held out say of it."""

import numpy as np
import pytest

from windward.simulators.ridge import BLOCK, explained, huber_loss, robust_ridge, usual_size


def data(n: int = 400, noise: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3)) * [1.0, 10.0, 0.1]
    W = np.array([[1.0, 0.0], [0.2, 0.0], [-3.0, 0.0]])
    return z, z @ W + noise * rng.normal(size=(n, 2))


def test_it_is_least_squares_where_there_is_no_noise() -> None:
    z, y = data(noise=0.0)
    np.testing.assert_allclose(
        robust_ridge(z, y, 1e-9)[:, 0], np.linalg.lstsq(z, y[:, 0], rcond=None)[0], rtol=1e-6
    )
    np.testing.assert_array_equal(robust_ridge(z, y, 1.0)[:, 1], 0.0)


def test_the_prior_counts_as_steps_that_say_nothing() -> None:
    """With features of unit size, orthogonal, and no outliers: shrunk by n / (n + ridge)."""
    z = np.tile([[1.0], [-1.0]], (50, 1))
    y = 2.0 * z
    found = robust_ridge(z, y, 25.0)
    assert found[0, 0] == pytest.approx(2.0 * 100 / 125, rel=1e-3)


def test_outliers_do_not_bend_it() -> None:
    z, y = data(noise=0.05)
    spoilt = y.copy()
    spoilt[::12] += 50.0
    clean, robust = robust_ridge(z, y, 1.0), robust_ridge(z, spoilt, 1.0)
    plain = np.linalg.lstsq(z, spoilt, rcond=None)[0]
    size = np.array([1.0, 10.0, 0.1])[:, None]
    assert np.abs((robust - clean) * size).max() < 0.1
    assert np.abs((plain - clean) * size).max() > 0.5


def test_it_explains_what_there_is_and_nothing_of_noise() -> None:
    z, y = data(600)
    told = explained(z, y, 10.0)
    assert told.share[0] > 0.9
    assert told.sure[0] > 10
    assert told.share[1] < 0.01
    rng = np.random.default_rng(1)
    blank = [explained(z, rng.normal(size=(600, 2)), 100.0) for _ in range(20)]
    assert max(each.joint_sure for each in blank) < 3
    assert np.mean([each.joint for each in blank]) < 0
    few = explained(z[:BLOCK], y[:BLOCK], 10.0)
    np.testing.assert_array_equal(few.share, 0.0)


def test_sizes_and_losses() -> None:
    rng = np.random.default_rng(0)
    y = np.stack([3 * rng.normal(size=5000), np.zeros(5000)], axis=1)
    np.testing.assert_allclose(usual_size(y), [3.0, 1.0], rtol=0.05)
    np.testing.assert_allclose(huber_loss(np.array([0.0, 1.0, -3.0])), [0.0, 0.5, 4.5 - 1.125])
