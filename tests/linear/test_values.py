"""Closed-form values against long noise-free runs."""

import numpy as np
import pytest

import windward as ww

from . import reference

Q = np.array([[1.0, 0.2, 0.0], [0.2, 2.0, 0.0], [0.0, 0.0, 0.5]])
R = np.array([[0.7, 0.1], [0.1, 0.4]])
L = np.array([[1.0, 2.0, 0.0], [0.0, -1.0, 3.0]])
X = np.random.default_rng(0).normal(size=(5, 3))
U = np.random.default_rng(1).normal(size=(5, 2))
GAMMAS = pytest.mark.parametrize("gamma", [0.5, 0.95, 1.0])


def discounted_run(plant, K, gamma, x, u, cost, steps=3000):
    """Σ γ^t cost(x_t, u_t) from rows of x, with first controls u (the policy's if None)."""
    total, weight = 0.0, 1.0
    for _ in range(steps):
        u = -x @ K.T if u is None else u
        total = total + weight * cost(x, u)
        x, u, weight = x @ plant.A.T + u @ plant.B.T, None, weight * gamma
    return total


def quadratic(x, u):
    return ((x @ Q) * x).sum(1) + ((u @ R) * u).sum(1)


def linear(x, u):
    return x @ L.T


@GAMMAS
def test_quadratic_values_are_those_of_long_runs(plant, plant_K, gamma):
    values = ww.linear.quadratic_values(plant, plant_K, Q, R, gamma)
    V, Q_values = (discounted_run(plant, plant_K, gamma, X, u, quadratic) for u in (None, U))
    np.testing.assert_allclose(values.V(X), V, rtol=1e-9)
    np.testing.assert_allclose(values.V(X[0]), V[0], rtol=1e-9)  # one state, no batch
    np.testing.assert_allclose(values.Q(X, U), Q_values, rtol=1e-9)


@GAMMAS
def test_gradient_of_q_minus_c_is_that_of_long_runs(plant, plant_K, gamma):
    values = ww.linear.quadratic_values(plant, plant_K, Q, R, gamma)
    gradient = np.zeros((5, 2))
    for j, e in enumerate(np.eye(2)):  # central differences are exact for quadratics
        up, down = (
            discounted_run(plant, plant_K, gamma, X, v, quadratic) - quadratic(X, v)
            for v in (U + e, U - e)
        )
        gradient[:, j] = (up - down) / 2
    for x, u, wanted in zip(X, U, gradient, strict=True):
        np.testing.assert_allclose(values.grad_q_minus_c(x, u), wanted, rtol=1e-9)


@GAMMAS
def test_vector_values_are_those_of_long_runs(plant, plant_K, gamma):
    values = ww.linear.vector_values(plant, plant_K, gamma, L)
    V, Q_values = (discounted_run(plant, plant_K, gamma, X, u, linear) for u in (None, U))
    np.testing.assert_allclose(values.V(X), V, rtol=1e-9)
    np.testing.assert_allclose(values.Q(X, U), Q_values, rtol=1e-9)
    np.testing.assert_allclose(values.Q(X[0], U[0]), Q_values[0], rtol=1e-9)


def test_vector_cost_is_the_state_by_default(plant, plant_K):
    values = ww.linear.vector_values(plant, plant_K, 0.9)
    V = discounted_run(plant, plant_K, 0.9, X[:1], None, lambda x, u: x)
    np.testing.assert_allclose(values.V(X[0]), V[0], rtol=1e-10)


def test_values_of_a_large_system():
    """Twelve states: the Lyapunov equation is solved another way from ten on."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(12, 12))
    A *= 0.9 / np.abs(np.linalg.eigvals(A)).max()
    system = ww.linear.System(A, rng.normal(size=(12, 2)))
    K = 0.001 * rng.normal(size=(2, 12))
    values = ww.linear.quadratic_values(system, K, np.eye(12), np.eye(2), 0.99)
    P = reference.discounted(A - system.B @ K, np.eye(12) + K.T @ K, 0.99)
    np.testing.assert_allclose(values.P, P, rtol=1e-8, atol=1e-8)


def test_undiscounted_value_of_lqr_is_its_riccati_solution(plant):
    optimal = ww.linear.lqr(plant.A, plant.B, Q, R)
    values = ww.linear.quadratic_values(plant, optimal.K, Q, R)
    np.testing.assert_allclose(values.P, optimal.P, rtol=1e-9)
    discounted = ww.linear.quadratic_values(plant, optimal.K, Q, R, 0.9)
    assert np.linalg.eigvalsh(optimal.P - discounted.P).min() > 0  # only at γ = 1 (deviation 1)


@GAMMAS
def test_bellman_consistency(plant, plant_K, gamma):
    quadratic_values = ww.linear.quadratic_values(plant, plant_K, Q, R, gamma)
    vector_values = ww.linear.vector_values(plant, plant_K, gamma, L)
    controls = -X @ plant_K.T
    after = X @ (plant.A - plant.B @ plant_K).T
    for values, costs in (
        (quadratic_values, quadratic(X, controls)),
        (vector_values, X @ L.T),
    ):
        np.testing.assert_allclose(values.Q(X, controls), values.V(X), rtol=1e-10)
        np.testing.assert_allclose(values.V(X), costs + gamma * values.V(after), rtol=1e-10)


def test_maps_of_the_lemmas(plant, plant_K):
    """T = 2γBᵀP and T = γL Σ_k (γA_π)^k, by summation."""
    gamma, A_K = 0.9, plant.A - plant.B @ plant_K
    P = reference.discounted(A_K, Q + plant_K.T @ R @ plant_K, gamma)
    quadratic_values = ww.linear.quadratic_values(plant, plant_K, Q, R, gamma)
    np.testing.assert_allclose(quadratic_values.T, 2 * gamma * plant.B.T @ P, rtol=1e-10)
    series = sum(np.linalg.matrix_power(gamma * A_K, k) for k in range(500))
    vector_values = ww.linear.vector_values(plant, plant_K, gamma, L)
    np.testing.assert_allclose(vector_values.T, gamma * L @ series, rtol=1e-10)


def test_a_discount_can_make_an_unstable_policy_finite():
    """√γ |a| < 1 is enough: Σ (γa²)^t = 1/(1 - γa²)."""
    system = ww.linear.System([[1.05]], [[1.0]])
    values = ww.linear.quadratic_values(system, [[0.0]], [[1.0]], [[1.0]], 0.8)
    assert values.V([2.0]) == pytest.approx(4 / (1 - 0.8 * 1.05**2))


@pytest.mark.parametrize("make", ["quadratic", "vector"])
def test_bad_arguments(plant, plant_K, make):
    def values(system, K, gamma=0.9, **more):
        if make == "quadratic":
            return ww.linear.quadratic_values(system, K, Q, R, gamma)
        return ww.linear.vector_values(system, K, gamma, **more)

    with pytest.raises(ValueError, match=r"value of K is infinite.*spectral radius 1\.07"):
        values(plant, np.zeros((2, 3)), 1.0)
    with pytest.raises(ValueError, match=r"gamma must lie in \(0, 1\]; got 1.5"):
        values(plant, plant_K, 1.5)
    with pytest.raises(ValueError, match=r"K must have shape \(2, 3\)"):
        values(plant, plant_K.T)
    with pytest.raises(ValueError, match="must be constant in time"):
        values(ww.linear.System(np.stack([plant.A] * 4), plant.B), plant_K)
    if make == "vector":
        with pytest.raises(ValueError, match="L must have d_x = 3 columns"):
            values(plant, plant_K, L=np.eye(2))
