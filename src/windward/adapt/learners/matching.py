"""Matching: act so that the diagnosed world does what the nominal one would have done."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from windward.adapt.corrections import Correction, Matching
from windward.adapt.learners.base import Situation


@dataclass(frozen=True)
class MatchingSettings:
    """How actions are matched."""

    damping: float = 0.01
    """λ: cost of a correction of half the action's range, against a deviation of the next state by
    its usual change in a step"""
    step: float = 1e-3
    """of finite differences in the action, in half ranges"""
    iterations: int = 1
    """Gauss-Newton steps, each from where the last one ended; the first from the last correction"""


class MatchingLearner:
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
        """See Learner."""
        s = self.settings
        return Matching(at.range, at.root, s.damping, s.step, s.iterations)
