"""What an evaluation leaves: a table in the terminal, and files with all raw results."""

import hashlib
import re
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from windward.atomic import prepare, write_rows
from windward.studies import plots, report
from windward.studies.evaluation import numbers as stats
from windward.studies.evaluation import page as evaluation_page
from windward.studies.evaluation.evaluate import (
    ADAPTED,
    Evaluate,
    Evaluation,
    Runs,
    evaluate,
)
from windward.studies.evaluation.loading import load_model, load_simulator_of
from windward.studies.runs import study_folder
from windward.studies.runs.study_folder import claim, refuse_others
from windward.studies.spec import command_line

OPTIONS = ("learner", "h", "sigma", "eta", "every_episodes", "weight_decay")
"""settings that go to RobustWrapper as they are, where given"""
SAID = 3
"""decisions that the terminal shows"""
UNFINISHED = "episodes-unfinished.csv"
"""not episodes.csv, which may be there from a first time, with all seeds"""


def run(settings: Evaluate, console: Console, command: str | None = None) -> dict[str, Any]:
    """Evaluates and writes episodes.csv, trace.csv, summary.json, evaluation.png, report.html."""
    given = {name: getattr(settings, name) for name in OPTIONS}
    model = load_model(settings.model, settings.env, settings.algo, settings.vec_normalize)
    identity = {name: each for name, each in asdict(settings).items() if name != "out"}
    simulator = (
        None if settings.simulator is None else load_simulator_of(settings.simulator, settings.env)
    )
    out = prepare(settings.out or default_out(settings))
    refuse_others(out, identity)

    def keep(runs: dict[str, Runs], seeds: tuple[int, ...]) -> None:
        # Only now: a mistyped argument, which `evaluate` refuses, is to hold no folder.
        write_rows(claim(out, identity) / UNFINISHED, _episodes(runs, seeds))

    found = evaluate(
        model, settings.env, settings.disturbance, settings.channel, settings.signal,
        seeds=settings.seeds, episodes=settings.episodes, first_seed=settings.first_seed,
        freeze_after=settings.freeze_after, max_steps=settings.max_steps, logits=settings.logits,
        greedy=settings.greedy, console=console, keep=keep, simulator=simulator,
        **{name: value for name, value in given.items() if value is not None},
    )  # fmt: skip
    command = command or command_of("windward evaluate", settings)
    scopes = stats.halves(found)
    for name, each in scopes.items():
        console.print(report.terminal(evaluation_page.table(name, each, len(found.seeds))))
    notes = [f"warned: {note}" for note in found.notes]
    for line in [*_verdicts(found, scopes), *_counts(found), *notes]:
        console.print(escape(line), highlight=False)
    return write(out, found, scopes, settings, command, console)


def command_of(start: str, settings: Any) -> str:
    """The exact command for settings: those that are not the defaults."""
    usual = SimpleNamespace(**{field.name: field.default for field in fields(settings)})
    return command_line(start, settings, usual)


def default_out(settings: Evaluate) -> Path:
    """A folder for these settings alone: what a reader looks for, and a digest of the command."""
    model = Path(settings.model).stem if Path(settings.model).suffix else settings.model
    parts = (settings.env, model, settings.disturbance, settings.channel, settings.signal)
    name = re.sub(r"[^\w.=-]+", "-", "-".join(part for part in parts if part))
    command = command_of("windward evaluate", replace(settings, out=None))
    digest = hashlib.sha256(command.encode()).hexdigest()[:10]
    return Path("out/evaluate") / f"{name}-{digest}"


def _verdicts(found: Evaluation, scopes: dict[str, stats.Numbers]) -> list[str]:
    first = stats.outcome(found, next(iter(scopes.values())))
    return [first, *(stats.verdict(each.difference, name) for name, each in scopes.items())]


def _counts(found: Evaluation) -> list[str]:
    adapted = found.runs[ADAPTED]
    steps, cut = int(adapted.lengths.sum()), int(adapted.clipped.sum())
    faults = ", ".join(f"{count} {kind}" for kind, count in found.faults.items()) or "none"
    first = found.decisions[0]
    decided = [f"seed {found.seeds[0]}, {text}" for text in first[:SAID]]
    if len(first) > SAID:
        decided.append(f"{len(first) - SAID} more decisions on this seed are on the page")
    return [
        *decided,
        f"signal {found.signal}; learner {found.learner}; clipped actions: {cut} of {steps} "
        f"({cut / steps:.1%}); "
        f"faults: {faults}",
    ]


def write(
    out: Path,
    found: Evaluation,
    scopes: dict[str, stats.Numbers],
    settings: Evaluate,
    command: str,
    console: Console,
) -> dict[str, Any]:
    """All files, each whole or not at all."""
    write_rows(out / "episodes.csv", _episodes(found.runs, found.seeds))
    (out / UNFINISHED).unlink(missing_ok=True)
    write_rows(out / "trace.csv", _trace(found))
    plots.save(evaluation_page.figure(found, scopes, settings), out, "evaluation")
    summary = study_folder.write_summary(
        out / "summary.json", command, settings, signal=found.signal, learner=found.learner,
        seeds=list(found.seeds), decisions=found.decisions,
        numbers=stats.as_json(scopes), faults=found.faults, warned=list(found.notes),
        clipped=int(found.runs[ADAPTED].clipped.sum()),
        M=[np.asarray(M).tolist() for M in found.M],
    )  # fmt: skip
    lead = " ".join(_verdicts(found, scopes))
    evaluation_page.write(out / "report.html", found, scopes, settings, summary, lead)
    console.print(
        f"page: {out / 'report.html'}   figure: {out / 'evaluation.png'}   raw results: "
        f"{out / 'episodes.csv'}",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    return summary


def _episodes(all_runs: dict[str, Runs], seeds: tuple[int, ...]) -> list[dict[str, Any]]:
    return [
        {
            "policy": policy,
            "seed": seed,
            "episode": episode,
            "return": repr(float(runs.returns[i, episode])),
            "length": int(runs.lengths[i, episode]),
            "clipped": int(runs.clipped[i, episode]) if policy == ADAPTED else "",
            "M_norm": repr(float(runs.M_norm[i, episode])) if policy == ADAPTED else "",
        }
        for policy, runs in all_runs.items()
        for i, seed in enumerate(seeds)
        for episode in range(runs.returns.shape[1])
    ]


def _trace(found: Evaluation) -> list[dict[str, Any]]:
    trace = found.trace
    columns = {"w_hat": trace.w_hat, "correction": trace.correction, **trace.wind}
    return [
        {"step": t, "episode": int(trace.episode[t])}
        | {
            f"{name}_{i}": f"{value:.6g}"
            for name, rows in columns.items()
            for i, value in enumerate(rows[t])
        }
        for t in range(len(trace.episode))
    ]
