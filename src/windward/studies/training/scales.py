"""Sizes of a study: the paper's, one for a laptop, and one that only shows that it works."""

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Size:
    """How much of everything; each field is left to the scale unless it is given."""

    seeds: int
    """runs of each group that are shown"""
    tune_seeds: int
    """other runs of each group, by which the best of a method is chosen"""
    steps: int
    tune_steps: int
    eval_every: int
    eval_episodes: int
    all_groups: bool
    """whether all groups are run on the shown seeds, or only the best of each method"""


LOCOMOTION: dict[str, Size] = {
    "laptop": Size(3, 1, 300_000, 100_000, 10_000, 20, all_groups=False),
    "smoke": Size(2, 1, 400, 200, 100, 1, all_groups=False),
}
"""of the MuJoCo studies; the paper's own has the appendix's steps. In U[-0.1, 0.1] on qpos most
episodes end within 50 steps, with returns as far apart as they are high: hence 20 of them"""


def paper(steps: int) -> Size:
    """25 seeds and all groups, as in the appendix; how often it evaluated it does not say."""
    return Size(25, 3, steps, steps, 100_000, 20, all_groups=True)


def locomotion(steps: int) -> dict[str, Size]:
    """The three sizes of a study that the paper trained for so many steps."""
    return {"paper": paper(steps), **LOCOMOTION}


PENDULUM: dict[str, Size] = {
    "paper": Size(25, 3, 100_000, 100_000, 2_000, 5, all_groups=True),
    "laptop": Size(25, 2, 30_000, 30_000, 2_000, 3, all_groups=False),
    "smoke": LOCOMOTION["smoke"],
}
"""the paper says neither steps nor, of these, seeds"""

SWEEP: dict[str, Size] = {
    "paper": replace(paper(15_000_000), tune_seeds=0),
    "laptop": Size(3, 0, 100_000, 100_000, 10_000, 20, all_groups=True),
    "smoke": Size(1, 0, 200, 200, 100, 1, all_groups=True),
}
"""nothing is chosen here: all groups are shown"""

SMOKE_AGENT: dict[str, Any] = {
    "widths": (8,), "num_atoms": 5, "batch_size": 16, "samples_per_insert": 2.0, "min_replay": 32,
    "replay_size": 2_000, "segment": 100,
}  # fmt: skip
"""settings of D4PG that smoke changes, where they are as they come"""
