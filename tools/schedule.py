"""Prints the schedule of docs/results/README.md: what the trainings took, and had been planned for.

python tools/schedule.py

A row for each environment and method, as studies share runs: how many, the steps of the longest,
the core-hours that the measured speeds of tools/paper_costs.py plan for them, and what they took,
by the pace in the finished marks of docs/results/training/runs.tar.gz.
"""

import json
import runpy
import tarfile
from collections import defaultdict
from pathlib import Path
from typing import Any

SPEEDS = runpy.run_path(str(Path(__file__).with_name("paper_costs.py")))["SPEEDS"]
ARCHIVE = Path(__file__).parents[1] / "docs" / "results" / "training" / "runs.tar.gz"


def runs() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Settings and finished mark of every run."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            folder, _, name = member.name.rpartition("/")
            file = archive.extractfile(member) if name.endswith(".json") else None
            if file is not None:
                found[folder][name] = json.load(file)
    return [(each["settings.json"]["settings"], each["finished.json"]) for each in found.values()]


def main() -> None:
    """One row for each, then the sums."""
    groups: dict[tuple[str, str | None], list[dict[str, Any]]] = defaultdict(list)
    for settings, done in runs():
        signal = settings["agent"].get("robust", {}).get("signal")
        groups[settings["env"], signal].append(done)
    plans = spent = 0.0
    for (env, signal), marks in sorted(groups.items(), key=lambda item: (item[0][0], str(item[0]))):
        plan = sum(done["goal"] for done in marks) / SPEEDS[env][signal] / 3600
        # What was gone on with was timed from there on.
        paces = [(done["goal"], *done["pace"]) for done in marks if done["pace"][1]]
        took = sum(goal * seconds / units for goal, units, seconds in paces) / 3600
        plans, spent = plans + plan, spent + took
        method = "baseline" if signal is None else f"MF-GPC {signal.upper()}"
        most = max(done["goal"] for done in marks)
        name = env.rpartition("/")[2]
        print(f"| {name} | {method} | {len(marks)} | {most:,} | {plan:.1f} | {took:.1f} |")
    count = sum(map(len, groups.values()))
    print(f"| all | | {count} | | {plans:.1f} | {spent:.1f} |")


if __name__ == "__main__":
    main()
