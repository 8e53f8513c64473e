"""When it pushes: a factor on the disturbance, 0 for off and 1 for full, at each step.

`when=` takes one of these, several (their product), or any function (step, episode) -> factor.
Steps and episodes count from 0; `reset(seed=...)` begins episode 0 again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from windward import checks


class Schedule(Protocol):
    """Anything that gives a factor for each step."""

    def factors(self, rng: np.random.Generator, episode: int, t: int, n: int) -> np.ndarray:
        """Factors (n,) of steps t .. t+n-1."""
        ...


When = Schedule | Callable[[int, int], float] | Sequence[Any] | None


@dataclass(frozen=True)
class Interval:
    """Steps start .. stop-1 of every episode; no stop means to the end."""

    start: int = 0
    stop: int | None = None

    def __post_init__(self) -> None:
        checks.integer("start", self.start, 0)
        if self.stop is not None:
            checks.integer("stop", self.stop, self.start + 1)

    def factors(self, rng: np.random.Generator, episode: int, t: int, n: int) -> np.ndarray:
        times = np.arange(t, t + n)
        return ((times >= self.start) & (self.stop is None or times < self.stop)).astype(float)


@dataclass(frozen=True)
class Probability:
    """At each step with probability p, independently."""

    p: float

    def __post_init__(self) -> None:
        if not 0 <= checks.finite_array("probability", self.p, ndim=0) <= 1:
            raise ValueError(f"probability must lie in [0, 1]; got {self.p!r}")

    def factors(self, rng: np.random.Generator, episode: int, t: int, n: int) -> np.ndarray:
        return (rng.random(n) < self.p).astype(float)


@dataclass(frozen=True)
class FromEpisode:
    """From the given episode on; the first is 0."""

    episode: int

    def __post_init__(self) -> None:
        checks.integer("from_episode", self.episode, 0)

    def factors(self, rng: np.random.Generator, episode: int, t: int, n: int) -> np.ndarray:
        return np.full(n, float(episode >= self.episode))


@dataclass(frozen=True)
class Growing:
    """Grows in proportion to time up to full size after `steps` steps, or `episodes` episodes."""

    steps: int | None = None
    episodes: int | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.episodes is None):
            raise ValueError("Growing needs either steps or episodes")
        checks.integer("grow", self.steps if self.episodes is None else self.episodes, 1)

    def factors(self, rng: np.random.Generator, episode: int, t: int, n: int) -> np.ndarray:
        if self.steps is not None:
            return np.minimum(1.0, (np.arange(t, t + n) + 1) / self.steps)
        return np.full(n, min(1.0, (episode + 1) / (self.episodes or 1)))


def as_schedules(when: When) -> tuple[Schedule | Callable[[int, int], float], ...]:
    """`when=` as the schedules to multiply; nothing means always."""
    if when is None:
        return ()
    if isinstance(when, Sequence) and not isinstance(when, str):
        return tuple(each for item in when for each in as_schedules(item))
    if not isinstance(when, type) and (hasattr(when, "factors") or callable(when)):
        return (when,)
    raise ValueError(
        f"when must be Interval, Probability, FromEpisode, Growing, a function (step, episode) -> "
        f"factor, or a list of them; got {when!r}"
    )
