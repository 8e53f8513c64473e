"""What a user is told of an episode beside its numbers: that something was decided about M."""

from windward.adapt.counterfactual import Counterfactual
from windward.adapt.guard import Guard
from windward.simulators.learned import percent

SATURATED = 0.5
"""share of an episode's actions that are cut off, from which on it is told"""
BOUNDS = "were cut off at the actuator's bounds"


class Telling:
    """Counts what whoever judges M has said, and how an episode met the actuator's bounds."""

    def __init__(self, judge: Counterfactual | Guard | None) -> None:
        self._judge = judge
        self.begin()

    def begin(self) -> None:
        """From now on."""
        self._said = 0 if self._judge is None else len(self._judge.decisions)
        self._steps = self._cut = 0

    def step(self, cut_off: bool, ended: bool) -> bool:
        """After a step, of which a corrected action was cut off or not: whether there is news.

        Corrections that only push against the bounds are told once, when an episode is over.
        """
        judge = self._judge
        if judge is None:
            return False
        self._steps, self._cut = self._steps + 1, self._cut + cut_off
        if ended:
            cut = self._cut / self._steps
            if cut > SATURATED and not any(BOUNDS in each for each in judge.decisions):
                judge.say(f"{percent(cut)} of the actions {BOUNDS}: more changes nothing")
            self._steps = self._cut = 0
        said, self._said = self._said, len(judge.decisions)
        return said != self._said
