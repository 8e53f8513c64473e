"""The act/observe loop of the adaptive layer, for rows of environments: the only one there is.

All forms are thin layers over it: `begin`, then `act` and `observe` in turns. Bad input never
reaches the actuator and never ends the loop. A fault (a number that is not finite, a simulator or a
model that raises or is late) costs two steps: the one that it befell is not learned from, and at
the next one the base action is executed alone.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from windward.adapt.actuation import Actuation, Executed
from windward.adapt.faults import Faults, every, finite, finite_rows, flags, some
from windward.adapt.learners.base import Attempt, Learner, Outcome, Planned
from windward.adapt.reports import Report
from windward.adapt.sources import Happened

Timely = Callable[[Callable[[], Any]], tuple[bool, Any]]
"""runs what may be slow: (whether it was in time, what it gave)"""


class Runtime:
    """Joins a learner and a way to act; `make` gets what the learner is to run risky work with."""

    def __init__(
        self,
        make: Callable[[Attempt], Learner],
        actuation: Actuation,
        rows: int,
        timely: Timely | None = None,
    ) -> None:
        self.rows, self.actuation, self._timely = rows, actuation, timely
        self._none, self._all = flags(rows, False), flags(rows, True)
        self.frozen = False
        self.faults, self.clipped = Faults(), 0
        self.x: Any = None
        """observations, rows; None before the first"""
        self.ended = self._none
        """rows whose episode ended with the last step"""
        self.fallback = self._none
        """rows whose next action is the base action alone"""
        self.notes: list[str] = []
        """what was decided when it was made, in sentences"""
        self.learner = make(self.attempt)
        self._good = self._none
        self._pending: tuple[Executed, Planned | None, np.ndarray] | None = None
        self._said = len(self.learner.decisions)

    def attempt(
        self, work: Callable[[], Any], rows: np.ndarray, timed: bool = True
    ) -> tuple[bool, Any]:
        """See Attempt."""
        timely = self._timely if timed else None
        try:
            in_time, result = (True, work()) if timely is None else timely(work)
        except Exception as error:  # models and simulators of users may fail in any way
            self.faults.note("signal", rows, repr(error))
            return False, None
        if not in_time:
            self.faults.note("late", rows)
        return in_time, result

    def reset(self) -> None:
        """What was learned is forgotten; the episode goes on, and freezing stays."""
        self.faults, self.clipped = Faults(), 0
        self.fallback = self._none
        self.learner.reset()
        self.learner.freeze(self.frozen)
        self._said = len(self.learner.decisions)

    @property
    def decisions(self) -> list[str]:
        """What was decided, in sentences."""
        return [*self.notes, *self.learner.decisions]

    def take(self, x: Any, flags: dict[str, np.ndarray], frozen: bool, clipped: int) -> None:
        """Goes on from what a file holds, once the learner has taken its part."""
        self.x, self._pending = x, None
        self.fallback, self.ended = flags["fallback"].copy(), flags["ended"].copy()
        self._good = self._none if x is None else finite_rows(x)
        self.frozen, self.clipped = frozen, clipped
        self.learner.freeze(frozen)
        self._said = len(self.learner.decisions)

    def freeze(self, frozen: bool = True) -> None:
        """What acts goes on, and nothing is learned; or learning goes on again."""
        self.frozen = frozen
        self.learner.freeze(frozen)

    @property
    def sees_reward(self) -> bool:
        """Whether a step without a reward tells it nothing."""
        return self.learner.sees_reward

    def begin(self, x: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Episodes begin in rows (all if None), wherever the last ones were."""
        begun = ~self._none if rows is None else rows
        self._pending = None
        self.learner.begin(begun)
        self.fallback, self.ended = self.fallback & ~begun, self.ended & ~begun
        self._look(x, begun)

    def look(self, x: np.ndarray) -> None:
        """Takes up observations that do not follow from a step: where one ended the next begins."""
        begun, self.ended = self.ended, self._none
        self._look(x, begun)

    def _look(self, x: np.ndarray, begun: np.ndarray, good: np.ndarray | None = None) -> None:
        self.x, self._good = x, finite_rows(x) if good is None else good
        if not every(self._good):
            self.faults.note("observation", ~self._good)
        self.learner.look(x, self._good, begun)

    def act(self, base: Any) -> Any:
        """The actions to execute; `base` itself, to the bit, where nothing is added to it."""
        rows, lost = self.actuation.read(base)
        ready = self._good
        if some(self.fallback) or some(lost):
            ready = ready & ~self.fallback & ~lost
        asks = some(ready)
        plan = self.learner.plan(self.x, rows, ready) if asks else None
        went_well, made = True, None
        if plan is not None and not math.isfinite(sum(plan.added)):
            self.faults.note("signal", ready, "what was to be added is not finite")
            plan = None
        if plan is not None and self.actuation.discrete:  # which asks a model for its logits
            went_well, made = self.attempt(lambda: self._made(base, rows, lost, plan), ready, False)
        elif plan is not None:
            made = self._made(base, rows, lost, plan)
        if made is None:
            plan, made = None, self._made(base, rows, lost, None)
        if asks and not (went_well and self.learner.acted(made.action, ready)):
            ready, plan = self._none, None
            made = self._made(base, rows, lost, None)
        if some(made.lost):
            self.faults.note("action", made.lost)
        self.clipped += made.clipped.tolist().count(True)
        self._pending = made, plan, ready
        return made.action

    def _made(self, base: Any, rows: np.ndarray, lost: np.ndarray, plan: Any) -> Executed:
        x = self.x
        if not every(self._good):  # a model must not fail for rows that are not asked about
            x = np.where(self._good.reshape(-1, *([1] * (np.ndim(x) - 1))), x, 0)
        return self.actuation(x, base, rows, lost, plan)

    def observe(
        self,
        reward: Any,
        x_next: np.ndarray,
        terminated: np.ndarray | None = None,
        truncated: np.ndarray | None = None,
        *,
        phantom: np.ndarray | None = None,
        shown: np.ndarray | None = None,
        paid: bool = True,
    ) -> Report:
        """The step that followed `act`; the flags may be left out where no episode ended.

        `phantom` rows spent it on a reset, or nothing is known of them. `shown` is what rows see
        next, where that is not x_next but the first observation of another episode. Without
        `paid` nobody knows the rewards: then nothing is learned from costs.
        """
        assert self._pending is not None, "act comes first"
        (made, plan, ready), self._pending = self._pending, None
        ends = terminated is not None or truncated is not None
        terminated = self._none if terminated is None else np.asarray(terminated, dtype=bool)
        truncated = self._none if truncated is None else np.asarray(truncated, dtype=bool)
        known = rewards(reward, self.rows) if paid else np.zeros(self.rows)
        told = finite_rows(x_next)
        usual = not ends and phantom is None and every(ready) and every(told)
        calm = usual and finite(known)
        valid = self._all if phantom is None else ~phantom
        ended = (terminated | truncated) & valid if ends else self._none
        good = self._all if calm else valid & ready & told
        if not calm and not finite(known):
            unpaid = ~np.isfinite(known)
            self.faults.note("reward", unpaid & valid)
            good &= ~unpaid
        happened = Happened(
            self.x, np.array(made.action), known, x_next, terminated,
            self._none if shown is None else ended, paid and not self.frozen,
        )  # fmt: skip
        heard = self.learner.observe(
            Outcome(happened, truncated, ended, valid, good, paid, calm, made)
        )
        if heard.why:
            self.faults.note("signal", good & ~heard.taught, heard.why)
        fault = self.fallback = self._none
        if not (calm and every(heard.taught)) and not every(good & heard.taught):
            fault = valid & ~(good & heard.taught)
            self.fallback = fault & ready & ~ended
            if some(fault):
                self.learner.cut(fault)
        begun = self._none if phantom is None else self.ended & phantom
        self.ended = ended
        if shown is None:
            self._look(x_next, begun, told)
        else:
            self.faults.note("observation", valid & ended & ~told)
            self._look(shown, begun | ended)
        said = len(self.learner.decisions)
        news, self._said = said != self._said, said
        if plan is None:
            acting, correction = self._none, np.zeros((self.rows, self.actuation.d_u))
            noise = correction.copy()
        else:
            acting = plan.rows & ready
            # Copies: users may write into what they get.
            correction, noise = plan.correction.copy(), plan.noise.copy()
            if not every(acting):
                correction[~acting], noise[~acting] = 0.0, 0.0
        resting = self._none if every(acting) else ~acting
        return Report(
            heard.w_hat, correction, noise, happened.u, made.clipped, fault, resting,
            self._all if news else self._none,
        )  # fmt: skip


def rewards(given: Any, rows: int) -> np.ndarray:
    """Rewards of rows as floats; NaN for what is no number."""
    if rows == 1 and isinstance(given, float):
        return np.array([given])
    try:
        array = np.asarray(given)
        if array.dtype.kind != "c" and array.size == rows:
            return array.astype(np.float64).reshape(-1)
    except (TypeError, ValueError, OverflowError):
        pass
    if rows == 1:
        return np.array([_number(given)])
    each = list(given) if hasattr(given, "__len__") and len(given) == rows else [None] * rows
    return np.array([_number(one) for one in each])


def _number(given: Any) -> float:
    if isinstance(given, complex | np.complexfloating):  # NumPy's would lose a part of itself
        return float("nan")
    try:
        return float(given)
    except (TypeError, ValueError, OverflowError):
        return float("nan")
