"""`regret-rate`: how the regret of Bandit GPC and BPC grows with the horizon (`thm:34`).

η and δ follow the theorem's formula for each horizon, each times one constant that is tuned at a
single horizon, on other seeds and another disturbance. The slope of log regret in log T is
shown beside the theorem's exponent, 3/4 for convex costs and 2/3 for smooth ones: over all
horizons, and from the tuning horizon on. (Below it the formula's η is larger than the tuned one,
and some runs are unstable at first.)
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console

import windward as ww
from windward import checks
from windward.atomic import write_rows
from windward.core.algorithm import Algorithm
from windward.linear import disturbances
from windward.studies.linear import computed, regret_report
from windward.studies.linear.computed import Computed, Plan
from windward.studies.linear.lds import REPORT_SEED, double_integrator
from windward.studies.linear.lds_report import BEST
from windward.studies.linear.regret_report import Case
from windward.studies.runs.store import CURVES, Pace, Run, Task
from windward.types import Array

PACE = 1_270_000.0
"""simulated steps in a second of one core"""


@dataclass(frozen=True)
class RegretRate(Computed):
    """How regret grows with the horizon, beside the theorem's exponents 3/4 and 2/3."""

    horizons: Annotated[tuple[int, ...], tyro.conf.arg(aliases=("--steps",))] = (
        1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000,
    )  # fmt: skip
    """horizons T"""
    tune_horizon: int = 10_000
    """the one horizon at which the constants are tuned"""
    seeds: int = 25
    """seeds for reporting"""
    tune_seeds: int = 8
    """other seeds for tuning"""
    h: int = 5
    """memory of the controllers"""
    radius: float = 2.0
    """Frobenius norm that M may reach; the best M in hindsight has 1.6 to 1.7 here"""


SMALL: dict[str, Any] = {
    "horizons": (200, 400), "tune_horizon": 200, "seeds": 2, "tune_seeds": 1, "radius": 5.0,
}  # fmt: skip
"""what smoke changes"""


def l1(x: Array, u: Array) -> Array:
    """|x|₁ + |u|₁: convex, not smooth."""
    return jnp.sum(jnp.abs(x)) + jnp.sum(jnp.abs(u))


def wind(T: int, seed: int) -> np.ndarray:
    """A bounded disturbance with something to learn: two sinusoids and uniform noise."""
    phase = np.random.default_rng(seed).uniform(0, 2 * np.pi, 2)
    sine = disturbances.sinusoid(T, 2, amplitude=1.0, period=(31.0, 47.0), phase=phase)
    return sine + disturbances.uniform(T, 2, bound=0.25, seed=seed)


CASES = (Case("quadratic", True), Case("quadratic", False), Case("l1", False))
MAKERS: dict[str, Callable[..., Algorithm]] = {"Bandit GPC": ww.bandit_gpc, "BPC": ww.bpc}
CONSTANTS = {"eta": np.logspace(-3.5, 0.5, 17), "delta": np.array([0.25, 0.5, 1.0, 2.0, 4.0, 8.0])}


def maker(name: str, T: int, *, smooth: bool, h: int, radius: float) -> Callable[..., Algorithm]:
    """The method with the theorem's rates at T, times constants."""
    rates = ww.theorem_rates(T, d_u=1, d_x=2, smooth=smooth)
    ball = ww.frobenius_ball(radius)
    return lambda eta, delta: MAKERS[name](
        1, 2, h=h, eta=eta * rates.eta, delta=delta * rates.delta, projection=ball
    )


def perform(task: Task) -> Pace:
    """A method with a cost and its rates, tuned at one horizon; or the best M, at all horizons."""
    began, s = time.process_time(), task.run.settings
    p, longest = double_integrator(), max(*s["horizons"], s["tune_horizon"])
    w = wind(longest, seed=2)
    common: dict[str, Any] = {"K": p.K}
    common |= {"cost": l1} if s["cost"] == "l1" else {"Q": p.Q, "R": p.R}
    found: dict[str, Any] = {}
    if s["method"] == BEST:
        totals = [
            float(ww.linear.best_dac(p.system, w[:T], h=s["h"], **common).cost.sum())
            for T in s["horizons"]
        ]
    else:
        chosen = {"smooth": s["smooth"], "h": s["h"], "radius": s["radius"]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the edge is in the summary
            tuned = ww.linear.tune(
                p.system, maker(s["method"], s["tune_horizon"], **chosen),
                wind(longest, seed=1)[: s["tune_horizon"]], grid=CONSTANTS,
                seed=range(s["tune_seeds"]), **common,
            )  # fmt: skip
        found = {"constants": tuned.best, "on_edge": tuned.on_edge}
        seeds, totals = range(s["first_seed"], s["first_seed"] + s["seeds"]), []
        for T in s["horizons"]:
            task.check()
            algorithm = maker(s["method"], T, **chosen)(**tuned.best)
            run = ww.linear.simulate(p.system, algorithm, w[:T], seed=seeds, keep=(), **common)
            totals.append(run.cost.astype(float).sum(-1).tolist())
    rows = [
        {"steps": T, "cost": float(np.mean(each) / T)}
        for T, each in zip(s["horizons"], totals, strict=True)
    ]
    task.check()
    write_rows(task.folder / CURVES, rows)
    computed.leave(task, {**found, "total": totals})
    return Pace(task.run.goal, time.process_time() - began)


def make_runs(settings: RegretRate) -> list[Run]:
    """Both methods with each cost and its rates, and the best M for each cost."""
    runs = []
    for case in CASES:
        for method in (BEST, *MAKERS):
            chosen: dict[str, Any] = {
                "kind": "regret", "method": method, "cost": case.cost, "h": settings.h,
                "horizons": list(settings.horizons), "tune_horizon": settings.tune_horizon,
            }  # fmt: skip
            label = f"regret {case.cost} {method}"
            if method != BEST:
                chosen |= {
                    "smooth": case.smooth, "radius": settings.radius, "seeds": settings.seeds,
                    "first_seed": REPORT_SEED, "tune_seeds": settings.tune_seeds,
                    "grid": computed.plain(CONSTANTS),
                }  # fmt: skip
                label = f"regret {case.cost} {case.rates} {method}"
            runs.append(Run(label, chosen, max(settings.horizons), perform))
    return list({run.name: run for run in runs}.values())


def run(settings: RegretRate, console: Console) -> dict[str, Any]:
    """Does what is not finished, fits slopes; writes runs.csv, summary.json, figure and page."""
    command = computed.command_of("regret-rate", settings, RegretRate())
    settings = computed.sized(settings, RegretRate(), SMALL)
    _check(settings)
    plan = Plan("regret-rate", settings, make_runs(settings), command, PACE)
    done = computed.whole(plan, console)
    return {} if done is None else regret_report.write(plan, done, console)


def _check(settings: RegretRate) -> None:
    for name in ("seeds", "tune_seeds", "h"):
        checks.integer(name, getattr(settings, name), 1)
    checks.positive("radius", settings.radius)
    for T in (*settings.horizons, settings.tune_horizon):
        checks.integer("horizons and tune_horizon", T, 2 * settings.h)
    if len(set(settings.horizons)) < len(settings.horizons):
        raise ValueError(f"horizons must not name one twice; got {settings.horizons}")
    if sum(settings.tune_horizon <= T for T in settings.horizons) < 2:
        raise ValueError(
            f"horizons must hold at least two of tune_horizon = {settings.tune_horizon} or more; "
            f"got {settings.horizons}"
        )
