"""`lds-low`: LQR against GPC, BPC, Bandit GPC and MF-GPC on a small linear system.

The paper's low-dimensional experiment (`fig:LDS`, left) with sinusoidal disturbances. Every
method is tuned on some periods and seeds and reported on others; exploration's cost counts.
Headroom is (base cost - method cost) / (base cost - cost of the best fixed M in hindsight).
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro
from rich.console import Console

import windward as ww
from windward import checks
from windward.atomic import replacing
from windward.core.algorithm import Algorithm
from windward.linear import disturbances
from windward.studies.linear import computed, lds_report
from windward.studies.linear.computed import Computed, Plan
from windward.studies.linear.lds_report import BEST, COSTS, LQR
from windward.studies.runs.store import Pace, Run, Task

REPORT_SEED = 1000  # seeds from here on are for reporting, those below for tuning
FIRST_SEED = 2000  # of lds-low: some from 1000 on were seen when its tuning was last changed
PACE = 4_060_000.0
"""simulated steps in a second of one core"""


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
        run = ww.linear.simulate(
            p.system, method.make(**hyper), _winds(periods, T, p.system.d_x, len(seeds)),
            seed=seeds * len(periods), keep=(), **p.settings,
        )  # fmt: skip
        cost = run.cost.reshape(len(periods), len(seeds), T)
    task.check()
    with replacing(task.folder / COSTS) as file:
        np.save(file, cost[shown], allow_pickle=False)
    last = cost[..., T - s["last"] :].astype(float).mean(-1)
    found = {"hyper": hyper, "on_edge": on_edge, "last": last.tolist()}
    computed.leave(task, found, cost[shown])
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
                    "grid": computed.plain(each.grid),
                }  # fmt: skip
        runs.append(Run(f"lds-low {method}", chosen, settings.T, perform))
    return runs


def run(settings: LdsLow, console: Console) -> dict[str, Any]:
    """Does what is not finished; writes runs.csv, summary.json, figure and page."""
    command = computed.command_of("lds-low", settings, LdsLow())
    settings = computed.sized(settings, LdsLow(), SMALL)
    _check(settings)
    plan = Plan("lds-low", settings, make_runs(settings), command, PACE)
    done = computed.whole(plan, console)
    if done is None:
        return {}
    every = methods(double_integrator(), settings.h)
    sees = {name: method.sees for name, method in every.items()}
    return lds_report.write(plan, done, sees, console)


def _check(settings: LdsLow) -> None:
    for name in ("T", "last", "h", "tune_seeds", "seeds"):
        checks.integer(name, getattr(settings, name), 2 if name == "T" else 1)
    if settings.last > settings.T:
        raise ValueError(f"last must lie between 1 and T = {settings.T}; got {settings.last}")
    for name in ("tune_periods", "periods"):
        checks.positive(name, getattr(settings, name))
