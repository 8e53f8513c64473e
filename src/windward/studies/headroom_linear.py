"""`headroom-linear`: how much of the headroom each gradient estimate captures, on held-out systems.

Random stable systems under an LQR base policy, in winds of several kinds. One set of defaults for
all systems and winds; what has to be tuned (the paper's update, GPC) is tuned on other systems,
winds and seeds, for each size. Headroom is (base cost - method cost) / (base cost - cost of the
best fixed M in hindsight) over the last steps, the cost of exploration included.
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
from windward.studies.commands import command_line
from windward.studies.lds import REPORT_SEED, Problem
from windward.studies.statistics import Interval, mean_interval

FIRST = 300  # systems from here on are held out; those below served to choose the defaults


@dataclass(frozen=True)
class HeadroomLinear:
    """The share of the headroom that each gradient estimate captures on random linear systems."""

    sizes: tuple[tuple[int, int], ...] = ((2, 1), (10, 5))
    """d_x and d_u of the systems; for 64 4 the best M in hindsight alone takes minutes"""
    T: int = 10_000
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
    out: Path = Path("out/studies/headroom-linear")
    """folder for runs.csv and summary.json"""


def problem(d_x: int, d_u: int, seed: int) -> Problem:
    """A random stable system, spectral radius in [0.8, 0.98]; Q = R = I, base policy LQR."""
    rng = np.random.default_rng(seed + 1000 * d_x)
    A = rng.normal(size=(d_x, d_x))
    A *= rng.uniform(0.8, 0.98) / np.abs(np.linalg.eigvals(A)).max()
    B = rng.normal(size=(d_x, d_u)) / np.sqrt(d_x)
    Q, R = np.eye(d_x), np.eye(d_u)
    return Problem(ww.linear.System(A, B), ww.linear.lqr(A, B, Q, R).K, Q, R)


def wind(name: str, T: int, d_x: int, seed: int) -> np.ndarray:
    """A wind by name, with amplitudes and phases, one for each coordinate, by seed."""
    rng = np.random.default_rng(seed + 7)
    kind, *numbers = name.split()
    if kind in ("sine", "tones") and numbers:
        tones = [
            disturbances.sinusoid(
                T, d_x, amplitude=rng.uniform(0.5, 1.0, d_x), period=float(period),
                phase=rng.uniform(0, 2 * np.pi, d_x),
            )
            for period in numbers
        ]  # fmt: skip
        total: np.ndarray = np.sum(tones, axis=0) / np.sqrt(len(tones))
        return total
    if kind == "walk":
        return disturbances.random_walk(T, d_x, seed=seed)
    if kind == "constant":
        return np.ones((T, 1)) * rng.uniform(-1, 1, d_x)
    raise ValueError(
        f"a wind must be 'sine PERIOD', 'tones PERIOD PERIOD', 'walk' or 'constant'; got {name!r}"
    )


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


def _tuned(method: Method, size: tuple[int, int], settings: HeadroomLinear) -> dict[str, float]:
    """The point of the grid with the least mean of cost / base cost over the tuning systems."""
    if not method.grid:
        return {}
    w = np.stack([wind(name, settings.T, size[0], seed=0) for name in settings.tune_winds])
    total: np.ndarray | float = 0.0
    for system in range(settings.tune_systems):
        p = problem(*size, seed=system)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a best point on the edge is no error
            found = ww.linear.tune(
                p.system, lambda p=p, **k: method.make(p, settings.h, **k), w, grid=method.grid,
                last=settings.last, seed=list(range(len(w))), **p.settings,
            )  # fmt: skip
        total = total + found.cost / _base_cost(p, w, settings).mean()
    at = np.unravel_index(int(np.argmin(total)), np.shape(total))
    if not np.isfinite(np.asarray(total)[at]):
        raise ValueError(f"every point of {method.grid} diverged on one of the tuning systems")
    return {name: float(each[i]) for (name, each), i in zip(method.grid.items(), at, strict=True)}


def _base_cost(p: Problem, w: np.ndarray, settings: HeadroomLinear) -> np.ndarray:
    """Mean of the last steps of LQR alone, in one wind or in each of several."""
    alone = ww.base_only(p.system.d_u, p.system.d_x)
    seed = list(range(len(w))) if w.ndim == 3 else 0
    run = ww.linear.simulate(p.system, alone, w, seed=seed, keep=(), **p.settings)
    return _last_cost(run, settings.last)


def _last_cost(run: ww.linear.Run, last: int) -> np.ndarray:
    mean: np.ndarray = run.cost[..., -last:].astype(float).mean(-1)
    return mean


def _case(
    size: tuple[int, int], system: int, name: str, tuned: dict[str, dict[str, float]],
    settings: HeadroomLinear,
) -> list[dict[str, Any]]:  # fmt: skip
    """All methods on one system in one wind."""
    p, w = problem(*size, seed=system), wind(name, settings.T, size[0], seed=system)
    best = ww.linear.best_dac(p.system, w, h=settings.h, **p.settings)
    floor = float(best.cost[-settings.last :].mean())
    base = float(_base_cost(p, w, settings))
    seeds = list(range(REPORT_SEED, REPORT_SEED + settings.seeds))
    rows = []
    for method_name, method in METHODS.items():
        try:
            algorithm = method.make(p, settings.h, **tuned[method_name])
            run = ww.linear.simulate(p.system, algorithm, w, seed=seeds, keep=(), **p.settings)
            costs = _last_cost(run, settings.last)
        except ww.linear.Diverged:
            costs = np.full(len(seeds), np.inf)
        rows += [
            {
                "size": f"{size[0]}x{size[1]}",
                "system": system,
                "wind": name,
                "seed": seed,
                "method": method_name,
                "base_cost": f"{base:.6g}",
                "best_cost": f"{floor:.6g}",
                "cost": f"{cost:.6g}",
                "headroom": f"{(base - cost) / (base - floor):.6g}",
            }
            for seed, cost in zip(seeds, costs, strict=True)
        ]
    return rows


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By size and method: mean with an interval over systems, worst run, and mean by wind."""
    summary: dict[str, Any] = {}
    for size in dict.fromkeys(row["size"] for row in rows):
        summary[size] = {}
        for method in METHODS:
            mine = [row for row in rows if (row["size"], row["method"]) == (size, method)]
            values = np.array([float(row["headroom"]) for row in mine])
            systems = np.array([row["system"] for row in mine])
            # Winds and seeds on one system are not independent: systems are resampled.
            by_system = np.array([values[systems == each].mean() for each in np.unique(systems)])
            finite = bool(np.isfinite(values).all())
            interval = mean_interval(by_system) if finite else Interval(*[float("-inf")] * 3)
            winds = np.array([row["wind"] for row in mine])
            summary[size][method] = {
                "mean": interval.value,
                "interval": [interval.low, interval.high],
                "worst": float(values.min()),
                "runs": len(values),
                "by_wind": {str(w): float(values[winds == w].mean()) for w in dict.fromkeys(winds)},
            }
    return summary


def run(settings: HeadroomLinear, console: Console, command: str = "") -> dict[str, Any]:
    """Runs the table; writes runs.csv and summary.json, with the command if another one ran it."""
    command = command or command_line("windward run headroom-linear", settings, HeadroomLinear())
    checks.integer("T", settings.T, 2)
    checks.integer("systems", settings.systems, 1)
    checks.integer("tune_systems", settings.tune_systems, 1)
    checks.integer("seeds", settings.seeds, 1)
    if not 1 <= settings.last <= settings.T:
        raise ValueError(f"last must lie between 1 and T = {settings.T}; got {settings.last}")
    out = prepare(settings.out)
    tuned: dict[str, dict[str, dict[str, float]]] = {}
    cases = []
    for size in settings.sizes:
        wide = size[0] > 32  # the best M in hindsight takes minutes there: two winds
        for system in range(FIRST, FIRST + settings.systems):
            winds = [*settings.winds[1:2], *settings.winds[-1:]] if wide else settings.winds
            cases += [(size, system, name) for name in dict.fromkeys(winds)]
    rows: list[dict[str, Any]] = []
    for size, system, name in track(cases, "running", console=console):
        key = f"{size[0]}x{size[1]}"
        if key not in tuned:
            tuned[key] = {each: _tuned(method, size, settings) for each, method in METHODS.items()}
        rows += _case(size, system, name, tuned[key], settings)
    write_rows(out / "runs.csv", rows)
    headroom = summarise(rows)
    console.print(_table(headroom, settings))
    console.print(f"raw results: {out / 'runs.csv'}")
    return results.write_summary(
        out / "summary.json", command, settings, headroom=headroom, tuned=tuned
    )


def _table(headroom: dict[str, Any], settings: HeadroomLinear) -> Table:
    table = Table(
        title=f"Headroom captured in the last {settings.last} of {settings.T} steps "
        "(0: LQR, 1: best fixed M in hindsight)",
        caption="held-out systems, winds and seeds, one set of defaults; [ ] is the 95 % bootstrap "
        "interval over systems, then the worst run",
    )
    table.add_column("method")
    table.add_column("sees")
    for size in headroom:
        table.add_column(size, justify="right")
    for name, method in METHODS.items():
        cells = []
        for each in headroom.values():
            low, high = each[name]["interval"]
            within = (
                f" \\[{low:.2f}, {high:.2f}]" if low < high else ""
            )  # of one system there is none
            cells.append(f"{each[name]['mean']:.2f}{within} {each[name]['worst']:.2f}")
        table.add_row(name, method.sees, *cells)
    return table
