"""`learning`: learning curves of D4PG, the paper's base agent, with SBX's DDPG beside it.

The final return of a run is the mean of the last 10 % of its evaluations, each of them the mean of
some episodes without noise. A run lies in a folder of its own in `runs`, with the settings that it
was made with; `out` has a copy of its curve. D4PG's runs go on where they were stopped, SBX's begin
again.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

import gymnasium as gym
from rich.console import Console

from windward import checks, files
from windward.agents import D4PG
from windward.agents import Settings as AgentSettings
from windward.agents.checkpoints import AGENT, plain, refuse_other
from windward.agents.threads import one_core_each
from windward.atomic import prepare, write_rows, write_text
from windward.studies import plots, report, text
from windward.studies.extra.learning_curves import Curve, Job, charts, read, summarise, table
from windward.studies.extra.sbx_ddpg import TASK
from windward.studies.runs import study_folder
from windward.studies.runs.locks import Lock
from windward.studies.runs.store import CURVES
from windward.studies.runs.study_folder import claim, writing
from windward.studies.spec import command_line

SHOWS = "learning curves of D4PG beside SBX's DDPG"
STEPS = {"InvertedPendulum-v5": 50_000, "Pendulum-v1": 50_000}
"""steps of the short runs; all others take LONG"""
LONG = 1_000_000
METHODS = {"D4PG": "d4pg", "SBX DDPG": "sbx-ddpg"}
"""the methods, and what their files are called"""
IDENTITY = ("steps", "eval_every", "eval_episodes", "settings")
"""settings that may not change under one --out; more environments and seeds may come"""


@dataclass(frozen=True)
class Learning:
    """Learning curves of D4PG over several seeds, with SBX's DDPG beside it.

    Stop it at any moment: the same command goes on, and finished runs are not repeated.
    """

    envs: tuple[str, ...] = ("InvertedPendulum-v5", "Pendulum-v1", "Hopper-v5", "HalfCheetah-v5")
    """ids of the environments"""
    seeds: tuple[int, ...] = (10, 11, 12)
    """seeds of the runs"""
    steps: int | None = None
    """environment steps of a run; 50,000 for the pendulums and 1,000,000 for others if left out"""
    sbx_seeds: int = 1
    """how many of the seeds SBX's DDPG is run with; 0 leaves it out"""
    eval_every: int | None = None
    """steps between evaluations; a fiftieth of the run, at least 5,000, if left out"""
    eval_episodes: int = 10
    """episodes of an evaluation, without noise"""
    train: bool = True
    """--no-train only draws the runs that exist"""
    runs: Path = Path("out/train")
    """folder of all runs; D4PG's are named as `windward train` does, with checkpoints, and large"""
    out: Path = Path("out/studies/learning")
    """folder for a curve of each run, summary.json, learning.png and learning.pdf"""
    settings: AgentSettings = field(default_factory=AgentSettings)


def jobs(study: Learning) -> Iterator[Job]:
    """All runs of the study, in their order."""
    for env in study.envs:
        steps = study.steps or STEPS.get(env, LONG)
        eval_every = study.eval_every or max(5_000, steps // 50)
        if eval_every > steps:
            raise ValueError(
                f"eval_every must be at most steps, {steps}, or nothing is evaluated; "
                f"got {eval_every}"
            )
        for method in METHODS:
            seeds = study.seeds if method == "D4PG" else study.seeds[: study.sbx_seeds]
            for seed in seeds:
                yield Job(env, method, seed, steps, eval_every)


def run_folder(runs: Path, env: str, seed: int) -> Path:
    """Where a run of D4PG lies; `windward train` writes there too."""
    return runs / f"{env.replace('/', '-')}-{seed}"


def _file(job: Job, study: Learning) -> Path:
    return study.out / f"{job.env.replace('/', '-')}-{METHODS[job.method]}-{job.seed}.csv"


def _folder(job: Job, study: Learning) -> Path:
    """Where a run lies, of whichever method."""
    folder = run_folder(study.runs, job.env, job.seed)
    return folder if job.method == "D4PG" else folder.with_name(f"{folder.name}-sbx-ddpg")


def _evaluation(job: Job, study: Learning) -> dict[str, int]:
    return {"eval_every": job.eval_every, "eval_episodes": study.eval_episodes}


def _made(job: Job, study: Learning) -> Curve:
    """As far as a run is in its folder; one made otherwise than the summary will say is refused."""
    folder = _folder(job, study)
    # A run may have gone on for longer; environments side by side end a little after `steps`.
    curve = read(folder / CURVES, job, beyond=study.settings.num_envs)
    if curve.rows:
        header = _header(folder / ("best.npz" if job.method == "D4PG" else TASK))
        refuse_other(folder, header, study.settings, job.seed, _evaluation(job, study))
    return curve


def _header(path: Path) -> dict[str, Any]:
    """What a run was made with."""
    if path.name != TASK:
        return files.read(path, AGENT)[1]
    try:
        task: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error}): delete {path.parent}") from error
    return task


def gather(job: Job, study: Learning) -> Curve:
    """What there is of a run, copied to `out`; the copy alone, if its folder is not here."""
    curve, copy = _made(job, study), _file(job, study)
    if not curve.rows:
        return read(copy, job, beyond=study.settings.num_envs)
    write_rows(copy, curve.rows)
    return curve


def _train_d4pg(job: Job, study: Learning) -> None:
    D4PG(job.env, seed=job.seed, **vars(study.settings)).learn(
        job.steps,
        progress_bar=True,
        out=_folder(job, study),
        eval_every=job.eval_every,
        eval_episodes=study.eval_episodes,
    )


def _train_sbx(job: Job, study: Learning, environ: dict[str, str]) -> None:
    expected = list(range(job.eval_every, job.steps + 1, job.eval_every))
    if [int(row["steps"]) for row in _made(job, study).rows] == expected:
        return
    task = {
        "env": job.env,
        "seed": job.seed,
        "steps": job.steps,
        "settings": plain(study.settings),
        "evaluation": _evaluation(job, study),
    }
    folder = _folder(job, study)
    write_text(folder / TASK, json.dumps(task, indent=1) + "\n")
    command = [sys.executable, "-m", "windward.studies.extra.sbx_ddpg", str(folder)]
    if subprocess.run(command, env=environ, check=False).returncode:
        raise ValueError(
            f"SBX's DDPG did not finish on {job.env}; what it said is above. --sbx-seeds 0 leaves "
            "it out"
        )


def _train_all(every: list[Job], study: Learning, console: Console) -> None:
    """Runs what is not finished, in order."""
    prepare(study.runs)
    if any(job.method != "D4PG" for job in every) and find_spec("sbx") is None:
        console.print("SBX is not installed, so D4PG runs alone: pip install 'windward\\[sb3]'")
        every = [job for job in every if job.method == "D4PG"]
    environ = dict(os.environ)  # as it was before JAX is set up for D4PG
    one_core_each()
    for number, job in enumerate(every, 1):
        console.print(
            f"run {number} of {len(every)}: {job.env}, {job.method}, seed {job.seed}, "
            f"{job.steps} steps",
            highlight=False,
        )
        with Lock(prepare(_folder(job, study))):
            if job.method == "D4PG":
                _train_d4pg(job, study)
            else:
                _train_sbx(job, study, environ)
            gather(job, study)


def _check(study: Learning) -> None:
    for name in ("steps", "eval_every"):
        if getattr(study, name) is not None:
            checks.integer(name, getattr(study, name), 1)
    checks.integer("sbx_seeds", study.sbx_seeds, 0)
    checks.integer("eval_episodes", study.eval_episodes, 1)
    for name in ("envs", "seeds"):
        values = getattr(study, name)
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{name} must name at least one, none of them twice; got {values}")
    for env in study.envs:
        try:
            gym.spec(env)
        except gym.error.Error as error:
            raise ValueError(str(error)) from error


def run(study: Learning, console: Console) -> dict[str, Any]:
    """Trains what is not finished; writes each run's curve, summary.json and the figure."""
    _check(study)
    every = list(jobs(study))
    chosen = asdict(study)
    out = claim(study.out, {name: chosen[name] for name in IDENTITY})
    if study.train:
        _train_all(every, study, console)
    curves = [gather(job, study) for job in every]
    if not any(curve.rows for curve in curves):
        raise ValueError(
            f"there is no curve in {study.runs} or {out} to draw: leave out --no-train, or name "
            "the folder of the runs with --runs"
        )
    groups = [list(same) for _, same in groupby(curves, lambda curve: curve.job[:2])]
    summaries = [summarise(group) for group in groups]
    peers = ("sbx-rl", "stable-baselines3") if find_spec("sbx") else ()
    drawn, found = charts(groups), table(summaries, study.eval_episodes)
    with writing(out):
        plots.save(plots.draw(drawn, columns=2), out, "learning")
        written = study_folder.write_summary(
            out / "summary.json",
            command_line("windward run learning", study, Learning()),
            study,
            peers={name: version(name) for name in peers},
            curves=summaries,
        )
        lead = "How well does D4PG learn, beside SBX's DDPG with the same settings?\n"
        lead += f"Raw results: a curve of each run. {found.note}"
        report.write(
            out / "report.html", f"learning: {SHOWS}", lead, [found, *drawn], text.facts(written)
        )
    console.print(report.terminal(found))
    page = out / "report.html"
    console.print(f"page: {page}   figure: {out / 'learning.png'}   raw results: {out}")
    return written
