"""A replay of n-step transitions in flat arrays, and what makes them from steps."""

from collections import deque
from typing import Any

import numpy as np

from windward import checks
from windward.agents.losses import Batch


def available_memory() -> int | None:
    """Bytes that a process may still take; None where the system does not say."""
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


class Replay:
    """The last `capacity` transitions; sampled uniformly, with replacement."""

    def __init__(self, capacity: int, d_x: int, d_u: int, d_w: int = 0) -> None:
        self.capacity = checks.integer("replay capacity", capacity, 1)
        need = 4 * capacity * (2 * d_x + d_u + 2 + d_w)
        free = available_memory()
        if free is not None and need > free:
            raise ValueError(
                f"a replay of {capacity} transitions needs {need / 2**30:.1f} GiB and "
                f"{free / 2**30:.1f} GiB are free: make it smaller"
            )
        self.x = np.zeros((capacity, d_x), np.float32)
        self.u = np.zeros((capacity, d_u), np.float32)
        self.reward = np.zeros(capacity, np.float32)
        self.discount = np.zeros(capacity, np.float32)
        self.x_next = np.zeros((capacity, d_x), np.float32)
        self.vector = np.zeros((capacity, d_w), np.float32) if d_w else None
        self.inserted = 0
        """transitions ever added"""

    def __len__(self) -> int:
        return min(self.inserted, self.capacity)

    def add(
        self, x: Any, u: Any, reward: float, discount: float, x_next: Any, vector: Any = None
    ) -> None:
        """One transition, in place of the oldest when full."""
        i = self.inserted % self.capacity
        self.x[i], self.u[i], self.x_next[i] = x, u, x_next
        self.reward[i], self.discount[i] = reward, discount
        if self.vector is not None:
            self.vector[i] = vector
        self.inserted += 1

    def sample(self, rng: np.random.Generator, n: int) -> Batch:
        """n transitions."""
        i = rng.integers(0, len(self), n)
        vector = None if self.vector is None else self.vector[i]
        return Batch(self.x[i], self.u[i], self.reward[i], self.discount[i], self.x_next[i], vector)

    def _names(self) -> list[str]:
        return [name for name in Batch._fields if getattr(self, name) is not None]

    def arrays(self) -> dict[str, np.ndarray]:
        """What is filled, by name, for a file."""
        n = len(self)
        return {name: getattr(self, name)[:n] for name in self._names()} | {
            "inserted": np.array(self.inserted)
        }

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Takes back what `arrays` gave."""
        n = len(arrays["reward"])
        for name in self._names():
            getattr(self, name)[:n] = arrays[name]
        self.inserted = int(arrays["inserted"])


class NStep:
    """Turns the steps of one environment into transitions over n steps.

    R = Σ_{k<m} γ^k r_{t+k} to x_{t+m}, m = n, or fewer at an episode's end, where every later start
    gives one too. The discount is γ^m, and 0 after termination; after truncation it stays, so that
    the value of the last observation is bootstrapped.
    """

    def __init__(self, replay: Replay, n: int, gamma: float) -> None:
        self.replay, self.n, self.gamma = replay, n, gamma
        self.steps: deque[tuple[Any, Any, Any]] = deque()
        """of which transitions are still to be made"""

    def add(
        self,
        x: Any,
        u: Any,
        reward: float,
        x_next: Any,
        terminated: bool,
        truncated: bool,
        phi: Any = None,
    ) -> None:
        """One step of the environment; `phi` is φ(x), for a vector head."""
        # Both costs add up alike: one row of reward and φ.
        self.steps.append((x, u, reward if phi is None else np.array([reward, *phi])))
        if terminated or truncated:
            while self.steps:
                self._emit(x_next, terminated)
        elif len(self.steps) == self.n:
            self._emit(x_next, False)

    def _emit(self, x_next: Any, terminated: bool) -> None:
        total: Any = 0.0
        for _, _, cost in reversed(self.steps):
            total = cost + self.gamma * total
        discount = 0.0 if terminated else self.gamma ** len(self.steps)
        x, u, _ = self.steps.popleft()
        if isinstance(total, float):
            self.replay.add(x, u, total, discount, x_next)
        else:
            self.replay.add(x, u, total[0], discount, x_next, total[1:])
