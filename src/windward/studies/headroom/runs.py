"""Runs of `headroom`: a method on a case with a seed, as studies keep their runs.

Starts, winds and the policy's own draws follow from seed, episode and step, so methods are
compared on the same ones.
"""

import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from threadpoolctl import threadpool_limits

from windward.adapt import RobustWrapper
from windward.atomic import write_rows
from windward.studies.evaluation.episodes import Actor, Episode, play, play_adapted
from windward.studies.evaluation.loading import load_model, logits_for
from windward.studies.headroom.cases import EVERY
from windward.studies.headroom.methods import METHODS, Given
from windward.studies.linear import computed
from windward.studies.runs import execution
from windward.studies.runs.execution import Execution
from windward.studies.runs.store import CURVES, Pace, Run, Task, finished

KIND = "headroom"
MEMORY = 2 * 2**30
"""bytes that a run may need"""
Returns = dict[str, dict[str, np.ndarray]]
"""case -> method -> (seeds, episodes)"""


class Gathered(NamedTuple):
    """What runs left, by case and method."""

    returns: Returns
    decisions: dict[tuple[str, str], list[str]]
    """what was decided about M, in sentences"""
    still: dict[tuple[str, str], int]
    """on how many seeds M was 0 in the end"""
    rows: list[dict[str, Any]]
    """every episode"""


@dataclass(frozen=True)
class Job:
    """A method on a case with a seed."""

    case: str
    method: str
    seed: int
    episodes: int
    max_steps: int | None = None
    tuning: bool = False
    numbers: Mapping[str, float] = field(default_factory=dict)
    """what was tuned, or is tried"""
    M: list[Any] | None = None
    """for the method that holds one"""

    @property
    def run(self) -> Run:
        """As it is done and kept: all that its returns depend on, but for the code, is its name."""
        case = EVERY[self.case]
        tried = "".join(f" {name}={each:g}" for name, each in self.numbers.items())
        label = f"{KIND} {self.case} {self.method}{' tune' + tried if self.tuning else ''}"
        settings = {
            "kind": KIND, "case": self.case, "method": self.method, "seed": self.seed,
            "tuning": self.tuning, "env": case.env, "wind": case.tune if self.tuning else case.wind,
            "channel": case.channel, "max_steps": self.max_steps, "numbers": dict(self.numbers),
            "M": self.M,
        }  # fmt: skip
        return Run(f"{label} seed{self.seed}", settings, self.episodes, play_all)


def stored(job: Job, root: Path) -> dict[str, Any] | None:
    """What a run left, if it is finished and long enough."""
    return None if finished(job.run, root) is None else computed.content(job.run, root)


def perform(job: Job) -> dict[str, Any]:
    """Plays all episodes."""
    case, method = EVERY[job.case], METHODS[job.method]
    model = load_model(case.policy, case.env)
    logits = logits_for(model, None, "the policy") if case.discrete else None
    env = case.make(tuning=job.tuning, max_steps=job.max_steps)
    M = None if job.M is None else np.array(job.M)
    with (
        warnings.catch_warnings(record=True) as caught,
        threadpool_limits(1, user_api="blas"),  # small products are slower on many threads
        closing(method.make(Given(env, model, logits, job.seed, job.numbers, M))) as adapted,
    ):
        warnings.simplefilter("always")
        actor = Actor(model, env.action_space, logits)
        episodes: list[Episode] = []
        for number in range(job.episodes):
            if isinstance(adapted, RobustWrapper):
                episodes.append(play_adapted(adapted, actor, job.seed, number))
            else:
                episodes.append(play(adapted, actor, job.seed, number))
        decisions = getattr(adapted, "decisions", []) if adapted is not env else []
        faults = getattr(adapted, "faults", {}) if adapted is not env else {}
    return {
        "returns": [each.total for each in episodes],
        "lengths": [each.length for each in episodes],
        "clipped": [each.clipped for each in episodes],
        "M_norm": [each.M_norm for each in episodes],
        "decisions": list(decisions),
        "faults": dict(faults),
        "warned": list(dict.fromkeys(str(each.message) for each in caught)),
    }


def play_all(task: Task) -> Pace:
    """A run, from its beginning: what M has learned lies in no checkpoint."""
    began, s = time.process_time(), task.run.settings
    names = ("case", "method", "seed", "max_steps", "tuning", "numbers", "M")
    found = perform(Job(episodes=task.run.goal, **{name: s[name] for name in names}))
    task.check()
    columns = ("returns", "lengths", "clipped", "M_norm")
    rows = [
        {"steps": number, **dict(zip(columns, row, strict=True))}
        for number, row in enumerate(zip(*(found[each] for each in columns), strict=True), start=1)
    ]
    write_rows(task.folder / CURVES, rows)
    computed.leave(task, found)
    return Pace(task.run.goal, time.process_time() - began)


def make_all(jobs: Sequence[Job], how: Execution, console: Console) -> None:
    """Makes what is not there yet; a run that fails is told in the end and stops no other."""
    runs = [job.run for job in jobs]
    execution.execute(runs, how, MEMORY, console).raise_for(len(runs), how.runs)


def gather(jobs: list[Job], runs: Path) -> Gathered:
    """What there is of methods of which all seeds are there."""
    by: dict[tuple[str, str], list[tuple[Job, dict[str, Any] | None]]] = {}
    for job in jobs:
        by.setdefault((job.case, job.method), []).append((job, stored(job, runs)))
    found = Gathered({}, {}, {}, [])
    for (case, method), pairs in by.items():
        made = [(job, each) for job, each in pairs if each is not None]
        if len(made) < len(pairs):
            continue
        found.returns.setdefault(case, {})[method] = np.array(
            [each["returns"][: job.episodes] for job, each in made]
        )
        found.decisions[case, method] = [
            f"seed {job.seed}, {text}" for job, each in made for text in each["decisions"]
        ]
        found.still[case, method] = sum(each["M_norm"][job.episodes - 1] == 0 for job, each in made)
        found.rows.extend(
            {
                "case": case, "method": method, "seed": job.seed, "episode": number,
                "return": repr(float(each["returns"][number])), "length": each["lengths"][number],
                "clipped": each["clipped"][number], "M_norm": f"{each['M_norm'][number]:.6g}",
            }
            for job, each in made
            for number in range(job.episodes)
        )  # fmt: skip
    return found
