"""`lds-low`: LQR against GPC, BPC, Bandit GPC and MF-GPC on a small linear system.

The paper's low-dimensional experiment (`fig:LDS`, left) with sinusoidal disturbances. Every
method is tuned on some periods and seeds and reported on others; exploration's cost counts.
Headroom is (base cost - method cost) / (base cost - cost of the best fixed M in hindsight).
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro

import windward as ww
from windward import checks
from windward.atomic import replacing
from windward.core.algorithm import Algorithm
from windward.linear import disturbances
from windward.studies import run, stats
from windward.studies.paper.systems import (
    BEST,
    LQR,
    Problem,
    cost_charts,
    double_integrator,
    drawing,
    methods_of,
)
from windward.studies.report import Table, Text
from windward.studies.spec import Computed, Pace, Result, Run, Shown, Study, Task
from windward.studies.stats import Interval, Rows

FIRST_SEED = 2000  # some from 1000 on were seen when its tuning was last changed
COSTS = "costs.npy"
"""costs of all seeds at the period of the figure, (seeds, T)"""


@dataclass(frozen=True)
class LdsLow(Computed):
    """LQR, GPC, BPC, Bandit GPC and MF-GPC on a double integrator in a sinusoidal wind.

    Tuned on some periods and seeds, reported on others, with the cost of exploration.
    """

    T: Annotated[int, tyro.conf.arg(aliases=("--steps",))] = 10_000
    """steps of a run"""
    last: int = 2_000
    """final steps that count"""
    h: int = 5
    """memory of the controllers"""
    tune_periods: tuple[float, ...] = (16.0, 32.0, 64.0)
    """periods of the sinusoid for tuning"""
    periods: tuple[float, ...] = (20.0, 25.0, 40.0, 50.0, 80.0)
    """periods for reporting"""
    tune_seeds: int = 25
    """seeds for tuning, at each period: fewer do not see that one run in a hundred goes astray"""
    seeds: int = 25
    """other seeds for reporting, at each period"""


SMALL: dict[str, Any] = {
    "T": 300, "last": 100, "tune_periods": (32.0,), "periods": (40.0,), "tune_seeds": 1, "seeds": 2,
}  # fmt: skip
"""what smoke changes"""


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
        LQR: Method(lambda: ww.base_only(d_u, d_x), {}, "the state"),
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


def perform(task: Task) -> Pace:
    """One method: tuned, and reported at other periods with other seeds."""
    began, s = time.process_time(), task.run.settings
    p, T, periods = double_integrator(), s["T"], s["periods"]
    shown = len(periods) // 2  # the period of the figure
    hyper: dict[str, float] = {}
    on_edge: tuple[str, ...] = ()
    if s["method"] == BEST:
        winds = _winds(periods, T, p.system.d_x, 1)
        best = [ww.linear.best_dac(p.system, w, h=s["h"], **p.settings).cost for w in winds]
        cost = np.stack(best)[:, None]
    else:
        method = methods(p, s["h"])[s["method"]]
        if method.grid:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # the edge is in the table
                tuned = ww.linear.tune(
                    p.system, method.make,
                    _winds(s["tune_periods"], T, p.system.d_x, s["tune_seeds"]), grid=method.grid,
                    last=s["last"], seed=list(range(s["tune_seeds"])) * len(s["tune_periods"]),
                    **p.settings,
                )  # fmt: skip
            hyper, on_edge = tuned.best, tuned.on_edge
        seeds = list(range(s["first_seed"], s["first_seed"] + s["seeds"]))
        simulated = ww.linear.simulate(
            p.system, method.make(**hyper), _winds(periods, T, p.system.d_x, len(seeds)),
            seed=seeds * len(periods), keep=(), **p.settings,
        )  # fmt: skip
        cost = simulated.cost.reshape(len(periods), len(seeds), T)
    task.check()
    with replacing(task.folder / COSTS) as file:
        np.save(file, cost[shown], allow_pickle=False)
    last = cost[..., T - s["last"] :].astype(float).mean(-1)
    run.leave(task, {"hyper": hyper, "on_edge": on_edge, "last": last.tolist()}, cost[shown])
    return Pace(T, time.process_time() - began)


def make_runs(settings: LdsLow) -> list[Run]:
    """One for each method, and one for the best M in hindsight."""
    problem = double_integrator()
    runs = []
    for method, each in {**methods(problem, settings.h), BEST: None}.items():
        chosen: dict[str, Any] = {
            "kind": "lds-low", "method": method, "T": settings.T, "last": settings.last,
            "h": settings.h, "periods": list(settings.periods),
        }  # fmt: skip
        if each is not None:
            chosen |= {"seeds": settings.seeds, "first_seed": FIRST_SEED}
            if each.grid:
                chosen |= {
                    "tune_periods": list(settings.tune_periods), "tune_seeds": settings.tune_seeds,
                    "grid": run.plain(each.grid),
                }  # fmt: skip
        runs.append(Run(f"lds-low {method}", chosen, settings.T, perform))
    return runs


def rows_of(done: Sequence[Result]) -> list[dict[str, Any]]:
    """Headroom: (LQR's cost - its cost) / (LQR's cost - that of the best fixed M), by period."""
    last = {name: np.array(each.content["last"]) for name, each in methods_of(done).items()}
    base, floor = last[LQR][:, 0], last.pop(BEST)[:, 0]
    return [
        {
            "method": name, "period": period, "seed": FIRST_SEED + j, "cost": float(cost[i, j]),
            "best_cost": float(floor[i]),
            "headroom": float((base[i] - cost[i, j]) / (base[i] - floor[i])),
        }
        for name, cost in last.items()
        for i, period in enumerate(done[0].run.settings["periods"])
        for j in range(cost.shape[1])
    ]  # fmt: skip


def numbers(rows: Rows) -> dict[str, Any]:
    """Of each method: the mean headroom with its interval over seeds, median and worst run."""
    found = {}
    for name in stats.distinct(rows, "method"):
        mine = stats.select(rows, method=name)
        headroom = stats.column(mine, "headroom")
        by_seed = headroom.reshape(len(stats.distinct(mine, "period")), -1).mean(axis=0)
        mean = stats.mean_interval(by_seed)
        found[name] = {
            "mean": mean.value, "interval": [mean.low, mean.high],
            "median": float(np.median(headroom)), "worst": float(headroom.min()),
            "cost": float(stats.column(mine, "cost").mean()),
        }  # fmt: skip
    return {"headroom": found}


def show(done: Sequence[Result], settings: LdsLow) -> Shown:
    """Headroom by method, and costs over time at one period."""
    rows, content = rows_of(done), {name: each.content for name, each in methods_of(done).items()}
    headroom = numbers(rows)["headroom"]
    for name, each in headroom.items():
        each |= {"hyper": content[name]["hyper"], "on_edge_of_grid": content[name]["on_edge"]}
    spans = {name: Interval(each["mean"], *each["interval"]) for name, each in headroom.items()}
    every = methods(double_integrator(), settings.h)
    cells = [
        [name, every[name].sees, f"{spans[name]:.3f}", each["median"], each["worst"], each["cost"],
         ", ".join(f"{key} {value:.2g}{'*' if key in each['on_edge_of_grid'] else ''}"
                   for key, value in each["hyper"].items())]
        for name, each in headroom.items()
    ]  # fmt: skip
    drawn = {
        name: drawing(*run.binned(np.load(each.folder / COSTS, allow_pickle=False)), FIRST_SEED)
        for name, each in methods_of(done).items()
    }
    where = f"Sinusoid of period {settings.periods[len(settings.periods) // 2]:g}"
    cost, *more = cost_charts(drawn, f"{where}, {settings.seeds} held-out seeds")
    last = f"the last {settings.last:,} of {settings.T:,} steps"
    shares = ", ".join(f"{name} {each:.3f}" for name, each in spans.items() if name != LQR)
    columns = ("method", "sees", "headroom", "median run", "worst run", "cost", "tuned")
    note = (
        f"0: LQR, 1: best fixed M in hindsight. Tuned on periods {settings.tune_periods}, reported "
        f"on {settings.periods} with {settings.seeds} other seeds; [ ] is the 95 % bootstrap "
        "interval over seeds; * is on the edge of the tuning grid."
    )
    story = [
        "A = [[1, 1], [0, 1]], B = [0; 1], Q = R = I, the base policy is LQR, w a sinusoid of size "
        "1 on both states. Every method is tuned over a grid of its own, on other periods and "
        "seeds than those shown. GPC knows A, B and the cost function.",
        "Raw results: runs.csv has every period and seed.",
    ]
    table = Table(f"Headroom captured in {last}", columns, cells, note)
    return Shown(
        f"Of the headroom in {last}: {shares}.", rows, {"headroom": headroom},
        [cost, table, *more, Text("What was run", story)],
    )  # fmt: skip


def _check(settings: LdsLow) -> None:
    for name in ("T", "last", "h", "tune_seeds", "seeds"):
        checks.integer(name, getattr(settings, name), 2 if name == "T" else 1)
    if settings.last > settings.T:
        raise ValueError(f"last must lie between 1 and T = {settings.T}; got {settings.last}")
    for name in ("tune_periods", "periods"):
        checks.positive(name, getattr(settings, name))


STUDY = Study(
    "lds-low", LdsLow(), "fig:LDS, left: LQR, GPC, BPC, Bandit GPC; and MF-GPC", "1 min",
    "LQR, GPC, BPC, Bandit GPC and MF-GPC on a double integrator",
    "How much of what the best fixed M in hindsight saves over LQR does each method capture, the "
    "cost of exploration counted?", make_runs, show, numbers, _check, SMALL, figure="costs",
)  # fmt: skip
