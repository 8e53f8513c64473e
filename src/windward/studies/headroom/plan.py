"""What `headroom` would run and what that costs: --dry-run."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import gymnasium as gym
from rich.console import Console
from rich.table import Table

from windward.studies.evaluation.loading import make_env
from windward.studies.headroom.cases import EVERY
from windward.studies.headroom.runs import KIND, MEMORY
from windward.studies.linear import computed
from windward.studies.runs import execution
from windward.studies.runs.execution import Execution
from windward.studies.runs.store import Run, finished

REPLAYS = ("counterfactual", "heavy", "light", "learned")
"""methods that replay what was met in a simulator, which is most of what they cost"""
STEP = {
    "Pendulum-v1": (0.0003, 0.0035), "InvertedPendulum-v5": (0.0004, 0.025),
    "CartPole-v1": (0.0004, 0.004), "Hopper-v5": (0.0006, 0.06), "HalfCheetah-v5": (0.0005, 0.04),
}  # fmt: skip
"""seconds of one core for a step, without replays and with them; of linear systems as Pendulum's"""
SEARCHED = 5_000.0
"""steps of a second when the best fixed M is searched for, by 12 candidates in 8 episodes each"""
GENERATION = 12 * 8


class Part(NamedTuple):
    """A case: its runs, those that tune before, and whether its best M is known."""

    name: str
    runs: Sequence[Run]
    tuning: Sequence[Run]
    search: str
    generations: int
    """that the search for its best M may take; 0 if there is none to be made"""
    linear: bool = False


def show(parts: Sequence[Part], how: Execution, pace: float, console: Console) -> None:
    """Prints the plan; `pace` is of linear studies. Falls make episodes, and times, shorter."""
    table = Table("case", "runs", "finished", "to tune", "finished", "best M", "core-hours",
                  title=KIND)  # fmt: skip
    total = 0.0
    for part in parts:
        here = replace(how, runs=how.runs / "linear") if part.linear else how
        done = [
            sum(finished(run, here.runs) is not None for run in runs)
            for runs in (part.runs, part.tuning)
        ]
        left = [run for run in (*part.runs, *part.tuning) if finished(run, here.runs) is None]
        seconds = sum(_seconds(run, pace) for run in left)
        if part.generations:
            seconds += part.generations * GENERATION * _steps(part.name, None) / SEARCHED
        total += seconds / 3600
        table.add_row(
            part.name, str(len(part.runs)), str(done[0]), str(len(part.tuning)), str(done[1]),
            part.search, f"{seconds / 3600:.2f}",
        )  # fmt: skip
    console.print(table)
    jobs = execution.at_once(how, MEMORY)
    where = f"{total / jobs:.2f} hours with {jobs} at once" if how.backend == "local" else "on Ray"
    console.print(
        f"up to {total:.2f} core-hours, by measured speeds and if no episode ends early; {where}; "
        f"up to {MEMORY / 2**30:.0f} GiB of memory each",
        highlight=False,
    )


@cache
def _steps(case: str, most: int | None) -> int:
    """Steps of its longest episode."""
    env: gym.Env = make_env(EVERY[case].env, most)
    limit = env.spec.max_episode_steps if env.spec else None
    env.close()
    return most or limit or 1_000


def _seconds(run: Run, pace: float) -> float:
    """Of one core, as an estimate."""
    s = run.settings
    if s["kind"] != KIND:
        return computed.START + computed.work(s) / pace
    alone, replays = STEP.get(s["env"], STEP["Pendulum-v1"])
    step = replays if s["method"] in REPLAYS else alone
    return computed.START + run.goal * _steps(s["case"], s["max_steps"]) * step
