"""What diagnoses shall reach on each group of cases, and how far rows of cases come."""

from collections.abc import Mapping, Sequence
from math import inf
from statistics import median
from typing import Any, NamedTuple

import scipy.stats

from windward.studies.diagnosis.cases import SPATIAL


class Goal(NamedTuple):
    """A number of each case that shall not be above a bound, in a share of all cases."""

    measure: str
    """column of a row; where it has none the case is outside of the bound"""
    bound: float
    least: float = 1.0
    """share of cases that must be within the bound"""
    most: float = 1.0
    """share that may be; intervals that always hold the truth are too wide"""
    envs: tuple[str, ...] = ()
    """where it is asked for; everywhere in the group if left out"""


class Group(NamedTuple):
    """How much of a group is run, and what it shall reach."""

    seeds: int
    seconds: float
    """that a case takes on one core, about"""
    shows: str
    goals: tuple[Goal, ...]


QUICK = Goal("seconds", 3.0)
GROUPS: Mapping[str, Group] = {
    "single": Group(30, 1.0, "one mass, friction, gain or damping", (Goal("error", 0.01), QUICK)),
    "pairs": Group(30, 1.0, "two of them", (Goal("error", 0.01), QUICK)),
    "all": Group(30, 1.6, "all of them", (Goal("error", 0.01), QUICK)),
    "spatial": Group(
        15, 4.0, "one or two, random smooth actions",
        (Goal("error", 0.02), Goal("seconds", 15.0, envs=SPATIAL[:2])),
    ),
    "wind": Group(
        15, 8.0, "none or one, and a sinusoidal force",
        (
            Goal("error", 0.02), Goal("misplaced", 0), Goal("size_error", 0.03),
            Goal("period_error", 0.03),
        ),
    ),
    "action-noise": Group(
        30, 9.0, "one, uniform noise of 0.05 on actions", (Goal("error", 0.03),)
    ),
    "state-noise": Group(
        30, 13.0, "all masses or gains, Gaussian noise of 0.01 on observed states",
        (Goal("mass_error", 0.05), Goal("gain_error", 0.05)),
    ),
    "rrls": Group(
        10, 4.0, "friction and torso mass, the grid of RRLS", (Goal("error", 0.05, 0.95),)
    ),
    "nothing": Group(
        10, 9.0, "nothing, with and without noise and wind", (Goal("reported", 0),)
    ),
    "coverage": Group(34, 20.0, "one, four kinds of noise", (Goal("missed", 0, 0.90, 0.99),)),
    "early": Group(30, 1.0, "one, seen for 50 steps", (Goal("wrong_kind", 0, 0.90),)),
    "foreign": Group(
        6, 9.0, "a stuck joint, softer contacts, a longer foot",
        (Goal("explained", 0.9), Goal("reported", 0, 0.95)),
    ),
}  # fmt: skip
"""the section "It must show" as data: `foreign` may explain 90 % at most, and report nothing"""


class Score(NamedTuple):
    """How many cases are within a bound, and which is worst."""

    group: str
    env: str
    """"" for all of the group"""
    goal: Goal
    cases: int
    share: float
    low: float
    """of the share's 95 % interval, Wilson's"""
    high: float
    median: float
    worst: float
    """infinite where a case has no such number"""
    worst_case: str
    median_seconds: float
    worst_seconds: float
    unseen: int
    """cases with a change that was called not seen: no error, but not found either"""

    @property
    def held(self) -> bool:
        """Whether the goal is reached."""
        return self.goal.least <= self.share <= max(self.goal.most, self.goal.least)


def score(group: str, env: str, goal: Goal, rows: Sequence[Mapping[str, Any]]) -> Score:
    """Of rows, at least one, by Wilson's interval."""

    def numbers(measure: str) -> list[float]:
        return [inf if row[measure] is None else float(row[measure]) for row in rows]

    values, seconds = numbers(goal.measure), numbers("seconds")
    within = sum(value <= goal.bound for value in values)
    interval = scipy.stats.binomtest(within, len(rows)).proportion_ci(method="wilson")
    worst = rows[values.index(max(values))]
    return Score(
        group, env, goal, len(rows), within / len(rows), float(interval.low), float(interval.high),
        median(values), max(values), said(worst), median(seconds), max(seconds),
        sum(bool(row["unseen"]) for row in rows),
    )  # fmt: skip


def said(row: Mapping[str, Any]) -> str:
    """A case in words: what it takes to find it in runs.csv, and what changed."""
    parts = [row["env"], f"seed {row['seed']}", row["foreign"], row["wind"], row["changes"]]
    return ", ".join(str(part) for part in parts if part and part != "{}")


def scores(rows: Sequence[Mapping[str, Any]]) -> list[Score]:
    """For each group that has rows and each of its goals: all of them, then each environment."""
    found = []
    for name, group in GROUPS.items():
        for goal in group.goals:
            own = [
                row for row in rows
                if row["group"] == name and row["env"] in (goal.envs or (row["env"],))
            ]  # fmt: skip
            envs = list(dict.fromkeys(row["env"] for row in own))
            for env in ("", *envs) if own else ():
                some = [row for row in own if env in ("", row["env"])]
                found.append(score(name, env, goal, some))
    return found
