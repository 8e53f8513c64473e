"""Newest-first windows of the past: the only place in windward with time indices.

At step t, before ŵ_t enters, ``w_hist[j]`` is ŵ_{t-1-j}. The window that the policy saw i steps
ago, ŵ_{t-i-1 : t-i-h} of `algo:generic` line 6, is therefore ``w_hist[i : i + h]``, and
``window[i - 1]`` of the current one is the ŵ_{t-i} that meets M_i.
"""

import jax
import jax.numpy as jnp

from windward.types import Array, PyTree


def push(window: PyTree, newest: PyTree) -> PyTree:
    """The window one step later: `newest` at index 0, the oldest entry dropped."""
    return jax.tree.map(lambda old, new: jnp.concatenate([new[None], old[:-1]]), window, newest)


def past_windows(w_hist: Array, h: int, lags: int) -> Array:
    """The windows seen now and up to lags - 1 steps ago, shape (lags, h, d_w).

    Entry [i, j - 1] is ŵ_{t-i-j}; needs a history of h + lags - 1.

    >>> past_windows(jnp.arange(3.0)[:, None], h=2, lags=2)[..., 0].tolist()
    [[0.0, 1.0], [1.0, 2.0]]
    """
    return jnp.stack([w_hist[i : i + h] for i in range(lags)])


def keep_if(condition: Array, new: PyTree, old: PyTree) -> PyTree:
    """`new` where the scalar `condition` holds, else `old`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def zero_if(condition: Array, tree: PyTree) -> PyTree:
    """Zeros where the scalar `condition` holds: an episode ended and its windows end with it."""
    return jax.tree.map(lambda leaf: jnp.where(condition, jnp.zeros_like(leaf), leaf), tree)
