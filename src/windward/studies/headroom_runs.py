"""Runs of `headroom` on disk: a method on a case with a seed is a file, made once.

Starts, winds and the policy's own draws follow from seed, episode and step, so methods are
compared on the same ones. A file says what it is of: one of other settings is refused.
"""

import json
import multiprocessing
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from threadpoolctl import threadpool_limits

from windward.adapt import RobustWrapper
from windward.atomic import write_text
from windward.studies.evaluation_episodes import Actor, Episode, play, play_adapted
from windward.studies.headroom_cases import EVERY
from windward.studies.headroom_methods import METHODS, Given
from windward.studies.loading import load_model, logits_for

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
    def of(self) -> dict[str, Any]:
        """All that its returns depend on, but for the code and how many they are."""
        case = EVERY[self.case]
        return {
            "env": case.env, "wind": case.tune if self.tuning else case.wind,
            "channel": case.channel, "max_steps": self.max_steps, "numbers": dict(self.numbers),
            "M": self.M,
        }  # fmt: skip

    def path(self, root: Path) -> Path:
        """Where it lies."""
        tried = "".join(f"{name}={each:g}-" for name, each in self.numbers.items())
        name = f"tune-{tried}{self.seed}" if self.tuning else str(self.seed)
        return root / self.case / self.method / f"{name}.json"


def stored(job: Job, root: Path) -> dict[str, Any] | None:
    """The run, if it is there and long enough."""
    path = job.path(root)
    if not path.exists():
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        of, enough = found["of"], len(found["returns"]) >= job.episodes
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}): delete it") from error
    changed = [name for name, each in job.of.items() if of.get(name) != each]
    if changed:
        raise ValueError(
            f"{path} is a run with another {', '.join(changed)}: say --redo {job.method} to make "
            "its runs again, or name another folder with --runs"
        )
    return found if enough else None


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
        "of": job.of,
        "returns": [each.total for each in episodes],
        "lengths": [each.length for each in episodes],
        "clipped": [each.clipped for each in episodes],
        "M_norm": [each.M_norm for each in episodes],
        "decisions": list(decisions),
        "faults": dict(faults),
        "warned": list(dict.fromkeys(str(each.message) for each in caught)),
    }


def make(job: Job, root: Path) -> None:
    """Plays and writes, whole or not at all."""
    path = job.path(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(perform(job)) + "\n")


def make_all(jobs: Iterable[Job], root: Path, processes: int, console: Console) -> None:
    """Makes what is not there yet; a run that fails is told in the end and stops no other."""
    todo = [job for job in jobs if stored(job, root) is None]
    failed = []
    with bar(console) as progress:
        task = progress.add_task("", total=len(todo))
        for job, error in _done(todo, root, processes, progress, task):
            if error is not None:
                failed.append(f"{job.case}, {job.method}, seed {job.seed}: {error!r}")
            progress.advance(task)
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(todo)} runs failed; the same command tries them again:\n  "
            + "\n  ".join(failed)
        )


def _done(
    todo: list[Job], root: Path, processes: int, progress: Progress, task: Any
) -> Iterator[tuple[Job, BaseException | None]]:
    """Jobs as they come to their end, and why they failed."""
    if processes == 1:
        for job in todo:
            progress.update(task, description=f"{job.case}, {job.method}, seed {job.seed}")
            try:
                make(job, root)
            except Exception as error:  # a method may fail in any way
                yield job, error
            else:
                yield job, None
        return
    context = multiprocessing.get_context("spawn")  # JAX hangs after a fork
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        futures: dict[Future[None], Job] = {pool.submit(make, job, root): job for job in todo}
        try:
            for future in as_completed(futures):
                yield futures[future], future.exception()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


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


def bar(console: Console) -> Progress:
    """Over runs."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("runs"),
        TimeRemainingColumn(), console=console, transient=True,
    )  # fmt: skip
