"""Runs that cost nothing, for the tests of what keeps and does runs."""

import json
import os
import time
from pathlib import Path
from typing import Any

from windward.atomic import write_rows, write_text
from windward.studies.spec import Pace, Run, Task


def counting(task: Task) -> Pace:
    """y_k = 7·y_{k-1} + seed mod 1000, a checkpoint at every tenth step; what befalls it is set.

    `pause` seconds for each step; `fail` raises at a step, `wait` waits there for a file.
    """
    settings, state = task.run.settings, task.folder / "state.json"
    step, y, rows = 0, 1, []
    if state.exists():
        step, y, rows = json.loads(state.read_text())
    began = step
    with (task.folder / "starts.txt").open("a") as file:
        file.write(f"{os.getpid()} from {step}\n")
    while step < task.run.goal:
        step, y = step + 1, (7 * y + settings["seed"]) % 1000
        if settings.get("fail") == step:
            raise settings.get("error", RuntimeError)(f"it failed at step {step}")
        while settings.get("wait") == step and not Path(settings["file"]).exists():
            (Path(settings["file"]).parent / f"waiting-{settings['seed']}").touch()
            task.check()
            time.sleep(0.01)
        if step % 10 == 0:
            rows.append({"steps": step, "eval_return": y})
            write_rows(task.folder / "curves.csv", rows)
            write_text(state, json.dumps([step, y, rows]))
    return Pace(step - began, 1.0)


def run(seed: int, goal: int = 50, **changes: Any) -> Run:
    return Run(f"count seed{seed}", {"seed": seed, **changes}, goal, counting)


def starts(folder: Path) -> list[str]:
    """Where the run was begun from, each time."""
    lines = (folder / "starts.txt").read_text().splitlines()
    return [line.partition(" from ")[2] for line in lines]
