"""Trials of a learner that no simulator can judge: adapted episodes against those of the base.

Now and then an episode is left to the base policy alone. If adapted episodes earn less than those,
beyond doubt, what was learned is withdrawn: the base policy acts for some episodes, for twice as
many each time. Learning begins anew after them, or as soon as the base policy's own returns say
that the wind is another.

Nothing is adapted before ŵ can be predicted from its past. Where episodes end by themselves (a
fall) noise may cost far more than it teaches, and where ŵ is made of values it may be their error
and no wind: there noise begins with a small share of its size. After each withdrawal it is a
quarter of what it was. It grows again only while adapted episodes are not worse. When nothing in ŵ
can be predicted any more, the base policy acts until it can be.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import mannwhitneyu

from windward import checks
from windward.adapt.predictable import Predictable


@dataclass(frozen=True)
class TrialSettings:
    """When adapted episodes are compared with those of the base policy, and how much is dared."""

    first: int = 4
    """adapted episodes before the base policy's first turn"""
    gap: int = 2
    """adapted episodes between the first two turns of the base policy; one more each time"""
    kept: int = 12
    """returns of either kind that are remembered"""
    least: tuple[int, int] = (4, 2)
    """adapted and base episodes without which nothing is judged"""
    doubt: float = 1.5
    """standard errors that a difference of means must have"""
    chance: float = 0.05
    """p-value of the rank test that is beyond doubt"""
    changed: float = 4.0
    """standard errors by which the base policy's returns must change to be of another wind"""
    rest: int = 4
    """episodes of the base policy after the first withdrawal; twice as many each time"""
    longest: int = 64
    """episodes of the base policy after a withdrawal, at most"""
    saturated: float = 0.5
    """share of cut-off actions from which on a correction is withdrawn at once: it asks for more
    than the actuator has"""
    large: float = 1.0
    """least number of a correction, in shares of half the actions' range, for its being cut off to
    count: smaller ones are where the base policy itself is at the bounds"""
    looked: int = 100
    """corrected steps over which that share is taken"""
    sure: float = 2.0
    """standard errors that are added to a loss before it is called bearable"""
    reach: float = 2.0
    """times the size of the base policy's actions that noise and steps are scaled to: who moves
    little is to be disturbed by little"""
    least_reach: float = 0.05
    """least of that, in shares of the actions' range"""
    care: float = 1 / 64
    """least share of noise and steps, with which learning begins where there is reason to doubt"""
    care_of_noise: float = 1 / 512
    """the same where ŵ is made of the noise, which therefore cannot wait for a wind"""
    early: int = 12
    """whole adapted episodes after which a fall no longer makes noise begin small"""
    bearable: float = 0.1
    """share of the base policy's return that may be lost for noise to be doubled"""
    anew: int = 2000
    """predictions that told nothing, after which waiting looks anew: one glitch must not last"""
    look: tuple[int, int] = (2, 100)
    """adapted episodes, and predictions in them, at least, that are looked at together"""
    vain: int = 2
    """such looks in a row that told nothing, with which the wind has stopped"""


class Trials:
    """Decides from returns whether the next episode of a row is adapted or the base policy's.

    With a size of windows, (h, d_w), nothing is adapted before ŵ can be predicted from its past.
    `careful` is whether noise begins small where episodes end by themselves, and shrinks where it
    has done harm; `doubtful` whether it begins small in any case and grows the more slowly;
    `of_noise` whether ŵ is made of the noise, over its square; `trusted` whether it begins with an
    M that was set.
    """

    def __init__(
        self,
        rows: int = 1,
        window: tuple[int, int] | None = None,
        careful: bool = False,
        doubtful: bool = False,
        of_noise: bool = False,
        settings: TrialSettings | None = None,
        trusted: bool = False,
    ) -> None:
        self.settings = settings or TrialSettings()
        self.rows, self._window, self._careful = rows, window, careful
        self._doubtful, self._of_noise, self._trusted = doubtful, of_noise, trusted
        self._least = self.settings.care_of_noise if of_noise else self.settings.care
        self.decisions: list[str] = []
        """what was decided, in sentences"""
        self.reset()

    def reset(self) -> None:
        """As when it was made."""
        s = self.settings
        self.decisions.clear()
        self.adapted: list[float] = []
        """returns of the last adapted episodes"""
        self.base: list[float] = []
        """returns of the last episodes of the base policy"""
        self.resting = False
        """whether the next episodes are the base policy's"""
        self.turn = np.ones(self.rows, dtype=bool)
        """rows whose episode is adapted"""
        self.episode = 0
        self._total, self._stepped = np.zeros(self.rows), np.zeros(self.rows, dtype=bool)
        self._until_base, self._gap = s.first, s.gap
        self._rest, self._next_rest = 0, s.rest
        self.waiting = self._window is not None
        """whether nothing is adapted yet, as nothing in ŵ can be predicted from its past"""
        self.size = 1.0
        """of the base policy's actions: what noise and steps are multiplied with for them"""
        self.care = self._least if self._doubtful else 1.0
        """and for the harm that they may do"""
        self.wary = self._doubtful
        """whether noise began small, by a doubt or as one of the first episodes ended by itself"""
        self._whole = 0
        self._past, self._looked, self._vain = self._blank(), 0, 0
        self._needed = s.look[1]
        self.looks = self._window is not None
        """whether it wants to see ŵ"""
        self._trusts = False
        self._acted, self._acts = 0.0, 0
        self._steps = self._cut = 0
        if self._trusted:
            self.trust()

    @property
    def phase(self) -> str:
        """observe, trial, active or rest."""
        if self.waiting:
            return "observe"
        if self.resting:
            return "rest"
        return "active" if self._enough else "trial"

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
        """The mean square of base actions while waiting, in shares of their range."""
        if math.isfinite(square):
            self._acted, self._acts = self._acted + square, self._acts + 1

    def feel(self, w_hat: np.ndarray | None) -> None:
        """ŵ of a step of the first row, while it looks; None where nothing is known of it."""
        if w_hat is None:
            self._past.cut()
            return
        self._past.see(w_hat)
        told = self._past.told
        if told and self.waiting:
            self._begin(told)
        elif told:
            self.looks = False  # until the next episodes: this wind goes on
        elif self.waiting and self._past.predicted >= self.settings.anew:
            self._past = self._blank()

    def _begin(self, told: float) -> None:
        """There is something that M could act on."""
        s = self.settings
        self.waiting = False
        self._total[:] = math.nan  # part of these episodes was the base policy's
        oddities = self._past.oddities
        # What took long to be told takes as long to be missed.
        self._needed = min(max(s.look[1], 2 * self._past.predicted), s.anew)
        self._past, self._looked, self._vain = self._blank(), 0, 0
        if self._acts:
            size = math.sqrt(self._acted / self._acts)
            self.size = min(max(s.reach * size, s.least_reach), 1.0)
        reasons = ["the base policy moves little"] if self.size < 1 else []
        if self.care < 1:
            reasons.append(
                "the disturbance is made of values, whose error may be all of it"
                if self._doubtful
                else "noise may do harm here"
            )
        noise = f", with {100 * self.reach:.2g} % of the usual noise: {' and '.join(reasons)}"
        self.say(
            f"began to adapt: its past predicts {100 * told:.0f} % of the disturbance"
            f"{noise if reasons else ''}; judged by returns, of {s.least[0]} adapted episodes and "
            f"{s.least[1]} of the base policy at least"
        )
        for each in oddities:
            self.say(each)

    def _blank(self) -> Predictable:
        return Predictable(*(self._window or (1, 1)))

    def trust(self) -> None:
        """Waits no longer, and never again: M was set by somebody who knows."""
        if self.waiting:
            self._total[:] = math.nan  # part of these episodes was the base policy's
        self.waiting, self.looks, self._trusts, self.wary = False, False, True, True

    def step(self, reward: np.ndarray, valid: np.ndarray) -> None:
        """Rewards of a step of rows; NaN where they are not known."""
        self._total = np.where(valid, self._total + reward, self._total)
        self._stepped = self._stepped | valid

    def torn(self, rows: np.ndarray) -> None:
        """Part of an episode was not seen: its return tells nothing."""
        self._total[rows] = math.nan
        self._past.cut()

    def left(self, rows: np.ndarray) -> None:
        """Episodes begin; one that was left before its end tells nothing by its return."""
        for row in np.flatnonzero(rows):
            if self._stepped[row]:
                self._missed()
            self._total[row], self._stepped[row] = 0.0, False
            self.turn[row] = not self.resting
        self._past.cut()

    def saturates(self, cut: np.ndarray, corrected: np.ndarray) -> bool:
        """Whether most corrections of late were cut off at the bounds; then M is forgotten."""
        s = self.settings
        self._steps, self._cut = self._steps + int(corrected.sum()), self._cut + int(cut.sum())
        if self._steps < s.looked:
            return False
        share, self._steps, self._cut = self._cut / self._steps, 0, 0
        if share <= s.saturated or self.resting:
            return False
        self.say(
            f"withdrawn: {100 * share:.0f} % of the corrected actions were cut off at the "
            f"actuator's bounds; the base policy acts for the next {self._next_rest} episodes"
        )
        self._withdraw()
        self.turn[:] = False
        self._total[:] = math.nan
        return True

    def end(self, row: int, fell: bool = False) -> bool:
        """A row's episode is over, by a fall or by a limit of time; whether M is forgotten."""
        total, rested = float(self._total[row]), not self.turn[row]
        self._total[row], self._stepped[row] = 0.0, False
        forgets = self._ended(total, rested, fell)
        if forgets:  # other rows' episodes were of the M that is no more
            self._total[self._stepped] = math.nan
        self.turn[row] = not self.resting
        return forgets

    def _ended(self, total: float, rested: bool, fell: bool) -> bool:
        self.episode += 1
        self._past.cut()
        afraid = not rested and self._falls(fell)
        if self.waiting:
            return False  # there is nothing yet, and its return is of another wind, or none
        if self._calm(math.isfinite(total), rested):
            return True
        if afraid:
            return True  # its return is of noise that is no longer
        if not math.isfinite(total):
            self._missed()
            return False
        kept = self.base if rested else self.adapted
        kept.append(total)
        del kept[: -self.settings.kept]
        return self._after_base() if rested else self._after_adapted()

    def _calm(self, whole: bool, rested: bool) -> bool:
        """Waits again where the last episodes told nothing of ŵ; whether it begins to."""
        s = self.settings
        if rested or self._window is None or self._trusts:
            return False
        self._looked += whole
        if self._looked < s.look[0] or (self.looks and self._past.predicted < self._needed):
            return False
        self._vain = self._vain + 1 if self.looks else 0
        self._past, self._looked, self.looks = self._blank(), 0, True
        if self._vain < s.vain:
            return False
        self.waiting, self.adapted, self.base = True, [], []
        self._acted, self._acts = 0.0, 0
        self.say(
            "withdrawn: its past predicts nothing of the disturbance any more; the base policy "
            "acts until it does"
        )
        return True

    def _falls(self, fell: bool) -> bool:
        """Takes care from the first fall on; whether it begins to with this one."""
        self._whole += not (fell or self.waiting)
        if not (fell and self._careful) or self.wary or self._whole >= self.settings.early:
            return False
        self.wary, self.care, self.adapted = True, self._least, []
        self.say(
            f"episodes end by themselves: noise begins at {100 * self._least:.1f} % of its size "
            "and grows while that does no harm"
        )
        return True

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

    def _after_base(self) -> bool:
        """An episode of the base policy was kept; whether M is to be forgotten."""
        if self._rest <= 1:
            self._go_on("began again")
        elif self._wind_changed():
            self.base = self.base[-self.settings.least[1] :]  # the others are of another wind
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
            self._gap += 1
        return False

    @property
    def _enough(self) -> bool:
        least = self.settings.least
        return len(self.adapted) >= least[0] and len(self.base) >= least[1]

    def _judge(self) -> bool:
        """Withdraws M if adapted episodes were worse beyond doubt; whether it does."""
        if not self._enough:
            return False
        s = self.settings
        loss = mean(self.base) - mean(self.adapted)
        error = math.sqrt(error2(self.base) + error2(self.adapted))
        sure = loss > s.doubt * error or below(self.adapted, self.base, s.chance)
        if not (loss > 0 and sure):
            self._unharmed(loss)
            return False
        percent = 100 * loss / max(abs(mean(self.base)), 1e-12)
        said = (
            f"withdrawn: {len(self.adapted)} adapted episodes were {percent:.0f} % worse than "
            f"{len(self.base)} of the base policy, which acts for the next {self._next_rest}"
        )
        if self._careful:
            self.care = max(self.care / 4, self._least)
            said += f", and noise has {100 * self.care:.1f} % of its size after that"
        self.say(said)
        self._withdraw()
        return True

    def _withdraw(self) -> None:
        self._rest, self._next_rest = (
            self._next_rest,
            min(2 * self._next_rest, self.settings.longest),
        )
        self.resting, self.adapted, self.base = True, [], []

    def _wind_changed(self) -> bool:
        """Whether the newest of the base policy's returns are unlike those before them."""
        s = self.settings
        old, new = self.base[: -s.least[1]], self.base[-s.least[1] :]
        if len(old) < s.least[0]:
            return False
        return abs(mean(old) - mean(new)) > s.changed * math.sqrt(error2(old) + error2(new))

    def _unharmed(self, loss: float) -> None:
        """Dares more, as adapted episodes are not worse beyond doubt."""
        enough = self.settings.kept if self._doubtful else self.settings.least[0]
        if self.care < 1 and len(self.adapted) >= enough and self._bearable(loss):
            self.care, self.adapted = min(2 * self.care, 1.0), []

    def _bearable(self, loss: float) -> bool:
        """Whether little may be lost, at most, even if the few returns of a kind are alike by luck.

        Hence the spread of both kinds together.
        """
        s, both = self.settings, self.adapted + self.base
        shares = len(both) / len(self.adapted) + len(both) / len(self.base)
        return loss + s.sure * math.sqrt(shares * error2(both)) <= s.bearable * abs(mean(self.base))

    def say(self, what: str) -> None:
        """One more sentence of what was decided, or found."""
        self.decisions.append(f"after episode {self.episode}: {what}")

    def memory(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        own = {name: getattr(self, name) for name in (*COUNTS, *FLAGS, *NUMBERS)}
        rows = {name: getattr(self, name).tolist() for name in ROWS}
        returns = {name: list(getattr(self, name)) for name in RETURNS}
        rest = {"decisions": list(self.decisions), "past": self._past.memory()}
        return own | rows | returns | rest

    def restore(self, memory: Any) -> None:
        """Goes on from what `memory` gave; what does not fit changes nothing."""
        try:
            found: dict[str, Any] = {name: checks.integer(name, memory[name], 0) for name in COUNTS}
            found |= {name: _flag(name, memory[name]) for name in FLAGS}
            found |= {name: float(memory[name]) for name in NUMBERS}
            for name, dtype in ROWS.items():
                found[name] = np.array(memory[name], dtype=dtype)
                if found[name].shape != (self.rows,):
                    raise ValueError(f"it has {name} of {len(found[name])} rows")
            for name in RETURNS:
                found[name] = [float(each) for each in memory[name]]
                if len(found[name]) > self.settings.kept or not np.isfinite(found[name]).all():
                    raise ValueError(f"it has {memory[name]} for returns of {name} episodes")
            for name in ("size", "care"):
                if not 0 < found[name] <= 1:
                    raise ValueError(f"it has a {name} of {found[name]}, which is no share")
            if not 0 <= found["_acted"] < math.inf:
                raise ValueError(f"it has {found['_acted']} for the squares of actions")
            if not found["_next_rest"] or (found["_rest"] and not found["resting"]):
                raise ValueError(
                    f"it rests for {found['_rest']} episodes, then {found['_next_rest']}"
                )
            past, decisions = self._blank(), [str(each) for each in memory["decisions"]]
            past.restore(memory["past"])
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"it is no memory of trials: {error!r}") from error
        self._past, self.decisions[:] = past, decisions
        for name, value in found.items():
            setattr(self, name, value)


RETURNS = ("adapted", "base")
COUNTS = (
    "episode", "_until_base", "_gap", "_rest", "_next_rest", "_acts", "_whole", "_looked", "_vain",
    "_needed", "_steps", "_cut",
)  # fmt: skip
FLAGS = ("resting", "waiting", "wary", "looks", "_trusts")
NUMBERS = ("_acted", "size", "care")
ROWS: dict[str, type] = {"turn": bool, "_total": float, "_stepped": bool}


def mean(returns: Sequence[float]) -> float:
    """Of a few returns, at least one."""
    return sum(returns) / len(returns)


def below(some: Sequence[float], others: Sequence[float], chance: float) -> bool:
    """Whether some lie below others by their ranks, of which a few that are far off have few.

    A pole that stands or falls: one that stood among the others makes any mean uncertain.
    """
    return bool(mannwhitneyu(some, others, alternative="less").pvalue < chance)


def error2(returns: Sequence[float]) -> float:
    """The square of the mean's standard error."""
    middle, n = mean(returns), len(returns)
    # Products, not powers: those of huge returns overflow to infinity without raising.
    return sum((each - middle) * (each - middle) for each in returns) / max(n - 1, 1) / n


def _flag(name: str, value: Any) -> bool:
    """Yes or no from a file."""
    if not isinstance(value, bool):
        raise ValueError(f"it has {value!r} for {name}, which is neither true nor false")
    return value
