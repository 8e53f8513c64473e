"""`simulate` equals a plain NumPy loop of each algorithm, step by step, on the same draws."""

import jax.numpy as jnp
import numpy as np
import pytest

import windward as ww

from . import reference

pytestmark = pytest.mark.usefixtures("x64")

T, H, SEED = 40, 3, 7
Q = np.array([[1.0, 0.2, 0.0], [0.2, 2.0, 0.0], [0.0, 0.0, 0.5]])
R = np.array([[0.7, 0.1], [0.1, 0.4]])
RNG = np.random.default_rng(0)
W = RNG.normal(size=(T, 3))
X0 = np.array([0.5, -1.0, 0.3])
M0 = 0.1 * RNG.normal(size=(H, 2, 3))
TIGHT = {"rtol": 1e-9, "atol": 1e-10}


def simulate(system, algorithm, K, **settings):
    settings = {"Q": Q, "R": R, "x0": X0, "seed": SEED, "M_every": 1, **settings}
    return ww.linear.simulate(system, algorithm, W, K=K, **settings)


def assert_same(run, trace):
    for name in ("x", "u", "cost", "w_hat"):
        np.testing.assert_allclose(getattr(run, name), getattr(trace, name), **TIGHT, err_msg=name)
    np.testing.assert_allclose(run.M_history, trace.M[:-1], **TIGHT)
    np.testing.assert_allclose(run.M, trace.M[-1], **TIGHT)
    assert run.diverged_at == T
    assert np.abs(trace.M[-1] - trace.M[0]).max() > 1e-3  # it learned: the test is not vacuous


def varying(plant):
    """A and B that change in time, near `plant`."""
    angle = np.linspace(0, 2 * np.pi, T)[:, None, None]
    return ww.linear.System(
        plant.A + 0.1 * np.sin(angle) * np.ones((3, 3)), plant.B * (1 + 0.2 * np.cos(angle))
    )


def test_bandit_gpc(plant, plant_K):
    algorithm = ww.bandit_gpc(2, 3, h=H, eta=1e-3, delta=0.3, M0=M0)
    trace = reference.bandit_gpc(
        plant.A, plant.B, plant_K, reference.quadratic(Q, R), W,
        reference.draws(algorithm, SEED, T),
        M0=M0, eta=1e-3, delta=0.3, project=lambda M: reference.to_ball(M, 10.0), x0=X0,
    )  # fmt: skip
    assert_same(simulate(plant, algorithm, plant_K), trace)


def test_first_gradient_moves_m_after_h_steps(plant, plant_K):
    """∇̂_1 first changes M^{h+2} (deviation 4): M at steps 0..h is M0."""
    algorithm = ww.bandit_gpc(2, 3, h=H, eta=1e-3, delta=0.3, M0=M0)
    run = simulate(plant, algorithm, plant_K)
    # ∇̂_1 itself is zero, as no disturbance was seen before step 1; ∇̂_2 first moves M^{h+3}.
    np.testing.assert_array_equal(run.M_history[: H + 2], np.broadcast_to(M0, (H + 2, *M0.shape)))
    assert np.abs(run.M_history[H + 2] - M0).max() > 1e-6


def test_bandit_gpc_on_the_papers_set(plant, plant_K):
    """Projection by singular values, active at a large step."""
    kappa, alpha = 1.05, 0.4
    algorithm = ww.bandit_gpc(
        2, 3, h=H, eta=0.3, delta=0.3, M0=M0, projection=ww.dac_set(kappa, alpha)
    )
    trace = reference.bandit_gpc(
        plant.A, plant.B, plant_K, reference.quadratic(Q, R), W,
        reference.draws(algorithm, SEED, T), M0=M0, eta=0.3, delta=0.3, x0=X0,
        project=lambda M: reference.to_dac_set(M, kappa, alpha),
    )  # fmt: skip
    norms = np.linalg.norm(trace.M[-1], 2, axis=(1, 2))
    radii = 2 * kappa**4 * (1 - alpha) ** np.arange(1, H + 1)
    np.testing.assert_allclose(norms, radii)  # on the border: the projection worked
    assert_same(simulate(plant, algorithm, plant_K), trace)


@pytest.mark.parametrize("signal", ["pd2", "pd3"])
def test_bandit_gpc_with_pseudo_disturbances(plant, plant_K, signal):
    gamma, L = 0.9, np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -1.0], [2.0, 0.0, 1.0]])
    algorithm = ww.bandit_gpc(2, 3, h=H, eta=1e-4, delta=0.3, M0=M0, signal=signal, gamma=gamma)
    A_sim = plant.A + 0.05
    value = L @ np.linalg.inv(np.eye(3) - gamma * (plant.A - plant.B @ plant_K))

    def pd2(t, x, u, c, x_next, score, w):
        q = L @ x + gamma * value @ (plant.A @ x + plant.B @ u)
        return L @ x + gamma * value @ x_next - q

    def pd3(t, x, u, c, x_next, score, w):
        return x_next - (A_sim @ x + plant.B @ u)

    trace = reference.bandit_gpc(
        plant.A, plant.B, plant_K, reference.quadratic(Q, R), W,
        reference.draws(algorithm, SEED, T), M0=M0, eta=1e-4, delta=0.3, x0=X0,
        project=lambda M: reference.to_ball(M, 10.0), signal={"pd2": pd2, "pd3": pd3}[signal],
    )  # fmt: skip
    run = simulate(plant, algorithm, plant_K, L=L, simulator=ww.linear.System(A_sim, plant.B))
    assert_same(run, trace)


def test_bpc(plant, plant_K):
    algorithm = ww.bpc(2, 3, h=H, eta=1e-3, delta=0.2, M0=M0, projection=ww.frobenius_ball(2.0))
    trace = reference.bpc(
        plant.A, plant.B, plant_K, reference.quadratic(Q, R), W,
        reference.draws(algorithm, SEED, T), M0=M0, eta=1e-3, delta=0.2, radius=2.0, x0=X0,
    )  # fmt: skip
    assert np.sqrt((trace.M**2).sum((1, 2, 3))).max() == pytest.approx(1.8)  # shrunk by delta
    assert_same(simulate(plant, algorithm, plant_K), trace)


def test_mf_gpc_with_pd3(plant, plant_K):
    """With a full covariance, which scales noise and score, and weight decay."""
    Sigma = np.array([[1.0, 0.3], [0.3, 0.5]])
    algorithm = ww.mf_gpc(
        2, 3, h=H, eta=1e-3, sigma=0.4, Sigma=Sigma, M0=M0, signal="pd3", weight_decay=0.5
    )
    trace = reference.mf_gpc(
        plant.A, plant.B, plant_K, reference.quadratic(Q, R), W,
        reference.draws(algorithm, SEED, T),
        M0=M0, eta=1e-3, Sigma=0.4**2 * Sigma, decay=0.5, x0=X0,
    )  # fmt: skip
    assert_same(simulate(plant, algorithm, plant_K), trace)
    np.testing.assert_allclose(trace.w_hat, W)


@pytest.mark.parametrize("signal", ["pd1", "pd1-value"])
def test_mf_gpc_with_pd1(plant, plant_K, signal):
    gamma, sigma, eta = 0.9, 0.5, 1e-9
    m0 = 0.01 * M0[:, :, :2]
    algorithm = ww.mf_gpc(2, 2, h=H, eta=eta, sigma=sigma, M0=m0, signal=signal, gamma=gamma)
    cost = reference.quadratic(Q, R)
    A, B = plant.A, plant.B
    P = reference.discounted(A - B @ plant_K, Q + plant_K.T @ R @ plant_K, gamma)

    def pd1(t, x, u, c, x_next, score, w):
        f = A @ x + B @ u
        return (c + gamma * x_next @ P @ x_next - (c + gamma * f @ P @ f)) * score

    def pd1_value(t, x, u, c, x_next, score, w):
        return gamma * x_next @ P @ x_next * score - 2 * gamma * B.T @ P @ (A @ x + B @ u)

    trace = reference.mf_gpc(
        A, B, plant_K, cost, W, reference.draws(algorithm, SEED, T), M0=m0, eta=eta,
        Sigma=sigma**2 * np.eye(2), x0=X0,
        signal={"pd1": pd1, "pd1-value": pd1_value}[signal],
    )  # fmt: skip
    run = simulate(plant, algorithm, plant_K)
    for name in ("x", "u", "cost", "w_hat"):
        got, wanted = getattr(run, name), getattr(trace, name)
        np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-8, err_msg=name)
    moved = np.abs(trace.M[-1] - m0).max()
    assert moved > 1e-7
    np.testing.assert_allclose(run.M - m0, trace.M[-1] - m0, rtol=1e-6, atol=1e-6 * moved)


@pytest.mark.parametrize("time_varying", [False, True])
def test_gpc(plant, plant_K, time_varying):
    system = varying(plant) if time_varying else plant
    algorithm = ww.gpc(
        system, K=plant_K, Q=Q, R=R, h=H, eta=0.02, M0=M0, projection=ww.frobenius_ball(1.0)
    )
    trace = reference.gpc(
        system.A, system.B, plant_K, reference.quadratic(Q, R), W,
        M0=M0, eta=0.02, radius=1.0, x0=X0,
    )  # fmt: skip
    norms = np.sqrt((trace.M**2).sum((1, 2, 3)))
    assert norms.max() == pytest.approx(1.0)  # the ball is reached
    assert_same(simulate(system, algorithm, plant_K), trace)


def l1(x, u):
    return jnp.sum(jnp.abs(x)) + jnp.sum(jnp.abs(u))


def weighted_by_time(x, u, t):
    return (1 + 0.1 * t) * (jnp.sum(jnp.abs(x)) + jnp.sum(u**2))


@pytest.mark.parametrize(
    ("cost", "numpy_cost"),
    [
        (l1, lambda x, u, t: np.abs(x).sum() + np.abs(u).sum()),
        (weighted_by_time, lambda x, u, t: (1 + 0.1 * t) * (np.abs(x).sum() + (u**2).sum())),
    ],
)
def test_any_cost_on_a_time_varying_system(plant, plant_K, cost, numpy_cost):
    system = varying(plant)
    algorithm = ww.bandit_gpc(2, 3, h=H, eta=1e-3, delta=0.3, M0=M0)
    trace = reference.bandit_gpc(
        system.A, system.B, plant_K, numpy_cost, W, reference.draws(algorithm, SEED, T),
        M0=M0, eta=1e-3, delta=0.3, project=lambda M: reference.to_ball(M, 10.0), x0=X0,
    )  # fmt: skip
    assert_same(simulate(system, algorithm, plant_K, Q=None, R=None, cost=cost), trace)


def test_base_only(plant, plant_K):
    run = simulate(plant, ww.base_only(2, 3), plant_K, M_every=None)
    trace = reference.fixed(
        plant.A, plant.B, plant_K, reference.quadratic(Q, R), W, np.zeros((1, 2, 3)), x0=X0
    )
    np.testing.assert_allclose(run.x, trace.x, **TIGHT)
    np.testing.assert_allclose(run.u, trace.u, **TIGHT)
    np.testing.assert_allclose(run.cost, trace.cost, **TIGHT)
    np.testing.assert_array_equal(run.w_hat, 0)
    np.testing.assert_array_equal(run.w, W)


def test_large_systems():
    """Twenty states, where products of matrices are left to the library."""
    rng = np.random.default_rng(2)
    A = rng.normal(size=(20, 20))
    A *= 0.9 / np.abs(np.linalg.eigvals(A)).max()
    system, w = ww.linear.System(A, rng.normal(size=(20, 2))), rng.normal(size=(15, 20))
    K, costs = np.zeros((2, 20)), {"Q": np.eye(20), "R": np.eye(2)}
    algorithm = ww.bandit_gpc(2, 20, h=2, eta=1e-6, delta=0.5, signal="pd3")
    run = ww.linear.simulate(system, algorithm, w, K=K, seed=SEED, **costs)
    trace = reference.bandit_gpc(
        A, system.B, K, reference.quadratic(*costs.values()), w,
        reference.draws(algorithm, SEED, 15), M0=np.zeros((2, 2, 20)), eta=1e-6, delta=0.5,
        project=lambda M: reference.to_ball(M, 10.0),
    )  # fmt: skip
    np.testing.assert_allclose(run.cost, trace.cost, **TIGHT)
    np.testing.assert_allclose(run.w_hat, w, **TIGHT)
    np.testing.assert_allclose(run.M, trace.M[-1], **TIGHT)
    assert np.abs(run.M).max() > 1e-3
