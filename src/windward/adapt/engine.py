"""An algorithm of the core driven from a host loop: one compiled call for each step.

The same `observe` that runs inside a scan, with its state packed, its draws made in blocks and one
array each way, because a call pays for every leaf.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
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
HEAD = 5  # columns before the aux values: c, terminated, truncated, valid, learn; then discrete u
SCALARS = (signals.V_NEXT, signals.Q_NOW)  # aux of one number for each row
VECTORS = (signals.W, signals.C_VEC, signals.V_VEC_NEXT, signals.Q_VEC)  # aux of d_w numbers


class Step(NamedTuple):
    """What rows of environments showed in one step; arrays with a row for each."""

    c: np.ndarray  # (B,)
    aux: dict[str, np.ndarray]  # (B, width) each
    terminated: np.ndarray  # (B,) bool
    truncated: np.ndarray
    valid: np.ndarray
    u: np.ndarray | None = None  # (B,) the index of a discrete action
    usual: bool = False  # all rows are valid and none ends


class Seen(NamedTuple):
    """What the core made of a step."""

    w_hat: np.ndarray  # (B, d_w)
    accepted: list[float]  # 1 or 0 for each row


class _Program(NamedTuple):
    """The compiled call and the layout of what it takes and gives."""

    observe: Callable[..., Any]
    init: Callable[..., Any]
    packing: Packing
    columns: tuple[tuple[str, slice], ...]  # of aux in the table that it takes
    unit_columns: slice
    width: int  # of the table


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
        self._parts = _parts(rows, algorithm.d_u, algorithm.d_w)
        self._table = np.zeros((rows, self._program.width), jnp.zeros(()).dtype)
        self._shapes = {
            name: (rows, columns.stop - columns.start) for name, columns in self._program.columns
        }
        self._discrete = signals.LOGITS in algorithm.needs
        self._usual: bool | None = None  # `learn`, if the table's flags are those of a usual step
        self._key = jax.random.key(np.uint32(seed))
        self.reset()

    def reset(self) -> None:
        """As when it was made."""
        self.t = 0
        """draws used"""
        self._block_at = -1
        self.forget()

    def forget(self) -> None:
        """M, and what it was learned from, as at first; draws go on."""
        self._read(self._program.init(self.algorithm.hyper, self._unit()))

    def _unit(self) -> np.ndarray:
        """The draw of step t, from fold_in(key, t) alone."""
        block, at = divmod(self.t, BLOCK)
        if block != self._block_at:
            self._block_at = block
            make = _draws(self._functions, self.rows)
            self._block = np.asarray(make(self._key, block * BLOCK)).reshape(BLOCK, self.rows, -1)
        self.t += 1
        return self._block[at]

    def _read(self, vector: Any) -> Seen:
        """Takes over what the program gave: the table for the host, and behind it the state."""
        self._vector = vector
        first, accepted, correction, draw, w_hat = self._parts
        # A copy: whoever keeps what is told would otherwise keep the whole state alive.
        told = np.asarray(vector)[: w_hat.stop].copy()
        few = told[: accepted.stop].tolist()
        self.added: list[float] = few[first]
        """correction and noise of the pending plan, row after row; a few floats are quicker to add
        one by one than as arrays"""
        rows = self.rows
        self.correction = told[correction].reshape(rows, -1)
        """the pending correction, (B, d_u)"""
        self.draw = told[draw].reshape(rows, -1)
        """the pending noise, or Gumbel noise for logits"""
        return Seen(told[w_hat].reshape(rows, -1), few[accepted])

    def observe(self, step: Step, learn: bool = True, unit: np.ndarray | None = None) -> Seen:
        """One step; with `learn=False` ŵ enters the windows and nothing is learned.

        `unit` is the raw draw behind the next plan, for callers with noise of their own.
        """
        table, program = self._table, self._program
        with np.errstate(over="ignore"):  # too large for the core is infinite, and refused there
            table[:, 0] = step.c
            self._set_flags(step, learn)
            if self._discrete:
                table[:, HEAD] = 0 if step.u is None else step.u
            for name, columns in program.columns:
                table[:, columns] = step.aux[name]
            table[:, program.unit_columns] = self._unit() if unit is None else unit
        return self._read(program.observe(self._vector, table))

    def _set_flags(self, step: Step, learn: bool) -> None:
        if step.usual and self._usual is learn:
            return  # as they were
        flags: Any = (0, 0, 1, learn)
        if not step.usual:
            flags = np.stack([step.terminated, step.truncated, step.valid, [learn] * self.rows], 1)
        self._table[:, 1:HEAD] = flags
        self._usual = learn if step.usual else None

    @property
    def state(self) -> State:
        """The state as arrays of NumPy; without a shared M all leaves have a leading row axis."""
        state: State = self._program.packing.unpack(
            np.asarray(self._vector)[self._parts[-1].stop :]
        )
        return state

    @state.setter
    def state(self, state: State) -> None:
        told = np.asarray(self._vector)[: self._parts[-1].stop]
        self._vector = jnp.concatenate([told, self._program.packing.pack(state)])
        # A plan follows from the state; a step that is not valid changes nothing and plans anew.
        none, no = np.zeros(self.rows), np.zeros(self.rows, dtype=bool)
        unit = np.zeros_like(self._table[:, self._program.unit_columns])
        self.observe(Step(none, self.blank(), no, no, no), unit=unit)

    @property
    def M(self) -> Any:
        """The parameters: (h, d_u, d_w), with a leading row axis where M is not shared."""
        return self.state.learner.M

    @M.setter
    def M(self, M: Any) -> None:
        now = self.state
        if not isinstance(now.learner.M, np.ndarray):
            raise ValueError("M can be set for the linear parametrisation alone")
        array = np.asarray(M, dtype=now.learner.M.dtype)
        if array.shape != now.learner.M.shape or not np.isfinite(array).all():
            raise ValueError(
                f"M must be finite and of shape {now.learner.M.shape}; got {array.shape}"
            )
        self.state = now._replace(learner=now.learner._replace(M=jnp.asarray(array)))

    def quieten(self) -> None:
        """Takes the draw out of the pending plan, and out of what will be remembered of it."""
        now = self.state
        self.state = now._replace(local=now.local._replace(unit=jnp.zeros_like(now.local.unit)))

    def shaped(self, aux: dict[str, Any]) -> dict[str, np.ndarray]:
        """Aux values as tables with a row for each environment; refuses what is no such thing."""
        return {
            name: _table(aux[name], shape) for name, shape in self._shapes.items() if name in aux
        }

    def blank(self) -> dict[str, np.ndarray]:
        """Aux values of nothing."""
        return {name: np.zeros(shape) for name, shape in self._shapes.items()}

    def restore(self, state: State, t: int, seed: int) -> None:
        """As it was when saved."""
        self.seed, self._key = seed, jax.random.key(np.uint32(seed))
        self.t, self._block_at = t, -1
        self.state = state


def _parts(rows: int, d_u: int, d_w: int) -> tuple[slice, ...]:
    """Where a program's result has what the host is told, the state behind it.

    These are: correction and noise added up, whether rows were accepted, correction, noise, ŵ.
    """
    ends = list(accumulate(rows * each for each in (d_u, 1, d_u, d_u, d_w)))
    return tuple(map(slice, [0, *ends], ends))


def _table(values: Any, shape: tuple[int, int]) -> np.ndarray:
    if isinstance(values, np.ndarray) and values.shape == shape and values.dtype.kind == "f":
        return values
    return np.asarray(values, dtype=np.float64).reshape(shape)


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
    sizes = {signals.LOGITS: d_u, **dict.fromkeys(SCALARS, 1), **dict.fromkeys(VECTORS, d_w)}
    discrete = signals.LOGITS in functions.needs
    ends = list(accumulate((sizes[name] for name in functions.needs), initial=HEAD + discrete))
    columns = tuple(zip(functions.needs, map(slice, ends, ends[1:]), strict=True))
    unit_columns = slice(ends[-1], ends[-1] + unit_size)
    hyper_like = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in hyper_shapes}

    def initial(hyper: Any, unit: jax.Array) -> tuple[State, Plan]:
        unit = unit.reshape(rows, *unit_shape)
        if shared:
            return functions.init(hyper, unit)
        return jax.vmap(lambda own: functions.init(hyper, own[None]))(unit)

    unit_like = jax.ShapeDtypeStruct((rows, unit_size), dtype)
    packing = Packing(jax.eval_shape(initial, hyper_like, unit_like)[0], dtype)

    def joined(state: State, plan: Plan, w_hat: Any, accepted: Any) -> jax.Array:
        parts = (plan.correction + plan.draw, accepted, plan.correction, plan.draw, w_hat)
        told = [jnp.ravel(each).astype(dtype) for each in parts]
        return jnp.concatenate([*told, packing.pack(state)])

    def init(hyper: Any, unit: jax.Array) -> jax.Array:
        state, plan = initial(hyper, unit)
        return joined(state, plan, jnp.zeros((rows, d_w)), jnp.ones(rows))

    def one(state: State, table: jax.Array) -> tuple[State, Plan, Any, Any]:
        c, terminated, truncated, valid, learn = table[:, :HEAD].T
        u = table[:, HEAD] if discrete else jnp.zeros_like(c)
        aux = {
            name: table[:, where.start] if name in SCALARS else table[:, where]
            for name, where in columns
        }
        no_x = table[:, :0]  # signals that look at x are made on the host
        flags = (terminated > 0, truncated > 0, valid > 0)
        tr = Transition(no_x, u.astype(jnp.int32), c, no_x, aux, *flags)
        unit = table[:, unit_columns].reshape(-1, *unit_shape)
        state, plan, info = functions.observe(state, tr, unit, learn[0] > 0)
        return state, plan, info.w_hat, info.accepted

    def observe(vector: jax.Array, table: jax.Array) -> jax.Array:
        state = packing.unpack(vector[_parts(rows, d_u, d_w)[-1].stop :])
        step = one if shared else jax.vmap(lambda state, row: one(state, row[None]))
        return joined(*step(state, table))

    programs = jax.jit(observe), jax.jit(init)
    return _Program(*programs, packing, columns, unit_columns, unit_columns.stop)
