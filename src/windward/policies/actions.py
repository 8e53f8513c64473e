"""Actions as networks see them: a bounded box scaled to [-1, 1], an index as a one-hot vector."""

from typing import Any

import gymnasium as gym
import numpy as np


class ActionCode:
    """The way between actions of a space and rows of `size` numbers (deviation 8).

    A box with bounds is scaled to [-1, 1], one without is taken as it is.

    >>> ActionCode(gym.spaces.Box(-2.0, 2.0, (1,))).encode([[1.0]])
    array([[0.5]], dtype=float32)
    >>> ActionCode(gym.spaces.Discrete(3)).encode([2])
    array([[0., 0., 1.]], dtype=float32)
    """

    def __init__(self, space: gym.Space) -> None:
        self.space = space
        self.discrete = isinstance(space, gym.spaces.Discrete)
        if isinstance(space, gym.spaces.Discrete):
            self.size = int(space.n)
            return
        if not isinstance(space, gym.spaces.Box):
            raise ValueError(f"actions must be in a Box or Discrete space; got {space}")
        self.size = int(np.prod(space.shape))
        low = space.low.ravel().astype(np.float32)
        high = space.high.ravel().astype(np.float32)
        bounded = np.isfinite(low) & np.isfinite(high)
        with np.errstate(invalid="ignore", over="ignore"):
            self.middle = np.where(bounded, low / 2 + high / 2, 0.0).astype(np.float32)
            half = np.where(bounded, high / 2 - low / 2, 1.0).astype(np.float32)
        self.half = np.where(half == 0.0, 1.0, half).astype(np.float32)  # an action that is fixed
        self.low, self.high = np.where(bounded, -1.0, low), np.where(bounded, 1.0, high)

    def encode(self, actions: Any) -> np.ndarray:
        """Rows for actions, rows."""
        if isinstance(self.space, gym.spaces.Discrete):
            index = np.asarray(actions).reshape(-1) - int(self.space.start)
            whole = index.astype(np.int64)
            if ((whole != index) | (whole < 0) | (whole >= self.size)).any():
                raise ValueError(f"actions must be in {self.space}; got {actions!r}")
            return np.eye(self.size, dtype=np.float32)[whole]
        rows = np.asarray(actions, dtype=np.float32).reshape(-1, self.size)
        return (rows - self.middle) / self.half

    def decode(self, rows: np.ndarray) -> np.ndarray:
        """Actions of the space for rows; of a discrete one the index of the largest number."""
        if isinstance(self.space, gym.spaces.Discrete):
            return int(self.space.start) + np.asarray(rows).argmax(axis=-1)
        inside = self.middle + self.half * np.clip(rows, self.low, self.high)
        return inside.reshape(-1, *(self.space.shape or ())).astype(self.space.dtype)

    def slope(self, rows: np.ndarray) -> np.ndarray:
        """A gradient in rows as one in the actions themselves."""
        return rows / self.half
