"""`dimension`: Bandit GPC does not pay for the state's dimension, BPC does (`thm:34`).

The same problem is seen in d_x = 4, 16, 64 coordinates: four controlled modes, the rest idle, all
turned by a random rotation. ‖w‖ = 1, α, ‖B‖ = 1, the cost's constants, d_u and h are the same, and
so is the best controller's cost; only d_x grows. M stays in the paper's set. Both methods
are run with η and δ as tuned at the smallest d_x, and tuned anew at each.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import scipy.stats
import tyro

import windward as ww
from windward import checks
from windward.core.algorithm import Algorithm
from windward.studies import run, stats
from windward.studies.paper.systems import REPORT_SEED, Problem
from windward.studies.report import Chart, Curve, Section, Table, Text
from windward.studies.spec import Computed, Pace, Result, Run, Shown, Study, Task, unique
from windward.studies.stats import Rows, mean_interval

D_U = 4
NUMBERS = {
    "regret_fixed": "regret, settings of the smallest d_x",
    "regret_tuned": "regret, tuned at each d_x",
    "gradient_second_moment": "second moment of the gradient estimate",
}


@dataclass(frozen=True)
class Dimension(Computed):
    """Regret and the gradient's size as the state's dimension grows, Bandit GPC against BPC."""

    d_x: tuple[int, ...] = (4, 16, 64)
    """dimensions of the state"""
    T: Annotated[int, tyro.conf.arg(aliases=("--steps",))] = 10_000
    """steps of a run"""
    alpha: float = 0.2
    """stability: every mode of A has modulus 1 - alpha"""
    h: int = 3
    """memory of the controllers"""
    seeds: int = 25
    """seeds for reporting"""
    tune_seeds: int = 4
    """other seeds for tuning"""
    probe_delta: float = 0.3
    """exploration, as a length in action space, at which gradients are compared"""


SMALL: dict[str, Any] = {"d_x": (4, 6), "T": 60, "seeds": 2, "tune_seeds": 1}
"""what smoke changes"""


def problem(d_x: int, alpha: float, seed: int) -> tuple[Problem, np.ndarray]:
    """The system in d_x coordinates, and the rotation into them, (d_x, 4) on the four modes."""
    rotation = np.atleast_2d(scipy.stats.ortho_group.rvs(d_x, random_state=seed))
    quarter = np.kron(np.eye(d_x // 2), [[0.0, -1.0], [1.0, 0.0]])  # turns pairs of modes
    A = (1 - alpha) * rotation @ quarter @ rotation.T
    modes = rotation[:, :D_U]
    return Problem(
        ww.linear.System(A, modes), np.zeros((D_U, d_x)), np.eye(d_x), 0.1 * np.eye(D_U)
    ), modes


def wind(T: int, modes: np.ndarray, seed: int) -> np.ndarray:
    """‖w_t‖ = 1: two slow rotations in the controlled modes, phases by seed."""
    rng = np.random.default_rng(seed)
    t = np.arange(T)[:, None]
    angle = 2 * np.pi * (t / np.array([23.0, 37.0]) + rng.uniform(size=2))
    w = np.concatenate([np.cos(angle), np.sin(angle)], axis=1) / np.sqrt(2)
    return w @ modes.T


RECIPES: dict[str, Callable[..., Algorithm]] = {"Bandit GPC": ww.bandit_gpc, "BPC": ww.bpc}
GRIDS = {
    "Bandit GPC": {"eta": np.logspace(-5.5, -2.5, 13), "delta": np.array([0.05, 0.1, 0.2, 0.4])},
    "BPC": {"eta": np.logspace(-7, -3, 13), "delta": np.array([0.1, 0.2, 0.4, 0.6, 0.8, 0.95])},
}


def _maker(name: str, p: Problem, h: int) -> Callable[..., Algorithm]:
    """The method on a system, with the projection onto the theorem's set."""
    stability = ww.linear.strong_stability(p.system.A, p.system.B)
    projection = ww.dac_set(stability.kappa, stability.alpha)
    return lambda **k: RECIPES[name](D_U, p.system.d_x, h=h, projection=projection, **k)


def gradient_moment(
    name: str, p: Problem, w: np.ndarray, h: int, probe_delta: float, seeds: list[int]
) -> np.ndarray:
    """E‖∇̂_t‖² at M = 0 for each seed, both methods exploring as far in action space.

    BPC's δε moves the action by δ‖w‖/√d_x in the mean square, hence its larger δ.
    """
    delta = probe_delta * (np.sqrt(p.system.d_x) if name == "BPC" else 1.0)
    algorithm = RECIPES[name](D_U, p.system.d_x, h=h, eta=0.0, delta=delta)
    result = ww.linear.simulate(
        p.system, algorithm, w[:1000], seed=seeds, keep=("gradient_norm",), **p.settings
    )
    return (result.gradient_norm[:, 2 * h :].astype(float) ** 2).mean(-1)


def perform(task: Task) -> Pace:
    """A method at one d_x, with η and δ as tuned at another or there."""
    began, s = time.process_time(), task.run.settings
    name, h, T = s["method"], s["h"], s["T"]
    other, other_modes = problem(s["tuned_at"], s["alpha"], seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the edge is in the summary
        tuned = ww.linear.tune(
            other.system, _maker(name, other, h), wind(T, other_modes, seed=1), grid=GRIDS[name],
            seed=range(s["tune_seeds"]), **other.settings,
        )  # fmt: skip
    p, modes = problem(s["d_x"], s["alpha"], seed=2)
    w, seeds = wind(T, modes, seed=2), list(range(s["first_seed"], s["first_seed"] + s["seeds"]))
    best = ww.linear.best_dac(p.system, w, h=h, **p.settings).cost.sum()
    alone = ww.base_only(D_U, s["d_x"])
    base = ww.linear.simulate(p.system, alone, w, keep=(), **p.settings).cost.astype(float)
    algorithm = _maker(name, p, h)(**tuned.best)
    simulated = ww.linear.simulate(p.system, algorithm, w, seed=seeds, keep=(), **p.settings)
    found = {
        "regret": (simulated.cost.astype(float).sum(-1) - best).tolist(),
        "gradient": gradient_moment(name, p, w, h, s["probe_delta"], seeds).tolist(),
        "base_regret": float(base.sum() - best), "best_cost": float(best), "hyper": tuned.best,
        "on_edge": tuned.on_edge,
    }  # fmt: skip
    run.leave(task, found, simulated.cost)
    return Pace(T, time.process_time() - began)


def make_runs(settings: Dimension) -> list[Run]:
    """Both methods at each d_x, tuned there and tuned at the smallest."""
    runs = []
    for d_x in settings.d_x:
        for method in RECIPES:
            for tuned_at in (d_x, min(settings.d_x)):
                chosen = {
                    "kind": "dimension", "method": method, "d_x": d_x, "tuned_at": tuned_at,
                    "T": settings.T, "h": settings.h, "alpha": settings.alpha,
                    "seeds": settings.seeds, "first_seed": REPORT_SEED,
                    "tune_seeds": settings.tune_seeds, "probe_delta": settings.probe_delta,
                    "grid": run.plain(GRIDS[method]),
                }  # fmt: skip
                label = f"dimension {d_x} {method} tuned at {tuned_at}"
                runs.append(Run(label, chosen, settings.T, perform))
    return unique(runs)


def rows_of(done: Sequence[Result]) -> list[dict[str, Any]]:
    """Every seed of a method at one d_x: as tuned at the smallest, and as tuned there."""
    found = {(s["method"], s["d_x"], s["tuned_at"]): each.content
             for each in done for s in (each.run.settings,)}  # fmt: skip
    smallest, first = min(d_x for _, d_x, _ in found), done[0].run.settings["first_seed"]
    return [
        {
            "method": method, "d_x": d_x, "seed": first + i,
            "regret_fixed": found[method, d_x, smallest]["regret"][i], "regret_tuned": regret,
            "gradient": tuned["gradient"][i],
        }
        for (method, d_x, tuned_at), tuned in found.items()
        if tuned_at == d_x
        for i, regret in enumerate(tuned["regret"])
    ]  # fmt: skip


def numbers(rows: Rows) -> dict[str, Any]:
    """Means with intervals over seeds, and the worst seed, by d_x and method."""
    points = []
    for d_x, method in dict.fromkeys((row["d_x"], row["method"]) for row in rows):
        mine = stats.select(rows, d_x=d_x, method=method)
        fixed, tuned, gradient = (
            stats.column(mine, name) for name in ("regret_fixed", "regret_tuned", "gradient")
        )
        points.append({
            "method": method, "d_x": d_x, "regret_fixed": mean_interval(fixed),
            "regret_tuned": mean_interval(tuned), "gradient_second_moment": mean_interval(gradient),
            "worst_regret_fixed": float(fixed.max()), "worst_regret_tuned": float(tuned.max()),
        })  # fmt: skip
    return {"points": points}


def show(done: Sequence[Result], settings: Dimension) -> Shown:
    """Regret and the gradient's size over d_x."""
    rows = rows_of(done)
    points, smallest = numbers(rows)["points"], min(settings.d_x)
    content = {(s["method"], s["d_x"], s["tuned_at"]): each.content
               for each in done for s in (each.run.settings,)}  # fmt: skip
    for point in points:
        own = content[point["method"], point["d_x"], point["d_x"]]
        point |= {
            "base_regret": own["base_regret"], "best_cost": own["best_cost"],
            "hyper_fixed": content[point["method"], point["d_x"], smallest]["hyper"],
            "hyper_tuned": own["hyper"], "on_edge_of_grid": own["on_edge"],
        }  # fmt: skip
    charts, methods = [], stats.distinct(points, "method")
    for key, title in NUMBERS.items():
        curves = []
        for method in methods:
            mine = stats.select(points, method=method)
            spans = np.array([point[key] for point in mine]).T
            curves.append(Curve(method, [point["d_x"] for point in mine], *spans))
        gradient = key == "gradient_second_moment"
        if not gradient:
            base = [points[0]["base_regret"]] * len(settings.d_x)
            curves.append(Curve("M = 0", sorted(settings.d_x), base, dashed=True))
        charts.append(
            Chart(title.capitalize(), "state dimension d_x", key.partition("_")[0], curves,
                  "Mean over seeds, 95 % bootstrap interval.", log_x=True, log_y=gradient)
        )  # fmt: skip
    said = "; ".join(
        f"{name}: " + ", ".join(f"{point['regret_tuned']:,.0f} at d_x = {point['d_x']}"
                                for point in stats.select(points, method=name))
        for name in methods
    )  # fmt: skip
    cells = [
        [str(point["d_x"]), point["method"], f"{point['regret_fixed']:,.0f}",
         f"{point['regret_tuned']:,.0f}", f"{point['base_regret']:,.0f}",
         f"{point['gradient_second_moment']:,.0f}"]
        for point in sorted(points, key=lambda point: point["method"])
    ]  # fmt: skip
    note = (
        f"d_u = 4, h = {settings.h}; fixed: eta, delta as tuned at the smallest d_x; tuned: at "
        f"each; {settings.seeds} held-out seeds; [ ] is the 95 % bootstrap interval."
    )
    columns = ("d_x", "method", "regret, fixed", "regret, tuned", "of M = 0", "E|gradient|²")
    story = [
        "The same problem in more and more coordinates: four controlled modes, the rest idle, all "
        "turned by a random rotation; ‖w‖ = 1, d_u, h and the best controller's cost are the same, "
        "and M stays in the theorem's set.",
        "Raw results: runs.csv has every seed.",
    ]
    title = f"Regret after {settings.T:,} steps and size of the gradient estimate, by dimension"
    sections: list[Section] = [
        *charts,
        Table(title, columns, cells, note),
        Text("What was run", story),
    ]
    found = f"Regret after {settings.T:,} steps, tuned at each d_x. {said}."
    return Shown(found, rows, {"points": points}, sections)


def _check(settings: Dimension) -> None:
    if not settings.d_x or any(d_x < D_U or d_x % 2 for d_x in settings.d_x):
        raise ValueError(f"d_x must hold even numbers of at least {D_U}; got {settings.d_x}")
    for name in ("T", "h", "seeds", "tune_seeds"):
        checks.integer(name, getattr(settings, name), 1)
    if not 0 < settings.alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1; got {settings.alpha}")
    checks.positive("probe_delta", settings.probe_delta)


STUDY = Study(
    "dimension", Dimension(), "thm:34: Bandit GPC does not pay for d_x", "5 min",
    "regret and the state's dimension",
    "Does Bandit GPC, which explores in action space, pay for the state's dimension as BPC does?",
    make_runs, show, numbers, _check, SMALL,
)  # fmt: skip
