"""Studies whose runs are computed at one go: each leaves its numbers in result.json.

Such a run takes seconds or minutes and begins anew after a stop. All else is as with trainings: a
run is a folder named by its settings, done in processes here or as a Ray task, once for all.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from rich.console import Console

from windward.atomic import prepare, write_rows, write_text
from windward.studies.pages import report
from windward.studies.pages.report import Section
from windward.studies.runs import execution, results, study_folder
from windward.studies.runs.commands import command_line
from windward.studies.runs.execution import Execution
from windward.studies.runs.runner import Outcome
from windward.studies.runs.scale import Scale
from windward.studies.runs.store import CURVES, Run, Task, commits, curve, finished

RESULT = "result.json"
MEMORY = 2 * 2**30
"""bytes that a run may need"""
BINS = 200
"""points of a cost curve"""
START = 4.0
"""seconds that a run takes before its first step: imports and compiling"""
USUAL = 50
"""numbers in M, d_x·d_u·h, up to which a step takes as long whatever their count"""
FREE = ("how", "out")
"""settings that are no part of a result"""


@dataclass(frozen=True, kw_only=True)
class Computed:
    """What all such studies have for settings."""

    scale: Scale = "laptop"
    """laptop: as the settings say, which is also the paper's size; smoke: a minute, for tests"""
    out: Path | None = None
    """folder for the page, figures, runs.csv and summary.json; out/studies/STUDY-SCALE if left
    out"""
    how: Execution = field(default_factory=Execution)


class Result(NamedTuple):
    """A finished run: what it left, and its curve, {} if it has none."""

    run: Run
    content: dict[str, Any]
    curve: Mapping[str, np.ndarray]
    folder: Path


class Plan(NamedTuple):
    """A study that is about to be run."""

    name: str
    settings: Any
    runs: Sequence[Run]
    command: str
    pace: float
    """steps that its runs simulate in a second of one core, as measured at its usual size"""
    free: tuple[str, ...] = ()
    """settings beside `FREE` that may change under one name: more of the same"""

    @property
    def out(self) -> Path:
        """Its folder."""
        usual = Path("out/studies") / f"{self.name}-{self.settings.scale}"
        return Path(self.settings.out or usual)


S = TypeVar("S", bound=Computed)


def sized(settings: S, usual: S, small: Mapping[str, Any]) -> S:
    """With the small numbers of smoke, where they are as they come."""
    if settings.scale != "smoke":
        return settings
    same = {name for name in small if getattr(settings, name) == getattr(usual, name)}
    return replace(settings, **{name: small[name] for name in same})


def command_of(name: str, settings: Any, usual: Any) -> str:
    """The exact command."""
    return command_line(f"windward run {name}", settings, usual)


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
        _show(plan, console)
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


def whole(plan: Plan, console: Console) -> list[Result] | None:
    """The same for studies that say nothing before all runs are finished."""
    found = compute(plan, console)
    if found is None:
        return None
    done, outcome = found
    outcome.raise_for(len(plan.runs), plan.settings.how.runs)
    if len(done) < len(plan.runs):
        raise ValueError(
            f"{len(done)} of {len(plan.runs)} runs are finished; the command without --no-train "
            "makes the others"
        )
    return done


def content(run: Run, root: Path) -> dict[str, Any]:
    """What a finished run left."""
    path = run.folder(root) / RESULT
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error!r}): delete {path.parent}") from error
    return found


def work(settings: Mapping[str, Any]) -> float:
    """Steps that a run simulates: every point of its grid when tuning, then what is reported.

    A step of a larger system counts for as many as it takes the time of.

    >>> work({"T": 100, "seeds": 5, "winds": ["a", "b"]})
    1000.0
    >>> work({"T": 100, "d_x": 10, "d_u": 5, "h": 5})
    500.0
    >>> work({"T": 100, "tune_seeds": 3, "grid": {"eta": [0.1, 0.2]}})
    700.0
    >>> screened = {"screen_seeds": 1, "tune_seeds": 3, "finalists": 2}
    >>> work({"T": 100, **screened, "etas": [0.1, 0.2, 0.3, 0.4]})
    900.0
    """

    def count(*names: str) -> int:
        each = (settings.get(name, 1) for name in names)
        return prod(len(value) if isinstance(value, list | dict) else value for value in each)

    points = prod(len(values) for values in settings.get("grid", {}).values())
    points *= count("etas", "deltas")
    tuned = "grid" in settings or "etas" in settings
    tries = points * settings.get("tune_seeds", 1)
    if "screen_seeds" in settings:
        first = settings["screen_seeds"]
        tries = points * first + settings["finalists"] * (settings["tune_seeds"] - first)
    tuning = tries * count("tune_winds", "tune_periods", "tune_systems") * tuned
    reported = sum(settings.get("horizons", [settings.get("T", 0)]))
    shown = count("seeds", "winds", "periods", "systems") * reported
    steps = tuning * settings.get("tune_horizon", settings.get("T", 0)) + shown
    return float(steps * max(1.0, count("d_x", "d_u", "h") / USUAL))


def speed(works: Sequence[float], seconds: Sequence[float]) -> float:
    """Steps that runs simulate in a second of one core, once they have begun.

    >>> speed([600.0, 600.0], [7.0, 7.0])
    200.0
    """
    return sum(works) / sum(max(each - START, 1.0) for each in seconds)


def _pace(run: Run, timed: Sequence[Run], plan: Plan) -> float:
    """Simulated steps in a second of one core: of finished runs of its method, of all, or usual."""
    same = [each for each in timed if each.settings.get("method") == run.settings.get("method")]
    for known in (same, timed):
        marks = [finished(each, plan.settings.how.runs) for each in known]
        seconds = [mark.pace.seconds for mark in marks if mark is not None]
        if seconds:
            return speed([work(each.settings) for each in known], seconds)
    return plan.pace


def hours_left(plan: Plan, left: Sequence[Run], timed: Sequence[Run]) -> float:
    """Core-hours that runs take, by those that are finished or else by the usual pace."""
    seconds = (START + work(run.settings) / _pace(run, timed, plan) for run in left)
    return sum(seconds) / 3600


def _show(plan: Plan, console: Console) -> None:
    """Prints what would be run, and what that would cost."""
    how: Execution = plan.settings.how
    left = [run for run in plan.runs if finished(run, how.runs) is None]
    timed = [run for run in plan.runs if run not in left]
    source = "finished runs" if timed else "measured speed"
    hours = hours_left(plan, left, timed)
    jobs = execution.at_once(how, MEMORY)
    here = f"{hours / jobs:.2f} hours with {jobs} at once"
    rest = (
        f"the others: {hours:.2f} core-hours (by {source}); "
        f"{here if how.backend == 'local' else 'as Ray tasks'}; "
        f"up to {MEMORY / 2**30:.0f} GiB of memory each"
    )
    console.print(
        f"{plan.name}: {len(plan.runs)} runs, {len(plan.runs) - len(left)} of them finished in "
        f"{how.runs}; {rest if left else 'nothing is left to be done'}",
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
    runs = commits([each.run for each in done], plan.settings.how.runs)
    summary = results.write_summary(
        prepare(plan.out) / "summary.json", plan.command, plan.settings, found=found,
        commits_of_runs=runs, **content,
    )  # fmt: skip
    facts = {
        "command": plan.command,
        "settings": "\n".join(f"{name}: {value}" for name, value in summary["settings"].items()),
        "versions": "\n".join(f"{name} {value}" for name, value in summary["versions"].items()),
        "commit": summary["commit"] or "unknown",
        "commits of runs": "\n".join(runs),
    }
    page = plan.out / "report.html"
    report.write(page, f"{plan.name}: {title}", f"{question}\n{found}", sections, facts)
    console.print(
        f"page: {page}   raw results: {plan.out / 'runs.csv'}", highlight=False, soft_wrap=True
    )
    return summary
