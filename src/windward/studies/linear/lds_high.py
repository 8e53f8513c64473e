"""`lds-high`: LQR, GPC, BPC and Bandit GPC on random systems of 10 states and 5 inputs.

The paper's high-dimensional experiment (`fig:LDS`, right), of which it says that BPC could not be
tuned to learn while Bandit GPC improves on LQR. Here both are tuned alike, over the same grid, on
winds and seeds of their own, for several random systems and horizons. Tuning screens the grid with
a few runs and judges the best points by many others: a step that is good in most runs may go
astray in one of ten.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console

import windward as ww
from windward import checks
from windward.atomic import replacing
from windward.core.algorithm import Algorithm
from windward.core.projections import frobenius_ball
from windward.studies.linear import computed, lds_high_report
from windward.studies.linear.computed import Computed, Plan
from windward.studies.linear.lds import REPORT_SEED, Problem
from windward.studies.linear.lds_high_report import BINNED, METHODS
from windward.studies.linear.lds_report import BEST, LQR
from windward.studies.linear.random_systems import problem, wind
from windward.studies.runs.store import Pace, Run, Task

FIRST = 520  # the first random system: those below were seen while this study was made
BANDITS = ("BPC", "Bandit GPC")
PACE = 649_000.0
"""simulated steps in a second of one core"""


@dataclass(frozen=True)
class LdsHigh(Computed):
    """LQR, GPC, BPC and Bandit GPC on random linear systems of 10 states and 5 inputs.

    Every method but LQR is tuned on winds and seeds of its own, for each system and horizon; what
    exploration costs is counted. Stop it at any moment: the same command goes on.
    """

    d_x: int = 10
    """states"""
    d_u: int = 5
    """inputs"""
    h: int = 5
    """memory"""
    systems: int = 5
    """random stable systems"""
    horizons: Annotated[tuple[int, ...], tyro.conf.arg(aliases=("--steps",))] = (
        10_000, 30_000, 100_000,
    )  # fmt: skip
    """steps of a run"""
    etas: tuple[float, ...] = (1e-8, 3e-8, 1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 3e-5, 1e-4)
    """steps of M that BPC and Bandit GPC are tuned over"""
    deltas: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0)
    """sizes of their exploration"""
    radius: float = 2.0
    """of the ball ‖M‖_F ≤ radius that both project onto; it must hold the best M"""
    last: float = 0.2
    """the share of final steps that count"""
    tune_winds: tuple[str, ...] = ("sine 16", "sine 36", "sine 70")
    """winds for tuning: sinusoids of a period, phases and amplitudes drawn for each state"""
    winds: tuple[str, ...] = ("sine 20", "sine 30", "sine 50")
    """winds for reporting"""
    screen_seeds: int = 4
    """seeds that the whole grid is tried on, in each wind"""
    finalists: int = 6
    """points of the grid that are tried on the other seeds for tuning, and judged by these"""
    tune_seeds: int = 16
    """seeds for tuning, in each wind, those of screening among them"""
    seeds: int = 25
    """other seeds for reporting, in each wind"""


SMALL: dict[str, Any] = {
    "d_x": 3, "d_u": 2, "systems": 2, "horizons": (200,), "tune_winds": ("sine 16",),
    "winds": ("sine 20",), "screen_seeds": 1, "tune_seeds": 2, "seeds": 2,
}  # fmt: skip
"""what smoke changes, where it is as it comes"""


def tunable(
    method: str, problem: Problem, chosen: Mapping[str, Any]
) -> tuple[Callable[..., Algorithm], dict[str, Any]]:
    """A method, and what it is tuned over: BPC and Bandit GPC over the same, in the same ball."""
    system, settings, h = problem.system, problem.settings, chosen["h"]
    if method == LQR:
        return lambda: ww.base_only(system.d_u, system.d_x), {}
    if method == "GPC":
        grid = {"eta": np.logspace(-6, -2, 13)}
        return lambda **k: ww.gpc(system, h=h, **settings, **k), grid
    bandit = {"BPC": ww.bpc, "Bandit GPC": ww.bandit_gpc}[method]
    ball = frobenius_ball(chosen["radius"])
    return (
        lambda **k: bandit(system.d_u, system.d_x, h=h, projection=ball, **k),
        {"eta": np.array(chosen["etas"]), "delta": np.array(chosen["deltas"])},
    )


def perform(task: Task) -> Pace:
    """One method on one system at one horizon: tuned, and reported on other winds and seeds."""
    began, s = time.process_time(), task.run.settings
    T, d_x = s["T"], s["d_x"]
    p = problem(d_x, s["d_u"], s["system"])
    winds = np.stack([wind(name, T, d_x, REPORT_SEED + s["system"]) for name in s["winds"]])
    hyper: dict[str, float] = {}
    on_edge: tuple[str, ...] = ()
    if s["method"] == BEST:
        cost = np.stack(
            [ww.linear.best_dac(p.system, w, h=s["h"], **p.settings).cost for w in winds]
        )[:, None]
    else:
        make, grid = tunable(s["method"], p, s)
        if grid:
            hyper, on_edge = _tune(task, p, make, grid)
        seeds = list(range(REPORT_SEED, REPORT_SEED + s["seeds"]))
        run = ww.linear.simulate(
            p.system, make(**hyper), np.repeat(winds, len(seeds), axis=0), keep=(),
            seed=seeds * len(winds), **p.settings,
        )  # fmt: skip
        cost = run.cost.reshape(len(winds), len(seeds), T)
    cost = np.asarray(cost, dtype=np.float64)
    count = max(1, round(s["last"] * T))
    found = {
        "hyper": hyper, "on_edge": on_edge, "last": cost[..., -count:].mean(-1).tolist(),
        "whole": cost.mean(-1).tolist(),
    }  # fmt: skip
    task.check()
    shown = cost[len(winds) // 2]  # in the wind of the figure
    with replacing(task.folder / BINNED) as file:
        np.save(file, computed.binned(shown)[1], allow_pickle=False)
    computed.leave(task, found, cost)
    return Pace(T, time.process_time() - began)


def _tune(
    task: Task, p: Problem, make: Callable[..., Algorithm], grid: dict[str, Any]
) -> tuple[dict[str, float], tuple[str, ...]]:
    s = task.run.settings
    winds = [wind(name, s["T"], s["d_x"], s["system"]) for name in s["tune_winds"]]
    seeds = np.repeat(np.arange(s["tune_seeds"]), len(winds))  # a seed in every wind, then the next
    screening: dict[str, int] = {}
    if "screen_seeds" in s:
        screening = {"screen": s["screen_seeds"] * len(winds), "finalists": s["finalists"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the edge is in the table
        tuned = ww.linear.tune(
            p.system, make, np.tile(np.stack(winds), (s["tune_seeds"], 1, 1)), grid=grid,
            last=max(1, round(s["last"] * s["T"])), seed=seeds.tolist(), **screening, **p.settings,
        )  # fmt: skip
    return tuned.best, tuned.on_edge


def make_runs(settings: LdsHigh) -> list[Run]:
    """All of them: method by method on each system at each horizon."""
    runs = []
    for T in settings.horizons:
        for system in range(FIRST, FIRST + settings.systems):
            for method in METHODS:
                chosen = {
                    "kind": "lds", "method": method, "system": system, "T": T,
                    "d_x": settings.d_x, "d_u": settings.d_u, "h": settings.h,
                    "last": settings.last, "winds": list(settings.winds),
                }  # fmt: skip
                if method in (LQR, "GPC"):  # nothing is drawn: all seeds are alike
                    chosen |= {"seeds": 1}
                if method == "GPC":
                    chosen |= {"tune_winds": list(settings.tune_winds), "tune_seeds": 1}
                if method in BANDITS:
                    chosen |= {
                        "tune_winds": list(settings.tune_winds), "seeds": settings.seeds,
                        "screen_seeds": settings.screen_seeds, "finalists": settings.finalists,
                        "tune_seeds": settings.tune_seeds,
                        "etas": list(settings.etas), "deltas": list(settings.deltas),
                        "radius": settings.radius,
                    }  # fmt: skip
                size = f"{settings.d_x}x{settings.d_u}"
                runs.append(Run(f"lds {size} {method} T{T} system{system}", chosen, T, perform))
    return runs


def run(settings: LdsHigh, console: Console) -> dict[str, Any]:
    """Does what is not finished, and writes what there is."""
    command = computed.command_of("lds-high", settings, LdsHigh())
    settings = computed.sized(settings, LdsHigh(), SMALL)
    _check(settings)
    plan = Plan("lds-high", settings, make_runs(settings), command, PACE, ("systems", "horizons"))
    found = computed.compute(plan, console)
    if found is None:
        return {}
    done, outcome = found
    if not lds_high_report.rows_of(done):
        outcome.raise_for(len(plan.runs), settings.how.runs)  # this is why
    summary = lds_high_report.write(plan, done, console)
    outcome.raise_for(len(plan.runs), settings.how.runs)
    return summary


def _check(settings: LdsHigh) -> None:
    for name in ("d_x", "d_u", "h", "systems", "screen_seeds", "finalists", "tune_seeds", "seeds"):
        checks.integer(name, getattr(settings, name), 1)
    if settings.screen_seeds >= settings.tune_seeds:
        raise ValueError(
            f"screen_seeds must be less than tune_seeds, {settings.tune_seeds}; got "
            f"{settings.screen_seeds}"
        )
    if not 0 < settings.last <= 1:
        raise ValueError(f"last must lie in (0, 1]; got {settings.last}")
    for name in ("etas", "deltas", "radius"):
        checks.positive(name, getattr(settings, name))
    if max(settings.deltas) >= settings.radius:
        raise ValueError(
            f"deltas must be less than radius, {settings.radius}, or BPC cannot move; got "
            f"{settings.deltas}"
        )
    for name in ("horizons", "winds", "tune_winds"):
        values = getattr(settings, name)
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{name} must name at least one, none of them twice; got {values}")
    for T in settings.horizons:
        checks.integer("horizons", T, 2 * settings.h)
    for name in (*settings.winds, *settings.tune_winds):
        wind(name, 2, settings.d_x, 0)
