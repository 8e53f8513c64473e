"""Disturbance sequences: shapes, bounds, one number or one for each coordinate, seeds."""

import numpy as np
import pytest

from windward.linear import disturbances

MAKERS = {
    "zero": disturbances.zero,
    "sinusoid": disturbances.sinusoid,
    "gaussian": disturbances.gaussian,
    "uniform": disturbances.uniform,
    "random_walk": disturbances.random_walk,
    "step": disturbances.step,
}
RANDOM = ("gaussian", "uniform", "random_walk")


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(("T", "d_x"), [(1, 1), (50, 3)])
def test_shape_and_type(name, T, d_x):
    w = MAKERS[name](T, d_x)
    assert w.shape == (T, d_x)
    assert w.dtype == np.float64
    assert np.isfinite(w).all()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    ("T", "d_x", "message"),
    [
        (0, 2, "T must be an integer of at least 1; got 0"),
        (2.5, 2, "T must be an integer"),
        (5, 0, "d_x must be an integer of at least 1; got 0"),
    ],
)
def test_bad_sizes(name, T, d_x, message):
    with pytest.raises(ValueError, match=message):
        MAKERS[name](T, d_x)


def test_zero():
    np.testing.assert_array_equal(disturbances.zero(4, 2), np.zeros((4, 2)))


def test_sinusoid_of_gpc():
    """sin(t/2π) on all coordinates unless told otherwise."""
    w = disturbances.sinusoid(30, 2)
    expected = np.sin(np.arange(30) / (2 * np.pi))
    np.testing.assert_allclose(w, np.stack([expected, expected], axis=1), atol=1e-12)


def test_sinusoid_for_each_coordinate():
    w = disturbances.sinusoid(
        9, 3, amplitude=[1.0, 2.0, 0.5], period=[4, 8, 4], phase=[0, 0, np.pi]
    )
    np.testing.assert_allclose(w[:5, 0], [0, 1, 0, -1, 0], atol=1e-12)
    np.testing.assert_allclose(w[::2, 1], [0, 2, 0, -2, 0], atol=1e-12)
    np.testing.assert_allclose(w[:5, 2], [0, -0.5, 0, 0.5, 0], atol=1e-12)


def test_step():
    np.testing.assert_array_equal(
        disturbances.step(4, 2, size=[1.0, -3.0], at=2), [[0, 0], [0, 0], [1, -3], [1, -3]]
    )
    np.testing.assert_array_equal(disturbances.step(2, 1), [[1], [1]])


def test_gaussian_scale():
    w = disturbances.gaussian(100_000, 2, scale=[1.0, 3.0])
    np.testing.assert_allclose(w.std(0), [1, 3], rtol=0.02)
    np.testing.assert_allclose(w.mean(0), 0, atol=0.05)
    assert abs(np.corrcoef(w.T)[0, 1]) < 0.02
    assert abs(np.corrcoef(w[1:, 0], w[:-1, 0])[0, 1]) < 0.02


def test_uniform_bound():
    w = disturbances.uniform(100_000, 2, bound=[1.0, 0.1])
    assert (np.abs(w) <= [1.0, 0.1]).all()
    np.testing.assert_allclose(np.abs(w).max(0), [1.0, 0.1], rtol=1e-3)
    np.testing.assert_allclose(w.std(0), np.array([1.0, 0.1]) / np.sqrt(3), rtol=0.02)


def test_random_walk_is_bounded_and_walks():
    w = disturbances.random_walk(20_000, 2, scale=[0.05, 0.2], bound=[1.0, 0.5])
    assert (np.abs(w) <= [1.0, 0.5]).all()
    assert (np.abs(w).max(0) > [0.95, 0.49]).all()  # it reaches its borders
    steps = np.diff(w, axis=0)
    np.testing.assert_allclose(np.median(np.abs(steps[:, 0])) / 0.6745, 0.05, rtol=0.05)
    assert np.corrcoef(w[1:, 0], w[:-1, 0])[0, 1] > 0.98


def test_random_walk_reflects():
    """Far from the border it is the plain sum of its steps; at the border it turns back."""
    steps = disturbances.gaussian(200, 1, scale=0.1, seed=4)
    free = disturbances.random_walk(200, 1, scale=0.1, bound=1e6, seed=4)
    np.testing.assert_allclose(free, np.cumsum(steps, axis=0), atol=1e-8)
    walk = disturbances.random_walk(200, 1, scale=0.1, bound=0.3, seed=4)
    assert (np.abs(np.diff(walk, axis=0)) <= np.abs(steps[1:]) + 1e-12).all()


@pytest.mark.parametrize("name", RANDOM)
def test_seeds(name):
    make = MAKERS[name]
    np.random.seed(0)  # noqa: NPY002
    first = make(20, 2, seed=5)
    np.random.seed(1)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    np.testing.assert_array_equal(make(20, 2, seed=5), first)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    assert np.abs(make(20, 2, seed=6) - first).max() > 1e-3
    assert np.abs(first[:, 0] - first[:, 1]).max() > 1e-3  # coordinates differ


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: disturbances.sinusoid(5, 2, amplitude=[1, 2, 3]),
            r"amplitude must have shape \(2,\)",
        ),
        (lambda: disturbances.sinusoid(5, 2, period=0), "period must be greater than 0"),
        (lambda: disturbances.sinusoid(5, 2, phase=np.nan), "phase must be finite"),
        (lambda: disturbances.gaussian(5, 2, scale="loud"), "scale must be an array of numbers"),
        (lambda: disturbances.random_walk(5, 2, bound=-1), "bound must be greater than 0"),
        (lambda: disturbances.step(5, 2, at=-1), "at must be an integer of at least 0"),
        (lambda: disturbances.adversarial(0), "T must be an integer of at least 1"),
        (lambda: disturbances.adversarial(5, bound=0.0), "bound must be greater than 0"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
