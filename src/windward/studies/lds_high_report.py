"""What `lds-high` leaves: headroom by horizon and system, a figure, all costs, a page."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Terminal

from windward.atomic import write_rows, write_text
from windward.figures import panels
from windward.studies import report
from windward.studies import results as versions_of
from windward.studies.commands import commit
from windward.studies.report import Chart, Curve, Points, Table, Text
from windward.studies.statistics import Interval, mean_interval
from windward.studies.store import Run
from windward.studies.study_folder import writing
from windward.studies.training_figures import save

LQR, BEST = "LQR", "best fixed M"
METHODS = (LQR, BEST, "GPC", "BPC", "Bandit GPC")
COLOURS = {"GPC": "C2", "BPC": "C3", "Bandit GPC": "C0", LQR: "C7", BEST: "black"}
CLAIM = (
    "The paper says of its system of this size that BPC could not be tuned to learn while Bandit "
    "GPC (there: RBPC) improves on LQR. It names neither the system nor the horizon."
)


class Result(NamedTuple):
    """A finished run: last and whole costs by (wind, seed), and the mean cost over time."""

    run: Run
    content: dict[str, Any]
    curve: dict[str, np.ndarray]


class Row(NamedTuple):
    """A method at a horizon: of each system the share of the headroom, and how much it saves."""

    T: int
    method: str
    headroom: np.ndarray  # (systems,)
    saved: np.ndarray  # (systems,): of LQR's cost
    worst: float  # of any system, wind and seed
    on_edge: int  # systems on which tuning ended on the edge of the grid
    hyper: list[dict[str, float]]

    @property
    def better(self) -> int:
        """Systems on which it saves anything."""
        return int((self.saved > 0).sum())


def rows_of(results: Sequence[Result], part: str = "last") -> list[Row]:
    """Headroom: (LQR's cost - its cost) / (LQR's cost - that of the best fixed M), in each wind."""
    costs: dict[tuple[int, int, str], Result] = {
        (r.run.settings["T"], r.run.settings["system"], r.run.settings["method"]): r
        for r in results
    }
    rows = []
    for T in sorted({key[0] for key in costs}):
        for method in METHODS[2:]:
            headroom, saved, worst, edges, hyper = [], [], np.inf, 0, []
            for system in sorted({key[1] for key in costs}):
                found = [costs.get((T, system, name)) for name in (LQR, BEST, method)]
                if any(each is None for each in found):
                    continue
                lqr, best, ours = (np.array(each.content[part]) for each in found if each)
                share = (lqr - ours) / (lqr - best)
                headroom.append(share.mean())
                saved.append(1 - ours.mean() / lqr.mean())
                worst = min(worst, float(share.min()))
                content = costs[T, system, method].content
                edges += bool(content["on_edge"])
                hyper.append(content["hyper"])
            if headroom:
                rows.append(
                    Row(T, method, np.array(headroom), np.array(saved), worst, edges, hyper)
                )
    return rows


def verdict(rows: Sequence[Row]) -> str:
    """What was found of the claim, horizon by horizon."""
    sentences = []
    for T, same in groupby(rows, lambda row: row.T):
        at = {row.method: row for row in same}
        if "BPC" in at and "Bandit GPC" in at:
            parts = [
                f"{name} saves on {at[name].better} of {len(at[name].saved)} systems, headroom "
                f"{_span(mean_interval(at[name].headroom))}"
                for name in ("BPC", "Bandit GPC")
            ]
            sentences.append(f"T = {T:,}: {'; '.join(parts)}.")
    return " ".join(sentences) or "Runs are still to come."


def _span(each: Interval) -> str:
    return f"{each.value:.2f} [{each.low:.2f}, {each.high:.2f}]"


def write(
    out: Path, settings: Any, results: Sequence[Result], command: str, console: Console
) -> dict[str, Any]:
    """All files, from the runs that are finished."""
    rows, whole = rows_of(results), rows_of(results, "whole")
    if not rows:
        raise ValueError("no system has all its runs finished yet: there is nothing to draw")
    found = verdict(rows)
    with writing(out):
        _figure(out, rows, results, settings)
        write_rows(out / "runs.csv", _raw(results))
        kept = {n: v for n, v in asdict(settings).items() if n not in ("how", "out")}
        summary = {
            "command": command, "found": found, "settings": kept,
            "versions": versions_of.versions(), "commit": commit(),
            "headroom": [_json(row) for row in rows], "whole_run": [_json(row) for row in whole],
        }  # fmt: skip
        write_text(out / "summary.json", json.dumps(summary, indent=1) + "\n")
        _page(out / "report.html", rows, whole, results, settings, summary)
    console.print(_terminal(rows, settings))
    console.print(escape(found), highlight=False)
    console.print(f"page: {out / 'report.html'}   raw results: {out / 'runs.csv'}", highlight=False)
    return summary


def _json(row: Row) -> dict[str, Any]:
    interval = mean_interval(row.headroom)
    return {
        "T": row.T, "method": row.method, "mean": interval.value,
        "interval": [interval.low, interval.high], "systems": row.headroom.tolist(),
        "saved": row.saved.tolist(), "worst": row.worst, "on_edge_of_grid": row.on_edge,
        "hyper": row.hyper,
    }  # fmt: skip


def _raw(results: Sequence[Result]) -> list[dict[str, Any]]:
    rows = []
    for each in results:
        s = each.run.settings
        last, whole = (np.array(each.content[part]) for part in ("last", "whole"))
        for i, j in np.ndindex(last.shape):
            rows.append(
                {
                    "T": s["T"], "system": s["system"], "method": s["method"],
                    "wind": s["winds"][i], "seed": j, "cost_last": f"{last[i, j]:.6g}",
                    "cost_whole": f"{whole[i, j]:.6g}",
                }
            )  # fmt: skip
    return rows


def _shown(results: Sequence[Result]) -> list[Result]:
    """The first system at the longest horizon."""
    T = max(each.run.settings["T"] for each in results)
    system = min(each.run.settings["system"] for each in results)
    return [e for e in results if (e.run.settings["T"], e.run.settings["system"]) == (T, system)]


def _figure(out: Path, rows: Sequence[Row], results: Sequence[Result], settings: Any) -> None:
    figure, (costs, shares) = panels(2, width=5.5)
    shown = _shown(results)
    for each in shown:
        method = each.run.settings["method"]
        look = {"ls": "--"} if method in (LQR, BEST) else {}
        costs.plot(
            each.curve["steps"], each.curve["cost"], color=COLOURS[method], label=method, **look
        )
    costs.set(
        xlabel="step", ylabel="cost", yscale="log", title="one system, mean over winds, seeds"
    )
    costs.legend(frameon=False)
    for method in METHODS[2:]:
        mine = [row for row in rows if row.method == method]
        spans = np.array([mean_interval(row.headroom) for row in mine]).T
        x = [row.T for row in mine]
        shares.plot(x, spans[0], color=COLOURS[method], label=method)
        shares.fill_between(x, spans[1], spans[2], color=COLOURS[method], alpha=0.2, lw=0)
        for row in mine:
            shares.plot([row.T] * len(row.headroom), row.headroom, ".", color=COLOURS[method])
    shares.axhline(0, color=COLOURS[LQR], ls="--", label=LQR)
    shares.set(xlabel="T", xscale="log", ylabel="headroom captured", ylim=(-1.05, 1.05))
    shares.set_title(f"{settings.systems} systems: mean, 95 % interval, each")
    shares.legend(frameon=False)
    save(figure, out, "lds-high")


def _cells(row: Row) -> list[Any]:
    hyper = row.hyper[0]
    ranges = {name: sorted(each[name] for each in row.hyper) for name in hyper}
    tuned = ", ".join(f"{name} {v[0]:.2g} to {v[-1]:.2g}" for name, v in ranges.items())
    return [
        row.T, row.method, _span(mean_interval(row.headroom)), row.worst,
        f"{row.better} of {len(row.saved)}", f"{row.saved.mean():.1%}", tuned, row.on_edge,
    ]  # fmt: skip


COLUMNS = ("T", "method", "headroom", "worst run", "saves on", "saves", "tuned", "on grid's edge")


def _terminal(rows: Sequence[Row], settings: Any) -> Terminal:
    table = Terminal(
        title=f"{settings.d_x} states, {settings.d_u} inputs: headroom captured in the last "
        f"{settings.last:.0%} of steps",
        caption="0: LQR, 1: best fixed M in hindsight; \\[ ] 95 % bootstrap interval over systems",
    )
    for column in COLUMNS:
        table.add_column(column)
    for row in rows:
        table.add_row(
            *(escape(f"{c:.2f}" if isinstance(c, float) else str(c)) for c in _cells(row))
        )
    return table


def _page(
    path: Path, rows: Sequence[Row], whole: Sequence[Row], results: Sequence[Result],
    settings: Any, summary: dict[str, Any],
) -> None:  # fmt: skip
    def by_horizon(rows: Sequence[Row]) -> list[Curve | Points]:
        curves: list[Curve | Points] = []
        for method in METHODS[2:]:
            mine = [row for row in rows if row.method == method]
            mean, low, high = np.array([mean_interval(row.headroom) for row in mine]).T
            curves.append(Curve(method, [row.T for row in mine], mean, low, high))
            x = np.repeat([row.T for row in mine], [len(row.headroom) for row in mine])
            y = np.concatenate([row.headroom for row in mine])
            curves.append(Points(f"{method}, each system", x, y))
        return curves

    costs: list[Curve | Points] = []
    for each in _shown(results):
        name = each.run.settings["method"]
        dashed = name in (LQR, BEST)
        costs.append(Curve(name, each.curve["steps"], each.curve["cost"], dashed=dashed))
    last = f"the last {settings.last:.0%} of steps"
    sections: list[report.Section] = [
        Chart(f"Headroom captured in {last}", "T", "headroom", by_horizon(rows),
              "0: LQR, 1: best fixed M in hindsight. Mean over systems, 95 % bootstrap interval.",
              log_x=True),
        Table(f"Headroom in {last}", COLUMNS, [_cells(row) for row in rows],
              "Saves: of LQR's cost, the cost of exploration counted."),
        Chart("Cost over time on one system", "step", "cost", costs,
              "Mean over winds and seeds, in bins.", log_y=True),
        Table("Headroom over whole runs, learning included", COLUMNS,
              [_cells(row) for row in whole]),
        Text("How it was made", [
            CLAIM,
            "Systems are random and stable (spectral radius 0.8 to 0.98), Q = R = I, the base "
            "policy is LQR. BPC and Bandit GPC are tuned alike: the same grid of eta and delta, "
            "for each system and horizon, by the same number of winds and seeds; they are "
            "reported in other winds with other seeds. GPC knows A, B and the cost function.",
            "Raw results: runs.csv has every system, wind and seed.",
        ]),
    ]  # fmt: skip
    facts = {
        "command": summary["command"],
        "settings": "\n".join(f"{name}: {value}" for name, value in summary["settings"].items()),
        "versions": "\n".join(f"{name} {value}" for name, value in summary["versions"].items()),
        "commit": summary["commit"] or "unknown",
    }
    title = f"lds-high: {settings.d_x} states, {settings.d_u} inputs"
    report.write(path, title, summary["found"], sections, facts)
