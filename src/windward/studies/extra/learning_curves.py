"""Learning curves: the evaluations of a run, and runs of several seeds in numbers and a figure."""

import csv
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from windward.studies import report
from windward.studies.report import Chart, Table
from windward.studies.report import Curve as Line
from windward.studies.stats import FINAL
from windward.studies.text import Cell


class Job(NamedTuple):
    """One run: a method with a seed on an environment."""

    env: str
    method: str
    seed: int
    steps: int
    eval_every: int


class Curve(NamedTuple):
    """The evaluations of a run, as far as it is."""

    job: Job
    rows: list[dict[str, str]]

    def column(self, name: str) -> np.ndarray:
        """A column of the file, as numbers."""
        return np.array([float(row[name]) for row in self.rows])

    @property
    def final(self) -> slice:
        """The evaluations that make the final return: the last tenth, at least the last."""
        return slice(-max(1, int(FINAL * len(self.rows))), None)

    @property
    def steps(self) -> int:
        """Steps at the last evaluation; 0 if there is none."""
        return int(self.rows[-1]["steps"]) if self.rows else 0

    @property
    def complete(self) -> bool:
        """Whether no evaluation is to come."""
        return self.steps + self.job.eval_every > self.job.steps


def read(path: Path, job: Job, beyond: int) -> Curve:
    """The curve in a file, up to fewer than `beyond` steps after the job's end."""
    if not path.exists():
        return Curve(job, [])
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return Curve(job, [row for row in rows if int(row["steps"]) < job.steps + beyond])


def _numbers(curve: Curve) -> dict[str, Any]:
    """One run; None where there is no evaluation yet."""
    returns = curve.column("eval_return")[curve.final]
    worst = curve.column("eval_worst")[curve.final]
    return {
        "seed": curve.job.seed,
        "progress": f"{curve.steps} of {curve.job.steps} steps",
        "complete": curve.complete,
        "steps": curve.steps,
        "updates": int(curve.rows[-1]["updates"]) if curve.rows else 0,
        "final_return": float(returns.mean()) if curve.rows else None,
        "worst_evaluation": float(returns.min()) if curve.rows else None,
        "worst_episode": float(worst.min()) if curve.rows else None,
    }


def summarise(group: list[Curve]) -> dict[str, Any]:
    """One method on one environment: the mean over seeds, the worst, and every seed's."""
    runs = [_numbers(curve) for curve in group]
    begun = [run for run in runs if run["steps"]]
    return {
        "env": group[0].job.env,
        "method": group[0].job.method,
        "complete": all(run["complete"] for run in runs),
        "final_return": float(np.mean([r["final_return"] for r in begun])) if begun else None,
        "worst_evaluation": min((run["worst_evaluation"] for run in begun), default=None),
        "runs": runs,
    }


def _text(number: float | None) -> str:
    return "-" if number is None else f"{number:.1f}"


def table(summaries: list[dict[str, Any]], episodes: int) -> Table:
    """The summaries; every run says how far it is."""
    rows: list[list[Cell]] = [
        [
            each["env"], each["method"], _text(each["final_return"]),
            _text(each["worst_evaluation"]),
            ", ".join(f"{run['seed']}: {_text(run['final_return'])}" for run in each["runs"]),
            ", ".join(dict.fromkeys(run["progress"] for run in each["runs"])),
        ]
        for each in summaries
    ]  # fmt: skip
    columns = ("environment", "method", "mean", "worst", "each seed", "steps")
    note = (
        f"{episodes} episodes without noise an evaluation; worst: the lowest of those evaluations, "
        "of any seed."
    )
    return Table(f"Final return: the mean of the last {FINAL:.0%} of evaluations", columns, rows,
                 note)  # fmt: skip


def mean_curve(curves: list[Curve]) -> tuple[np.ndarray, np.ndarray]:
    """(steps, mean return) where all have been evaluated: over fewer seeds the mean would jump."""
    common = reduce(np.intersect1d, [curve.column("steps") for curve in curves])
    at = [np.isin(curve.column("steps"), common) for curve in curves]
    pairs = zip(curves, at, strict=True)
    return common, np.mean([curve.column("eval_return")[where] for curve, where in pairs], axis=0)


def charts(groups: list[list[Curve]]) -> list[Chart]:
    """One for each environment: thin lines are seeds, thick ones their mean."""
    by_env: dict[str, list[Line]] = {}
    first = groups[0][0].job.method
    for group in groups:
        begun = [curve for curve in group if curve.rows]
        if begun:
            job = begun[0].job
            runs = [(curve.column("steps"), curve.column("eval_return")) for curve in begun]
            dashed = job.method != first
            mean = Line(job.method, *mean_curve(begun), dashed=dashed)
            each = report.joined(f"{job.method}, each seed", runs, dashed=dashed)
            by_env.setdefault(job.env, []).extend((mean, each))
    note = "The mean is drawn where all seeds have been evaluated."
    return [
        Chart(env, "environment steps", "return without noise", lines, note)
        for env, lines in by_env.items()
    ]
