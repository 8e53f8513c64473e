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
    accepted: np.ndarray  # (B,): 1 or 0


class _Program(NamedTuple):
    """The compiled call and the layout of what it takes and gives."""

    observe: Callable[..., Any]
    init: Callable[..., Any]
    packing: Packing
    widths: tuple[tuple[str, int], ...]  # of aux
    unit_size: int
    width: int  # of the table that it takes


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
        self._head = rows * told_width(algorithm.d_u, algorithm.d_w)
        self._table = np.zeros((rows, self._program.width), jnp.zeros(()).dtype)
        self._discrete = signals.LOGITS in algorithm.needs
        self._usual = [np.array([[0, 0, 1, learn]] * rows) for learn in (False, True)]
        self._key = jax.random.key(np.uint32(seed))
        self.reset()

    def reset(self) -> None:
        """As when it was made."""
        self.t = 0
        """draws used"""
        self._block_at = -1
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
        # A copy: whoever keeps what is told would otherwise keep the whole state alive.
        told = self._told = np.asarray(vector)[: self._head].copy().reshape(self.rows, -1)
        return Seen(told[:, 3 * self.algorithm.d_u : -1], told[:, -1])

    @property
    def added(self) -> np.ndarray:
        """Correction and noise of the pending plan, (B, d_u)."""
        return self._told[:, : self.algorithm.d_u]

    @property
    def correction(self) -> np.ndarray:
        """The pending correction."""
        return self._told[:, self.algorithm.d_u : 2 * self.algorithm.d_u]

    @property
    def draw(self) -> np.ndarray:
        """The pending noise, or Gumbel noise for logits."""
        return self._told[:, 2 * self.algorithm.d_u : 3 * self.algorithm.d_u]

    def observe(self, step: Step, learn: bool = True, unit: np.ndarray | None = None) -> Seen:
        """One step; with `learn=False` ŵ enters the windows and nothing is learned.

        `unit` is the raw draw behind the next plan, for callers with noise of their own.
        """
        rows, flags = self.rows, self._usual[learn]
        if not step.usual:
            flags = np.stack([step.terminated, step.truncated, step.valid, [learn] * rows], 1)
        parts = [step.c.reshape(rows, 1), flags]
        if self._discrete:
            parts.append(np.zeros((rows, 1)) if step.u is None else step.u.reshape(rows, 1))
        parts += [step.aux[name] for name, _ in self._program.widths]
        parts.append(self._unit() if unit is None else unit)
        # One call and one buffer, written anew each time: what was read from it before is done.
        with np.errstate(over="ignore"):  # too large for the core is infinite, and refused there
            np.concatenate(parts, axis=1, out=self._table, casting="unsafe")
        return self._read(self._program.observe(self._vector, self._table))

    @property
    def state(self) -> State:
        """The state as arrays of NumPy; without a shared M all leaves have a leading row axis."""
        state: State = self._program.packing.unpack(np.asarray(self._vector)[self._head :])
        return state

    @state.setter
    def state(self, state: State) -> None:
        told = np.asarray(self._vector)[: self._head]
        self._vector = jnp.concatenate([told, self._program.packing.pack(state)])
        # A plan follows from the state; a step that is not valid changes nothing and plans anew.
        none, no = np.zeros(self.rows), np.zeros(self.rows, dtype=bool)
        unit = np.zeros((self.rows, self._program.unit_size))
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
        widths = [each for each in self._program.widths if each[0] in aux]
        return {name: _table(aux[name], self.rows, width) for name, width in widths}

    def blank(self) -> dict[str, np.ndarray]:
        """Aux values of nothing."""
        return {name: np.zeros((self.rows, width)) for name, width in self._program.widths}

    def restore(self, state: State, t: int, seed: int) -> None:
        """As it was when saved."""
        self.seed, self._key = seed, jax.random.key(np.uint32(seed))
        self.t, self._block_at = t, -1
        self.state = state


def told_width(d_u: int, d_w: int) -> int:
    """Numbers that a row is told: added, correction, draw, ŵ, accepted."""
    return 3 * d_u + d_w + 1


def _table(values: Any, rows: int, width: int) -> np.ndarray:
    if (
        isinstance(values, np.ndarray)
        and values.shape == (rows, width)
        and values.dtype.kind == "f"
    ):
        return values
    return np.asarray(values, dtype=np.float64).reshape(rows, width)


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
    widths = tuple((name, sizes[name]) for name in functions.needs)
    discrete = signals.LOGITS in functions.needs
    hyper_like = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in hyper_shapes}

    def initial(hyper: Any, unit: jax.Array) -> tuple[State, Plan]:
        unit = unit.reshape(rows, *unit_shape)
        if shared:
            return functions.init(hyper, unit)
        return jax.vmap(lambda own: functions.init(hyper, own[None]))(unit)

    unit_like = jax.ShapeDtypeStruct((rows, unit_size), dtype)
    packing = Packing(jax.eval_shape(initial, hyper_like, unit_like)[0], dtype)

    def joined(state: State, plan: Plan, w_hat: Any, accepted: Any) -> jax.Array:
        parts = (plan.correction + plan.draw, plan.correction, plan.draw, w_hat, accepted)
        table = [jnp.reshape(each, (rows, -1)).astype(dtype) for each in parts]
        return jnp.concatenate([jnp.ravel(jnp.concatenate(table, 1)), packing.pack(state)])

    def init(hyper: Any, unit: jax.Array) -> jax.Array:
        state, plan = initial(hyper, unit)
        return joined(state, plan, jnp.zeros((rows, d_w)), jnp.ones(rows))

    def one(state: State, table: jax.Array) -> tuple[State, Plan, Any, Any]:
        c, terminated, truncated, valid, learn = table[:, :HEAD].T
        u = table[:, HEAD] if discrete else jnp.zeros_like(c)
        at, aux = HEAD + discrete, {}
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

    def observe(vector: jax.Array, table: jax.Array) -> jax.Array:
        state = packing.unpack(vector[rows * told_width(d_u, d_w) :])
        step = one if shared else jax.vmap(lambda state, row: one(state, row[None]))
        return joined(*step(state, table))

    width = HEAD + discrete + sum(each for _, each in widths) + unit_size
    return _Program(jax.jit(observe), jax.jit(init), packing, widths, unit_size, width)
