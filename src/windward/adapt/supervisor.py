"""The supervisor: the only one who decides which correction acts.

    OBSERVE --diagnosed, won in simulation--> TRIAL --real returns hold--> ACTIVE
       ^                                        |                            |
       +------ the world changed again ---------+--- returns below the base's: REST

It diagnoses the world from recorded steps (when: `SupervisorSettings`), asks proposers for
corrections, lets judges compare them in the diagnosed world, and withdraws what does worse in the
real one (how sure that must be: `judges.Returns`).
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from functools import wraps
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from windward.adapt.corrections import Correction, Residual, Space
from windward.adapt.episodes import Policy, Window
from windward.adapt.judges import (
    JudgeSettings,
    Returns,
    Verdict,
    base_return,
    judged,
    nominal_return,
    simulated,
)
from windward.adapt.memory import Memory
from windward.adapt.metric import MetricSettings, closed_loop_metric, usual_change
from windward.adapt.proposers.base import Proposer, SimulationSettings, Situation
from windward.adapt.twin import Twin
from windward.adapt.winds import WindSettings
from windward.diagnosis.coordinate_wind import placed
from windward.diagnosis.diagnosis import MUCH, Diagnosis
from windward.diagnosis.entry import diagnose_log
from windward.diagnosis.identify import Settings as DiagnosisSettings
from windward.diagnosis.refit import refit
from windward.envs.changed import BIAS, DELAY
from windward.simulators.learned import LearnedSimulator
from windward.simulators.mujoco import MujocoDynamics
from windward.simulators.ridge import huber_loss, usual_size

_LOG = logging.getLogger("windward")
_BACKGROUND = ThreadPoolExecutor(1, thread_name_prefix="windward-search")


def single_threaded(work: Callable[..., Any]) -> Callable[..., Any]:
    """Work on small matrices: where a core is busy BLAS's threads wait for it at every product."""

    @wraps(work)
    def alone(*given: Any, **more: Any) -> Any:
        with threadpool_limits(1, "blas"):
            return work(*given, **more)

    return alone


class Phase(StrEnum):
    """What the supervisor is doing."""

    OBSERVE = "observe"
    TRIAL = "trial"
    ACTIVE = "active"
    REST = "rest"


@dataclass(frozen=True)
class SupervisorSettings:
    """When the world is diagnosed, and when a change is noticed."""

    first: int = 50
    """steps before the first diagnosis"""
    again: float = 2.0
    """each further diagnosis comes after so many times the steps of the last"""
    after_change: int = 30
    """steps before the first diagnosis after a change was noticed"""
    kept: int = 2000
    """steps that are remembered"""
    alarm: float = 1e-4
    """mean square of a step's deviation, in usual changes of a coordinate, that may be a change"""
    louder: float = 10.0
    """times the usual deviation that may be a change"""
    quantile: float = 0.9
    """of the deviations from the believed world that is called usual"""
    remembered: int = 200
    """deviations that this is taken from"""
    looked: int = 6
    """last steps whose median deviation is compared with that"""
    same: float = 0.01
    """factors that differ by less are the same diagnosis"""
    least: int = 20
    """steps that are diagnosed at the end of an episode that was shorter than `first`"""
    ready: int = 20
    """steps of a diagnosis before a long search is worth it"""
    background: bool = False
    """whether searches run beside the loop, for a robot that cannot wait; without it the step that
    ends an episode takes as long as they take, and the same seed gives the same actions"""
    searches: int = 3
    """at most, one after each episode, as long as each finds something better"""
    headroom: float = 0.03
    """share of the nominal return that must be missing for a search"""
    falling: float = 0.6
    """share of the best episode's gain below which the last ones let a learned simulator, which is
    left alone as long as it pays, be refitted"""
    rest: int = 3
    """episodes of the base policy after a correction was withdrawn"""


@dataclass
class Belief:
    """A world that the supervisor knows, and what acts in it."""

    diagnosis: Diagnosis | None
    twin: Twin
    situation: Situation | None = None
    correction: Correction | None = None
    verdict: Verdict | None = None
    noise: float = 0.0
    """usual mean square deviation of a step, as its diagnosis left it"""
    searched: int = 0
    """how often a long search was made"""
    done: bool = False
    """whether the last one found nothing better"""
    withdrawn: int = 0
    returns: Returns = field(default_factory=Returns)
    expected: float | None = None
    """return of the base policy in whole simulated episodes, once that was asked"""

    @property
    def changed(self) -> bool:
        """Whether it is another world than the nominal one."""
        return self.diagnosis is not None


@dataclass(frozen=True)
class Parts:
    """What the supervisor works with."""

    env: Any
    nominal: Any
    policy: Policy
    range: Space
    dtype: type
    horizon: int
    proposers: Sequence[Proposer]
    supervisor: SupervisorSettings = field(default_factory=SupervisorSettings)
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    metric: MetricSettings = field(default_factory=MetricSettings)
    simulation: SimulationSettings = field(default_factory=SimulationSettings)
    winds: WindSettings = field(default_factory=WindSettings)
    diagnosis: DiagnosisSettings | None = None
    threads: int | None = None


class Supervisor:
    """See the module."""

    def __init__(self, parts: Parts, memory: Memory, seed: int) -> None:
        self.parts, self.memory, self._seed = parts, memory, seed
        self.nominal = Belief(None, Twin(parts.nominal, parts.nominal, None, parts.threads))
        self.decisions: list[str] = []
        self.reset()

    def reset(self) -> None:
        """As when it was made."""
        self.beliefs = [self.nominal]
        self.belief = self.nominal
        self.phase = Phase.OBSERVE
        self.decisions.clear()
        self.steps = 0
        self._due = self.parts.supervisor.first
        self._deviations: list[float] = []
        self._usual: list[float] = []
        self._scale: np.ndarray | None = None
        self._running: np.ndarray | None = None
        self._asked = 0
        self._job: tuple[Belief, Future[Answer | None]] | None = None
        self._base: list[float] = []
        self.news = False

    @property
    def _learned(self) -> bool:
        """Whether the nominal simulator was learned: it is refitted, and real returns alone judge.

        Its own error grows where episodes end, so that a single step tells of no change.
        """
        return isinstance(self.parts.nominal, LearnedSimulator)

    @property
    def acts(self) -> Correction | None:
        """The correction that acts now; None for the base policy."""
        if self.phase in (Phase.TRIAL, Phase.ACTIVE):
            return self.belief.correction
        return None

    def scale_of(self, change: np.ndarray) -> np.ndarray:
        """Usual change of each coordinate: of the last diagnosis, or running until there is one."""
        if self._scale is not None:
            return self._scale
        size = np.abs(change).max(axis=0)
        if self._running is None:
            self._running = size
        self._running = np.maximum(0.98 * self._running, size)
        floor = self.parts.metric.floor * float(self._running.max(initial=0.0)) + 1e-12
        return np.maximum(self._running, floor)

    def say(self, sentence: str) -> None:
        """Writes a decision down."""
        self.decisions.append(f"step {self.steps}: {sentence}")
        self.news = True

    def stepped(self, deviation: float) -> None:
        """A step was recorded; `deviation` is its mean square from the believed world."""
        self.steps += 1
        self._poll()
        if self._learned:
            return
        s = self.parts.supervisor
        self._deviations = [*self._deviations[1 - s.looked :], deviation]
        if self._changed_again():
            self._notice()
        elif self.memory.steps >= self._due:
            self._due = int(self.memory.steps * s.again)
            self._diagnose()

    def _changed_again(self) -> bool:
        """Whether the last steps deviate more from the believed world than is usual."""
        s = self.parts.supervisor
        if self.memory.steps < s.looked or len(self._deviations) < s.looked:
            return False
        if self.memory.steps < min(self._due, s.first) and not self._usual:
            return False  # nothing is believed yet
        now = median(self._deviations[-s.looked :])
        # A quantile costs more than the rest of this: it is asked for where it may decide.
        if now <= max(s.alarm, s.louder * self.belief.noise) or now <= s.louder * self._usually:
            if len(self._usual) < s.remembered and self.memory.steps > s.looked:
                self._usual.append(self._deviations[-1])
            return False
        return bool(self._usual)

    @property
    def _usually(self) -> float:
        """A quantile of the deviations since the last decision."""
        s = self.parts.supervisor
        return float(np.quantile(self._usual, s.quantile)) if self._usual else 0.0

    def _notice(self) -> None:
        """The world is not the believed one any more: a known one, or one to be diagnosed."""
        s = self.parts.supervisor
        # The median rose over the alarm: half of the steps looked at are of the new world.
        fresh = max(1, s.looked // 2)
        x, u, x_next = self.memory.last(fresh)
        for belief in self.beliefs:
            if belief is self.belief or not len(x):
                continue
            if self._explains(belief, x, u, x_next):
                self.memory.forget(fresh)
                self._take(belief)
                what = "as trained" if not belief.changed else "one that is known"
                self.say(f"the world changed: it is {what}; {self._acting()}")
                return
        self.memory.forget(fresh)
        self._due, self._deviations, self._usual = s.after_change, [], []
        # Until it is known what changed, nothing acts.
        self.belief, self.phase = self.nominal, Phase.OBSERVE
        self.say("the world changed; watching it")

    def _explains(self, belief: Belief, x: np.ndarray, u: np.ndarray, x_next: np.ndarray) -> bool:
        r = belief.twin.gap(x_next, belief.twin.advance(np.full(len(x), belief.changed), x, u))
        if self._scale is None:
            return False
        each = np.square(r / self._scale).mean(axis=1)
        return bool(np.median(each) <= self.parts.supervisor.alarm)

    def _take(self, belief: Belief) -> None:
        s = self.parts.supervisor
        self.belief = belief
        acts = belief.changed and belief.correction is not None and not belief.withdrawn
        self.phase = Phase.TRIAL if acts else Phase.OBSERVE
        self._due = max(s.first, s.after_change, int(self.memory.steps * s.again))
        self._deviations, self._usual = [], []

    def _acting(self) -> str:
        if self.acts is None:
            return "the base policy acts"
        assert self.belief.verdict is not None
        return f"{self.belief.verdict.name} acts"

    @single_threaded
    def _diagnose(self) -> None:
        """What changed, from all that was recorded since the last change."""
        parts = self.parts
        states = np.concatenate(self.memory.states())
        self._scale = usual_change(states, parts.metric.floor)
        found = diagnose_log(
            self.memory.log(), parts.env, simulator=parts.nominal, settings=parts.diagnosis,
            threads=parts.threads,
        )  # fmt: skip
        if not isinstance(parts.nominal.dynamics, MujocoDynamics):
            found = placed(found, self.memory.log(), parts.nominal)
        if not found.changes and (found.wind is None or not found.wind.axes):
            if found.unexplained > MUCH:
                self.say("something changed that is no known parameter; the base policy acts")
            if self.belief is not self.nominal:
                self._take(self.nominal)
                self.say("nothing is changed any more; the base policy acts")
            return
        for belief in self.beliefs:
            if belief.changed and self._same(found, belief.diagnosis):
                if belief is not self.belief:
                    self._take(belief)
                    self.say(f"{_said(found)}, as before; {self._acting()}")
                return
        self._believe(found)

    @single_threaded
    def _refit(self) -> None:
        """Corrects a learned simulator by what was recorded, and acts on it if that is much."""
        self._due = int(self.memory.steps * self.parts.supervisor.again)
        self._scale = usual_change(np.concatenate(self.memory.states()), self.parts.metric.floor)
        found = refit(self.memory.log(), self.parts.nominal)
        if found is not None:
            self._believe(found.diagnosis, found.simulator)
        elif self.belief.changed and not (self._gain(self.belief) > 0 or self._still()):
            self._take(self.nominal)
            self.say("nothing is changed any more; the base policy acts")

    def _gain(self, belief: Belief) -> float:
        """By how much the last real returns lie above the base policy's; 0 without any."""
        own, base = belief.returns.adapted, belief.returns.base
        if not own or not base:
            return 0.0
        return float(np.mean(own[-self.parts.supervisor.rest :]) - np.mean(base))

    def _ended_learned(self, total: float, share: float) -> None:
        """Refits a learned simulator, as long as what acts does not clearly pay."""
        belief, s, returns = self.belief, self.parts.supervisor, self.belief.returns
        if belief.changed:
            self._returned(belief, total, share)
        elif share < 0.05:
            self._base.append(total)
        if belief.withdrawn or not self._base or self.memory.steps < s.least:
            return
        due = not belief.changed
        if self.acts is not None and self.memory.steps >= self._due:
            base = float(np.mean(returns.base))
            best = max(returns.adapted, default=base) - base
            least = max(self.parts.judge.clear * abs(base), s.falling * best)
            due = self._gain(belief) < least
        if due:
            self._refit()

    def _still(self) -> bool:
        """Whether the believed world explains the last steps better than the nominal one."""
        x, u, x_next = self._steps(self.parts.supervisor.kept)
        flags = np.zeros(len(x), dtype=bool)
        size = usual_size(x_next - x)
        nominal, own = (
            huber_loss(self.belief.twin.gap(x_next, self.belief.twin.advance(each, x, u)) / size)
            for each in (flags, ~flags)
        )
        return bool(own.mean() < nominal.mean())

    def _same(self, a: Diagnosis, b: Diagnosis | None) -> bool:
        if b is None or set(a.changes) != set(b.changes):
            return False
        close = all(
            abs(np.log(max(each.factor, 1e-9) / max(b.changes[name].factor, 1e-9)))
            < self.parts.supervisor.same
            if each.unit == "x"
            else abs(each.factor - b.changes[name].factor) < 0.05 * abs(each.factor) + 1e-9
            for name, each in a.changes.items()
        )
        if (a.wind is None) != (b.wind is None):
            return False
        if a.wind is None or b.wind is None:
            return close
        sizes = abs(a.wind.size - b.wind.size) < 0.05 * max(a.wind.size, b.wind.size)
        periods = (a.wind.period is None) == (b.wind.period is None) and (
            a.wind.period is None
            or b.wind.period is None
            or abs(a.wind.period / b.wind.period - 1) < 0.02
        )
        return close and a.wind.place == b.wind.place and sizes and periods

    def _believe(self, found: Diagnosis, simulator: Any = None) -> None:
        """A world that was not known: corrections are proposed and judged in it."""
        parts = self.parts
        kinds = {name.partition(":")[0] for name in found.changes}
        if kinds & {DELAY, BIAS}:
            self.say(f"{_said(found)}; no correction is known for it, the base policy acts")
            self._take(self.nominal)
            return
        wind = found.wind if found.wind is not None and found.wind.axes else None
        twin = Twin(parts.nominal, simulator or found.simulator(), wind, parts.threads)
        belief = Belief(found, twin, noise=_noise(found, self.parts.supervisor.quantile))
        belief.situation = self._situation(found, twin)
        self.beliefs.append(belief)
        self._deviations, self._usual = [], []
        before = self.belief
        self.belief = belief
        if isinstance(before.correction, Residual) and before.twin.axes == twin.axes:
            # Found for nearly the same world: it is judged again in this one.
            belief.correction, belief.verdict = before.correction, before.verdict
        quick = [each for each in parts.proposers if each.quick]
        self.phase = Phase.OBSERVE
        if self._learned:
            belief.returns = before.returns if before.changed else Returns(self._base)
            self._try(belief, quick[0])
        else:
            self._propose(belief, quick, recent=True)
        if before.changed and before is not belief:
            self.beliefs.remove(before)  # a better diagnosis of the same world

    def _rng(self) -> np.random.Generator:
        """Draws of the next question; they follow from the seed and its number."""
        self._asked += 1
        return np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=(self._asked,)))

    def _situation(self, found: Diagnosis, twin: Twin) -> Situation:
        parts = self.parts
        assert self._scale is not None
        starts, recent = self.memory.starts(), self.memory.recent(20)
        visited = (
            np.concatenate(self.memory.states())[-2 * parts.metric.visited :]
            if self._learned
            else self._visited(starts, recent, twin)
        )
        scale = np.maximum(self._scale, usual_change(visited, parts.metric.floor))
        self._scale = scale
        root = closed_loop_metric(twin, parts.policy, visited, scale, parts.metric)
        noise = 0.0
        if isinstance(parts.nominal, LearnedSimulator):
            noise = float(np.square(root * parts.nominal.fit.own).sum() / len(root))
        velocities = parts.nominal.dynamics.parts.get("qvel", np.arange(twin.d_x))
        index = np.asarray(velocities)
        x, u, x_next = self._steps()
        told = twin.gap(x_next, twin.advance(np.zeros(len(x), dtype=bool), x, u))[:, index]
        told = told[np.isfinite(told).all(axis=1)]
        size = np.sqrt(np.square(told).mean(axis=0)) if len(told) else np.ones(len(index))
        size = np.maximum(size, 1e-6 * max(float(size.max(initial=0.0)), 1e-9))
        window = Window(parts.simulation.h, size, index)
        return Situation(
            found, twin, parts.policy, parts.range, parts.dtype, root, self._scale, starts, recent,
            self.memory.observations(), window, parts.horizon, parts.simulation, parts.winds, noise,
        )  # fmt: skip

    def _steps(self, most: int = 500) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        log = self.memory.log()
        parts = [
            (np.asarray(each.states)[:-1], each.actions, np.asarray(each.states)[1:])
            for each in log.episodes
        ]
        x, u, x_next = (np.concatenate(each)[:most] for each in zip(*parts, strict=True))
        return x, u, x_next

    def _visited(self, starts: np.ndarray, recent: np.ndarray, twin: Twin) -> np.ndarray:
        """Consecutive states that the policy visits in the nominal world."""
        found = []
        for x in (starts[-1:], recent[-1:]):
            for _ in range(min(self.parts.metric.visited, self.parts.horizon)):
                found.append(x[0])
                x, _, ended = twin.step(x, self.parts.policy(twin.observe(x)), None, False)
                if ended[0]:
                    break
        return np.array(found)

    def _propose(self, belief: Belief, proposers: Sequence[Proposer], recent: bool) -> None:
        """Asks proposers, judges what they propose, and takes the best that wins."""
        assert belief.situation is not None
        answer = _ask(
            belief.situation, belief.correction, belief.verdict, proposers, self.parts.judge,
            self._rng(), recent,
        )  # fmt: skip
        self._adopt(belief, answer)

    def _try(self, belief: Belief, proposer: Proposer) -> None:
        """Acts at once: a learned simulator is no judge of whole episodes, real ones are."""
        at = belief.situation
        assert at is not None
        belief.correction = proposer.propose(at, belief.correction, self._rng(), _LOG.info)
        base = float(np.mean(belief.returns.base))
        belief.verdict = Verdict(proposer.name, base, base, base, 0.0, 0.0, 0, at.horizon)
        self.phase = Phase.TRIAL
        self.say(
            f"{_said(belief.diagnosis)}; {proposer.name} is tried, real returns judge it; the base "
            f"policy's is {base:.0f}"
        )

    def _adopt(self, belief: Belief, answer: "Answer | None") -> None:
        """Takes over what won in the diagnosed world."""
        if answer is None:
            return
        best, correction = answer
        won = best.won(self.parts.judge)
        belief.correction = correction if won else None
        belief.verdict = best if won else None
        outcome = (
            f"{best.name} {'wins' if won else 'does not win'} {best.returns:.0f} to "
            f"{best.base:.0f} in {best.episodes} simulated episodes of {best.steps} steps"
        )
        self.say(
            f"{_said(belief.diagnosis)}; {outcome}; {'acting' if won else 'the base policy acts'}"
        )
        if self.belief is belief:
            self.phase = Phase.TRIAL if won else Phase.OBSERVE

    def ended(self, total: float, share: float) -> None:
        """An episode ended: its return, and the share of its steps in which a correction acted."""
        s = self.parts.supervisor
        if self._learned:
            self._ended_learned(total, share)
            return
        if not self.belief.changed and s.least <= self.memory.steps < s.first:
            self._diagnose()  # who falls so early cannot wait
        if self.belief.changed:
            self._returned(self.belief, total, share)

    def _returned(self, belief: Belief, total: float, share: float) -> None:
        """Real returns judge what acts."""
        s = self.parts.supervisor
        if share > 0.8:
            belief.returns.adapted.append(total)
        elif share < 0.05:
            belief.returns.base.append(total)
        if belief.withdrawn:
            belief.withdrawn -= 1
            if not belief.withdrawn and self.phase is Phase.REST:
                self.phase = Phase.OBSERVE
            return
        if self.phase in (Phase.TRIAL, Phase.ACTIVE) and belief.verdict is not None:
            if belief.returns.harmful(self._expected(belief), self.parts.judge):
                self.phase = Phase.REST
                belief.correction, belief.withdrawn = None, s.rest
                mean = np.mean(belief.returns.adapted)
                self.say(f"{belief.verdict.name} is withdrawn: {mean:.0f} in real episodes")
                belief.verdict = None
                return
            if len(belief.returns.adapted) >= 1:
                self.phase = Phase.ACTIVE
        self._search(belief)

    def _expected(self, belief: Belief) -> float:
        """Return of the base policy in whole episodes of a world, as simulated ones tell it."""
        verdict, at = belief.verdict, belief.situation
        assert verdict is not None
        assert at is not None
        if verdict.steps < at.horizon and belief.expected is None:
            starts = at.draw(self.parts.judge.rounds[-1][0], np.random.default_rng(self._seed))
            belief.expected = base_return(at, starts)
        return verdict.base if belief.expected is None else belief.expected

    def _search(self, belief: Belief) -> None:
        """A long search, once for a world that is known well enough, where much is missing."""
        s = self.parts.supervisor
        slow = [each for each in self.parts.proposers if not each.quick]
        if belief.done or not slow or self.memory.steps < s.ready or self._job is not None:
            return
        at = belief.situation
        assert at is not None
        belief.searched += 1
        at = at._replace(starts=self.memory.starts(), observations=self.memory.observations())
        rng = self._rng()
        if not s.background:
            self._finish(belief, self._searched(at, belief.correction, belief.verdict, slow, rng))
            return
        # The loop goes on meanwhile, with simulators of its own.
        wind = at.twin.wind
        own = Twin(self.parts.nominal, at.diagnosis.simulator(), wind, self.parts.threads)
        job = _BACKGROUND.submit(
            self._searched, at._replace(twin=own), belief.correction, belief.verdict, slow, rng
        )
        self._job = belief, job

    @single_threaded
    def _searched(
        self,
        at: Situation,
        known: Correction | None,
        verdict: Verdict | None,
        proposers: Sequence[Proposer],
        rng: np.random.Generator,
    ) -> "Answer | None":
        s = self.parts
        starts = at.draw(s.judge.rounds[-1][0], rng)
        if known is None:
            now, nominal = base_return(at, starts), nominal_return(at, starts)
        else:
            best = simulated(at, {"now": known}, starts, at.horizon)[0]
            now, nominal = best.returns, best.nominal
        if now > nominal - s.supervisor.headroom * abs(nominal):
            return None
        return _ask(at, known, verdict, proposers, s.judge, rng, recent=False)

    def _finish(self, belief: Belief, answer: "Answer | None") -> None:
        """What a search came to."""
        s = self.parts.supervisor
        if answer is None or not any(belief is each for each in self.beliefs):
            belief.done = True
            return
        before = belief.correction
        self._adopt(belief, answer)
        if belief.correction is not before:
            belief.returns.adapted.clear()
        belief.done = belief.correction is before or belief.searched >= s.searches

    def _poll(self) -> None:
        """Takes over what a search in the background has found."""
        if self._job is None or not self._job[1].done():
            return
        (belief, job), self._job = self._job, None
        self._finish(belief, job.result())


Answer = tuple[Verdict, Correction]
"""the best of some corrections, and what was said of it"""


def _ask(
    at: Situation,
    known: Correction | None,
    verdict: Verdict | None,
    proposers: Sequence[Proposer],
    judge: JudgeSettings,
    rng: np.random.Generator,
    recent: bool,
) -> Answer | None:
    """Candidates of proposers and the one that is known, judged in the diagnosed world."""
    candidates: dict[str, Correction] = {}
    for proposer in proposers:
        made = proposer.propose(at, known, rng, _LOG.info)
        if made is not None:
            candidates[proposer.name] = made
    if known is not None and verdict is not None:
        name = verdict.name if verdict.name not in candidates else f"{verdict.name}, as before"
        candidates[name] = known
    if not candidates:
        return None
    best = judged(at, candidates, judge, rng, recent)[0]
    return best, candidates[best.name]


def _noise(found: Diagnosis, quantile: float) -> float:
    """Mean square deviation of a step that a diagnosis leaves, where no place of a wind has it."""
    if found.trace is None or (found.wind is not None and found.wind.axes):
        return 0.0
    left = found.trace.after[np.isfinite(found.trace.after)]
    return float(np.square(np.quantile(left, quantile))) if len(left) else 0.0


def _said(found: Diagnosis | None) -> str:
    """What changed, in one line."""
    if found is None:
        return "nothing changed"
    words = [f"{name} {each}".split(" [")[0] for name, each in found.changes.items()]
    if found.wind is not None and found.wind.axes:
        words.append(str(found.wind))
    return ", ".join(words[:4]) + (f" and {len(words) - 4} more" if len(words) > 4 else "")
