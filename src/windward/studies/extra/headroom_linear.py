"""`headroom-linear`: how much of the headroom each gradient estimate captures, on held-out systems.

Random stable systems under an LQR base policy, in winds of several kinds. One set of defaults for
all systems and winds; what has to be tuned (the paper's update, GPC) is tuned on other systems,
winds and seeds, for each size. Headroom is (base cost - method cost) / (base cost - cost of the
best fixed M in hindsight) over the last steps, the cost of exploration included.
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
from windward.core.algorithm import Algorithm
from windward.studies import run, stats
from windward.studies.paper.systems import BEST, RANDOM, REPORT_SEED, Problem, problem, wind
from windward.studies.report import Chart, Points, Section, Table, Text
from windward.studies.spec import Computed, Pace, Result, Run, Shown, Study, Task
from windward.studies.stats import TOO_NARROW, Interval, Rows, mean_interval

FIRST = 300  # systems from here on are held out; those below served to choose the defaults


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
    simulated = ww.linear.simulate(p.system, alone, w, seed=seed, keep=(), **p.settings)
    return _last_cost(simulated, last)


def _last_cost(simulated: ww.linear.Run, last: int) -> np.ndarray:
    mean: np.ndarray = simulated.cost[..., -last:].astype(float).mean(-1)
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
    run.leave(task, {"tuned": tuned, "rows": rows})
    return Pace(task.run.goal, time.process_time() - began)


def _costs(
    method: Method, p: Problem, w: np.ndarray, s: Any, tuned: dict[str, float]
) -> np.ndarray:
    """Of each seed; infinite if one of them diverged."""
    seeds = list(range(s["first_seed"], s["first_seed"] + s["seeds"]))
    try:
        algorithm = method.make(p, s["h"], **tuned)
        simulated = ww.linear.simulate(p.system, algorithm, w, seed=seeds, keep=(), **p.settings)
    except ww.linear.Diverged:
        return np.full(len(seeds), np.inf)
    return _last_cost(simulated, s["last"])


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
                        "grid": run.plain(METHODS[name].grid),
                    }
            goal = settings.T * settings.systems * len(chosen["winds"])
            runs.append(Run(f"headroom-linear {d_x}x{d_u} {name}", chosen, goal, perform))
    return runs


FLOOR = -1.0
"""of headroom in charts"""
NOTE = (
    "0: LQR, 1: best fixed M in hindsight. Held-out systems, winds and seeds, one set of defaults; "
    f"[ ] is the 95 % bootstrap interval over systems, {TOO_NARROW}; then the worst run."
)


def size_of(each: Run) -> str:
    """As tables have it."""
    return f"{each.settings['d_x']}x{each.settings['d_u']}"


def rows_of(done: Sequence[Result]) -> list[dict[str, Any]]:
    """One for each size, system, wind, seed and method."""
    references = {
        (size_of(each.run), row["system"], row["wind"]): row
        for each in done
        if each.run.settings["method"] == BEST
        for row in each.content["rows"]
    }
    found = []
    for each in done:
        size, s = size_of(each.run), each.run.settings
        for row in each.content["rows"] if s["method"] != BEST else []:
            reference = references[size, row["system"], row["wind"]]
            base, floor = reference["base"], reference["best"]
            found += [
                {
                    "size": size, "system": row["system"], "wind": row["wind"],
                    "seed": s["first_seed"] + i, "method": s["method"], "base_cost": base,
                    "best_cost": floor, "cost": cost, "headroom": (base - cost) / (base - floor),
                }
                for i, cost in enumerate(row["cost"])
            ]  # fmt: skip
    return found


def numbers(rows: Rows) -> dict[str, Any]:
    """By size and method: mean with an interval over systems, worst run, and mean by wind."""
    found: dict[str, Any] = {}
    for size, method in dict.fromkeys((row["size"], row["method"]) for row in rows):
        mine = stats.select(rows, size=size, method=method)
        values = stats.column(mine, "headroom")
        by = {
            name: {
                each: float(stats.column(stats.select(mine, **{name: each}), "headroom").mean())
                for each in stats.distinct(mine, name)
            }
            for name in ("system", "wind")
        }
        # Winds and seeds on one system are not independent: systems are resampled.
        finite = bool(np.isfinite(values).all())
        systems = np.array([by["system"][each] for each in sorted(by["system"])])
        mean = mean_interval(systems) if finite else Interval(*[float("-inf")] * 3)
        found.setdefault(size, {})[method] = {
            "mean": mean.value, "interval": [mean.low, mean.high], "worst": float(values.min()),
            "runs": len(values), "by_wind": by["wind"],
        }  # fmt: skip
    return {"headroom": found}


def show(done: Sequence[Result], settings: HeadroomLinear) -> Shown:
    """Shares of the headroom by method and size, and every run."""
    rows = rows_of(done)
    headroom = numbers(rows)["headroom"]
    tuned: dict[str, dict[str, Any]] = {}
    for each in done:
        if each.run.settings["method"] != BEST:
            of = tuned.setdefault(size_of(each.run), {})
            of[each.run.settings["method"]] = each.content["tuned"]
    cells = []
    for name, method in METHODS.items():
        cells.append([name, method.sees])
        for by in headroom.values():
            low, high = by[name]["interval"]
            within = f" [{low:.2f}, {high:.2f}]" if low < high else ""  # of one system: none
            cells[-1].append(f"{by[name]['mean']:.2f}{within}, {by[name]['worst']:.2f}")
    charts = [
        Chart(f"Every run, {size}", "method, in the order of the table", "headroom", [
            Points(name, np.full(len(mine), i + 1.0), np.maximum(FLOOR, mine))
            for i, name in enumerate(METHODS)
            for mine in (stats.column(stats.select(rows, size=size, method=name), "headroom"),)
        ], f"One dot for each system, wind and seed; what is below {FLOOR:g} is drawn there.")
        for size in headroom
    ]  # fmt: skip
    said = [
        f"{size}: " + ", ".join(f"{name} {each['mean']:.2f}" for name, each in by.items()) + "."
        for size, by in headroom.items()
    ]
    title = f"Headroom captured in the last {settings.last:,} of {settings.T:,} steps"
    story = [
        f"{RANDOM}The paper's update and GPC are tuned for each size on other systems, winds and "
        "seeds; all else has the defaults that it comes with.",
        "Raw results: runs.csv has every system, wind and seed.",
    ]
    table = Table(title, ("method", "sees", *headroom), cells, NOTE)
    sections: list[Section] = [table, *charts, Text("What was run", story)]
    return Shown(" ".join(said), rows, {"headroom": headroom, "tuned": tuned}, sections)


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


STUDY = Study(
    "headroom-linear", HeadroomLinear(),
    "beyond the paper: what each gradient estimate captures of the headroom", "5 min",
    "what each gradient estimate captures of the headroom",
    "How much of what the best fixed M in hindsight saves over LQR does each estimate capture on "
    "systems that nobody knows, the cost of exploration counted?", make_runs, show, numbers, _check,
    SMALL, figure="headroom",
)  # fmt: skip
