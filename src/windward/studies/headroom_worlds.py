"""Many episodes of a case of `headroom` at once: its physics on rows of states, in its wind.

The wind of a row is that of `Disturbed` at the first episode of a seed, and so is its start. So an
M is worth here what it is worth in the environment, up to rounding; a test holds it to that.
"""

from typing import NamedTuple

import gymnasium as gym
import numpy as np
from threadpoolctl import threadpool_limits

from windward.bases import predictor
from windward.bases.actions import ActionCode
from windward.envs import Disturbed
from windward.envs.disturbed import Push
from windward.envs.physics import Dynamics, dynamics_of
from windward.studies.headroom_cases import Case
from windward.studies.loading import load_model, logits_for


class Played(NamedTuple):
    """What candidates came to."""

    returns: np.ndarray  # (candidates, seeds)
    windows: np.ndarray  # (steps, h, d_w) before each step of all rows, where asked for


class Wind(NamedTuple):
    """What a push sends to rows of episodes."""

    push: Push
    rows: np.ndarray  # (episodes, steps, size)


class World:
    """A policy with any fixed M in the wind of a case."""

    def __init__(self, case: Case, max_steps: int | None = None) -> None:
        model = load_model(case.policy, case.env)
        self._env = case.make(max_steps=max_steps)
        assert self._env.spec is not None
        self._steps = int(self._env.spec.max_episode_steps or 0)
        self._calm, self._windy = (_dynamics(self._env) for _ in range(2))
        self._space = space = self._env.action_space
        self._act = predictor(model, space)
        self._logits = logits_for(model, None, "the policy") if case.discrete else None
        self.d_u = ActionCode(space).size
        self.d_w = self._calm.d_x

    @property
    def env(self) -> gym.Env:
        """The environment without its wrappers."""
        return self._env.unwrapped

    def starts(self, seeds: np.ndarray) -> np.ndarray:
        """The first state of each seed."""
        return self._begin(seeds)[0]

    def close(self) -> None:
        """Closes the environment whose starts and winds these are."""
        self._env.close()

    def play(self, M: np.ndarray, seeds: np.ndarray, *, keep: bool = False) -> Played:
        """Each of M, (candidates, h, d_u, d_w), on the first episode of each seed."""
        with threadpool_limits(1, user_api="blas"):  # small products are slower on many threads
            return self._play(M, seeds, keep)

    def _play(self, M: np.ndarray, seeds: np.ndarray, keep: bool) -> Played:
        starts, winds, gumbels = self._begin(seeds)
        count, h = len(M), M.shape[1]
        episode = np.tile(np.arange(len(seeds)), count)  # of each row
        M, x = np.repeat(M, len(seeds), axis=0), starts[episode]
        window = np.zeros((len(x), h, self.d_w))
        total, index, kept = np.zeros(len(x)), np.arange(len(x)), []
        for t in range(self._steps):
            if keep:
                kept.append(window)
            added = np.einsum("nhud,nhd->nu", M, window)
            u = self._actions(x, added, None if gumbels is None else gumbels[episode, t])
            x_next, reward, ended, w_hat = self._step(x, u, winds, episode, t)
            total[index] += reward
            going = ~ended
            window = np.concatenate([w_hat[:, None], window[:, :-1]], axis=1)[going]
            x, M, episode, index = x_next[going], M[going], episode[going], index[going]
            if not len(index):
                break
        windows = np.concatenate(kept) if keep else np.zeros((0, h, self.d_w))
        return Played(total.reshape(count, len(seeds)), windows)

    def _begin(self, seeds: np.ndarray) -> tuple[np.ndarray, list[Wind], np.ndarray | None]:
        """Starts, winds and, for discrete actions, the policy's draws, of each seed."""
        pushes = self._env.pushes if isinstance(self._env, Disturbed) else []
        starts, blown = [], []
        for seed in seeds:
            self._env.reset(seed=int(seed))
            starts.append(self._calm.state())
            blown.append([[push.stream.next() for _ in range(self._steps)] for push in pushes])
        winds = [Wind(push, np.array([each[i] for each in blown])) for i, push in enumerate(pushes)]
        if self._logits is None:
            return np.array(starts), winds, None
        shape = (self._steps, self.d_u)  # as evaluations draw them, row by row
        gumbels = [np.random.default_rng([int(seed), 0, 1]).gumbel(size=shape) for seed in seeds]
        return np.array(starts), winds, np.array(gumbels)

    def _actions(self, x: np.ndarray, added: np.ndarray, gumbel: np.ndarray | None) -> np.ndarray:
        seen = self._calm.observation(x).reshape(len(x), *(self._env.observation_space.shape or ()))
        seen = seen.astype(self._env.observation_space.dtype)
        if self._logits is not None:
            assert isinstance(self._space, gym.spaces.Discrete)
            index = (np.asarray(self._logits(seen)) + gumbel + added).argmax(axis=1)
            return np.asarray(self._space.start + index)
        assert isinstance(self._space, gym.spaces.Box)
        low, high = self._space.low.astype(float), self._space.high.astype(float)
        base = self._act(seen)
        wanted = base + (high - low) / 2 * added.reshape(base.shape)
        return np.asarray(np.clip(wanted, low, high).astype(self._space.dtype))

    def _step(
        self, x: np.ndarray, u: np.ndarray, winds: list[Wind], episode: np.ndarray, t: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(x_next, reward, ended, ŵ) of rows."""
        forces: dict[str, np.ndarray] = {}
        bent = False
        for push, rows in winds:
            if push.channel.stage == "push":
                forces[push.channel.part] = rows[episode, t]
            elif push.channel.stage == "parameter":
                self._write(push, rows[:, t])
                bent = True
        with np.errstate(all="ignore"):
            x_next, cost, ended = self._windy.step(x, u, forces)
            predicted = self._calm.advance(x, u, {}) if forces or bent else x_next.copy()
            for push, rows in winds:
                if push.channel.stage == "state":
                    x_next[:, self._calm.parts[push.channel.part]] += rows[episode, t]
            whole = np.isfinite(x_next).all(axis=1) & np.isfinite(cost)
            ended = self._calm.terminated(np.where(whole[:, None], x_next, x), u)
        w_hat = np.where(whole[:, None], x_next - predicted, 0.0)
        return x_next, np.where(whole, -cost, 0.0), ended | ~whole, w_hat

    def _write(self, push: Push, values: np.ndarray) -> None:
        """Sets disturbed parameters; there is one model for all rows."""
        if np.ptp(values, axis=0).any():
            raise ValueError(f"{push.channel.name!r} must be the same in all episodes of a case")
        kind = push.channel.part
        factor = np.ones(len(self._windy.parameters.elements[kind]))
        factor[push.channel.elements] += values[0]
        self._windy.parameters.write(kind, factor)


def _dynamics(env: gym.Env) -> Dynamics:
    found = dynamics_of(env.unwrapped)
    assert found is not None
    return found
