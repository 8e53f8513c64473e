"""The idealised cost C̃_t(M): equal to a NumPy run of h steps, to the paper's Ψ, and convex."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import windward as ww
from windward.linear.costs import quadratic_cost, with_time

from . import reference

pytestmark = pytest.mark.usefixtures("x64")

Q = np.array([[1.0, 0.2, 0.0], [0.2, 2.0, 0.0], [0.0, 0.0, 0.5]])
R = np.array([[0.7, 0.1], [0.1, 0.4]])
H, STEPS = 3, 20
W = np.random.default_rng(0).normal(size=(STEPS, 3))


def l1(x, u):
    return jnp.sum(jnp.abs(x)) + jnp.sum(jnp.abs(u))


def softplus(x, u, t):
    return jnp.sum(jnp.logaddexp(0, 2 * x)) + (1 + 0.1 * t) * jnp.sum(jnp.cosh(u))


idealised_cost = jax.jit(ww.linear.idealised_cost, static_argnums=4)
gradient = jax.jit(jax.grad(ww.linear.idealised_cost), static_argnums=4)

COSTS = {"quadratic": quadratic_cost, "l1": with_time(l1), "smooth": with_time(softplus)}


def history(t, h):
    """w_{t-1}, ..., w_{t-2h}."""
    return np.stack([W[t - 1 - j] if t - 1 - j >= 0 else np.zeros(3) for j in range(2 * h)])


def hyper(system, K):
    return {"A": system.A, "B": system.B, "K": K, "Q": Q, "R": R}


def varying(plant):
    wave = np.sin(np.arange(STEPS))[:, None, None]
    return ww.linear.System(plant.A + 0.1 * wave, plant.B * (1 + 0.2 * wave))


@pytest.mark.parametrize("time_varying", [False, True])
@pytest.mark.parametrize("t", [0, 2, 3, 11, 19])
def test_equals_a_run_from_a_zero_state(plant, plant_K, time_varying, t):
    system = varying(plant) if time_varying else plant
    M = np.random.default_rng(t).normal(size=(H, 2, 3))
    y, u = reference.idealised(system.A, system.B, plant_K, M, W, t)
    numbers = {
        "quadratic": y @ Q @ y + u @ R @ u,
        "l1": np.abs(y).sum() + np.abs(u).sum(),
        "smooth": np.logaddexp(0, 2 * y).sum() + (1 + 0.1 * t) * np.cosh(u).sum(),
    }
    for name, expected in numbers.items():
        got = idealised_cost(M, history(t, H), t, hyper(system, plant_K), COSTS[name])
        assert got == pytest.approx(expected, rel=1e-10), name


def psi(A, B, M, i, h):
    """Ψ_i = A^i·1[i≤h] + Σ_{j=0..h} A^j B M_{i-j}·1[1≤i-j≤h] (deviation 6)."""
    power = np.linalg.matrix_power
    total = power(A, i) if i <= h else np.zeros_like(A)
    for j in range(h + 1):
        if 1 <= i - j <= h:
            total = total + power(A, j) @ B @ M[i - j - 1]
    return total


def psi_as_printed(A, B, M, i, h):
    """The paper's definition, with one M: Σ_{j=1..h} A^j B M_{i-j-1}."""
    power = np.linalg.matrix_power
    total = power(A, i) if i <= h else np.zeros_like(A)
    for j in range(1, h + 1):
        if 1 <= i - j - 1 <= h:
            total = total + power(A, j) @ B @ M[i - j - 2]
    return total


def test_corrected_transfer_matrices_give_the_idealised_state():
    """y_{t+1} = Σ_{i=0..2h} Ψ_i w_{t-i}: h+1 steps from 0, so a memory of h+1 with M_{h+1} = 0."""
    rng = np.random.default_rng(5)
    A, B = 0.5 * rng.normal(size=(3, 3)), rng.normal(size=(3, 2))
    M, K, t = rng.normal(size=(H, 2, 3)), np.zeros((2, 3)), 14
    y = sum(psi(A, B, M, i, H) @ W[t - 1 - i] for i in range(2 * H + 1))
    u = reference.dac(M, np.stack([W[t - i] for i in range(1, H + 1)]))
    padded = np.concatenate([M, np.zeros((1, 2, 3))])
    data = {"A": A, "B": B, "K": K, "Q": Q, "R": R}
    got = idealised_cost(padded, history(t, H + 1), t, data, quadratic_cost)
    assert got == pytest.approx(y @ Q @ y + u @ R @ u, rel=1e-10)
    printed = sum(psi_as_printed(A, B, M, i, H) @ W[t - 1 - i] for i in range(2 * H + 1))
    assert np.abs(printed - y).max() > 0.1  # the printed indices miss the newest controls


@pytest.mark.parametrize("name", COSTS)
def test_convex_along_random_segments(plant, plant_K, name):
    data, w_hist = hyper(plant, plant_K), history(11, H)

    @jax.jit
    @jax.vmap
    def each(M):
        return idealised_cost(M, w_hist, 11, data, COSTS[name])

    def cost(M):
        return np.asarray(each(M))

    rng = np.random.default_rng(0)
    a, b = 2 * rng.normal(size=(2, 500, H, 2, 3))
    share = rng.uniform(size=(500, 1, 1, 1))
    chord = share.ravel() * cost(a) + (1 - share.ravel()) * cost(b)
    slack = chord - cost(share * a + (1 - share) * b)
    assert slack.min() > -1e-9 * np.abs(chord).max()
    assert slack.max() > 0.1  # and not merely affine


@pytest.mark.parametrize("time_varying", [False, True])
def test_gradient_equals_complex_steps(plant, plant_K, time_varying):
    system = varying(plant) if time_varying else plant
    M, t = np.random.default_rng(1).normal(size=(H, 2, 3)), 11

    def total(M):
        y, u = reference.idealised(system.A, system.B, plant_K, M, W, t)
        return y @ Q @ y + u @ R @ u

    got = gradient(M, history(t, H), t, hyper(system, plant_K), quadratic_cost)
    np.testing.assert_allclose(got, reference.complex_step(total, M), rtol=1e-9, atol=1e-9)
