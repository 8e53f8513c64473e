"""What the peers share: the place of `RobustWrapper`, with another law in it.

Faults are met as there: the step that bad input befell teaches nothing, and at the next one the
base action is executed alone.
"""

from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from windward.adapt.actuation import Continuous, Executed, action_array, refuse
from windward.adapt.engine import Engine
from windward.adapt.faults import Faults
from windward.adapt.peers.hearing import w_hat_of
from windward.adapt.peers.laws import Law
from windward.adapt.sources import Happened, Source

ROW = np.ones(1, dtype=bool)  # parts of adapt/ know rows of environments, and here is one


class _Added(NamedTuple):
    """What `Continuous` looks at in an engine."""

    added: list[float]


class _Acted(NamedTuple):
    """An action whose outcome is not known yet."""

    made: Executed
    correction: np.ndarray
    noise: np.ndarray
    alone: bool


class Slot(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """A wrapper to which the agent's action is the base action; `_fill` puts a peer into it."""

    def __init__(self, env: gym.Env, given: dict[str, Any]) -> None:
        name = type(self).__name__
        if not isinstance(env, gym.Env):
            raise ValueError(
                f"{name} takes one environment; got {env!r}: use gym.make for an id, and wrap each "
                "row of a vector environment where it is made"
            )
        refuse(env.action_space, env.observation_space)
        if not isinstance(env.action_space, gym.spaces.Box):
            raise ValueError(f"{name} adds to continuous actions; here they are {env.action_space}")
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **given)
        gym.Wrapper.__init__(self, env)
        self._box, self._actuation = env.action_space, Continuous(env.action_space)

    def _fill(self, law: Law, source: Source | None) -> None:
        self._law, self._source = law, source
        self._source_at_first = None if source is None else source.memory()
        self._x: np.ndarray | None = None
        self._frozen = False
        self._forget()

    def _forget(self) -> None:
        self._faults, self._clipped, self._fallback = Faults(), 0, False

    @property
    def signal(self) -> str | None:
        """The name of the signal in use, if there is one."""
        return None if self._source is None else self._source.name

    @property
    def frozen(self) -> bool:
        """Whether learning is stopped."""
        return self._frozen

    @property
    def faults(self) -> dict[str, int]:
        """How often what kind of bad input was met: action, observation, reward, signal."""
        return dict(self._faults)

    @property
    def clipped(self) -> int:
        """How many executed actions were cut off at the bounds."""
        return self._clipped

    def freeze(self) -> None:
        """Stops learning and noise; what was learned goes on acting."""
        self._frozen = True

    def unfreeze(self) -> None:
        """Learns again, from where it was."""
        self._frozen = False

    def reset_adaptation(self) -> None:
        """Forgets what was learned; the episode goes on, and freezing stays."""
        self._law.forget()
        if self._source is not None:
            self._source.remember(self._source_at_first)
        self._forget()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; what was learned is kept, what was filtered is not."""
        x, info = self.env.reset(seed=seed, options=options)
        self._law.begin()
        self._fallback = False
        self._look(x)
        return x, info

    def _look(self, x: Any) -> None:
        """Takes up an observation; after one that is not finite the base policy acts alone."""
        self._x = np.array(x)
        if not np.isfinite(self._x).all():
            self._faults.note("observation", ROW)
            self._fallback = True

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step; `action` is the base policy's."""
        if self._x is None:
            raise gym.error.ResetNeeded("call reset() before the first step()")
        rows = action_array(action, self._box.shape)[None]
        x, acted = self._x[None], self._act(rows)
        made = acted.made
        self._clipped += int(made.clipped[0])
        # The agent's own object where nothing was added.
        chosen = action if made.action is rows else made.action[0]
        u = np.array(made.action)
        x_next, reward, terminated, truncated, info = self.env.step(chosen)
        ended = np.array([bool(terminated)])
        no, learn = np.zeros(1, dtype=bool), not self._frozen
        paid, seen = np.array([float(reward)]), np.array(x_next)[None]
        w_hat = None
        if not acted.alone:
            w_hat = self._hear(Happened(x, u, paid, seen, ended, no, learn))
        # A step that acted alone has paid for its fault.
        self._fallback = w_hat is None and not acted.alone
        self._look(x_next)
        if terminated or truncated:
            self._law.begin()
        told = {
            "w_hat": np.zeros(self._d_w) if w_hat is None else w_hat,
            "correction": acted.correction, "noise": acted.noise, "action": u[0],
            "clipped": bool(made.clipped[0]), "fault": w_hat is None,
        }  # fmt: skip
        return x_next, reward, terminated, truncated, {**info, "windward": told}

    @property
    def _d_w(self) -> int:
        return 0 if self._source is None else int(self._source.d_w or 0)

    def _act(self, rows: np.ndarray) -> _Acted:
        """What to execute: base, correction and noise, or the base action alone."""
        none = np.zeros(self._actuation.d_u)
        if not self._fallback and np.isfinite(rows).all():
            assert self._x is not None
            try:
                correction, noise = self._law.plan(self._x[None], rows)
                noise = none if self._frozen else noise
                plan = cast(Engine, _Added((correction + noise).tolist()))
                made = self._actuation(None, rows, plan)
                if self._source is not None:
                    self._source.before(made.action)
                return _Acted(made, correction, noise, alone=False)
            except Exception as error:  # a simulator may fail in any way
                self._faults.note("signal", ROW, repr(error))
        made = self._actuation.alone(rows)
        self._faults.note("action", made.lost)
        return _Acted(made, none, none, alone=True)

    def _hear(self, step: Happened) -> np.ndarray | None:
        """ŵ of a step, which the law hears of; None where the step is not usable."""
        if not np.isfinite(step.x_next).all():
            return None  # `_look` says so
        if not np.isfinite(step.reward).all():
            self._faults.note("reward", ROW)
            return None
        try:
            w_hat = np.zeros(0)
            if self._source is not None:
                w_hat = w_hat_of(self._source, step)
            if not (np.abs(w_hat) < np.finfo(np.float32).max).all():
                raise ValueError("its numbers were not finite")
            with np.errstate(over="ignore", invalid="ignore"):
                self._law.observe(step, w_hat)
        except Exception as error:  # a critic or a simulator may fail in any way
            self._faults.note("signal", ROW, repr(error))
            return None
        return w_hat
