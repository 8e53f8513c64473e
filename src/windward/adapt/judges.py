"""Judges: by how much one correction beats another, and how sure that is.

`simulated` plays paired episodes in the diagnosed world; `Returns` compares real episodes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from windward.adapt.corrections import Correction
from windward.adapt.episodes import Starts, play
from windward.adapt.proposers.base import Situation


@dataclass(frozen=True)
class JudgeSettings:
    """How corrections are judged."""

    rounds: tuple[tuple[int, float], ...] = ((4, 0.4), (8, 1.0), (16, 1.0))
    """simulated episodes of a verdict, and their length as a share of a whole one; the next round
    is played where the last one decided nothing"""
    clear: float = 0.25
    """share of the base policy's return that must be gained for short episodes to decide"""
    sure: float = 2.0
    """standard errors by which a mean paired difference must lie above 0"""
    worth: float = 0.01
    """share of the base policy's return that a correction must gain"""
    least: int = 2
    """real episodes with a correction before it can be withdrawn"""
    harm: float = 2.0
    """standard errors by which real returns must lie below the base policy's to withdraw it"""


class Verdict(NamedTuple):
    """What simulated episodes said of a correction against the base policy."""

    name: str
    returns: float
    base: float
    nominal: float
    """return of the base policy in the nominal world"""
    gain: float
    """mean paired difference"""
    error: float
    """its standard error"""
    episodes: int
    steps: int

    def won(self, settings: JudgeSettings) -> bool:
        """Whether it is credibly better, and by enough."""
        least = max(settings.sure * self.error, settings.worth * abs(self.base), 1e-9)
        return self.gain > least

    def lost(self, settings: JudgeSettings) -> bool:
        """Whether it is credibly not better by enough."""
        return self.gain + settings.sure * self.error < settings.worth * abs(self.base)


def judged(
    at: Situation,
    candidates: Mapping[str, Correction],
    settings: JudgeSettings,
    rng: np.random.Generator,
    recent: bool,
) -> list[Verdict]:
    """Verdicts on candidates, best first, by as many episodes as it takes to decide.

    With `recent` half of the first ones begin at the last real states. A short episode can win, as
    long as whole ones do not say otherwise, but not lose: who falls falls late.
    """
    verdicts: list[Verdict] = []
    for count, share in settings.rounds:
        short = share < 1.0
        if short and not recent:
            continue
        steps = max(1, int(share * at.horizon))
        verdicts = simulated(at, candidates, at.draw(count, rng, recent), steps)
        best = verdicts[0]
        clear = not short or best.gain > settings.clear * abs(best.base)
        if (best.won(settings) and clear) or (not short and best.lost(settings)):
            break
    return verdicts


def simulated(
    at: Situation, candidates: Mapping[str, Correction], starts: Starts, steps: int
) -> list[Verdict]:
    """Verdicts on candidates, best first; all on the same starts and draws."""
    base = _played(at, None, starts, steps)
    nominal = float(_played(at, None, starts._replace(wind=None), steps, changed=False).mean())
    found = []
    for name, each in candidates.items():
        own = _played(at, each, starts, steps)
        gap = own - base
        error = float(gap.std(ddof=1) / math.sqrt(len(gap))) if len(gap) > 1 else math.inf
        found.append(
            Verdict(name, float(own.mean()), float(base.mean()), nominal, float(gap.mean()), error,
                    len(gap), steps)
        )  # fmt: skip
    return sorted(found, key=lambda each: -each.gain)


def base_return(at: Situation, starts: Starts) -> float:
    """Mean return of the base policy in whole episodes of the diagnosed world."""
    return float(_played(at, None, starts, at.horizon).mean())


def nominal_return(at: Situation, starts: Starts) -> float:
    """The same in the nominal world, without wind."""
    calm = starts._replace(wind=None)
    return float(_played(at, None, calm, at.horizon, changed=False).mean())


def _played(
    at: Situation,
    correction: Correction | None,
    starts: Starts,
    steps: int,
    changed: bool = True,
) -> np.ndarray:
    """Returns of simulated episodes."""
    return play(
        at.twin, at.policy, correction, starts, steps, at.winds, at.window, changed, at.dtype
    )[0]


class Returns:
    """Returns of whole real episodes in one world, with a correction and without."""

    def __init__(self, base: Sequence[float] = ()) -> None:
        self.adapted: list[float] = []
        self.base: list[float] = list(base)

    def harmful(self, expected: float, settings: JudgeSettings) -> bool:
        """Whether episodes with the correction are credibly worse than the base policy's.

        Without real episodes of the base policy its simulated return is `expected`.
        """
        if len(self.adapted) < settings.least:
            return False
        own = np.array(self.adapted)
        other = np.array(self.base) if self.base else np.array([expected])
        spread = np.sqrt(
            (own.var(ddof=1) / len(own)) + (other.var(ddof=1) / len(other) if len(other) > 1 else 0)
        )
        floor = settings.worth * abs(float(other.mean()))
        return bool(other.mean() - own.mean() > max(settings.harm * spread, floor))

    def memory(self) -> dict[str, list[float]]:
        """For a file."""
        return {"adapted": list(self.adapted), "base": list(self.base)}
