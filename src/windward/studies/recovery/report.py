"""What `recovery` leaves: shares of the lost return per case and learner, a figure, a page."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Terminal

from windward.atomic import write_rows
from windward.figures import panels, save
from windward.studies import run as computed
from windward.studies.recovery.cases import CASES, WITHIN, Case
from windward.studies.report import Section, Table, Text
from windward.studies.run import Plan, Result
from windward.studies.runs.study_folder import writing
from windward.studies.spec import SMOKE
from windward.studies.stats import Interval, student_interval

POLICIES = ("nominal", "base", "adapted")
PARTS = {"first": "first episode", "later": "later episodes"}
LEAST = 0.02
"""share of the nominal return that the base policy must lose on a seed for a share of it to mean
anything"""
SHOWN = (-0.5, 1.5)
"""shares within which the figure is drawn"""


class Part(NamedTuple):
    """The first episode, or all later ones: means over seeds, and the worst seed."""

    nominal: float
    base: float
    adapted: float
    recovered: Interval | None
    """share of the lost return, over the seeds that lost some; None if none did"""
    seeds: int
    """how many did"""
    worst: float | None
    worst_seed: int | None
    lost: float
    """percent of the base policy's return that the worst seed loses; negative for a gain"""
    lost_seed: int
    goal: float | None
    held: bool | None
    """whether the goal is reached; None where there is none"""


class Score(NamedTuple):
    """One case with one learner."""

    case: str
    learner: str
    first: Part
    later: Part
    exact: bool
    """whether every executed action was the base action bit for bit"""
    held: bool | None
    slowest: float
    supervisor: float | None
    step_ms: float
    base_ms: float
    phases: list[str]


def part(
    case: Case, goal: float | None, each: bool, seeds: Sequence[int],
    returns: Mapping[str, np.ndarray],
) -> Part:  # fmt: skip
    """Of returns (seeds, episodes) by policy."""
    nominal, base, adapted = (np.asarray(returns[name]).mean(axis=1) for name in POLICIES)
    missing = nominal - base
    known = np.flatnonzero(missing > LEAST * np.abs(nominal))
    lost = 100 * (base - adapted) / np.maximum(np.abs(base), 1e-9)
    recovered = worst = worst_seed = held = None
    if len(known):
        share = (adapted - base)[known] / missing[known]
        recovered, lowest = student_interval(share), int(share.argmin())
        worst, worst_seed = float(share[lowest]), seeds[known[lowest]]
        if goal is not None:  # goals have two digits
            held = round(worst if each else recovered.value, 2) >= goal
    elif goal is not None:
        held = bool(lost.max() <= WITHIN)
    if case.limit is not None:
        goal, held = None, bool(lost.max() <= case.limit)
    return Part(
        float(nominal.mean()), float(base.mean()), float(adapted.mean()), recovered, len(known),
        worst, worst_seed, float(lost.max()), seeds[int(lost.argmax())], goal, held,
    )  # fmt: skip


def score(name: str, learner: str, contents: Mapping[int, Mapping[str, Any]]) -> Score:
    """Of what the run of each seed left."""
    case, seeds = CASES[name], list(contents)
    returns = {
        policy: np.array([
            [row["return"] for row in each["rows"] if row["policy"] == policy]
            for each in contents.values()
        ])
        for policy in POLICIES
    }  # fmt: skip
    first = part(case, case.first, False, seeds, {k: v[:, :1] for k, v in returns.items()})
    later = part(
        case, case.later, case.each, seeds, {k: v[:, case.since :] for k, v in returns.items()}
    )
    own = list(contents.values())
    exact = all(each["exact"] for each in own)
    judged = [each.held for each in (first, later) if each.held is not None]
    held = all(judged) and (exact or not case.exact) if judged else None
    spent = [each["supervisor"] for each in own if each["supervisor"] is not None]
    return Score(
        name, learner, first, later, exact, held, max(each["slowest"] for each in own),
        max(spent, default=None), float(np.median([each["step_ms"] for each in own])),
        float(np.median([each["base_ms"] for each in own])), [each["phase"] for each in own],
    )  # fmt: skip


def scores(done: Sequence[Result]) -> list[Score]:
    """For each case and learner, in the order of the runs."""
    groups: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for each in done:
        s = each.run.settings
        groups.setdefault((s["case"], s["learner"]), {})[s["seed"]] = each.content
    return [score(*key, contents) for key, contents in groups.items()]


def write(plan: Plan, done: Sequence[Result], console: Console) -> dict[str, Any]:
    """All files, from runs that are all finished."""
    found = scores(done)
    rows = [
        {**{name: each.run.settings[name] for name in ("case", "learner", "seed")}, **row}
        for each in done
        for row in each.content["rows"]
    ]
    console.print(_terminal(found))
    with writing(plan.out):
        save(_figure(found), plan.out, plan.name)
        write_rows(plan.out / "runs.csv", rows)
        return computed.write(
            plan, done, "what a changed world costs, and what comes back",
            "How much of a lost return does RobustWrapper recover, and does it ever harm?",
            _found(found, plan.settings), _sections(found, done), console,
            scores=[_json(each) for each in found], decisions=_decisions(done),
        )  # fmt: skip


def _json(each: Score) -> dict[str, Any]:
    def plain(one: Part) -> dict[str, Any]:
        return one._asdict() | {"recovered": one.recovered and one.recovered._asdict()}

    return each._asdict() | {"first": plain(each.first), "later": plain(each.later)}


def _decisions(done: Sequence[Result]) -> list[dict[str, Any]]:
    return [
        {**{name: each.run.settings[name] for name in ("case", "learner", "seed")},
         **{name: each.content[name] for name in ("phase", "decisions", "faults")}}
        for each in done
    ]  # fmt: skip


def _found(found: Sequence[Score], settings: Any) -> str:
    judged = [each for each in found if each.held is not None]
    missed = [f"{each.case} ({each.learner})" for each in judged if not each.held]
    said = f"{len(judged) - len(missed)} of {len(judged)} rows reach their goals"
    said += f"; not: {', '.join(missed)}." if missed else "."
    return f"{SMOKE} {said}" if settings.scale == "smoke" else said


def _yes(held: bool | None) -> str | None:
    return None if held is None else "yes" if held else "no"


def _share(one: Part) -> str | None:
    if one.recovered is None:
        return None
    return f"{one.recovered:.2f}" if one.seeds > 1 else f"{one.recovered.value:.2f}"


def _worst(one: Part) -> str | None:
    return None if one.worst is None else f"{one.worst:.2f} (seed {one.worst_seed})"


def _lost(one: Part) -> str:
    return f"{one.lost:.2f} (seed {one.lost_seed})"


def _split(found: Sequence[Score]) -> tuple[list[Score], list[Score]]:
    """Where a return is lost, and where nothing is to be gained."""
    harmless = [each for each in found if CASES[each.case].limit is not None]
    return [each for each in found if each not in harmless], harmless


def _sections(found: Sequence[Score], done: Sequence[Result]) -> list[Section]:
    lossy, harmless = _split(found)
    halves = [(each, name, getattr(each, name)) for each in lossy for name in PARTS]
    return [
        Table("Recovered", ("case", "learner", "episodes", "nominal", "base", "adapted",
                            "recovered", "goal", "held", "worst seed", "seeds with a loss",
                            "most lost against base, %"),
              [[each.case, each.learner, PARTS[name], one.nominal, one.base, one.adapted,
                _share(one), one.goal, _yes(one.held), _worst(one), one.seeds, _lost(one)]
               for each, name, one in halves],
              "recovered = (adapted - base) / (nominal - base) per seed; mean over seeds with "
              "Student's 95 % interval. On InvertedPendulum the goal of later episodes is for "
              "every seed."),
        Table("Never harm", ("case", "learner", "base", "adapted", "lost in the first episode, %",
                             "lost later, %", "may lose, %", "base action bit for bit",
                             "must be", "held"),
              [[each.case, each.learner, each.later.base, each.later.adapted, _lost(each.first),
                _lost(each.later), CASES[each.case].limit, _yes(each.exact),
                "yes" if CASES[each.case].exact else None, _yes(each.held)]
               for each in harmless],
              "lost: (base - adapted) / |base| of the worst seed. Returns are those of later "
              "episodes."),
        Table("Time", ("case", "learner", "slowest step, s", "supervisor, s", "step, ms",
                       "environment alone, ms", "phase at the end"),
              [[each.case, each.learner, each.slowest, each.supervisor, each.step_ms, each.base_ms,
                ", ".join(each.phases)] for each in found],
              "Wall time of one core: the slowest step and the supervisor of the worst seed; the "
              "median step. The supervisor diagnoses, simulates and searches."),
        Table("Decisions", ("case", "learner", "seed", "decisions"),
              [[each["case"], each["learner"], str(each["seed"]),
                " | ".join(each["decisions"]) or None] for each in _decisions(done)]),
        Text("How it is judged", [
            "All policies meet the same starts and winds; seeds and phases are held out. Nominal "
            "is the base policy in the world as trained, without wind.",
            f"Seeds on which the base policy loses less than {LEAST:.0%} of the nominal return "
            "have nothing to recover, and are left out of the shares; they count in returns and "
            f"in what is lost. Without any other seed a goal is held if at most {WITHIN:g} % of "
            "the base policy's return is lost.",
            "Raw results: runs.csv has every episode.",
        ]),
    ]  # fmt: skip


def _terminal(found: Sequence[Score]) -> Terminal:
    table = Terminal(title="Recovered share of the lost return", caption=escape("[ ]: 95 %"))
    for column in ("case", "learner", "first", "goal", "later", "goal", "worst seed",
                   "most lost, %", "bits", "held"):  # fmt: skip
        table.add_column(column)
    for each in found:
        a, b = each.first, each.later
        goals = ["" if one.goal is None else f"{one.goal:g}" for one in (a, b)]
        cells = (each.case, each.learner, _share(a), goals[0], _share(b), goals[1], _worst(b),
                 f"{max(a.lost, b.lost):.2f}", _yes(each.exact), _yes(each.held))  # fmt: skip
        table.add_row(*(escape(cell or "") for cell in cells))
    return table


def _figure(found: Sequence[Score]) -> Any:
    """Of each case the recovered share by learner with its interval, and the goal as a tick."""
    lossy, _ = _split(found)
    cases = list(dict.fromkeys(each.case for each in lossy))[::-1]
    learners = list(dict.fromkeys(each.learner for each in lossy))
    figure, both = panels(2, width=6.0, height=1.2 + 0.32 * len(cases))
    for axes, (name, words) in zip(both, PARTS.items(), strict=True):
        for each in lossy:
            one, i = getattr(each, name), learners.index(each.learner)
            y = float(cases.index(each.case))
            if one.goal is not None:
                axes.plot(one.goal, y, "|", color="black", ms=16)
            if one.recovered is not None:
                y += 0.18 * ((len(learners) - 1) / 2 - i)
                value, low, high = np.clip(one.recovered, *SHOWN)
                axes.plot([low, high], [y, y], color=f"C{i}")
                axes.plot(value, y, "o", color=f"C{i}", ms=4)
        axes.set_yticks(range(len(cases)), cases if axes is both[0] else [""] * len(cases))
        axes.set(xlabel=f"recovered share, {words}; black: goal", xlim=SHOWN)
    for i, learner in enumerate(learners):
        both[0].plot([], [], "o-", color=f"C{i}", label=learner)
    if learners:
        both[0].legend(loc="best", fontsize=8)
    return figure
