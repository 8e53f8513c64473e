"""`windward tune STUDY`: sigma, eta and weight decay of MF-GPC, searched with Ray Tune.

Random points, and ASHA, which ends the weaker half at each rung. Runs are kept like those of any
study, so that a search that was stopped goes on, and its seeds are its own: neither those that
choose the sigma of a study nor those that are shown.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.markup import escape

from windward import checks
from windward.agents import Settings as AgentSettings
from windward.agents.threads import one_core_each
from windward.atomic import prepare
from windward.studies import report, text
from windward.studies.paper import groups, planning
from windward.studies.paper import training as robust_training
from windward.studies.paper.groups import Size, size_of
from windward.studies.paper.training import RobustTraining, training
from windward.studies.paper.trainings import ENTRIES, Trained
from windward.studies.report import Chart, Points, Section, Table, Text
from windward.studies.runs import store, study_folder
from windward.studies.runs.pool import why
from windward.studies.runs.ray_backend import connected
from windward.studies.runs.study_folder import claim
from windward.studies.spec import SMOKE, Execution, Run, command_line
from windward.studies.stats import last

FIRST = 1000
"""the first seed of a search"""
BEST = 10
"""points in the terminal's table"""
SEARCHED = ("sigma", "eta", "weight_decay")
COLUMNS = (*SEARCHED, "steps", "score")
SCORE = "mean return of the last half of the evaluations"
BASELINE = "The baseline was not searched: the study chooses its sigma from --base-sigmas."


@tyro.conf.configure(tyro.conf.CascadeSubcommandArgs)
@dataclass(frozen=True)
class Tune:
    """Search sigma, eta and weight decay of a study's MF-GPC with Ray Tune, on seeds of its own.

    windward tune hopper-pd3 --points 4 --scale smoke
    """

    study: Trained
    """the study that is searched; its own flags stand behind its name"""
    points: int = 16
    """random points of the search"""
    runs_each: int = 1
    """seeds at each point"""
    decades: float = 2.0
    """how far eta and weight decay reach on either side of the study's own, in powers of ten"""
    sigma_range: tuple[float, float] = (0.05, 0.4)
    """between which sigma is drawn"""
    search_seed: int = 0
    """random seed that draws the points"""


def rungs(steps: int, segment: int, eval_every: int) -> list[int]:
    """Steps after which points are compared: a quarter, a half, all, in whole segments.

    There is none before the first evaluation.

    >>> rungs(400_000, 50_000, 10_000), rungs(100_000, 50_000, 10_000)
    ([100000, 200000, 400000], [50000, 100000])
    >>> rungs(400_000, 50_000, 150_000)
    [200000, 400000]
    """
    cuts = {max(1, round(steps * part / segment)) * segment for part in (0.25, 0.5, 1.0)}
    return sorted(cut for cut in cuts if eval_every <= cut <= steps)


def at(settings: RobustTraining, point: dict[str, float]) -> AgentSettings:
    """The agent at a point of the search."""
    chosen: dict[str, Any] = {"eta": point["eta"], "weight_decay": point["weight_decay"]}
    robust = replace(settings.agent.robust, **chosen)
    return replace(settings.agent, sigma=point["sigma"], robust=robust)


def judge(
    settings: RobustTraining,
    size: Size,
    point: dict[str, float],
    seeds: int,
    steps: int,
    root: Path,
) -> float:
    """Trains at a point up to so many steps; the mean return of the last half of evaluations."""
    scores = []
    for seed in range(FIRST, FIRST + seeds):
        run = training(
            settings.env, at(settings, point), seed, steps, size.eval_every, size.eval_episodes
        )
        if store.perform(run, root) is not None:
            raise ValueError(f"another process is at {run.name}: end it, or wait for it")
        scores.append(last(store.curve(run, root)["eval_return"], groups.JUDGED))
    return float(np.mean(scores))


def space(tuning: Tune) -> dict[str, tuple[float, float]]:
    """The range of each number; all are drawn evenly in their logarithm."""
    robust, wide = tuning.study.agent.robust, 10.0**tuning.decades
    decay = robust.weight_decay or 1.0
    return {
        "sigma": tuning.sigma_range,
        "eta": (robust.eta / wide, robust.eta * wide),
        "weight_decay": (decay / wide, decay * wide),
    }


def run(tuning: Tune, console: Console) -> dict[str, Any]:
    """Searches, prints the best points, and writes summary.json and a page."""
    entry = ENTRIES[tuning.study.study]
    # A search is always Ray's, so that an address needs no --backend.
    how = replace(tuning.study.how, backend="ray")
    settings = robust_training.scaled(replace(tuning.study, how=how), entry)
    size = size_of(settings, entry)
    robust_training.check(settings, size)
    _check(tuning)
    example = training(
        settings.env, settings.agent, 0, size.steps, size.eval_every, size.eval_episodes
    )
    steps = rungs(size.steps, settings.agent.segment, size.eval_every)
    seeds = tuning.runs_each
    if how.dry_run:
        _plan(tuning, example, steps, console)
        return {}
    plain = asdict(replace(settings, how=Execution(), out=None))
    searched = {name: each for name, each in asdict(tuning).items() if name != "study"}
    out = settings.out or Path("out/tune") / f"{entry.name}-{settings.scale}"
    claim(out, plain | searched)
    root = prepare(settings.how.runs).resolve()

    def trial(point: dict[str, float]) -> None:
        from ray import tune

        one_core_each()
        for rung, count in enumerate(steps, 1):
            told = {"steps": count, "rung": rung}
            try:
                score = judge(settings, size, point, seeds, count, root)
            except Exception as error:  # Ray would begin it again, but it would fail again
                tune.report({**told, "score": np.nan, "failed": why(error)})
                return
            tune.report({**told, "score": score})

    with connected(settings.how.address):
        found = _search(
            trial, tuning, len(steps), settings.how.cpus, planning.memory(example), out, console
        )
    rows = sorted(found, key=lambda row: (-row["steps"], -row["score"]))
    return write(
        out, entry.name, rows, command=command_line(
            f"windward tune {entry.name}", tuning, Tune(entry.default)
        ),
        settings=tuning.study, study=study_with(tuning.study, rows[0]), console=console,
        size=asdict(size), search_seeds=list(range(FIRST, FIRST + seeds)), rungs=steps,
        space=space(tuning),
    )  # fmt: skip


def study_with(study: RobustTraining, point: dict[str, float]) -> str:
    """The command that runs the study at a point, all else as it was searched."""
    rounded = {name: float(f"{value:.3g}") for name, value in point.items()}
    sigma = study.agent.sigma
    agent = replace(at(study, rounded), sigma=sigma)  # the study has it as a grid
    entry = ENTRIES[study.study]
    there = replace(study, sigmas=(rounded["sigma"],), agent=agent, out=None)
    return command_line(f"windward run {entry.name}", there, entry.default)


def _plan(tuning: Tune, example: Run, rungs: list[int], console: Console) -> None:
    """What would be run: all of it if no point were ended early."""
    most = tuning.points * tuning.runs_each
    console.print(
        f"{tuning.points} points, {tuning.runs_each} seed(s) each from {FIRST} on, compared after "
        f"{', '.join(f'{count:,}' for count in rungs)} steps; at most "
        f"{most * example.goal:,} steps in all, "
        f"{planning.memory(example) / 2**30:.1f} GiB of memory each",
        highlight=False,
    )
    for name, (low, high) in space(tuning).items():
        console.print(f"{name}: {low:.3g} to {high:.3g}", highlight=False)


def _search(
    trial: Any, tuning: Tune, rungs: int, cpus: float, memory: int, out: Path, console: Console
) -> list[dict[str, Any]]:
    """Every point with its last score."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Ray's own parts, on import
            from ray import tune
            from ray.tune.schedulers import ASHAScheduler
            from ray.tune.search import BasicVariantGenerator
    except ImportError as error:
        raise ValueError(
            f"windward tune needs Ray Tune ({error}): pip install 'ray[tune]'"
        ) from error
    console.print(
        f"{tuning.points} points, {tuning.runs_each} seed(s) each; Ray Tune reports below"
    )
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": cpus, "memory": memory}),
        param_space={name: tune.loguniform(*ends) for name, ends in space(tuning).items()},
        tune_config=tune.TuneConfig(
            metric="score", mode="max", num_samples=tuning.points,
            scheduler=ASHAScheduler(
                time_attr="rung", max_t=rungs, grace_period=1, reduction_factor=2
            ),
            search_alg=BasicVariantGenerator(random_state=tuning.search_seed),
        ),
        run_config=tune.RunConfig(
            name="ray", storage_path=str(out.resolve()), verbose=0,
            failure_config=tune.FailureConfig(max_failures=tuning.study.how.retries),
        ),
    )  # fmt: skip
    results = tuner.fit()
    every = [results[i] for i in range(len(results))]
    for each in every:
        told = (each.metrics or {}).get("failed")
        if each.error is not None:  # its worker or node was lost too often
            told = (str(each.error).strip().splitlines() or [repr(each.error)])[-1]
        if told is not None:
            console.print(f"a point failed: {escape(told)}", highlight=False)
    found = [
        {**each.config, "score": each.metrics["score"], "steps": each.metrics["steps"]}
        for each in every
        if each.config is not None and each.metrics and isfinite(each.metrics.get("score", np.nan))
    ]
    if not found:
        raise ValueError("every point failed; what the first said is above")
    return found


def _check(tuning: Tune) -> None:
    for name in ("points", "runs_each"):
        checks.integer(name, getattr(tuning, name), 1)
    checks.integer("search_seed", tuning.search_seed, 0)
    checks.positive("decades", tuning.decades)
    checks.positive("eta", tuning.study.agent.robust.eta)
    if tuning.study.how.wandb is not None:
        raise ValueError("--wandb is for `windward run`: a search sends nothing there")
    if not tuning.study.how.train:
        raise ValueError("a search trains: --no-train is for studies")
    if tuning.study.sigmas != ENTRIES[tuning.study.study].default.sigmas:
        raise ValueError(
            f"--sigmas {tuning.study.sigmas} says nothing to a search: it draws sigma from "
            "--sigma-range"
        )
    if tuning.study.how.jobs is not None:
        raise ValueError(
            f"--jobs {tuning.study.how.jobs} says nothing to a search: Ray does as many runs at "
            "once as it has cores for; see --cpus"
        )
    low, high = tuning.sigma_range
    if not 0 < low < high:
        raise ValueError(f"sigma_range must be two numbers, 0 < low < high; got {low} and {high}")


def write(
    out: Path,
    name: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    command: str,
    settings: Any,
    study: str,
    console: Console,
    **content: Any,
) -> dict[str, Any]:
    """summary.json and report.html of points, the best first; `study` runs the study with it."""
    best = rows[0]
    found = (
        f"Of {len(rows)} points the best has sigma {best['sigma']:.3g}, eta {best['eta']:.3g} and "
        f"weight decay {best['weight_decay']:.3g}: score {best['score']:.1f} after "
        f"{best['steps']:,} steps. {BASELINE}"
    )
    if settings.scale == "smoke":
        found = f"{SMOKE} {found}"
    with study_folder.writing(out):
        summary = study_folder.write_summary(
            out / "summary.json", command, settings, found=found, study=study, best=dict(best),
            points=list(map(dict, rows)), **content,
        )  # fmt: skip
        lead = f"Which sigma, eta and weight decay suit MF-GPC in {name}?\n{found}"
        sections = _sections(rows, study)
        report.write(out / "report.html", f"tune {name}", lead, sections, text.facts(summary))
    console.print(report.terminal(_table(f"{name}: the best points", rows[:BEST])))
    console.print(BASELINE)
    console.print(f"as a study, on other seeds: {escape(study)}", highlight=False, soft_wrap=True)
    console.print(
        f"page: {out / 'report.html'}   all points: {out / 'summary.json'}",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    return summary


def _sections(rows: Sequence[Mapping[str, Any]], study: str) -> list[Section]:
    stages = sorted({row["steps"] for row in rows}, reverse=True)
    charts = [
        Chart(
            f"Score over {name.replace('_', ' ')}", name.replace("_", " "), "score",
            [
                Points(f"{steps:,} steps", *zip(*_at(rows, steps, name), strict=True))
                for steps in stages
            ],
            "Each dot is a point of the search, at the step at which it was ended or was done.",
            log_x=True,
        )
        for name in SEARCHED
    ]  # fmt: skip
    return [*charts, _table("All points", rows), Text("As a study, on other seeds", [study])]


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    cells = [[row[column] for column in COLUMNS] for row in rows]
    note = f"Score: {SCORE}. Points that did badly at a rung were ended there."
    return Table(title, COLUMNS, cells, note)


def _at(rows: Sequence[Mapping[str, Any]], steps: int, name: str) -> list[tuple[float, float]]:
    return [(row[name], row["score"]) for row in rows if row["steps"] == steps]
