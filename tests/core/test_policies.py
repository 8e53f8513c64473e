"""Policies: scores against autodiff of the log density, and what is drawn and played."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import windward as ww
from windward.core import parametrisations, policies
from windward.types import Plan

from .drive import compiled, on_host, play, step

pytestmark = pytest.mark.usefixtures("x64")

H, D_U, D_W = 2, 3, 2


def linear_by_hand(M, window):
    return M[0] @ window[0] + M[1] @ window[1]


def mlp_by_hand(M, window):
    xp = jnp if isinstance(M["W1"], jax.Array) else np
    hidden = xp.tanh(M["W1"] @ np.concatenate([window[0], window[1]]) + M["b1"])
    return M["W2"] @ hidden + M["b2"]


# (the library's parametrisation, the same map written here)
MAPS = {
    "linear": (lambda: parametrisations.linear(H, D_U, D_W), linear_by_hand),
    "mlp": (lambda: ww.mlp(4)(H, D_U, D_W), mlp_by_hand),
}


def random_like(pi, seed):
    """Parameters of a map, filled with normal numbers."""
    leaves, structure = jax.tree.flatten(jax.eval_shape(pi.init))
    rng = np.random.default_rng(seed)
    return structure.unflatten([rng.normal(size=leaf.shape) for leaf in leaves])


def windows_and_weights(seed, lags=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(lags, H, D_W)), rng.normal(size=lags)


def one_step(u, logits):
    """What a policy sees of a step: one environment, no leading axis."""
    return step([0.0])._replace(u=np.array(u), aux={"logits": logits})


def draws_of(algorithm, seed):
    """20 000 draws of the exploration noise, with the library's own sampler."""
    units = jax.jit(algorithm.unit, static_argnums=1)(jax.random.key(seed), 20_000)
    return np.asarray(compiled(algorithm.init)(algorithm.hyper, units)[1].draw)


def trees_close(got, wanted):
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(wanted)) > 0.1
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("map_name", MAPS)
def test_parametrisations(map_name):
    make, by_hand = MAPS[map_name]
    pi, (windows, _) = make(), windows_and_weights(0)
    start, apply = jax.jit(pi.init)(), jax.jit(pi.apply)
    M = random_like(pi, seed=1)
    np.testing.assert_allclose(apply(M, windows[0]), by_hand(M, windows[0]), rtol=1e-12)
    # At the start there is no correction (deviation 10), but the mlp can already learn.
    np.testing.assert_array_equal(apply(start, windows[0]), np.zeros(D_U))
    slope = jax.jit(jax.jacobian(pi.apply))(start, windows[0])
    assert any(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(slope))


SIGMAS = {
    "identity": None,
    "full": np.array([[2.0, 0.6, 0.1], [0.6, 1.0, -0.3], [0.1, -0.3, 0.5]]),
}


@pytest.mark.parametrize("map_name", MAPS)
@pytest.mark.parametrize("Sigma", SIGMAS)
def test_gaussian_score_is_the_gradient_of_the_log_density(map_name, Sigma):
    make, by_hand = MAPS[map_name]
    pi, (windows, weights) = make(), windows_and_weights(2)
    M, sigma = random_like(pi, seed=3), 0.7
    hyper = {"sigma": np.asarray(sigma)}
    if SIGMAS[Sigma] is not None:
        hyper["Sigma"] = SIGMAS[Sigma]
    covariance = sigma**2 * (np.eye(D_U) if SIGMAS[Sigma] is None else SIGMAS[Sigma])
    policy = policies.action_noise(pi, D_U, policies.gaussian())
    units = np.random.default_rng(4).normal(size=(3, D_U))

    plan = jax.jit(policy.plan)
    n = np.stack([plan(M, w, z, hyper).draw for w, z in zip(windows, units, strict=True)])
    # z is standard normal exactly when nᵀ covariance⁻¹ n is zᵀz.
    mahalanobis = np.einsum("ia,ab,ib->i", n, np.linalg.inv(covariance), n)
    np.testing.assert_allclose(mahalanobis, np.sum(units**2, axis=1), rtol=1e-10)

    played = [by_hand(M, w) + noise for w, noise in zip(windows, n, strict=True)]

    def log_likelihood(M):
        return sum(
            weight * jax.scipy.stats.multivariate_normal.logpdf(u, by_hand(M, w), covariance)
            for weight, u, w in zip(weights, played, windows, strict=True)
        )

    trees_close(
        jax.jit(policy.score)(M, n, windows, weights, hyper),
        jax.jit(jax.grad(log_likelihood))(M),
    )

    # action_score is the same gradient in the mean of the action, for PD1.
    def in_the_mean(mean):
        return jax.scipy.stats.multivariate_normal.logpdf(played[0], mean, covariance)

    trees_close(
        jax.jit(policy.action_score)(M, windows[0], units[0], None, hyper),
        jax.jit(jax.grad(in_the_mean))(by_hand(M, windows[0])),
    )


@pytest.mark.parametrize("map_name", MAPS)
@pytest.mark.parametrize("score_at", ["drawn", "current"])
def test_softmax_score_is_the_gradient_of_the_log_probability(map_name, score_at):
    make, by_hand = MAPS[map_name]
    pi, (windows, weights) = make(), windows_and_weights(5)
    policy = policies.softmax(pi, D_U, score_at=score_at)
    drew = [random_like(pi, seed=s) for s in (6, 7, 8)]  # M moves between the steps
    now = random_like(pi, seed=9)
    logits = np.random.default_rng(10).normal(size=(3, D_U))
    actions = [2, 0, 1]
    record = jax.jit(policy.record)
    records = [
        record(M, w, np.zeros(D_U), one_step(u, row), {})
        for M, w, u, row in zip(drew, windows, actions, logits, strict=True)
    ]
    records = jax.tree.map(lambda *leaves: np.stack(leaves), *records)

    def log_probability(Ms):
        each = [
            jax.nn.log_softmax(logits[i] + by_hand(Ms[i], windows[i]))[actions[i]] for i in range(3)
        ]
        return weights @ jnp.stack(each)

    # The gradient in an M of each step's own, summed.
    slopes = jax.jit(jax.grad(log_probability))(drew if score_at == "drawn" else [now] * 3)
    wanted = jax.tree.map(lambda *leaves: sum(map(np.asarray, leaves)), *slopes)
    trees_close(jax.jit(policy.score)(now, records, windows, weights, {}), wanted)


@pytest.mark.parametrize("score_at", ["drawn", "current"])
def test_softmax_scores_of_an_ended_episode_are_zero(score_at):
    pi, (windows, weights) = ww.mlp(4)(H, D_U, D_W), windows_and_weights(5)
    policy = policies.softmax(pi, D_U, score_at=score_at)
    M = random_like(pi, seed=6)
    seen = one_step(1, np.ones(D_U))
    record = jax.eval_shape(policy.record, M, windows[0], np.zeros(D_U), seen, {})
    blank = jax.tree.map(lambda leaf: np.zeros((3, *leaf.shape), leaf.dtype), record)
    score = jax.jit(policy.score)(M, blank, windows, weights, {})
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(score))


def test_parameter_noise_plays_the_perturbed_map_and_scores_its_draw():
    # Whatever the map, u - base is π(window | M + δε); the score is (dim M/δ) Σ weights ε.
    pi, (windows, weights) = ww.mlp(4)(H, D_U, D_W), windows_and_weights(11)
    M = random_like(pi, seed=12)
    size = 4 * H * D_W + 4 + D_U * 4 + D_U
    policy, hyper = policies.parameter_noise(pi, size), {"delta": np.asarray(0.3)}
    unit = np.random.default_rng(13).normal(size=size)
    epsilon = on_host(jax.jit(policy.record)(M, windows[0], unit, None, hyper))
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(epsilon)])
    np.testing.assert_allclose(flat, unit / np.linalg.norm(unit), rtol=1e-12)

    plan = on_host(jax.jit(policy.plan)(M, windows[0], unit, hyper))
    perturbed = jax.tree.map(lambda m, e: m + 0.3 * e, M, epsilon)
    np.testing.assert_allclose(plan.correction, mlp_by_hand(M, windows[0]), rtol=1e-12)
    np.testing.assert_allclose(
        plan.correction + plan.draw, mlp_by_hand(perturbed, windows[0]), rtol=1e-12
    )

    three = jax.tree.map(lambda e: np.stack([e, 2 * e, -e]), epsilon)
    total = float(weights[0] + 2 * weights[1] - weights[2])
    trees_close(
        jax.jit(policy.score)(M, three, windows, weights, hyper),
        jax.tree.map(lambda e: size / 0.3 * total * e, epsilon),
    )


@pytest.mark.parametrize("d_u", [1, 3])
def test_sphere_draws_have_norm_delta_and_no_direction(d_u):
    draws = draws_of(ww.bandit_gpc(d_u, 1, h=1, delta=0.3), seed=0)
    np.testing.assert_allclose(np.linalg.norm(draws, axis=1), 0.3, rtol=1e-12)
    # Uniform on the sphere: mean 0, second moment (δ²/d_u) I, fourth moment 3δ⁴/(d_u(d_u + 2)).
    for moment, wanted in [
        (draws, np.zeros(d_u)),
        (np.einsum("na,nb->nab", draws, draws), 0.3**2 / d_u * np.eye(d_u)),
        (draws**4, np.full(d_u, 3 * 0.3**4 / (d_u * (d_u + 2)))),
    ]:
        error = moment.std(axis=0) / np.sqrt(len(draws)) + 1e-15
        assert np.all(np.abs(moment.mean(axis=0) - wanted) < 4.5 * error)


def test_gaussian_draws_have_the_covariance_asked_for():
    Sigma = SIGMAS["full"]
    draws = draws_of(ww.mf_gpc(D_U, 1, h=1, sigma=0.5, Sigma=Sigma, signal="w"), seed=1)
    products = np.einsum("na,nb->nab", draws, draws)
    error = products.std(axis=0) / np.sqrt(len(draws))
    assert np.all(np.abs(products.mean(axis=0) - 0.25 * Sigma) < 4.5 * error)
    assert np.all(np.abs(draws.mean(axis=0)) < 4.5 * draws.std(axis=0) / np.sqrt(len(draws)))


def test_sphere_scores_as_the_gaussian_at_delta_sigma_root_d_u():
    # (d_u/δ²) n = n/σ² where δ² = σ² d_u (deviation 7), for any n.
    n, sigma = jnp.array([0.3, -0.1, 0.7, 0.2]), 0.35
    sphere = policies.sphere().precision(n, {"delta": jnp.asarray(sigma * 2.0)})
    np.testing.assert_allclose(sphere, n / sigma**2, rtol=1e-12)
    np.testing.assert_allclose(
        policies.gaussian().precision(n, {"sigma": jnp.asarray(sigma)}), sphere, rtol=1e-12
    )


def test_sigma_zero_explores_nothing_scores_zero_and_keeps_M():
    algorithm = ww.mf_gpc(1, 1, h=2, eta=1, sigma=0, signal="w", M0=[[[1]], [[2]]])
    trace = play(algorithm, np.ones((4, 1, 1)), [step([5], w=[[w]]) for w in (1, 2, 3)])
    assert all(plan.draw.item() == 0 for plan in trace.plans)
    assert [plan.correction.item() for plan in trace.plans] == [0, 1, 4, 7]
    assert all(np.all(info.gradient == 0) for info in trace.infos)
    np.testing.assert_array_equal(trace.Ms[-1].ravel(), [1, 2])


def test_gumbel_argmax_draws_the_softmax():
    pi = parametrisations.linear(1, 4, 1)
    policy = policies.softmax(pi, 4, score_at="drawn")
    M, window = np.array([1.0, -1.0, 0.5, 0.0]).reshape(1, 4, 1), np.array([[0.8]])
    logits, N = np.array([0.1, 0.9, -0.4, 0.2]), 40_000
    units = policy.unit_sampler(jax.random.key(2), (N, *policy.unit_shape))
    plan = jax.jit(jax.vmap(lambda unit: policy.plan(M, window, unit, {})))(units)
    actions = np.asarray(policy.apply(on_host(plan), logits))
    scores = np.exp(logits + 0.8 * np.array([1.0, -1.0, 0.5, 0.0]))
    counts = np.bincount(actions, minlength=4)
    # The p-value of a right sampler is uniform; a wrong one's is 0 at this N.
    assert scipy.stats.chisquare(counts, N * scores / scores.sum()).pvalue > 1e-3


@pytest.mark.parametrize("module", [np, jnp], ids=["numpy", "jax"])
def test_apply_is_written_once_for_numpy_and_jax(module):
    plan = Plan(module.asarray([[0.5, 1.0], [3.0, 0.0]]), module.asarray([[0.0, 0.25], [0.0, 2.0]]))
    base = module.asarray([[1.0, 1.0], [0.0, 0.0]])
    added, chosen = policies.add(plan, base), policies.gumbel_argmax(plan, base)
    kind = np.ndarray if module is np else jax.Array
    assert isinstance(added, kind)
    assert isinstance(chosen, kind)
    assert added.tolist() == [[1.5, 2.25], [3.0, 2.0]]
    assert chosen.tolist() == [1, 0]
    assert ww.mf_gpc(2, 2).apply is policies.add
    assert ww.dmf_gpc(2, 2).apply is policies.gumbel_argmax
