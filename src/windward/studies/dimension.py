"""`dimension`: Bandit GPC does not pay for the state's dimension, BPC does (`thm:34`).

The same problem is seen in d_x = 4, 16, 64 coordinates: four controlled modes, the rest idle, all
turned by a random rotation. ‖w‖ = 1, α, ‖B‖ = 1, the cost's constants, d_u and h are the same, and
so is the best controller's cost; only d_x grows. M stays in the paper's set. Both methods
are run with η and δ as tuned at the smallest d_x, and tuned anew at each.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
from rich.console import Console
from rich.progress import track
from rich.table import Table

import windward as ww
from windward import checks
from windward.atomic import prepare, write_rows
from windward.core.algorithm import Algorithm
from windward.figures import panels
from windward.studies import results
from windward.studies.lds import REPORT_SEED, Problem
from windward.studies.statistics import Interval, mean_interval

D_U = 4


@dataclass(frozen=True)
class Dimension:
    """Regret and the gradient's size as the state's dimension grows, Bandit GPC against BPC."""

    d_x: tuple[int, ...] = (4, 16, 64)
    """dimensions of the state"""
    T: int = 10_000
    """steps of a run"""
    alpha: float = 0.2
    """stability: every mode of A has modulus 1 - alpha"""
    h: int = 3
    """memory of the controllers"""
    seeds: int = 16
    """seeds for reporting"""
    tune_seeds: int = 4
    """other seeds for tuning"""
    probe_delta: float = 0.3
    """exploration, as a length in action space, at which gradients are compared"""
    out: Path = Path("out/studies/dimension")
    """folder for runs.csv, summary.json and dimension.png"""


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


def _gradient_moment(
    name: str, p: Problem, w: np.ndarray, settings: Dimension, seeds: list[int]
) -> np.ndarray:
    """E‖∇̂_t‖² at M = 0 for each seed, both methods exploring as far in action space.

    BPC's δε moves the action by δ‖w‖/√d_x in the mean square, hence its larger δ.
    """
    delta = settings.probe_delta * (np.sqrt(p.system.d_x) if name == "BPC" else 1.0)
    algorithm = RECIPES[name](D_U, p.system.d_x, h=settings.h, eta=0.0, delta=delta)
    result = ww.linear.simulate(
        p.system, algorithm, w[:1000], seed=seeds, keep=("gradient_norm",), **p.settings
    )
    return (result.gradient_norm[:, 2 * settings.h :].astype(float) ** 2).mean(-1)


def run(settings: Dimension, console: Console) -> dict[str, Any]:
    """Tunes and runs both methods at each d_x; writes runs.csv, summary.json, dimension.png."""
    if not settings.d_x or any(d_x < D_U or d_x % 2 for d_x in settings.d_x):
        raise ValueError(f"d_x must hold even numbers of at least {D_U}; got {settings.d_x}")
    checks.integer("seeds", settings.seeds, 1)
    checks.integer("tune_seeds", settings.tune_seeds, 1)
    out = prepare(settings.out)
    seeds = list(range(REPORT_SEED, REPORT_SEED + settings.seeds))
    rows: list[dict[str, Any]] = []
    summary: list[dict[str, Any]] = []
    jobs = [(d_x, name) for d_x in settings.d_x for name in RECIPES]
    first: dict[str, dict[str, float]] = {}
    for d_x, name in track(jobs, "tuning and reporting", console=console):
        other, other_modes = problem(d_x, settings.alpha, seed=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the edge is in the summary
            tuned = ww.linear.tune(
                other.system,
                _maker(name, other, settings.h),
                wind(settings.T, other_modes, seed=1),
                grid=GRIDS[name], seed=range(settings.tune_seeds), **other.settings,
            )  # fmt: skip
        hyper = {"tuned": tuned.best, "fixed": first.setdefault(name, tuned.best)}
        p, modes = problem(d_x, settings.alpha, seed=2)
        w = wind(settings.T, modes, seed=2)
        best = ww.linear.best_dac(p.system, w, h=settings.h, **p.settings)
        base = ww.linear.simulate(
            p.system, ww.base_only(D_U, d_x), w, keep=(), **p.settings
        ).cost.astype(float)
        regrets = {}
        for how, numbers in hyper.items():
            algorithm = _maker(name, p, settings.h)(**numbers)
            result = ww.linear.simulate(p.system, algorithm, w, seed=seeds, keep=(), **p.settings)
            regrets[how] = result.cost.astype(float).sum(-1) - best.cost.sum()
        moment = _gradient_moment(name, p, w, settings, seeds)
        rows += [
            {
                "method": name,
                "d_x": d_x,
                "seed": seed,
                "regret_fixed": f"{regrets['fixed'][i]:.6g}",
                "regret_tuned": f"{regrets['tuned'][i]:.6g}",
                "gradient": f"{moment[i]:.6g}",
            }
            for i, seed in enumerate(seeds)
        ]
        write_rows(out / "runs.csv", rows)
        summary.append(
            {
                "method": name,
                "d_x": d_x,
                "regret_fixed": mean_interval(regrets["fixed"]),
                "regret_tuned": mean_interval(regrets["tuned"]),
                "worst_regret_fixed": float(regrets["fixed"].max()),
                "worst_regret_tuned": float(regrets["tuned"].max()),
                "gradient_second_moment": mean_interval(moment),
                "base_regret": float(base.sum() - best.cost.sum()),
                "best_cost": float(best.cost.sum()),
                "hyper_fixed": hyper["fixed"],
                "hyper_tuned": hyper["tuned"],
                "on_edge_of_grid": tuned.on_edge,
            }
        )
    _figure(summary, out / "dimension.png")
    console.print(_table(summary, settings))
    console.print(f"figure: {out / 'dimension.png'}   raw results: {out / 'runs.csv'}")
    return results.write_summary(
        out / "summary.json", "windward run dimension", settings, points=summary
    )


def _table(summary: list[dict[str, Any]], settings: Dimension) -> Table:
    table = Table(
        title=f"Regret after {settings.T:,} steps and size of the gradient estimate, by dimension",
        caption=f"d_u = {D_U}, h = {settings.h}; fixed: eta, delta as tuned at the smallest d_x; "
        f"tuned: at each; {settings.seeds} held-out seeds; [ ] is the 95 % bootstrap interval",
    )
    for column in ("d_x", "method", "regret, fixed", "regret, tuned", "of M = 0", "E|gradient|²"):
        table.add_column(column)
    for point in sorted(summary, key=lambda point: point["method"]):
        numbers = ("regret_fixed", "regret_tuned", "gradient_second_moment")
        fixed, tuned, moment = (str(point[key]).replace("[", "\\[") for key in numbers)
        table.add_row(
            str(point["d_x"]), point["method"], fixed, tuned, f"{point['base_regret']:.4g}", moment
        )
    return table


def _figure(summary: list[dict[str, Any]], path: Path) -> None:
    figure, row = panels(3)
    titles = {
        "regret_fixed": "regret, settings of the smallest d_x",
        "regret_tuned": "regret, tuned at each d_x",
        "gradient_second_moment": "second moment of the gradient estimate",
    }
    for axes, (key, title) in zip(row, titles.items(), strict=True):
        for index, name in enumerate(RECIPES):
            mine = [point for point in summary if point["method"] == name]
            values: list[Interval] = [point[key] for point in mine]
            mean = np.array([v.value for v in values])
            below = mean - np.array([v.low for v in values])
            above = np.array([v.high for v in values]) - mean
            axes.errorbar(
                [point["d_x"] for point in mine], mean, (below, above),
                fmt="o-", capsize=3, color=f"C{index}", label=name,
            )  # fmt: skip
        axes.set(xscale="log", xlabel="state dimension d_x", ylabel=title)
        axes.set_xticks([point["d_x"] for point in summary], [str(p["d_x"]) for p in summary])
        axes.minorticks_off()
        if key == "gradient_second_moment":
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
            axes.axhline(summary[0]["base_regret"], color="black", ls="--", lw=0.8, label="M = 0")
    row[0].legend(frameon=False)
    figure.savefig(path, dpi=150)
