"""How the base policy acts in a replay, with a correction: in a box, or by draws from its softmax.

What a policy draws is drawn with a replay's start, before any M is tried: every candidate that is
replayed from there has the same luck, and differences of costs are the candidates' own.
"""

from collections.abc import Callable
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from windward.policies.actions import ActionCode

Luck = Callable[[np.random.Generator, int], np.ndarray]
"""what is drawn in a replay of so many steps, (horizon, k)"""


def nothing(rng: np.random.Generator, horizon: int) -> np.ndarray:
    """The luck of a policy that draws nothing: k = 0."""
    return np.zeros((horizon, 0))


class Replayed(Protocol):
    """A base policy, and how it is corrected."""

    d_u: int
    smooth: bool
    """whether a small correction changes the action by a little"""

    def coded(self, u: Any) -> np.ndarray:
        """Actions, rows, as (n, d_u) numbers: in a box from -1 to 1, else one-hot less its mean.

        So they hold no constant, which a steady wind might be taken for.
        """

    def luck(self, rng: np.random.Generator, horizon: int) -> np.ndarray:
        """What it draws in the steps of one replay, (horizon, k)."""

    def __call__(self, seen: Any, correction: np.ndarray, luck: np.ndarray) -> np.ndarray:
        """Actions for rows of observations, of corrections (n, d_u) and of luck (n, k)."""


class Boxed:
    """u = clip(π(x) + half·correction), half the space's half width: nothing is drawn."""

    smooth = True

    def __init__(self, space: gym.spaces.Box, policy: Callable[[Any], np.ndarray]) -> None:
        code = ActionCode(space)
        self.d_u, self.coded, self._policy = code.size, code.encode, policy
        self._low, self._high = space.low.astype(np.float64), space.high.astype(np.float64)
        self._half = (self._high - self._low) / 2

    def luck(self, rng: np.random.Generator, horizon: int) -> np.ndarray:
        """See Replayed."""
        return nothing(rng, horizon)

    def __call__(self, seen: Any, correction: np.ndarray, luck: np.ndarray) -> np.ndarray:
        """See Replayed."""
        base = self._policy(seen)
        wanted = base + self._half * correction.reshape(base.shape)
        return np.asarray(np.clip(wanted, self._low, self._high).astype(base.dtype))


class Drawn:
    """u = argmax(logits(x) + g + correction), g Gumbel noise: a draw from softmax(logits + ...).

    In the world g is drawn given the agent's own action (`actuation.Softmax`). What the agent would
    have drawn in states that it did not visit nobody knows; over its draws g is plain Gumbel noise,
    and so it is here.
    """

    smooth = False

    def __init__(self, space: gym.spaces.Discrete, logits: Callable[[Any], np.ndarray]) -> None:
        self.d_u, self._start, self._logits = int(space.n), int(space.start), logits
        self._dtype, self._code = space.dtype, ActionCode(space)

    def coded(self, u: Any) -> np.ndarray:
        """See Replayed."""
        return self._code.encode(u) - np.float32(1.0 / self.d_u)

    def luck(self, rng: np.random.Generator, horizon: int) -> np.ndarray:
        """See Replayed."""
        return rng.gumbel(size=(horizon, self.d_u))

    def __call__(self, seen: Any, correction: np.ndarray, luck: np.ndarray) -> np.ndarray:
        """See Replayed."""
        logits = np.asarray(self._logits(seen), dtype=np.float64)
        if logits.shape != luck.shape:
            raise ValueError(f"logits must have shape {luck.shape}; got {logits.shape}")
        # A masked action's logit is -inf; NaN, +inf or nothing but masks is no softmax.
        if not (logits < np.inf).all() or not (logits > -np.inf).any(axis=1).all():
            raise ValueError("logits of a replayed state are no softmax: NaN, inf or all -inf")
        index = (logits + luck + correction).argmax(axis=1)
        return np.asarray((index + self._start).astype(self._dtype))
