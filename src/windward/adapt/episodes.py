"""Episodes of many rows at once in the nominal world or the diagnosed one, under a correction."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from windward.adapt import winds
from windward.adapt.corrections import Carry, Choices, Correction, Space
from windward.adapt.twin import Twin
from windward.adapt.winds import WindSettings

Policy = Callable[[np.ndarray], np.ndarray]


class Starts(NamedTuple):
    """Where simulated episodes begin, and the wind that blows in each: common to all candidates."""

    x: np.ndarray  # (n, d_x)
    wind: np.ndarray | None  # (n, steps, axes)

    def repeated(self, count: int) -> "Starts":
        """The same starts for `count` candidates, candidate by candidate."""
        blown = None if self.wind is None else np.tile(self.wind, (count, 1, 1))
        return Starts(np.tile(self.x, (count, 1)), blown)


class Window(NamedTuple):
    """How deviations from the nominal world are kept: h of them, divided by their size."""

    h: int
    size: np.ndarray  # (d_w,)
    coordinates: np.ndarray  # (d_w,) which they are


def blank_carry(n: int, space: Space, twin: Twin, window: Window | None) -> Carry:
    """What rows remember at the beginning of an episode."""
    owed = twin.d_x if isinstance(space, Choices) else 0
    h, d_w = (0, 0) if window is None else (window.h, len(window.coordinates))
    return Carry(
        np.zeros((n, space.outputs)), np.zeros((n, h, d_w)), np.zeros((n, twin.axes)),
        np.zeros((n, owed)),
    )  # fmt: skip


def play(
    twin: Twin,
    policy: Policy,
    correction: Correction | None,
    starts: Starts,
    horizon: int,
    settings: WindSettings,
    window: Window | None = None,
    changed: bool = True,
    dtype: type = np.float32,
) -> tuple[np.ndarray, np.ndarray]:
    """(returns, steps) of an episode of each row; the wind is predicted from its own past."""
    n, axes = len(starts.x), 0 if starts.wind is None else starts.wind.shape[2]
    x, index = starts.x, np.arange(n)
    total, alive = np.zeros(n), np.zeros(n, dtype=int)
    carry = None if correction is None else blank_carry(n, correction.range, twin, window)
    memory = winds.blank(n, axes, settings)
    weights = getattr(correction, "weights", np.zeros((0, 0)))
    for t in range(horizon):
        observation = twin.observe(x)
        base = policy(observation)
        rows = np.asarray(base, dtype=np.float64).reshape(len(x), -1)
        blown = None if starts.wind is None else starts.wind[index, t]
        if correction is None or carry is None:
            u = base
        else:
            guess = None
            if twin.wind is not None and axes:
                guess = winds.predict(twin.wind, memory, settings)
            own = correction
            if weights.ndim == 3:
                own = correction._replace(weights=weights[index])  # type: ignore[attr-defined]
            made, carry = own.act(twin, x, observation, rows, guess, carry)
            u = made.astype(dtype).reshape(base.shape)
            if guess is not None:
                carry = carry._replace(wind=guess)
        x_next, reward, ended = twin.step(x, u, blown, changed)
        if window is not None and carry is not None:
            carry = deviated(twin, window, x, u, x_next, carry)
        if blown is not None:
            memory = memory.after(blown)
        total[index] += reward
        alive[index] += 1
        going = ~ended
        if not going.all():
            x_next, index = x_next[going], index[going]
            if carry is not None:
                carry = Carry(*(each[going] for each in carry))
            memory = winds.Memory(memory.amount[going])
        x = x_next
        if not len(index):
            break
    return total, alive


def deviated(
    twin: Twin, window: Window, x: np.ndarray, u: np.ndarray, x_next: np.ndarray, carry: Carry
) -> Carry:
    """What rows remember, with the deviation of this step from the nominal world (PD3)."""
    told = twin.advance(np.zeros(len(x), dtype=bool), x, u)
    w = twin.gap(x_next, told)[:, window.coordinates] / window.size
    w = np.where(np.isfinite(w), w, 0.0)
    return carry._replace(window=np.concatenate([w[:, None], carry.window[:, :-1]], axis=1))


def draw_starts(
    twin: Twin,
    recorded: np.ndarray,
    count: int,
    steps: int,
    rng: np.random.Generator,
    jitter: float,
) -> Starts:
    """Fresh starts near recorded ones, each with a fresh wind of the diagnosed kind."""
    picked = recorded[rng.integers(len(recorded), size=count)]
    x = picked + rng.uniform(-jitter, jitter, picked.shape)
    wind = None
    if twin.wind is not None and twin.axes:
        wind = np.stack([twin.wind.draw(rng, steps) for _ in range(count)])
    return Starts(x, wind)
