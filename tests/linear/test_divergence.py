"""A run that leaves the finite numbers says where and why, and keeps what it had."""

import numpy as np
import pytest

import windward as ww

Q, R, K = np.eye(2), np.eye(1), np.array([[0.42208244, 1.24392885]])
T = 300
W = ww.linear.disturbances.sinusoid(T, 2)


@pytest.fixture(scope="module")
def diverged(double_integrator):
    wild = ww.bandit_gpc(1, 2, h=2, eta=50.0, delta=0.1, projection=None)
    with pytest.raises(ww.linear.Diverged) as caught:
        ww.linear.simulate(double_integrator, wild, W, K=K, Q=Q, R=R, seed=[0, 1, 2], M_every=10)
    return caught.value


def test_the_message_names_algorithm_step_and_eta(diverged):
    first = diverged.run.diverged_at.min()
    assert 0 < first < T
    message = str(diverged)
    assert f"bandit_gpc diverged at step {first} of {T}" in message
    assert f"seed number {diverged.run.diverged_at.argmin()} first" in message
    assert "eta=50" in message
    assert "delta=0.1" in message
    assert "smaller eta" in message
    assert isinstance(diverged, RuntimeError)


def test_the_finite_part_is_kept(diverged):
    run, first = diverged.run, diverged.run.diverged_at.min()
    assert run.cost.shape == (3, first)
    assert run.x.shape == (3, first, 2)
    assert run.u.shape == (3, first, 1)
    assert run.w_hat.shape == run.w.shape == (3, first, 2)
    for part in (run.x, run.u, run.cost, run.w_hat, run.w, run.M, run.M_history):
        assert np.isfinite(part).all()
    assert run.cost.max() > 1e6  # it was on its way


def test_a_single_run_diverges_too(double_integrator):
    wild = ww.bandit_gpc(1, 2, h=2, eta=50.0, delta=0.1, projection=None)
    with pytest.raises(ww.linear.Diverged, match="diverged at step") as caught:
        ww.linear.simulate(double_integrator, wild, W, K=K, Q=Q, R=R, keep=())
    assert caught.value.run.cost.ndim == 1
    assert caught.value.run.x is None
    assert "seed number" not in str(caught.value)


def test_a_grid_goes_on(double_integrator):
    """Points that diverge are marked; the others are as they would be alone."""
    eta = np.array([1e-5, 50.0, 1e-4])
    grid = ww.bandit_gpc(1, 2, h=2, eta=eta, delta=0.1, projection=None)
    run = ww.linear.simulate(double_integrator, grid, W, K=K, Q=Q, R=R, seed=[0, 1])
    assert run.diverged_at.shape == (3, 2)
    np.testing.assert_array_equal(run.diverged_at[[0, 2]], T)
    assert (run.diverged_at[1] < T).all()
    for seed in (0, 1):
        at = run.diverged_at[1, seed]
        assert np.isfinite(run.cost[1, seed, :at]).all()
        assert not np.isfinite(run.cost[1, seed, at:]).any()
    assert np.isfinite(run.cost[[0, 2]]).all()
    assert np.isfinite(run.M).all()


def test_a_projection_keeps_the_same_eta_finite(double_integrator):
    held = ww.bandit_gpc(1, 2, h=2, eta=50.0, delta=0.1, projection=ww.frobenius_ball(2.0))
    run = ww.linear.simulate(double_integrator, held, W, K=K, Q=Q, R=R, seed=[0, 1, 2])
    np.testing.assert_array_equal(run.diverged_at, T)
    assert (np.sqrt((run.M**2).sum((1, 2, 3))) <= 2.0 * (1 + 1e-6)).all()
