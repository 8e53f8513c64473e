"""Groups of runs that differ by their seed alone: chosen on some seeds, shown on others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from windward import checks
from windward.studies import stats
from windward.studies.runs import execution, store
from windward.studies.spec import Execution, Run
from windward.studies.stats import FINAL, Drawing, Interval, Raw, Rows, last, mean_interval

BASELINE = "baseline"
SHOWN = 100
"""reported seeds begin here; lower ones only choose settings"""
JUDGED = 0.5
"""the share of evaluations by which settings are chosen: short runs have few"""


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


@dataclass(frozen=True)
class Entry:
    """A study of groups by name: its line in `windward list`, and what its page says."""

    name: str
    title: str
    shows: str
    """the figure, and what is in it"""
    says: str
    """what the paper reports, to hold results against"""
    paper: str
    """the paper's size, in words"""
    time: str
    """of the laptop scale, on 2 cores"""
    sizes: dict[str, Size]
    default: Any
    """its settings as they come"""
    made: str
    """how its runs are made, for the page"""
    x_label: str = "environment steps"
    """what its curves count"""
    paired: bool = False
    """whether runs of one seed meet the same, episode by episode, so that their differences tell
    more than two means do"""


@dataclass(frozen=True, eq=False)
class Group:
    """A method with its settings: runs to be shown, and others by which it is chosen."""

    name: str
    method: str
    """groups of one method compete; the best of each is shown against the others'"""
    values: dict[str, Any]
    """what tells it from the other groups of its method, such as sigma"""
    shown: tuple[Run, ...]
    judged: tuple[Run, ...] = ()

    @property
    def goal(self) -> int:
        """How far its runs go."""
        return max(run.goal for run in self.shown)


def size_of(settings: Any, entry: Entry) -> Size:
    """The scale's, but for what is given."""
    given = {each.name: getattr(settings, each.name, None) for each in fields(Size)}
    kept = {name: value for name, value in given.items() if value is not None}
    size = replace(entry.sizes[settings.scale], **kept)
    if "tune_steps" not in kept:  # runs that choose are no longer than those that are shown
        size = replace(size, tune_steps=min(size.tune_steps, size.steps))
    return size


def check_sizes(how: Execution, size: Size) -> None:
    """Refuses what makes no sense, before anything is run."""
    execution.check(how)
    for name in ("seeds", "steps", "tune_steps", "eval_every", "eval_episodes"):
        checks.integer(name, getattr(size, name), 1)
    if checks.integer("tune_seeds", size.tune_seeds, 0) > SHOWN:
        raise ValueError(
            f"tune_seeds must be at most {SHOWN}, where the seeds begin that are shown; got "
            f"{size.tune_seeds}"
        )


class Numbers(NamedTuple):
    """What a group came to; None where nothing has been evaluated yet.

    Of one seed there is no interval: its ends are NaN.
    """

    seeds: tuple[int, ...]
    final: tuple[float | None, ...]
    """of each seed: the mean of the last tenth of its evaluations"""
    reached: tuple[int, ...]
    mean: Interval | None
    iqm: Interval | None
    error: float | None
    """σ/√N"""

    @property
    def there(self) -> np.ndarray:
        """The final returns that there are."""
        return np.array([each for each in self.final if each is not None])

    def summary(self) -> dict[str, Any]:
        """For summary.json."""
        return {"mean": _plain(self.mean), "iqm": _plain(self.iqm), "standard_error": self.error}


def _plain(each: Interval | None) -> Any:
    if each is None:
        return None
    known = isfinite(each.low) and isfinite(each.high)  # JSON has no other numbers
    return {"value": each.value, "interval": [each.low, each.high] if known else None}


def numbers(curves: Mapping[int, Mapping[str, np.ndarray]]) -> Numbers:
    """What runs came to, by their seeds, as far as they are; {} for one that has not begun."""
    # A run whose return is no number has none: it is counted as missing, and pages say so.
    final = tuple(_last(curve, FINAL) for curve in curves.values())
    there = np.array([each for each in final if each is not None])
    many = len(there) > 1
    mean, iqm = (mean_interval(there), iqm_interval(there)) if len(there) else (None, None)
    if not many and mean is not None and iqm is not None:  # which says nothing of how sure it is
        mean, iqm = (Interval(each.value, np.nan, np.nan) for each in (mean, iqm))
    reached = tuple(int(curve["steps"][-1]) if curve else 0 for curve in curves.values())
    error = float(there.std(ddof=1) / np.sqrt(len(there))) if many else None
    return Numbers(tuple(curves), final, reached, mean, iqm, error)


def from_rows(rows: Rows) -> dict[str, Numbers]:
    """The numbers of every group in the rows of curves.csv."""
    found = {}
    for group in stats.distinct(rows, "group"):
        mine = stats.select(rows, group=group)
        curves = {}
        for seed in stats.distinct(mine, "seed"):
            own = stats.select(mine, seed=seed)
            curves[seed] = {name: stats.column(own, name) for name in ("steps", "eval_return")}
        found[group] = numbers(curves)
    return found


def _last(curve: Mapping[str, np.ndarray], share: float) -> float | None:
    """The mean return of the last part of a curve; None if there is none."""
    value = last(curve["eval_return"], share) if curve else np.nan
    return value if np.isfinite(value) else None


def iqm_interval(values: np.ndarray, seed: int = 0) -> Interval:
    """The interquartile mean, with the percentile bootstrap."""
    band = stats.interquartile_band(np.zeros(1), values[:, None], seed)
    return Interval(float(band.y[0]), float(band.low[0]), float(band.high[0]))


def curves_of(runs: Sequence[Run], root: Path) -> dict[int, dict[str, np.ndarray]]:
    """The curves of runs by their seeds."""
    return {int(run.settings["seed"]): store.curve(run, root) for run in runs}


def score(group: Group, root: Path) -> float | None:
    """By what a group is chosen: the mean return of the last half of its judged runs.

    None if one of them has none or failed: a group does not win by its surviving seeds, nor by
    what a run came to before it failed.
    """
    found = [
        None if store.failed(run, root) else _last(store.curve(run, root), JUDGED)
        for run in group.judged
    ]
    there = [each for each in found if each is not None]
    return float(np.mean(there)) if there and len(there) == len(found) else None


def best(groups: Sequence[Group], root: Path) -> dict[str, Group]:
    """Of each method the group with the highest score; no look is had at the shown runs.

    A method is left out if none of its groups has a score: the first would be no choice. One whose
    groups have no runs that choose has nothing to choose from.
    """
    chosen: dict[str, Group] = {}
    for method in dict.fromkeys(group.method for group in groups):
        rivals = [group for group in groups if group.method == method]
        scores = [(score(group, root), group) for group in rivals]
        known = [(value, group) for value, group in scores if value is not None]
        if known:
            chosen[method] = max(known, key=lambda each: each[0])[1]
        elif not any(group.judged for group in rivals):
            chosen[method] = rivals[0]
    return chosen


def raw_of(runs: Sequence[Run], root: Path, column: str = "eval_return") -> Raw:
    """The curves of those runs that have begun, where they are numbers."""
    raw = []
    for seed, curve in curves_of(runs, root).items():
        if column in curve:
            kept = np.isfinite(curve[column])
            if kept.any():
                raw.append((seed, curve["steps"][kept], curve[column][kept]))
    return raw


def drawn_of(
    groups: Sequence[Group], root: Path, column: str = "eval_return", drop: int = 0
) -> dict[str, Drawing]:
    """The curves of those groups that have any, by name; see `stats.drawing`."""
    raw = {group.name: (raw_of(group.shown, root, column), group.goal) for group in groups}
    return {name: stats.drawing(r, float(goal), drop) for name, (r, goal) in raw.items() if r}


@dataclass(frozen=True, eq=False)
class Found:
    """A study of groups and how far it is."""

    settings: Any
    entry: Entry
    size: Size
    every: Sequence[Group]
    show: Sequence[Group]
    """the groups that were run on the shown seeds"""
    best: Mapping[str, Group]
    """of each method the group that was chosen; empty where nothing is"""
    failed: Mapping[str, str]

    @property
    def root(self) -> Path:
        """Where the runs lie."""
        root: Path = self.settings.how.runs
        return root

    @cached_property
    def told(self) -> dict[str, Numbers]:
        """What every shown group came to."""
        return {group.name: numbers(curves_of(group.shown, self.root)) for group in self.show}

    @property
    def chosen(self) -> set[str]:
        """Names of the groups that were chosen."""
        return {group.name for group in self.best.values()}

    @property
    def leading(self) -> list[Group]:
        """The group of each method that stands for it: the one that was chosen, or all."""
        return [group for group in self.show if not self.best or group.name in self.chosen]

    @property
    def settled(self) -> bool:
        """Whether all runs that choose are finished."""
        runs = (run for group in self.every for run in group.judged)
        return all(store.finished(run, self.root) is not None for run in runs)

    @property
    def unchosen(self) -> dict[str, Raw]:
        """The choosing runs of groups that were not run on the shown seeds, where there are any."""
        shown = {group.name for group in self.show}
        found = {g.name: raw_of(g.judged, self.root) for g in self.every if g.name not in shown}
        return {name: raw for name, raw in found.items() if raw}

    @property
    def baselines(self) -> set[str]:
        """Names of the groups of the baseline."""
        return {group.name for group in self.every if group.method == BASELINE}

    @property
    def title(self) -> str:
        """Over figures."""
        return f"{self.entry.name}: {self.settings.env.rpartition('/')[2]}"
