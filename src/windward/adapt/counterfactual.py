"""Learning M from replays: no exploration, and a change only when replays say that it pays.

Every so many steps: pairs M ± δE are replayed from some recorded states, which gives a direction;
then M, 0, M/2, the best of the pairs and some steps along the direction are replayed from others.
The best takes M's place if it is better than M by a margin, and by its spread over the states or
nowhere worse. So a candidate is judged by states that did not choose it, and 0, the base policy, is
always among them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from threadpoolctl import threadpool_limits

from windward import checks
from windward.adapt.replay import Record, replay
from windward.bases.dynamics import LearnedSimulator
from windward.envs.simulators import Simulator


@dataclass(frozen=True)
class Search:
    """How to look for a better M; sizes are of corrections in [-1, 1] for ŵ of size 1."""

    every: int = 50
    """steps between updates, as long as they find something"""
    at_most: int = 300
    """to this many steps the time between updates is doubled when they find nothing"""
    per_episode: int = 8
    """updates at least for an episode that ends by itself, the rest at its end"""
    horizon: int = 120
    """steps of a replay at least"""
    longest: int = 400
    """and at most: replays reach half as far again as the last episode that ended by itself"""
    gamma: float = 0.995
    starts: int = 8
    """states that pairs are replayed from"""
    judges: int = 16
    """states that candidates are judged by"""
    pairs: int = 8
    sizes: tuple[float, ...] = (0.05, 0.15, 0.3)
    """of the perturbation, in turns"""
    steps: tuple[float, ...] = (0.03, 0.1, 0.2, 0.4)
    """along the direction that the pairs give"""
    components: int = 20
    """of recent ŵ that M is made of at most: the leading ones of its covariance"""
    momentum: float = 0.7
    """of that direction"""
    margin: float = 0.01
    """how much better a candidate must be, of the cost"""
    spread: float = 1.5
    """and of the standard error of the difference"""
    kept: int = 8
    """beginnings of episodes that replays start from, and half as many later pieces"""

    def __post_init__(self) -> None:
        for name in ("every", "at_most", "horizon", "longest", "starts", "judges", "pairs", "kept"):
            checks.integer(name, getattr(self, name), 1)


BASE, HALF, BEST = 1, 2, 3  # places of candidates beside M itself, which is 0


class Counterfactual:
    """Records the steps of one environment and keeps M, `update` by `update`."""

    def __init__(
        self,
        simulator: Simulator | LearnedSimulator,
        policy: Callable[[Any], np.ndarray],
        space: gym.spaces.Box,
        h: int,
        seed: int,
        search: Search | None = None,
        refusal: str = "",
    ) -> None:
        if search is not None and not isinstance(search, Search):
            raise ValueError(f"search must be a windward.adapt.Search; got {search!r}")
        self.simulator, self.policy, self.search = simulator, policy, search or Search()
        self.refusal = refusal
        """why nothing is replayed, if nothing is"""
        self._bounds = (space.low.astype(np.float64), space.high.astype(np.float64))
        self._shape = (h, int(np.prod(space.shape)), simulator.d_x)
        self._seed = seed
        self.reset()

    def reset(self) -> None:
        """As when it was made."""
        self.record = self._blank()
        self.M = np.zeros(self._shape)
        """for ŵ in its sizes"""
        self._direction = np.zeros(self._shape)
        self._rng = np.random.default_rng((self._seed, 7))
        self._since, self._this_episode, self._updates = 0, 0, 0
        self._length, self._horizon = 0, self.search.horizon
        self._wait = self.search.every
        self.episode = 0
        self.decisions: list[str] = [self.refusal] if self.refusal else []
        """what was decided about M, in sentences"""
        self._x: np.ndarray | None = None

    @property
    def M_for_w_hat(self) -> np.ndarray:
        """M for ŵ as it is."""
        return np.asarray(self.M * self.record.per_size)

    def _blank(self) -> Record:
        """A record without steps."""
        h, _, d_w = self._shape
        pushes = self.simulator.pushes if isinstance(self.simulator, LearnedSimulator) else None
        return Record(h, d_w, self.search.kept, pushes)

    def left(self) -> None:
        """An episode begins, wherever the last one was."""
        self.record.cut()
        self._length = self._this_episode = 0

    def before(self, x: Any) -> None:
        """Called before the environment is stepped, with what is observed, rows."""
        if isinstance(self.simulator, LearnedSimulator):  # its states are what is observed
            self._x = self.simulator.state_of(x)[0] if np.isfinite(x).all() else None
        else:
            self._x = self.simulator.state()

    def after(self, w_hat: np.ndarray, usable: bool, terminated: bool, ended: bool) -> bool:
        """A step is over; whether M may have changed."""
        search = self.search
        if self.refusal:
            return False
        if usable and self._x is not None:
            self.record.add(self._x, w_hat.astype(np.float64))
            self._since += 1
        self._length += 1
        due = int(self._since >= self._wait)
        if terminated:  # an end that might have been avoided
            self._wait = search.every
            self._horizon = min(max(search.horizon, 3 * self._length // 2), search.longest)
            due = max(due, search.per_episode - self._this_episode)
        if ended:
            self.episode += 1
            self._this_episode = self._length = 0
        if ended or not usable:
            self.record.cut()
        if not due or not len(self.record):
            return False
        # Small matrix products are slower on many threads than on one.
        with threadpool_limits(1, user_api="blas"):
            found = [self.update() for _ in range(due)]
        self._wait = search.every if any(found) else min(2 * self._wait, search.at_most)
        self._since = 0
        self._this_episode += 0 if ended else due
        return any(found)

    def _costs(self, candidates: np.ndarray, states: int) -> np.ndarray:
        search = self.search
        starts = self.record.starts(states, self._horizon, self._rng)
        scaled = candidates * self.record.per_size
        return replay(self.simulator, self.policy, self._bounds, starts, scaled, search.gamma)

    def update(self) -> bool:
        """Looks for a better M; whether there was one."""
        if not self.record.per_size.any():
            return False  # nothing has pushed yet
        search, M = self.search, self.M
        features = self.record.features(search.components)
        h, d_u, d_w = self._shape
        noise = self._rng.standard_normal((search.pairs, d_u, len(features))) @ features
        noise = noise.reshape(search.pairs, d_u, h, d_w).swapaxes(1, 2)
        size = search.sizes[self._updates % len(search.sizes)]
        self._updates += 1
        tried = np.concatenate([M[None], M + size * noise, M - size * noise])
        costs = self._costs(tried, search.starts)
        plus, minus = costs[:, 1 : 1 + search.pairs], costs[:, 1 + search.pairs :]
        slope = np.einsum("sp,phud->hud", plus - minus, noise)
        slope /= max(self.record.effect(slope), 1e-12)
        self._direction = search.momentum * self._direction + (1 - search.momentum) * slope
        step = -self._direction / max(self.record.effect(self._direction), 1e-12)
        best = tried[costs.mean(axis=0).argmin()]
        candidates = np.stack(
            [M, 0 * M, 0.5 * M, best, *(M + length * step for length in search.steps)]
        )
        if not np.ptp(costs):  # nothing makes a difference, as where all stand: is M still needed?
            candidates = candidates[:BEST]
        return self._judge(candidates, self._costs(candidates, search.judges))

    def _judge(self, candidates: np.ndarray, costs: np.ndarray) -> bool:
        """Puts the best candidate in M's place, if it is better beyond doubt."""
        search = self.search
        gain = costs[:, :1] - costs
        size = np.abs(costs[:, 0]).mean()
        error = gain.std(axis=0) / np.sqrt(len(gain))
        # What saves one episode of many and costs the others nothing has a large spread, and is
        # sure all the same.
        beyond_doubt = (gain.mean(axis=0) > search.spread * error) | (gain >= 0).all(axis=0)
        sure = (gain.mean(axis=0) > search.margin * size) & beyond_doubt
        if not sure.any():
            return False
        chosen = int(np.where(sure, gain.mean(axis=0), -np.inf).argmax())
        percent = 100 * float(gain.mean(axis=0)[chosen]) / max(size, 1e-12)
        if chosen == BASE:
            self._say(f"stepped back to the base policy: replay was {percent:.0f} % worse with M")
        elif chosen == HALF:
            self._say(f"halved M: replay was {percent:.0f} % worse with all of it")
        elif not self.M.any():
            self._say(f"began to correct: replay was {percent:.0f} % better than the base policy")
        self.M = candidates[chosen]
        return True

    def _say(self, what: str) -> None:
        self.decisions.append(f"after episode {self.episode}, step {self.record.steps}: {what}")

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything in numbers, for a file."""
        return {**self.record.arrays(), "M": self.M, "direction": self._direction}

    def memory(self) -> dict[str, Any]:
        """The rest, as JSON can hold it."""
        return {
            "generator": self._rng.bit_generator.state,
            "counts": {name: getattr(self, name) for name in COUNTS},
            "decisions": self.decisions,
        }

    def restore(self, arrays: dict[str, np.ndarray], memory: dict[str, Any]) -> None:
        """Goes on from what `arrays` and `memory` gave; what does not fit changes nothing."""
        fresh = self._blank()
        try:
            fresh.restore(arrays, self.simulator.d_x)
            counts = {name: checks.integer(name, memory["counts"][name], 0) for name in COUNTS}
            rng = np.random.default_rng(0)
            rng.bit_generator.state = memory["generator"]
            decisions = [str(each) for each in memory["decisions"]]
            for name in ("M", "direction"):
                checks.finite_array(name, arrays[name])
                checks.shape(name, arrays[name], self._shape, "(h, d_u, d_w)")
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"it is no record of replays: {error!r}") from error
        self.record, self._rng, self.decisions = fresh, rng, decisions
        self.M, self._direction = arrays["M"], arrays["direction"]
        for name, value in counts.items():
            setattr(self, name, value)


COUNTS = ("_since", "_this_episode", "_updates", "_wait", "_length", "_horizon", "episode")
