"""`headroom-linear`: how much of the headroom each gradient estimate captures, on held-out systems.

Random stable systems under an LQR base policy, in winds of several kinds. One set of defaults for
all systems and winds; what has to be tuned (the paper's update, GPC) is tuned on other systems,
winds and seeds, for each size. Headroom is (base cost - method cost) / (base cost - cost of the
best fixed M in hindsight) over the last steps, the cost of exploration included.
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
from windward.core.algorithm import Algorithm
from windward.studies.linear import computed, headroom_linear_report
from windward.studies.linear.computed import Computed, Plan
from windward.studies.linear.lds import REPORT_SEED, Problem
from windward.studies.linear.lds_report import BEST
from windward.studies.linear.random_systems import problem, wind
from windward.studies.runs.store import Pace, Run, Task

FIRST = 300  # systems from here on are held out; those below served to choose the defaults
PACE = 417_000.0
"""simulated steps in a second of one core"""


@dataclass(frozen=True)
class HeadroomLinear(Computed):
    """The share of the headroom that each gradient estimate captures on random linear systems."""

    sizes: tuple[tuple[int, int], ...] = ((2, 1), (10, 5))
    """d_x and d_u of the systems; for 64 4 the best M in hindsight alone takes minutes"""
    T: Annotated[int, tyro.conf.arg(aliases=("--steps",))] = 10_000
    """steps of a run"""
    last: int = 2_000
    """final steps that count"""
    h: int = 5
    """memory of the controllers"""
    systems: int = 3
    """held-out systems of each size"""
    seeds: int = 2
    """seeds on each system in each wind"""
    winds: tuple[str, ...] = ("sine 16", "sine 33", "sine 72", "tones 19 44", "walk")
    """held-out winds: a sinusoid of a period, two of them, a random walk, or constant"""
    tune_winds: tuple[str, ...] = ("sine 20", "walk")
    """winds on which the paper's update and GPC are tuned"""
    tune_systems: int = 3
    """systems on which they are tuned, none of which is held out"""


SMALL: dict[str, Any] = {
    "sizes": ((2, 1),), "T": 200, "last": 100, "systems": 1, "seeds": 1, "winds": ("sine 16",),
    "tune_systems": 1, "tune_winds": ("sine 20",),
}  # fmt: skip
"""what smoke changes"""


class Method(NamedTuple):
    """How to build a method for a problem, what it sees, and what is tuned where anything is."""

    make: Callable[..., Algorithm]
    sees: str
    grid: dict[str, np.ndarray]


def _mf_gpc(**chosen: Any) -> Callable[..., Algorithm]:
    def make(p: Problem, h: int, **more: Any) -> Algorithm:
        return ww.mf_gpc(p.system.d_u, p.system.d_x, h=h, signal="w", **chosen, **more)

    return make


def _gpc(p: Problem, h: int, **more: Any) -> Algorithm:
    return ww.gpc(p.system, h=h, **p.settings, **more)


METHODS = {
    "paper's update": Method(
        _mf_gpc(), "w, cost", {"eta": np.logspace(-9, -3.5, 12), "sigma": np.array([0.1, 0.2])}
    ),
    "residual": Method(_mf_gpc(gradient="residual"), "w, cost", {}),
    "mean": Method(_mf_gpc(baseline="mean"), "w, cost", {}),
    "regression": Method(_mf_gpc(baseline="regression"), "w, cost", {}),
    "quadratic": Method(_mf_gpc(gradient="quadratic"), "w, cost", {}),
    "advantage": Method(
        _mf_gpc(gradient="advantage", gamma=1.0), "w, cost, values of the base policy", {}
    ),
    "advantage, regression": Method(
        _mf_gpc(gradient="advantage", baseline="regression", gamma=1.0, lam=0.9),
        "w, cost, values of the base policy",
        {},
    ),
    "response": Method(_mf_gpc(gradient="response"), "w, cost, states", {}),
    "GPC": Method(_gpc, "w, A, B, cost function", {"eta": np.logspace(-5, -2, 7)}),
}


def _tuned(method: Method, s: Any) -> dict[str, float]:
    """The point of the grid with the least mean of cost / base cost over the tuning systems."""
    if not method.grid:
        return {}
    w = np.stack([wind(name, s["T"], s["d_x"], seed=0) for name in s["tune_winds"]])
    total: np.ndarray | float = 0.0
    for system in range(s["tune_systems"]):
        p = problem(s["d_x"], s["d_u"], seed=system)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a best point on the edge is no error
            found = ww.linear.tune(
                p.system, lambda p=p, **k: method.make(p, s["h"], **k), w, grid=method.grid,
                last=s["last"], seed=list(range(len(w))), **p.settings,
            )  # fmt: skip
        total = total + found.cost / _base_cost(p, w, s["last"]).mean()
    at = np.unravel_index(int(np.argmin(total)), np.shape(total))
    if not np.isfinite(np.asarray(total)[at]):
        raise ValueError(f"every point of {method.grid} diverged on one of the tuning systems")
    return {name: float(each[i]) for (name, each), i in zip(method.grid.items(), at, strict=True)}


def _base_cost(p: Problem, w: np.ndarray, last: int) -> np.ndarray:
    """Mean of the last steps of LQR alone, in one wind or in each of several."""
    alone = ww.base_only(p.system.d_u, p.system.d_x)
    seed = list(range(len(w))) if w.ndim == 3 else 0
    run = ww.linear.simulate(p.system, alone, w, seed=seed, keep=(), **p.settings)
    return _last_cost(run, last)


def _last_cost(run: ww.linear.Run, last: int) -> np.ndarray:
    mean: np.ndarray = run.cost[..., -last:].astype(float).mean(-1)
    return mean


def perform(task: Task) -> Pace:
    """A method on all systems of a size in all winds; or what LQR and the best M cost there."""
    began, s = time.process_time(), task.run.settings
    reference = s["method"] == BEST
    tuned = {} if reference else _tuned(METHODS[s["method"]], s)
    rows = []
    for system in range(s["first_system"], s["first_system"] + s["systems"]):
        p = problem(s["d_x"], s["d_u"], seed=system)
        for name in s["winds"]:
            task.check()
            w = wind(name, s["T"], s["d_x"], seed=system)
            row: dict[str, Any] = {"system": system, "wind": name}
            if reference:
                best = ww.linear.best_dac(p.system, w, h=s["h"], **p.settings)
                row["base"] = float(_base_cost(p, w, s["last"]))
                row["best"] = float(best.cost[-s["last"] :].mean())
            else:
                row["cost"] = _costs(METHODS[s["method"]], p, w, s, tuned).tolist()
            rows.append(row)
    computed.leave(task, {"tuned": tuned, "rows": rows})
    return Pace(task.run.goal, time.process_time() - began)


def _costs(
    method: Method, p: Problem, w: np.ndarray, s: Any, tuned: dict[str, float]
) -> np.ndarray:
    """Of each seed; infinite if one of them diverged."""
    seeds = list(range(s["first_seed"], s["first_seed"] + s["seeds"]))
    try:
        algorithm = method.make(p, s["h"], **tuned)
        run = ww.linear.simulate(p.system, algorithm, w, seed=seeds, keep=(), **p.settings)
    except ww.linear.Diverged:
        return np.full(len(seeds), np.inf)
    return _last_cost(run, s["last"])


def make_runs(settings: HeadroomLinear) -> list[Run]:
    """Each method on each size, and what LQR and the best M cost there."""
    runs = []
    for d_x, d_u in settings.sizes:
        wide = d_x > 32  # the best M in hindsight takes minutes there: two winds
        winds = [*settings.winds[1:2], *settings.winds[-1:]] if wide else settings.winds
        for name in (BEST, *METHODS):
            chosen: dict[str, Any] = {
                "kind": "headroom-linear", "method": name, "d_x": d_x, "d_u": d_u,
                "T": settings.T, "last": settings.last, "h": settings.h,
                "systems": settings.systems, "winds": list(dict.fromkeys(winds)),
            }  # fmt: skip
            chosen["first_system"] = FIRST
            if name != BEST:
                chosen |= {"seeds": settings.seeds, "first_seed": REPORT_SEED}
                if METHODS[name].grid:
                    chosen |= {
                        "tune_winds": list(settings.tune_winds),
                        "tune_systems": settings.tune_systems,
                        "grid": computed.plain(METHODS[name].grid),
                    }
            goal = settings.T * settings.systems * len(chosen["winds"])
            runs.append(Run(f"headroom-linear {d_x}x{d_u} {name}", chosen, goal, perform))
    return runs


def run(settings: HeadroomLinear, console: Console, command: str = "") -> dict[str, Any]:
    """Does what is not finished; writes runs.csv, summary.json, figure and page.

    `command` is the one that is written down, if another one ran it.
    """
    command = command or computed.command_of("headroom-linear", settings, HeadroomLinear())
    settings = computed.sized(settings, HeadroomLinear(), SMALL)
    _check(settings)
    plan = Plan("headroom-linear", settings, make_runs(settings), command, PACE)
    done = computed.whole(plan, console)
    if done is None:
        return {}
    sees = {name: method.sees for name, method in METHODS.items()}
    return headroom_linear_report.write(plan, done, sees, console)


def _check(settings: HeadroomLinear) -> None:
    for name in ("T", "last", "h", "systems", "tune_systems", "seeds"):
        checks.integer(name, getattr(settings, name), 2 if name == "T" else 1)
    if settings.last > settings.T:
        raise ValueError(f"last must lie between 1 and T = {settings.T}; got {settings.last}")
    if not settings.sizes or not settings.winds or not settings.tune_winds:
        raise ValueError("sizes, winds and tune_winds must name at least one each")
    for d_x, d_u in settings.sizes:
        checks.integer("d_x of sizes", d_x, 1)
        checks.integer("d_u of sizes", d_u, 1)
    for name in (*settings.winds, *settings.tune_winds):
        wind(name, 2, 1, 0)
