"""Returns as judges of replays, once the simulator in which they run was found to be wrong.

Replays with a wrong simulator may promise what the world does not keep, and they are their own
judges. So from then on adapted episodes are compared with some of the base policy (adapt/trial.py):
two to begin with, while little is lost by them, and ever more seldom while nobody can tell which
are better. What was chosen by a simulator that is wrong, and does harm, is not tried again soon.
"""

import math
from collections.abc import Callable
from typing import Any

from windward.adapt.comparing import below
from windward.adapt.trial import FIRST, LEAST, Trial, flag

PAYS = 2.0
"""standard errors by which adapted episodes are better, with which none is left to the base"""


class Doubt(Trial):
    """Knows which episodes M acted in, and asks for some without it while it is `awake`."""

    rest = 16
    gap = 4

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.reset()

    def reset(self) -> None:
        """As when it was made."""
        super().reset()
        self.awake = False
        """whether returns are asked"""
        self._from_first = self._acted = False

    @property
    def away(self) -> bool:
        """Whether the base policy acts for harm that was done, and not to compare with."""
        return self._rest > 0 and self._next_rest > self.rest

    def say(self, what: str) -> None:
        """Through whoever decides about M."""
        self._say(what)

    def wake(self) -> None:
        """Between episodes: the simulator is wrong. Asks for two episodes of the base policy.

        Those that there were before may be of another wind, or none.
        """
        if self.awake:
            return
        self.awake = self.resting = True
        self._rest = LEAST[1]
        self.say(
            f"returns are to judge M too: the base policy acts for the next {LEAST[1]} episodes"
        )

    def see(self, reward: float, acts: bool) -> None:
        """A step's reward, and whether M acted in it."""
        if not self.awake:
            return
        if not self._stepped:
            self._from_first, self._acted = acts, False
        self.step(reward)
        self._acted = self._acted or acts

    def renounced(self) -> None:
        """M was given up, whatever it earned."""
        self.adapted = []

    def end(self) -> bool:
        """An episode is over; whether M is to be forgotten."""
        if not self._stepped:
            return False
        total = self._take()
        if not math.isfinite(total) or (self._acted and not self._from_first):
            self._missed()
            return False
        self._keep(total, of_base=not self._acted)
        if self.resting:
            return self._after_base()
        if self._acted:
            return self._judge() or self._after_adapted()
        self._until_base = self._gap  # replays saw to that one themselves
        return self._judge()

    def _after_adapted(self) -> bool:
        if self._enough:
            loss, error = self._compared()
            if loss < 0 and (-loss > PAYS * error or below(self.base, self.adapted)):
                return False  # it pays
        return super()._after_adapted()

    def _wider(self, gap: int) -> int:
        return 2 * gap  # each adapted episode is compared with all of them

    def _harmed(self) -> str:
        self._until_base = FIRST  # the rest gives enough to compare with
        return ""

    def memory(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return super().memory() | {name: getattr(self, name) for name in FLAGS}

    def restore(self, memory: Any) -> None:
        """Goes on from what `memory` gave; what does not fit changes nothing."""
        found = self._remembered(memory) | {name: flag(name, memory[name]) for name in FLAGS}
        for name, value in found.items():
            setattr(self, name, value)


FLAGS = ("awake", "_from_first", "_acted")
