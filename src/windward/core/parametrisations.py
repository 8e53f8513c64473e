"""Maps from a window of ŵ to a correction, π(ŵ_{t-1:t-h} | M) (paper section 4).

Any differentiable map will do: the paper's J_i^t comes from autodiff. A factory takes
(h, d_u, d_w) and is hashable, so that algorithms built from it are cached and compile once.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp

from windward import checks
from windward.types import Array, PyTree


class Parametrisation(NamedTuple):
    """``init()`` gives M; ``apply(M, window)`` maps a window (h, d_w) to a correction (d_u,)."""

    init: Callable[[], PyTree]
    apply: Callable[[PyTree, Array], Array]


Factory = Callable[[int, int, int], Parametrisation]


@lru_cache
def linear(h: int, d_u: int, d_w: int) -> Parametrisation:
    """Disturbance-action control, Σ_{i=1..h} M_i ŵ_{t-i} (`actualdac`); M is (h, d_u, d_w)."""

    def apply(M: Array, window: Array) -> Array:
        # A sum of products, not an einsum: XLA fuses it where a batch of tiny matrix products
        # would be a library call each.
        return jnp.sum(M * window[:, None, :], axis=(0, 2))

    return Parametrisation(lambda: jnp.zeros((h, d_u, d_w)), apply)


@lru_cache
def mlp(width: int = 16, seed: int = 0) -> Factory:
    """A two-layer tanh network on the window; its last layer starts at 0, as M does."""
    checks.integer("width", width, 1)

    @lru_cache
    def factory(h: int, d_u: int, d_w: int) -> Parametrisation:
        def init() -> PyTree:
            key = jax.random.key(seed)
            return {
                "W1": jax.random.normal(key, (width, h * d_w)) / jnp.sqrt(h * d_w),
                "b1": jnp.zeros(width),
                "W2": jnp.zeros((d_u, width)),
                "b2": jnp.zeros(d_u),
            }

        def apply(M: PyTree, window: Array) -> Array:
            hidden = jnp.tanh(M["W1"] @ window.ravel() + M["b1"])
            return M["W2"] @ hidden + M["b2"]

        return Parametrisation(init, apply)

    return factory
