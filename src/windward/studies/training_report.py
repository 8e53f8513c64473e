"""What a study of trainings leaves: a table in the terminal, figures, all curves, a summary."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Terminal

from windward.atomic import write_rows, write_text
from windward.studies import groups as grouping
from windward.studies import results, store, training_figures
from windward.studies.commands import commit
from windward.studies.groups import Group, Numbers
from windward.studies.statistics import Interval
from windward.studies.study_folder import writing
from windward.studies.training_page import COLUMNS, Found, Page, drawn_of, span
from windward.studies.trainings import BASELINE


def write(out: Path, found: Found, command: str, console: Console) -> dict[str, Any]:
    """All files of the study from what its runs have come to; gives the summary."""
    settings, root, drop = found.settings, found.root, found.settings.drop_worst
    drawn = drawn_of(found.show, root, "eval_return", drop)
    if not drawn:
        raise ValueError(f"no run in {root} has been evaluated yet: there is nothing to draw")
    told = {group.name: grouping.numbers(group, root) for group in found.show}
    lead = " ".join(verdicts(found, told))
    with writing(out):
        said = training_figures.Said(found.title, found.entry.x_label, drop)
        training_figures.best(found.leading, drawn, out, said)
        if len(found.show) > len({group.method for group in found.show}):
            training_figures.every(found.show, drawn, out, said)
        training_figures.raw(found.show, drawn, out, said)
        write_rows(out / "curves.csv", _rows(found.show, root))
        summary = {
            "command": command,
            "found": lead,
            "settings": _settings(settings),
            "size": asdict(found.size),
            "versions": results.versions(),
            "commit": commit(),
            "chosen": {method: group.name for method, group in found.best.items()},
            "scores": {g.name: grouping.score(g, root) for g in found.every if g.judged},
            "groups": [_json(group, told[group.name], root) for group in found.show],
            "failed": dict(found.failed),
        }
        write_text(out / "summary.json", json.dumps(summary, indent=1) + "\n")
        Page(found, told, drawn).write(out / "report.html", lead, summary)
    console.print(_terminal(found, told))
    console.print(escape(lead), highlight=False)
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
    leading = found.leading
    base = next((group for group in leading if group.method == BASELINE), None)
    others = [group for group in leading if group.method != BASELINE]
    if base is None or not others:
        return ["Runs are still to come."]
    if len(leading) > 2 and len({group.method for group in leading}) == 2:
        means = {group.name: told[group.name].mean for group in leading}
        there = {name: each.value for name, each in means.items() if each is not None}
        spread = f"{min(there.values()):.0f} to {max(there.values()):.0f}" if there else "none yet"
        return [f"Final returns of {len(there)} groups reach from {spread}."]
    sentences = []
    for group in others:
        ours, theirs = told[group.name].there, told[base.name].there
        if min(len(ours), len(theirs)) < 2:
            sentences.append(f"{group.name}: too few runs to tell.")
            continue
        gap = grouping.difference(ours, theirs)
        word = "no difference that these runs can tell"
        if gap.low > 0:
            word = "higher"
        elif gap.high < 0:
            word = "lower"
        sentences.append(
            f"Final return of {group.name} less that of {base.name}: {span(gap)} ({word}; Welch's "
            f"interval, {len(ours)} and {len(theirs)} seeds, {found.size.steps:,} "
            f"{found.entry.x_label})."
        )
    return sentences


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
        return None if each is None else {"value": each.value, "interval": [each.low, each.high]}

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
        caption=f"the mean of the last {grouping.FINAL:.0%} of evaluations, {size.eval_episodes} "
        "episode(s) each; \\[ ]: 95 % bootstrap interval over seeds; * stands for its method",
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
