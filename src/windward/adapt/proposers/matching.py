"""Matching: act so that the diagnosed world does what the nominal one would have done."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from windward.adapt.corrections import Choice, Choices, Correction, Matching
from windward.adapt.proposers.base import Situation


@dataclass(frozen=True)
class MatchingSettings:
    """How actions are matched."""

    damping: float = 0.01
    """λ: cost of a correction of half the action's range, against a deviation of the next state by
    its usual change in a step"""
    step: float = 1e-3
    """of finite differences in the action, in half ranges"""
    probe: float = 1e-2
    """the same in a learned simulator, whose slopes are rough"""
    usual: float = 0.1
    """size of a correction, in half ranges: the learned simulator's mean square error over the
    square of it is added to λ, as in a ridge regression whose coefficients are of that size"""
    switch: float = 0.01
    """for numbered actions: λ, cost of another action than the base policy's"""
    kept: float = 0.9
    """for numbered actions: share of what could not be made up for that stays to the next step"""
    iterations: int = 1
    """Gauss-Newton steps, each from where the last one ended; the first from the last correction"""


class MatchingProposer:
    """Proposes `Matching` in the metric of the nominal closed loop; nothing is searched for."""

    name = "matching"
    quick = True

    def __init__(self, settings: MatchingSettings | None = None) -> None:
        self.settings = settings or MatchingSettings()

    def propose(
        self,
        at: Situation,
        known: Correction | None,
        rng: np.random.Generator,
        say: Callable[[str], None],
    ) -> Correction | None:
        """See Proposer."""
        return matching_of(at, self.settings)


def matching_of(at: Situation, settings: MatchingSettings | None = None) -> Matching | Choice:
    """Matching in a situation, for its kind of actions."""
    s = settings or MatchingSettings()
    if isinstance(at.range, Choices):
        return Choice(at.range, at.root, s.switch, s.kept)
    damping = s.damping + at.noise / s.usual**2
    return Matching(at.range, at.root, damping, s.probe if at.noise else s.step, s.iterations)
