"""`regret-rate`: how the regret of Bandit GPC and BPC grows with the horizon (`thm:34`).

η and δ follow the theorem's formula for each horizon, each times one constant that is tuned at a
single horizon, on other seeds and another disturbance. The slope of log regret in log T is
shown beside the theorem's exponent, 3/4 for convex costs and 2/3 for smooth ones: over all
horizons, and from the tuning horizon on. (Below it the formula's η is larger than the tuned one,
and some runs are unstable at first.)
"""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import tyro

import windward as ww
from windward import checks
from windward.atomic import write_rows
from windward.core.algorithm import Algorithm
from windward.linear import disturbances
from windward.studies import run, stats
from windward.studies.paper.systems import BEST, REPORT_SEED, double_integrator
from windward.studies.report import Chart, Curve, Points, Section, Table, Text
from windward.studies.runs.store import CURVES
from windward.studies.spec import Computed, Pace, Result, Run, Shown, Study, Task, unique
from windward.studies.stats import Interval, Rows, mean_interval, slope_interval
from windward.types import Array


class Case(NamedTuple):
    """A cost with the rates that the theorem gives it."""

    cost: str
    smooth: bool

    @property
    def rates(self) -> str:
        """Their name."""
        return "smooth" if self.smooth else "convex"


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
            simulated = ww.linear.simulate(
                p.system, algorithm, w[:T], seed=seeds, keep=(), **common
            )
            totals.append(simulated.cost.astype(float).sum(-1).tolist())
    rows = [
        {"steps": T, "cost": float(np.mean(each) / T)}
        for T, each in zip(s["horizons"], totals, strict=True)
    ]
    task.check()
    write_rows(task.folder / CURVES, rows)
    run.leave(task, {**found, "total": totals})
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
                    "grid": run.plain(CONSTANTS),
                }  # fmt: skip
                label = f"regret {case.cost} {case.rates} {method}"
            runs.append(Run(label, chosen, max(settings.horizons), perform))
    return unique(runs)


def rows_of(done: Sequence[Result]) -> list[dict[str, Any]]:
    """The regret of every run: its cost less that of the best M."""
    best = {
        each.run.settings["cost"]: each.content["total"]
        for each in done
        if each.run.settings["method"] == BEST
    }
    return [
        {
            "cost": s["cost"], "rates": Case(s["cost"], s["smooth"]).rates, "method": s["method"],
            "T": T, "seed": s["first_seed"] + j, "regret": total - best[s["cost"]][i],
            "best_cost": best[s["cost"]][i],
        }
        for each in done
        for s in (each.run.settings,)
        if s["method"] != BEST
        for i, T in enumerate(s["horizons"])
        for j, total in enumerate(each.content["total"][i])
    ]  # fmt: skip


def numbers(rows: Rows, tune_horizon: int = RegretRate.tune_horizon) -> dict[str, Any]:
    """Slopes of log regret in log T, over all horizons and from the tuning horizon on."""
    found = []
    for cost, rates, method in dict.fromkeys((r["cost"], r["rates"], r["method"]) for r in rows):
        mine = stats.select(rows, cost=cost, rates=rates, method=method)
        horizons = np.array(stats.distinct(mine, "T"))
        regret = stats.column(mine, "regret").reshape(len(horizons), -1)
        tail = horizons >= tune_horizon
        slope, late = (slope_interval(horizons[part], regret[part]) for part in (tail | True, tail))
        found.append({
            "cost": cost, "rates": rates, "method": method, "slope": slope.value,
            "interval": [slope.low, slope.high], "slope_from_tune_horizon": late.value,
            "interval_from_tune_horizon": [late.low, late.high],
            "theorem": 2 / 3 if rates == "smooth" else 3 / 4,
            "regret": {str(T): str(mean_interval(each))
                       for T, each in zip(horizons, regret, strict=True)},
        })  # fmt: skip
    return {"slopes": found}


def _chart(rows: Rows, fits: Sequence[Mapping[str, Any]]) -> Chart:
    """Regret in T of both methods, beside a line of the theorem's slope above all at first."""
    curves: list[Curve | Points] = []
    first, theorem = [], fits[0]["theorem"]
    for fit in fits:
        mine = stats.select(rows, method=fit["method"])
        T = np.array(stats.distinct(mine, "T"), float)
        regret = stats.column(mine, "regret").reshape(len(T), -1)
        spans = np.array([mean_interval(each) for each in regret]).T
        every = np.repeat(T, regret.shape[1])
        curves += [
            Curve(fit["method"], T, *spans),
            Points(f"{fit['method']}, each seed", every, regret.ravel()),
        ]
        first.append(regret[np.argmin(T)].mean())
    T = np.sort(T)
    bound = 1.5 * max(first) * (T / T[0]) ** theorem
    curves.append(Curve(f"T^{theorem:.2f} (theorem)", T, bound, dashed=True))
    return Chart(
        f"Regret, {fits[0]['cost']} cost, {fits[0]['rates']} rates", "T", "regret", curves,
        "Mean over seeds, 95 % bootstrap interval.", log_x=True, log_y=True,
    )  # fmt: skip


def show(done: Sequence[Result], settings: RegretRate) -> Shown:
    """Slopes, and regret in T for each cost and rate."""
    rows = rows_of(done)
    slopes = numbers(rows, settings.tune_horizon)["slopes"]
    content = {
        (s["cost"], s["method"], s.get("smooth")): each.content
        for each in done
        for s in (each.run.settings,)
    }
    cells, said, charts = [], [], []
    for fit in slopes:
        own = content[fit["cost"], fit["method"], fit["rates"] == "smooth"]
        fit |= {"constants": own["constants"], "on_edge_of_grid": own["on_edge"]}
        slope, late = (
            Interval(fit[name], *fit[name.replace("slope", "interval")])
            for name in ("slope", "slope_from_tune_horizon")
        )
        constants = ", ".join(f"{name} {value:.3g}" for name, value in own["constants"].items())
        cells.append([fit["cost"], fit["rates"], fit["method"], f"{slope:.2f}", f"{late:.2f}",
                      fit["theorem"], constants])  # fmt: skip
        said.append(
            f"{fit['method']}, {fit['cost']} cost with {fit['rates']} rates: slope {late:.2f} from "
            f"T = {settings.tune_horizon:,} on, the theorem's bound {fit['theorem']:.2f}"
        )
    for cost, rates in dict.fromkeys((fit["cost"], fit["rates"]) for fit in slopes):
        same = {"cost": cost, "rates": rates}
        charts.append(_chart(stats.select(rows, **same), stats.select(slopes, **same)))
    late_column = f"from T = {settings.tune_horizon:,}"
    columns = ("cost", "rates", "method", "slope", late_column, "theorem", "constants")
    story = [
        "A double integrator under LQR in two sinusoids with uniform noise. η and δ follow the "
        f"theorem's formula, each times one constant tuned at T = {settings.tune_horizon:,} on "
        "other seeds and another wind. Below that horizon the formula's η is larger than the tuned "
        "one, and some runs are unstable at first.",
        "Raw results: runs.csv has every horizon and seed.",
    ]
    table = Table(
        f"Slope of log regret in log T, T from {min(settings.horizons):,} to "
        f"{max(settings.horizons):,}, {settings.seeds} seeds", columns, cells,
        "[ ] is the 95 % bootstrap interval over seeds; the theorem's exponent is an upper bound.",
    )  # fmt: skip
    sections: list[Section] = [*charts, table, Text("What was run", story)]
    return Shown("; ".join(said) + ".", rows, {"slopes": slopes}, sections)


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


STUDY = Study(
    "regret-rate", RegretRate(), "thm:34: regret grows as T^3/4, T^2/3", "5 min",
    "how regret grows with the horizon",
    "Does the regret of Bandit GPC grow no faster than the theorem says, T^(2/3) for smooth costs "
    "and T^(3/4) for convex ones?", make_runs, show, numbers, _check, SMALL, figure="regret",
)  # fmt: skip
