"""Temporal-difference learning of Q(x, u), of one cost or of a vector of them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from windward.policies.networks import Params, critic


def td_goal(target: Params, G: Any, discount: Any, x_next: Any, u_next: Any) -> jax.Array:
    """G + discount·Q̄(x_next, u_next), a column for each cost."""
    return G + discount[:, None] * critic(target, x_next, u_next)


def squared_loss(params: Params, goal: Any, x: Any, u: Any) -> jax.Array:
    """½ E |goal - Q(x, u)|²."""
    return 0.5 * jnp.square(goal - critic(params, x, u)).sum(axis=-1).mean()


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
    goal = jax.lax.stop_gradient(td_goal(target, G, discount, x_next, u_next))
    return squared_loss(params, goal, x, u)


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
