"""What `regret-rate` leaves: regret by horizon and seed, slopes, a figure, a page."""

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
from windward.studies.linear.lds_report import BEST
from windward.studies.pages.report import Chart, Curve, Points, Section, Table, Text
from windward.studies.pages.statistics import Interval, mean_interval, slope_interval
from windward.studies.runs.scale import SMOKE
from windward.studies.runs.study_folder import writing


class Case(NamedTuple):
    """A cost with the rates that the theorem gives it."""

    cost: str
    smooth: bool

    @property
    def rates(self) -> str:
        """Their name."""
        return "smooth" if self.smooth else "convex"


class Fit(NamedTuple):
    """A method with a cost and its rates: regret by (horizon, seed), and its slopes."""

    case: Case
    method: str
    horizons: np.ndarray
    regret: np.ndarray
    best: np.ndarray
    """cost of the best M, by horizon"""
    slope: Interval
    late: Interval
    """from the tuning horizon on"""
    constants: dict[str, float]
    on_edge: list[str]
    first_seed: int

    @property
    def theorem(self) -> float:
        """The exponent that it may reach."""
        return 2 / 3 if self.case.smooth else 3 / 4


def fits_of(done: Sequence[Result], settings: Any) -> list[Fit]:
    """The regret of every run, and how it grows."""
    best = {
        each.run.settings["cost"]: np.array(each.content["total"])
        for each in done
        if each.run.settings["method"] == BEST
    }
    horizons = np.array(settings.horizons)
    tail = horizons >= settings.tune_horizon
    fits = []
    for each in done:
        s = each.run.settings
        if s["method"] == BEST:
            continue
        regret = np.array(each.content["total"]) - best[s["cost"]][:, None]
        slope, late = (
            slope_interval(horizons[part], regret[part]) for part in (tail | True, tail)
        )  # fmt: skip
        fits.append(Fit(
            Case(s["cost"], s["smooth"]), s["method"], horizons, regret, best[s["cost"]], slope,
            late, each.content["constants"], each.content["on_edge"], s["first_seed"],
        ))  # fmt: skip
    return fits


def write(plan: Plan, done: Sequence[Result], console: Console) -> dict[str, Any]:
    """All files, from runs that are all finished."""
    settings, out = plan.settings, plan.out
    fits = fits_of(done, settings)
    console.print(_terminal(fits, settings))
    with writing(out):
        save(_figure(fits), out, "regret")
        write_rows(out / "runs.csv", _raw(fits))
        return computed.write(
            plan, done, "how regret grows with the horizon",
            "Does the regret of Bandit GPC grow no faster than the theorem says, T^(2/3) for "
            "smooth costs and T^(3/4) for convex ones?", _found(fits, settings),
            _sections(fits, settings), console, slopes=[_json(fit) for fit in fits],
        )  # fmt: skip


def _json(fit: Fit) -> dict[str, Any]:
    return {
        "cost": fit.case.cost, "rates": fit.case.rates, "method": fit.method,
        "slope": fit.slope.value, "interval": [fit.slope.low, fit.slope.high],
        "slope_from_tune_horizon": fit.late.value,
        "interval_from_tune_horizon": [fit.late.low, fit.late.high],
        "theorem": fit.theorem, "constants": fit.constants, "on_edge_of_grid": fit.on_edge,
        "regret": {
            str(T): str(mean_interval(each))
            for T, each in zip(fit.horizons, fit.regret, strict=True)
        },
    }  # fmt: skip


def _raw(fits: Sequence[Fit]) -> list[dict[str, Any]]:
    return [
        {
            "cost": fit.case.cost, "rates": fit.case.rates, "method": fit.method, "T": int(T),
            "seed": fit.first_seed + j, "regret": f"{fit.regret[i, j]:.7g}",
            "best_cost": f"{fit.best[i]:.7g}",
        }
        for fit in fits
        for i, T in enumerate(fit.horizons)
        for j in range(fit.regret.shape[1])
    ]  # fmt: skip


def _found(fits: Sequence[Fit], settings: Any) -> str:
    parts = [
        f"{fit.method}, {fit.case.cost} cost with {fit.case.rates} rates: slope {fit.late:.2f} "
        f"from T = {settings.tune_horizon:,} on, the theorem's bound {fit.theorem:.2f}"
        for fit in fits
    ]
    return (f"{SMOKE} " if settings.scale == "smoke" else "") + "; ".join(parts) + "."


def _table(fits: Sequence[Fit]) -> list[list[Any]]:
    return [
        [
            fit.case.cost, fit.case.rates, fit.method, f"{fit.slope:.2f}", f"{fit.late:.2f}",
            f"{fit.theorem:.3f}", ", ".join(f"{k} {v:.3g}" for k, v in fit.constants.items()),
        ]
        for fit in fits
    ]  # fmt: skip


def _columns(settings: Any) -> tuple[str, ...]:
    late = f"from T = {settings.tune_horizon:,}"
    return ("cost", "rates", "method", "slope", late, "theorem", "constants")


NOTE = "[ ] is the 95 % bootstrap interval over seeds; the theorem's exponent is an upper bound."


def _terminal(fits: Sequence[Fit], settings: Any) -> Terminal:
    table = Terminal(
        title=f"Slope of log regret in log T, T from {min(settings.horizons):,} to "
        f"{max(settings.horizons):,}, {settings.seeds} seeds",
        caption=escape(NOTE),
    )
    for column in _columns(settings):
        table.add_column(column)
    for cells in _table(fits):
        table.add_row(*map(escape, cells))
    return table


def _cases(fits: Sequence[Fit]) -> dict[Case, list[Fit]]:
    by: dict[Case, list[Fit]] = {}
    for fit in fits:
        by.setdefault(fit.case, []).append(fit)
    return by


def _bound(fits: Sequence[Fit]) -> tuple[np.ndarray, np.ndarray]:
    """The line of the theorem's slope, above all at the first horizon."""
    T = np.sort(fits[0].horizons).astype(float)
    first = max(fit.regret[np.argmin(fit.horizons)].mean() for fit in fits)
    return T, 1.5 * first * (T / T[0]) ** fits[0].theorem


def _sections(fits: Sequence[Fit], settings: Any) -> list[Section]:
    charts = []
    for case, mine in _cases(fits).items():
        curves: list[Curve | Points] = []
        for fit in mine:
            spans = np.array([mean_interval(each) for each in fit.regret]).T
            every = np.repeat(fit.horizons, fit.regret.shape[1])
            curves += [
                Curve(fit.method, fit.horizons, *spans),
                Points(f"{fit.method}, each seed", every, fit.regret.ravel()),
            ]
        curves.append(Curve(f"T^{mine[0].theorem:.2f} (theorem)", *_bound(mine), dashed=True))
        charts.append(
            Chart(f"Regret, {case.cost} cost, {case.rates} rates", "T", "regret", curves,
                  "Mean over seeds, 95 % bootstrap interval.", log_x=True, log_y=True)
        )  # fmt: skip
    return [
        *charts,
        Table("Slope of log regret in log T", _columns(settings), _table(fits), NOTE),
        Text("What was run", [
            "A double integrator under LQR in two sinusoids with uniform noise. η and δ follow the "
            f"theorem's formula, each times one constant tuned at T = {settings.tune_horizon:,} on "
            "other seeds and another wind. Below that horizon the formula's η is larger than the "
            "tuned one, and some runs are unstable at first.",
            "Raw results: runs.csv has every horizon and seed.",
        ]),
    ]  # fmt: skip


def _figure(fits: Sequence[Fit]) -> Any:
    """Regret in T on log axes, one panel for each cost and rate."""
    cases = _cases(fits)
    figure, row = panels(len(cases))
    for axes, (case, mine) in zip(row, cases.items(), strict=True):
        for index, fit in enumerate(mine):
            look = {"color": f"C{index}"}
            label = f"{fit.method}: slope {fit.late.value:.2f}"
            axes.plot(fit.horizons, fit.regret.mean(axis=1), "o-", label=label, **look)
            axes.plot(fit.horizons, fit.regret, ".", alpha=0.25, ms=3, **look)
        axes.plot(*_bound(mine), "k--", lw=1, label=f"T^{mine[0].theorem:.2f} (theorem)")
        axes.set(
            xscale="log", yscale="log", xlabel="T", ylabel="regret",
            title=f"{case.cost} cost, {case.rates} rates",
        )  # fmt: skip
        axes.legend(fontsize=8, frameon=False)
    return figure
