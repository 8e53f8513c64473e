"""An algorithm of the core driven from a host loop: one compiled call for each step.

The same `observe` that runs inside a scan, with its state packed, its draws made in blocks and one
array each way, because a call pays for every leaf.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from windward.adapt.packing import Packing
from windward.core import signals
from windward.core.algorithm import Algorithm, Functions
from windward.types import Plan, State, Transition

# A call that waits for its result is quicker than one that is told of it later; this works as long
# as JAX has not computed anything yet.
jax.config.update("jax_cpu_enable_async_dispatch", False)

BLOCK = 256  # steps whose draws are made at once
HEAD = 6  # columns before the aux values: c, terminated, truncated, valid, learn, u
SCALARS = (signals.V_NEXT, signals.Q_NOW)  # aux of one number for each row


class Step(NamedTuple):
    """What rows of environments showed in one step; arrays with a row for each."""

    c: np.ndarray  # (B,)
    aux: dict[str, np.ndarray]  # (B, ...)
    terminated: np.ndarray  # (B,) bool
    truncated: np.ndarray
    valid: np.ndarray
    u: np.ndarray | None = None  # (B,) the index of a discrete action


class Seen(NamedTuple):
    """What the core made of a step."""

    w_hat: np.ndarray  # (B, d_w)
    accepted: np.ndarray  # (B,) bool


class _Program(NamedTuple):
    """The compiled call and the layout of what it takes and gives."""

    observe: Callable[..., Any]
    init: Callable[..., Any]
    packing: Packing
    widths: tuple[tuple[str, int], ...]  # of aux
    unit_size: int


class Engine:
    """State, plan and draws of an algorithm for B environments, which share M or have each its own.

    `observe` takes a step and leaves the plan for the next one in `correction` and `draw`.
    """

    def __init__(self, algorithm: Algorithm, rows: int, shared: bool, seed: int) -> None:
        self.algorithm, self.rows, self.shared, self.seed = algorithm, rows, shared, seed
        self._functions = Functions(*(getattr(algorithm, name) for name in Functions._fields))
        self._program = _program(
            self._functions,
            rows,
            shared,
            algorithm.d_u,
            algorithm.d_w,
            tuple((name, np.shape(value)) for name, value in algorithm.hyper.items()),
            jnp.zeros(()).dtype,
        )
        self._dtype = np.dtype(jnp.zeros(()).dtype)
        aux_size = sum(width for _, width in self._program.widths)
        self._shape = rows, HEAD + aux_size + self._program.unit_size
        self._key = jax.random.key(np.uint32(seed))
        self.reset()

    def reset(self) -> None:
        """As when it was made."""
        self.t = 0
        """draws used"""
        self._block_at = -1
        vectors, out = self._program.init(self.algorithm.hyper, self._unit())
        self._vectors = vectors
        self._read(out)

    def _unit(self) -> np.ndarray:
        """The draw of step t, from fold_in(key, t) alone."""
        block, at = divmod(self.t, BLOCK)
        if block != self._block_at:
            self._block_at = block
            make = _draws(self._functions, self.rows)
            self._block = np.asarray(make(self._key, block * BLOCK)).reshape(BLOCK, self.rows, -1)
        self.t += 1
        return self._block[at]

    def _read(self, out: Any) -> Seen:
        d_u, d_w = self.algorithm.d_u, self.algorithm.d_w
        table = np.asarray(out)
        self.correction, self.draw = table[:, :d_u], table[:, d_u : 2 * d_u]
        w_hat = table[:, 2 * d_u : 2 * d_u + d_w]
        return Seen(w_hat, table[:, -1] > 0)

    def observe(self, step: Step, learn: bool = True, unit: np.ndarray | None = None) -> Seen:
        """One step; with `learn=False` ŵ enters the windows and nothing is learned.

        `unit` is the raw draw behind the next plan, for callers with noise of their own.
        """
        table = np.empty(self._shape, self._dtype)
        table[:, 0], table[:, 1], table[:, 2] = step.c, step.terminated, step.truncated
        table[:, 3], table[:, 4] = step.valid, learn
        table[:, 5] = 0 if step.u is None else step.u
        at = HEAD
        for name, width in self._program.widths:
            table[:, at : at + width] = step.aux[name].reshape(self.rows, width)
            at += width
        table[:, at:] = self._unit() if unit is None else unit
        self._vectors, out = self._program.observe(self._vectors, table)
        return self._read(out)

    @property
    def state(self) -> State:
        """The state as arrays of NumPy; without a shared M all leaves have a leading row axis."""
        state: State = self._program.packing.unpack([np.asarray(each) for each in self._vectors])
        return state

    @state.setter
    def state(self, state: State) -> None:
        self._vectors = self._program.packing.pack(state)

        # A plan follows from the state; a step that is not valid changes nothing and plans anew.
        none, no = np.zeros(self.rows), np.zeros(self.rows, dtype=bool)
        unit = np.zeros((self.rows, self._program.unit_size))
        self.observe(Step(none, self.blank(), no, no, no), unit=unit)

    def quieten(self) -> None:
        """Takes the draw out of the pending plan, and out of what will be remembered of it."""
        now = self.state
        self.state = now._replace(local=now.local._replace(unit=jnp.zeros_like(now.local.unit)))

    def blank(self) -> dict[str, np.ndarray]:
        """Aux values of nothing."""
        return {name: np.zeros((self.rows, width)) for name, width in self._program.widths}

    def restore(self, state: State, t: int, seed: int) -> None:
        """As it was when saved."""
        self.seed, self._key = seed, jax.random.key(np.uint32(seed))
        self.t, self._block_at = t, -1
        self.state = state


@lru_cache(maxsize=64)
def _draws(functions: Functions, rows: int) -> Callable[..., Any]:
    """A block of draws from step t on."""

    def make(key: jax.Array, t: int) -> jax.Array:
        steps = t + jnp.arange(BLOCK)
        return jax.vmap(lambda step: functions.unit(jax.random.fold_in(key, step), rows))(steps)

    return jax.jit(make)


@lru_cache(maxsize=64)
def _program(
    functions: Functions,
    rows: int,
    shared: bool,
    d_u: int,
    d_w: int,
    hyper_shapes: tuple[tuple[str, tuple[int, ...]], ...],
    dtype: Any,
) -> _Program:
    """The compiled step for a number of rows; equal recipes share it."""
    key = jax.random.key(0)
    unit_shape = jax.eval_shape(lambda: functions.unit(key, 1)).shape[1:]
    unit_size = int(np.prod(unit_shape))
    sizes = {signals.W: d_w, signals.LOGITS: d_u, **dict.fromkeys(SCALARS, 1)}
    widths = tuple((name, sizes[name]) for name in functions.needs)
    hyper_like = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in hyper_shapes}

    def initial(hyper: Any, unit: jax.Array) -> tuple[State, Plan]:
        unit = unit.reshape(rows, *unit_shape)
        if shared:
            return functions.init(hyper, unit)
        return jax.vmap(lambda own: functions.init(hyper, own[None]))(unit)

    unit_like = jax.ShapeDtypeStruct((rows, unit_size), dtype)
    packing = Packing(jax.eval_shape(initial, hyper_like, unit_like)[0])

    def told(plan: Plan, w_hat: Any, accepted: Any) -> jax.Array:
        parts = (plan.correction, plan.draw, w_hat, accepted)
        return jnp.concatenate([jnp.reshape(each, (rows, -1)).astype(dtype) for each in parts], 1)

    def init(hyper: Any, unit: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        state, plan = initial(hyper, unit)
        return packing.pack(state), told(plan, jnp.zeros((rows, d_w)), jnp.ones(rows))

    def one(state: State, table: jax.Array) -> tuple[State, Plan, Any, Any]:
        c, terminated, truncated, valid, learn, u = table[:, :HEAD].T
        at, aux = HEAD, {}
        for name, width in widths:
            columns = table[:, at : at + width]
            aux[name] = columns[:, 0] if name in SCALARS else columns
            at += width
        no_x = table[:, :0]  # signals that look at x are made on the host
        flags = (terminated > 0, truncated > 0, valid > 0)
        tr = Transition(no_x, u.astype(jnp.int32), c, no_x, aux, *flags)
        unit = table[:, at:].reshape(-1, *unit_shape)
        state, plan, info = functions.observe(state, tr, unit, learn[0] > 0)
        return state, plan, info.w_hat, info.accepted

    def observe(vectors: list[jax.Array], table: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        state = packing.unpack(vectors)
        step = one if shared else jax.vmap(lambda state, row: one(state, row[None]))
        state, plan, w_hat, accepted = step(state, table)
        return packing.pack(state), told(plan, w_hat, accepted)

    return _Program(jax.jit(observe), jax.jit(init), packing, widths, unit_size)
