"""The numbers of an evaluation: mean, worst tenth and worst seed, with intervals over seeds.

What is judged, the mean of adapted - base, has Student's interval of the paired differences: the
bootstrap of 3 or 8 seeds finds a difference where there is none in 29 or 12 % of cases, not in 5.
"""

from collections.abc import Callable
from math import ceil, floor, log10
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from windward.studies.evaluation.evaluate import ADAPTED, BASE, NOMINAL, Evaluation
from windward.studies.stats import (
    FEW,
    TOO_NARROW,
    Interval,
    mean_interval,
    paired_difference,
)

TENTH = 0.1  # the share of episodes, the worst ones, that make the worst tenth
UNKNOWN = Interval(*[float("nan")] * 3)


class Row(NamedTuple):
    """One policy over some episodes of all seeds."""

    mean: Interval
    tenth: Interval
    """mean of the worst tenth of all episodes"""
    worst: float
    """mean of the worst seed"""
    worst_seed: int


class Difference(NamedTuple):
    """Adapted minus base, paired by seed; positive is better."""

    mean: Interval
    """with Student's interval of the pairs"""
    tenth: Interval
    each: np.ndarray
    """of each seed"""


class Numbers(NamedTuple):
    """Numbers over some of the episodes."""

    episodes: slice
    rows: dict[str, Row]
    difference: Difference


def worst_tenth(returns: np.ndarray) -> np.ndarray:
    """The mean of the worst tenth of all episodes; returns are (..., seeds, episodes).

    NaN where one of them is not finite: sorted last, it would pass for the best.
    """
    every = np.sort(returns.reshape(*returns.shape[:-2], -1), axis=-1)
    worst = every[..., : ceil(TENTH * every.shape[-1])].mean(axis=-1)
    return np.where(np.isfinite(every).all(axis=-1), worst, np.nan)


def seed_interval(
    statistic: Callable[[np.ndarray], np.ndarray], seeds: int, seed: int = 0
) -> Interval:
    """The percentile bootstrap over seeds of a statistic of their numbers, (..., seeds)."""
    all_seeds = np.arange(seeds)
    value = float(statistic(all_seeds))
    if seeds < 2 or not np.isfinite(value):
        return Interval(value, value, value)
    low, high = scipy.stats.bootstrap(
        (all_seeds,), lambda numbers, axis: statistic(numbers), n_resamples=2000, batch=100,
        vectorized=True, method="percentile", rng=np.random.default_rng(seed),
    ).confidence_interval  # fmt: skip
    return Interval(value, float(low), float(high))


def safe_mean(values: np.ndarray) -> Interval:
    """`mean_interval`, and nothing but NaN where a return was not finite."""
    return mean_interval(values) if np.isfinite(values).all() else UNKNOWN


def numbers(found: Evaluation, episodes: slice) -> Numbers:
    """All numbers over a range of episodes."""
    seeds = len(found.seeds)
    returns = {policy: runs.returns[:, episodes] for policy, runs in found.runs.items()}
    rows = {}
    for policy, each in returns.items():
        means = each.mean(axis=1)
        worst = int(means.argmin())
        rows[policy] = Row(
            safe_mean(means),
            seed_interval(lambda at, each=each: worst_tenth(each[at]), seeds),  # type: ignore[misc]
            float(means[worst]),
            found.seeds[worst],
        )
    base, adapted = returns[BASE], returns[ADAPTED]
    ours, theirs = adapted.mean(axis=1), base.mean(axis=1)
    each = ours - theirs
    mean = paired_difference(ours, theirs) if np.isfinite(each).all() else UNKNOWN
    tenth = seed_interval(lambda at: worst_tenth(adapted[at]) - worst_tenth(base[at]), seeds)
    return Numbers(episodes, rows, Difference(mean, tenth, each))


def intervals(seeds: int) -> str:
    """Which interval is which, for captions."""
    if seeds < 2:
        return "one seed has no intervals"
    return (
        "95 % intervals over seeds: Student's of the paired differences for the mean of adapted - "
        "base, the percentile bootstrap for all else" + (f", {TOO_NARROW}" if seeds < FEW else "")
    )


def halves(found: Evaluation) -> dict[str, Numbers]:
    """Numbers of the last half of the episodes and of all of them, by what they are called."""
    total = found.runs[BASE].returns.shape[1]
    last = total - total // 2
    named = {f"last {last} of {total} episodes": slice(-last, None)} if last < total else {}
    named[f"all {total} episodes"] = slice(None)
    return {name: numbers(found, part) for name, part in named.items()}


def verdict(difference: Difference, where: str) -> str:
    """What the paired difference says, and no more."""
    low, high = difference.mean.low, difference.mean.high
    seeds = len(difference.each)
    if seeds < 2 or not np.isfinite(low):
        shown = "no interval can be given"
        if seeds < 2:
            shown += " for one seed"
    elif low > 0:
        shown = "adapting helped"
    elif high < 0:
        shown = "adapting cost more than it gained"
    elif low == high == 0:
        shown = "adapting changed nothing"
    else:
        shown = "no difference is shown: the interval holds 0"
    better = int((difference.each > 0).sum())
    told = " (Student's 95 % interval of the pairs)" if seeds > 1 else ""
    episodes = where if where.startswith("all") else f"the {where}"
    return (
        f"Over {episodes}, adapted minus base is {text(difference.mean, seeds)} in return"
        f"{told}: {shown}. Adapted was better on {better} of {seeds} seeds."
    )


COPES = 0.02
"""share of the nominal return that a policy may lose and still be said to cope"""


def outcome(found: Evaluation, numbers: Numbers) -> str:
    """The first thing to know, in one sentence."""
    rows, gain = numbers.rows, numbers.difference.mean
    base, adapted = rows[BASE].mean.value, rows[ADAPTED].mean.value
    if NOMINAL not in rows:
        if found.own_wind:
            return f"{number(base)} -> {number(adapted)} with adaptation, in this world's own wind."
        return "Nothing was disturbed, so there is nothing to recover: give --disturbance."
    nominal = rows[NOMINAL].mean.value
    lost = nominal - base
    went = f"{number(base)} -> {number(adapted)} of {number(nominal)} in the nominal world"
    if lost <= COPES * abs(nominal):
        return f"Your policy copes already: {number(base)} of {number(nominal)}."
    if gain.low > 0:
        return f"Recovered {100 * (adapted - base) / lost:.0f} %: {went}."
    if gain.high < 0:
        return f"Adapting did harm: {went}."
    return (
        f"No gain is shown: {went}. More seeds tell more; windward diagnose says what changed, and "
        "a change that no action can undo needs retraining."
    )


def number(value: float, size: float | None = None) -> str:
    """A return in three digits, and all those before the point; `size` sets them for its likes.

    >>> number(-311.695), number(4321.9), number(0.01234), number(0.887, 53.2)
    ('-312', '4322', '0.0123', '0.9')
    """
    size = abs(value) if size is None else size
    digits = 0 if size == 0 or not np.isfinite(size) else max(0, 2 - floor(log10(size)))
    return f"{value:.{digits}f}"


def text(interval: Interval, seeds: int) -> str:
    """A number with its interval, if there is one."""
    if seeds < 2:
        return number(interval.value)
    size = max(map(abs, interval))
    value, low, high = (number(each, size) for each in interval)
    return f"{value} [{low}, {high}]"


def as_json(found: dict[str, Numbers]) -> dict[str, Any]:
    """The numbers for summary.json."""

    def finite(value: float) -> float | None:
        return float(value) if np.isfinite(value) else None

    def plain(interval: Interval) -> dict[str, Any]:
        value, low, high = map(finite, interval)
        return {"value": value, "interval": [low, high]}

    return {
        name: {
            "policies": {
                policy: {
                    "mean": plain(row.mean),
                    "worst_tenth": plain(row.tenth),
                    "worst_seed": {"seed": row.worst_seed, "mean": finite(row.worst)},
                }
                for policy, row in each.rows.items()
            },
            "adapted_minus_base": {
                "mean": plain(each.difference.mean),
                "worst_tenth": plain(each.difference.tenth),
                "each_seed": [*map(finite, each.difference.each)],
            },
        }
        for name, each in found.items()
    }
