"""Convex sets that hold M, and the Euclidean projections onto them.

``apply(M, hyper, margin)`` projects onto the set shrunk by ``margin``: BPC perturbs M itself by
δε and stays inside the set only if M keeps a distance of δ from its border.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from windward import checks
from windward.types import Array, Hyper, PyTree


class Projection(NamedTuple):
    """A projection and the numbers it reads from hyper (which may be grids)."""

    apply: Callable[[PyTree, Hyper, Array], PyTree]
    hyper: dict[str, np.ndarray]


def _project_frobenius(M: PyTree, hyper: Hyper, margin: Array) -> PyTree:
    return optax.projections.projection_l2_ball(M, jnp.maximum(hyper["radius"] - margin, 0.0))


def _project_spectral(M: PyTree, hyper: Hyper, margin: Array) -> PyTree:
    if not isinstance(M, jax.Array) or M.ndim != 3:
        raise ValueError("dac_set projects linear M of shape (h, d_u, d_w); use frobenius_ball")
    i = jnp.arange(1, M.shape[0] + 1)
    radii = 2 * hyper["kappa"] ** 4 * (1 - hyper["alpha"]) ** i
    radii = jnp.maximum(radii - margin, 0.0)[:, None, None]
    if min(M.shape[1:]) == 1:  # a vector: its spectral norm is its length
        norms = jnp.sqrt(jnp.sum(M**2, axis=(1, 2), keepdims=True))
        return M * jnp.minimum(1.0, radii / jnp.where(norms > 0, norms, 1.0))
    # Singular values are clipped through the Gram matrix of the shorter side: an eigenproblem of
    # size min(d_u, d_w), several times cheaper than the singular value decomposition.
    wide = M if M.shape[1] <= M.shape[2] else jnp.swapaxes(M, 1, 2)
    size = jnp.max(jnp.abs(wide), axis=(1, 2), keepdims=True)  # squares of it must not overflow
    unit = wide / jnp.where(size > 0, size, 1.0)
    squares, vectors = jnp.linalg.eigh(unit @ jnp.swapaxes(unit, 1, 2))
    s = size * jnp.sqrt(jnp.maximum(squares, 0.0))[:, None, :]
    excess = jnp.maximum(s - radii, 0.0) / jnp.where(s > 0, s, 1.0)
    inside = wide - (vectors * excess) @ (jnp.swapaxes(vectors, 1, 2) @ wide)
    return inside if wide is M else jnp.swapaxes(inside, 1, 2)


def frobenius_ball(radius: Any) -> Projection:
    """{M : ‖M‖_F ≤ radius}, over all of M."""
    return Projection(_project_frobenius, {"radius": checks.positive("radius", radius)})


DEFAULT_BALL = frobenius_ball(10.0)


def dac_set(kappa: Any, alpha: Any) -> Projection:
    """The paper's comparator set: M_i with spectral norm at most 2κ⁴(1-α)^i (assumption 4).

    `windward.linear.strong_stability` gives (κ, α) of a closed loop.
    """
    kappa, alpha = checks.positive("kappa", kappa), checks.positive("alpha", alpha)
    if (kappa < 1).any() or (alpha > 1).any():
        raise ValueError(
            f"dac_set needs kappa >= 1 and 0 < alpha <= 1; got kappa={kappa}, alpha={alpha}"
        )
    return Projection(_project_spectral, {"kappa": kappa, "alpha": alpha})
