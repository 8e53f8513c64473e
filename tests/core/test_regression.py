"""Regressions learned while running: against least squares, and with singular input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from windward.core import regression

from .drive import on_host

fit_step = jax.jit(regression.fit_step)
fit_init = jax.jit(regression.fit_init, static_argnums=(0, 1))


def fitted(X, Y, prior=1.0, forget=0.0):
    """The fit after all rows of X, one after another."""

    def step(fit, row):
        return regression.fit_step(fit, *row, jnp.ones(X.shape[1]), prior, forget), None

    def run(X, Y):
        return jax.lax.scan(step, regression.fit_init(X.shape[1], Y.shape[1], prior), (X, Y))[0]

    return on_host(jax.jit(run)(np.float32(X), np.float32(Y)))


def test_first_step_by_hand():
    # P = 2I, f = (1, 2): Pf = (2, 4), 1 + fᵀPf = 11; θ = 3·(2, 4)/11, P = 2I - (2, 4)(2, 4)ᵀ/11.
    fit = fit_step(fit_init(2, 1, 2.0), np.array([1.0, 2.0]), np.array([3.0]), np.ones(2), 9.0, 0)
    np.testing.assert_allclose(fit.theta, [[6 / 11, 12 / 11]], rtol=1e-6)
    np.testing.assert_allclose(fit.P, [[2 - 4 / 11, -8 / 11], [-8 / 11, 2 - 16 / 11]], rtol=1e-5)


def test_equals_ridge_regression():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(200, 5)), rng.normal(size=(200, 2))
    fit = fitted(X, Y, prior=0.5)
    ridge = np.linalg.solve(X.T @ X + 2 * np.eye(5), X.T @ Y).T
    np.testing.assert_allclose(fit.theta, ridge, atol=1e-5)


def test_recovers_a_linear_function():
    rng = np.random.default_rng(1)
    X, theta = rng.normal(size=(400, 4)), np.array([[1.0, -2.0, 0.5, 3.0]])
    np.testing.assert_allclose(
        fitted(X, X @ theta.T, prior=100.0, forget=1e-6).theta, theta, atol=1e-3
    )


def test_a_changed_unit_changes_no_prediction():
    rng = np.random.default_rng(2)
    fit = fitted(rng.normal(size=(50, 3)), rng.normal(size=(50, 1)), prior=1.0)
    f, grown = np.array([0.3, -1.0, 2.0]), np.array([2.0, 0.5, 1.0])
    # The same numbers in other units: smaller by `grown`.
    same = fit_step(fit, f, np.array([1.0]), np.ones(3), 1e6, 0.0)
    other = fit_step(fit, f / grown, np.array([1.0]), grown, 1e6, 0.0)
    np.testing.assert_allclose(other.theta / grown, same.theta, rtol=1e-5)
    np.testing.assert_allclose(other.P / (grown[:, None] * grown), same.P, rtol=1e-4, atol=1e-7)


def learned(X, Y, every, rescale=None, forget=0.0):
    """θ after all rows of X by a fitter, and the state behind it."""
    fitter = regression.fitter(X.shape[1], Y.shape[1], 0.5, forget, every)
    rescale = np.ones_like(X) if rescale is None else rescale

    def run(X, Y, rescale):
        def step(state, row):
            return fitter.step(state, *row), None

        return jax.lax.scan(step, fitter.init(), (X, Y, rescale))[0]

    state = jax.jit(run)(X, Y, rescale)
    return np.asarray(fitter.theta(state)), on_host(state)


@pytest.mark.usefixtures("x64")
def test_steps_that_were_kept_teach_what_they_would_have_taught_at_once():
    rng = np.random.default_rng(4)
    X, Y = rng.normal(size=(24, 5)), rng.normal(size=(24, 2))
    once, fit = learned(X, Y, 1)
    later, waited = learned(X, Y, 4)
    np.testing.assert_allclose(later, once, atol=1e-12)
    np.testing.assert_allclose(waited.fit.P, fit.P, atol=1e-12)
    assert waited.seen == 0
    # Two more steps wait, and change nothing yet.
    behind, waited = learned(np.vstack([X, X[:2]]), np.vstack([Y, Y[:2]]), 4)
    np.testing.assert_array_equal(behind, later)
    assert waited.seen == 2


@pytest.mark.usefixtures("x64")
def test_units_may_change_while_steps_wait():
    rng = np.random.default_rng(5)
    X, Y = rng.normal(size=(12, 3)), rng.normal(size=(12, 1))
    grown = rng.uniform(0.8, 1.0, size=X.shape)  # smaller units: no variance meets the prior
    units = np.cumprod(grown, axis=0)
    same, fit = learned(X, Y, 1)
    later, waited = learned(X / units, Y, 4, grown)
    np.testing.assert_allclose(later / units[-1], same, atol=1e-12)
    scale = units[-1][:, None] * units[-1]
    np.testing.assert_allclose(waited.fit.P / scale, fit.P, atol=1e-12)
    behind, _ = learned(X[:11] / units[:11], Y[:11], 4, grown[:11])  # three wait
    np.testing.assert_allclose(behind / units[10], learned(X[:8], Y[:8], 1)[0], atol=1e-12)


def test_a_kept_step_that_is_not_finite_is_left_out():
    rng = np.random.default_rng(6)
    X, Y = rng.normal(size=(8, 3)), rng.normal(size=(8, 1))
    good, bad = np.float32(X), np.float32(X)
    bad[2], good[2] = np.inf, 0.0
    expected, _ = learned(good, np.float32(Y) * (np.arange(8) != 2)[:, None].astype(np.float32), 4)
    found, _ = learned(bad, np.float32(Y), 4)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found.any()


def test_constant_input_leaves_everything_finite_and_bounded():
    X = np.tile([1.0, 2.0, 0.0], (20_000, 1))
    fit = fitted(X, np.ones((20_000, 1)), prior=1.0, forget=1e-5)
    assert np.isfinite(fit.P).all()
    assert np.isfinite(fit.theta).all()
    assert np.diagonal(fit.P).max() <= 1 + 1e-4
    np.testing.assert_allclose(fit.theta @ X[0], 1.0, atol=1e-4)


def test_non_finite_steps_change_nothing():
    fit = fit_init(2, 1, 1.0)
    for f, y in (([np.nan, 1.0], 1.0), ([1.0, 1.0], np.inf)):
        after = fit_step(fit, np.array(f), np.array([y]), np.ones(2), 1.0)
        np.testing.assert_array_equal(after.theta, fit.theta)
        np.testing.assert_array_equal(after.P, fit.P)
    huge = fit_step(fit, np.full(2, 1e30), np.array([1.0]), np.ones(2), 1.0)
    assert np.isfinite(huge.P).all()
    assert np.isfinite(huge.theta).all()


def test_quadratic_features_and_matrix_agree():
    rng = np.random.default_rng(3)
    z = rng.normal(size=4)
    full = regression.quadratic(4)
    assert full.n == 10
    allowed = np.ones((4, 4), bool)
    allowed[1, 3] = False
    some = regression.quadratic(4, allowed.tobytes())
    assert some.n == 9
    for products in (full, some):
        theta = rng.normal(size=products.n)
        Theta = np.asarray(jax.jit(products.matrix)(theta))
        np.testing.assert_allclose(Theta, Theta.T)
        np.testing.assert_allclose(
            z @ Theta @ z, theta @ np.asarray(jax.jit(products.features)(z)), rtol=1e-5
        )
    assert np.asarray(jax.jit(some.matrix)(np.ones(9)))[3, 1] == 0


def test_sizes_are_mean_squares_and_a_zero_entry_is_not_blown_up():
    sizes, sizes_step = regression.sizes_init(2), jax.jit(regression.sizes_step)
    for value in (3.0, 4.0):
        sizes, rms, grown = sizes_step(sizes, np.array([value, 0.0]))
    np.testing.assert_allclose(rms[0], np.sqrt(12.5), rtol=1e-6)
    np.testing.assert_allclose(grown[0], np.sqrt(12.5) / 3, rtol=1e-6)
    assert rms[1] >= 1e-4 * rms[0] * 0.99


def test_a_value_too_large_to_square_changes_no_size_and_no_component():
    sizes = regression.Sizes(jnp.array([4.0, 9.0]), jnp.array(3.0))
    after, rms, _ = jax.jit(regression.sizes_step)(sizes, np.float32([1e30, 1.0]))
    assert after.square[0] == 4
    assert np.isfinite(rms).all()
    spectrum = regression.spectrum_init(4, 2)
    after, _ = jax.jit(regression.spectrum_step)(spectrum, np.full(4, 1e30, np.float32))
    np.testing.assert_array_equal(after.V, spectrum.V)
    assert after.size == 0


def test_components_of_a_sinusoid_hold_all_of_its_window():
    t = np.arange(1500)
    windows = np.stack([np.sin(0.2 * (t - i) + p) for i in range(4) for p in (0.0, 1.0)], 1)

    def step(spectrum, window):
        spectrum, y = regression.spectrum_step(spectrum, window)
        return spectrum, jnp.sum(window**2) - jnp.sum(y**2)

    def run(windows):
        return jax.lax.scan(step, regression.spectrum_init(8, 2), windows)

    spectrum, left = on_host(jax.jit(run)(np.float32(windows)))
    assert np.abs(left[-100:]).max() < 0.05 * (windows**2).sum(1).max()
    np.testing.assert_allclose(spectrum.V.T @ spectrum.V, np.eye(2), atol=1e-4)


def test_components_of_zeros_stay_finite():
    one = jax.jit(lambda window: regression.spectrum_step(regression.spectrum_init(6, 3), window))
    spectrum, y = one(np.zeros(6))
    assert np.isfinite(spectrum.V).all()
    assert (np.asarray(y) == 0).all()
