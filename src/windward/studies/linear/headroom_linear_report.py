"""What `headroom-linear` leaves: shares of the headroom by method and size, all runs, a page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Terminal

from windward.atomic import write_rows
from windward.figures import panels, save
from windward.studies.linear import computed
from windward.studies.linear.computed import Plan, Result
from windward.studies.linear.lds_report import BEST
from windward.studies.pages.report import Chart, Points, Section, Table, Text
from windward.studies.pages.statistics import TOO_NARROW, Interval, mean_interval
from windward.studies.runs.scale import SMOKE
from windward.studies.runs.store import Run
from windward.studies.runs.study_folder import writing


def rows_of(done: Sequence[Result]) -> list[dict[str, Any]]:
    """One for each size, system, wind, seed and method."""
    references = {
        (size_of(each.run), row["system"], row["wind"]): row
        for each in done
        if each.run.settings["method"] == BEST
        for row in each.content["rows"]
    }
    found = []
    for each in done:
        for row in each.content["rows"] if each.run.settings["method"] != BEST else []:
            size, s = size_of(each.run), each.run.settings
            reference = references[size, row["system"], row["wind"]]
            base, floor = reference["base"], reference["best"]
            found += [
                {
                    "size": size, "system": row["system"], "wind": row["wind"],
                    "seed": s["first_seed"] + i, "method": s["method"],
                    "base_cost": f"{base:.6g}", "best_cost": f"{floor:.6g}", "cost": f"{cost:.6g}",
                    "headroom": f"{(base - cost) / (base - floor):.6g}",
                }
                for i, cost in enumerate(row["cost"])
            ]  # fmt: skip
    return found


def size_of(run: Run) -> str:
    """As tables have it."""
    return f"{run.settings['d_x']}x{run.settings['d_u']}"


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By size and method: mean with an interval over systems, worst run, and mean by wind."""
    summary: dict[str, Any] = {}
    for size in dict.fromkeys(row["size"] for row in rows):
        summary[size] = {}
        for method in _methods(rows):
            mine = [row for row in rows if (row["size"], row["method"]) == (size, method)]
            values = np.array([float(row["headroom"]) for row in mine])
            systems = np.array([row["system"] for row in mine])
            # Winds and seeds on one system are not independent: systems are resampled.
            by_system = np.array([values[systems == each].mean() for each in np.unique(systems)])
            finite = bool(np.isfinite(values).all())
            interval = mean_interval(by_system) if finite else Interval(*[float("-inf")] * 3)
            winds = np.array([row["wind"] for row in mine])
            summary[size][method] = {
                "mean": interval.value,
                "interval": [interval.low, interval.high],
                "worst": float(values.min()),
                "runs": len(values),
                "by_wind": {str(w): float(values[winds == w].mean()) for w in dict.fromkeys(winds)},
            }
    return summary


def write(
    plan: Plan, done: Sequence[Result], sees: Mapping[str, str], console: Console
) -> dict[str, Any]:
    """All files, from runs that are all finished; `sees` says what each method does."""
    rows, out, settings = rows_of(done), plan.out, plan.settings
    headroom = summarise(rows)
    tuned: dict[str, dict[str, Any]] = {}
    for each in done:
        if each.run.settings["method"] != BEST:
            of = tuned.setdefault(size_of(each.run), {})
            of[each.run.settings["method"]] = each.content["tuned"]
    table = list(_cells(headroom, sees))
    console.print(_terminal(table, list(headroom), settings))
    with writing(out):
        save(_figure(rows), out, "headroom")
        write_rows(out / "runs.csv", rows)
        return computed.write(
            plan, done, "what each gradient estimate captures of the headroom",
            "How much of what the best fixed M in hindsight saves over LQR does each estimate "
            "capture on systems that nobody knows, the cost of exploration counted?",
            _found(headroom, settings),
            _sections(rows, table, list(headroom), settings), console, headroom=headroom,
            tuned=tuned,
        )  # fmt: skip


def _found(headroom: dict[str, Any], settings: Any) -> str:
    said = [
        f"{size}: " + ", ".join(f"{name} {each['mean']:.2f}" for name, each in by.items()) + "."
        for size, by in headroom.items()
    ]
    return " ".join(([SMOKE] if settings.scale == "smoke" else []) + said)


def _cells(headroom: dict[str, Any], sees: Mapping[str, str]) -> Iterator[list[str]]:
    """Rows of the table."""
    for name, what in sees.items():
        cells = [name, what]
        for each in headroom.values():
            low, high = each[name]["interval"]
            within = f" [{low:.2f}, {high:.2f}]" if low < high else ""  # of one system: none
            cells.append(f"{each[name]['mean']:.2f}{within}, {each[name]['worst']:.2f}")
        yield cells


def _title(settings: Any) -> str:
    return f"Headroom captured in the last {settings.last:,} of {settings.T:,} steps"


NOTE = (
    "0: LQR, 1: best fixed M in hindsight. Held-out systems, winds and seeds, one set of defaults; "
    f"[ ] is the 95 % bootstrap interval over systems, {TOO_NARROW}; then the worst run."
)


def _terminal(rows: Sequence[list[str]], sizes: list[str], settings: Any) -> Terminal:
    table = Terminal(title=_title(settings), caption=escape(NOTE))
    for column in ("method", "sees", *sizes):
        table.add_column(column, justify="right" if column in sizes else "left")
    for cells in rows:
        table.add_row(*map(escape, cells))
    return table


FLOOR = -1.0  # of headroom in figures


def _methods(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def _by_method(rows: Sequence[dict[str, Any]], size: str) -> dict[str, np.ndarray]:
    """Headroom of each run, none below FLOOR."""
    return {
        method: np.maximum(FLOOR, [
            float(row["headroom"]) for row in rows
            if (row["size"], row["method"]) == (size, method)
        ])
        for method in _methods(rows)
    }  # fmt: skip


def _sections(
    rows: Sequence[dict[str, Any]], table: list[list[str]], sizes: list[str], settings: Any
) -> list[Section]:
    charts = [
        Chart(f"Every run, {size}", "method, in the order of the table", "headroom",
              [Points(name, np.full(len(each), number + 1.0), each)
               for number, (name, each) in enumerate(_by_method(rows, size).items())],
              f"One dot for each system, wind and seed; what is below {FLOOR:g} is drawn there.")
        for size in sizes
    ]  # fmt: skip
    return [
        Table(_title(settings), ("method", "sees", *sizes), table, NOTE),
        *charts,
        Text("What was run", [
            "Systems are random and stable (spectral radius 0.8 to 0.98), Q = R = I, the base "
            "policy is LQR. The paper's update and GPC are tuned for each size on other systems, "
            "winds and seeds; all else has the defaults that it comes with.",
            "Raw results: runs.csv has every system, wind and seed.",
        ]),
    ]  # fmt: skip


def _figure(rows: Sequence[dict[str, Any]]) -> Any:
    sizes = list(dict.fromkeys(row["size"] for row in rows))
    figure, panel = panels(len(sizes), width=5.5)
    for axes, size in zip(panel, sizes, strict=True):
        by = _by_method(rows, size)
        for number, each in enumerate(by.values()):
            axes.plot(each, np.full(len(each), -number), ".", color="C0", alpha=0.5)
            axes.plot(each.mean(), -number, "|", color="black", ms=14)
        axes.set_yticks(-np.arange(len(by)), list(by))
        axes.axvline(0, color="C7", ls="--", lw=0.8)
        axes.set(xlabel="headroom captured", title=size, xlim=(FLOOR - 0.05, 1.05))
    return figure
