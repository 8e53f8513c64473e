"""What `lds-low` leaves: headroom by method, costs over time, all runs, a page."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Terminal

import windward as ww
from windward.atomic import write_rows
from windward.figures import save
from windward.studies import computed
from windward.studies.computed import Plan, Result
from windward.studies.report import Chart, Curve, Section, Table, Text
from windward.studies.scales import SMOKE
from windward.studies.statistics import Interval, mean_interval
from windward.studies.study_folder import writing

LQR, BEST = "LQR", "best fixed M"
COSTS = "costs.npy"
"""costs of all seeds at the period of the figure, (seeds, T)"""


class Row(NamedTuple):
    """What a method came to: headroom and cost by (period, seed)."""

    method: str
    headroom: np.ndarray
    cost: np.ndarray
    hyper: dict[str, float]
    on_edge: list[str]

    @property
    def interval(self) -> Interval:
        """The mean headroom, with its interval over seeds."""
        return mean_interval(self.headroom.mean(axis=0))


def rows_of(done: Sequence[Result]) -> list[Row]:
    """Headroom: (LQR's cost - its cost) / (LQR's cost - that of the best fixed M), by period."""
    found = {each.run.settings["method"]: each.content for each in done}
    costs = {name: np.array(content["last"]) for name, content in found.items()}
    base, floor = costs[LQR][:, :1], costs.pop(BEST)
    return [
        Row(name, (base - cost) / (base - floor), cost, found[name]["hyper"],
            found[name]["on_edge"])
        for name, cost in costs.items()
    ]  # fmt: skip


def write(
    plan: Plan, done: Sequence[Result], sees: dict[str, str], console: Console
) -> dict[str, Any]:
    """All files, from runs that are all finished; `sees` says what each method does."""
    rows, out, settings = rows_of(done), plan.out, plan.settings
    cells = [_cells(row, sees[row.method]) for row in rows]
    console.print(_terminal(cells, settings))
    with writing(out):
        _figure(plan, done)
        write_rows(out / "runs.csv", _raw(rows, done, settings))
        return computed.write(
            plan, done, "LQR, GPC, BPC, Bandit GPC and MF-GPC on a double integrator",
            "How much of what the best fixed M in hindsight saves over LQR does each method "
            "capture, the cost of exploration counted?", _found(rows, settings),
            _sections(cells, done, settings), console,
            headroom={
                row.method: {
                    "mean": row.interval.value,
                    "interval": [row.interval.low, row.interval.high],
                    "median": float(np.median(row.headroom)),
                    "worst": float(row.headroom.min()),
                    "cost": float(row.cost.mean()),
                    "hyper": row.hyper,
                    "on_edge_of_grid": row.on_edge,
                }
                for row in rows
            },
        )  # fmt: skip


def _raw(rows: Sequence[Row], done: Sequence[Result], settings: Any) -> list[dict[str, Any]]:
    (best,) = (each.content for each in done if each.run.settings["method"] == BEST)
    first_seed = next(s["first_seed"] for r in done if "first_seed" in (s := r.run.settings))
    return [
        {
            "method": row.method, "period": period, "seed": first_seed + j,
            "cost": f"{row.cost[i, j]:.6g}", "best_cost": f"{best['last'][i][0]:.6g}",
            "headroom": f"{row.headroom[i, j]:.6g}",
        }
        for row in rows
        for i, period in enumerate(settings.periods)
        for j in range(settings.seeds)
    ]  # fmt: skip


def _shown(settings: Any) -> float:
    """The period of the figure."""
    return float(settings.periods[len(settings.periods) // 2])


def _figure(plan: Plan, done: Sequence[Result]) -> None:
    """Cost and regret over time, at one period."""
    settings = plan.settings
    none = ww.linear.Run(*[None] * len(ww.linear.Run._fields))
    runs = {
        each.run.settings["method"]: none._replace(
            cost=np.load(each.folder / COSTS, allow_pickle=False)
        )
        for each in done
    }
    best = ww.linear.BestDAC(*[np.zeros(0)] * 4)._replace(cost=runs.pop(BEST).cost[0])
    title = (
        f"Double integrator, sinusoid of period {_shown(settings):g}, {settings.seeds} held-out "
        "seeds"
    )
    save(ww.linear.plot(runs, best, title=title), plan.out, "costs")


def _found(rows: Sequence[Row], settings: Any) -> str:
    shares = [f"{row.method} {row.interval:.3f}" for row in rows if row.method != LQR]
    return (
        (f"{SMOKE} " if settings.scale == "smoke" else "")
        + f"Of the headroom in the last {settings.last:,} of {settings.T:,} steps: "
        + ", ".join(shares)
        + "."
    )


COLUMNS = ("method", "sees", "headroom", "median run", "worst run", "cost", "tuned")


def _cells(row: Row, sees: str) -> list[Any]:
    tuned = ", ".join(
        f"{key} {value:.2g}{'*' if key in row.on_edge else ''}" for key, value in row.hyper.items()
    )
    return [
        row.method, sees, f"{row.interval:.3f}", f"{np.median(row.headroom):.2f}",
        f"{row.headroom.min():.2f}",
        f"{row.cost.mean():.2f}", tuned,
    ]  # fmt: skip


def _note(settings: Any) -> str:
    return (
        f"0: LQR, 1: best fixed M in hindsight. Tuned on periods {settings.tune_periods}, reported "
        f"on {settings.periods} with {settings.seeds} other seeds; [ ] is the 95 % bootstrap "
        "interval over seeds; * is on the edge of the tuning grid."
    )


def _sections(cells: Sequence[list[Any]], done: Sequence[Result], settings: Any) -> list[Section]:
    curves = [
        Curve(name, each.curve["steps"], each.curve["cost"], dashed=name in (LQR, BEST))
        for each in done
        for name in (each.run.settings["method"],)
    ]
    last = f"the last {settings.last:,} of {settings.T:,} steps"
    return [
        Chart("Cost over time", "step", "cost", curves,
              f"Sinusoid of period {_shown(settings):g}; mean over seeds, in bins.", log_y=True),
        Table(f"Headroom captured in {last}", COLUMNS, cells, _note(settings)),
        Text("What was run", [
            "A = [[1, 1], [0, 1]], B = [0; 1], Q = R = I, the base policy is LQR, w a sinusoid of "
            "size 1 on both states. Every method is tuned over a grid of its own, on other periods "
            "and seeds than those shown. GPC knows A, B and the cost function.",
            "Raw results: runs.csv has every period and seed.",
        ]),
    ]  # fmt: skip


def _terminal(rows: Sequence[list[Any]], settings: Any) -> Terminal:
    table = Terminal(
        title=f"Headroom captured in the last {settings.last} of {settings.T} steps",
        caption=escape(_note(settings)),
    )
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in COLUMNS[:2] else "right")
    for cells in rows:
        table.add_row(*map(escape, cells))
    return table
