"""The mean of the gradient estimates is the gradient of the smoothed cost (`sec:grad_deriv`).

The scene: h = 2 on a small linear system. Steps 1 and 2 are a fixed history, steps 3 and 4 are
played by the library, and the estimate is the one formed at step 4. Its mean must be the gradient
of the expected cost c_4 in the M of the last h = 2 steps alone, which the reference computes in
NumPy by central differences, from the formulas of the paper and with no code of the library.

Means are taken in two ways. Quadrature feeds `observe` unit draws on a grid with weights: for
polynomial costs that is the exact mean, and nothing is left to chance. Monte Carlo takes the
library's own draws, so it also covers the sampler; z-scores are computed with fixed seeds.
"""

from functools import lru_cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import windward as ww
from windward.core import estimators, parametrisations, policies
from windward.types import Local

from .drive import step

pytestmark = pytest.mark.usefixtures("x64")

A = np.array([[0.9, 0.3], [-0.2, 0.7]])
X_3 = np.array([0.7, -0.4])  # where the fixed history left the state
W_HAT = np.array([[0.5, -1.0], [1.5, 0.5], [-0.5, 1.0], [0.3, 0.3]])  # ŵ_1 .. ŵ_4
W_3 = np.array([0.2, -0.1])  # the disturbance of step 3
N = 4096  # estimates in one call; smaller grids are padded with weight 0


def B_of(d_u):
    return np.array([[1.0, 0.4], [-0.3, 0.8]])[:, :d_u]


def K_of(d_u):
    return np.array([[0.3, 0.1], [-0.1, 0.2]])[:d_u]


# Costs are convex and given by coefficients, so that one compiled program serves all.
QUADRATIC, QUARTIC, L1 = np.eye(3)


def cost(xp, coefficients, x, u):
    a, b, c = coefficients
    squares = xp.sum(x**2, -1) + 2 * x[..., 0] * x[..., 1] + xp.sum(u**2, -1) + u[..., 0]
    quartics = xp.sum((x - 0.2) ** 4, -1) + 0.5 * xp.sum((u + 0.3) ** 4, -1)
    absolutes = xp.sum(xp.abs(x), -1) + xp.sum(xp.abs(u), -1)
    return a * squares + b * quartics + c * absolutes


# ---------------------------------------------------------------- the library's estimates


@lru_cache
def program(algorithm_name, d_u, d_w, map_name="linear"):
    """(algorithm, jitted function of (M, coefficients, units (N, 2, size)) -> N gradients)."""
    recipe = {
        "mf_gpc": lambda: ww.mf_gpc(
            d_u, d_w, h=2, eta=0, sigma=SIGMA, Sigma=COVARIANCE[:d_u, :d_u], signal="w",
            **({} if map_name == "linear" else {"parametrisation": ww.mlp(3)}),
        ),
        "bandit_gpc": lambda: ww.bandit_gpc(d_u, d_w, h=2, eta=0, delta=DELTA),
        "bpc": lambda: ww.bpc(d_u, d_w, h=2, eta=0, delta=DELTA),
    }  # fmt: skip
    algorithm = recipe[algorithm_name]()
    B, K = jnp.asarray(B_of(d_u)), jnp.asarray(K_of(d_u))
    w_hat = jnp.asarray(W_HAT[:, :d_w])

    def one(M, coefficients, units):
        ones = jnp.ones_like(units[0])[None]
        state, _ = algorithm.init(algorithm.hyper, ones)
        state = state._replace(learner=state.learner._replace(M=M))
        # The history: its costs and draws must not enter the estimate of step 4.
        state, _, _ = algorithm.observe(state, step([30.0], w=w_hat[None, 0]), ones)
        state, plan, _ = algorithm.observe(state, step([50.0], w=w_hat[None, 1]), units[None, 0])
        x = jnp.asarray(X_3)
        for t in (3, 4):
            u = algorithm.apply(plan, -K @ x)[0]
            tr = step(cost(jnp, coefficients, x, u)[None], w=w_hat[None, t - 1])
            unit = units[None, 1] if t == 3 else ones
            state, plan, info = algorithm.observe(state, tr, unit)
            x = jnp.asarray(A) @ x + B @ u + jnp.asarray(W_3)
        return info.gradient

    return algorithm, jax.jit(jax.vmap(one, (None, None, 0)))


def flat(tree):
    """N gradients as an (N, dim M) array, leaves in jax.tree order."""
    return np.concatenate(
        [np.reshape(leaf, (leaf.shape[0], -1)) for leaf in jax.tree.leaves(tree)], axis=1
    )


def quadrature_mean(estimate, M, coefficients, units, weights):
    """The mean of the estimates over a grid of unit draws (n, 2, size)."""
    padded = np.ones((N, *units.shape[1:]))
    padded[: len(units)] = units
    return weights @ flat(estimate(M, coefficients, padded))[: len(units)]


def monte_carlo(algorithm, estimate, M, coefficients, size, seed, rounds=24):
    """Mean and standard error over rounds·N estimates with the library's own draws."""
    total, square = 0.0, 0.0
    for key in jax.random.split(jax.random.key(seed), rounds):
        units = algorithm.unit(key, 2 * N).reshape(N, 2, size)
        g = flat(estimate(M, coefficients, units))
        total, square = total + g.sum(0), square + (g**2).sum(0)
    n = rounds * N
    mean = total / n
    return mean, np.sqrt((square / n - mean**2) / n)


# ---------------------------------------------------------------- the reference, in NumPy

SIGMA, DELTA = 0.6, 0.8
COVARIANCE = np.array([[1.0, 0.4], [0.4, 0.7]])


def linear(M, window):
    M = np.reshape(M, (2, -1, window.shape[1]))
    return M[0] @ window[0] + M[1] @ window[1]


def mlp(M, window):
    # jax.tree order of the dict: W1 (3, 4), W2 (d_u = 1, 3), b1 (3), b2 (1)
    W1, W2, b1, b2 = M[:12].reshape(3, 4), M[12:15], M[15:18], M[18]
    return np.atleast_1d(W2 @ np.tanh(W1 @ window.ravel() + b1) + b2)


def final_cost(coefficients, d_u, d_w, v_3, v_4):
    """c_4 as a function of what steps 3 and 4 add to the base action, (..., d_u) each."""
    B, K = B_of(d_u), K_of(d_u)
    u_3 = -K @ X_3 + v_3
    x_4 = A @ X_3 + u_3 @ B.T + W_3
    u_4 = -x_4 @ K.T + v_4
    return cost(np, coefficients, x_4, u_4)


def windows(d_w):
    """What steps 3 and 4 saw: (ŵ_2, ŵ_1) and (ŵ_3, ŵ_2)."""
    return W_HAT[[1, 0], :d_w], W_HAT[[2, 1], :d_w]


def differences(function, M, eps=1e-4):
    """Central differences of a scalar function of a flat M."""
    steps = eps * np.eye(len(M))
    return np.array([(function(M + e) - function(M - e)) / (2 * eps) for e in steps])


def sphere_nodes(d, radius):
    """Nodes and weights of the uniform law on a sphere in one or two dimensions."""
    if d == 1:
        return radius * np.array([[1.0], [-1.0]]), np.full(2, 0.5)
    angles = 2 * np.pi * np.arange(16) / 16
    return radius * np.stack([np.cos(angles), np.sin(angles)], 1), np.full(16, 1 / 16)


def ball_nodes(d, radius):
    """Nodes and weights of the uniform law on a ball in one or two dimensions."""
    points, weights = np.polynomial.legendre.leggauss(12)
    if d == 1:
        return radius * points[:, None], weights / 2
    directions, even = sphere_nodes(2, 1.0)
    r = (points + 1) / 2  # the density of the length on [0, 1] is 2r
    nodes = radius * np.einsum("i,jk->ijk", r, directions).reshape(-1, 2)
    return nodes, np.einsum("i,j->ij", weights / 2 * 2 * r, even).ravel()


def gaussian_nodes(d, n):
    """Nodes and weights of the standard normal law in d dimensions."""
    points, weights = np.polynomial.hermite_e.hermegauss(n)
    weights = weights / weights.sum()
    nodes = np.array(list(product(points, repeat=d)))
    return nodes, np.array([np.prod(pair) for pair in product(weights, repeat=d)])


def pairs(first, second):
    """The product law of two steps: (n, size) each, and the weights."""
    (a, wa), (b, wb) = first, second
    i, j = (index.ravel() for index in np.indices((len(a), len(b))))
    return a[i], b[j], wa[i] * wb[j]


def gaussian_gradient(coefficients, d_u, d_w, M, pi, n):
    """Of the cost smoothed by Gaussian noise in both actions."""
    root = SIGMA * np.linalg.cholesky(COVARIANCE[:d_u, :d_u])
    nodes, weights = gaussian_nodes(d_u, n)
    n_3, n_4, weight = pairs((nodes @ root.T, weights), (nodes @ root.T, weights))
    s_3, s_4 = windows(d_w)

    def smoothed(M):
        return weight @ final_cost(coefficients, d_u, d_w, pi(M, s_3) + n_3, pi(M, s_4) + n_4)

    return differences(smoothed, M)


def sphere_gradient(coefficients, d_u, d_w, M, law=ball_nodes):
    """What the sphere estimator's mean is: Σ_i the gradient through u_i alone of the cost with

    noise uniform in the ball in u_i and on the sphere in the others (deviation 6).
    """
    s_3, s_4 = windows(d_w)
    ball, sphere = law(d_u, DELTA), sphere_nodes(d_u, DELTA)

    def through_3(M_3):
        a, b, weight = pairs(ball, sphere)
        return weight @ final_cost(coefficients, d_u, d_w, linear(M_3, s_3) + a, linear(M, s_4) + b)

    def through_4(M_4):
        a, b, weight = pairs(sphere, ball)
        return weight @ final_cost(coefficients, d_u, d_w, linear(M, s_3) + a, linear(M_4, s_4) + b)

    return differences(through_3, M) + differences(through_4, M)


def bpc_gradient(coefficients, M):
    """As the sphere's, with the ball and the sphere around M: d_u = d_w = 1, so dim M = 2."""
    s_3, s_4 = (s[:, 0] for s in windows(1))
    ball, sphere = ball_nodes(2, DELTA), sphere_nodes(2, DELTA)

    def expected(M_3, M_4, first, second):
        a, b, weight = pairs(first, second)
        v_3, v_4 = (M_3 + a) @ s_3, (M_4 + b) @ s_4
        return weight @ final_cost(coefficients, 1, 1, v_3[:, None], v_4[:, None])

    return differences(lambda M_3: expected(M_3, M, ball, sphere), M) + differences(
        lambda M_4: expected(M, M_4, sphere, ball), M
    )


def folded(mean, variance):
    """E|X| of a normal X."""
    s = np.sqrt(variance)
    return s * np.sqrt(2 / np.pi) * np.exp(-(mean**2) / (2 * variance)) + mean * (
        scipy.special.erf(mean / (s * np.sqrt(2)))
    )


def l1_gaussian_gradient(d_u, d_w, M):
    """Of E(|x_4|_1 + |u_4|_1), in closed form: both are normal."""
    B, K = B_of(d_u), K_of(d_u)
    S = SIGMA**2 * COVARIANCE[:d_u, :d_u]
    spread_x = B @ S @ B.T
    spread_u = K @ spread_x @ K.T + S
    s_3, s_4 = windows(d_w)

    def smoothed(M):
        x_4 = A @ X_3 + B @ (-K @ X_3 + linear(M, s_3)) + W_3
        u_4 = -K @ x_4 + linear(M, s_4)
        return folded(x_4, np.diag(spread_x)).sum() + folded(u_4, np.diag(spread_u)).sum()

    return differences(smoothed, M)


def M_linear(d_u, d_w):
    return 0.4 * np.random.default_rng(7).normal(size=(2, d_u, d_w))


def close(got, wanted):
    assert np.abs(wanted).max() > 0.1
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


def within_monte_carlo_error(mean, error, wanted):
    z = (mean - wanted) / error
    print("z-scores:", np.round(z, 2), "gradient over error:", np.round(wanted / error, 1))
    assert np.abs(wanted / error).max() > 15  # or the test could not tell the gradient from 0
    assert np.abs(z).max() < 4


# ---------------------------------------------------------------- exact means


@pytest.mark.parametrize("coefficients", [QUADRATIC, QUARTIC], ids=["quadratic", "quartic"])
def test_gaussian_mean_is_the_gradient_of_the_smoothed_cost(coefficients):
    _, estimate = program("mf_gpc", 2, 2)
    nodes, weights = gaussian_nodes(2, 6)  # exact up to degree 11
    n_3, n_4, weight = pairs((nodes, weights), (nodes, weights))
    M = M_linear(2, 2)
    got = quadrature_mean(estimate, M, coefficients, np.stack([n_3, n_4], 1), weight)
    close(got, gaussian_gradient(coefficients, 2, 2, M.ravel(), linear, n=6))


@pytest.mark.parametrize("coefficients", [QUADRATIC, QUARTIC], ids=["quadratic", "quartic"])
def test_mlp_mean_is_the_gradient_of_the_smoothed_cost(coefficients):
    _, estimate = program("mf_gpc", 1, 2, "mlp")
    rng = np.random.default_rng(3)
    M = {"W1": rng.normal(size=(3, 4)), "b1": rng.normal(size=3), "W2": rng.normal(size=(1, 3)),
         "b2": rng.normal(size=1)}  # fmt: skip
    nodes, weights = gaussian_nodes(1, 6)
    n_3, n_4, weight = pairs((nodes, weights), (nodes, weights))
    got = quadrature_mean(estimate, M, coefficients, np.stack([n_3, n_4], 1), weight)
    flat_M = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(M)])
    close(got, gaussian_gradient(coefficients, 1, 2, flat_M, mlp, n=6))


@pytest.mark.parametrize("coefficients", [QUADRATIC, QUARTIC], ids=["quadratic", "quartic"])
@pytest.mark.parametrize("d_u", [1, 2])
def test_sphere_mean_is_the_gradient_of_the_cost_smoothed_over_the_ball(d_u, coefficients):
    _, estimate = program("bandit_gpc", d_u, 2)
    n_3, n_4, weight = pairs(sphere_nodes(d_u, 1.0), sphere_nodes(d_u, 1.0))
    M = M_linear(d_u, 2)
    got = quadrature_mean(estimate, M, coefficients, np.stack([n_3, n_4], 1), weight)
    close(got, sphere_gradient(coefficients, d_u, 2, M.ravel()))
    # The paper says sphere; quadratics hide the difference (deviation 6).
    over_the_sphere = sphere_gradient(coefficients, d_u, 2, M.ravel(), law=sphere_nodes)
    if coefficients is QUADRATIC:
        close(got, over_the_sphere)
    else:
        assert np.abs(got - over_the_sphere).max() > 0.1 * np.abs(got).max()


def test_sphere_mean_with_absolute_costs():
    # In one dimension the sphere is two points: the mean is exact for every cost, and the
    # gradient through u_i of the ball-smoothed cost is (F(u_i + δ) - F(u_i - δ))/2δ.
    _, estimate = program("bandit_gpc", 1, 2)
    sphere = sphere_nodes(1, 1.0)
    n_3, n_4, weight = pairs(sphere, sphere)
    M = M_linear(1, 2)
    got = quadrature_mean(estimate, M, L1, np.stack([n_3, n_4], 1), weight)
    s_3, s_4 = windows(2)
    v_3, v_4 = linear(M, s_3), linear(M, s_4)

    def F(a, b):
        return final_cost(L1, 1, 2, v_3 + DELTA * a, v_4 + DELTA * b)

    slope_3 = (F(1, 1) - F(-1, 1) + F(1, -1) - F(-1, -1)) / (4 * DELTA)
    slope_4 = (F(1, 1) - F(1, -1) + F(-1, 1) - F(-1, -1)) / (4 * DELTA)
    close(got, (slope_3 * s_3 + slope_4 * s_4).ravel())


@pytest.mark.parametrize("coefficients", [QUADRATIC, QUARTIC], ids=["quadratic", "quartic"])
def test_bpc_mean_is_the_gradient_of_the_cost_smoothed_around_M(coefficients):
    # Each of the last h steps has an ε of its own.
    _, estimate = program("bpc", 1, 1)
    e_3, e_4, weight = pairs(sphere_nodes(2, 1.0), sphere_nodes(2, 1.0))
    M = M_linear(1, 1)
    got = quadrature_mean(estimate, M, coefficients, np.stack([e_3, e_4], 1), weight)
    close(got, bpc_gradient(coefficients, M.ravel()))


@pytest.mark.parametrize("preset", [None, "paper"])
def test_softmax_mean_is_the_gradient_of_the_expected_cost(preset):
    # Three actions with effects PUSH and base logits Gx; all nine pairs (u_3, u_4) are fed to
    # the library and weighted with their probabilities. While M stands still the two ways to
    # take the scores agree.
    G = np.array([[0.5, -0.3], [0.2, 0.8], [-0.6, 0.1]])
    push = np.array([[1.0, 0.0], [-0.5, 0.7], [0.2, -1.0]])
    price = np.array([0.3, 1.0, 0.1])
    s_3, s_4 = windows(2)
    algorithm = ww.dmf_gpc(3, 2, h=2, eta=0, signal="w", preset=preset)

    def reach(u_3):
        return A @ X_3 + push[u_3] + W_3

    def c_4(u_3, u_4):
        return np.sum(np.abs(reach(u_3))) + np.sum(reach(u_3) ** 4) + price[u_4]

    def probability(M, u_3, u_4):
        first = scipy.special.softmax(G @ X_3 + linear(M, s_3))
        second = scipy.special.softmax(G @ reach(u_3) + linear(M, s_4))
        return first[u_3] * second[u_4]

    sequences = list(product(range(3), repeat=2))
    M = M_linear(3, 2)

    @jax.jit
    @jax.vmap
    def estimate(u_3, u_4, x_4, c):
        zeros = jnp.zeros((1, 3))
        state, _ = algorithm.init(algorithm.hyper, zeros)
        state = state._replace(learner=state.learner._replace(M=jnp.asarray(M)))
        for t, (u, x, c_t) in enumerate(
            [(0, X_3, 30.0), (1, X_3, 50.0), (u_3, X_3, 20.0), (u_4, x_4, c)]
        ):
            tr = step(
                jnp.asarray(c_t)[None], u=jnp.asarray(u)[None], w=W_HAT[None, t],
                logits=(jnp.asarray(G) @ x)[None],
            )  # fmt: skip
            state, _, info = algorithm.observe(state, tr, zeros)
        return info.gradient

    first, second = np.array(sequences).T
    gradients = estimate(
        first, second, np.stack([reach(u) for u in first]),
        np.array([c_4(*pair) for pair in sequences]),
    )  # fmt: skip
    got = np.array([probability(M, *pair) for pair in sequences]) @ flat(gradients)
    close(
        got,
        differences(
            lambda M: sum(probability(M, *pair) * c_4(*pair) for pair in sequences), M.ravel()
        ),
    )


# ---------------------------------------------------------------- Monte Carlo


def test_gaussian_draws_with_absolute_costs():
    algorithm, estimate = program("mf_gpc", 2, 2)
    M = M_linear(2, 2)
    mean, error = monte_carlo(algorithm, estimate, M, L1, size=2, seed=0)
    within_monte_carlo_error(mean, error, l1_gaussian_gradient(2, 2, M.ravel()))


def test_sphere_draws_with_quartic_costs():
    algorithm, estimate = program("bandit_gpc", 2, 2)
    M = M_linear(2, 2)
    mean, error = monte_carlo(algorithm, estimate, M, QUARTIC, size=2, seed=1)
    within_monte_carlo_error(mean, error, sphere_gradient(QUARTIC, 2, 2, M.ravel()))


def test_bpc_draws_with_quartic_costs():
    algorithm, estimate = program("bpc", 1, 1)
    M = M_linear(1, 1)
    mean, error = monte_carlo(algorithm, estimate, M, QUARTIC, size=2, seed=2)
    within_monte_carlo_error(mean, error, bpc_gradient(QUARTIC, M.ravel()))


# ---------------------------------------------------------------- the trace


def test_the_box_trace_credits_the_next_h_costs_in_full():
    assert estimators.box(3) == (1.0, 1.0, 1.0)


def test_a_trace_weighs_the_past_and_sets_the_lags():
    # h = 1, trace (1, ½, ¼) on linear action noise with σ = 1: credit Σ_i trace[i] n_{t-i} ŵ.
    policy = policies.action_noise(parametrisations.linear(1, 1, 1), 1, policies.gaussian())
    estimator = estimators.score_function(policy, 1, (1.0, 0.5, 0.25))
    assert estimator.lags == 3
    local = Local(
        w_hist=jnp.array([[1.0], [2.0], [3.0]]),
        records=jnp.array([[5.0], [7.0], [11.0]]),
        unit=jnp.zeros(1),
        t=jnp.zeros((), jnp.int32),
    )
    got = estimator.gradient(
        jnp.zeros((1, 1, 1)), jnp.array(10.0), local, None, {"sigma": jnp.array(1.0)}
    )
    # 10·(1·5·1 + ½·7·2 + ¼·11·3) = 10·(5 + 7 + 8.25)
    assert got.item() == pytest.approx(202.5)


def test_zero_learns_nothing():
    M = {"a": jnp.ones(2), "b": jnp.ones((1, 3))}
    gradient = estimators.zero().gradient(M, jnp.array(5.0), None, None, {})
    assert jax.tree.structure(gradient) == jax.tree.structure(M)
    assert all(jnp.all(leaf == 0) for leaf in jax.tree.leaves(gradient))
