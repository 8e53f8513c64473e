"""What a study would run and what that costs: --dry-run."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import median

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.table import Table

from windward.studies.paper.groups import Group, Size
from windward.studies.runs import execution, store
from windward.studies.spec import Execution, Run

PROCESS = 850 * 2**20
"""bytes of a process before its replay: Python, JAX, MuJoCo and compiled programs"""


@cache
def _sizes(env: str) -> tuple[int, int]:
    """(d_x, d_u) of an environment."""
    made = gym.make(env)
    shapes = made.observation_space.shape or (1,), made.action_space.shape or (1,)
    made.close()
    return int(np.prod(shapes[0])), int(np.prod(shapes[1]))


def replay(run: Run) -> int:
    """Bytes of its replay at the end, which is also what its checkpoint takes on disk."""
    agent = run.settings.get("agent")
    if agent is None:
        return 0
    d_x, d_u = _sizes(run.settings["env"])
    robust = agent.get("robust", {})
    d_w = d_x if robust.get("signal") == "pd2" and robust.get("form") == "vector_head" else 0
    return 4 * min(run.goal, agent["replay_size"]) * (2 * d_x + d_u + 2 + d_w)


def memory(run: Run) -> int:
    """Bytes that a run needs."""
    return PROCESS + replay(run)


def speed(root: Path, alike: Sequence[Run]) -> float | None:
    """Steps a second of one core, the median of finished runs; None if none is finished."""
    found = [store.mark(each, root) for each in alike]
    paces = [each.pace for each in found if each is not None and each.pace.seconds > 0]
    return median(pace.units / pace.seconds for pace in paces) if paces else None


def left(group: Group, rivals: int, size: Size, root: Path) -> int:
    """Steps that a group still needs; where only the best is shown, its part of those."""
    judged, shown = (
        sum(run.goal - store.reached(run, root) for run in runs)
        for runs in (group.judged, group.shown)
    )
    if not size.all_groups and group.judged:
        shown = round(shown / rivals)
    return judged + shown


def show(groups: Sequence[Group], size: Size, how: Execution, study: str, console: Console) -> None:
    """Prints the plan: groups, runs, what is finished, and the time and memory of the rest."""
    table = Table(title=f"{study}: what would be run")
    for column in ("group", "to choose", "to show", "steps each", "finished", "steps/s", "hours"):
        table.add_column(column, justify="left" if column == "group" else "right")
    hours, disk, largest, unknown = 0.0, 0, 0, []
    methods = [group.method for group in groups]
    for group in groups:
        alike = [
            run
            for each in groups
            if each.method == group.method
            for run in each.shown + each.judged
        ]
        rate, every = speed(how.runs, alike), [*group.judged, *group.shown]
        mine = left(group, methods.count(group.method), size, how.runs)
        if rate is not None:
            hours += mine / rate / 3600
        elif mine:
            unknown.append(group.method)
        disk += sum(replay(run) for run in every)
        largest = max(largest, *(memory(run) for run in every))
        done = sum(store.finished(run, how.runs) is not None for run in every)
        known = ("–", "–") if rate is None else (f"{rate:.0f}", f"{mine / rate / 3600:.1f}")
        table.add_row(
            group.name, str(len(group.judged)), str(len(group.shown)), f"{group.goal:,}",
            f"{done} of {len(every)}", *known,
        )  # fmt: skip
    console.print(table)
    jobs = execution.at_once(how, max(1, largest))
    if not size.all_groups and any(group.judged for group in groups):
        console.print("of each method only the group that does best on the first is shown; hours "
                      "are shared out evenly")  # fmt: skip
    told = f"{hours:.1f} core-hours (by finished runs); "
    local = how.backend == "local"
    told += f"{hours / jobs:.1f} hours with {jobs} at once" if local else "as Ray tasks"
    if unknown:
        names = ", ".join(dict.fromkeys(unknown))
        told = f"what {names} take is known once a run is finished (`windward list` has the usual "
        told += f"time at laptop scale); {jobs} at once"
    console.print(
        f"{told}; {largest / 2**30:.1f} GiB of memory each; up to {disk / 2**30:.1f} GiB of disk "
        f"in {how.runs}",
        highlight=False,
    )
