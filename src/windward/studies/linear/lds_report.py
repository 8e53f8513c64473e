"""What `lds-low` leaves: headroom by method, costs over time, all runs, a page."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Terminal

from windward.atomic import write_rows
from windward.figures import panels, save
from windward.studies.linear import computed
from windward.studies.linear.computed import Plan, Result
from windward.studies.pages import report, smoothing
from windward.studies.pages.drawing import Drawing
from windward.studies.pages.report import Chart, Curve, Section, Table, Text
from windward.studies.pages.statistics import Interval, mean_interval
from windward.studies.runs.scale import SMOKE
from windward.studies.runs.study_folder import writing

LQR, BEST = "LQR", "best fixed M"
COSTS = "costs.npy"
"""costs of all seeds at the period of the figure, (seeds, T)"""
CEILING = 10.0
"""times LQR's cost, up to which figures show costs: a run that diverges would flatten the others"""
Drawn = Mapping[str, Drawing]
"""the costs of each method, seed by seed and smoothed"""
Looks = Mapping[str, Mapping[str, Any]]
"""how each method is drawn, as matplotlib takes it"""
STILL = {"ls": "--", "zorder": 3}
"""how that which learns nothing is drawn: dashed, and on top"""
SMOOTHED = {
    "mean": "smoothed, mean ± σ/√N",
    "iqm": "smoothed, interquartile mean, 95 % bootstrap",
}


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
    drawn = _drawn(done)
    with writing(out):
        _figure(plan, drawn)
        write_rows(out / "runs.csv", _raw(rows, done, settings))
        return computed.write(
            plan, done, "LQR, GPC, BPC, Bandit GPC and MF-GPC on a double integrator",
            "How much of what the best fixed M in hindsight saves over LQR does each method "
            "capture, the cost of exploration counted?", _found(rows, settings),
            _sections(cells, drawn, settings), console,
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


def drawing(steps: np.ndarray, costs: np.ndarray, first_seed: int = 0) -> Drawing:
    """The costs (seeds, bins) of a method as the paper's appendix draws them, and as they are."""
    raw = [(first_seed + i, np.asarray(steps, float), each) for i, each in enumerate(costs)]
    return Drawing(raw, *smoothing.on_grid([(x, y) for _, x, y in raw], float(steps[-1])))


def _drawn(done: Sequence[Result]) -> dict[str, Drawing]:
    """The costs of all methods, in bins: with every step of every seed a page would be huge."""
    found = {}
    for each in done:
        costs = np.load(each.folder / COSTS, allow_pickle=False)
        s = each.run.settings
        found[s["method"]] = drawing(*computed.binned(costs), s.get("first_seed", 0))
    return found


def frame(drawn: Drawn) -> tuple[float | None, float]:
    """The least and the greatest cost that figures show.

    The first states may cost nothing at all: they do not set the scale. Nor do costs of more than
    `CEILING` times LQR's.
    """
    runs = {name: np.stack([y for *_, y in each.raw]) for name, each in drawn.items()}
    settled = [costs[:, costs.shape[1] // 10 :] for costs in runs.values()]
    lowest = min(float(costs.min()) for costs in settled)
    highest = max(float(costs.max()) for costs in runs.values())
    usual = runs[LQR] if LQR in runs else np.concatenate(settled)
    ceiling = CEILING * float(np.median(usual))
    return lowest / 1.2 if lowest > 0 else None, min(1.2 * highest, ceiling)


def draw(axes: Sequence[Any], drawn: Drawn, looks: Looks) -> None:
    """Three panels: mean and σ/√N as in the paper, interquartile mean, and every run as it is."""
    mean, iqm, every = axes
    low, high = frame(drawn)
    for kind, panel in (("mean", mean), ("iqm", iqm)):
        for name, each in drawn.items():
            band, look = getattr(each, kind), looks[name]
            panel.plot(band.x, band.y, **look, label=name)
            panel.fill_between(band.x, band.low, band.high, color=look["color"], alpha=0.2, lw=0)
        lines = [getattr(each, kind).y for each in drawn.values()]
        panel.set_title(SMOOTHED[kind] + _higher(lines, high), fontsize="medium")
    for name, each in drawn.items():
        for i, (_, x, y) in enumerate(each.raw):
            thin = {"lw": 0.7, "alpha": 0.7, "label": None if i else name}
            every.plot(x, y, **{**looks[name], **thin})
    lines = [y for each in drawn.values() for *_, y in each.raw]
    every.set_title("every run, not smoothed" + _higher(lines, high), fontsize="medium")
    for panel in axes:
        panel.set(xlabel="step", ylabel="cost", yscale="log", ylim=(low, high))


def _higher(lines: Sequence[np.ndarray], high: float) -> str:
    """How many leave the panel at its upper edge, for its title: none is left out in silence."""
    count = sum(bool((line > high).any()) for line in lines)
    return f"; {count} go{'es' * (count == 1)} higher" if count else ""


def _looks(drawn: Drawn) -> dict[str, dict[str, Any]]:
    """A colour for each method."""
    looks: dict[str, dict[str, Any]] = {
        name: {"color": f"C{i}", "ls": "-"} for i, name in enumerate(drawn)
    }
    return looks | {LQR: {"color": "C0", **STILL}, BEST: {"color": "black", **STILL}}


def _figure(plan: Plan, drawn: Drawn) -> None:
    """Cost over time, at one period."""
    settings = plan.settings
    figure, axes = panels(3, width=4.8, height=3.8)
    draw(axes, drawn, _looks(drawn))
    axes[-1].legend(
        *axes[0].get_legend_handles_labels(), frameon=False, fontsize="small",
        loc="center left", bbox_to_anchor=(1.0, 0.5),
    )  # fmt: skip
    figure.suptitle(
        f"Double integrator, sinusoid of period {_shown(settings):g}, {settings.seeds} held-out "
        "seeds"
    )
    save(figure, plan.out, "costs")


def charts(drawn: Drawn, where: str) -> list[Section]:
    """The same three as charts of a page; `where` says on what they were measured."""
    mean, iqm = (
        [
            Curve(name, band.x, band.y, band.low, band.high, dashed=name in (LQR, BEST))
            for name, each in drawn.items()
            for band in (getattr(each, kind),)
        ]
        for kind in ("mean", "iqm")
    )
    every = [
        report.joined(name, [run[1:] for run in each.raw], dashed=name in (LQR, BEST))
        for name, each in drawn.items()
    ]
    return [
        Chart("Cost over time", "step", "cost", mean,
              f"{where}. Drawn as the paper's appendix says: each run smoothed (0.1 of the whole) "
              "and put on a fine grid, then the mean over seeds and one standard error σ/√N.",
              log_y=True),
        Chart("Cost over time, interquartile mean", "step", "cost", iqm,
              "Of the same curves the mean of the middle half, with 95 % bootstrap intervals over "
              "whole runs.", log_y=True),
        Chart("Cost of every run, not smoothed", "step", "cost", every,
              "The costs of all seeds, in bins; none is left out.", log_y=True),
    ]  # fmt: skip


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


def _sections(cells: Sequence[list[Any]], drawn: Drawn, settings: Any) -> list[Section]:
    last = f"the last {settings.last:,} of {settings.T:,} steps"
    cost, *more = charts(drawn, f"Sinusoid of period {_shown(settings):g}")
    return [
        cost,
        Table(f"Headroom captured in {last}", COLUMNS, cells, _note(settings)),
        *more,
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
