"""What pushes: disturbance sequences w_0, w_1, ... of one episode, drawn in blocks.

A disturbance is a frozen record of numbers. Each parameter is one number for all coordinates or
one for each; randomness is drawn for each coordinate on its own. A sequence depends on the seed and
the time alone, never on what a policy does (`GradientSign`, which answers back, has a file of its
own).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from windward import checks

Numbers = float | tuple[Any, ...]
"""One number for all coordinates, or (nested) tuples with one for each."""
Shape = tuple[int, ...]


class Ask(NamedTuple):
    """What a block is drawn from: rows t .. t+n-1 for a channel of the given shape."""

    rng: np.random.Generator
    t: int
    n: int
    shape: Shape
    carry: Any
    """what the block before handed on; None at an episode's start"""

    @property
    def times(self) -> np.ndarray:
        """t .. t+n-1 as a column that broadcasts against rows."""
        return np.arange(self.t, self.t + self.n).reshape((self.n,) + (1,) * len(self.shape))

    def spread(self, **parameter: Numbers) -> np.ndarray:
        """A named parameter: one number, or as many as the channel has."""
        ((name, value),) = parameter.items()
        array = np.asarray(value, dtype=np.float64)
        if array.ndim:
            checks.shape(name, array, self.shape, "one number for each coordinate, or one for all")
        return array

    def rows(self, values: np.ndarray) -> np.ndarray:
        """Values that broadcast to (n, *shape), at that shape."""
        return np.broadcast_to(values, (self.n, *self.shape))


Rows = tuple[np.ndarray, Any]
"""An array (n, *shape), and what the next block needs to know."""


class Disturbance(Protocol):
    """Anything with a `block`: the next rows of a sequence."""

    iid: ClassVar[bool]
    """whether rows are independent with one distribution, so that a simulator may redraw them"""

    def block(self, ask: Ask) -> Rows:
        """The rows asked for, and what to carry to the next block."""
        ...


def _any(name: str, value: Any) -> None:
    """No rule beyond being finite."""


def not_negative(name: str, value: Any) -> None:
    """A rule for `freeze`."""
    checks.positive(name, value, zero=True)


def _positive(name: str, value: Any) -> None:
    checks.positive(name, value)


def freeze(record: Any, **rules: Callable[[str, Any], None]) -> None:
    """Checks named fields of a frozen dataclass and stores them as numbers or nested tuples."""

    def hashable(item: Any) -> Any:
        return tuple(map(hashable, item)) if isinstance(item, list) else item

    for name, rule in rules.items():
        value = hashable(checks.finite_array(name, getattr(record, name)).tolist())
        rule(name, value)
        object.__setattr__(record, name, value)


@dataclass(frozen=True)
class Uniform:
    """Independent U[-bound, bound] in each coordinate at each step; the paper's noise."""

    bound: Numbers = 0.1
    iid: ClassVar[bool] = True

    def __post_init__(self) -> None:
        freeze(self, bound=not_negative)

    def block(self, ask: Ask) -> Rows:
        return ask.rng.uniform(-1.0, 1.0, (ask.n, *ask.shape)) * ask.spread(bound=self.bound), None


@dataclass(frozen=True)
class Gaussian:
    """Independent N(0, scale²) in each coordinate at each step."""

    scale: Numbers = 0.1
    iid: ClassVar[bool] = True

    def __post_init__(self) -> None:
        freeze(self, scale=not_negative)

    def block(self, ask: Ask) -> Rows:
        return ask.rng.standard_normal((ask.n, *ask.shape)) * ask.spread(scale=self.scale), None


Phase = Numbers | Literal["random"]


def _cycles(ask: Ask, period: Numbers, phase: Phase) -> Rows:
    """t/period + phase/2π, in cycles; a random phase is drawn once an episode."""
    start = ask.carry
    if start is None:
        random = phase == "random"
        start = (
            ask.rng.uniform(0.0, 1.0, ask.shape)
            if random
            else ask.spread(phase=phase) / (2 * np.pi)  # type: ignore[arg-type]
        )
    return ask.times / ask.spread(period=period) + start, start


def _check_phase(record: Any) -> None:
    if isinstance(record.phase, str):
        if record.phase != "random":
            raise ValueError(f'phase must be numbers in radians or "random"; got {record.phase!r}')
    else:
        freeze(record, phase=_any)


@dataclass(frozen=True)
class Sinusoid:
    """w_t = amplitude · sin(2πt/period + phase), t the step of the episode.

    `phase="random"` draws a phase for each coordinate at each episode's start.
    """

    amplitude: Numbers = 0.1
    period: Numbers = 60.0
    phase: Phase = 0.0
    iid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        freeze(self, amplitude=_any, period=_positive)
        _check_phase(self)

    def block(self, ask: Ask) -> Rows:
        cycles, start = _cycles(ask, self.period, self.phase)
        return ask.rows(ask.spread(amplitude=self.amplitude) * np.sin(2 * np.pi * cycles)), start


@dataclass(frozen=True)
class SquareWave:
    """+amplitude for the share `duty` of each period, then -amplitude."""

    amplitude: Numbers = 0.1
    period: Numbers = 60.0
    phase: Phase = 0.0
    duty: float = 0.5
    iid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        freeze(self, amplitude=_any, period=_positive)
        _check_phase(self)
        duty = checks.finite_array("duty", self.duty, ndim=0)
        if not 0 <= duty <= 1:
            raise ValueError(f"duty must lie in [0, 1]; got {self.duty!r}")

    def block(self, ask: Ask) -> Rows:
        cycles, start = _cycles(ask, self.period, self.phase)
        # A hair's rounding must not move an edge by a step.
        high = np.mod(cycles + 1e-9, 1.0) < self.duty
        return ask.rows(ask.spread(amplitude=self.amplitude) * np.where(high, 1.0, -1.0)), start


@dataclass(frozen=True)
class OrnsteinUhlenbeck:
    """w_{t+1} = mean + a(w_t - mean) + scale·sqrt(1-a²)·ξ, a = exp(-1/tau), ξ ~ N(0, 1).

    Stationary from the first step: mean `mean`, standard deviation `scale`, correlation
    exp(-k/tau) between steps k apart.
    """

    scale: Numbers = 0.1
    tau: float = 20.0
    mean: Numbers = 0.0
    iid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        freeze(self, scale=not_negative, mean=_any)
        checks.finite_array("tau", self.tau, ndim=0)
        checks.positive("tau", self.tau)

    def block(self, ask: Ask) -> Rows:
        a = float(np.exp(-1.0 / self.tau))
        fresh = ask.rng.standard_normal((ask.n, *ask.shape))
        unit = np.empty_like(fresh)
        now = ask.carry
        for i, xi in enumerate(fresh):
            now = xi if now is None else a * now + np.sqrt(1 - a * a) * xi
            unit[i] = now
        return ask.spread(mean=self.mean) + ask.spread(scale=self.scale) * unit, now


@dataclass(frozen=True)
class RandomWalk:
    """Sums of N(0, scale²) from 0 at each episode's start, reflected into [-bound, bound]."""

    scale: Numbers = 0.01
    bound: Numbers = 1.0
    iid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        freeze(self, scale=not_negative, bound=_positive)

    def block(self, ask: Ask) -> Rows:
        steps = ask.rng.standard_normal((ask.n, *ask.shape)) * ask.spread(scale=self.scale)
        if ask.carry is None:
            steps[0] = 0.0
        walk = np.cumsum(steps, axis=0) + (0.0 if ask.carry is None else ask.carry)
        bound = ask.spread(bound=self.bound)
        folded = np.mod(walk + bound, 4 * bound)
        return np.minimum(folded, 4 * bound - folded) - bound, walk[-1]


@dataclass(frozen=True)
class Bias:
    """The same value at every step: constant wind, a payload, a sensor's offset."""

    value: Numbers = 0.1
    iid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        freeze(self, value=_any)

    def block(self, ask: Ask) -> Rows:
        return ask.rows(ask.spread(value=self.value)), None


@dataclass(frozen=True)
class Step:
    """0 before step `at` of the episode, `size` from then on."""

    size: Numbers = 0.1
    at: int = 100
    iid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        freeze(self, size=_any)
        checks.integer("at", self.at, 0)

    def block(self, ask: Ask) -> Rows:
        return ask.rows((ask.times >= self.at) * ask.spread(size=self.size)), None


@dataclass(frozen=True)
class Impulse:
    """`size` for `width` steps from step `at` on, again after every `every` steps (0: once)."""

    size: Numbers = 1.0
    at: int = 100
    width: int = 1
    every: int = 0
    iid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        freeze(self, size=_any)
        checks.integer("at", self.at, 0)
        checks.integer("width", self.width, 1)
        if checks.integer("every", self.every, 0) and self.every < self.width:
            raise ValueError(
                f"every must be 0 (once) or at least width = {self.width}; got {self.every}"
            )

    def block(self, ask: Ask) -> Rows:
        since = ask.times - self.at
        phase = since % self.every if self.every else since
        on = (since >= 0) & (phase < self.width)
        return ask.rows(on * ask.spread(size=self.size)), None
