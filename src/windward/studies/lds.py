"""`lds-low`: LQR against GPC, BPC, Bandit GPC and MF-GPC on a small linear system.

The paper's low-dimensional experiment (`fig:LDS`, left) with sinusoidal disturbances. Every
method is tuned on some periods and seeds and reported on others; exploration's cost counts.
Headroom is (base cost - method cost) / (base cost - cost of the best fixed M in hindsight).
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import windward as ww
from windward import checks
from windward.atomic import prepare, write_rows
from windward.core.algorithm import Algorithm
from windward.linear import disturbances
from windward.studies import results
from windward.studies.statistics import Interval, mean_interval

REPORT_SEED = 1000  # seeds from here on are for reporting, those below for tuning


@dataclass(frozen=True)
class LdsLow:
    """LQR, GPC, BPC, Bandit GPC and MF-GPC on a double integrator in a sinusoidal wind.

    Tuned on some periods and seeds, reported on others, with the cost of exploration.
    """

    T: int = 10_000
    """steps of a run"""
    last: int = 2_000
    """final steps that count"""
    h: int = 5
    """memory of the controllers"""
    tune_periods: tuple[float, ...] = (16.0, 32.0, 64.0)
    """periods of the sinusoid for tuning"""
    report_periods: tuple[float, ...] = (20.0, 25.0, 40.0, 50.0, 80.0)
    """periods for reporting"""
    tune_seeds: int = 8
    """seeds for tuning, at each period"""
    report_seeds: int = 16
    """other seeds for reporting, at each period"""
    out: Path = Path("out/studies/lds-low")
    """folder for runs.csv, summary.json and costs.png"""


class Problem(NamedTuple):
    """A system with its base controller and costs."""

    system: ww.linear.System
    K: np.ndarray
    Q: np.ndarray
    R: np.ndarray

    @property
    def settings(self) -> dict[str, Any]:
        """Keyword arguments of `simulate` and `best_dac`."""
        return {"K": self.K, "Q": self.Q, "R": self.R}


def double_integrator() -> Problem:
    """A = [[1, 1], [0, 1]], B = [0; 1], Q = R = I, base policy LQR."""
    A, B, Q, R = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[0.0], [1.0]]), np.eye(2), np.eye(1)
    return Problem(ww.linear.System(A, B), ww.linear.lqr(A, B, Q, R).K, Q, R)


class Method(NamedTuple):
    """How to build a method from its hyperparameters, what to tune over, what it sees."""

    make: Callable[..., Algorithm]
    grid: dict[str, np.ndarray]
    sees: str


def methods(problem: Problem, h: int) -> dict[str, Method]:
    """All methods, each with as fine a grid for its own scale."""
    system, settings = problem.system, problem.settings
    d_x, d_u = system.d_x, system.d_u
    noise = np.array([0.05, 0.1, 0.2, 0.3, 0.5])
    ball = ww.frobenius_ball(10.0)  # the default of the bandit methods, for all alike

    def mf(signal: str) -> Callable[..., Algorithm]:
        d_w = d_u if signal == "pd1" else d_x
        return lambda **k: ww.mf_gpc(d_u, d_w, h=h, signal=signal, projection=ball, **k)

    bandit = {"eta": np.logspace(-5.5, -3.5, 9), "delta": noise}
    return {
        "LQR": Method(lambda: ww.base_only(d_u, d_x), {}, "the state"),
        "GPC": Method(
            lambda **k: ww.gpc(system, h=h, **settings, **k),
            {"eta": np.logspace(-5, -2, 13)},
            "A, B, w, cost function",
        ),
        "BPC": Method(lambda **k: ww.bpc(d_u, d_x, h=h, **k), bandit, "w, cost"),
        "Bandit GPC": Method(lambda **k: ww.bandit_gpc(d_u, d_x, h=h, **k), bandit, "w, cost"),
        "MF-GPC, PD1": Method(
            mf("pd1"), {"eta": np.logspace(-12, -6, 13), "sigma": noise}, "values, cost"
        ),
        "MF-GPC, PD2": Method(
            mf("pd2"), {"eta": np.logspace(-7, -3.5, 15), "sigma": noise}, "vector values, cost"
        ),
        "MF-GPC, PD3": Method(
            mf("pd3"), {"eta": np.logspace(-5.5, -3.5, 9), "sigma": noise}, "simulator, cost"
        ),
    }


def _winds(periods: tuple[float, ...], T: int, d_x: int, seeds: int) -> np.ndarray:
    """One sequence for each period and seed: (periods * seeds, T, d_x)."""
    each = [disturbances.sinusoid(T, d_x, period=period) for period in periods]
    return np.repeat(np.stack(each), seeds, axis=0)


class Outcome(NamedTuple):
    """One method's report: hyperparameters, headroom by (period, seed), and runs at one period."""

    hyper: dict[str, float]
    on_edge: tuple[str, ...]
    headroom: np.ndarray
    cost: np.ndarray
    run: ww.linear.Run
    interval: Interval


def run(
    settings: LdsLow, console: Console, command: str = "windward run lds-low"
) -> dict[str, Any]:
    """Tunes and reports every method; writes runs.csv, summary.json and costs.png."""
    checks.integer("T", settings.T, 2)
    checks.integer("tune_seeds", settings.tune_seeds, 1)
    checks.integer("report_seeds", settings.report_seeds, 1)
    if not 1 <= settings.last <= settings.T:
        raise ValueError(f"last must lie between 1 and T = {settings.T}; got {settings.last}")
    if not (settings.tune_periods and settings.report_periods):
        raise ValueError("tune_periods and report_periods must name at least one period each")
    out = prepare(settings.out)
    problem = double_integrator()
    system, T, d_x = problem.system, settings.T, problem.system.d_x
    common = problem.settings
    tuning_seeds = list(range(settings.tune_seeds)) * len(settings.tune_periods)
    report_seeds = list(range(REPORT_SEED, REPORT_SEED + settings.report_seeds))
    periods, n = settings.report_periods, len(report_seeds)
    tuning = _winds(settings.tune_periods, T, d_x, settings.tune_seeds)
    report = _winds(periods, T, d_x, n)
    best = [ww.linear.best_dac(system, w, h=settings.h, **common) for w in report[::n]]
    last = slice(T - settings.last, None)
    floor = np.array([b.cost[last].mean() for b in best])[:, None]
    base = np.empty((len(periods), 1))
    shown = len(periods) // 2  # the period of the figure

    outcomes: dict[str, Outcome] = {}
    everything = methods(problem, settings.h)
    for name, method in track(everything.items(), "tuning and reporting", console=console):
        hyper: dict[str, float] = {}
        on_edge: tuple[str, ...] = ()
        if method.grid:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # the edge is in the table
                tuned = ww.linear.tune(
                    system, method.make, tuning, grid=method.grid, last=settings.last,
                    seed=tuning_seeds, **common,
                )  # fmt: skip
            hyper, on_edge = tuned.best, tuned.on_edge
        result = ww.linear.simulate(
            system, method.make(**hyper), report, seed=report_seeds * len(periods), keep=(),
            **common,
        )  # fmt: skip
        cost = result.cost[:, last].astype(float).mean(-1).reshape(len(periods), n)
        if name == "LQR":
            base = cost[:, :1]
        headroom = (base - cost) / (base - floor)
        at = slice(shown * n, (shown + 1) * n)
        outcomes[name] = Outcome(
            hyper, on_edge, headroom, cost, result._replace(cost=result.cost[at]),
            mean_interval(headroom.mean(axis=0)),
        )  # fmt: skip

    write_rows(
        out / "runs.csv",
        [
            {
                "method": name,
                "period": period,
                "seed": seed,
                "cost": f"{outcome.cost[i, j]:.6g}",
                "best_cost": f"{floor[i, 0]:.6g}",
                "headroom": f"{outcome.headroom[i, j]:.6g}",
            }
            for name, outcome in outcomes.items()
            for i, period in enumerate(periods)
            for j, seed in enumerate(report_seeds)
        ],
    )
    ww.linear.plot(
        {name: outcome.run for name, outcome in outcomes.items()},
        best[shown],
        path=out / "costs.png",
        title=f"Double integrator, sinusoid of period {periods[shown]:g}, {n} held-out seeds",
    )
    console.print(_table(outcomes, everything, settings))
    console.print(f"figure: {out / 'costs.png'}   raw results: {out / 'runs.csv'}")
    return results.write_summary(
        out / "summary.json",
        command,
        settings,
        headroom={
            name: {
                "mean": outcome.interval.value,
                "interval": [outcome.interval.low, outcome.interval.high],
                "worst": float(outcome.headroom.min()),
                "cost": float(outcome.cost.mean()),
                "hyper": outcome.hyper,
                "on_edge_of_grid": outcome.on_edge,
            }
            for name, outcome in outcomes.items()
        },
    )


def _table(outcomes: dict[str, Outcome], every: dict[str, Method], settings: LdsLow) -> Table:
    table = Table(
        title=f"Headroom captured in the last {settings.last} of {settings.T} steps "
        "(0: LQR, 1: best fixed M in hindsight)",
        caption=f"tuned on periods {settings.tune_periods}, reported on {settings.report_periods} "
        f"with {settings.report_seeds} other seeds; [ ] is the 95 % bootstrap interval over seeds; "
        "* is on the edge of the tuning grid",
    )
    for column in ("method", "sees", "headroom", "worst", "cost", "tuned"):
        table.add_column(column, justify="left" if column in ("method", "sees") else "right")
    for name, outcome in outcomes.items():
        table.add_row(
            name,
            every[name].sees,
            f"{outcome.interval.value:.3f} "
            f"\\[{outcome.interval.low:.3f}, {outcome.interval.high:.3f}]",
            f"{outcome.headroom.min():.2f}",
            f"{outcome.cost.mean():.2f}",
            ", ".join(
                f"{key} {value:.2g}{'*' if key in outcome.on_edge else ''}"
                for key, value in outcome.hyper.items()
            ),
        )
    return table
