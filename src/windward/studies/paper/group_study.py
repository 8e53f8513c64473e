"""A study of groups from its settings to its page: its plan, its runs, what it says and leaves."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape

from windward.atomic import write_rows
from windward.studies import plots, report
from windward.studies.paper import group_page, planning
from windward.studies.paper import groups as grouping
from windward.studies.paper.groups import BASELINE, Entry, Found, Group, Numbers, Size
from windward.studies.run import short
from windward.studies.runs import execution, store, study_folder
from windward.studies.runs.pool import Outcome
from windward.studies.runs.store import curve
from windward.studies.spec import SMOKE, Execution, Run
from windward.studies.stats import counted, difference, paired_difference, span


class GroupStudy(NamedTuple):
    """A study that is about to be run."""

    settings: Any
    entry: Entry
    size: Size
    groups: Sequence[Group]
    identity: dict[str, Any]
    """what may not change under its name"""
    command: str


def conduct(study: GroupStudy, console: Console) -> dict[str, Any]:
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
    best = grouping.best(every, how.runs) if any(group.judged for group in every) else {}
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
    summary = write(out, found, study.command, console)
    outcome.raise_for(count, how.runs)
    return summary


def _shown(study: GroupStudy, best: Mapping[str, Group]) -> Sequence[Group]:
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


def write(out: Path, found: Found, command: str, console: Console) -> dict[str, Any]:
    """All files of the study from what its runs have come to; gives the summary."""
    settings, root = found.settings, found.root
    drawn = grouping.drawn_of(found.show, root, drop=settings.drop_worst)
    if not drawn:
        raise ValueError(f"no run in {root} has been evaluated yet: there is nothing to draw")
    said = verdicts(found)
    page = group_page.Page(found, drawn)
    shown = [run for group in found.show for run in group.shown]
    judged = [run for group in found.every for run in group.judged]
    with study_folder.writing(out):
        for name, charts in page.figures().items():
            if charts:
                raw = name == "raw"
                figure = plots.draw(charts, found.title, 4 if raw else 3, alike=raw)
                plots.save(figure, out, name)
            else:  # of an earlier command that showed them
                for kind in ("png", "pdf"):
                    (out / f"{name}.{kind}").unlink(missing_ok=True)
        write_rows(out / "curves.csv", map(short, _rows(found.show, root)))
        summary = study_folder.write_summary(
            out / study_folder.RESULTS, command, settings, found=" ".join(said),
            size=asdict(found.size), x_label=found.entry.x_label,
            commits_of_runs=store.commits(shown, root),
            core_hours=store.core_hours([*judged, *shown], root),
            chosen={method: group.name for method, group in found.best.items()},
            scores={g.name: grouping.score(g, root) for g in found.every if g.judged},
            groups=[_json(group, found.told[group.name], root) for group in found.show],
            failed=dict(found.failed),
        )  # fmt: skip
        page.write(out / "report.html", said, summary)
    console.print(report.terminal(page.results()))
    console.print(escape(summary["found"]), highlight=False)
    console.print(
        f"page: {out / 'report.html'}   figures: {out / 'best.png'}   raw results: "
        f"{out / 'curves.csv'}",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    return summary


def _rows(show: Sequence[Group], root: Path) -> list[dict[str, Any]]:
    rows = []
    names = ("eval_return", "eval_worst", *group_page.COLUMNS)
    for group in show:
        for seed, found in grouping.curves_of(group.shown, root).items():
            for i, steps in enumerate(found.get("steps", ())):
                row = {"group": group.name, "seed": seed, "steps": int(steps)}
                rows.append(
                    row | {n: float(found[n][i]) if n in found else "" for n in names}
                )  # fmt: skip
    return rows


def _json(group: Group, told: Numbers, root: Path) -> dict[str, Any]:
    runs = []
    for run, seed, final, reached in zip(
        group.shown, told.seeds, told.final, told.reached, strict=True
    ):
        done = store.finished(run, root)
        runs.append(
            {
                "name": run.name, "seed": seed, "final_return": final, "steps": reached,
                "finished": done is not None, "warned": [] if done is None else list(done.warned),
            }
        )  # fmt: skip
    named = {"group": group.name, "method": group.method, **group.values}
    return {**named, **told.summary(), "runs": runs}


def verdicts(found: Found) -> list[str]:
    """What the shown runs say, in sentences; as little as few runs allow."""
    sentences, leading = _state(found), found.leading
    base = next((group for group in leading if group.method == BASELINE), None)
    others = [group for group in leading if group.method != BASELINE]
    if base is None or not others:
        return [*sentences, "Runs are still to come."]
    if len(leading) > 2 and len({group.method for group in leading}) == 2:
        return [*sentences, *_spreads(found)]
    against = [_against(group, base, found) for group in others]
    if any("[" in each for each in against):
        kind = "of the paired differences" if found.entry.paired else "of the difference (Welch)"
        against.append(
            f"Mean final returns of {counted(found.size.seeds, 'seed')}, {found.size.steps:,} "
            f"{found.entry.x_label} each; [ ]: 95 % interval {kind}."
        )
    return [*sentences, *against]


def _state(found: Found) -> list[str]:
    """What a reader must know before any number."""
    state = [SMOKE] if found.settings.scale == "smoke" else []
    runs = [run for group in found.show for run in group.shown]
    done = sum(store.finished(run, found.root) is not None for run in runs)
    if done < len(runs):
        reached = min(each for told in found.told.values() for each in told.reached)
        state.append(
            f"Not finished: {done} of {len(runs)} runs are, the others have come to "
            f"{reached:,} or more of {found.size.steps:,} {found.entry.x_label}."
        )
    if not found.settled:
        state.append("Runs that choose are not finished either: others may be shown in the end.")
    shown = {group.method for group in found.show}
    for method in dict.fromkeys(group.method for group in found.every):
        if method not in shown:
            state.append(
                f"{method} is not shown: none of its groups has a return on every seed that "
                "chooses."
            )
    if found.failed:
        state.append(f"{counted(len(found.failed), 'run')} failed; their messages are below.")
    return state


def _spreads(found: Found) -> list[str]:
    """From where to where the settings of each method reach, and how sure that is."""
    sentences = []
    for method in dict.fromkeys(group.method for group in found.leading):
        mine = [found.told[group.name] for group in found.leading if group.method == method]
        means = [each.mean.value for each in mine if each.mean is not None]
        if not means:
            sentences.append(f"{method}: no return yet.")
            continue
        seeds = counted(max(len(each.there) for each in mine), "seed")
        text = f"{method[0].upper()}{method[1:]}, {counted(len(means), 'setting')} of {seeds}: "
        text += f"mean final returns from {min(means):.1f} to {max(means):.1f}"
        errors = [each.error for each in mine if each.error is not None]
        sentences.append(f"{text}, standard error up to {max(errors):.1f}." if errors else
                         f"{text}; one seed each cannot tell settings from chance.")  # fmt: skip
    return sentences


def _against(group: Group, base: Group, found: Found) -> str:
    """A group against the baseline."""
    one, two, paired = found.told[group.name], found.told[base.name], found.entry.paired
    ours, theirs, names = one.there, two.there, f"{group.name} against {base.name}"
    if min(len(ours), len(theirs)) < 2:
        seeds = f"{counted(len(ours), 'seed')} against {len(theirs)}"
        return f"{names}: too few runs to tell, {seeds}."
    if len({*one.reached, *two.reached}) > 1:
        return f"{names}: not yet to be compared, their runs have come unequally far."
    if paired and (one.seeds != two.seeds or min(len(ours), len(theirs)) < len(one.seeds)):
        return f"{names}: not yet to be compared, runs are missing."
    gap = (paired_difference if paired else difference)(ours, theirs)
    word = "No difference that these runs can tell"
    if gap.low > 0:
        word = "Higher"
    elif gap.high < 0:
        word = "Lower"
    return (
        f"{word}: {group.name} ends with {ours.mean():.1f}, {base.name} with {theirs.mean():.1f}; "
        f"difference {span(gap)}."
    )
