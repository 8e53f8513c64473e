"""lem:pd1, lem:pd2 and lem:pd3: what the signals of `simulate` say of the true disturbance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import windward as ww
from windward.core.signals import pd1_exact

from . import reference

Q = np.array([[1.0, 0.2, 0.0], [0.2, 2.0, 0.0], [0.0, 0.0, 0.5]])
R = np.array([[0.7, 0.1], [0.1, 0.4]])
GAMMA = 0.95


# PD1: E[ŵ_t | x_t] = 2γBᵀP w_t, for both boxed estimators.


@pytest.fixture(scope="module")
def pd1_runs(plant, plant_K):
    """Long runs of both estimators with M = 0; given x_t, each step is a draw of its own."""
    w = ww.linear.disturbances.sinusoid(100_000, 3, amplitude=0.1, period=[20, 33, 47])
    with jax.enable_x64(True):
        return w, {
            signal: ww.linear.simulate(
                plant,
                ww.mf_gpc(2, 2, h=1, eta=0.0, sigma=0.5, signal=signal, gamma=GAMMA),
                w, K=plant_K, Q=Q, R=R, keep=("x", "u", "w_hat"), seed=3,
            )
            for signal in ("pd1", "pd1-value")
        }  # fmt: skip


@pytest.fixture(scope="module")
def pd1_map(plant, plant_K):
    """T = 2γBᵀP, P by summation."""
    A_K = plant.A - plant.B @ plant_K
    P = reference.discounted(A_K, Q + plant_K.T @ R @ plant_K, GAMMA)
    return P, 2 * GAMMA * plant.B.T @ P


@pytest.mark.usefixtures("x64")
def test_pd1_exact_form_is_linear_in_w(plant, pd1_runs, pd1_map):
    """∇_u of γV(f(x, u) + w) - (Q(x, u) - c(x, u)) by autodiff, along a run."""
    P, T = pd1_map
    w, runs = pd1_runs
    x, u = runs["pd1"].x[:200], runs["pd1"].u[:200]

    def value(x):
        return x @ P @ x

    def exact(x, u, w):
        grad_v = jax.grad(lambda u: value(plant.A @ x + plant.B @ u + w))(u)
        grad_q_minus_c = jax.grad(lambda u: GAMMA * value(plant.A @ x + plant.B @ u))(u)
        return pd1_exact(grad_v, grad_q_minus_c, GAMMA)

    got = jax.jit(jax.vmap(exact))(x, u, w[:200])
    np.testing.assert_allclose(got, w[:200] @ T.T, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("signal", ["pd1", "pd1-value"])
def test_pd1_estimators_are_unbiased(pd1_runs, pd1_map, signal):
    """Regressed on w_t, ŵ_t gives T within five standard errors, and neither T/2 nor x_t shows."""
    _, T = pd1_map
    w, runs = pd1_runs
    w_hat, x = runs[signal].w_hat, runs[signal].x
    noise = w_hat - w @ T.T
    inverse = np.linalg.inv(w.T @ w)
    error = noise.T @ w @ inverse  # least squares estimate of T, minus T
    meat = np.einsum("ti,tj,tk->kij", w, w, noise**2)
    standard = np.sqrt(np.stack([np.diag(inverse @ m @ inverse) for m in meat]))
    assert (np.abs(error) < 5 * standard).all()
    # The paper's T lacks the factor 2 (deviation 1): it would be off by many standard errors.
    assert (np.abs(T / 2) / standard).max() > 10
    # Given x_t as well: the noise is not explained by the state.
    products = noise[:, :, None] * x[:, None, :]
    assert (np.abs(products.mean(0)) < 5 * products.std(0) / np.sqrt(len(x))).all()


def test_pd1_of_the_td_error_varies_much_less(pd1_runs, pd1_map):
    """The paper expects the second estimator to vary less; here by a factor of tens."""
    _, T = pd1_map
    w, runs = pd1_runs
    variance = {name: (run.w_hat - w @ T.T).var(0) for name, run in runs.items()}
    print(f"PD1 variances: TD form {variance['pd1']}, value form {variance['pd1-value']}")
    assert (variance["pd1-value"] > 10 * variance["pd1"]).all()


# PD2: ŵ_t = γL(I - γA_π)⁻¹ w_t, exactly.

LS = {
    "square": np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -1.0], [2.0, 0.0, 1.0]]),
    "tall": np.vstack([np.eye(3), np.ones((2, 3))]),
    "wide": np.array([[1.0, 2.0, 0.0], [0.0, -1.0, 3.0]]),
    "rank one": np.ones((3, 3)),
}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", LS)
def test_pd2_is_a_fixed_map_of_w(plant, plant_K, name):
    """Whatever M, the noise and the state do."""
    L = LS[name]
    w = np.random.default_rng(0).normal(size=(60, 3))
    run = ww.linear.simulate(
        plant,
        ww.bandit_gpc(2, len(L), h=2, eta=1e-5, delta=0.5, signal="pd2", gamma=GAMMA),
        w, K=plant_K, Q=Q, R=R, L=L, x0=[1.0, -2.0, 0.5],
    )  # fmt: skip
    A_K = plant.A - plant.B @ plant_K
    T = GAMMA * L @ np.linalg.inv(np.eye(3) - GAMMA * A_K)
    np.testing.assert_allclose(run.w_hat, w @ T.T, rtol=1e-9, atol=1e-9)
    assert np.abs(run.M).max() > 1e-4  # M did move
    assert np.linalg.matrix_rank(T) == np.linalg.matrix_rank(L)


@pytest.mark.usefixtures("x64")
def test_pd2_uses_the_identity_unless_told(plant, plant_K):
    w = np.random.default_rng(0).normal(size=(60, 3))
    algorithm = ww.bandit_gpc(2, 3, h=2, eta=1e-5, delta=0.5, signal="pd2", gamma=GAMMA)
    settings = {"K": plant_K, "Q": Q, "R": R}
    default = ww.linear.simulate(plant, algorithm, w, **settings)
    told = ww.linear.simulate(plant, algorithm, w, L=np.eye(3), **settings)
    np.testing.assert_array_equal(default.w_hat, told.w_hat)


# PD3: ŵ_t = w_t with the true simulator, and as wrong as the simulator otherwise.


@pytest.fixture(scope="module")
def varying(plant):
    wave = np.sin(np.arange(60))[:, None, None]
    return ww.linear.System(plant.A + 0.1 * wave, plant.B * (1 + 0.1 * wave))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("time_varying", [False, True])
@pytest.mark.parametrize("wrong", [False, True])
def test_pd3_is_as_good_as_its_simulator(plant, plant_K, varying, time_varying, wrong):
    system = varying if time_varying else plant
    w = np.random.default_rng(0).normal(size=(60, 3))
    simulator = ww.linear.System(plant.A + 0.02, 0.95 * plant.B) if wrong else None
    run = ww.linear.simulate(
        system, ww.bandit_gpc(2, 3, h=2, eta=1e-5, delta=0.5, signal="pd3"), w,
        K=plant_K, Q=Q, R=R, simulator=simulator,
    )  # fmt: skip
    if not wrong:
        np.testing.assert_allclose(run.w_hat, w, rtol=1e-9, atol=1e-9)
        return
    A, B = np.broadcast_to(system.A, (60, 3, 3)), np.broadcast_to(system.B, (60, 3, 2))
    miss = np.einsum("tij,tj->ti", A - simulator.A, run.x)
    miss += np.einsum("tij,tj->ti", B - simulator.B, run.u)
    np.testing.assert_allclose(run.w_hat - w, miss, rtol=1e-9, atol=1e-9)
    largest = np.linalg.norm(np.concatenate([run.x, run.u], axis=1), axis=1).max()
    gap = max(np.linalg.norm(np.hstack([A[t] - simulator.A, B[t] - simulator.B]), 2)
              for t in range(60))  # fmt: skip
    errors = np.linalg.norm(run.w_hat - w, axis=1)
    assert (errors <= gap * largest).all()  # ‖f_sim - f‖ ≤ δ gives ‖ŵ - w‖ ≤ δ
    assert errors.max() > 1e-3


@pytest.mark.usefixtures("x64")
def test_pd3_with_a_simulator_that_varies_in_time(plant, plant_K, varying):
    """A simulator may vary where the system does not."""
    w = np.random.default_rng(0).normal(size=(60, 3))
    run = ww.linear.simulate(
        plant, ww.bandit_gpc(2, 3, h=2, eta=1e-5, delta=0.5, signal="pd3"), w,
        K=plant_K, Q=Q, R=R, simulator=varying,
    )  # fmt: skip
    predicted = np.einsum("tij,tj->ti", varying.A, run.x)
    predicted += np.einsum("tij,tj->ti", varying.B, run.u)
    reached = run.x @ plant.A.T + run.u @ plant.B.T + w
    np.testing.assert_allclose(run.w_hat, reached - predicted, rtol=1e-8, atol=1e-9)


# What has no values must say so.


@pytest.mark.parametrize("signal", ["pd1", "pd1-value", "pd2"])
def test_values_need_a_constant_system(plant_K, varying, signal):
    d_w = 3 if signal == "pd2" else 2
    algorithm = ww.mf_gpc(2, d_w, signal=signal)
    with pytest.raises(ValueError, match=f"signal '{signal}' needs value functions.*'pd3' and 'w'"):
        ww.linear.simulate(varying, algorithm, np.zeros((60, 3)), K=plant_K, Q=Q, R=R)


@pytest.mark.parametrize("signal", ["pd1", "pd1-value"])
def test_pd1_needs_quadratic_costs(plant, plant_K, signal):
    with pytest.raises(ValueError, match=f"signal '{signal}' needs quadratic values.*not cost="):
        ww.linear.simulate(
            plant, ww.mf_gpc(2, 2, signal=signal), np.zeros((5, 3)), K=plant_K,
            cost=lambda x, u: jnp.sum(jnp.abs(x)),
        )  # fmt: skip


def test_a_signal_of_ones_own_is_told_what_there_is(plant, plant_K):
    odd = ww.Signal("odd", ("lidar",), lambda tr, score, gamma: tr.aux["lidar"])
    with pytest.raises(ValueError, match=r"signal 'odd' needs \['lidar'\].*it can give.*x_pred"):
        ww.linear.simulate(
            plant, ww.mf_gpc(2, 3, signal=odd), np.zeros((5, 3)), K=plant_K, Q=Q, R=R
        )


@pytest.mark.usefixtures("x64")
def test_a_signal_of_ones_own_runs(plant, plant_K):
    """Half the true disturbance, from the aux value `w`."""
    half = ww.Signal("half", ("w",), lambda tr, score, gamma: tr.aux["w"] / 2)
    w = np.random.default_rng(0).normal(size=(20, 3))
    run = ww.linear.simulate(plant, ww.mf_gpc(2, 3, signal=half), w, K=plant_K, Q=Q, R=R)
    np.testing.assert_array_equal(run.w_hat, w / 2)
