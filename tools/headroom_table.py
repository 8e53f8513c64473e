"""Prints tables of docs/estimators.md from the results of `windward run headroom`.

    python tools/headroom_table.py docs/results/replays-now counterfactual heavy ...
    python tools/headroom_table.py docs/results/hopper-halfcheetah --change counterfactual ...

Shares of the headroom, or changes in percent, with --change or where no fixed M was found to be
better than none, with 95 % intervals and the worst seed. Base and best are over the last of a
case's usual episodes.
"""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from windward.studies.headroom.cases import EVERY


def number(value: float, digits: int) -> str:
    """Without a sign before 0."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def cell(found: dict[str, Any] | None, change: bool = False) -> str:
    """A method on a case."""
    if found is None:
        return "-"
    if found["mean"] is not None and not change:
        low, high = found["interval"]
        mean, low, high, worst = (
            number(each, 2) for each in (found["mean"], low, high, found["worst"])
        )
        return f"{mean} [{low}, {high}], {worst}"
    changes = (found["change"], *found["change_interval"], found["change_worst"])
    mean, low, high, worst = (number(100 * each, 1) for each in changes)
    return f"{'' if mean.startswith('-') else '+'}{mean} % [{low}, {high}], {worst}"


def main(folder: Path, methods: list[str], change: bool) -> None:
    """One table."""
    summary = json.loads((folder / "summary.json").read_text())
    last = summary["settings"]["last"]
    with (folder / "episodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    print(f"| case | base, best | {' | '.join(methods)} |")
    print("| --- |" + " --- |" * (len(methods) + 1))
    for case, by in summary["headroom"].items():
        end = EVERY[case].episodes
        means = [
            np.mean(
                [
                    float(row["return"])
                    for row in rows
                    if (row["case"], row["method"]) == (case, name)
                    and end - last <= int(row["episode"]) < end
                ]
            )
            for name in ("base", "best")
        ]
        cells = [cell(by.get(name), change) for name in methods]
        print(f"| {case} | {means[0]:.0f}, {means[1]:.0f} | {' | '.join(cells)} |")


if __name__ == "__main__":
    names = [name for name in sys.argv[2:] if name != "--change"]
    main(Path(sys.argv[1]), names, change="--change" in sys.argv)
