"""`headroom`: what each way of learning M captures of what there is to gain, and what it risks.

Shipped policies in winds (`cases`), base and methods (`methods`) on the same
held-out seeds, starts and winds. 1.0 is the best fixed M, found offline by a long search
(`offline`), or exactly on the linear systems, which are those of `headroom-linear`. Where
there is nothing to gain, what a method loses is told instead. Exploration is always counted.
"""

import json
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console

from windward import checks
from windward.atomic import prepare, write_rows
from windward.studies.headroom import figure as headroom_figure
from windward.studies.headroom import numbers as stats
from windward.studies.headroom import page as headroom_page
from windward.studies.headroom import plan as headroom_plan
from windward.studies.headroom.cases import CASES, EVERY, LINEAR, NOTHING, SIZES, TUNE_SEEDS
from windward.studies.headroom.methods import BASE, BEST, METHODS
from windward.studies.headroom.offline import search
from windward.studies.headroom.plan import Part
from windward.studies.headroom.runs import Job, Returns, gather, make_all, stored
from windward.studies.headroom.settings import IDENTITY, Headroom
from windward.studies.linear import computed, headroom_linear
from windward.studies.runs import execution, results
from windward.studies.runs.commands import command_line
from windward.studies.runs.store import commits
from windward.studies.runs.study_folder import claim, writing


def run(settings: Headroom, console: Console) -> dict[str, Any]:
    """Makes what is not there; writes episodes.csv, summary.json and report.html."""
    # The command that makes all of it, also where this call only writes down what there is.
    command = command_line("windward run headroom", replace(settings, compute=True), Headroom())
    size = SIZES[settings.scale]
    left_out = {name: size[name] for name in size if getattr(settings, name) in (None, ())}
    settings = replace(settings, **left_out)
    cases, methods = _checked(settings)
    execution.check(settings.how)
    if settings.dry_run:
        plan = _planned(settings, cases, methods)
        headroom_plan.show(plan, settings.how, headroom_linear.PACE, console)
        return {}
    out = claim(settings.out, {name: getattr(settings, name) for name in IDENTITY})
    runs = prepare(settings.runs)
    linear = _linear(settings, [name for name in cases if name in LINEAR], command, console)
    played = [name for name in cases if name in EVERY]
    best = _references(settings, played, console)
    tuned = _tuned(settings, played, methods, console)
    jobs = list(_jobs(settings, played, methods, best, tuned))
    if settings.compute:
        make_all(jobs, settings.how, console)
    made = gather(jobs, runs)
    found = _numbers(made.returns, settings)
    seeds = _seeds(settings)
    summary = {
        case: {method: stats.as_json(each, seeds) for method, each in by.items()}
        for case, by in found.items()
    }
    with writing(out):
        if made.rows:
            write_rows(out / "episodes.csv", made.rows)
        written = results.write_summary(
            out / "summary.json", command, settings,
            headroom={name: each for name, each in summary.items() if name in CASES},
            nothing={name: each for name, each in summary.items() if name in NOTHING},
            linear=linear, tuned=tuned, commits_of_runs=commits([job.run for job in jobs], runs),
        )  # fmt: skip
        headroom_figure.draw(found, out)
        headroom_page.write(
            out / "report.html", found, made.returns, made.decisions, made.still, linear, seeds,
            written,
        )  # fmt: skip
    for table in headroom_page.terminal(found, settings.last, len(seeds)):
        console.print(table)
    raw = f"   raw results: {out / 'episodes.csv'}" if made.rows else ""
    console.print(f"page: {out / 'report.html'}{raw}", highlight=False, soft_wrap=True)
    return written


def _planned(settings: Headroom, cases: list[str], methods: list[str]) -> list[Part]:
    """What would be run for each case; what is not tuned yet counts as not finished."""
    settings = replace(settings, compute=True)
    folder, parts = settings.best or settings.out / "best_M", []
    for name in (each for each in cases if each in EVERY):
        path, gains = folder / f"{name}.json", EVERY[name].gains
        M = json.loads(path.read_text())["M"] if path.exists() else None
        grids = _tuning(settings, [name], methods)
        known = _chosen(grids, settings)[EVERY[name].tuned_as or name]
        tuned = {method: known.get(method, {}) for method in METHODS}
        jobs = _jobs(settings, [name], methods, {name: M} if gains else {}, {name: tuned})
        tuning = [job for grid in grids.values() for point in grid for job in point]
        search = "-" if not gains else "there" if path.exists() else "to be searched for"
        generations = settings.generations if gains and M is None else 0
        runs, tuned_by = [job.run for job in jobs], [job.run for job in tuning]
        parts.append(Part(name, runs, tuned_by, search, generations))
    for name in (each for each in cases if each in LINEAR):
        usual, small = headroom_linear.HeadroomLinear(), headroom_linear.SMALL
        study = computed.sized(_linear_study(settings, name), usual, small)
        runs = headroom_linear.make_runs(study)
        parts.append(Part(name, runs, [], "exact", 0, linear=True))
    return parts


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
    for name in settings.methods:
        checks.choice("a method", name, tuple(METHODS))
    chosen = settings.methods or tuple(METHODS)
    return list(settings.cases), [name for name in METHODS if name in (BASE, BEST, *chosen)]


def _seeds(settings: Headroom) -> tuple[int, ...]:
    assert settings.seeds is not None
    return tuple(range(settings.first_seed, settings.first_seed + settings.seeds))


def _linear_study(settings: Headroom, name: str) -> headroom_linear.HeadroomLinear:
    return headroom_linear.HeadroomLinear(
        sizes=(LINEAR[name],), scale=settings.scale, out=settings.out / name,
        how=replace(settings.how, runs=settings.runs / "linear"),
    )  # fmt: skip


def _linear(settings: Headroom, names: list[str], command: str, console: Console) -> dict[str, Any]:
    """What `headroom-linear` found for systems of some sizes, each in a folder of its own."""
    found = {}
    for name in names:
        folder = settings.out / name
        if settings.compute:  # what is finished is not run again
            headroom_linear.run(_linear_study(settings, name), console, command)
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


Grids = dict[tuple[str, str], list[list[Job]]]
"""of a case and a method: the runs of each point"""


def _tuning(settings: Headroom, cases: list[str], methods: list[str]) -> Grids:
    """What is run to tune the methods that have a grid."""
    grids: Grids = {}
    for name in dict.fromkeys(EVERY[name].tuned_as or name for name in cases):
        case = EVERY[name]
        for method in methods:
            if METHODS[method].grid and METHODS[method].suits(case):
                episodes = METHODS[method].patience * (settings.episodes or case.episodes)
                grids[name, method] = [
                    [Job(name, method, seed, episodes, settings.max_steps, True, point)
                     for seed in TUNE_SEEDS]
                    for point in METHODS[method].points(case)
                ]  # fmt: skip
    return grids


def _chosen(grids: Grids, settings: Headroom) -> dict[str, dict[str, dict[str, float]]]:
    """Case -> method -> the best finished point, by the mean return over the last episodes."""
    tuned: dict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    for (name, method), grid in grids.items():
        scores = []
        for point in grid:
            there = [stored(job, settings.runs) for job in point]
            if all(each is not None for each in there):
                last = [each["returns"][: job.episodes][-settings.last :]
                        for job, each in zip(point, there, strict=True) if each]  # fmt: skip
                scores.append((float(np.mean(last)), dict(point[0].numbers)))
        if scores:
            tuned[name][method] = max(scores, key=lambda each: each[0])[1]
    return tuned


def _tuned(
    settings: Headroom, cases: list[str], methods: list[str], console: Console
) -> dict[str, dict[str, dict[str, float]]]:
    """The same by the names of all cases, after what is not finished was run."""
    grids = _tuning(settings, cases, methods)
    if settings.compute:
        every = [job for grid in grids.values() for point in grid for job in point]
        make_all(every, settings.how, console)
    chosen = _chosen(grids, settings)
    return {name: chosen[EVERY[name].tuned_as or name] for name in cases}


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
