"""What would have happened: recorded disturbances replayed in a simulator under other M.

A replay starts at a recorded state, with the window of ŵ of that step, and takes the recorded ŵ
for the wind: x_{t+1} = f_sim(x_t, u_t) + ŵ_t. Beyond the record, where an episode ended or has not
gone on yet, ŵ is forecast from its own last h values by least squares on the record.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from windward.envs.simulators import Simulator

RIDGE = 1e-3  # of the forecast, over the mean square of what it is made from
FORECAST_BOUND = 4.0  # in sizes of ŵ


class Visit(NamedTuple):
    """One recorded step."""

    x: np.ndarray  # (d_x,) the state before it
    window: np.ndarray  # (h, d_w) newest first, before it
    w_hat: np.ndarray  # (d_w,)


class Start(NamedTuple):
    """Where a replay begins, and the wind that it meets."""

    x: np.ndarray
    window: np.ndarray
    wind: np.ndarray  # (horizon, d_w)


class Record:
    """The last steps, by episode; the sizes of ŵ over all steps seen."""

    def __init__(self, h: int, d_w: int, capacity: int) -> None:
        self.h, self.d_w, self.capacity = h, d_w, capacity
        self.episodes: list[list[Visit]] = []
        self.squares, self.steps = np.zeros(d_w), 0
        self._window = np.zeros((h, d_w))
        self._open = False

    @property
    def per_size(self) -> np.ndarray:
        """1 over the root mean square of each coordinate of ŵ; 0 for those that do not move."""
        size = np.sqrt(self.squares / max(self.steps, 1))
        moves = size > 1e-6 * max(size.max(), 1e-12)
        return np.where(moves, 1.0 / np.where(moves, size, 1.0), 0.0)

    def cut(self) -> None:
        """What comes next does not follow on what was."""
        self._window, self._open = np.zeros((self.h, self.d_w)), False

    def add(self, x: np.ndarray, w_hat: np.ndarray) -> None:
        """One more step; whole episodes are dropped when there are too many."""
        if not self._open:
            self.episodes.append([])
            self._open = True
        self.episodes[-1].append(Visit(x, self._window, w_hat))
        self._window = np.concatenate([w_hat[None], self._window[:-1]])
        self.squares = self.squares + w_hat**2
        self.steps += 1
        while len(self) - len(self.episodes[0]) > self.capacity:
            del self.episodes[0]

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a file."""
        visits = [visit for episode in self.episodes for visit in episode]
        kept = {
            name: np.array([getattr(visit, name) for visit in visits]) for name in Visit._fields
        }
        lengths = np.array([len(episode) for episode in self.episodes], dtype=np.int64)
        counts = np.array([self.steps, self._open], dtype=np.int64)
        return kept | {
            "lengths": lengths, "squares": self.squares, "now": self._window, "counts": counts
        }  # fmt: skip

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Goes on from what `arrays` gave."""
        visits = [
            Visit(*each)
            for each in zip(arrays["x"], arrays["window"], arrays["w_hat"], strict=True)
        ]
        ends = np.cumsum(arrays["lengths"]).tolist()
        if arrays["now"].shape != (self.h, self.d_w) or (ends[-1] if ends else 0) != len(visits):
            raise ValueError("the record of steps does not fit")
        self.episodes = [visits[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        self.squares, self._window = arrays["squares"], arrays["now"]
        self.steps, self._open = int(arrays["counts"][0]), bool(arrays["counts"][1])

    def __len__(self) -> int:
        return sum(map(len, self.episodes))

    def forecast(self) -> Callable[[np.ndarray], np.ndarray]:
        """ŵ_t from its window: ridge regression over the record, in sizes of ŵ."""
        scale = self.per_size
        visits = [visit for episode in self.episodes for visit in episode]
        z = np.array([np.append((visit.window * scale).ravel(), 1.0) for visit in visits])
        target = np.array([visit.w_hat * scale for visit in visits])
        gram = z.T @ z
        ridge = RIDGE * (1.0 + np.trace(gram) / len(gram))
        weights = np.linalg.solve(gram + ridge * np.eye(len(gram)), z.T @ target)
        back = np.where(scale > 0, 1.0 / np.where(scale > 0, scale, 1.0), 0.0)

        def ahead(window: np.ndarray) -> np.ndarray:
            guess = np.append((window * scale).ravel(), 1.0) @ weights
            return np.asarray(np.clip(guess, -FORECAST_BOUND, FORECAST_BOUND) * back)

        return ahead

    def starts(self, count: int, horizon: int, rng: np.random.Generator) -> list[Start]:
        """Recorded steps to begin from, and the wind from there on."""
        ahead = self.forecast()
        places = [(e, i) for e, episode in enumerate(self.episodes) for i in range(len(episode))]
        chosen = [places[place] for place in rng.integers(0, len(places), count)]
        return [self._start(self.episodes[e], i, horizon, ahead) for e, i in chosen]

    def _start(
        self, episode: list[Visit], i: int, horizon: int, ahead: Callable[..., np.ndarray]
    ) -> Start:
        wind = [visit.w_hat for visit in episode[i : i + horizon]]
        last = episode[-1]
        window = np.concatenate([last.w_hat[None], last.window[:-1]])
        while len(wind) < horizon:
            wind.append(ahead(window))
            window = np.concatenate([wind[-1][None], window[:-1]])
        return Start(episode[i].x, episode[i].window, np.array(wind))


def replay(
    simulator: Simulator,
    policy: Callable[[Any], np.ndarray],
    bounds: tuple[np.ndarray, np.ndarray],
    starts: list[Start],
    candidates: np.ndarray,
    gamma: float,
) -> np.ndarray:
    """Discounted costs of candidates for M, (starts, candidates); corrections in [-1, 1] units.

    Every candidate meets the same wind from the same states. An episode that ends pays no more.
    """
    low, high = bounds
    half, shape = (high - low) / 2, (len(starts), len(candidates))
    rows = np.repeat(np.arange(shape[0]), shape[1])
    x = np.array([start.x for start in starts])[rows]
    window = np.array([start.window for start in starts])[rows]
    wind = np.array([start.wind for start in starts])[rows]
    M = np.tile(candidates, (shape[0], 1, 1, 1))
    cost, index, weight = np.zeros(len(rows)), np.arange(len(rows)), 1.0
    for t in range(wind.shape[1]):
        base = policy(simulator.observation(x))
        correction = np.einsum("nhud,nhd->nu", M, window).reshape(base.shape)
        u = np.clip(base + half * correction, low, high).astype(base.dtype)
        x_next, c, terminated = simulator.step(x, u)
        cost[index] += weight * c  # NaN where the physics broke down
        x = x_next + wind[:, t]
        window = np.concatenate([wind[:, t][:, None], window[:, :-1]], axis=1)
        weight *= gamma
        alive = ~terminated & np.isfinite(x).all(axis=1)
        if not alive.all():
            parts = (x[alive], window[alive], wind[alive], M[alive], index[alive])
            x, window, wind, M, index = parts
            if not len(index):
                break
    broken = ~np.isfinite(cost)
    if broken.any():  # as bad as can be, and still a number
        known = cost[~broken] if not broken.all() else np.zeros(1)
        cost[broken] = known.max() + np.ptp(known) + 1.0
    return cost.reshape(shape)
