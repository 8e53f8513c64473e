"""`dimension`: Bandit GPC does not pay for the state's dimension, BPC does (`thm:34`).

The same problem is seen in d_x = 4, 16, 64 coordinates: four controlled modes, the rest idle, all
turned by a random rotation. ‖w‖ = 1, α, ‖B‖ = 1, the cost's constants, d_u and h are the same, and
so is the best controller's cost; only d_x grows. M stays in the paper's set. Both methods
are run with η and δ as tuned at the smallest d_x, and tuned anew at each.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import scipy.stats
import tyro
from rich.console import Console

import windward as ww
from windward import checks
from windward.core.algorithm import Algorithm
from windward.studies.linear import computed, dimension_report
from windward.studies.linear.computed import Computed, Plan
from windward.studies.linear.lds import REPORT_SEED, Problem
from windward.studies.runs.store import Pace, Run, Task

D_U = 4
PACE = 196_000.0
"""simulated steps in a second of one core"""


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
    run = ww.linear.simulate(p.system, algorithm, w, seed=seeds, keep=(), **p.settings)
    found = {
        "regret": (run.cost.astype(float).sum(-1) - best).tolist(),
        "gradient": gradient_moment(name, p, w, h, s["probe_delta"], seeds).tolist(),
        "base_regret": float(base.sum() - best), "best_cost": float(best), "hyper": tuned.best,
        "on_edge": tuned.on_edge,
    }  # fmt: skip
    computed.leave(task, found, run.cost)
    return Pace(T, time.process_time() - began)


def make_runs(settings: Dimension) -> list[Run]:
    """Both methods at each d_x, tuned there and tuned at the smallest."""
    runs = {}
    for d_x in settings.d_x:
        for method in RECIPES:
            for tuned_at in (d_x, min(settings.d_x)):
                chosen = {
                    "kind": "dimension", "method": method, "d_x": d_x, "tuned_at": tuned_at,
                    "T": settings.T, "h": settings.h, "alpha": settings.alpha,
                    "seeds": settings.seeds, "first_seed": REPORT_SEED,
                    "tune_seeds": settings.tune_seeds, "probe_delta": settings.probe_delta,
                    "grid": computed.plain(GRIDS[method]),
                }  # fmt: skip
                label = f"dimension {d_x} {method} tuned at {tuned_at}"
                run = Run(label, chosen, settings.T, perform)
                runs[run.name] = run
    return list(runs.values())


def run(settings: Dimension, console: Console) -> dict[str, Any]:
    """Does what is not finished; writes runs.csv, summary.json, figure and page."""
    command = computed.command_of("dimension", settings, Dimension())
    settings = computed.sized(settings, Dimension(), SMALL)
    _check(settings)
    plan = Plan("dimension", settings, make_runs(settings), command, PACE)
    done = computed.whole(plan, console)
    return {} if done is None else dimension_report.write(plan, done, console)


def _check(settings: Dimension) -> None:
    if not settings.d_x or any(d_x < D_U or d_x % 2 for d_x in settings.d_x):
        raise ValueError(f"d_x must hold even numbers of at least {D_U}; got {settings.d_x}")
    for name in ("T", "h", "seeds", "tune_seeds"):
        checks.integer(name, getattr(settings, name), 1)
    if not 0 < settings.alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1; got {settings.alpha}")
    checks.positive("probe_delta", settings.probe_delta)
