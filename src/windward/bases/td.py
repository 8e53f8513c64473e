"""Temporal-difference learning of Q(x, u), of one cost or of a vector of them."""

from typing import Any

import jax
import jax.numpy as jnp

from windward.bases.networks import Params, critic


def td_loss(
    params: Params,
    target: Params,
    x: Any,
    u: Any,
    G: Any,
    discount: Any,
    x_next: Any,
    u_next: Any,
) -> jax.Array:
    """½ E |G + discount·Q̄(x_next, u_next) - Q(x, u)|²; G and Q have a column for each cost."""
    goal = G + discount[:, None] * critic(target, x_next, u_next)
    error = jax.lax.stop_gradient(goal) - critic(params, x, u)
    return 0.5 * jnp.square(error).sum(axis=-1).mean()
