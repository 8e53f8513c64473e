"""Projections onto sets that hold M, certified by duality rather than by another projection.

P is the projection of M onto a convex set iff P is in it and ⟨M - P, Z⟩ ≤ ⟨M - P, P⟩ for all Z in
it. The left side's maximum over a ball is radius times the dual norm: Frobenius is its own dual,
the spectral norm's is the nuclear norm.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import windward as ww

from .drive import compiled, play, step

pytestmark = pytest.mark.usefixtures("x64")


def certify(M, P, radius, norm, dual):
    """Whether P is the projection of the matrix (or vector) M onto {norm ≤ radius}."""
    assert norm(P) <= radius + 1e-9
    assert radius * dual(M - P) <= np.sum((M - P) * P) + 1e-9


def spectral(M):
    return np.linalg.svd(M, compute_uv=False).max()


def nuclear(M):
    return np.linalg.svd(M, compute_uv=False).sum()


def hyper_of(projection):
    return {name: jnp.asarray(value) for name, value in projection.hyper.items()}


def project(projection, M, margin=0.0):
    return compiled(projection.apply)(M, hyper_of(projection), jnp.asarray(margin))


def test_frobenius_ball_by_hand():
    # ‖(3, 4)‖ = 5 is scaled to 2, and to 2 - ½ with a margin of ½; inside nothing moves.
    M = jnp.array([3.0, 4.0]).reshape(2, 1, 1)
    ball = ww.frobenius_ball(2)
    np.testing.assert_allclose(project(ball, M).ravel(), [1.2, 1.6], rtol=1e-12)
    np.testing.assert_allclose(project(ball, M, 0.5).ravel(), [0.9, 1.2], rtol=1e-12)
    np.testing.assert_array_equal(project(ball, M / 4).ravel(), [0.75, 1.0])
    np.testing.assert_array_equal(project(ball, M, 3.0).ravel(), [0, 0])  # nothing is left
    np.testing.assert_array_equal(project(ball, 0 * M).ravel(), [0, 0])


@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_frobenius_ball_is_over_all_of_M(margin):
    rng = np.random.default_rng(0)
    M = {"a": jnp.asarray(rng.normal(size=(2, 3))), "b": jnp.asarray(rng.normal(size=4))}
    P = project(ww.frobenius_ball(1.5), M, margin)
    together = [np.concatenate([t["a"].ravel(), t["b"]]) for t in (M, P)]
    certify(*together, 1.5 - margin, np.linalg.norm, np.linalg.norm)
    assert np.linalg.norm(together[1]) == pytest.approx(1.5 - margin)


def test_dac_set_by_hand():
    # κ = 1, α = ½: radii 2·½ = 1 and 2·¼ = ½. diag(3, ½) -> diag(1, ½); diag(¼, 2) -> diag(¼, ½).
    M = jnp.array([np.diag([3.0, 0.5]), np.diag([0.25, 2.0])])
    got = project(ww.dac_set(1, 0.5), M)
    np.testing.assert_allclose(got, [np.diag([1, 0.5]), np.diag([0.25, 0.5])], atol=1e-12)
    # κ = 2 has 2·16·½^i; α = 1 leaves only 0.
    np.testing.assert_allclose(project(ww.dac_set(2, 0.5), 100 * M[:, :1, :1]).ravel(), [16, 8])
    np.testing.assert_allclose(project(ww.dac_set(2, 1), M), np.zeros((2, 2, 2)), atol=1e-12)


SHAPES = [(3, 2, 2), (3, 2, 4), (3, 4, 2), (3, 1, 3), (3, 3, 1), (3, 1, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("margin", [0.0, 0.2])
def test_dac_set_is_the_nearest_point(shape, margin):
    # κ⁴ = 1.4641, α = 0.6: radii 2.928·0.4^i = 1.171, 0.4685, 0.1874; the last leaves no room
    # for a margin of 0.2.
    radii = [max(2 * 1.1**4 * 0.4**i - margin, 0) for i in (1, 2, 3)]
    dac = ww.dac_set(1.1, 0.6)
    for seed, scale in enumerate([0.05, 1.0, 5.0]):
        M = scale * np.random.default_rng(seed).normal(size=shape)
        P = np.asarray(project(dac, jnp.asarray(M), margin))
        for i in range(3):
            certify(M[i], P[i], radii[i], spectral, nuclear)
        np.testing.assert_allclose(project(dac, jnp.asarray(P), margin), P, atol=1e-12)


def test_dac_set_in_single_precision():
    with jax.enable_x64(False):
        M = np.random.default_rng(5).normal(size=(3, 4, 5)).astype(np.float32)
        M[1] *= 100
        M[2, 1:] = M[2, :1]  # rank one
        P = np.asarray(project(ww.dac_set(1, 0.5), jnp.asarray(M)))
    U, s, V = np.linalg.svd(M.astype(float), full_matrices=False)
    wanted = U * np.minimum(s, [[1.0], [0.5], [0.25]])[:, None, :] @ V
    np.testing.assert_allclose(P, wanted, atol=2e-4)


def test_nearest_among_random_points_of_the_set():
    rng = np.random.default_rng(1)
    M = 2 * rng.normal(size=(2, 2, 3))
    P = np.asarray(project(ww.dac_set(1, 0.5), jnp.asarray(M)))
    for _ in range(300):
        Z = rng.normal(size=M.shape)
        Z *= (
            np.array([1.0, 0.5])[:, None, None]
            * rng.uniform(0.5, 1)
            / (np.linalg.norm(Z, 2, axis=(1, 2), keepdims=True))
        )
        assert np.linalg.norm(M - P) < np.linalg.norm(M - Z)


@pytest.mark.parametrize("shape", [(2, 1, 3), (2, 3, 1)], ids=str)
def test_the_shortcut_for_vectors_equals_the_svd(shape):
    M = np.random.default_rng(2).normal(size=shape)
    U, s, V = np.linalg.svd(M, full_matrices=False)
    clipped = np.minimum(s, [[1.0], [0.5]])
    wanted = U * clipped[:, None, :] @ V
    np.testing.assert_allclose(project(ww.dac_set(1, 0.5), jnp.asarray(M)), wanted, atol=1e-12)
    assert np.all(project(ww.dac_set(1, 0.5), jnp.zeros(shape)) == 0)


def test_dac_set_refuses_what_is_not_linear():
    with pytest.raises(ValueError, match="dac_set projects linear M"):
        project(ww.dac_set(1, 0.5), {"W1": jnp.ones((2, 2))})


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: ww.frobenius_ball(0), "radius"),
        (lambda: ww.frobenius_ball(-1), "radius"),
        (lambda: ww.frobenius_ball(float("nan")), "radius"),
        (lambda: ww.dac_set(0.5, 0.5), "kappa"),
        (lambda: ww.dac_set(1, 0), "alpha"),
        (lambda: ww.dac_set(1, 1.5), "alpha"),
        (lambda: ww.dac_set("a", 0.5), "kappa"),
    ],
)
def test_bad_input(make, name):
    with pytest.raises(ValueError, match=name):
        make()


def test_bpc_keeps_a_margin_of_delta_and_bandit_gpc_needs_none():
    # A large cost throws M out of the ball of radius 3; BPC lands at 3 - δ, so that M + δε with
    # its ‖ε‖ = 1 stays inside, and Bandit GPC on the border.
    for recipe, radius in [(ww.bpc, 2.5), (ww.bandit_gpc, 3.0)]:
        algorithm = recipe(2, 2, h=1, eta=10, delta=0.5, projection=ww.frobenius_ball(3))
        units = np.random.default_rng(3).normal(size=(5, 1, 4 if recipe is ww.bpc else 2))
        trace = play(algorithm, units, [step([1e3], w=[[1, 2]])] * 4)
        assert np.linalg.norm(trace.Ms[-1]) == pytest.approx(radius, rel=1e-12)


def test_bpc_keeps_its_margin_in_the_dac_set():
    # Radii 1 and ½ less δ = ¼.
    algorithm = ww.bpc(1, 1, h=2, eta=10, delta=0.25, projection=ww.dac_set(1, 0.5))
    units = jax.random.normal(jax.random.key(4), (7, 1, 2))
    trace = play(algorithm, units, [step([1e3], w=[[1]])] * 6)
    np.testing.assert_allclose(np.abs(trace.Ms[-1]).ravel(), [0.75, 0.25], rtol=1e-12)
