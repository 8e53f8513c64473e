"""A study from its settings to its page, where runs are computed at one go.

Such a run leaves its numbers in result.json; it takes seconds or minutes and begins anew after a
stop. A run is a folder named by its settings, done in processes here or as a Ray task, once for
all. `conduct` does a whole study; its parts serve studies that show their results in another way.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.markup import escape

from windward.atomic import prepare, write_rows, write_text
from windward.studies import plots, report, text
from windward.studies.report import Chart, Section, Table
from windward.studies.runs import execution, study_folder
from windward.studies.runs.pool import Outcome
from windward.studies.runs.store import CURVES, commits, core_hours, curve, finished
from windward.studies.spec import (
    SMOKE,
    Computed,
    Execution,
    Result,
    Run,
    Study,
    Task,
    command_line,
    sized,
)

__all__ = ["Computed", "Plan", "Result", "command_of", "compute", "conduct", "leave", "sized",
           "write"]  # fmt: skip

RESULT, ROWS = "result.json", "runs.csv"
MEMORY = 2 * 2**30
"""bytes that a run may need"""
BINS = 200
"""points of a cost curve"""
FREE = ("how", "out")
"""settings that are no part of a result"""


class Plan(NamedTuple):
    """A study that is about to be run."""

    name: str
    settings: Any
    runs: Sequence[Run]
    command: str
    pace: float | None = None
    """units of its runs' goals in a second of one core, if that is known before any is finished"""
    free: tuple[str, ...] = ()
    """settings beside `FREE` that may change under one name: more of the same"""

    @property
    def out(self) -> Path:
        """Its folder."""
        usual = Path("out/studies") / f"{self.name}-{self.settings.scale}"
        return Path(self.settings.out or usual)


def conduct(study: Study, settings: Any, console: Console) -> dict[str, Any]:
    """Does what is not finished; writes runs.csv, summary.json, figure and page."""
    command = command_of(study.name, settings, study.default)
    settings = sized(settings, study.default, study.small)
    study.check(settings)
    runs = study.make_runs(settings)
    plan = Plan(study.name, settings, runs, command, free=study.free)
    found = compute(plan, console)
    if found is None:
        return {}
    done, outcome = found
    missing = len(done) < len(runs)
    if missing and not study.partial:
        outcome.raise_for(len(runs), settings.how.runs)
        raise ValueError(
            f"{len(done)} of {len(runs)} runs are finished; the command without --no-train makes "
            "the others"
        )
    try:
        shown = study.show(done, settings)
    except NothingShown:
        outcome.raise_for(len(runs), settings.how.runs)  # this is why
        raise
    states = [SMOKE] * (settings.scale == "smoke")
    states += [f"Not finished: {len(done)} of {len(runs)} runs are."] * missing
    said = " ".join([*states, shown.found])
    first = next((each for each in shown.sections if isinstance(each, Table)), None)
    if first is not None:
        console.print(report.terminal(first))
    console.print(escape(said), highlight=False)
    charts = shown.charts or [each for each in shown.sections if isinstance(each, Chart)]
    with study_folder.writing(plan.out):
        title = f"{study.name}: {study.title}"
        figure = plots.draw(charts, title, study.columns)
        plots.save(figure, plan.out, study.figure or study.name)
        write_rows(plan.out / ROWS, (short(row) for row in shown.rows))
        summary = write(
            plan, done, study.title, study.question, said, shown.sections, console, **shown.numbers
        )
    outcome.raise_for(len(runs), settings.how.runs)
    return summary


class NothingShown(ValueError):
    """Of what is finished nothing can be shown yet."""


def command_of(name: str, settings: Any, usual: Any) -> str:
    """The exact command."""
    return command_line(f"windward run {name}", settings, usual)


def short(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with numbers of nine digits."""
    return {
        name: f"{each:.9g}" if isinstance(each, float) else each for name, each in row.items()
    }  # fmt: skip


def plain(grid: Mapping[str, Any]) -> dict[str, list[float]]:
    """A tuning grid as settings of a run hold it: with another one it is another run."""
    return {name: np.asarray(values, dtype=float).tolist() for name, values in grid.items()}


def binned(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(steps, costs) of costs (..., T): where each bin ends, and the mean of the costs in it.

    >>> steps, costs = binned(np.arange(2.0 * BINS))
    >>> steps[:3].tolist(), costs[:3].tolist()
    ([2, 4, 6], [0.5, 2.5, 4.5])
    """
    T = cost.shape[-1]
    edges = np.linspace(0, T, min(BINS, T) + 1).astype(int)
    sums = np.add.reduceat(np.asarray(cost, float), edges[:-1], axis=-1)
    return edges[1:], sums / np.diff(edges)


def leave(task: Task, content: Mapping[str, Any], cost: np.ndarray | None = None) -> None:
    """Writes what a run came to; of costs (..., T) the mean over all but time, in bins."""
    task.check()
    if cost is not None:
        steps, each = binned(cost)
        means = each.reshape(-1, len(steps)).mean(axis=0)
        rows = [
            {"steps": int(end), "cost": float(mean)} for end, mean in zip(steps, means, strict=True)
        ]
        write_rows(task.folder / CURVES, rows)
    write_text(task.folder / RESULT, json.dumps(content))


def compute(plan: Plan, console: Console) -> tuple[list[Result], Outcome] | None:
    """Does what is not finished, and gives what is; None if it was only to be planned.

    A folder that holds results of other settings is refused before anything is run.
    """
    how: Execution = plan.settings.how
    execution.check(how)
    if how.dry_run:
        _plan(plan, console)
        return None
    free = (*FREE, *plan.free)
    identity = {n: v for n, v in asdict(plan.settings).items() if n not in free}
    study_folder.claim(plan.out, identity)
    outcome = Outcome()
    if how.train:
        outcome = execution.execute(plan.runs, how, MEMORY, console)
    done = [
        Result(run, content(run, how.runs), curve(run, how.runs), run.folder(how.runs))
        for run in plan.runs
        if finished(run, how.runs) is not None
    ]
    if not done:
        outcome.raise_for(len(plan.runs), how.runs)
        raise ValueError(f"no run in {how.runs} is finished: there is nothing to draw")
    return done, outcome


def content(run: Run, root: Path) -> dict[str, Any]:
    """What a finished run left."""
    path = run.folder(root) / RESULT
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error!r}): delete {path.parent}") from error
    return found


def seconds_left(plan: Plan) -> tuple[float, str] | None:
    """Core-seconds of what is not finished, and by what: finished runs, of its method if any is."""
    root = plan.settings.how.runs
    marks = [(run, finished(run, root)) for run in plan.runs]
    timed = [(run, mark.pace.seconds / run.goal) for run, mark in marks if mark is not None]
    left = [run for run, mark in marks if mark is None]
    if not timed and plan.pace is None:
        return None
    total = 0.0
    for run in left:
        method = run.settings.get("method")
        alike = [each for other, each in timed if other.settings.get("method") == method]
        known = alike or [each for _, each in timed] or [1 / plan.pace if plan.pace else 0.0]
        total += run.goal * sum(known) / len(known)
    return total, "finished runs" if timed else "measured speed"


def _plan(plan: Plan, console: Console) -> None:
    """Prints what would be run, and what that would cost."""
    how: Execution = plan.settings.how
    done = sum(finished(run, how.runs) is not None for run in plan.runs)
    cost, jobs = seconds_left(plan), execution.at_once(how, MEMORY)
    if done == len(plan.runs):
        rest = "nothing is left to be done"
    elif cost is None:
        rest = "what the others take is known once one is finished; see `windward list`"
    else:
        hours = cost[0] / 3600
        here = f"{hours / jobs:.2f} hours with {jobs} at once"
        rest = f"the others: {hours:.2f} core-hours (by {cost[1]}); "
        rest += f"{here if how.backend == 'local' else 'as Ray tasks'}"
    if done < len(plan.runs):
        rest += f"; up to {MEMORY / 2**30:.0f} GiB of memory each"
    console.print(
        f"{plan.name}: {len(plan.runs)} runs, {done} of them finished in {how.runs}; {rest}",
        highlight=False,
    )
    for run in plan.runs:
        console.print(f"  {run.label}", highlight=False)


def write(
    plan: Plan,
    done: Sequence[Result],
    title: str,
    question: str,
    found: str,
    sections: Sequence[Section],
    console: Console,
    **content: Any,
) -> dict[str, Any]:
    """summary.json and report.html; call it within `study_folder.writing`."""
    runs, root = [each.run for each in done], plan.settings.how.runs
    summary = study_folder.write_summary(
        prepare(plan.out) / study_folder.RESULTS, plan.command, plan.settings, found=found,
        commits_of_runs=commits(runs, root), core_hours=core_hours(runs, root), **content,
    )  # fmt: skip
    page = plan.out / "report.html"
    lead = f"{question}\n{found}"
    report.write(page, f"{plan.name}: {title}", lead, sections, text.facts(summary))
    console.print(f"page: {page}   raw results: {plan.out / ROWS}", highlight=False, soft_wrap=True)
    return summary
