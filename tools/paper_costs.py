"""Prints the table of docs/studies.md: what the paper's scale costs, by measured speeds.

python tools/paper_costs.py
"""

from dataclasses import replace

from windward.studies.paper import planning
from windward.studies.paper import training as robust_training
from windward.studies.paper.groups import size_of
from windward.studies.paper.trainings import ENTRIES
from windward.studies.spec import Run

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


def signal_of(run: Run) -> str | None:
    """The pseudo-disturbance of a run; None of a baseline."""
    signal: str | None = run.settings["agent"].get("robust", {}).get("signal")
    return signal


def main() -> None:
    """One row for each study, then what all cost together, each run counted once."""
    every: dict[str, float] = {}
    for name, entry in ENTRIES.items():
        settings = replace(entry.default, scale="paper")
        groups = robust_training.make_groups(settings, size_of(settings, entry))
        runs = [run for group in groups for run in (*group.judged, *group.shown)]
        hours = [run.goal / SPEEDS[run.settings["env"]][signal_of(run)] / 3600 for run in runs]
        base, ours = (
            sum(
                each
                for run, each in zip(runs, hours, strict=True)
                if (signal_of(run) is None) == alone
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
