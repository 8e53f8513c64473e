"""`learning`: learning curves of D4PG, the paper's base agent, with SBX's DDPG beside it.

The final return of a run is the mean of the last 10 % of its evaluations, each of them the mean of
some episodes without noise. D4PG's runs go on where they were stopped; SBX's begin again, unless
the curve in `out` is finished: other settings want another `out`.
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
from windward.agents.checkpoints import AGENT, settings_in
from windward.agents.threads import one_core_each
from windward.atomic import prepare, write_rows
from windward.studies import results
from windward.studies.commands import command_line
from windward.studies.curves import Curve, Job, draw, read, summarise, table

STEPS = {"InvertedPendulum-v5": 50_000, "Pendulum-v1": 50_000}
"""steps of the short runs; all others take LONG"""
LONG = 1_000_000
METHODS = {"D4PG": "d4pg", "SBX DDPG": "sbx-ddpg"}
"""the methods, and what their files are called"""


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
    """False draws what there is"""
    runs: Path = Path("out/train")
    """folder of D4PG's runs, named as `windward train` does, with checkpoints; large"""
    out: Path = Path("out/studies/learning")
    """folder for a curve of each run, summary.json and learning.png"""
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


def gather(job: Job, study: Learning) -> Curve:
    """What there is of a run; if D4PG's own folder has it, it is copied from there to `out`."""
    kept, own = _file(job, study), run_folder(study.runs, job.env, job.seed) / "curves.csv"
    # A run may have gone on for longer; environments side by side end a little after `steps`.
    beyond = study.settings.num_envs
    if job.method != "D4PG" or not own.exists():
        return read(kept, job, beyond)
    curve = read(own, job, beyond)
    if curve.rows:
        _check_settings(own.with_name("best.npz"), study.settings)
        write_rows(kept, curve.rows)
    return curve


def _check_settings(path: Path, wanted: AgentSettings) -> None:
    """Refuses a run made otherwise than the summary will say; `learn` would, a drawing must."""
    found = settings_in(files.read(path, AGENT)[1])
    changed = [name for name, value in found.items() if value != getattr(wanted, name, value)]
    if changed:
        raise ValueError(
            f"{path.parent} holds a run with other settings ({', '.join(changed)}): give the same "
            "ones, or another folder with --runs"
        )


def _train_d4pg(job: Job, study: Learning) -> None:
    D4PG(job.env, seed=job.seed, **vars(study.settings)).learn(
        job.steps,
        progress_bar=True,
        out=run_folder(study.runs, job.env, job.seed),
        eval_every=job.eval_every,
        eval_episodes=study.eval_episodes,
    )


def _train_sbx(job: Job, study: Learning, environ: dict[str, str]) -> None:
    expected = list(range(job.eval_every, job.steps + 1, job.eval_every))
    if [int(row["steps"]) for row in gather(job, study).rows] == expected:
        return
    task = {
        "env": job.env,
        "seed": job.seed,
        "steps": job.steps,
        "eval_every": job.eval_every,
        "eval_episodes": study.eval_episodes,
        "settings": asdict(study.settings),
        "out": str(_file(job, study)),
    }
    command = [sys.executable, "-m", "windward.studies.sbx_ddpg", json.dumps(task)]
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
    """Trains what is not finished; writes each run's curve, summary.json and learning.png."""
    _check(study)
    every = list(jobs(study))
    out = prepare(study.out)
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
    draw(groups, out / "learning.png")
    console.print(table(summaries, study.eval_episodes))
    console.print(f"figure: {out / 'learning.png'}   raw results: {out}")
    peers = ("sbx-rl", "stable-baselines3") if find_spec("sbx") else ()
    return results.write_summary(
        out / "summary.json",
        command_line("windward run learning", study, Learning()),
        study,
        peers={name: version(name) for name in peers},
        curves=summaries,
    )
