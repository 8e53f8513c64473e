"""Temporal-difference learning of Q(x, u), of one cost or of a vector of them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

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


class TD(NamedTuple):
    """A network, its slow copy that targets are taken from, and Adam's memory."""

    params: Params
    target: Params
    optimiser: Any


TAU = 0.01
"""share of its way to the network that the slow copy goes in an update"""


ADAM = optax.scale_by_adam()


def td_init(params: Params) -> TD:
    """Before the first update."""
    return TD(params, params, ADAM.init(params))


def td_update(state: TD, rows: Any, rate: Any) -> TD:
    """One step of Adam on rows as `td_loss` takes them; to be compiled."""
    slope = jax.grad(td_loss)(state.params, state.target, *rows)
    change, memory = ADAM.update(slope, state.optimiser)
    params = jax.tree.map(lambda p, d: p - rate * d, state.params, change)
    return TD(params, optax.incremental_update(params, state.target, TAU), memory)
