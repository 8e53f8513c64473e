"""The losses of D4PG (Barth-Maron et al. 2018): categorical TD, and the policy's way up Q.

Rewards here are as the environment gives them; c = -reward is the business of adapt/.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from windward.policies.critics import value_of
from windward.policies.networks import Params, critic, forward, policy
from windward.policies.td import squared_loss, td_goal

LIMIT = 2.0
"""what the policy's output before tanh may reach for nothing: tanh(2) = 0.96"""


class Batch(NamedTuple):
    """n-step transitions, rows: R = Σ γ^k r_k, discount = γ^n, or 0 after termination.

    `vector` is Σ γ^k φ(x_k), for a vector head; None without one.
    """

    x: Any
    u: Any
    reward: Any
    discount: Any
    x_next: Any
    vector: Any = None


def project(reward: jax.Array, discount: jax.Array, p: jax.Array, atoms: jax.Array) -> jax.Array:
    """The distribution of reward + discount·Z on the atoms of Z, which are evenly spaced.

    Each moved atom, clipped to the ends, gives its mass to its two neighbours in proportion to how
    near they are (Bellemare, Dabney, Munos 2017).
    """
    last = atoms.shape[0] - 1
    step = (atoms[-1] - atoms[0]) / last
    moved = reward[:, None] + discount[:, None] * atoms
    place = jnp.clip((moved - atoms[0]) / step, 0.0, last)
    below = jnp.floor(place)
    share = place - below
    left = below.astype(jnp.int32)
    right = jnp.minimum(left + 1, last)
    rows = jnp.arange(p.shape[0])[:, None]
    return jnp.zeros_like(p).at[rows, left].add(p * (1.0 - share)).at[rows, right].add(p * share)


def critic_goal(target: Params, target_policy: Params, batch: Batch, atoms: jax.Array) -> jax.Array:
    """What the critic shall say of (x, u): a distribution on the atoms, or with one a value."""
    u_next = policy(target_policy, batch.x_next)
    if atoms.shape[0] == 1:
        return td_goal(target, batch.reward[:, None], batch.discount, batch.x_next, u_next)
    ahead = critic(target, batch.x_next, u_next)
    return project(batch.reward, batch.discount, jax.nn.softmax(ahead), atoms)


def critic_loss(params: Params, goal: jax.Array, x: jax.Array, u: jax.Array) -> jax.Array:
    """Cross-entropy to the goal's distribution, or squared error with one atom."""
    if goal.shape[1] == 1:
        return squared_loss(params, goal, x, u)
    return -(goal * jax.nn.log_softmax(critic(params, x, u))).sum(axis=-1).mean()


def policy_gradient(
    params: Params,
    critic_params: Params,
    x: jax.Array,
    atoms: jax.Array,
    clip: float,
    penalty: float,
) -> tuple[jax.Array, Params]:
    """(-mean Q(x, π(x)), its gradient in π); dQ/du has norm `clip` at most, for each sample.

    The gradient has a term more (deviation 19), of penalty/2·Σ max(|z| - 2, 0)², with π = tanh z:
    far out tanh is flat, and a policy that has gone there on an early critic's word would not come
    back.
    """
    z, pull_back = jax.vjp(lambda each: forward(each, x), params)
    u = jnp.tanh(z)

    def total(u: jax.Array) -> jax.Array:
        return value_of(critic(critic_params, x, u), atoms).sum()

    q, slope = jax.value_and_grad(total)(u)
    norm = jnp.linalg.norm(slope, axis=-1, keepdims=True)
    slope = slope * jnp.minimum(1.0, clip / jnp.maximum(norm, 1e-12))
    n = x.shape[0]
    excess = jnp.sign(z) * jnp.maximum(jnp.abs(z) - LIMIT, 0.0)
    (gradient,) = pull_back((penalty * excess - slope * (1.0 - u * u)) / n)
    return -q / n, gradient
