"""What a study of trainings leaves: a table in the terminal, figures, all curves, a summary."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Terminal

from windward.atomic import write_rows, write_text
from windward.studies.pages.statistics import Interval, difference, paired_difference
from windward.studies.pages.words import counted, span
from windward.studies.runs import results, store
from windward.studies.runs.commands import commit
from windward.studies.runs.scale import SMOKE
from windward.studies.runs.study_folder import writing
from windward.studies.training import figures as training_figures
from windward.studies.training import groups as grouping
from windward.studies.training.groups import Group, Numbers
from windward.studies.training.page import COLUMNS, Found, Page, drawn_of
from windward.studies.training.trainings import BASELINE


def write(out: Path, found: Found, command: str, console: Console) -> dict[str, Any]:
    """All files of the study from what its runs have come to; gives the summary."""
    settings, root, drop = found.settings, found.root, found.settings.drop_worst
    drawn = drawn_of(found.show, root, "eval_return", drop)
    if not drawn:
        raise ValueError(f"no run in {root} has been evaluated yet: there is nothing to draw")
    told = {group.name: grouping.numbers(group, root) for group in found.show}
    said = verdicts(found, told)
    with writing(out):
        labels = training_figures.Said(found.title, found.entry.x_label, drop)
        training_figures.best(found.leading, drawn, out, labels)
        if len(found.show) > len({group.method for group in found.show}):
            training_figures.every(found.show, drawn, out, labels)
        else:  # of an earlier command that showed them
            training_figures.remove(out, "all")
        training_figures.raw(found.show, drawn, found.unchosen, out, labels)
        write_rows(out / "curves.csv", _rows(found.show, root))
        summary: dict[str, Any] = {
            "command": command,
            "found": " ".join(said),
            "settings": _settings(settings),
            "size": asdict(found.size),
            "x_label": found.entry.x_label,
            "versions": results.versions(),
            "commit": commit(),
            "commits_of_runs": store.commits([run for g in found.show for run in g.shown], root),
            "chosen": {method: group.name for method, group in found.best.items()},
            "scores": {g.name: grouping.score(g, root) for g in found.every if g.judged},
            "groups": [_json(group, told[group.name], root) for group in found.show],
            "failed": dict(found.failed),
        }
        write_text(out / "summary.json", json.dumps(summary, indent=1, allow_nan=False) + "\n")
        Page(found, told, drawn).write(out / "report.html", said, summary)
    console.print(_terminal(found, told))
    console.print(escape(summary["found"]), highlight=False)
    console.print(
        f"page: {out / 'report.html'}   figures: {out / 'best.png'}   raw results: "
        f"{out / 'curves.csv'}",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    return summary


def _settings(settings: Any) -> dict[str, Any]:
    """All but where and how many at once, which is no part of a result."""
    free = {"how", "out"}
    return {name: each for name, each in asdict(settings).items() if name not in free}


def verdicts(found: Found, told: Mapping[str, Numbers]) -> list[str]:
    """What the shown runs say, in sentences; as little as few runs allow."""
    sentences = _state(found, told)
    leading = found.leading
    base = next((group for group in leading if group.method == BASELINE), None)
    others = [group for group in leading if group.method != BASELINE]
    if base is None or not others:
        return [*sentences, "Runs are still to come."]
    if len(leading) > 2 and len({group.method for group in leading}) == 2:
        return [*sentences, *_spreads(leading, told)]
    against = [_against(group, base, told, found.entry.paired) for group in others]
    if any("[" in each for each in against):
        kind = "of the paired differences" if found.entry.paired else "of the difference (Welch)"
        against.append(
            f"Mean final returns of {counted(found.size.seeds, 'seed')}, {found.size.steps:,} "
            f"{found.entry.x_label} each; [ ]: 95 % interval {kind}."
        )
    return [*sentences, *against]


def _state(found: Found, told: Mapping[str, Numbers]) -> list[str]:
    """What a reader must know before any number."""
    state = []
    if found.settings.scale == "smoke":
        state.append(SMOKE)
    runs = [run for group in found.show for run in group.shown]
    done = sum(store.finished(run, found.root) is not None for run in runs)
    if done < len(runs):
        reached = [each for group in found.show for each in told[group.name].reached]
        state.append(
            f"Not finished: {done} of {len(runs)} runs are, the others have come to "
            f"{min(reached):,} or more of {found.size.steps:,} {found.entry.x_label}."
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


def _spreads(leading: Sequence[Group], told: Mapping[str, Numbers]) -> list[str]:
    """From where to where the settings of each method reach, and how sure that is."""
    sentences = []
    for method in dict.fromkeys(group.method for group in leading):
        mine = [told[group.name] for group in leading if group.method == method]
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


def _against(group: Group, base: Group, told: Mapping[str, Numbers], paired: bool) -> str:
    """A group against the baseline."""
    one, two = told[group.name], told[base.name]
    ours, theirs = one.there, two.there
    if min(len(ours), len(theirs)) < 2:
        return (
            f"{group.name} against {base.name}: too few runs to tell, "
            f"{counted(len(ours), 'seed')} against {len(theirs)}."
        )
    if len({*one.reached, *two.reached}) > 1:
        return (
            f"{group.name} against {base.name}: not yet to be compared, their runs have come "
            "unequally far."
        )
    if paired and (one.seeds != two.seeds or min(len(ours), len(theirs)) < len(one.seeds)):
        return f"{group.name} against {base.name}: not yet to be compared, runs are missing."
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


def _rows(show: Sequence[Group], root: Path) -> list[dict[str, Any]]:
    rows = []
    for group in show:
        for run in group.shown:
            curve = store.curve(run, root)
            for i in range(len(curve.get("steps", ()))):
                row = {"group": group.name, "seed": run.settings["seed"]}
                row |= {"steps": int(curve["steps"][i])}
                names = ("eval_return", "eval_worst", *COLUMNS)
                rows.append(
                    row | {name: f"{curve[name][i]:.6g}" if name in curve else "" for name in names}
                )
    return rows


def _json(group: Group, told: Numbers, root: Path) -> dict[str, Any]:
    def interval(each: Interval | None) -> Any:
        if each is None:
            return None
        known = isfinite(each.low) and isfinite(each.high)  # JSON has no other numbers
        return {"value": each.value, "interval": [each.low, each.high] if known else None}

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
    return {
        "group": group.name, "method": group.method, **group.values, "mean": interval(told.mean),
        "iqm": interval(told.iqm), "standard_error": told.error, "runs": runs,
    }  # fmt: skip


def _terminal(found: Found, told: Mapping[str, Numbers]) -> Terminal:
    size, show = found.size, found.show
    table = Terminal(
        title=escape(f"{found.title}: final return"),
        caption=f"the mean of the last {grouping.FINAL:.0%} of evaluations, "
        f"{counted(size.eval_episodes, 'episode')} each; \\[ ]: 95 % bootstrap interval over "
        "seeds" + ("; * stands for its method" if found.best else ""),
    )
    for column in ("group", "mean", "interquartile mean", "worst seed", "seeds", "steps"):
        table.add_column(column, justify="left" if column == "group" else "right")
    chosen = {group.name for group in found.best.values()}
    for group in show:
        each = told[group.name]
        there = each.there
        spans = ["-" if x is None else span(x) for x in (each.mean, each.iqm)]
        reached = sorted(set(each.reached))
        steps = " to ".join(f"{x:,}" for x in dict.fromkeys((reached[0], reached[-1])))
        table.add_row(
            escape(group.name) + ("*" if group.name in chosen else ""), *map(escape, spans),
            f"{there.min():.1f}" if len(there) else "-", str(len(there)),
            f"{steps} of {size.steps:,}",
        )  # fmt: skip
    return table
