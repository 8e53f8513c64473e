"""The adaptive module at work while the agent trains (`algo:generic` with D4PG as the base).

u_t = clip(π(x_t) + Σ_{i=1..h} M_i ŵ_{t-i} + σε_t) in actions scaled to [-1, 1], and n_t = σε_t *is*
the agent's exploration noise, from the stream that the agent draws without the module too
(deviation 12). The environments share M; each has windows of its own.
"""

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import jax
import numpy as np

from windward import files
from windward.adapt.engine import Engine
from windward.adapt.sources import Happened, Source
from windward.adapt.table import Step
from windward.adapt.wrapper import RobustWrapper
from windward.agents.robust import Robust
from windward.core.projections import frobenius_ball
from windward.core.recipes import mf_gpc

STATE, TALLY = "module", "module_tally"
"""names of the arrays in a file"""


def peek(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """What the generator will draw next; it does not move.

    The core plans a step ahead and wants to know the draw, and a checkpoint or an evaluation
    between both must find the stream where the agent without the module has it.
    """
    before = rng.bit_generator.state
    unit = rng.standard_normal(shape)
    rng.bit_generator.state = before
    return unit


class Adaptation:
    """M, the windows of each environment, and what they have come to since the last evaluation.

    A step is `act`, `see` for each environment, `learn`; `begin` comes before the first. `follow`
    gives the source of ŵ from the networks that are acted with, where it is made of networks;
    `source` is any of the kind, for its d_w and discount.
    """

    def __init__(
        self,
        robust: Robust,
        source: Source,
        rows: int,
        d_u: int,
        sigma: float,
        follow: Callable[..., Source] | None,
    ) -> None:
        self._robust, self._rows, self._sigma, self._follow = robust, rows, sigma, follow
        algorithm = mf_gpc(
            d_u, d_u if source.d_w is None else source.d_w, robust.h, robust.eta, sigma,
            source.signal, source.gamma, weight_decay=robust.weight_decay,
            every_episodes=robust.every_episodes,
            projection=None if robust.radius is None else frobenius_ball(robust.radius),
        )  # fmt: skip
        self.engine = Engine(algorithm, rows, shared=True, seed=0)  # draws are the agent's
        self.source = source
        self._reward = np.zeros(rows)
        self._flags = np.zeros((3, rows), dtype=bool)  # terminated, ended, reset already
        self._all = np.ones(rows, dtype=bool)
        self.tally = np.zeros(5)
        """steps, those clipped, those refused; |ŵ| summed, and over how many"""

    @property
    def M(self) -> np.ndarray:
        """(h, d_u, d_w)."""
        M: np.ndarray = np.array(self.engine.M)
        return M

    @M.setter
    def M(self, M: Any) -> None:
        self.engine.M = M

    # Training.

    def follow(self, *networks: Any) -> None:
        """Takes ŵ from now on from policy, critic and vector head as they are acted with."""
        if self._follow is not None:
            self.source = self._follow(*networks)

    def begin(self, unit: np.ndarray) -> None:
        """All episodes begin, the windows empty; `unit` is the first ε."""
        local = self.engine.state.local
        empty = jax.tree.map(np.zeros_like, (local.w_hist, local.records))
        self._set_local(w_hist=empty[0], records=empty[1], unit=unit)

    def _set_local(self, **parts: Any) -> None:
        """Changes what each environment remembers."""
        now = self.engine.state
        self.engine.state = now._replace(local=now.local._replace(**parts))

    def act(self, x: np.ndarray, action: np.ndarray, clipped: int) -> None:
        """Rows of observations, and of actions about to be executed."""
        self._x, self._action = x, action
        self._x_next: list[Any] = [None] * self._rows
        self._error: Exception | None = None
        self.tally[:2] += self._rows, clipped
        if self.source.needs_steps:
            try:
                self.source.before(action)
            except Exception as error:  # physics may fail in any way
                self._error = error

    def see(
        self, i: int, x_next: Any, reward: float, terminated: bool, ended: bool, gone: bool
    ) -> None:
        """What environment i showed; `gone` if it is about to be reset."""
        self._x_next[i], self._reward[i] = np.array(x_next), reward  # float64 stays
        self._flags[:, i] = terminated, ended, gone

    def learn(self, unit: np.ndarray) -> None:
        """ŵ and the gradient of the step; `unit` is the next ε."""
        terminated, ended, gone = self._flags
        happened = Happened(
            self._x, self._action, self._reward, np.stack(self._x_next), terminated, gone,
            learn=True,
        )  # fmt: skip
        c, aux = -self._reward, None
        usable = self._all
        if self._error is None:
            try:
                aux = self.engine.shaped(self.source.after(happened))
            except Exception as error:  # a simulator may fail in any way
                self._error = error
        if aux is None:  # ends episodes, and nothing is learned from it
            aux, usable = self.engine.blank(), ~self._all
        step = Step(c, aux, terminated, ended & ~terminated, self._all, usable)
        seen = self.engine.observe(step, unit=unit)
        accepted = np.array(seen.accepted) > 0
        if not accepted.all():
            self._refuse(~accepted, unit)
        counted = accepted & ~gone
        self.tally[3] += np.sqrt(np.square(seen.w_hat[counted]).sum(axis=1)).sum()
        self.tally[4] += counted.sum()

    def _refuse(self, rows: np.ndarray, unit: np.ndarray) -> None:
        """Steps without a usable ŵ: said once for each evaluation, counted, and acted on."""
        if not self.tally[2]:
            why = "its numbers were not finite" if self._error is None else repr(self._error)
            warnings.warn(
                f"the signal could not be computed at a step, which M does not learn from: {why} "
                "(said once, counted as `refused` in the curves)",
                stacklevel=7,  # whoever called learn
            )
        self.tally[2] += rows.sum()
        # A refused row keeps its old draw, and the agent acts with the next one.
        self._set_local(unit=unit)

    # Evaluation and files.

    def report(self) -> dict[str, float]:
        """A row for the curves, over the steps since the last one."""
        steps, clipped, refused, total, count = self.tally
        self.tally = np.zeros_like(self.tally)
        return {
            "M_norm": float(np.linalg.norm(self.M)),
            "w_hat_norm": float(total / count) if count else np.nan,
            "clipped": float(clipped / steps) if steps else np.nan,
            "refused": float(refused / steps) if steps else np.nan,
        }

    def frozen(self, env: gym.Env, source: Source, seed: int) -> RobustWrapper:
        """The environment with M at rest and without noise; PD1 keeps its own (deviation 18)."""
        wrapped = RobustWrapper(
            env, source, h=self._robust.h, sigma=self._sigma, seed=seed, M0=self.M
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "PD1 is estimated from the exploration noise")
            wrapped.freeze()
        return wrapped

    def arrays(self) -> dict[str, np.ndarray]:
        """M, optimiser, sums of gradients and counters, for a file."""
        return files.flatten(STATE, self.engine.state) | {TALLY: self.tally}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Goes on from what `arrays` gave."""
        state = files.unflatten(STATE, self.engine.state, arrays)
        self.engine.state, self.tally = state, np.array(arrays[TALLY])
