"""The compiled side of an engine: steps of rows of environments as one table in, one vector out.

A call pays for every array that it is handed, so the state travels packed, and what the host is
told stands before it in the same vector.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from windward.adapt.packing import Packing
from windward.core import signals, updates
from windward.core.algorithm import Functions
from windward.core.held import Held
from windward.types import Plan, State, Transition

HEAD = 6  # columns before aux values: c, terminated, truncated, valid, usable, learn; then index u
SCALARS = (signals.V_NOW, signals.V_NEXT, signals.Q_NOW)  # aux of one number for each row
VECTORS = (signals.W, signals.C_VEC, signals.V_VEC_NEXT, signals.Q_VEC)  # aux of d_w numbers
STATES = (signals.X_NOW, signals.X_NEXT)  # aux of d_x numbers


class Shape(NamedTuple):
    """What a program is compiled for."""

    rows: int
    shared: bool  # whether rows have one M
    d_u: int
    d_w: int
    h: int
    steps: int  # that the host plans itself and hands over at once; 1 for none
    d_x: int = 0  # of states, where they are looked at


class Program(NamedTuple):
    """The compiled calls and the layout of what they take and give."""

    observe: Callable[..., Any]  # (vector, table (rows, width)) to the next vector
    observe_held: Callable[..., Any]  # (vector, past, table) of a `Planner` to the next vector
    init: Callable[..., Any]  # (hyper, unit) to a vector
    packing: Packing
    columns: tuple[tuple[str, slice], ...]  # of aux in the table
    unit_columns: slice
    width: int
    told: dict[str, slice]  # where a vector has what
    state: slice


def _told(shape: Shape) -> dict[str, int]:
    """The sizes of what the host is told, in their order.

    These are: correction and noise added up, whether rows were accepted, correction, noise, ŵ; and
    for a host that plans: M, past ŵ, σ, and the steps summed up since the last update.
    """
    rows, _, d_u, d_w, h, steps, _ = shape
    sizes = {
        "added": rows * d_u,
        "accepted": rows,
        "correction": rows * d_u,
        "draw": rows * d_u,
        "w_hat": rows * d_w,
    }
    if steps > 1:
        learners = 1 if shape.shared else rows
        sizes |= {
            "M": learners * h * d_u * d_w,
            "past": rows * (2 * h - 1) * d_w,
            "sigma": learners,
            "counted": learners,
        }
    return sizes


@lru_cache(maxsize=64)
def program(
    functions: Functions,
    held: Held | None,
    shape: Shape,
    hyper_shapes: tuple[tuple[str, tuple[int, ...]], ...],
    dtype: Any,
) -> Program:
    """The compiled steps for a shape; equal recipes share them."""
    rows, shared, d_u, d_w, _, steps, d_x = shape
    key = jax.random.key(0)
    unit_shape = jax.eval_shape(lambda: functions.unit(key, 1)).shape[1:]
    unit_size = int(np.prod(unit_shape))
    sizes = {signals.LOGITS: d_u, **dict.fromkeys(SCALARS, 1), **dict.fromkeys(VECTORS, d_w)}
    sizes |= dict.fromkeys(STATES, d_x)
    discrete = signals.LOGITS in functions.needs
    ends = list(accumulate((sizes[name] for name in functions.needs), initial=HEAD + discrete))
    columns = tuple(zip(functions.needs, map(slice, ends, ends[1:]), strict=True))
    unit_columns = slice(ends[-1], ends[-1] + unit_size)
    hyper_like = {name: jax.ShapeDtypeStruct(each, dtype) for name, each in hyper_shapes}

    told_sizes = _told(shape)
    told_ends = list(accumulate(told_sizes.values()))
    told = dict(zip(told_sizes, map(slice, [0, *told_ends], told_ends), strict=False))
    behind = slice(told_ends[-1], None)

    def initial(hyper: Any, unit: jax.Array) -> tuple[State, Plan]:
        unit = unit.reshape(rows, *unit_shape)
        if shared:
            return functions.init(hyper, unit)
        return jax.vmap(lambda own: functions.init(hyper, own[None]))(unit)

    unit_like = jax.ShapeDtypeStruct((rows, unit_size), dtype)
    packing = Packing(jax.eval_shape(initial, hyper_like, unit_like)[0], dtype)

    def for_host(state: State) -> tuple[Any, ...]:
        """M, past ŵ, σ and the count of a host that plans itself."""
        local, learner = state
        counted = updates.steps_counted(learner.optimiser)
        if not shared:
            counted = jnp.broadcast_to(counted, (rows,))
        return learner.M, local.w_hist, learner.hyper["sigma"], counted

    def joined(state: State, plan: Plan, w_hat: Any, accepted: Any) -> jax.Array:
        parts = [plan.correction + plan.draw, accepted, plan.correction, plan.draw, w_hat]
        if steps > 1:
            parts += for_host(state)
        flat = [jnp.ravel(each).astype(dtype) for each in parts]
        return jnp.concatenate([*flat, packing.pack(state)])

    def init(hyper: Any, unit: jax.Array) -> jax.Array:
        state, plan = initial(hyper, unit)
        return joined(state, plan, jnp.zeros((rows, d_w)), jnp.ones(rows))

    def one(state: State, table: jax.Array) -> tuple[State, Plan, Any, Any]:
        c, terminated, truncated, valid, usable, learn = table[:, :HEAD].T
        u = table[:, HEAD] if discrete else jnp.zeros_like(c)
        aux = {
            name: table[:, where.start] if name in SCALARS else table[:, where]
            for name, where in columns
        }
        no_x = table[:, :0]  # signals that look at x are made on the host
        flags = (terminated > 0, truncated > 0, valid > 0, usable > 0)
        tr = Transition(no_x, u.astype(jnp.int32), c, no_x, aux, *flags)
        unit = table[:, unit_columns].reshape(-1, *unit_shape)
        state, plan, info = functions.observe(state, tr, unit, learn[0] > 0)
        return state, plan, info.w_hat, info.accepted

    def observe(vector: jax.Array, table: jax.Array) -> jax.Array:
        step = one if shared else jax.vmap(lambda state, row: one(state, row[None]))
        return joined(*step(packing.unpack(vector[behind]), table))

    def observe_held(vector: jax.Array, past: jax.Array, table: jax.Array) -> jax.Array:
        assert held is not None
        c, unit = table[:steps, :, 0], table[:steps, :, 1:].reshape(steps, rows, *unit_shape)
        count, learn = table[steps, 0, :2]
        past = past.reshape(rows, -1, d_w)
        given = (count.astype(jnp.int32), learn > 0)
        state = packing.unpack(vector[behind])
        if shared:
            state, plan = held.observe(state, past, c, unit, *given)
        else:
            own = past[:, None], c.T[..., None], unit.swapaxes(0, 1)[:, :, None]
            over = (0, 0, 0, 0, None, None)
            state, plan = jax.vmap(held.observe, over)(state, *own, *given)
        return joined(state, plan, jnp.zeros((rows, d_w)), jnp.ones(rows))

    return Program(
        jax.jit(observe), jax.jit(observe_held), jax.jit(init), packing, columns, unit_columns,
        unit_columns.stop, told, behind,
    )  # fmt: skip
