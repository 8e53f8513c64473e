"""Adapted episodes against some that are left to the base policy, by their returns.

Now and then an episode is left to the base policy alone. If adapted episodes earn less than those,
beyond doubt, adaptation steps back: the base policy acts for some episodes, for twice as many each
time. It begins again after them, or as soon as the base policy's own returns say that the wind is
another.
"""

import math
from typing import Any

from windward import checks
from windward.adapt.comparing import below, error2, mean

FIRST = 4
"""adapted episodes before the base policy's first turn"""
KEPT = 12
"""returns of either kind that are remembered"""
LEAST = (4, 2)
"""adapted and base episodes without which nothing is judged"""
DOUBT = 1.5
"""standard errors that a difference must have"""
CHANGED = 4.0
"""the same for the base policy's own returns, before the wind is taken for another one"""
LONGEST = 64
"""episodes that the base policy acts after a step back, at most"""

RETURNS = ("adapted", "base")
COUNTS = ("_until_base", "_gap", "_rest", "_next_rest")
FLAGS = ("resting", "_stepped")


class Trial:
    """Whose turn the next episode is. Subclasses say when an episode counts, and what follows."""

    rest = 4
    """episodes that the base policy acts after the first step back"""
    gap = 2
    """adapted episodes between the first two of the base policy"""

    def reset(self) -> None:
        """As when it was made."""
        self.adapted: list[float] = []
        """returns of the last adapted episodes"""
        self.base: list[float] = []
        """returns of the last episodes of the base policy"""
        self.resting = False
        """whether the base policy acts alone now"""
        self._total, self._stepped = 0.0, False
        self._until_base, self._gap = FIRST, self.gap
        self._rest, self._next_rest = 0, self.rest

    def say(self, what: str) -> None:
        """One more sentence of what was decided."""
        raise NotImplementedError

    def _unharmed(self, loss: float) -> None:
        """Called when adapted episodes were compared, and are not worse beyond doubt."""

    def _harmed(self) -> str:
        """Called when they are; what to say of that beside the figures."""
        return ""

    def step(self, reward: float) -> None:
        """One step's reward; NaN where it is not known."""
        self._total, self._stepped = self._total + reward, True

    def left(self) -> None:
        """An episode begins; one that was left before its end tells nothing by its return."""
        if self._stepped:
            self._missed()
        self._total, self._stepped = 0.0, False

    def torn(self) -> None:
        """Part of an episode was not seen: its return tells nothing."""
        self._total = math.nan

    def _take(self) -> float:
        """The return of the episode that is over."""
        total, self._total, self._stepped = self._total, 0.0, False
        return total

    def _missed(self) -> None:
        """Nothing is known of an episode's return. What was to rest for it has rested."""
        if self._rest > 1:
            self._rest -= 1
        elif self.resting:
            self._go_on("began again")

    def _go_on(self, what: str) -> None:
        """The base policy's turn is over; says so after a rest."""
        if self._rest:
            self.say(what)
        self._rest, self.resting = 0, False

    def _keep(self, total: float, *, of_base: bool) -> None:
        kept = self.base if of_base else self.adapted
        kept.append(total)
        del kept[:-KEPT]

    def _after_base(self) -> bool:
        """An episode of the base policy was kept; whether M is to be forgotten."""
        if self._rest <= 1:
            self._go_on("began again")
        elif self._wind_changed():
            self.base = self.base[-LEAST[1] :]  # the others are of another wind
            self._go_on("began again: the base policy's returns have changed")
        else:
            self._rest -= 1
            return False
        return self._judge()

    def _after_adapted(self) -> bool:
        """An adapted episode was kept; whether M is to be forgotten."""
        self._until_base -= 1
        if self._until_base <= 0:
            self._until_base, self.resting = self._gap, True
            self._gap = self._wider(self._gap)
        return False

    def _wider(self, gap: int) -> int:
        """Adapted episodes until the base policy's next turn but one, from those until its next."""
        return gap + 1

    @property
    def _enough(self) -> bool:
        return len(self.adapted) >= LEAST[0] and len(self.base) >= LEAST[1]

    def _compared(self) -> tuple[float, float]:
        """What adapted episodes earn less than base ones, and its standard error."""
        loss = mean(self.base) - mean(self.adapted)
        return loss, math.sqrt(error2(self.base) + error2(self.adapted))

    def _judge(self) -> bool:
        """Steps back if adapted episodes were worse beyond doubt; whether it does."""
        if not self._enough:
            return False
        loss, error = self._compared()
        if not loss > 0 or not (loss > DOUBT * error or below(self.adapted, self.base)):
            self._unharmed(loss)
            return False
        percent = 100 * loss / max(abs(mean(self.base)), 1e-12)
        self.say(
            f"stepped back: {len(self.adapted)} adapted episodes were {percent:.0f} % worse than "
            f"{len(self.base)} of the base policy, which acts for the next {self._next_rest}"
            f"{self._harmed()}"
        )
        self._rest, self._next_rest = self._next_rest, min(2 * self._next_rest, LONGEST)
        self.resting, self.adapted, self.base = True, [], []
        return True

    def _wind_changed(self) -> bool:
        """Whether the newest of the base policy's returns are unlike those before them."""
        old, new = self.base[: -LEAST[1]], self.base[-LEAST[1] :]
        if len(old) < LEAST[0]:
            return False
        return abs(mean(old) - mean(new)) > CHANGED * math.sqrt(error2(old) + error2(new))

    def memory(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        returns = {name: list(getattr(self, name)) for name in RETURNS}
        rest = {name: getattr(self, name) for name in (*COUNTS, *FLAGS, "_total")}
        return returns | rest

    @staticmethod
    def _remembered(memory: Any) -> dict[str, Any]:
        """Values of fields from what `memory` gave, checked."""
        found: dict[str, Any] = {}
        for name in RETURNS:
            found[name] = [float(each) for each in memory[name]]
            if len(found[name]) > KEPT or not all(map(math.isfinite, found[name])):
                raise ValueError(f"it has {memory[name]} for returns of {name} episodes")
        found |= {name: checks.integer(name, memory[name], 0) for name in COUNTS}
        found |= {name: flag(name, memory[name]) for name in FLAGS}
        if not found["_next_rest"] or (found["_rest"] and not found["resting"]):
            raise ValueError(f"it rests for {found['_rest']} episodes, then {found['_next_rest']}")
        return found | {"_total": float(memory["_total"])}


def flag(name: str, value: Any) -> bool:
    """Yes or no from a file."""
    if not isinstance(value, bool):
        raise ValueError(f"it has {value!r} for {name}, which is neither true nor false")
    return value
