"""Several steps at one M, seen at once: what a host hands over when M is about to move.

While M stays, steps of `algo:generic` do not wait for each other, and their gradients only add up:
Σ_t c_t Σ_i trace[i] ∇_M log π(step t-i) = Σ_s (Σ_i trace[i] c_{s+i}) ∇_M log π(step s).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from windward.core import history
from windward.core.algorithm import all_finite, planning
from windward.core.policies import Policy
from windward.core.updates import Transform
from windward.types import Array, Local, Plan, State, Transition


class Held(NamedTuple):
    """What a host needs to plan by itself while M stays: u = base + Σ M_i ŵ_{t-i} + σ·unit.

    M can change at every ``steps``-th step that teaches (None: at none), and where an episode ends.
    ``w_hat(aux, gamma)`` is ŵ of a step. ``observe(state, past, c, unit, count, learn)`` takes K
    steps that were accepted and ended no episode: ``past`` is `Local.w_hist` with the K new ŵ
    before it, newest first, ``c`` has shape (K, B) and ``unit`` (K, B, d_u). If ``count`` is less
    than K, the later ones hold zeros.
    """

    steps: int | None
    w_hat: Callable[[dict[str, Any], float], Any]
    observe: Callable[..., tuple[State, Plan]]


def observing(
    h: int, policy: Policy, trace: tuple[float, ...], update: Transform
) -> Callable[..., tuple[State, Plan]]:
    """`Held.observe` with the plain cost as credit."""
    plan_all, lags = planning(policy, h), len(trace)

    def observe(
        state: State, past: Array, c: Array, unit: Array, count: Array, learn: Array
    ) -> tuple[State, Plan]:
        old, learner = state
        M, hyper = learner.M, learner.hyper
        K = len(c)
        scores = K + lags - 1  # of steps that a cost of these is credited to

        def one(local: Local, past: Array, c: Array, unit: Array) -> tuple[Any, Local]:
            windows = jnp.stack([past[1 + i : 1 + i + scores] for i in range(h)], axis=1)
            units = jnp.concatenate([local.unit[None], unit])

            def record(window: Array, unit: Array, c: Array) -> Any:
                return policy.record(M, window, unit, _step(c), hyper)

            new = jax.vmap(record)(windows[:K], units[:K][::-1], c[::-1])
            records = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), new, local.records)
            later = jnp.concatenate([jnp.zeros(lags - 1), c[::-1], jnp.zeros(lags - 1)])
            credited = [
                weight * later[lags - 1 - i : lags - 1 - i + scores]
                for i, weight in enumerate(trace)
            ]
            credit = jnp.sum(jnp.stack(credited), axis=0)
            used = jax.tree.map(lambda leaf: leaf[:scores], records)
            total = policy.score(M, used, windows, credit, hyper)

            def newest(leaf: Array, length: int) -> Array:
                return jax.lax.dynamic_slice_in_dim(leaf, K - count, length)

            return total, Local(
                newest(past, len(local.w_hist)),
                jax.tree.map(lambda leaf: newest(leaf, lags), records),
                units[count],
                local.t + count,
            )

        totals, local = jax.vmap(one, (0, 0, 1, 1))(old, past, c, unit)
        total = jax.tree.map(lambda g: jnp.mean(g, axis=0), totals)
        step, optimiser = update.update(
            total, learner.optimiser, M, hyper=hyper, episodes=jnp.zeros((), jnp.int32), steps=count
        )
        moved = learner._replace(M=optax.apply_updates(M, step), optimiser=optimiser)
        learner = history.keep_if(learn & all_finite((moved.M, moved.optimiser)), moved, learner)
        return State(local, learner), plan_all(learner, local)

    return observe


def _step(c: Array) -> Transition:
    """A step of which the cost is all that matters."""
    nothing, no = jnp.zeros(()), jnp.zeros((), bool)
    return Transition(nothing, nothing, c, nothing, {}, no, no, ~no)
