"""What was recorded of the world: steps of each row, as a log that a diagnosis reads."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from windward.diagnosis.log import Episode, Log


@dataclass
class Track:
    """One episode, or the part of one that is kept."""

    x: list[np.ndarray]
    observations: list[np.ndarray]
    u: list[np.ndarray] = field(default_factory=list)
    whole: bool = True
    """whether it begins where the episode did"""


class Memory:
    """The last steps of all rows, at most `kept`; `forget` drops those before a change."""

    def __init__(self, rows: int, kept: int) -> None:
        self._kept = kept
        self._open: list[Track | None] = [None] * rows
        self._tracks: list[Track] = []
        self.steps = 0
        """recorded since the last change"""

    def begin(self, row: Any, x: np.ndarray, observation: np.ndarray) -> None:
        """An episode of a row begins."""
        self._open[row] = Track([x], [observation])
        self._tracks.append(self._open[row])

    def add(self, row: Any, u: np.ndarray, x: np.ndarray, observation: np.ndarray) -> None:
        """A step of a row; the first after a gap begins a stretch of its own."""
        track = self._open[row]
        if track is None:
            return
        track.u.append(u)
        track.x.append(x)
        track.observations.append(observation)
        self.steps += 1
        if len(track.u) >= 2 * self._kept:
            # An episode without an end keeps its last steps.
            for each in (track.x, track.observations, track.u):
                del each[: self._kept]
            track.whole = False

    def cut(self, row: Any) -> None:
        """What comes next does not follow from what is there."""
        track, self._open[row] = self._open[row], None
        if track is not None and not track.u:
            self._tracks = [each for each in self._tracks if each is not track]
        self._trim()

    def resume(self, row: Any, x: np.ndarray, observation: np.ndarray) -> None:
        """Goes on after a gap amid an episode."""
        self.begin(row, x, observation)
        self._open[row].whole = False

    def forget(self, keep: int) -> None:
        """Keeps the last `keep` steps of open episodes alone: the world changed."""
        tracks = []
        for row, track in enumerate(self._open):
            if track is None:
                continue
            n = min(keep, len(track.u))
            own = Track(
                track.x[len(track.x) - n - 1 :], track.observations[len(track.x) - n - 1 :],
                track.u[len(track.u) - n :], False,
            )  # fmt: skip
            self._open[row] = own
            tracks.append(own)
        self._tracks, self.steps = tracks, sum(len(each.u) for each in tracks)

    def _trim(self) -> None:
        """Drops the oldest closed episodes beyond what is kept."""
        total = sum(len(each.u) for each in self._tracks)
        going = {id(each) for each in self._open}
        kept = []
        for each in self._tracks:
            if total > self._kept and id(each) not in going and each is not self._tracks[-1]:
                total -= len(each.u)
            else:
                kept.append(each)
        self._tracks = kept

    def log(self, env: str | None = None) -> Log:
        """Newest stretches first: a diagnosis looks at the first steps of a log."""
        episodes = tuple(
            Episode(
                np.array(each.observations), np.array(each.u), np.zeros(len(each.u)), False, True,
                np.array(each.x),
            )
            for each in reversed(self._tracks)
            if len(each.u) > 1
        )  # fmt: skip
        return Log(episodes, {"env": env})

    def starts(self) -> np.ndarray:
        """(n, d_x) first states of whole episodes, or of stretches if there are none."""
        whole = [each.x[0] for each in self._tracks if each.whole]
        return np.array(whole or [each.x[0] for each in self._tracks])

    def recent(self, count: int) -> np.ndarray:
        """(n, d_x) the last states of open episodes."""
        found = [x for track in self._open if track is not None for x in track.x[-count:]]
        return np.array(found) if found else self.starts()

    def states(self) -> list[np.ndarray]:
        """Stretches of states."""
        return [np.array(each.x) for each in self._tracks if len(each.x) > 1]

    def observations(self) -> np.ndarray:
        """(n, d) flattened."""
        found = np.concatenate([np.array(each.observations) for each in self._tracks])
        return found.reshape(len(found), -1).astype(np.float64)

    def last(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(x, u, x_next) of the last steps of open episodes."""
        rows = [
            (track.x[i], track.u[i], track.x[i + 1])
            for track in self._open
            if track is not None
            for i in range(max(0, len(track.u) - count), len(track.u))
        ]
        if not rows:
            return np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0))
        x, u, x_next = (np.array(each) for each in zip(*rows, strict=True))
        return x, u, x_next
