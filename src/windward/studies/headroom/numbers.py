"""The numbers of `headroom`: shares of what there is to gain, and losses where there is nothing."""

from typing import Any, NamedTuple

import numpy as np

from windward.studies.evaluation.numbers import safe_mean, seed_interval
from windward.studies.headroom.cases import Case
from windward.studies.pages.statistics import Interval

MEAN_LOSS = 0.01
"""share of the base's return that may be lost on average where there is nothing to gain"""


class Outcome(NamedTuple):
    """A method on a case: a share of the headroom, or of the base's return, and its worst seed."""

    mean: Interval
    each: np.ndarray  # of each seed
    returns: Interval
    """mean return over the same episodes"""
    change: Interval
    """paired difference to the base over the same episodes, as a share of the base's return"""
    changes: np.ndarray
    """the same of each seed"""

    @property
    def worst(self) -> int:
        """The place of the worst seed."""
        return int(np.argmin(np.where(np.isfinite(self.each), self.each, -np.inf)))


def share(base: np.ndarray, method: np.ndarray, best: np.ndarray, last: int) -> Outcome:
    """What a method captures of the headroom over its last episodes; returns (seeds, episodes).

    (method - base) / (best - base), each meaned over seeds and episodes; a seed's share is its own
    gain over the mean headroom, so that shares of seeds average to the share of all. NaN where the
    best fixed M gains nothing.

    >>> base, best = np.zeros((2, 3)), np.full((2, 3), 4.0)
    >>> share(base, np.array([[9.0, 1, 1], [9.0, 3, 3]]), best, last=2).each.tolist()
    [0.25, 0.75]
    """
    part = slice(max(0, method.shape[1] - last), method.shape[1])
    gain = (method[:, part] - base[:, part]).mean(axis=1)
    room = (best[:, part] - base[:, part]).mean(axis=1)
    returns = safe_mean(method[:, part].mean(axis=1))
    changes = gain / max(np.abs(base[:, part].mean()), 1e-12)
    change = safe_mean(changes)
    if not room.mean() > 0:
        none = float("nan")
        return Outcome(
            Interval(none, none, none), np.full(len(gain), none), returns, change, changes
        )

    def of(at: np.ndarray) -> np.ndarray:
        # Where resampled seeds have no headroom, dividing by it would say nothing.
        below = room[at].mean(axis=-1)
        return gain[at].mean(axis=-1) / np.where(below > 0, below, room.mean())

    return Outcome(seed_interval(of, len(gain)), gain / room.mean(), returns, change, changes)


def loss(base: np.ndarray, method: np.ndarray) -> Outcome:
    """Paired difference over all episodes, as a share of the base's return; below 0 is a loss.

    >>> loss(np.full((2, 2), -10.0), np.array([[-10.0, -11.0], [-10.0, -10.0]])).each.tolist()
    [-0.05, 0.0]
    """
    part = slice(0, method.shape[1])
    size = np.abs(base[:, part].mean())
    each = (method[:, part] - base[:, part]).mean(axis=1) / size
    change = safe_mean(each)
    return Outcome(change, each, safe_mean(method[:, part].mean(axis=1)), change, each)


def harmless(case: Case, found: Outcome) -> bool:
    """Whether a method does no harm where there is nothing to gain.

    Mean and worst seed within their limits; without a limit for seeds, the interval of the mean
    must not lie below the limit of the mean.
    """
    if case.limit is None:
        return found.mean.high >= -MEAN_LOSS
    return found.mean.value >= -MEAN_LOSS and float(found.each.min()) >= -case.limit


def worse(exact: Outcome, wrong: Outcome) -> bool:
    """Whether a wrong simulator leaves a policy worse than base where the exact one helps."""
    return exact.mean.low > 0 and wrong.mean.value < 0


def as_json(found: Outcome, seeds: tuple[int, ...]) -> dict[str, Any]:
    """For summary.json."""

    def finite(value: float) -> float | None:
        return float(value) if np.isfinite(value) else None

    return {
        "mean": finite(found.mean.value),
        "interval": [finite(found.mean.low), finite(found.mean.high)],
        "worst": finite(float(found.each[found.worst])),
        "worst_seed": seeds[found.worst],
        "each": [*map(finite, found.each)],
        "return": finite(found.returns.value),
        "change": finite(found.change.value),
        "change_interval": [finite(found.change.low), finite(found.change.high)],
        "change_worst": finite(float(np.min(found.changes))),
    }
