"""Groups of runs that differ by their seed alone: how far they are, and what they came to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from windward.studies.pages import smoothing
from windward.studies.pages.drawing import Drawing, Raw
from windward.studies.pages.statistics import Interval, mean_interval
from windward.studies.runs import store
from windward.studies.runs.store import Run

FINAL = 0.1
"""the share of evaluations, the last ones, that make the final return"""
JUDGED = 0.5
"""the share by which settings are chosen: short runs have few evaluations"""


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


def last(values: np.ndarray, share: float) -> float:
    """The mean of the last part of a column, at least of its last number."""
    return float(values[-max(1, int(share * len(values))) :].mean())


def numbers(group: Group, root: Path) -> Numbers:
    """What its shown runs came to, as far as they are."""
    curves = [store.curve(run, root) for run in group.shown]
    # A run whose return is no number has none: it is counted as missing, and pages say so.
    final = tuple(_last(curve, FINAL) for curve in curves)
    there = np.array([each for each in final if each is not None])
    return Numbers(
        tuple(int(run.settings["seed"]) for run in group.shown),
        final,
        tuple(int(curve["steps"][-1]) if curve else 0 for curve in curves),
        _known(mean_interval(there), there) if len(there) else None,
        _known(iqm_interval(there), there) if len(there) else None,
        float(there.std(ddof=1) / np.sqrt(len(there))) if len(there) > 1 else None,
    )


def _last(curve: Mapping[str, np.ndarray], share: float) -> float | None:
    """The mean return of the last part of a curve; None if there is none."""
    value = last(curve["eval_return"], share) if curve else np.nan
    return value if np.isfinite(value) else None


def _known(interval: Interval, values: np.ndarray) -> Interval:
    """Without ends if it is of one seed, which says nothing of how sure it is."""
    return interval if len(values) > 1 else Interval(interval.value, np.nan, np.nan)


def iqm_interval(values: np.ndarray, seed: int = 0) -> Interval:
    """The interquartile mean, with the percentile bootstrap."""
    band = smoothing.interquartile_band(np.zeros(1), values[:, None], seed)
    return Interval(float(band.y[0]), float(band.low[0]), float(band.high[0]))


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


def raw_curves(runs: Sequence[Run], root: Path, column: str = "eval_return") -> Raw:
    """The curves of those runs that have begun, where they are numbers."""
    raw = []
    for run in runs:
        curve = store.curve(run, root)
        if column in curve:
            kept = np.isfinite(curve[column])
            if kept.any():
                x, y = curve["steps"][kept], curve[column][kept]
                raw.append((int(run.settings["seed"]), x, y))
    return raw


def drawing(group: Group, root: Path, column: str = "eval_return", drop: int = 0) -> Drawing | None:
    """The curves of a group; None if no run has begun.

    `drop` leaves the runs with the lowest final returns out of the bands, as the paper does in one
    figure (deviation 17); no number in a table ever does.
    """
    raw = raw_curves(group.shown, root, column)
    order = sorted(raw, key=lambda each: -last(each[2], FINAL))
    kept_runs = order[: max(1, len(order) - drop)]
    if not kept_runs:
        return None
    return Drawing(raw, *smoothing.on_grid([(x, y) for _, x, y in kept_runs], float(group.goal)))
