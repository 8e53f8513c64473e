"""When replays look for M, how long they are, and how large the steps of the search are."""

import math
from typing import Any

import numpy as np

from windward import checks
from windward.adapt.search import Search

SCALES = (1.0, 1 / 4, 1 / 16)  # of the first step, one after the other where nothing is found
BEYOND, MOST = 1.25, 0.8  # a replay is so much longer than most ends of episodes were late
LONGEST = 1000  # steps of a replay
VAIN = 60  # searches without any M, after which an end is no reason to look harder
SOONER = 0.5  # of the usual length: an end that comes before it is news
COUNTS = ("since", "wait", "this_episode", "length", "vain", "scale")
LENGTHS = ("ends", "lasted")


class Pace:
    """Counts steps, ends and searches of one environment."""

    def __init__(self, search: Search, longest: int = LONGEST) -> None:
        self.search, self._longest = search, longest
        self.since = self.this_episode = self.length = self.vain = 0
        self.wait = search.every
        """steps from one update to the next"""
        self.scale = 0
        """which of SCALES the search's first step is multiplied with"""
        self.ends: list[int] = []
        """lengths of the last episodes that ended by themselves"""
        self.lasted: list[int] = []
        """of the last ones that time ended, or whoever left them"""
        self.torn = False
        """whether part of this episode was not seen, so that its length is not known"""

    def left(self) -> None:
        """An episode begins, wherever the last one was."""
        if self.length and not self.torn:
            self.lasted = [*self.lasted, self.length][-self.search.kept :]
        self.this_episode = self.length = 0
        self.torn = False

    def step(self, recorded: bool, terminated: bool) -> int:
        """A step is over; how many updates are due."""
        self.length += 1
        self.since += recorded
        due = int(self.since >= self.wait)
        if not terminated:
            return due
        if not self.torn:
            if self.ends and self.length < SOONER * float(np.median(self.ends)):
                self.vain = 0  # the wind is another one
            self.ends = [*self.ends, self.length][-self.search.kept :]
        self.length = 0
        if self.vain >= VAIN:
            return due
        # An end that might have been avoided; small steps were for what nothing puts an end to.
        self.wait, self.scale = self.search.every, 0
        share = min(1.0, self._usual / self.horizon)  # for as much work where replays are long
        return max(due, math.ceil(self.search.per_episode * share) - self.this_episode)

    def updated(self, count: int, *, found: bool, idle: bool, ended: bool) -> None:
        """So many updates were made, which found a better M or none; `idle` if M is 0.

        Where nothing was found for long the search takes smaller steps: a policy that uses little
        of its actions' range is to be corrected by little.
        """
        every, most = self.search.every, self.search.at_most
        self.since, self.this_episode = 0, 0 if ended else self.this_episode + count
        if found:
            self.wait = every
        elif 2 * self.wait >= most and idle and self.scale + 1 < len(SCALES):
            self.wait, self.scale = every, self.scale + 1
        else:
            self.wait = min(2 * self.wait, most)

    def searched(self, *, idle: bool) -> None:
        """A generation was tried; `idle` if M is 0 after it."""
        self.vain = self.vain + 1 if idle else 0

    @property
    def first_step(self) -> float:
        """With which a search begins."""
        return SCALES[self.scale] * self.search.step

    @property
    def _usual(self) -> int:
        """The least steps of a replay once an episode has ended by itself."""
        return max(self.search.horizon, self.search.after_end)

    @property
    def horizon(self) -> int:
        """Steps of a replay: so many that most ends of before lie within it.

        Else M might gain by what brings the end nearer.
        """
        if not self.ends:
            return self.search.horizon
        late = math.ceil(BEYOND * float(np.quantile(self.ends, MOST)))
        return max(self._usual, min(late, self._longest))

    @property
    def lasts(self) -> int:
        """Steps of an episode where nothing but time has ended any so far; else 0."""
        if self.ends:
            return 0
        return int(np.median(self.lasted)) if self.lasted else self.length

    def gamma(self, length: int) -> float:
        """The discount; over all of a replay that is longer than usual it is the usual one."""
        return float(self.search.gamma ** min(1.0, self._usual / length))

    def memory(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return {name: getattr(self, name) for name in (*COUNTS, *LENGTHS, "torn")}

    def restore(self, memory: Any) -> None:
        """Goes on from what `memory` gave; what does not fit changes nothing."""
        found: dict[str, Any] = {}
        for name in COUNTS:
            found[name] = checks.integer(name, memory[name], 1 if name == "wait" else 0)
        for name in LENGTHS:
            found[name] = [checks.integer("a length", each, 1) for each in memory[name]]
        if found["scale"] >= len(SCALES):
            raise ValueError(f"it has a step of number {found['scale']}, of {len(SCALES)}")
        found["torn"] = bool(memory["torn"])
        for name, value in found.items():
            setattr(self, name, value)
