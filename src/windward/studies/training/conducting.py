"""A study from its groups to its page: chosen on some seeds, shown on others."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from windward import checks
from windward.studies.runs import execution, study_folder
from windward.studies.runs.execution import Execution
from windward.studies.runs.runner import Outcome
from windward.studies.runs.store import Run, curve
from windward.studies.training import groups, planning, training_report
from windward.studies.training.entries import Entry
from windward.studies.training.groups import Group
from windward.studies.training.page import Found
from windward.studies.training.scales import Size

SHOWN = 100
"""reported seeds begin here; lower ones only choose settings"""


class Study(NamedTuple):
    """A study that is about to be run."""

    settings: Any
    entry: Entry
    size: Size
    groups: Sequence[Group]
    identity: dict[str, Any]
    """what may not change under its name"""
    command: str


def size_of(settings: Any, entry: Entry) -> Size:
    """The scale's, but for what is given."""
    given = {each.name: getattr(settings, each.name, None) for each in fields(Size)}
    kept = {name: value for name, value in given.items() if value is not None}
    size = replace(entry.sizes[settings.scale], **kept)
    if "tune_steps" not in kept:  # runs that choose are no longer than those that are shown
        size = replace(size, tune_steps=min(size.tune_steps, size.steps))
    return size


def check_sizes(how: Execution, size: Size) -> None:
    """Refuses what makes no sense, before anything is run."""
    execution.check(how)
    for name in ("seeds", "steps", "tune_steps", "eval_every", "eval_episodes"):
        checks.integer(name, getattr(size, name), 1)
    if checks.integer("tune_seeds", size.tune_seeds, 0) > SHOWN:
        raise ValueError(
            f"tune_seeds must be at most {SHOWN}, where the seeds begin that are shown; got "
            f"{size.tune_seeds}"
        )


def conduct(study: Study, console: Console) -> dict[str, Any]:
    """Does what is not finished, and writes what there is: page, figures, curves, summary."""
    settings, every, how = study.settings, study.groups, study.settings.how
    if how.dry_run:
        planning.show(every, study.size, how, study.entry.name, console)
        return {}
    out = settings.out or Path("out/studies") / f"{study.entry.name}-{settings.scale}"
    study_folder.claim(out, study.identity)
    outcome = Outcome()
    if how.train:
        _do([run for group in every for run in group.judged], how, outcome, console)
    best = groups.best(every, how.runs) if any(group.judged for group in every) else {}
    show = _shown(study, best)
    if how.train:
        _do([run for group in show for run in group.shown], how, outcome, console)
    count = sum(len(each.judged) for each in every) + sum(len(each.shown) for each in show)
    if not any(curve(run, how.runs) for group in show for run in group.shown):
        outcome.raise_for(count, how.runs)  # there is nothing to draw, and this is why
    if how.train and not show:  # nothing failed, but no return is a number
        raise ValueError(
            "no setting has a finite return on every seed that serves to choose: there is nothing "
            f"to show; see the curves in {how.runs}"
        )
    found = Found(settings, study.entry, study.size, every, show, best, outcome.failed)
    summary = training_report.write(out, found, study.command, console)
    outcome.raise_for(count, how.runs)
    return summary


def _shown(study: Study, best: Mapping[str, Group]) -> Sequence[Group]:
    """The groups to show: none of a method of which none could be chosen, as its runs failed."""
    every, how = study.groups, study.settings.how
    if not any(group.judged for group in every):
        return every
    if not study.size.all_groups:
        return list(best.values())
    return [group for group in every if group.method in best] if how.train else every


def _do(runs: Sequence[Run], how: Execution, outcome: Outcome, console: Console) -> None:
    """Runs that are not finished; what fails is noted."""
    if runs:
        memory = max(planning.memory(run) for run in runs)
        outcome.failed |= execution.execute(runs, how, memory, console).failed
