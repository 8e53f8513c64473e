"""`recovery`: nominal, base and adapted episodes of changed worlds, with equal starts and winds.

A run is one case with one learner on one seed; all three policies play in it.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from rich.console import Console
from threadpoolctl import threadpool_limits

from windward import checks, policies
from windward.adapt import RobustWrapper
from windward.adapt.config import known as known_learners
from windward.simulators.fitting import fit_simulator
from windward.studies import run as computed
from windward.studies.evaluation.episodes import Actor, play
from windward.studies.recovery import report
from windward.studies.recovery.cases import (
    CARTPOLE,
    CASES,
    CHEETAH,
    HOPPER,
    INVERTED,
    PENDULUM,
    Case,
)
from windward.studies.run import Computed, Plan
from windward.studies.spec import Pace, Run, Task

NAME = "recovery"
EPISODE = {PENDULUM: 0.2, CARTPOLE: 0.5, INVERTED: 0.6, HOPPER: 0.8, CHEETAH: 1.0}
"""seconds of one core for an episode of all three policies"""
DIAGNOSES = {PENDULUM: 2.0, CARTPOLE: 3.0, INVERTED: 5.0, HOPPER: 25.0, CHEETAH: 15.0}
"""seconds for the diagnoses of a run, and for judging in simulation"""
SEARCHES = {PENDULUM: 5.0, CARTPOLE: 10.0, INVERTED: 20.0, HOPPER: 110.0, CHEETAH: 60.0}
"""seconds for the searches of a run, where something changed"""


@dataclass(frozen=True)
class RecoveryStudy(Computed):
    """How much of a lost return comes back, at once and later, and whether adaptation harms."""

    learners: tuple[str, ...] = ("matching", "auto")
    """learners of RobustWrapper"""
    cases: tuple[str, ...] = tuple(CASES)
    """cases by name"""
    episodes: int = 10
    """episodes of each seed, over which a learner adapts"""
    seeds: int = 4
    """seeds of each case"""
    first_seed: int = 3000
    """the first held-out seed"""


SMALL: dict[str, Any] = {
    "cases": ("pendulum-slow-sine", "inverted-pendulum-calm"), "episodes": 2, "seeds": 1,
    "learners": ("matching",),
}  # fmt: skip
"""what smoke changes"""


class Timed(gym.Wrapper[Any, Any, Any, Any]):
    """Times steps, and compares each executed action with the base action."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.seconds: list[float] = []
        self.exact = True

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step."""
        began = time.perf_counter()
        found = self.env.step(action)
        self.seconds.append(time.perf_counter() - began)
        executed = found[4].get("windward", {}).get("action", action)
        self.exact &= np.asarray(executed).tobytes() == np.asarray(action).tobytes()
        return found


class Stopwatch:
    """Adds up the wall time of an object's methods."""

    def __init__(self, of: Any, *names: str) -> None:
        self.seconds = 0.0
        for name in names:
            setattr(of, name, self._timed(getattr(of, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*args)
            finally:
                self.seconds += time.perf_counter() - began

        return timed


def measure(
    case: Case, learner: str, seed: int, episodes: int, check: Callable[[], None]
) -> dict[str, Any]:
    """Plays the episodes of all policies; `check` is called after each."""
    model, rows = policies.load(case.env), []
    simulator: Any = {"scale": dict(case.scale)} if case.scale else None
    if case.learned:
        simulator = fit_simulator(case.env, model, steps=case.learned, seed=seed)
    adapted = RobustWrapper(
        case.world(), model=model, learner=learner, simulator=simulator, seed=seed
    )
    supervisor = getattr(adapted._runtime.learner, "supervisor", None)
    watch = None if supervisor is None else Stopwatch(supervisor, "stepped", "ended")
    worlds = {"nominal": case.nominal(), "base": case.world(), "adapted": adapted}
    timed = {policy: Timed(env) for policy, env in worlds.items()}
    for policy, env in timed.items():
        actor = Actor(model, env.action_space)
        for episode in range(episodes):
            total, length, *_ = play(env, actor, seed, episode)
            rows.append({"episode": episode, "policy": policy, "return": total, "length": length})
            check()
    found = {
        "rows": rows, "exact": timed["adapted"].exact, "slowest": max(timed["adapted"].seconds),
        "supervisor": None if watch is None else watch.seconds,
        "step_ms": 1e3 * float(np.median(timed["adapted"].seconds)),
        "base_ms": 1e3 * float(np.median(timed["base"].seconds)),
        "decisions": adapted.decisions, "phase": adapted.phase, "faults": adapted.faults,
    }  # fmt: skip
    for env in timed.values():
        env.close()
    return found


def perform(task: Task) -> Pace:
    """One run on one core."""
    s, began = task.run.settings, time.process_time()
    with threadpool_limits(1):
        found = measure(CASES[s["case"]], s["learner"], s["seed"], s["episodes"], task.check)
    computed.leave(task, found)
    return Pace(s["episodes"], time.process_time() - began)


def make_runs(settings: RecoveryStudy) -> list[Run]:
    """For each case and learner each seed."""
    runs = []
    for name in settings.cases:
        world = {**asdict(CASES[name])}
        for goal in ("first", "later", "since", "each", "limit", "exact"):
            del world[goal]  # which change no number
        for learner in settings.learners:
            for seed in range(settings.first_seed, settings.first_seed + settings.seeds):
                chosen = {
                    "kind": NAME, "method": f"{learner} {world['env']}", "case": name, **world,
                    "learner": learner, "seed": seed, "episodes": settings.episodes,
                    "T": settings.episodes,
                }  # fmt: skip
                runs.append(Run(f"{NAME} {name} {learner} {seed}", chosen, chosen["T"], perform))
    return runs


def seconds(run: Run) -> float:
    """What a run takes of one core, about."""
    s = run.settings
    env, searches = s["env"], s["learner"] in ("auto", "search")
    found = s["episodes"] * EPISODE[env] + DIAGNOSES[env]
    return found + SEARCHES[env] * (searches and not CASES[s["case"]].exact)


def run(settings: RecoveryStudy, console: Console) -> dict[str, Any]:
    """Does what is not finished; writes runs.csv, summary.json, figure and page."""
    command = computed.command_of(NAME, settings, RecoveryStudy())
    settings = computed.sized(settings, RecoveryStudy(), SMALL)
    _check(settings)
    runs = make_runs(settings)
    pace = sum(each.goal for each in runs) / sum(map(seconds, runs))
    plan = Plan(NAME, settings, runs, command, pace, free=("seeds",))
    found = computed.compute(plan, console)
    if found is None:
        return {}
    done, outcome = found
    # Each case stands for itself: a part of them is shown as what it is.
    outcome.raise_for(len(runs), settings.how.runs)
    return report.write(plan, done, console)


def _check(settings: RecoveryStudy) -> None:
    for name, known in (("learners", known_learners()), ("cases", tuple(CASES))):
        given = getattr(settings, name)
        if not given or set(given) - set(known):
            raise ValueError(f"{name} must be of {', '.join(known)}; got {given}")
    for name, least in (("episodes", 2), ("seeds", 1), ("first_seed", 0)):
        checks.integer(name, getattr(settings, name), least)
    late = [name for name in settings.cases if CASES[name].since >= settings.episodes]
    if late:
        raise ValueError(
            f"{late[0]} has its later episodes after {CASES[late[0]].since}: give more episodes; "
            f"got {settings.episodes}"
        )
