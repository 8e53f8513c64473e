"""`regret-rate`: how the regret of Bandit GPC and BPC grows with the horizon (`thm:34`).

η and δ follow the theorem's formula for each horizon, each times one constant that is tuned at a
single horizon, on other seeds and another disturbance. The slope of log regret in log T is
shown beside the theorem's exponent, 3/4 for convex costs and 2/3 for smooth ones: over all
horizons, and from the tuning horizon on. (Below it the formula's η is larger than the tuned one,
and some runs are unstable at first.)
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import windward as ww
from windward import checks
from windward.atomic import prepare, write_rows
from windward.core.algorithm import Algorithm
from windward.figures import panels
from windward.linear import disturbances
from windward.studies import results
from windward.studies.lds import REPORT_SEED, double_integrator
from windward.studies.statistics import mean_interval, slope_interval
from windward.types import Array


@dataclass(frozen=True)
class RegretRate:
    """How regret grows with the horizon, beside the theorem's exponents 3/4 and 2/3."""

    horizons: tuple[int, ...] = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
    """horizons T"""
    tune_horizon: int = 10_000
    """the one horizon at which the constants are tuned"""
    seeds: int = 16
    """seeds for reporting"""
    tune_seeds: int = 8
    """other seeds for tuning"""
    h: int = 5
    """memory of the controllers"""
    radius: float = 2.0
    """Frobenius norm that M may reach; the best M in hindsight has 1.6 to 1.7 here"""
    out: Path = Path("out/studies/regret-rate")
    """folder for runs.csv, summary.json and regret.png"""


def l1(x: Array, u: Array) -> Array:
    """|x|₁ + |u|₁: convex, not smooth."""
    return jnp.sum(jnp.abs(x)) + jnp.sum(jnp.abs(u))


def wind(T: int, seed: int) -> np.ndarray:
    """A bounded disturbance with something to learn: two sinusoids and uniform noise."""
    phase = np.random.default_rng(seed).uniform(0, 2 * np.pi, 2)
    sine = disturbances.sinusoid(T, 2, amplitude=1.0, period=(31.0, 47.0), phase=phase)
    return sine + disturbances.uniform(T, 2, bound=0.25, seed=seed)


class Case(NamedTuple):
    """A cost with the rates that the theorem gives it."""

    cost: str
    smooth: bool


CASES = (Case("quadratic", True), Case("quadratic", False), Case("l1", False))
MAKERS: dict[str, Callable[..., Algorithm]] = {"Bandit GPC": ww.bandit_gpc, "BPC": ww.bpc}
CONSTANTS = {"eta": np.logspace(-3.5, 0.5, 17), "delta": np.array([0.25, 0.5, 1.0, 2.0, 4.0, 8.0])}


def _maker(name: str, settings: RegretRate, T: int, smooth: bool) -> Callable[..., Algorithm]:
    """The method with the theorem's rates at T, times constants."""
    rates = ww.theorem_rates(T, d_u=1, d_x=2, smooth=smooth)
    ball = ww.frobenius_ball(settings.radius)
    return lambda eta, delta: MAKERS[name](
        1, 2, h=settings.h, eta=eta * rates.eta, delta=delta * rates.delta, projection=ball
    )


def run(settings: RegretRate, console: Console) -> dict[str, Any]:
    """Tunes the constants, runs all horizons, fits slopes; writes CSV, JSON and a figure."""
    if sum(settings.tune_horizon <= T for T in settings.horizons) < 2:
        raise ValueError(
            f"horizons must hold at least two of tune_horizon = {settings.tune_horizon} or more; "
            f"got {settings.horizons}"
        )
    checks.integer("seeds", settings.seeds, 1)
    checks.integer("tune_seeds", settings.tune_seeds, 1)
    out = prepare(settings.out)
    problem = double_integrator()
    longest = max(*settings.horizons, settings.tune_horizon)
    tuning_w, w = wind(longest, seed=1)[: settings.tune_horizon], wind(longest, seed=2)
    seeds = list(range(REPORT_SEED, REPORT_SEED + settings.seeds))
    rows: list[dict[str, Any]] = []
    fits: list[dict[str, Any]] = []
    total = len(CASES) * (len(MAKERS) + sum(settings.horizons) / 1e5 * (1 + len(MAKERS)))
    with Progress(console=console) as progress:
        bar = progress.add_task("regret", total=total)
        for case in CASES:
            common: dict[str, Any] = {"K": problem.K}
            common |= {"cost": l1} if case.cost == "l1" else {"Q": problem.Q, "R": problem.R}
            constants = {}
            for name in MAKERS:
                progress.update(bar, description=f"{case.cost}, {name}: tuning", advance=1)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # the edge is in the summary
                    constants[name] = ww.linear.tune(
                        problem.system,
                        _maker(name, settings, settings.tune_horizon, case.smooth),
                        tuning_w, grid=CONSTANTS, seed=range(settings.tune_seeds), **common,
                    )  # fmt: skip
            regrets: dict[str, list[np.ndarray]] = {name: [] for name in MAKERS}
            for T in settings.horizons:
                progress.update(bar, description=f"{case.cost}: best M of T = {T:,}")
                best = ww.linear.best_dac(problem.system, w[:T], h=settings.h, **common)
                progress.advance(bar, T / 1e5)
                for name in MAKERS:
                    progress.update(bar, description=f"{case.cost}, {name}, T = {T:,}")
                    algorithm = _maker(name, settings, T, case.smooth)(**constants[name].best)
                    result = ww.linear.simulate(
                        problem.system, algorithm, w[:T], seed=seeds, keep=(), **common
                    )
                    regret = result.cost.astype(float).sum(-1) - best.cost.sum()
                    regrets[name].append(regret)
                    progress.advance(bar, T / 1e5)
                    rows += [
                        {
                            "cost": case.cost,
                            "rates": "smooth" if case.smooth else "convex",
                            "method": name,
                            "T": T,
                            "seed": seed,
                            "regret": f"{value:.7g}",
                            "best_cost": f"{best.cost.sum():.7g}",
                        }
                        for seed, value in zip(seeds, regret, strict=True)
                    ]
                write_rows(out / "runs.csv", rows)
            for name, tuned in constants.items():
                values = np.stack(regrets[name])
                horizons = np.array(settings.horizons)
                tail = horizons >= settings.tune_horizon
                slope, late = (
                    slope_interval(horizons[part], values[part])
                    for part in (np.full(len(horizons), True), tail)
                )
                fits.append(
                    {
                        "cost": case.cost,
                        "rates": "smooth" if case.smooth else "convex",
                        "method": name,
                        "slope": slope.value,
                        "interval": [slope.low, slope.high],
                        "slope_from_tune_horizon": late.value,
                        "interval_from_tune_horizon": [late.low, late.high],
                        "theorem": 2 / 3 if case.smooth else 3 / 4,
                        "constants": tuned.best,
                        "on_edge_of_grid": tuned.on_edge,
                        "regret": {
                            str(T): str(mean_interval(v))
                            for T, v in zip(settings.horizons, values, strict=True)
                        },
                    }
                )
    _figure(rows, fits, out / "regret.png")
    console.print(_table(fits, settings))
    console.print(f"figure: {out / 'regret.png'}   raw results: {out / 'runs.csv'}")
    return results.write_summary(
        out / "summary.json", "windward run regret-rate", settings, slopes=fits
    )


def _shown(value: float, interval: list[float]) -> str:
    return f"{value:.2f} \\[{interval[0]:.2f}, {interval[1]:.2f}]"


def _table(fits: list[dict[str, Any]], settings: RegretRate) -> Table:
    table = Table(
        title=f"Slope of log regret in log T, T from {min(settings.horizons):,} to "
        f"{max(settings.horizons):,}, {settings.seeds} seeds",
        caption="[ ] is the 95 % bootstrap interval over seeds; the theorem's exponent is an "
        "upper bound",
    )
    late = f"from T = {settings.tune_horizon:,}"
    for column in ("cost", "rates", "method", "slope", late, "theorem", "constants"):
        table.add_column(column)
    for fit in fits:
        table.add_row(
            fit["cost"],
            fit["rates"],
            fit["method"],
            _shown(fit["slope"], fit["interval"]),
            _shown(fit["slope_from_tune_horizon"], fit["interval_from_tune_horizon"]),
            f"{fit['theorem']:.3f}",
            ", ".join(f"{value:.3g}" for value in fit["constants"].values()),
        )
    return table


def _figure(rows: list[dict[str, Any]], fits: list[dict[str, Any]], path: Path) -> None:
    """Regret in T on log axes, one panel for each cost and rate."""
    cases = list(dict.fromkeys((fit["cost"], fit["rates"]) for fit in fits))
    figure, row = panels(len(cases))
    for axes, case in zip(row, cases, strict=True):
        chosen = [fit for fit in fits if (fit["cost"], fit["rates"]) == case]
        for index, fit in enumerate(chosen):
            mine = [
                r for r in rows if (r["cost"], r["rates"], r["method"]) == (*case, fit["method"])
            ]
            horizons = sorted({row["T"] for row in mine})
            means = [np.mean([float(r["regret"]) for r in mine if r["T"] == T]) for T in horizons]
            label = f"{fit['method']}: slope {fit['slope_from_tune_horizon']:.2f}"
            axes.plot(horizons, means, "o-", color=f"C{index}", label=label)
            axes.plot(
                [row["T"] for row in mine],
                [float(row["regret"]) for row in mine],
                ".", color=f"C{index}", alpha=0.25, ms=3,
            )  # fmt: skip
        exponent = chosen[0]["theorem"]
        ends = np.array([min(horizons), max(horizons)], float)
        start = means[0] * 1.5
        axes.plot(ends, start * (ends / ends[0]) ** exponent, "k--", lw=1,
                  label=f"T^{exponent:.2f} (theorem)")  # fmt: skip
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="T",
            ylabel="regret",
            title=f"{case[0]} cost, {case[1]} rates",
        )
        axes.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=150)
