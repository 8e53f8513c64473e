"""The paper's learner and its kin: an M that follows a gradient of the cost, on M · ŵ.

The algorithm is the core's (MF-GPC, DMF-GPC for discrete actions, and gradients from regressions of
cost and state); real returns are its only judge.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from windward import files
from windward.adapt.engine import Engine
from windward.adapt.faults import every, flags, some
from windward.adapt.learners.base import Arrays, Attempt, Heard, Outcome, Planned
from windward.adapt.sizes import Size
from windward.adapt.sources import Source
from windward.adapt.table import Step
from windward.adapt.trials import Trials
from windward.core import signals

STATE = "state"


class PolicyGradient:
    """An engine that turns a source's ŵ into an M, and trials that say in which episodes it acts.

    `square` gives the mean square of base actions, in shares of their range. With a `size` the
    engine gets ŵ divided by it; `M` and what is told are in the signal's own units.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        source: Source,
        attempt: Attempt,
        trials: Trials | None = None,
        discrete: bool = False,
        baseline: str | None = None,
        square: Callable[[np.ndarray], float] | None = None,
        size: Size | None = None,
    ) -> None:
        self.name, self.baseline, self.discrete, self._square = name, baseline, discrete, square
        self.engine, self.source, self.trials, self.size = engine, source, trials, size
        self.d_w, self.rows = engine.algorithm.d_w, engine.rows
        self.sees_reward = source.sees_reward
        self._attempt = attempt
        self._none, self._all = flags(engine.rows, False), flags(engine.rows, True)
        self._nothing: list[str] = []
        self._source_at_first = source.memory()
        self.frozen = False
        self._asked = engine.correction
        self._start()

    def _start(self) -> None:
        self._mid_episode = self._none
        self._reach()

    def _reach(self) -> None:
        """Takes over how far noise and steps are to reach, and whether there is noise at all."""
        if self.trials is not None:
            self.engine.scale(self.trials.reach, self.trials.bound)
        if not self._explores:
            self.engine.quieten()

    @property
    def decisions(self) -> list[str]:
        """See Learner."""
        return self._nothing if self.trials is None else self.trials.decisions

    @property
    def phase(self) -> str:
        """See Learner."""
        return "active" if self.trials is None or self.frozen else self.trials.phase

    @property
    def M(self) -> Any:
        """The parameters: (h, d_u, d_w), with a leading row axis where M is not shared."""
        M = self.engine.M
        linear = self.size is not None and isinstance(M, np.ndarray)
        return M / self.size.value if linear else M  # type: ignore[union-attr]

    @M.setter
    def M(self, M: Any) -> None:
        if self.size is None:
            self.engine.M = M
        else:
            self.engine.M = np.asarray(M, dtype=float) * self.size.value
            self.size.fixed = True
        if self.trials is not None:
            self.trials.trust()
            self._reach()

    @property
    def _waiting(self) -> bool:
        return self.trials is not None and self.trials.waiting and not self.frozen

    @property
    def _turn(self) -> np.ndarray:
        """Rows whose episode is adapted."""
        if self.trials is None or self.frozen:
            return self._all
        return self.trials.turn

    @property
    def _explores(self) -> bool:
        """Whether noise is drawn: not when frozen or waiting, unless the signal lives on it."""
        still = self.frozen or self._waiting
        return not still or self.source.signal.uses_score or self.discrete

    def begin(self, rows: np.ndarray) -> None:
        """See Learner."""
        # Rows of the base policy have empty windows, and no episode to be counted.
        self._end(rows & self._mid_episode & self._turn, not (self.frozen or self._waiting))
        self._mid_episode = self._mid_episode & ~rows
        if self.trials is not None:
            self.trials.left(rows)

    def look(self, x: np.ndarray, good: np.ndarray, begun: np.ndarray) -> None:
        """See Learner."""

    def _end(self, rows: np.ndarray, learn: bool) -> None:
        """Empties windows of rows whose episode was left before its end."""
        if rows.any():
            step = Step(
                np.zeros(self.rows), self.engine.blank(), self._none, rows, rows, self._none
            )
            self.engine.observe(step, learn, self._unit())

    def plan(self, x: np.ndarray, base: np.ndarray, ready: np.ndarray) -> Planned | None:
        """See Learner."""
        engine, turn = self.engine, self._turn
        self._asked = engine.correction
        if self._waiting:
            assert self.trials is not None
            self.trials.watch(1.0 if self._square is None else self._square(base[ready]))
            turn = self._none
        if not self.discrete and not some(turn):
            return None
        rows = ready if every(turn) else ready & turn
        return Planned(engine.correction, engine.draw, engine.added, rows)

    def acted(self, action: np.ndarray, ready: np.ndarray) -> bool:
        """See Learner."""
        if not self.source.needs_steps or not some(self._turn):
            return True
        return self._attempt(lambda: self.source.before(action), ready)[0]

    def observe(self, outcome: Outcome) -> Heard:
        """See Learner."""
        happened, turn = outcome.happened, self._turn
        calm, ended = outcome.calm and every(turn), outcome.ended
        good = valid = self._all
        if not calm:
            good, valid = outcome.good & turn, outcome.valid & turn
        aux, usable, whole = None, self._none, False
        if calm or some(good):
            # Good rows must not fail for what others hold.
            asked = happened if calm or every(good) else happened.mended(good)
            went_well, found = self._attempt(
                lambda: self.engine.shaped(self.source.after(asked)), good
            )
            if went_well:
                aux, usable = self._sized(found, good, happened.learn), good
                whole = calm or every(good)
        if aux is None:
            aux = self.engine.blank()
        if outcome.made.logits is not None:
            aux = {**aux, signals.LOGITS: outcome.made.logits}
        c = -happened.reward if whole else np.where(usable, -happened.reward, 0.0)
        step = Step(
            c, aux, happened.terminated, outcome.truncated, valid, usable, outcome.made.number,
            usual=whole and (calm or not some(ended)),
        )  # fmt: skip
        learn = happened.learn and not self._waiting
        seen = self.engine.observe(step, learn, self._unit())
        w_hat = seen.w_hat if self.size is None else seen.w_hat * self.size.value
        taught, why = self._all, ""
        if not (whole and all(seen.accepted)):
            accepted = np.array([each > 0 for each in seen.accepted])
            taught = accepted | (outcome.good & ~turn)
            why = "its numbers were not finite" if some(usable & ~accepted) else ""
        self._mid_episode = (
            self._all if calm else np.where(outcome.valid, ~ended, self._mid_episode)
        )
        if self.trials is not None and not self.frozen:
            self._tried(self.trials, outcome, w_hat, taught & turn)
        return Heard(w_hat, taught, why)

    def _sized(
        self, aux: dict[str, np.ndarray], good: np.ndarray, learn: bool
    ) -> dict[str, np.ndarray]:
        """The same with ŵ over its size."""
        if self.size is None:
            return aux
        w_hat = aux[signals.W]
        if learn:
            self.size.see(w_hat[good])
        return {**aux, signals.W: self.size.over(w_hat)}

    def _tried(
        self, trials: Trials, outcome: Outcome, w_hat: np.ndarray, accepted: np.ndarray
    ) -> None:
        """Lets trials see a step, and takes over what they decide when an episode is over."""
        before = trials.reach, trials.bound, trials.waiting
        reward = outcome.happened.reward if outcome.paid else np.full(self.rows, np.nan)
        trials.step(reward, outcome.valid)
        forgets = False
        if trials.looks:
            trials.feel(w_hat[0] if accepted[0] else None)
        if not trials.waiting:
            corrected = outcome.good & trials.turn & (self._asked != 0).any(axis=1)
            large = (np.abs(self._asked) >= trials.settings.large).any(axis=1)
            forgets = trials.saturates(outcome.made.clipped & corrected & large, corrected)
        for row in np.flatnonzero(outcome.ended):
            forgets |= trials.end(int(row), bool(outcome.happened.terminated[row]))
        if forgets:
            self.engine.forget()
        if forgets or before != (trials.reach, trials.bound, trials.waiting):
            self._reach()

    def _unit(self) -> np.ndarray | None:
        """Zeros in place of the next draw when noise is off."""
        if (self.trials is None and not self.frozen) or self._explores:
            return None
        return np.zeros((self.rows, self.engine.algorithm.d_u))

    def cut(self, rows: np.ndarray) -> None:
        """See Learner: the core leaves windows as they were at a step that it refuses."""

    def freeze(self, frozen: bool) -> None:
        """See Learner: M stays and noise ends; ŵ goes on. PD1 keeps its noise."""
        thaws, self.frozen = self.frozen and not frozen, frozen
        if thaws and self.trials is not None:  # which saw nothing meanwhile
            self.trials.torn(self._mid_episode)
            self.trials.left(~self._mid_episode)
            self._end(self._mid_episode & ~self.trials.turn, False)
        if not self._explores:
            self.engine.quieten()

    def reset(self) -> None:
        """See Learner."""
        self.engine.reset()
        self.source.remember(self._source_at_first)
        if self.size is not None:
            self.size.reset()
        if self.trials is not None:
            self.trials.reset()
            self.trials.torn(self._mid_episode)
        self._mid_episode = self._none  # there is nothing in the windows that must be cut
        self._reach()

    def identity(self) -> dict[str, Any]:
        """See Learner."""
        algorithm = self.engine.algorithm
        return {
            "algorithm": algorithm.name, "signal": self.source.name, "h": algorithm.h,
            "d_u": algorithm.d_u, "d_w": algorithm.d_w, "shared": self.engine.shared,
            "clock": list(algorithm.clock), "guarded": self.trials is not None,
            "sized": self.size is not None,
        }  # fmt: skip

    def arrays(self) -> Arrays:
        """See Learner."""
        self.engine.settle()
        return files.flatten(STATE, self.engine.state) | {"mid_episode": self._mid_episode}

    def header(self) -> dict[str, Any]:
        """See Learner."""
        return {
            "t": self.engine.t, "seed": self.engine.seed, "source": self.source.memory(),
            "trials": None if self.trials is None else self.trials.memory(),
            "size": None if self.size is None else self.size.memory(),
        }  # fmt: skip

    def restore(self, arrays: Arrays, header: dict[str, Any]) -> None:
        """See Learner."""
        like = self.engine.state
        mid_episode = arrays["mid_episode"]
        if mid_episode.shape != (self.rows,) or mid_episode.dtype != bool:
            raise ValueError(f"'mid_episode' is {mid_episode!r}")
        leaves = [each for key, each in arrays.items() if key.startswith(f"{STATE}/")]
        if len(leaves) != len(files.flatten(STATE, like)):
            raise ValueError("it was saved with other settings of the update")
        if any(np.isnan(each).any() for each in leaves if each.dtype.kind == "f"):
            raise ValueError("it holds numbers that are none")
        state = files.unflatten(STATE, like, arrays)
        size = Size()
        if self.size is not None:
            size.remember(header["size"])
        t, seed = (_count(name, header[name], 2**32) for name in ("t", "seed"))
        before = None if self.trials is None else self.trials.memory()
        if self.trials is not None:
            self.trials.restore(header["trials"])
        try:
            self.source.remember(header["source"])
        except ValueError:
            if self.trials is not None:
                self.trials.restore(before)
            raise
        if self.trials is not None:
            self.engine.scale(self.trials.reach, self.trials.bound)
        if self.size is not None:
            self.size = size
        self.engine.restore(state, t, seed)
        self._mid_episode = mid_episode
        # Or what was restored would be thawed; the runtime freezes it if it was frozen.
        self.frozen = False


def _count(name: str, value: Any, limit: int) -> int:
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError(f"{name!r} is {value!r}")
    return value
