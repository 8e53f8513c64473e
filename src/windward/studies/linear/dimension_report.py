"""What `dimension` leaves: regret and the gradient's size by d_x, a figure, all runs, a page."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Terminal

from windward.atomic import write_rows
from windward.figures import panels, save
from windward.studies.linear import computed
from windward.studies.linear.computed import Plan, Result
from windward.studies.pages.report import Chart, Curve, Section, Table, Text
from windward.studies.pages.statistics import Interval, mean_interval
from windward.studies.runs.scale import SMOKE
from windward.studies.runs.study_folder import writing


class Point(NamedTuple):
    """A method at one d_x: what it came to as tuned there, and as tuned at the smallest."""

    method: str
    d_x: int
    tuned: dict[str, Any]
    fixed: dict[str, Any]
    first_seed: int

    def interval(self, key: str) -> Interval:
        """Of one of NUMBERS."""
        values = {
            "regret_fixed": self.fixed["regret"], "regret_tuned": self.tuned["regret"],
            "gradient_second_moment": self.tuned["gradient"],
        }  # fmt: skip
        return mean_interval(np.array(values[key]))


NUMBERS = {
    "regret_fixed": "regret, settings of the smallest d_x",
    "regret_tuned": "regret, tuned at each d_x",
    "gradient_second_moment": "second moment of the gradient estimate",
}


def points_of(done: Sequence[Result], settings: Any) -> list[Point]:
    """Runs by d_x and method."""
    found = {
        (s["d_x"], s["method"], s["tuned_at"]): each.content
        for each in done
        for s in (each.run.settings,)
    }
    smallest, first_seed = min(settings.d_x), done[0].run.settings["first_seed"]
    return [
        Point(method, d_x, content, found[d_x, method, smallest], first_seed)
        for (d_x, method, tuned_at), content in found.items()
        if tuned_at == d_x
    ]


def _methods(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(point.method for point in points))


def write(plan: Plan, done: Sequence[Result], console: Console) -> dict[str, Any]:
    """All files, from runs that are all finished."""
    settings, out = plan.settings, plan.out
    points = points_of(done, settings)
    console.print(_terminal(points, settings))
    with writing(out):
        save(_figure(points), out, "dimension")
        write_rows(out / "runs.csv", _raw(points))
        return computed.write(
            plan, done, "regret and the state's dimension",
            "Does Bandit GPC, which explores in action space, pay for the state's dimension as "
            "BPC does?", _found(points, settings), _sections(points, settings), console,
            points=[_json(point) for point in points],
        )  # fmt: skip


def _json(point: Point) -> dict[str, Any]:
    return {
        "method": point.method, "d_x": point.d_x,
        **{key: point.interval(key) for key in NUMBERS},
        "worst_regret_fixed": max(point.fixed["regret"]),
        "worst_regret_tuned": max(point.tuned["regret"]),
        "base_regret": point.tuned["base_regret"], "best_cost": point.tuned["best_cost"],
        "hyper_fixed": point.fixed["hyper"], "hyper_tuned": point.tuned["hyper"],
        "on_edge_of_grid": point.tuned["on_edge"],
    }  # fmt: skip


def _raw(points: Sequence[Point]) -> list[dict[str, Any]]:
    return [
        {
            "method": point.method, "d_x": point.d_x, "seed": point.first_seed + i,
            "regret_fixed": f"{point.fixed['regret'][i]:.6g}",
            "regret_tuned": f"{point.tuned['regret'][i]:.6g}",
            "gradient": f"{point.tuned['gradient'][i]:.6g}",
        }
        for point in points
        for i in range(len(point.tuned["regret"]))
    ]  # fmt: skip


def _found(points: Sequence[Point], settings: Any) -> str:
    parts = [
        f"{name}: " + ", ".join(f"{p.interval('regret_tuned'):,.0f} at d_x = {p.d_x}"
                                for p in points if p.method == name)
        for name in _methods(points)
    ]  # fmt: skip
    said = f"Regret after {settings.T:,} steps, tuned at each d_x. {'; '.join(parts)}."
    return f"{SMOKE} {said}" if settings.scale == "smoke" else said


COLUMNS = ("d_x", "method", "regret, fixed", "regret, tuned", "of M = 0", "E|gradient|²")


def _table(points: Sequence[Point]) -> list[list[Any]]:
    ordered = sorted(points, key=lambda point: point.method)
    return [
        [
            str(point.d_x), point.method, f"{point.interval('regret_fixed'):,.0f}",
            f"{point.interval('regret_tuned'):,.0f}", f"{point.tuned['base_regret']:,.0f}",
            f"{point.interval('gradient_second_moment'):,.0f}",
        ]
        for point in ordered
    ]  # fmt: skip


def _note(settings: Any) -> str:
    return (
        f"d_u = 4, h = {settings.h}; fixed: eta, delta as tuned at the smallest d_x; tuned: at "
        f"each; {settings.seeds} held-out seeds; [ ] is the 95 % bootstrap interval."
    )


def _terminal(points: Sequence[Point], settings: Any) -> Terminal:
    table = Terminal(
        title=f"Regret after {settings.T:,} steps and size of the gradient estimate, by dimension",
        caption=escape(_note(settings)),
    )
    for column in COLUMNS:
        table.add_column(column)
    for cells in _table(points):
        table.add_row(*map(escape, cells))
    return table


def _lines(points: Sequence[Point], key: str) -> dict[str, tuple[list[int], np.ndarray]]:
    """Of each method d_x, and (mean, low, high)."""
    return {
        name: (
            [p.d_x for p in points if p.method == name],
            np.array([p.interval(key) for p in points if p.method == name]).T,
        )
        for name in _methods(points)
    }


def _sections(points: Sequence[Point], settings: Any) -> list[Section]:
    charts = [
        Chart(title.capitalize(), "state dimension d_x", key.partition("_")[0],
              [Curve(name, d_x, *spans) for name, (d_x, spans) in _lines(points, key).items()],
              "Mean over seeds, 95 % bootstrap interval.", log_x=True,
              log_y=key == "gradient_second_moment")
        for key, title in NUMBERS.items()
    ]  # fmt: skip
    return [
        *charts,
        Table("Regret and size of the gradient estimate", COLUMNS, _table(points),
              _note(settings)),
        Text("What was run", [
            "The same problem in more and more coordinates: four controlled modes, the rest idle, "
            "all turned by a random rotation; ‖w‖ = 1, d_u, h and the best controller's cost are "
            "the same, and M stays in the theorem's set.",
            "Raw results: runs.csv has every seed.",
        ]),
    ]  # fmt: skip


def _figure(points: Sequence[Point]) -> Any:
    figure, row = panels(len(NUMBERS))
    sizes = sorted({point.d_x for point in points})
    for axes, (key, title) in zip(row, NUMBERS.items(), strict=True):
        for index, (name, (d_x, (mean, low, high))) in enumerate(_lines(points, key).items()):
            bars = np.maximum(0, [mean - low, high - mean])
            axes.errorbar(d_x, mean, bars, fmt="o-", capsize=3, color=f"C{index}", label=name)
        axes.set(xscale="log", xlabel="state dimension d_x", ylabel=title)
        axes.set_xticks(sizes, [str(d_x) for d_x in sizes])
        axes.minorticks_off()
        if key == "gradient_second_moment":
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
            base = points[0].tuned["base_regret"]
            axes.axhline(base, color="black", ls="--", lw=0.8, label="M = 0")
    row[0].legend(frameon=False)
    return figure
