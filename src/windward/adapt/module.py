"""The adaptive layer for rows of environments: act, observe, learn, and survive bad input.

A fault (a number that is not finite, a simulator or critic that raises or is late) costs two steps:
the one that it befell is not learned from, and at the next one the base action is executed alone.
"""

from typing import Any

import numpy as np

from windward.adapt.actuation import Actuation, none
from windward.adapt.asking import Asking, Timely
from windward.adapt.counterfactual import Counterfactual
from windward.adapt.engine import Engine
from windward.adapt.faults import Faults, finite, finite_rows
from windward.adapt.guard import Guard
from windward.adapt.reports import Pending, Report
from windward.adapt.sources import Happened, Source
from windward.adapt.table import Step
from windward.adapt.telling import Telling
from windward.core import signals


class Module:
    """Joins a source of ŵ, an algorithm and a way to act, for B environments.

    `act` and `observe` take turns; `begin` starts episodes. `timely` runs what may be slow, and
    says whether it was in time.
    """

    def __init__(
        self,
        engine: Engine,
        source: Source,
        actuation: Actuation,
        timely: Timely | None = None,
        gradient: str = "reinforce",
        teacher: Counterfactual | None = None,
        guard: Guard | None = None,
        baseline: str | None = None,
    ) -> None:
        self.gradient, self.baseline = gradient, baseline
        self.teacher, self.guard = teacher, guard
        self.engine, self.source, self.actuation = engine, source, actuation
        self.rows = engine.rows
        self.frozen = False
        self._none = none(self.rows)
        self._all = ~self._none
        self._asking = Asking(source, engine, teacher, timely, self._all)
        self.x: Any = None
        """observations, rows; None before the first"""
        self.ended = self._none
        """rows whose episode ended with the last step"""
        self._source_at_first = source.memory()
        self._pending: Pending | None = None
        self._forget()
        self.telling = Telling(self.judge)
        self.stretch()
        if not self.explores:
            engine.quieten()

    def _forget(self) -> None:
        self.faults = Faults()
        """how often each kind of fault was met"""
        self.clipped = 0
        """executed actions that were cut off at the bounds"""
        self.fallback = self._none
        """rows whose next action is the base action alone"""
        self.mid_episode = self._none
        """rows that have made a step since their episode began"""

    def reset(self) -> None:
        """What was learned is forgotten; the episode goes on, and freezing stays."""
        self.engine.reset()
        self.source.remember(self._source_at_first)
        if self.teacher is not None:
            self.teacher.reset()
            if self.mid_episode.any():
                self.teacher.torn()
        if self.guard is not None:
            self.guard.reset()
            if self.mid_episode.any():
                self.guard.torn()
        self._forget()
        self.telling.begin()
        self.stretch()
        if not self.explores:
            self.engine.quieten()

    @property
    def judge(self) -> Counterfactual | Guard | None:
        """Who decides about M: replays, or the guard by returns."""
        return self.teacher or self.guard

    @property
    def resting(self) -> bool:
        """Whether the guard leaves this episode to the base policy."""
        return self.guard is not None and self.guard.resting and not self.frozen

    @property
    def compares(self) -> bool:
        """Whether the teacher leaves this episode to the base policy; it goes on learning."""
        return self.teacher is not None and self.teacher.doubt.resting and not self.frozen

    @property
    def waiting(self) -> bool:
        """Whether the guard has seen nothing in ŵ yet that M could act on."""
        return self.guard is not None and self.guard.waiting and not self.frozen

    @property
    def left_alone(self) -> bool:
        """Whether this episode, or the rest of it, is the base policy's."""
        return self.resting or self.compares or self.waiting

    @property
    def explores(self) -> bool:
        """Whether noise is drawn: not when frozen or waiting, unless the signal lives on it."""
        still = self.frozen or self.waiting
        return not still or self.source.signal.uses_score or self.actuation.discrete

    def stretch(self) -> None:
        """Takes over how far noise and steps are to reach."""
        if self.guard is not None:
            self.engine.scale(self.guard.reach, self.guard.bound)

    def freeze(self) -> None:
        """M stays and noise ends; ŵ goes on. PD1 keeps its noise."""
        self.frozen = True
        if self.teacher is not None:
            self.teacher.torn()  # what comes after thawing does not follow on what was
            self._follow_if_compared()
        if not self.explores:
            self.engine.quieten()

    def unfreeze(self) -> None:
        """Adapts again, from where it was."""
        if self.frozen and self.guard is not None:  # which saw nothing meanwhile
            (self.guard.torn if self.mid_episode.any() else self.guard.left)()
        thaws, self.frozen = self.frozen, False
        if thaws and self.teacher is not None:
            if self.mid_episode.any():
                self.teacher.torn()
            self._follow_if_compared()
        if self.resting:  # what was seen while frozen must not reach the next episode
            self._end(self.mid_episode)

    @property
    def sees_reward(self) -> bool:
        """Whether ŵ needs the reward."""
        return self.source.sees_reward

    def begin(self, x: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Episodes begin in rows (all if None), wherever the last ones were."""
        rows = self._all if rows is None else rows
        self._end(rows & self.mid_episode)
        if self.guard is not None and rows.any():
            self.guard.left()
        if self.teacher is not None:
            compared = self.compares
            self.teacher.left()
            if self.compares != compared:
                self._follow()
        self._pending = None
        self.fallback, self.ended = self.fallback & ~rows, self.ended & ~rows
        self.look(x, rows)

    def _end(self, rows: np.ndarray) -> None:
        """Cuts windows where an episode was left before its end."""
        if not rows.any():
            return
        # Its cost is unknown, so the step itself is refused and only the end counts.
        unknown = np.where(rows, np.nan, 0.0)
        step = Step(unknown, self.engine.blank(), self._none, rows, rows)
        learn = not (self.frozen or self.resting or self.waiting)
        self.engine.observe(step, learn, self._quiet_unit())
        self.mid_episode = self.mid_episode & ~rows

    def look(self, x: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Takes up observations; rows whose are not finite act by the base policy next."""
        self.x = x
        if finite(x):
            return
        bad = (self._all if rows is None else rows) & ~finite_rows(x)
        self.faults.note("observation", bad)
        self.fallback = self.fallback | bad

    def act(self, base: Any) -> Any:
        """The actions to execute; `base` itself, to the bit, where nothing is added to it."""
        engine, rests = self.engine, self.resting
        if self.waiting and self.guard is not None:
            self.guard.watch(self.actuation.square(base))
        alone = None if self.fallback is self._none or not self.fallback.any() else self.fallback
        if rests:
            alone = self._all
        try:
            made = (
                self.actuation.alone(base) if rests else self.actuation(self.x, base, engine, alone)
            )
        except Exception as error:  # logits of a user's model may fail in any way
            self.faults.note("signal", self._all, repr(error))
            alone, made = self._all, self.actuation.alone(base)
        if made.odd and made.lost.any():
            self.faults.note("action", made.lost)
            alone = made.lost if alone is None else alone | made.lost
        if made.clipped is not self._none:
            self.clipped += int(made.clipped.sum())
        asks = self._asking.first and not rests
        if asks and not self._asking.before(self.x, made.action, self.faults):
            alone, made = self._all, self.actuation.alone(base)
        self._pending = Pending(made, alone, self.x, engine.correction, engine.draw)
        return made.action

    def observe(
        self,
        reward: np.ndarray | None,
        x_next: np.ndarray,
        terminated: np.ndarray | None = None,
        truncated: np.ndarray | None = None,
        *,
        phantom: np.ndarray | None = None,
        shown: np.ndarray | None = None,
    ) -> Report:
        """The step that followed `act`; the flags may be left out where no episode ended.

        `phantom` rows spent it on a reset, or nothing is known of them. `shown` is what rows see
        next, where that is not x_next but the first observation of another episode. Without
        rewards ŵ enters the windows and nothing is learned.
        """
        assert self._pending is not None, "act comes first"
        pending, self._pending = self._pending, None
        made, alone = pending.made, pending.alone
        rests = self.resting
        learn = reward is not None and not (self.frozen or rests or self.waiting)
        if reward is None and self.guard is not None:
            self.guard.step(np.nan)
        reward = np.zeros(self.rows) if reward is None else reward  # one that teaches nothing
        u = np.array(made.action) if made.odd else made.action  # a copy where it may be the agent's
        flagless = terminated is None and truncated is None
        terminated = self._none if terminated is None else terminated
        truncated = self._none if truncated is None else truncated
        ended = self._none if flagless else terminated | truncated
        going = flagless or not ended.any()
        gone = self._none if shown is None else ended
        happened = Happened(pending.x, u, reward, x_next, terminated, gone, learn)
        valid = self._all if phantom is None else ~phantom
        if rests:
            return self._rested(happened, pending, x_next if shown is None else shown, ended, valid)
        calm = going and alone is None and phantom is None and finite(x_next)
        good = valid if calm else self._good(happened, alone, valid)
        aux, usable = self._asking.after(happened, good, self.faults)
        if made.logits is not None:
            aux = {**aux, signals.LOGITS: made.logits}
        # A step that is not usable still ends its episode; its cost keeps it out of all else.
        c = -reward if usable is self._all else np.where(usable, -reward, np.nan)
        step = Step(c, aux, terminated, truncated, valid, made.number, calm)
        seen = self.engine.observe(step, learn, self._quiet_unit())
        fault = self._none
        if not all(seen.accepted):
            fault = valid & (np.array(seen.accepted) < 1)
        self.x, self.ended = x_next if shown is None else shown, ended
        self.fallback = fault
        if calm:
            self.mid_episode = self._all
        if not calm or fault is not self._none:
            self._settle(fault, usable, valid, alone, reward)
        report = self._report(pending, seen.w_hat, u, fault)
        if self.teacher is not None and learn:
            self._teach(seen.w_hat[0], happened, fault is self._none)
        if self.guard is not None and self.guard.looks and not self.frozen:
            self.guard.feel(seen.w_hat[0] if fault is self._none else None)
            self.stretch()
        if self.guard is not None and not self.frozen:
            self._judge(self.guard, happened)
        return self._told(report)

    def _rested(
        self,
        happened: Happened,
        pending: Pending,
        x: np.ndarray,
        ended: np.ndarray,
        valid: np.ndarray,
    ) -> Report:
        """A step that the guard left to the base policy: it teaches nothing, and ŵ is not asked.

        `x` is what is seen next. There is one row: returns of several are not told apart.
        """
        assert self.guard is not None
        fault = valid & ~np.isfinite(happened.reward)
        self.faults.note("reward", fault)
        self.ended, self.fallback = ended, self._none
        self.mid_episode = np.where(valid, ~ended, self.mid_episode)
        self.look(x)
        w_hat = np.zeros((self.rows, self.engine.algorithm.d_w))
        report = self._report(pending, w_hat, happened.u, fault)
        self._judge(self.guard, happened)
        return self._told(report)

    def _told(self, report: Report) -> Report:
        """The report, with whether something was decided."""
        cut_off = bool(report.clipped[0]) and bool(report.correction[0].any())
        news = self.telling.step(cut_off, bool(self.ended[0]))
        return report._replace(decided=self._all) if news else report

    def _report(
        self, pending: Pending, w_hat: np.ndarray, u: np.ndarray, fault: np.ndarray
    ) -> Report:
        executed = pending.executed
        return Report(
            w_hat, executed(pending.correction), executed(pending.noise), u, pending.made.clipped,
            fault, self._all if self.left_alone else self._none, self._none,
        )  # fmt: skip

    def _judge(self, guard: Guard, happened: Happened) -> None:
        """Lets the guard see a step, and takes over what it decides when an episode is over."""
        guard.step(float(happened.reward[0]))
        if self.ended[0]:
            forgets = guard.end(bool(happened.terminated[0]))
            if forgets:
                self.engine.forget()
            self.stretch()
            if forgets and not self.explores:
                self.engine.quieten()

    def _teach(self, w_hat: np.ndarray, happened: Happened, usable: bool) -> None:
        """Lets the teacher see a step, and takes over what it has learned."""
        assert self.teacher is not None
        reward, terminated = float(happened.reward[0]), bool(happened.terminated[0])
        try:
            if self.teacher.after(w_hat, reward, usable, terminated, bool(self.ended[0])):
                self._follow()
        except Exception as error:  # replays call the policy and the simulator
            self.faults.note("signal", self._all, repr(error))
            self._follow()  # M may have moved before

    def _follow_if_compared(self) -> None:
        """Whether M acts has changed with freezing, if the teacher's returns are compared."""
        if self.teacher is not None and self.teacher.doubt.resting:
            self._follow()

    def _follow(self) -> None:
        """Takes over the teacher's M, or 0 while returns are to be compared."""
        assert self.teacher is not None
        M = self.teacher.M_for_w_hat
        self.engine.M = 0 * M if self.compares else M

    def _settle(
        self,
        fault: np.ndarray,
        usable: np.ndarray,
        valid: np.ndarray,
        alone: np.ndarray | None,
        reward: np.ndarray,
    ) -> None:
        """What follows from ends and faults."""
        bad_reward = fault & usable & ~np.isfinite(reward)
        self.faults.note("reward", bad_reward)
        self.faults.note("signal", fault & usable & ~bad_reward, "its numbers were not finite")
        # A row that acted alone has paid for its fault.
        self.fallback = fault & ~self.ended
        if alone is not None:
            self.fallback = self.fallback & ~alone
        self.mid_episode = np.where(valid, ~self.ended, self.mid_episode)
        self.look(self.x)

    def _good(self, happened: Happened, alone: np.ndarray | None, valid: np.ndarray) -> np.ndarray:
        """Rows whose signal can be asked for."""
        # x is finite, or its row would act alone.
        good = valid & finite_rows(happened.x_next)
        return good if alone is None else good & ~alone

    def _quiet_unit(self) -> np.ndarray | None:
        """Zeros in place of the next draw when noise is off."""
        if self.explores:
            return None
        return np.zeros((self.rows, self.actuation.d_u))
