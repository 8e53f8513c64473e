"""Whether adaptation pays, judged by returns (adapt/trial.py) where no simulator can say.

In an episode that is left to the base policy M = 0, without noise, and nothing is learned; after a
step back M begins at 0 again.

Where episodes end by themselves (a fall) noise may cost far more than it teaches, and where ŵ is
made of values it may be their error and no wind: there noise begins with a small share of its size.
After each step back it is a quarter of what it was. It grows again only while adapted episodes are
not worse. When the wind has stopped, and nothing in ŵ can be told from its past any more, the base
policy acts until it can be.
"""

import math
from typing import Any

import numpy as np

from windward import checks
from windward.adapt.comparing import error2, mean
from windward.adapt.predictable import Predictable
from windward.adapt.trial import KEPT, LEAST, Trial, flag

SURE = 2.0
"""standard errors that are added to a loss before it is called bearable"""
REACH = 2.0
"""times the size of the base policy's actions, in shares of their range, that noise and steps are
scaled to: who moves little is to be disturbed by little"""
LEAST_REACH = 0.05
CARE = 1 / 64
"""the least share of noise and steps, with which learning begins where there is reason to doubt: a
pole that barely stands in its wind loses a sixth of its return by noise of a hundredth of the
actions' range, and nothing by a quarter of that"""
CARE_OF_NOISE = 1 / 512
"""the same where ŵ is made of the noise, which therefore cannot wait for a wind"""
EARLY = 12
"""whole adapted episodes after which one that ends by itself is left to the comparison of means"""
BEARABLE = 0.1
"""the share of the base policy's mean return that may be lost for noise to be doubled"""
ANEW = 2000
"""predictions that told nothing, after which waiting looks anew: one glitch must not last"""
LOOK = (2, 100)
"""adapted episodes, and predictions in them, at least, that are looked at together"""
VAIN = 2
"""such looks in a row that told nothing, with which the wind has stopped: one may hold a glitch"""


class Guard(Trial):
    """Decides from returns whether the next episode is adapted or left to the base policy.

    With a size of windows, (h, d_w), nothing is adapted before ŵ can be told from its past.
    `careful` is whether noise begins small where episodes end by themselves, and shrinks where it
    has done harm; `doubtful` whether it begins small in any case and grows the more slowly;
    `of_noise` whether ŵ is made of the noise, over its square.
    """

    def __init__(
        self,
        window: tuple[int, int] | None = None,
        careful: bool = False,
        doubtful: bool = False,
        of_noise: bool = False,
    ) -> None:
        self._window, self._careful = window, careful
        self._doubtful, self._of_noise = doubtful, of_noise
        self._least = CARE_OF_NOISE if of_noise else CARE
        self.reset()

    def reset(self) -> None:
        """As when it was made."""
        super().reset()
        self.episode = 0
        self.decisions: list[str] = []
        """what was decided, in sentences"""
        self.waiting = self._window is not None
        """whether nothing is adapted yet, as nothing in ŵ can be told from its past"""
        self.size = 1.0
        """of the base policy's actions: what noise and steps are multiplied with for them"""
        self.care = self._least if self._doubtful else 1.0
        """and for the harm that they may do"""
        self.wary = self._doubtful
        """whether noise began small, by a doubt or as one of the first episodes ended by itself"""
        self._whole = 0
        self._past, self._looked, self._vain = self._blank(), 0, 0
        self._needed = LOOK[1]
        self.looks = self._window is not None
        """whether it wants to see ŵ"""
        self._trusts = False
        self._acted, self._acts = 0.0, 0

    @property
    def reach(self) -> float:
        """What noise and steps are to be multiplied with."""
        return self.size * self.care

    @property
    def bound(self) -> float:
        """What the ball that holds M is to be multiplied with.

        By the square: its radius is far above what M needs, so that its share alone would bind
        too little. A ŵ that is made of the noise grows as that shrinks, and M has to shrink with
        it. An M that was set is held as it is.
        """
        return 1.0 if self._trusts else self.care ** (3 if self._of_noise else 2)

    def watch(self, square: float) -> None:
        """The mean square of a base action while waiting, in shares of its range."""
        if math.isfinite(square):
            self._acted, self._acts = self._acted + square, self._acts + 1

    def feel(self, w_hat: np.ndarray | None) -> None:
        """ŵ of one step, while it looks; None where nothing is known of it."""
        if w_hat is None:
            self._past.cut()
            return
        self._past.see(w_hat)
        told = self._past.told
        if told and self.waiting:
            self._begin(told)
        elif told:
            self.looks = False  # until the next episodes: this wind goes on
        elif self.waiting and self._past.predicted >= ANEW:
            self._past = self._blank()

    def _begin(self, told: float) -> None:
        """There is something that M could act on."""
        self.waiting, self._total = False, math.nan  # part of this episode was the base policy's
        oddities = self._past.oddities
        # What took long to be told takes as long to be missed.
        self._needed = min(max(LOOK[1], 2 * self._past.predicted), ANEW)
        self._past, self._looked, self._vain = self._blank(), 0, 0
        if self._acts:
            size = math.sqrt(self._acted / self._acts)
            self.size = min(max(REACH * size, LEAST_REACH), 1.0)
        reasons = ["the base policy moves little"] if self.size < 1 else []
        if self.care < 1:
            reasons.append(
                "the disturbance is made of values, whose error may be all of it"
                if self._doubtful
                else "noise may do harm here"
            )
        noise = f", with {100 * self.reach:.2g} % of the usual noise: {' and '.join(reasons)}"
        self.say(
            f"began to adapt: the past tells {100 * told:.0f} % of the disturbance"
            f"{noise if reasons else ''}; judged by returns, of {LEAST[0]} adapted episodes and "
            f"{LEAST[1]} of the base policy at least"
        )
        for each in oddities:
            self.say(each)

    def _blank(self) -> Predictable:
        return Predictable(*(self._window or (1, 1)))

    def trust(self) -> None:
        """Waits no longer, and never again: M was set by somebody who knows."""
        if self.waiting:
            self._total = math.nan  # part of this episode was the base policy's
        self.waiting, self.looks, self._trusts, self.wary = False, False, True, True

    def torn(self) -> None:
        """As of returns; ŵ does not follow on either."""
        super().torn()
        self._past.cut()

    def left(self) -> None:
        """As of returns; ŵ does not follow on either."""
        super().left()
        self._past.cut()

    def end(self, fell: bool = False) -> bool:
        """An episode is over, by itself or by a limit of time; whether M is to be forgotten."""
        total = self._take()
        self.episode += 1
        self._past.cut()
        afraid = not self.resting and self._falls(fell)
        if self.waiting:
            return False  # there is nothing yet, and its return is of another wind, or none
        if self._calm(math.isfinite(total)):
            return True
        if afraid:
            return True  # its return is of noise that is no longer
        if not math.isfinite(total):
            self._missed()
            return False
        self._keep(total, of_base=self.resting)
        return self._after_base() if self.resting else self._after_adapted()

    def _calm(self, whole: bool) -> bool:
        """Waits again where the last episodes told nothing of ŵ; whether it begins to."""
        if self.resting or self._window is None or self._trusts:
            return False
        self._looked += whole
        if self._looked < LOOK[0] or (self.looks and self._past.predicted < self._needed):
            return False
        self._vain = self._vain + 1 if self.looks else 0
        self._past, self._looked, self.looks = self._blank(), 0, True
        if self._vain < VAIN:
            return False
        self.waiting, self.adapted, self.base = True, [], []
        self._acted, self._acts = 0.0, 0
        self.say(
            "stepped back: the past tells nothing of the disturbance any more, and the base policy "
            "acts until it does"
        )
        return True

    def _falls(self, fell: bool) -> bool:
        """Takes care from the first fall on; whether it begins to with this one."""
        self._whole += not (fell or self.waiting)
        if not (fell and self._careful) or self.wary or self._whole >= EARLY:
            return False
        self.wary, self.care, self.adapted = True, self._least, []
        self.say(
            f"episodes end by themselves: noise begins at {100 * self._least:.1f} % of its size "
            "and grows while that does no harm"
        )
        return True

    def _unharmed(self, loss: float) -> None:
        """Dares more."""
        enough = KEPT if self._doubtful else LEAST[0]
        if self.care < 1 and len(self.adapted) >= enough and self._bearable(loss):
            self.care, self.adapted = min(2 * self.care, 1.0), []

    def _harmed(self) -> str:
        if not self._careful:
            return ""
        self.care = max(self.care / 4, self._least)
        return f", and noise has {100 * self.care:.1f} % of its size after that"

    def _bearable(self, loss: float) -> bool:
        """Whether little may be lost, at most, even if the few returns of a kind are alike by luck.

        Hence the spread of both kinds together.
        """
        both = self.adapted + self.base
        shares = len(both) / len(self.adapted) + len(both) / len(self.base)
        return loss + SURE * math.sqrt(shares * error2(both)) <= BEARABLE * abs(mean(self.base))

    def say(self, what: str) -> None:
        """One more sentence of what was decided, or found."""
        self.decisions.append(f"after episode {self.episode}: {what}")

    def memory(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        own = {name: getattr(self, name) for name in (*COUNTS, *FLAGS, *NUMBERS)}
        rest = {"decisions": list(self.decisions), "past": self._past.memory()}
        return super().memory() | own | rest

    def restore(self, memory: Any) -> None:
        """Goes on from what `memory` gave; what does not fit changes nothing."""
        try:
            found = self._remembered(memory) | {"decisions": list(memory["decisions"])}
            found |= {name: checks.integer(name, memory[name], 0) for name in COUNTS}
            found |= {name: flag(name, memory[name]) for name in FLAGS}
            found |= {name: float(memory[name]) for name in NUMBERS}
            for name in ("size", "care"):
                if not 0 < found[name] <= 1:
                    raise ValueError(f"it has a {name} of {found[name]}, which is no share")
            if not 0 <= found["_acted"] < math.inf:
                raise ValueError(f"it has {found['_acted']} for the squares of actions")
            past = self._blank()
            past.restore(memory["past"])
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"it is no memory of a guard: {error!r}") from error
        self._past = past
        for name, value in found.items():
            setattr(self, name, value)


COUNTS = ("episode", "_acts", "_whole", "_looked", "_vain", "_needed")
FLAGS = ("waiting", "wary", "looks", "_trusts")
NUMBERS = ("_acted", "size", "care")
