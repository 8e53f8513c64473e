"""`lds-high`: LQR, GPC, BPC and Bandit GPC on random systems of 10 states and 5 inputs.

The paper's high-dimensional experiment (`fig:LDS`, right), of which it says that BPC could not be
tuned to learn while Bandit GPC improves on LQR. Here both are tuned alike, over the same grid, on
winds and seeds of their own, for several random systems and horizons. Tuning screens the grid with
a few runs and judges the best points by many others: a step that is good in most runs may go
astray in one of ten.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import tyro

import windward as ww
from windward import checks
from windward.atomic import replacing
from windward.core.algorithm import Algorithm
from windward.core.projections import frobenius_ball
from windward.studies import run, stats
from windward.studies.paper.systems import (
    BEST,
    LQR,
    RANDOM,
    REPORT_SEED,
    Problem,
    cost_charts,
    drawing,
    problem,
    wind,
)
from windward.studies.report import Chart, Curve, Points, Table, Text
from windward.studies.run import NothingShown
from windward.studies.spec import Computed, Pace, Result, Run, Shown, Study, Task
from windward.studies.stats import Rows, student_interval

FIRST = 520  # the first random system: those below were seen while this study was made
BANDITS = ("BPC", "Bandit GPC")
METHODS = (LQR, BEST, "GPC", *BANDITS)
BINNED = "binned.npy"
"""costs of all seeds in the middle one of the winds, in the bins of the curve, (seeds, bins)"""
PARTS = {"headroom": "cost_last", "whole_run": "cost_whole"}
"""parts of the summary, and the column that each is made of"""


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
        simulated = ww.linear.simulate(
            p.system, make(**hyper), np.repeat(winds, len(seeds), axis=0), keep=(),
            seed=seeds * len(winds), **p.settings,
        )  # fmt: skip
        cost = simulated.cost.reshape(len(winds), len(seeds), T)
    cost = np.asarray(cost, dtype=np.float64)
    count = max(1, round(s["last"] * T))
    found = {
        "hyper": hyper, "on_edge": on_edge, "last": cost[..., -count:].mean(-1).tolist(),
        "whole": cost.mean(-1).tolist(),
    }  # fmt: skip
    task.check()
    shown = cost[len(winds) // 2]  # in the wind of the figure
    with replacing(task.folder / BINNED) as file:
        np.save(file, run.binned(shown)[1], allow_pickle=False)
    run.leave(task, found, cost)
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


def rows_of(done: Sequence[Result]) -> list[dict[str, Any]]:
    """Costs of every system, wind and seed."""
    found = []
    for each in done:
        s = {name: each.run.settings[name] for name in ("T", "system", "method", "winds")}
        winds = s.pop("winds")
        last, whole = (np.array(each.content[part]) for part in ("last", "whole"))
        for i, j in np.ndindex(last.shape):
            costs = {"cost_last": float(last[i, j]), "cost_whole": float(whole[i, j])}
            found.append(s | {"wind": winds[i], "seed": REPORT_SEED + j} | costs)
    return found


def numbers(rows: Rows) -> dict[str, Any]:
    """Headroom by horizon and method: (LQR's cost - its cost) / (LQR's cost - the best M's)."""
    return {part: list(_headroom(rows, column)) for part, column in PARTS.items()}


def _headroom(rows: Rows, name: str) -> Iterator[dict[str, Any]]:
    costs: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    for row in rows:
        winds = costs.setdefault((row["T"], row["system"], row["method"]), {})
        winds.setdefault(row["wind"], []).append(row[name])
    for T in sorted({key[0] for key in costs}):
        for method in METHODS[2:]:
            headroom, saved, runs = [], [], []
            for system in sorted({key[1] for key in costs}):
                found = [costs.get((T, system, each)) for each in (LQR, BEST, method)]
                if all(found):
                    lqr, best, ours = (np.array(list(each.values())) for each in found if each)
                    share = (lqr - ours) / (lqr - best)
                    headroom.append(float(share.mean()))
                    saved.append(float(1 - ours.mean() / lqr.mean()))
                    runs.append(share.ravel())
            if headroom:
                mean, every = student_interval(np.array(headroom)), np.concatenate(runs)
                yield {
                    "T": T, "method": method, "mean": mean.value,
                    "interval": [mean.low, mean.high] if len(headroom) > 1 else None,
                    "systems": headroom, "saved": saved, "median": float(np.median(every)),
                    "worst": float(every.min()),
                }  # fmt: skip


def _span(row: Mapping[str, Any]) -> str:
    """The mean headroom with its interval over systems, of which one has none."""
    within = "" if row["interval"] is None else " [{:.2f}, {:.2f}]".format(*row["interval"])
    return f"{row['mean']:.2f}{within}"


def verdicts(headroom: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was found of the claim, horizon by horizon."""
    sentences = []
    for T in stats.distinct(headroom, "T"):
        at = {row["method"]: row for row in stats.select(headroom, T=T)}
        if set(BANDITS) <= set(at):
            two = [at[name] for name in BANDITS]
            parts = "; ".join(
                f"{row['method']} saves on {_better(row)} of {len(row['saved'])} systems, headroom "
                f"{_span(row)}"
                for row in two
            )
            sentences.append(f"T = {T:,}: {_claim(*two)}. {parts}.")
    return sentences or ["Runs are still to come."]


def _better(row: Mapping[str, Any]) -> int:
    """Systems on which a method saves anything."""
    return sum(each > 0 for each in row["saved"])


def _claim(bpc: Mapping[str, Any], bandit: Mapping[str, Any]) -> str:
    """What of the claim holds: a method improves if the interval of its headroom is above 0."""
    if bpc["interval"] is None or bandit["interval"] is None:
        return "one system tells nothing of others"
    return {
        (False, True): "Bandit GPC improves on LQR and BPC not for sure, as the paper says",
        (True, True): "both improve on LQR, so that here BPC can be tuned to learn",
        (False, False): "neither improves on LQR for sure",
        (True, False): "BPC improves on LQR and Bandit GPC not for sure, which the paper does not "
        "find",
    }[bpc["interval"][0] > 0, bandit["interval"][0] > 0]


COLUMNS = (
    "T", "method", "headroom", "median run", "worst run", "saves on", "saves", "tuned",
    "on grid's edge",
)  # fmt: skip


def _cells(row: Mapping[str, Any]) -> list[Any]:
    tuned = []
    for name in row["hyper"][0]:
        values = sorted(each[name] for each in row["hyper"])
        ends = dict.fromkeys((f"{values[0]:.2g}", f"{values[-1]:.2g}"))
        tuned.append(f"{name} {' to '.join(ends)}")
    return [
        row["T"], row["method"], _span(row), row["median"], row["worst"],
        f"{_better(row)} of {len(row['saved'])}", f"{np.mean(row['saved']):.1%}", ", ".join(tuned),
        row["on_edge_of_grid"],
    ]  # fmt: skip


def _shares(headroom: Sequence[Mapping[str, Any]], settings: LdsHigh) -> Chart:
    curves: list[Curve | Points] = []
    for method in stats.distinct(headroom, "method"):
        mine = stats.select(headroom, method=method)
        T, mean = [row["T"] for row in mine], [row["mean"] for row in mine]
        spans = [row["interval"] or [row["mean"]] * 2 for row in mine]  # no bar for one system
        each = [(row["T"], value) for row in mine for value in row["systems"]]
        curves += [
            Curve(method, T, mean, [low for low, _ in spans], [high for _, high in spans]),
            Points(f"{method}, each system", *zip(*each, strict=True)),
        ]
    return Chart(
        f"Headroom captured in the last {settings.last:.0%} of steps", "T", "headroom", curves,
        "0: LQR, 1: best fixed M in hindsight. Mean over systems, Student's 95 % interval.",
        log_x=True,
    )  # fmt: skip


def shown_costs(done: Sequence[Result]) -> list[Chart]:
    """Costs on the first system at the longest horizon, of those with most methods finished."""
    by: dict[tuple[int, int], list[Result]] = {}
    for each in done:
        by.setdefault((each.run.settings["T"], -each.run.settings["system"]), []).append(each)
    (T, system), found = max(by.items(), key=lambda item: (len(item[1]), item[0]))
    winds = found[0].run.settings["winds"]
    drawn = {
        each.run.settings["method"]: drawing(
            each.curve["steps"], np.load(each.folder / BINNED, allow_pickle=False), REPORT_SEED
        )
        for each in found
    }
    where = f"System {-system}, T = {T:,}, wind {winds[len(winds) // 2]}"
    return cost_charts(drawn, where)


def show(done: Sequence[Result], settings: LdsHigh) -> Shown:
    """Headroom by horizon and system, and costs over time on one of them."""
    rows = rows_of(done)
    parts = numbers(rows)
    if not parts["headroom"]:
        raise NothingShown("no system has all its runs finished yet: there is nothing to draw")
    content = {
        (s["T"], s["method"], s["system"]): each.content
        for each in done
        for s in (each.run.settings,)
    }
    for row in [each for part in parts.values() for each in part]:
        own = [
            content[row["T"], row["method"], system]
            for system in sorted(stats.distinct(rows, "system"))
            if all((row["T"], name, system) in content for name in (LQR, BEST, row["method"]))
        ]
        row["on_edge_of_grid"] = sum(bool(each["on_edge"]) for each in own)
        row["hyper"] = [each["hyper"] for each in own]
    shares, costs = _shares(parts["headroom"], settings), shown_costs(done)
    last = f"the last {settings.last:.0%} of steps"
    story = [
        f"{RANDOM}BPC and Bandit GPC are tuned alike: the same grid of eta and delta in "
        f"the same ball (M of norm {settings.radius:g} at most), for each system and horizon. "
        f"{len(settings.tune_winds)} winds and {settings.screen_seeds} seeds screen the whole "
        f"grid; its {settings.finalists} best points run again with "
        f"{settings.tune_seeds - settings.screen_seeds} other seeds in each wind, and the best "
        "of these is reported, in other winds and with other seeds still. GPC knows A, B and "
        "the cost function.",
        "Raw results: runs.csv has every system, wind and seed.",
    ]
    return Shown(
        " ".join(verdicts(parts["headroom"])), rows, parts,
        [
            shares,
            Table(f"Headroom in {last}", COLUMNS, [_cells(row) for row in parts["headroom"]],
                  "0: LQR, 1: best fixed M in hindsight; [ ] Student's 95 % interval over systems. "
                  "Saves: of LQR's cost, the cost of exploration counted. Tuned: the smallest and "
                  "the largest over systems; on grid's edge: on how many tuning ended there."),
            *costs,
            Table("Headroom over whole runs, learning included", COLUMNS,
                  [_cells(row) for row in parts["whole_run"]]),
            Text("What was run", story),
        ],
        [*costs, shares],
    )  # fmt: skip


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


STUDY = Study(
    "lds-high", LdsHigh(), "fig:LDS, right: BPC and Bandit GPC, 10 states", "about 1 h",
    "bandits on linear systems of 10 states and 5 inputs",
    "On a larger linear system, do BPC and Bandit GPC improve on LQR when both are tuned alike? "
    "The paper says of its system of this size that BPC could not be tuned to learn while Bandit "
    "GPC (there: RBPC) improves on LQR. It names neither the system nor the horizon.",
    make_runs, show, numbers, _check, SMALL, free=("systems", "horizons"), partial=True, columns=2,
)  # fmt: skip
