"""An algorithm of the core driven from a host loop, by the same `observe` that runs in a scan.

Where M may move at every step, each is one compiled call. Where it stays for some steps, the host
plans them by itself, correction = Σ M_i ŵ_{t-i}, and hands them to the core in one call.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from windward.adapt.planner import TOLD, Planned, Planner
from windward.adapt.program import Shape, program
from windward.adapt.table import Step, StepViews
from windward.core import updates
from windward.core.algorithm import Algorithm, Functions
from windward.types import State

BLOCK = 256  # steps whose draws are made at once
MOST = 64  # steps at most before the core sees them


class Seen(NamedTuple):
    """What the core made of a step."""

    w_hat: np.ndarray  # (B, d_w)
    accepted: list[float]  # 1 or 0 for each row


class Engine:
    """State, plan and draws of an algorithm for B environments, which share M or have each its own.

    `observe` takes a step and leaves the plan for the next one in `added`, `correction` and `draw`.
    """

    def __init__(self, algorithm: Algorithm, rows: int, shared: bool, seed: int) -> None:
        self.algorithm, self.rows, self.shared, self.seed = algorithm, rows, shared, seed
        self._hyper = algorithm.hyper
        self._functions = Functions(*(getattr(algorithm, name) for name in Functions._fields))
        held = algorithm.held
        self._most = 1 if held is None else min(held.steps or MOST, MOST)
        dtype = jnp.zeros(()).dtype
        self._program = program(
            self._functions,
            held,
            Shape(
                rows, shared, algorithm.d_u, algorithm.d_w, algorithm.h, self._most, algorithm.d_x
            ),
            tuple((name, np.shape(value)) for name, value in algorithm.hyper.items()),
            dtype,
        )
        self._table = np.zeros((rows, self._program.width), dtype)
        self._views = StepViews(self._table, self._program)
        self._shapes = {
            name: (rows, columns.stop - columns.start) for name, columns in self._program.columns
        }
        self._all = [1.0] * rows
        self._learned = True  # whether the steps that wait are to be learned from
        self._planner: Planner | None = None
        self._key = jax.random.key(np.uint32(seed))
        self.reset()

    def reset(self) -> None:
        """As when it was made."""
        self.t = 0
        """draws used"""
        self.algorithm = self.algorithm._replace(hyper=self._hyper)
        self._scale = 1.0, 1.0
        self._block_at = -1
        self.forget()

    def scale(self, noise: float, ball: float = 1.0) -> None:
        """Multiplies noise, and with it the steps of M, and the ball that holds M, until `reset`.

        The steps of all gradients go with σ but for the paper's, which go with η/σ.
        """
        if (noise, ball) == self._scale:
            return
        now, old = self.state, self._scales(*self._scale)  # where σ may have shrunk meanwhile
        hyper, learned = {**self.algorithm.hyper}, {**now.learner.hyper}
        for name, share in self._scales(noise, ball).items():
            hyper[name] = self._hyper[name] * share
            learned[name] = learned[name] * (share / old[name])
        self.algorithm, self._scale = self.algorithm._replace(hyper=hyper), (noise, ball)
        self.state = now._replace(learner=now.learner._replace(hyper=learned))

    def _scales(self, noise: float, ball: float) -> dict[str, float]:
        """What each of the numbers that there are is multiplied with.

        A ball that holds all weights of a network would put its hidden layers out in shrinking.
        """
        shares = {"sigma": noise, "sigma_end": noise}
        if isinstance(self.M, np.ndarray):
            shares["radius"] = ball
        if "sigma_end" not in self._hyper:
            shares["eta"] = noise**2
        return {name: share for name, share in shares.items() if name in self._hyper}

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
        """Takes over what the program gave."""
        self._vector = vector
        where, rows = self._program.told, self.rows
        # A copy: whoever keeps what is told would otherwise keep the whole state alive.
        told = np.asarray(vector)[: self._program.state.start].copy()
        few = told[: where["accepted"].stop].tolist()
        self.added: list[float] = few[where["added"]]
        """correction and noise of the pending plan, row after row; a few floats are quicker to add
        one by one than as arrays"""
        self.correction = told[where["correction"]].reshape(rows, -1)
        """the pending correction, (B, d_u)"""
        self.draw = told[where["draw"]].reshape(rows, -1)
        """the pending noise, or Gumbel noise for logits"""
        if self.algorithm.held is not None:
            look = {name: told[where[name]] for name in TOLD}
            self._planner = Planner(self.algorithm, rows, self._most, look)
        return Seen(told[where["w_hat"]].reshape(rows, -1), few[where["accepted"]])

    def observe(self, step: Step, learn: bool = True, unit: np.ndarray | None = None) -> Seen:
        """One step; with `learn=False` ŵ enters the windows and nothing is learned.

        `unit` is the raw draw behind the next plan, for callers with noise of their own.
        """
        if learn is not self._learned:
            self.settle()
            self._learned = learn
        unit = self._unit() if unit is None else unit
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused in the core
            if self._planner is not None and step.usual:
                plan = self._planner.plan(step.c, step.aux, unit)
                if plan is not None:
                    return self._take(plan)
            self._views.fill(step, learn, unit)
        self.settle()
        return self._read(self._program.observe(self._vector, self._table))

    def _take(self, plan: Planned) -> Seen:
        """Takes over a plan of the host's, unless M may have moved for it."""
        assert self._planner is not None
        if self._planner.steps < self._planner.left:
            _, self.correction, self.draw, self.added = plan
        else:
            self.settle()
        return Seen(plan.w_hat, self._all)

    def settle(self) -> None:
        """Lets the core see all steps so far, so that its state is all there is."""
        if self._waits:
            self._read(self._handed_over())

    @property
    def _waits(self) -> bool:
        """Whether there are steps that the core has not seen."""
        return self._planner is not None and self._planner.steps > 0

    def _handed_over(self) -> Any:
        """What the core makes of the steps that wait for it."""
        assert self._planner is not None
        return self._program.observe_held(self._vector, *self._planner.kept(self._learned))

    @property
    def state(self) -> State:
        """The state as arrays of NumPy; without a shared M all leaves have a leading row axis."""
        # Looking changes nothing: plans of the host and of the core may differ in the last bit.
        vector = self._handed_over() if self._waits else self._vector
        state: State = self._program.packing.unpack(np.asarray(vector)[self._program.state])
        return state

    @state.setter
    def state(self, state: State) -> None:
        told = np.asarray(self._vector)[: self._program.state.start]
        self._vector = jnp.concatenate([told, self._program.packing.pack(state)])
        # A plan follows from the state; a step that is not valid changes nothing and plans anew.
        self._views.blank()
        self._read(self._program.observe(self._vector, self._table))

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

    def tell(self) -> None:
        """Applies the gradients summed so far, between two steps; see `every_episodes="told"`."""
        before = self.state
        learner, local = before.learner, before.local
        told = learner._replace(optimiser=updates.tell(learner.optimiser))
        self.state = before._replace(learner=told)
        # The end of an episode whose last step is not usable: it adds nothing, and is an update.
        ends = np.ones(self.rows, dtype=bool)
        step = Step(np.zeros(self.rows), self.blank(), ~ends, ends, ends, ~ends)
        self.observe(step, unit=np.reshape(local.unit, (self.rows, -1)))
        # Windows and draws are those of before: no episode has ended.
        self.state = before._replace(learner=self.state.learner)

    @property
    def waits_for_tell(self) -> bool:
        """Whether gradients are summed until `tell`."""
        return updates.waits(self.state.learner.optimiser)

    def quieten(self) -> None:
        """Takes the draw out of the pending plan, and out of what will be remembered of it."""
        now = self.state
        self.state = now._replace(local=now.local._replace(unit=jnp.zeros_like(now.local.unit)))

    def shaped(self, aux: dict[str, Any]) -> dict[str, np.ndarray]:
        """Aux values as tables with a row for each environment; refuses what is no such thing."""
        for name, shape in self._shapes.items():
            each = aux.get(name)
            if type(each) is not np.ndarray or each.shape != shape or each.dtype != np.float64:
                return {
                    name: _table(aux[name], shape)
                    for name, shape in self._shapes.items()
                    if name in aux
                }
        return aux

    def blank(self) -> dict[str, np.ndarray]:
        """Aux values of nothing."""
        return {name: np.zeros(shape) for name, shape in self._shapes.items()}

    def restore(self, state: State, t: int, seed: int) -> None:
        """As it was when saved."""
        self.seed, self._key = seed, jax.random.key(np.uint32(seed))
        self.t, self._block_at = t, -1
        self.state = state


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
