"""What `windward tune` leaves: a table, a summary, and a page with scores over each setting."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Terminal

from windward.studies.pages import report
from windward.studies.pages.report import Chart, Points, Section, Table, Text
from windward.studies.pages.words import lines
from windward.studies.runs import results
from windward.studies.runs.scale import SMOKE
from windward.studies.runs.study_folder import writing

SHOWN = 10
"""points in the terminal's table"""
SEARCHED = ("sigma", "eta", "weight_decay")
COLUMNS = (*SEARCHED, "steps", "score")
SCORE = "mean return of the last half of the evaluations"
BASELINE = "The baseline was not searched: the study chooses its sigma from --base-sigmas."


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
    with writing(out):
        summary = results.write_summary(
            out / "summary.json", command, settings, found=found, study=study, best=dict(best),
            points=list(map(dict, rows)), **content,
        )  # fmt: skip
        facts = {"command": command}
        facts |= {part: "\n".join(lines(summary[part])) for part in ("settings", "versions")}
        facts["commit"] = summary["commit"] or "unknown"
        lead = f"Which sigma, eta and weight decay suit MF-GPC in {name}?\n{found}"
        report.write(out / "report.html", f"tune {name}", lead, _sections(rows, study), facts)
    console.print(_terminal(rows, name))
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
    table = Table("All points", COLUMNS, [[row[column] for column in COLUMNS] for row in rows],
                  f"Score: {SCORE}. Points that did badly at a rung were ended there.")  # fmt: skip
    return [*charts, table, Text("As a study, on other seeds", [study])]


def _at(rows: Sequence[Mapping[str, Any]], steps: int, name: str) -> list[tuple[float, float]]:
    return [(row[name], row["score"]) for row in rows if row["steps"] == steps]


def _terminal(rows: Sequence[Mapping[str, Any]], name: str) -> Terminal:
    table = Terminal(title=f"{name}: the best points", caption=f"score: {SCORE}")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for row in rows[:SHOWN]:
        numbers = [f"{row[column]:.3g}" for column in SEARCHED]
        table.add_row(*numbers, f"{row['steps']:,}", f"{row['score']:.1f}")
    return table
