"""Corrections: what turns a base action into the action that is executed.

A correction is a value: arrays and numbers. `act` is pure and works on rows; what a row remembers
between steps is in its `Carry`.
"""

from typing import NamedTuple, Protocol

import gymnasium as gym
import numpy as np

from windward.adapt.twin import Twin


class Carry(NamedTuple):
    """What a row remembers: the last correction, and the window of deviations, newest first."""

    delta: np.ndarray  # (n, outputs) in half ranges of the action, or preferences
    window: np.ndarray  # (n, h, d_w)
    wind: np.ndarray  # (n, axes) as it was predicted for the last step
    debt: np.ndarray  # (n, d_x) what the last corrections could not make up for; (n, 0) in a box


class Range(NamedTuple):
    """An action space in units of half its range."""

    low: np.ndarray
    high: np.ndarray

    @staticmethod
    def of(space: gym.spaces.Box) -> "Range":
        """Flattened, in float64."""
        return Range(space.low.ravel().astype(np.float64), space.high.ravel().astype(np.float64))

    @property
    def half(self) -> np.ndarray:
        """Half of the range."""
        return (self.high - self.low) / 2

    @property
    def outputs(self) -> int:
        """How many numbers a correction has."""
        return len(self.low)

    def holds(self, u: np.ndarray) -> np.ndarray:
        """Which rows are actions of the space."""
        return np.asarray(((u >= self.low) & (u <= self.high)).all(axis=1))

    def saturated(self, u: np.ndarray) -> np.ndarray:
        """Which rows are at a bound."""
        middle = (self.low + self.high) / 2
        return np.asarray((np.abs((u - middle) / self.half) >= 1.0).any(axis=1))

    def coded(self, u: np.ndarray) -> np.ndarray:
        """(n, outputs) actions from -1 to 1."""
        return (u - (self.low + self.high) / 2) / self.half

    def moved(self, u: np.ndarray, delta: np.ndarray) -> np.ndarray:
        """Actions that a correction (n, outputs) makes of others."""
        return np.clip(u + delta * self.half, self.low, self.high)


class Choices(NamedTuple):
    """Numbered actions; a correction is a preference for each of them, against 1 for the base's."""

    start: int
    number: int

    @staticmethod
    def of(space: gym.spaces.Discrete) -> "Choices":
        """Of a discrete space."""
        return Choices(int(space.start), int(space.n))

    @property
    def low(self) -> np.ndarray:
        """(1,) the first."""
        return np.array([float(self.start)])

    @property
    def high(self) -> np.ndarray:
        """(1,) the last."""
        return np.array([float(self.start + self.number - 1)])

    @property
    def half(self) -> np.ndarray:
        """(1,) numbers are compared as they are."""
        return np.ones(1)

    @property
    def outputs(self) -> int:
        """How many numbers a correction has."""
        return self.number

    def holds(self, u: np.ndarray) -> np.ndarray:
        """Which rows are actions of the space."""
        own = u[:, 0] - self.start
        return np.asarray((own == np.floor(own)) & (own >= 0) & (own < self.number))

    def saturated(self, u: np.ndarray) -> np.ndarray:
        """None: there is no bound."""
        return np.zeros(len(u), dtype=bool)

    def coded(self, u: np.ndarray) -> np.ndarray:
        """(n, outputs) 1 for the action, 0 for the others."""
        return np.eye(self.number)[self._index(u)]

    def _index(self, u: np.ndarray) -> np.ndarray:
        """(n,) from 0; of what is no action the nearest one's."""
        return np.asarray(np.clip(u[:, 0] - self.start, 0, self.number - 1).astype(int))

    def moved(self, u: np.ndarray, delta: np.ndarray) -> np.ndarray:
        """The preferred actions; the base action where two are even."""
        base = self._index(u)
        wanted = self.coded(u) + delta
        best = wanted.argmax(axis=1)
        rows = np.arange(len(u))
        best = np.where(wanted[rows, best] > wanted[rows, base], best, base)
        return (best + self.start).astype(np.float64)[:, None]


Space = Range | Choices
"""an action space as corrections see it"""


def space_of(space: gym.Space) -> Space:
    """Of a Box or a Discrete space."""
    if isinstance(space, gym.spaces.Discrete):
        return Choices.of(space)
    assert isinstance(space, gym.spaces.Box)
    return Range.of(space)


class Correction(Protocol):
    """See the module."""

    @property
    def range(self) -> Space:
        """The action space."""
        ...

    def act(
        self,
        twin: Twin,
        x: np.ndarray,
        observation: np.ndarray,
        base: np.ndarray,
        wind: np.ndarray | None,
        carry: Carry,
    ) -> tuple[np.ndarray, Carry]:
        """(actions (n, d_u) in float64 within the space, what rows remember)."""
        ...


class Matching(NamedTuple):
    """The action whose next state in the diagnosed world is nearest to what the policy is used to.

    u = argmin |L (f_θ(x, u, w) - f(x, base))|² + λ |u - base|²,   u in the action space

    by one Gauss-Newton step from the last correction; λ counts in half ranges of the action.
    """

    range: Range
    root: np.ndarray  # L, (d_x, d_x)
    damping: float  # λ
    step: float  # of finite differences, in half ranges
    iterations: int

    def act(
        self,
        twin: Twin,
        x: np.ndarray,
        observation: np.ndarray,
        base: np.ndarray,
        wind: np.ndarray | None,
        carry: Carry,
    ) -> tuple[np.ndarray, Carry]:
        """See Correction."""
        n, d_u = base.shape
        half = self.range.half
        u = np.clip(base + carry.delta * half, self.range.low, self.range.high)
        target = None
        for _ in range(self.iterations):
            sign = np.where(u + self.step * half > self.range.high, -self.step, self.step)
            trials = np.repeat(u[:, None], d_u + 1, axis=1)
            trials[:, np.arange(d_u) + 1, np.arange(d_u)] += sign * half
            trials = trials.reshape(-1, d_u)
            rows = np.repeat(x, d_u + 1, axis=0)
            blown = None if wind is None else np.repeat(wind, d_u + 1, axis=0)
            flags = np.ones(len(rows), dtype=bool)
            if target is None:
                rows, trials = np.concatenate([x, rows]), np.concatenate([base, trials])
                flags = np.concatenate([np.zeros(n, dtype=bool), flags])
                if blown is not None:
                    blown = np.concatenate([np.zeros((n, wind.shape[1])), blown])  # type: ignore[union-attr]
            made = twin.advance(flags, rows, trials, blown)
            if target is None:
                target, made = made[:n], made[n:]
            made = made.reshape(n, d_u + 1, -1)
            # Products of one row each, so that the bits do not depend on how many there are.
            r = (twin.gap(made[:, 0], target)[:, None] @ self.root.T)[:, 0]
            change = (made[:, 1:] - made[:, :1]) @ self.root.T
            J = np.moveaxis(change, 1, 2) / sign[:, None, :]
            ok = np.isfinite(r).all(axis=1) & np.isfinite(J).all(axis=(1, 2))
            r, J = np.where(ok[:, None], r, 0.0), np.where(ok[:, None, None], J, 0.0)
            delta = (u - base) / half
            J_T = np.swapaxes(J, 1, 2)
            gram = J_T @ J + self.damping * np.eye(d_u)
            slope = (J_T @ r[..., None])[..., 0] + self.damping * delta
            low, high = (self.range.low - u) / half, (self.range.high - u) / half
            moved = u + bounded_step(gram, slope, low, high) * half
            u = np.clip(np.where(ok[:, None], moved, base), self.range.low, self.range.high)
        return u, carry._replace(delta=(u - base) / half)


def bounded_step(
    gram: np.ndarray, slope: np.ndarray, low: np.ndarray, high: np.ndarray, rounds: int = 10
) -> np.ndarray:
    """argmin s'Gs/2 + g's within bounds, rows, by a primal-dual active set."""
    diagonal = np.einsum("naa->na", gram)
    step = -np.linalg.solve(gram, slope[..., None])[..., 0]
    held = np.zeros(slope.shape, dtype=int)  # 1 at the upper bound, -1 at the lower one
    for _ in range(rounds):
        pull = -(gram @ step[..., None])[..., 0] - slope
        up = pull + diagonal * (step - high) > 0
        down = pull + diagonal * (step - low) < 0
        before, held = held, up.astype(int) - down
        if (held == before).all():
            break
        fixed = np.where(up, high, np.where(down, low, 0.0))
        free = held == 0
        # Held coordinates become their own equation s = bound.
        G = np.where(free[:, :, None] & free[:, None, :], gram, 0.0)
        G = G + (~free)[:, :, None] * np.eye(slope.shape[1])
        right = np.where(free, -(slope + (gram @ fixed[..., None])[..., 0]), fixed)
        step = np.where(free, np.linalg.solve(G, right[..., None])[..., 0], fixed)
    return np.clip(step, low, high)


class Choice(NamedTuple):
    """Matching for numbered actions: each is tried.

    u = argmin |L (f_θ(x, u, w) - f(x, base) + e)|² + λ [u ≠ base]

    e is what the last steps have left of that difference, with a share `kept` at each step: no
    single action makes up for half a push, but a sequence of them does.
    """

    range: Choices
    root: np.ndarray  # L, (d_x, d_x)
    damping: float  # λ
    kept: float

    def act(
        self,
        twin: Twin,
        x: np.ndarray,
        observation: np.ndarray,
        base: np.ndarray,
        wind: np.ndarray | None,
        carry: Carry,
    ) -> tuple[np.ndarray, Carry]:
        """See Correction."""
        n, k = len(base), self.range.number
        own = self.range.coded(base).argmax(axis=1)
        numbers = np.arange(self.range.start, self.range.start + k)
        rows = np.concatenate([x, np.repeat(x, k, axis=0)])
        trials = np.concatenate([self.range.low + own, np.tile(numbers, n)]).astype(np.int64)
        flags = np.arange(len(rows)) >= n
        blown = None
        if wind is not None:
            blown = np.concatenate([np.zeros_like(wind), np.repeat(wind, k, axis=0)])
        made = twin.advance(flags, rows, trials, blown)
        each = made[n:].reshape(n, k, -1)
        gaps = [twin.gap(each[:, i], made[:n]) for i in range(k)]
        debt = self.kept * carry.debt
        owed = np.stack([((gap + debt)[:, None] @ self.root.T)[:, 0] for gap in gaps], axis=1)
        cost = np.square(owed).sum(axis=2) + self.damping * (np.arange(k) != own[:, None])
        cost = np.where(np.isfinite(cost), cost, np.inf)
        lines = np.arange(n)
        best = cost.argmin(axis=1)
        best = np.where(cost[lines, best] < cost[lines, own], best, own)
        owed_now = np.stack(gaps, axis=1)[lines, best] + debt
        delta = np.eye(k)[best] - np.eye(k)[own]
        u = (best + self.range.start).astype(np.float64)[:, None]
        return u, carry._replace(delta=delta, debt=np.where(np.isfinite(owed_now), owed_now, 0.0))


class Residual(NamedTuple):
    """A linear map of features on top of another correction, cut to a share of the action's range.

    For numbered actions it is a preference for each of them.

    Features are the observation and the base action at unit spread, 1, the predicted wind and its
    change, and principal parts of the window of deviations from the nominal world, which is the
    paper's disturbance-action part.
    """

    range: Space
    weights: np.ndarray  # (features, outputs), or with a row for each row that acts
    mean: np.ndarray  # of the observation
    spread: np.ndarray
    wind: np.ndarray  # (axes,) its size; (0,) where there is none
    parts: np.ndarray  # (p, h * d_w) of the window; (0, ...) for none
    reach: float  # largest size, in half ranges
    under: "Matching | Choice | None"

    def act(
        self,
        twin: Twin,
        x: np.ndarray,
        observation: np.ndarray,
        base: np.ndarray,
        wind: np.ndarray | None,
        carry: Carry,
    ) -> tuple[np.ndarray, Carry]:
        """See Correction."""
        u = base
        if self.under is not None:
            u, carry = self.under.act(twin, x, observation, base, wind, carry)
        z = features(self, observation, base, wind, carry)
        added = np.clip((z[:, None] @ self.weights)[:, 0], -self.reach, self.reach)
        return self.range.moved(u, added), carry


def features(
    like: Residual,
    observation: np.ndarray,
    base: np.ndarray,
    wind: np.ndarray | None,
    carry: Carry,
) -> np.ndarray:
    """(n, features) of rows."""
    n = len(base)
    seen = np.clip((observation.reshape(n, -1) - like.mean) / like.spread, -3, 3)
    columns = [seen, like.range.coded(base), np.ones((n, 1))]
    if len(like.wind):
        now = np.zeros((n, len(like.wind))) if wind is None else wind / like.wind
        columns += [now, now - carry.wind / like.wind]
    if len(like.parts):
        columns.append((np.clip(carry.window.reshape(n, 1, -1), -3, 3) @ like.parts.T)[:, 0])
    return np.concatenate(columns, axis=1)
