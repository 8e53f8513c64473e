"""`headroom`: what each way of learning M captures of what there is to gain, and what it risks.

Shipped policies in winds (`headroom_cases`), base and methods (`headroom_methods`) on the same
held-out seeds, starts and winds. 1.0 is the best fixed M, found offline by a long search
(`headroom_offline`), or exactly on the linear systems, which are those of `headroom-linear`. Where
there is nothing to gain, what a method loses is told instead. Exploration is always counted.
"""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from windward import checks
from windward.atomic import prepare, write_rows
from windward.studies import headroom_linear, headroom_page, results
from windward.studies import headroom_numbers as stats
from windward.studies.commands import command_line
from windward.studies.headroom_cases import CASES, EVERY, LINEAR, NOTHING, TUNE_SEEDS
from windward.studies.headroom_methods import BASE, BEST, METHODS
from windward.studies.headroom_offline import search
from windward.studies.headroom_runs import Job, make_all, stored

Returns = dict[str, dict[str, np.ndarray]]
"""case -> method -> (seeds, episodes)"""


class Gathered(NamedTuple):
    """What runs left, by case and method."""

    returns: Returns
    decisions: dict[tuple[str, str], list[str]]
    """what was decided about M, in sentences"""
    still: dict[tuple[str, str], int]
    """on how many seeds M was 0 in the end"""
    rows: list[dict[str, Any]]
    """every episode"""


@dataclass(frozen=True)
class Headroom:
    """What each way of learning M captures of the headroom, on shipped policies in winds.

    For each case: the best fixed M is searched for offline, what has to be tuned is tuned on other
    seeds and winds, and then base, best and all methods play the same held-out episodes. Stop it at
    any moment: the same command goes on, and finished runs are not repeated. Examples:

    windward run headroom --cases pendulum-slow-sine --methods paper counterfactual

    windward run headroom --redo counterfactual    (after changing how it works)
    """

    cases: tuple[str, ...] = ()
    """which, or all: pendulum-slow-sine, inverted-pendulum-force, hopper-mass, pendulum-calm,
    linear-10x5 ...; a wrong name lists them"""
    methods: tuple[str, ...] = ()
    """which beside base and best, or all: paper, counterfactual, learned, observer ...; a wrong
    name lists them"""
    seeds: int = 4
    """how many held-out seeds"""
    first_seed: int = 100
    """the first of them; those below 100 serve for tuning"""
    episodes: int | None = None
    """episodes of each seed, over which a method learns; if left out 20 for Pendulum, 15 for
    InvertedPendulum ..., 50 where there is nothing to gain, and 3 times as many for methods that
    have no simulator given"""
    last: int = 10
    """final episodes that count, where there is something to gain"""
    generations: int = 60
    """of the search for a best fixed M that is not in `best` yet"""
    first_step: float = 0.3
    """of that search, in actions scaled to [-1, 1]; less where small corrections are felt"""
    max_steps: int | None = None
    """steps of an episode at most; the environment's own limit if left out"""
    processes: int = 1
    """runs at a time"""
    redo: tuple[str, ...] = ()
    """methods whose runs and tuning are thrown away and made again"""
    compute: bool = True
    """False makes table and page of what there is"""
    runs: Path = Path("out/headroom")
    """folder with a file for each run"""
    out: Path = Path("out/studies/headroom")
    """folder for episodes.csv, summary.json and report.html"""
    best: Path | None = None
    """folder with the best fixed M of each case, those that were found before; best_M in `out` if
    left out"""


def run(settings: Headroom, console: Console) -> dict[str, Any]:
    """Makes what is not there; writes episodes.csv, summary.json and report.html."""
    cases, methods = _checked(settings)
    out, runs = prepare(settings.out), prepare(settings.runs)
    for name in settings.redo:
        for folder in runs.glob(f"*/{name}"):
            shutil.rmtree(folder)
    linear = _linear(settings, [name for name in cases if name in LINEAR], console)
    played = [name for name in cases if name in EVERY]
    best = _references(settings, played, console)
    tuned = _tuned(settings, played, methods, console)
    jobs = list(_jobs(settings, played, methods, best, tuned))
    if settings.compute:
        make_all(jobs, runs, settings.processes, console)
    made = _gather(jobs, runs)
    found = _numbers(made.returns, settings)
    seeds = _seeds(settings)
    summary = {
        case: {method: stats.as_json(each, seeds) for method, each in by.items()}
        for case, by in found.items()
    }
    if made.rows:
        write_rows(out / "episodes.csv", made.rows)
    # The command that makes all of it, also where this call only wrote down what there was.
    whole = replace(settings, compute=True, redo=())
    written = results.write_summary(
        out / "summary.json", command_line("windward run headroom", whole, Headroom()), settings,
        headroom={name: each for name, each in summary.items() if name in CASES},
        nothing={name: each for name, each in summary.items() if name in NOTHING},
        linear=linear, tuned=tuned,
    )  # fmt: skip
    headroom_page.write(
        out / "report.html", found, made.returns, made.decisions, made.still, linear, seeds, written
    )
    for table in headroom_page.terminal(found, settings.last, len(seeds)):
        console.print(table)
    console.print(f"page: {out / 'report.html'}   raw results: {out / 'episodes.csv'}",
                  highlight=False, soft_wrap=True)  # fmt: skip
    return written


def _checked(settings: Headroom) -> tuple[list[str], list[str]]:
    """The names of cases and methods, those left out filled in."""
    for name in ("seeds", "last", "generations", "processes"):
        checks.integer(name, getattr(settings, name), 1)
    checks.integer("first_seed", settings.first_seed, 0)
    for name in ("episodes", "max_steps"):
        if getattr(settings, name) is not None:
            checks.integer(name, getattr(settings, name), 1)
    if set(_seeds(settings)) & set(TUNE_SEEDS):
        raise ValueError(
            f"seeds {', '.join(map(str, TUNE_SEEDS))} are for tuning; begin with another "
            f"first_seed than {settings.first_seed}"
        )
    known = (*EVERY, *LINEAR)
    for name in settings.cases:
        checks.choice("a case", name, known)
    for name in (*settings.methods, *settings.redo):
        checks.choice("a method", name, tuple(METHODS))
    chosen = settings.methods or tuple(METHODS)
    return list(settings.cases or known), [
        name for name in METHODS if name in (BASE, BEST, *chosen)
    ]


def _seeds(settings: Headroom) -> tuple[int, ...]:
    return tuple(range(settings.first_seed, settings.first_seed + settings.seeds))


def _linear(settings: Headroom, names: list[str], console: Console) -> dict[str, Any]:
    """What `headroom-linear` found for systems of some sizes, each in a folder of its own."""
    found = {}
    for name in names:
        folder = settings.out / name
        if settings.compute and not (folder / "summary.json").exists():
            study = headroom_linear.HeadroomLinear(sizes=(LINEAR[name],), out=folder)
            headroom_linear.run(
                study, console, command_line("windward run headroom", settings, Headroom())
            )
        if (folder / "summary.json").exists():
            summary = json.loads((folder / "summary.json").read_text())
            (found[name],) = summary["headroom"].values()
    return found


def _references(settings: Headroom, cases: list[str], console: Console) -> dict[str, Any]:
    """The best fixed M of each case where there is something to gain."""
    folder, found = settings.best or settings.out / "best_M", {}
    for name in cases:
        there = (folder / f"{name}.json").exists()
        if name in CASES and (settings.compute or there):
            command = command_line(
                f"windward run headroom --cases {name}", _only(settings), Headroom()
            )
            found[name] = search(
                name, settings.generations, folder, command, console, settings.max_steps,
                settings.first_step,
            )["M"]  # fmt: skip
    return found


def _only(settings: Headroom) -> Headroom:
    """The settings that a search depends on."""
    names = ("generations", "max_steps", "first_step")
    return Headroom(**{name: getattr(settings, name) for name in names})


def _tuned(
    settings: Headroom, cases: list[str], methods: list[str], console: Console
) -> dict[str, dict[str, dict[str, float]]]:
    """Case -> method -> the best point of its grid, by the mean return over the last episodes."""
    wanted = list(dict.fromkeys(EVERY[name].tuned_as or name for name in cases))
    jobs: dict[tuple[str, str], list[list[Job]]] = {}
    for name in wanted:
        case = EVERY[name]
        for method in methods:
            if METHODS[method].grid and METHODS[method].suits(case):
                episodes = METHODS[method].patience * (settings.episodes or case.episodes)
                jobs[name, method] = [
                    [Job(name, method, seed, episodes, settings.max_steps, True, point)
                     for seed in TUNE_SEEDS]
                    for point in METHODS[method].points(case)
                ]  # fmt: skip
    if settings.compute:
        every = [job for grid in jobs.values() for point in grid for job in point]
        make_all(every, settings.runs, settings.processes, console)
    tuned: dict[str, dict[str, dict[str, float]]] = {name: {} for name in wanted}
    for (name, method), grid in jobs.items():
        scores = []
        for point in grid:
            there = [stored(job, settings.runs) for job in point]
            if all(each is not None for each in there):
                last = [each["returns"][: job.episodes][-settings.last :]
                        for job, each in zip(point, there, strict=True) if each]  # fmt: skip
                scores.append((float(np.mean(last)), dict(point[0].numbers)))
        if scores:
            tuned[name][method] = max(scores, key=lambda each: each[0])[1]
    return {name: tuned[EVERY[name].tuned_as or name] for name in cases}


def _jobs(
    settings: Headroom,
    cases: list[str],
    methods: list[str],
    best: dict[str, Any],
    tuned: dict[str, dict[str, dict[str, float]]],
) -> list[Job]:
    jobs = []
    for name in cases:
        case = EVERY[name]
        usable = [
            method for method in methods
            if METHODS[method].suits(case)
            and (method != BEST or name in best)
            and (not METHODS[method].grid or method in tuned[name])
        ]  # fmt: skip
        one = settings.episodes or case.episodes
        patience = {method: METHODS[method].patience if case.gains else 1 for method in usable}

        def of(method: str, times: int, name: str = name, one: int = one) -> list[Job]:
            M = best[name] if method == BEST else None
            numbers = tuned[name].get(method, {})
            return [
                Job(name, method, seed, one * times, settings.max_steps, False, numbers, M)
                for seed in _seeds(settings)
            ]

        made = {each: of(each, patience[each]) for each in usable if each not in (BASE, BEST)}
        if not settings.compute:  # whoever was not run does not count
            made = {
                each: own for each, own in made.items()
                if all(stored(job, settings.runs) is not None for job in own)
            }  # fmt: skip
        # Base and best go as far as the most patient, whose episodes they are compared on.
        longest = max((patience[each] for each in made), default=1)
        for method in usable:
            jobs += made.get(method, of(method, longest) if method in (BASE, BEST) else [])
    return jobs


def _gather(jobs: list[Job], runs: Path) -> Gathered:
    """What there is of methods of which all seeds are there."""
    by: dict[tuple[str, str], list[tuple[Job, dict[str, Any] | None]]] = {}
    for job in jobs:
        by.setdefault((job.case, job.method), []).append((job, stored(job, runs)))
    found = Gathered({}, {}, {}, [])
    for (case, method), pairs in by.items():
        made = [(job, each) for job, each in pairs if each is not None]
        if len(made) < len(pairs):
            continue
        found.returns.setdefault(case, {})[method] = np.array(
            [each["returns"][: job.episodes] for job, each in made]
        )
        found.decisions[case, method] = [
            f"seed {job.seed}, {text}" for job, each in made for text in each["decisions"]
        ]
        found.still[case, method] = sum(each["M_norm"][job.episodes - 1] == 0 for job, each in made)
        found.rows.extend(
            {
                "case": case, "method": method, "seed": job.seed, "episode": number,
                "return": repr(float(each["returns"][number])), "length": each["lengths"][number],
                "clipped": each["clipped"][number], "M_norm": f"{each['M_norm'][number]:.6g}",
            }
            for job, each in made
            for number in range(job.episodes)
        )  # fmt: skip
    return found


def _numbers(returns: Returns, settings: Headroom) -> dict[str, dict[str, stats.Outcome]]:
    """Shares of the headroom, or losses; for cases whose base, and best, is there."""
    found: dict[str, dict[str, stats.Outcome]] = {}
    for case, by in returns.items():
        if BASE in by and (BEST in by or not EVERY[case].gains):
            found[case] = {
                method: stats.share(by[BASE], each, by[BEST], settings.last)
                if EVERY[case].gains
                else stats.loss(by[BASE], each)
                for method, each in by.items()
            }
    return found
