"""`diagnose`: how well `windward.diagnose` finds held-out changes.

Groups of changed worlds, each with what it shall reach: see `goals`. A run is one group on one
environment with a few seeds; every case of it is a row of runs.csv.
"""

import time
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from threadpoolctl import threadpool_limits

from windward import checks
from windward.studies import run as computed
from windward.studies.diagnosis import study_report
from windward.studies.diagnosis.cases import Case, cases
from windward.studies.diagnosis.goals import GROUPS
from windward.studies.diagnosis.measure import measure
from windward.studies.run import Computed, Plan
from windward.studies.spec import Pace, Run, Task

NAME = "diagnose"


@dataclass(frozen=True)
class DiagnoseStudy(Computed):
    """How well a diagnosis finds changed parameters, winds and their absence, on held-out cases."""

    groups: tuple[str, ...] = tuple(GROUPS)
    """groups of cases"""
    envs: tuple[str, ...] = ()
    """environments, where a group has them; all if left out"""
    seeds: int | None = None
    """seeds of each group; as many as its goal asks for if left out. The grid of rrls is whole with
    10"""
    first_seed: int = 2000
    """the first held-out seed; seeds below 1000 were used for tuning"""
    chunk: int = 3
    """seeds of a run, which begins anew after a stop"""
    most: int | None = None
    """cases of a run, at most; all if left out"""


SMALL: dict[str, Any] = {
    "envs": ("Hopper-v5", "InvertedPendulum-v5", "Swimmer-v5"), "seeds": 1, "most": 1,
}  # fmt: skip
"""what smoke changes"""


def own_cases(s: Any) -> list[Case]:
    """The cases of a run's settings."""
    found = [each for each in cases(s["group"], s["first"], s["count"]) if each.env == s["env"]]
    return found[: s["most"]]


def perform(task: Task) -> Pace:
    """Measures each case on one core."""
    began, rows = time.process_time(), []
    with threadpool_limits(1):
        for case in own_cases(task.run.settings):
            rows.append(measure(case))
            task.check()
    computed.leave(task, {"rows": rows})
    return Pace(len(rows), time.process_time() - began)


def make_runs(settings: DiagnoseStudy) -> list[Run]:
    """For each group and environment its seeds, a few at a time."""
    runs = []
    for group in settings.groups:
        count = GROUPS[group].seeds if settings.seeds is None else settings.seeds
        known = dict.fromkeys(case.env for case in cases(group, settings.first_seed, 1))
        for env in (env for env in known if env in (settings.envs or known)):
            for first in range(0, count, settings.chunk):
                chosen: dict[str, Any] = {
                    "kind": NAME, "method": f"{group} {env}", "group": group, "env": env,
                    "first": settings.first_seed + first,
                    "count": min(settings.chunk, count - first), "most": settings.most,
                }  # fmt: skip
                chosen["T"] = len(own_cases(chosen))
                label = f"{NAME} {group} {env} {chosen['first']}"
                runs.append(Run(label, chosen, chosen["T"], perform))
    return runs


def run(settings: DiagnoseStudy, console: Console) -> dict[str, Any]:
    """Does what is not finished; writes runs.csv, summary.json, figure and page."""
    command = computed.command_of(NAME, settings, DiagnoseStudy())
    settings = computed.sized(settings, DiagnoseStudy(), SMALL)
    _check(settings)
    runs = make_runs(settings)
    if not runs:
        raise ValueError(f"no group of {settings.groups} has cases on {settings.envs}")
    seconds = sum(each.goal * GROUPS[each.settings["group"]].seconds for each in runs)
    pace = sum(each.goal for each in runs) / seconds
    plan = Plan(NAME, settings, runs, command, pace, free=("seeds",))
    found = computed.compute(plan, console)
    if found is None:
        return {}
    done, outcome = found
    # Each case stands for itself: a part of them is shown as what it is.
    outcome.raise_for(len(runs), settings.how.runs)
    return study_report.write(plan, done, console)


def _check(settings: DiagnoseStudy) -> None:
    unknown = [name for name in settings.groups if name not in GROUPS]
    if unknown or not settings.groups:
        raise ValueError(f"groups must be of {', '.join(GROUPS)}; got {settings.groups}")
    for name in ("seeds", "most", "chunk"):
        if getattr(settings, name) is not None:
            checks.integer(name, getattr(settings, name), 1)
    checks.integer("first_seed", settings.first_seed, 0)
