"""What `lds-high` leaves: headroom by horizon and system, a figure, all costs, a page."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Terminal

from windward.atomic import write_rows
from windward.figures import panels, save
from windward.studies.linear import computed
from windward.studies.linear.computed import Plan, Result
from windward.studies.linear.lds import REPORT_SEED
from windward.studies.linear.lds_report import BEST, LQR, STILL, charts, draw, drawing
from windward.studies.pages.drawing import Drawing
from windward.studies.pages.report import Chart, Curve, Points, Section, Table, Text
from windward.studies.pages.statistics import student_interval
from windward.studies.runs.scale import SMOKE
from windward.studies.runs.study_folder import writing

METHODS = (LQR, BEST, "GPC", "BPC", "Bandit GPC")
COLOURS = {"GPC": "C2", "BPC": "C3", "Bandit GPC": "C0", LQR: "C7", BEST: "black"}
LOOKS = {
    name: {"color": colour, **(STILL if name in (LQR, BEST) else {})}
    for name, colour in COLOURS.items()
}
BINNED = "binned.npy"
"""costs of all seeds in the middle one of the winds, in the bins of the curve, (seeds, bins)"""
FLOOR = -1.05  # of headroom in the figure
CLAIM = (
    "On a larger linear system, do BPC and Bandit GPC improve on LQR when both are tuned alike? "
    "The paper says of its system of this size that BPC could not be tuned to learn while Bandit "
    "GPC (there: RBPC) improves on LQR. It names neither the system nor the horizon."
)


class Row(NamedTuple):
    """A method at a horizon: of each system the share of the headroom, and how much it saves."""

    T: int
    method: str
    headroom: np.ndarray  # (systems,)
    saved: np.ndarray  # (systems,): of LQR's cost
    runs: np.ndarray  # the share of the headroom of every system, wind and seed
    on_edge: int  # systems on which tuning ended on the edge of the grid
    hyper: list[dict[str, float]]

    @property
    def worst(self) -> float:
        """Of all runs."""
        return float(self.runs.min())

    @property
    def median(self) -> float:
        """Of all runs."""
        return float(np.median(self.runs))

    @property
    def better(self) -> int:
        """Systems on which it saves anything."""
        return int((self.saved > 0).sum())


def rows_of(done: Sequence[Result], part: str = "last") -> list[Row]:
    """Headroom: (LQR's cost - its cost) / (LQR's cost - that of the best fixed M), in each wind."""
    costs: dict[tuple[int, int, str], Result] = {
        (r.run.settings["T"], r.run.settings["system"], r.run.settings["method"]): r for r in done
    }
    rows = []
    for T in sorted({key[0] for key in costs}):
        for method in METHODS[2:]:
            headroom, saved, runs, edges, hyper = [], [], [], 0, []
            for system in sorted({key[1] for key in costs}):
                found = [costs.get((T, system, name)) for name in (LQR, BEST, method)]
                if any(each is None for each in found):
                    continue
                lqr, best, ours = (np.array(each.content[part]) for each in found if each)
                share = (lqr - ours) / (lqr - best)
                headroom.append(share.mean())
                saved.append(1 - ours.mean() / lqr.mean())
                runs.append(share.ravel())
                content = costs[T, system, method].content
                edges += bool(content["on_edge"])
                hyper.append(content["hyper"])
            if headroom:
                shares = np.array(headroom), np.array(saved)
                rows.append(Row(T, method, *shares, np.concatenate(runs), edges, hyper))
    return rows


def verdicts(rows: Sequence[Row]) -> list[str]:
    """What was found of the claim, horizon by horizon."""
    sentences = []
    for T, same in groupby(rows, lambda row: row.T):
        at = {row.method: row for row in same}
        if "BPC" in at and "Bandit GPC" in at:
            two = at["BPC"], at["Bandit GPC"]
            parts = "; ".join(
                f"{row.method} saves on {row.better} of {len(row.saved)} systems, headroom "
                f"{_span(row)}" for row in two
            )  # fmt: skip
            sentences.append(f"T = {T:,}: {_claim(*two)}. {parts}.")
    return sentences or ["Runs are still to come."]


def _claim(bpc: Row, bandit: Row) -> str:
    """What of the claim holds: a method improves if the interval of its headroom is above 0."""
    if min(len(bpc.headroom), len(bandit.headroom)) < 2:
        return "one system tells nothing of others"
    return {
        (False, True): "Bandit GPC improves on LQR and BPC not for sure, as the paper says",
        (True, True): "both improve on LQR, so that here BPC can be tuned to learn",
        (False, False): "neither improves on LQR for sure",
        (
            True,
            False,
        ): "BPC improves on LQR and Bandit GPC not for sure, which the paper does not find",
    }[bool(student_interval(bpc.headroom).low > 0), bool(student_interval(bandit.headroom).low > 0)]


def _state(done: Sequence[Result], settings: Any) -> list[str]:
    """What a reader must know before any number."""
    state = [SMOKE] if settings.scale == "smoke" else []
    total = len(METHODS) * settings.systems * len(settings.horizons)
    if len(done) < total:
        state.append(f"Not finished: {len(done)} of {total} runs are.")
    return state


def _span(row: Row) -> str:
    """The mean headroom with its interval over systems, of which one has none."""
    each = student_interval(row.headroom)
    if len(row.headroom) < 2:
        return f"{each.value:.2f}"
    return f"{each.value:.2f} [{each.low:.2f}, {each.high:.2f}]"


def write(plan: Plan, done: Sequence[Result], console: Console) -> dict[str, Any]:
    """All files, from the runs that are finished."""
    rows, over_all = rows_of(done), rows_of(done, "whole")
    if not rows:
        raise ValueError("no system has all its runs finished yet: there is nothing to draw")
    settings = plan.settings
    found = " ".join(_state(done, settings) + verdicts(rows))
    shown = _shown(done)
    sections = _sections(rows, over_all, shown, settings)
    console.print(_terminal(rows, settings))
    console.print(escape(found), highlight=False)
    with writing(plan.out):
        _figure(plan.out, rows, shown)
        write_rows(plan.out / "runs.csv", _raw(done))
        return computed.write(
            plan, done, f"bandits on linear systems, {settings.d_x} states, {settings.d_u} inputs",
            CLAIM, found, sections, console,
            headroom=[_json(row) for row in rows], whole_run=[_json(row) for row in over_all],
        )  # fmt: skip


def _json(row: Row) -> dict[str, Any]:
    interval = student_interval(row.headroom)
    return {
        "T": row.T, "method": row.method, "mean": interval.value,
        "interval": [interval.low, interval.high] if len(row.headroom) > 1 else None,
        "systems": row.headroom.tolist(),
        "saved": row.saved.tolist(), "median": row.median, "worst": row.worst,
        "on_edge_of_grid": row.on_edge, "hyper": row.hyper,
    }  # fmt: skip


def _raw(done: Sequence[Result]) -> list[dict[str, Any]]:
    rows = []
    for each in done:
        s = {name: each.run.settings[name] for name in ("T", "system", "method", "winds")}
        winds = s.pop("winds")
        last, whole = (np.array(each.content[part]) for part in ("last", "whole"))
        for i, j in np.ndindex(last.shape):
            costs = {"cost_last": f"{last[i, j]:.6g}", "cost_whole": f"{whole[i, j]:.6g}"}
            rows.append(s | {"wind": winds[i], "seed": REPORT_SEED + j} | costs)
    return rows


class Shown(NamedTuple):
    """Costs over time of each seed by method, and the system, horizon and wind they are of."""

    where: str
    drawn: Mapping[str, Drawing]


def _shown(done: Sequence[Result]) -> Shown:
    """The first system at the longest horizon, of those with most methods finished."""
    by: dict[tuple[int, int], list[Result]] = {}
    for each in done:
        by.setdefault((each.run.settings["T"], -each.run.settings["system"]), []).append(each)
    (T, system), shown = max(by.items(), key=lambda item: (len(item[1]), item[0]))
    winds = shown[0].run.settings["winds"]
    drawn = {
        each.run.settings["method"]: drawing(
            each.curve["steps"], np.load(each.folder / BINNED, allow_pickle=False), REPORT_SEED
        )
        for each in shown
    }
    return Shown(f"System {-system}, T = {T:,}, wind {winds[len(winds) // 2]}", drawn)


def _by_horizon(rows: Sequence[Row]) -> Iterator[tuple[str, Any, Points]]:
    """Each method's mean headroom over horizons as (T, mean, low, high), and every system's."""
    for method in METHODS[2:]:
        mine = [row for row in rows if row.method == method]
        if mine:  # else it is not finished on any system
            T = np.array([row.T for row in mine])
            spans = np.array([student_interval(row.headroom) for row in mine]).T
            spans = np.where(np.isfinite(spans), spans, spans[0])  # no bar for one system
            each = np.repeat(T, [len(row.headroom) for row in mine])
            headroom = np.concatenate([row.headroom for row in mine])
            yield method, (T, *spans), Points(f"{method}, each system", each, headroom)


def _figure(out: Path, rows: Sequence[Row], shown: Shown) -> None:
    """lds-high.png, .pdf: costs over time on one system, and the headroom on all."""
    figure, (*three, shares) = panels(2, width=5.5, rows=2)
    draw(three, shown.drawn, LOOKS)
    three[0].legend(frameon=False, fontsize="small")
    figure.suptitle(f"Costs: {shown.where}")
    _shares(shares, rows)
    save(figure, out, "lds-high")


def _shares(shares: Any, rows: Sequence[Row]) -> None:
    """Headroom over horizons."""
    for i, (method, (T, mean, low, high), dots) in enumerate(_by_horizon(rows)):
        look, aside = {"color": COLOURS[method]}, 1.05 ** (i - 1)  # or bars hide each other
        bars = np.maximum(0, [mean - low, high - mean])
        shares.errorbar(T * aside, mean, bars, **look, label=method, capsize=3)
        shares.plot(np.multiply(dots.x, aside), dots.y, ".", **look)
    shares.axhline(0, color=COLOURS[LQR], ls="--", label=LQR)
    shares.set(xlabel="T", xscale="log", ylabel="headroom captured", ylim=(FLOOR, 1.05))
    horizons = sorted({row.T for row in rows})
    shares.set_xticks(horizons, [f"{T:,}" for T in horizons])
    shares.minorticks_off()
    below = sum(int((row.headroom < FLOOR).sum()) for row in rows)
    shares.set_title("systems: mean, 95 % interval, each" + (f"; {below} too low" * (below > 0)))
    shares.legend(frameon=False)


def _cells(row: Row) -> list[Any]:
    hyper = row.hyper[0]
    ranges = {name: sorted(each[name] for each in row.hyper) for name in hyper}
    ends = {name: dict.fromkeys((f"{v[0]:.2g}", f"{v[-1]:.2g}")) for name, v in ranges.items()}
    tuned = ", ".join(f"{name} {' to '.join(each)}" for name, each in ends.items())
    return [
        row.T, row.method, _span(row), row.median, row.worst,
        f"{row.better} of {len(row.saved)}", f"{row.saved.mean():.1%}", tuned, row.on_edge,
    ]  # fmt: skip


COLUMNS = (
    "T",
    "method",
    "headroom",
    "median run",
    "worst run",
    "saves on",
    "saves",
    "tuned",
    "on grid's edge",
)


def _terminal(rows: Sequence[Row], settings: Any) -> Terminal:
    table = Terminal(
        title=f"{settings.d_x} states, {settings.d_u} inputs: headroom captured in the last "
        f"{settings.last:.0%} of steps",
        caption="0: LQR, 1: best fixed M in hindsight; \\[ ] Student's 95 % interval over systems",
    )
    for column in COLUMNS:
        table.add_column(column)
    for row in rows:
        table.add_row(
            *(escape(f"{c:.2f}" if isinstance(c, float) else str(c)) for c in _cells(row))
        )
    return table


def _sections(
    rows: Sequence[Row], over_all: Sequence[Row], shown: Shown, settings: Any
) -> list[Section]:
    shares = [
        each for name, line, dots in _by_horizon(rows) for each in (Curve(name, *line), dots)
    ]  # fmt: skip
    last = f"the last {settings.last:.0%} of steps"
    return [
        Chart(f"Headroom captured in {last}", "T", "headroom", shares,
              "0: LQR, 1: best fixed M in hindsight. Mean over systems, Student's 95 % interval.",
              log_x=True),
        Table(f"Headroom in {last}", COLUMNS, [_cells(row) for row in rows],
              "Saves: of LQR's cost, the cost of exploration counted. Tuned: the smallest and the "
              "largest over systems; on grid's edge: on how many systems tuning ended there."),
        *charts(shown.drawn, shown.where),
        Table("Headroom over whole runs, learning included", COLUMNS,
              [_cells(row) for row in over_all]),
        Text("What was run", [
            "Systems are random and stable (spectral radius 0.8 to 0.98), Q = R = I, the base "
            "policy is LQR. BPC and Bandit GPC are tuned alike: the same grid of eta and delta in "
            f"the same ball (M of norm {settings.radius:g} at most), for each system and horizon. "
            f"{len(settings.tune_winds)} winds and {settings.screen_seeds} seeds screen the whole "
            f"grid; its {settings.finalists} best points run again with "
            f"{settings.tune_seeds - settings.screen_seeds} other seeds in each wind, and the best "
            "of these is reported, in other winds and with other seeds still. GPC knows A, B and "
            "the cost function.",
            "Raw results: runs.csv has every system, wind and seed.",
        ]),
    ]  # fmt: skip
