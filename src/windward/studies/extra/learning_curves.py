"""Learning curves: the evaluations of a run, and runs of several seeds in numbers and a figure."""

import csv
from functools import reduce
from math import ceil
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from rich.table import Table

from windward.figures import panels, save

FINAL = 0.1  # the share of evaluations, the last ones, that make the final return


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
    result = Table(
        title=f"Final return: the mean of the last {FINAL:.0%} of evaluations",
        caption=f"{episodes} episodes without noise an evaluation; worst: the lowest of those "
        "evaluations, of any seed",
    )
    columns = ("environment", "method", "mean", "worst", "each seed", "steps")
    for column in columns:
        side: Literal["left", "right"] = "left" if column in columns[:2] else "right"
        result.add_column(column, justify=side, overflow="fold", no_wrap=column == "steps")
    for summary in summaries:
        runs = summary["runs"]
        result.add_row(
            summary["env"],
            summary["method"],
            _text(summary["final_return"]),
            _text(summary["worst_evaluation"]),
            "\n".join(f"{run['seed']}: {_text(run['final_return'])}" for run in runs),
            "\n".join(run["progress"].removesuffix(" steps") for run in runs),
        )
    return result


def mean_curve(curves: list[Curve]) -> tuple[np.ndarray, np.ndarray]:
    """(steps, mean return) where all have been evaluated: over fewer seeds the mean would jump."""
    common = reduce(np.intersect1d, [curve.column("steps") for curve in curves])
    at = [np.isin(curve.column("steps"), common) for curve in curves]
    pairs = zip(curves, at, strict=True)
    return common, np.mean([curve.column("eval_return")[where] for curve, where in pairs], axis=0)


def draw(groups: list[list[Curve]], out: Path, name: str) -> None:
    """NAME.png and NAME.pdf: a panel for each environment.

    Thin lines are seeds, thick ones their mean. The first method on an environment has solid
    lines, others dashed ones.
    """
    begun = [[curve for curve in group if curve.rows] for group in groups]
    by_env: dict[str, list[list[Curve]]] = {}
    for group in begun:
        if group:
            by_env.setdefault(group[0].job.env, []).append(group)
    columns = min(2, len(by_env))
    figure, every = panels(columns, width=5.5, height=3.6, rows=ceil(len(by_env) / columns))
    for axes in every[len(by_env) :]:
        axes.set_visible(False)
    methods = list(dict.fromkeys(group[0].job.method for group in groups))
    for axes, (env, there) in zip(every, by_env.items(), strict=False):
        for group in there:
            method = group[0].job.method
            index = methods.index(method)
            look: dict[str, Any] = {"color": f"C{index}", "ls": "--" if index else "-"}
            for curve in group:
                returns = curve.column("eval_return")
                axes.plot(curve.column("steps"), returns, **look, lw=0.7, alpha=0.5)
            seeds = f"{len(group)} seed{'s' * (len(group) > 1)}"
            axes.plot(*mean_curve(group), **look, lw=2, label=f"{method}, {seeds}")
        axes.set(title=env, xlabel="environment steps", ylabel="return without noise")
        axes.legend(frameon=False)
    save(figure, out, name)
