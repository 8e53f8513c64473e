"""What `diagnose` leaves: how far each goal is reached, a figure, all cases, a page."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Terminal

from windward.atomic import write_rows
from windward.figures import panels, save
from windward.studies import run as computed
from windward.studies.diagnosis.goals import GROUPS, Score, scores
from windward.studies.report import Chart, Curve, Section, Table, Text
from windward.studies.run import Plan, Result
from windward.studies.runs.study_folder import writing
from windward.studies.spec import SMOKE

SMALLEST = 1e-9
"""errors below are drawn there"""
MEASURES = {
    "error": "largest error", "seconds": "seconds of the fit", "misplaced": "body, direction right",
    "size_error": "error of size", "period_error": "error of period",
    "mass_error": "error of total mass", "gain_error": "error of all motors' gain",
    "missed": "95 % interval holds the truth", "wrong_kind": "kind right",
    "reported": "no change reported", "explained": "explained share",
}  # fmt: skip
"""what is measured, in words"""
COLUMNS = (
    "group", "environment", "measured", "bound", "cases", "not seen", "within", "needed", "median",
    "worst", "seconds, median", "seconds, worst", "held",
)  # fmt: skip


def write(plan: Plan, done: Sequence[Result], console: Console) -> dict[str, Any]:
    """All files, from the runs that are finished; how many that is, is said."""
    rows = [row for each in done for row in each.content["rows"]]
    found, out = scores(rows), plan.out
    console.print(_terminal(found))
    with writing(out):
        save(_figure(found), out, plan.name)
        write_rows(out / "runs.csv", rows)
        return computed.write(
            plan, done, "what a diagnosis finds", "How well does windward.diagnose tell what "
            "changed, from one episode or at most 1,000 steps?",
            _part(plan, done) + _found(found, plan.settings),
            _sections(rows, found), console, scores=[_json(each) for each in found],
            groups=counts(rows), runs={"finished": len(done), "planned": len(plan.runs)},
        )  # fmt: skip


def _part(plan: Plan, done: Sequence[Result]) -> str:
    """What is said first where runs are missing."""
    if len(done) == len(plan.runs):
        return ""
    return f"{len(done)} of {len(plan.runs)} runs are finished; the same command makes the others. "


def counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Of each group cases of which a share within a bound says nothing."""
    return {
        group: {
            "cases": len(own),
            "not diagnosed": sum(bool(row["failure"]) for row in own),
            "a change not seen": sum(bool(row["unseen"]) for row in own),
            "changes not trusted": sum(bool(row["suspects"]) for row in own),
            "a change reported": sum(bool(row["reported"]) for row in own),
        }
        for group in dict.fromkeys(row["group"] for row in rows)
        for own in [[row for row in rows if row["group"] == group]]
    }


def _json(each: Score) -> dict[str, Any]:
    return {**each._asdict(), "env": each.env or "all", "goal": each.goal._asdict(),
            "held": each.held}  # fmt: skip


def _bound(each: Score) -> str:
    return f"≤ {each.goal.bound:g}" if each.goal.bound else ""


def _needed(each: Score) -> str:
    goal = each.goal
    return f"{goal.least:.0%}" + (f" to {goal.most:.0%}" if goal.least < goal.most < 1 else "")


def _within(each: Score) -> str:
    return f"{each.share:.1%} [{each.low:.1%}, {each.high:.1%}]"


def _cells(each: Score) -> list[Any]:
    return [
        each.group, each.env or "all", MEASURES[each.goal.measure], _bound(each), each.cases,
        each.unseen, _within(each), _needed(each), each.median, each.worst, each.median_seconds,
        each.worst_seconds, "yes" if each.held else "no",
    ]  # fmt: skip


def _terminal(found: Sequence[Score]) -> Terminal:
    table = Terminal(title="Diagnoses of held-out changes", caption=escape("[ ]: 95 %, Wilson"))
    columns = (
        "group", "measured", "bound", "cases", "not seen", "within", "needed", "worst", "held",
    )  # fmt: skip
    for column in columns:
        table.add_column(column)
    for each in (each for each in found if not each.env):
        cells = dict(zip(COLUMNS, map(str, _cells(each)), strict=True))
        cells["worst"] = f"{each.worst:.3g}"
        table.add_row(*(escape(cells[column]) for column in columns))
    return table


def _found(found: Sequence[Score], settings: Any) -> str:
    whole = [each for each in found if not each.env]
    missed = [f"{each.group} ({MEASURES[each.goal.measure]})" for each in whole if not each.held]
    said = f"{len(whole) - len(missed)} of {len(whole)} goals are reached"
    said += f"; not: {', '.join(missed)}." if missed else "."
    return f"{SMOKE} {said}" if settings.scale == "smoke" else said


def _errors(rows: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Of each group the share of cases whose largest error is at most so large."""
    curves = []
    for group in dict.fromkeys(row["group"] for row in rows):
        own = [row["error"] for row in rows if row["group"] == group]
        known = np.sort([max(each, SMALLEST) for each in own if each is not None])
        curves.append(Curve(group, known, np.arange(1, len(known) + 1) / len(own)))
    return curves


def _sections(rows: Sequence[Mapping[str, Any]], found: Sequence[Score]) -> list[Section]:
    whole = [each for each in found if not each.env]
    listed = counts(rows)
    names = tuple(next(iter(listed.values())))
    return [
        Table("Goals", COLUMNS, [_cells(each) for each in whole],
              "within: share of cases within the bound, 95 % interval after Wilson."),
        Chart("Errors", "largest relative error of a parameter", "share of cases",
              _errors(rows), "Cases without any error are drawn at 1e-9.", log_x=True),
        Table("By environment", COLUMNS, [_cells(each) for each in found if each.env]),
        Table("Worst cases", ("group", "measured", "worst", "case"),
              [[each.group, MEASURES[each.goal.measure], each.worst, each.worst_case]
               for each in whole]),
        Table("Cases by what was said", ("group", "what changes", *names),
              [[group, GROUPS[group].shows, *each.values()] for group, each in listed.items()]),
        Text("How it is judged", [
            "The largest error is that of any parameter, changed or not; amounts count in their "
            "unit. A parameter that the diagnosis calls not seen is left out, unless it is "
            "reported all the same: its case is within the bound, and counted as not seen.",
            "On InvertedPendulum and CartPole all masses, gains and dampings times one number are "
            "the same motion: that common factor is taken out before errors are computed.",
            "A case that ends with an error counts as outside of every bound. Seconds are those "
            "of one core. Raw results: runs.csv has every case.",
        ]),
    ]  # fmt: skip


def _figure(found: Sequence[Score]) -> Any:
    """Of each goal the share of cases within its bound, with its interval and what is needed."""
    whole = [each for each in found if not each.env][::-1]
    figure, (axes,) = panels(1, width=8.0, height=1.0 + 0.3 * len(whole))
    for y, each in enumerate(whole):
        color = "C0" if each.held else "C3"
        axes.plot([each.low, each.high], [y, y], color=color)
        axes.plot(each.share, y, "o", color=color)
        axes.plot(each.goal.least, y, "|", color="black", ms=14)
        worst = f"{each.worst:.2g}" if isfinite(each.worst) else "none"
        axes.annotate(f"worst {worst}", (1.02, y), xycoords=("axes fraction", "data"),
                      va="center", fontsize=8)  # fmt: skip
    labels = [f"{each.group}: {MEASURES[each.goal.measure]} {_bound(each)}" for each in whole]
    axes.set_yticks(range(len(whole)), labels)
    axes.set(xlabel="share of cases within the bound; black: needed", xlim=(-0.02, 1.02))
    return figure
