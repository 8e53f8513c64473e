"""An algorithm as pure functions: `init` and `observe`, put together from parts.

The paper's Algorithms 1, 2 and 3 are one loop (`algo:generic`): act with the plan, observe the
step, compute ŵ_t, form the gradient from windows that end before ŵ_t, update M, let ŵ_t enter,
and plan the next step. The parts differ: signal, policy, estimator, credit, update.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from windward.core import history
from windward.core.credit import Credit, Look
from windward.core.estimators import Estimator
from windward.core.policies import Policy
from windward.core.signals import Signal
from windward.core.updates import Transform
from windward.types import Array, Hyper, Info, Learner, Local, Plan, State, Transition


class Algorithm(NamedTuple):
    """An adaptive controller as pure functions of arrays.

    ``init(hyper, unit) -> (State, Plan)``; ``observe(State, Transition, unit) -> (State, Plan,
    Info)`` takes the step just made and plans the next one, so nothing is pending between
    steps. ``unit`` is the random draw behind the next plan, ``unit(key, B)``, an input like any
    other; ``learn=False`` lets ŵ enter the windows and leaves the learner.
    ``apply(plan, base)`` makes the action. ``hyper`` holds the numbers the algorithm was
    made with; those named in ``grid`` may be arrays, one program then serves a whole grid.
    ``clock`` says when M is updated: every so many steps, or episodes where that is not None.
    ``held``, a `core.held.Held`, is there where M stays for some steps and a host can plan them.
    ``d_x`` is the size of the states that it looks at, 0 if it looks at none.
    """

    name: str
    init: Callable[[Hyper, Array], tuple[State, Plan]]
    observe: Callable[..., tuple[State, Plan, Info]]
    unit: Callable[[Array, int], Array]
    apply: Callable[[Plan, Array], Array]
    needs: tuple[str, ...]
    signal: str
    gamma: float
    d_u: int
    d_w: int
    h: int
    hyper: dict[str, np.ndarray]
    grid: tuple[str, ...]
    clock: tuple[int, int | str | None] = (1, None)
    held: Any = None
    d_x: int = 0


# Numbers of hyper that recipes take as arrays too, for a grid of programs.
NUMBERS = ("eta", "weight_decay", "sigma", "delta", "radius", "kappa", "alpha", "sigma_end")


class Functions(NamedTuple):
    """The part of an `Algorithm` that is compiled: hashable, and shared by equal specs."""

    init: Callable[[Hyper, Array], tuple[State, Plan]]
    observe: Callable[..., tuple[State, Plan, Info]]
    unit: Callable[[Array, int], Array]
    apply: Callable[[Plan, Array], Array]
    needs: tuple[str, ...]


ANNEAL = 1500.0
"""steps over which the exploration noise falls to ``sigma_end``, where hyper holds one"""


def annealed(hyper: Hyper) -> Hyper:
    """σ ← σ - (σ - σ_end)/1500: models need much noise at first and little later."""
    if "sigma_end" not in hyper:
        return hyper
    sigma, end = hyper["sigma"], hyper["sigma_end"]
    return {**hyper, "sigma": sigma - (sigma - end) / ANNEAL}


def all_finite(tree: Any) -> Array:
    """Whether all numbers of a tree are finite."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


Planning = Callable[[Learner, Local], Plan]


def planning(policy: Policy, h: int) -> Planning:
    """The plans of all environments for the next step."""

    def plan_all(learner: Learner, local: Local) -> Plan:
        def one(w_hist: Array, unit: Array) -> Plan:
            plan = policy.plan(learner.M, w_hist[:h], unit, learner.hyper)
            # A finite ŵ may still overflow: then the base policy acts alone.
            return plan._replace(
                correction=history.zero_if(~all_finite(plan.correction), plan.correction)
            )

        return jax.vmap(one)(local.w_hist, local.unit)

    return plan_all


def assemble(
    *,
    h: int,
    d_u: int,
    d_w: int,
    gamma: float,
    signal: Signal,
    policy: Policy,
    estimator: Estimator,
    credit: Credit,
    counts_episodes: bool,
    update: Transform,
) -> Functions:
    """The loop of `algo:generic` from its parts."""
    needs = tuple(dict.fromkeys((*signal.needs, *policy.aux, *credit.needs)))
    length = h + estimator.lags - 1

    plan_all = planning(policy, h)

    def blank_transition() -> Transition:
        """One step of the right shapes for a record; only its structure is used."""
        number, flag = jnp.zeros(()), jnp.zeros((), bool)
        index, logits = jnp.zeros((), jnp.int32), {name: jnp.zeros(d_u) for name in policy.aux}
        return Transition(number, index, number, number, logits, flag, flag, flag)

    def init(hyper: Hyper, unit: Array) -> tuple[State, Plan]:
        for name in NUMBERS:
            if np.ndim(hyper.get(name, 0.0)):
                raise ValueError(
                    f"{name} must be one number in init; it is a grid of shape "
                    f"{np.shape(hyper[name])}: vmap over it, or use windward.linear.simulate"
                )
        if unit.shape[1:] != policy.unit_shape:
            raise ValueError(
                f"unit must have shape (B, *{policy.unit_shape}), as Algorithm.unit(key, B) has; "
                f"got {unit.shape}"
            )
        hyper = jax.tree.map(lambda value: jnp.asarray(value, jnp.zeros(()).dtype), hyper)
        B = unit.shape[0]
        M = hyper["M0"] if "M0" in hyper else policy.init()
        record = jax.eval_shape(
            policy.record, M, jnp.zeros((h, d_w)), unit[0], blank_transition(), hyper
        )
        records = jax.tree.map(
            lambda leaf: jnp.zeros((B, estimator.lags, *leaf.shape), leaf.dtype), record
        )
        w_hist = jnp.zeros((B, length, d_w))
        local = Local(w_hist, records, unit, jnp.zeros((B,), jnp.int32))
        learner = Learner(M, update.init(M), credit.init(), hyper)
        return State(local, learner), plan_all(learner, local)

    def observe(
        state: State, tr: Transition, unit: Array, learn: Array | bool = True
    ) -> tuple[State, Plan, Info]:
        missing = [name for name in needs if name not in tr.aux]
        if missing:
            raise ValueError(f"aux must hold {', '.join(needs)}; missing: {', '.join(missing)}")
        old, learner = state
        M, hyper = learner.M, learner.hyper

        def look(local: Local, tr: Transition) -> tuple[Array, Local, Array]:
            window = local.w_hist[:h]
            score = (
                policy.action_score(M, window, local.unit, tr, hyper)
                if policy.action_score is not None and (signal.uses_score or policy.aux)
                else jnp.zeros(d_u)
            )
            w_hat = signal.compute(tr, score, gamma)
            if w_hat.shape != (d_w,):
                raise ValueError(
                    f"signal {signal.name!r} must give d_w = {d_w} numbers; got shape {w_hat.shape}"
                )
            record = policy.record(M, window, local.unit, tr, hyper)
            # The score, not the record: a masked action's logit may well be -inf.
            finite = all_finite((tr.c, w_hat, score, [tr.aux[name] for name in credit.needs]))
            return w_hat, local._replace(records=history.push(local.records, record)), finite

        w_hat, seen, finite = jax.vmap(look)(old, tr)
        accepted = tr.valid & finite
        if tr.usable is not None:
            accepted = accepted & tr.usable
        # Refused steps must not reach a product: 0 * nan is nan.
        tr = tr._replace(c=jnp.where(accepted, tr.c, 0.0))
        w_hat = jnp.where(accepted[:, None], w_hat, 0.0)

        credit_state, credited = credit.update(
            learner.credit, Look(tr, seen, w_hat, accepted), hyper
        )
        gradients = jax.vmap(estimator.gradient, (None, 0, 0, 0, None))(
            M, credited, seen, tr, hyper
        )
        # Environments share M: gradients are averaged, episodes counted in total (deviation 12).
        share = accepted / jnp.maximum(jnp.sum(accepted), 1)

        def weigh(ok: Array, share: Array, g: Array) -> Array:
            return jnp.where(ok, share * g, 0.0)

        gradient = jax.tree.map(
            lambda g: jnp.sum(jax.vmap(weigh)(accepted, share, g), axis=0), gradients
        )

        # An episode ends even at a step whose cost or ŵ is refused, and is counted where it counts.
        finished = tr.valid & (tr.terminated | tr.truncated)
        heard = accepted | finished if counts_episodes else accepted
        step, optimiser = update.update(
            gradient,
            learner.optimiser,
            M,
            hyper=hyper,
            episodes=jnp.sum(finished, dtype=jnp.int32),
            steps=jnp.ones((), jnp.int32),
        )
        moved = Learner(optax.apply_updates(M, step), optimiser, credit_state, annealed(hyper))
        learner = history.keep_if(
            learn & jnp.any(heard) & all_finite((moved.M, moved.optimiser)), moved, learner
        )

        def enter(
            old: Local, seen: Local, w_hat: Array, unit: Array, ok: Array, end: Array
        ) -> Local:
            entered = Local(history.push(seen.w_hist, w_hat), seen.records, unit, old.t + 1)
            local = history.keep_if(ok, entered, old)
            # An episode's end zeroes the windows and keeps M (deviation 10).
            w_hist, records = history.zero_if(end, (local.w_hist, local.records))
            return local._replace(w_hist=w_hist, records=records)

        local = jax.vmap(enter)(old, seen, w_hat, unit, accepted, finished)
        return State(local, learner), plan_all(learner, local), Info(w_hat, gradient, accepted)

    def unit(key: Array, B: int = 1) -> Array:
        return policy.unit_sampler(key, (B, *policy.unit_shape))

    return Functions(init, observe, unit, policy.apply, needs)
