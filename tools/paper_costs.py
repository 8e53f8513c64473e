"""Prints the table of docs/studies.md: what the paper's scale costs, by measured speeds.

python tools/paper_costs.py
"""

from dataclasses import replace
from pathlib import Path

from windward.studies.paper import planning
from windward.studies.paper import training as robust_training
from windward.studies.paper.groups import size_of
from windward.studies.paper.trainings import ENTRIES

NOWHERE = Path("/nonexistent")
"""as if nothing had been run yet"""


def main() -> None:
    """One row for each study, then what all cost together, each run counted once."""
    every: dict[str, float] = {}
    for name, entry in ENTRIES.items():
        settings = replace(entry.default, scale="paper")
        groups = robust_training.make_groups(settings, size_of(settings, entry))
        runs = [run for group in groups for run in (*group.judged, *group.shown)]
        hours = [run.goal / planning.speed(run, NOWHERE, [])[0] / 3600 for run in runs]
        base, ours = (
            sum(
                each
                for run, each in zip(runs, hours, strict=True)
                if (planning.signal_of(run) is None) == alone
            )
            for alone in (True, False)
        )
        memory = max(planning.memory(run) for run in runs) / 2**30
        print(f"| `{name}` | {len(runs)} | {base:.0f} | {ours:.0f} | {memory:.1f} GiB |")
        for run, each in zip(runs, hours, strict=True):
            every[run.name] = max(each, every.get(run.name, 0.0))
    print(f"all together {sum(every.values()):,.0f} core-hours")


if __name__ == "__main__":
    main()
