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
HOPPER = "windward/NoisyHopper-v0"
SPEEDS: dict[str, dict[str | None, float]] = {
    HOPPER: {None: 575.0, "pd1": 544.0, "pd2": 464.0, "pd3": 479.0},
    "Hopper-v5": {None: 584.0, "pd2": 491.0},
    "windward/NoisyWalker2d-v0": {None: 605.0, "pd2": 510.0, "pd3": 496.0},
    "windward/NoisyAnt-v0": {None: 470.0, "pd2": 408.0, "pd3": 436.0},
    "windward/NoisyHalfCheetah-v0": {None: 639.0, "pd1": 425.0},
    "windward/SinePendulum-v0": {None: 626.0, "pd3": 514.0},
    "windward/FGSMPendulum-v0": {None: 640.0, "pd3": 598.0},
}
"""steps in a second of one core, by environment and signal: medians over finished runs in
docs/results/training, all of one kind of machine; a later one was up to twice as fast"""


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


def signal_of(run: Run) -> str | None:
    """The pseudo-disturbance of a run; None of a baseline."""
    robust = run.settings.get("agent", {}).get("robust", run.settings)
    signal: str | None = robust.get("signal")
    return signal


def speed(run: Run, root: Path, alike: Sequence[Run]) -> tuple[float, str]:
    """(steps a second of one core, where that is known from): finished runs like it, or Hopper."""
    found = [store.finished(each, root) for each in alike]
    timed = [each.pace for each in found if each is not None and each.pace.seconds > 0]
    if timed:
        return median(pace.units / pace.seconds for pace in timed), "finished runs"
    if "agent" not in run.settings:
        return 2.0, "a guess"
    env, signal = run.settings["env"], signal_of(run)
    if signal in SPEEDS.get(env, {}):
        return SPEEDS[env][signal], "measured"
    return SPEEDS[HOPPER][signal], "Noisy Hopper's: a guess"


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
    hours, disk, largest, sources = 0.0, 0, 0, set()
    methods = [group.method for group in groups]
    for group in groups:
        alike = [
            run
            for each in groups
            if each.method == group.method
            for run in each.shown + each.judged
        ]
        rate, source = speed(group.shown[0], how.runs, alike)
        sources.add(source)
        every = [*group.judged, *group.shown]
        rivals = methods.count(group.method)
        mine = left(group, rivals, size, how.runs) / rate / 3600
        hours += mine
        disk += sum(replay(run) for run in every)
        largest = max(largest, *(memory(run) for run in every))
        done = sum(store.finished(run, how.runs) is not None for run in every)
        table.add_row(
            group.name, str(len(group.judged)), str(len(group.shown)), f"{group.goal:,}",
            f"{done} of {len(every)}", f"{rate:.0f}", f"{mine:.1f}",
        )  # fmt: skip
    console.print(table)
    jobs = execution.at_once(how, max(1, largest))
    if not size.all_groups and any(group.judged for group in groups):
        console.print("of each method only the group that does best on the first is shown; hours "
                      "are shared out evenly")  # fmt: skip
    console.print(
        f"{hours:.1f} core-hours (steps/s: {', '.join(sorted(sources))}); "
        + (f"{hours / jobs:.1f} hours with {jobs} at once" if how.backend == "local" else "as Ray "
           "tasks")
        + f"; {largest / 2**30:.1f} GiB of memory each; up to {disk / 2**30:.1f} GiB of disk in "
        f"{how.runs}",
        highlight=False,
    )  # fmt: skip
