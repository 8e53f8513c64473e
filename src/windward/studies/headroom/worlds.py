"""Many episodes of a case of `headroom` at once: its physics on rows of states, in its wind.

The wind of a row is that of `Disturbed` at the first episode of a seed, and so is its start. So an
M is worth here what it is worth in the environment, up to rounding; a test holds it to that.
"""

from typing import NamedTuple

import gymnasium as gym
import numpy as np
from threadpoolctl import threadpool_limits

from windward.adapt.amended import Amended
from windward.adapt.cancelling import cancelling
from windward.adapt.record import Visit
from windward.adapt.replayed import Boxed
from windward.envs import Disturbed
from windward.envs.disturbed import Push
from windward.policies import predictor
from windward.policies.actions import ActionCode
from windward.simulators import simulator as simulator_of
from windward.simulators.base import Dynamics
from windward.simulators.physics import dynamics_of
from windward.studies.evaluation.loading import load_model, logits_for
from windward.studies.headroom.cases import Case


class Played(NamedTuple):
    """What candidates came to."""

    returns: np.ndarray  # (candidates, seeds)
    # Where asked for, of all steps of all rows:
    windows: np.ndarray  # (steps, h, d_w) before it
    x: np.ndarray  # (steps, d_x) before it
    w_hat: np.ndarray  # (steps, d_w)


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

    def cancelling(self, seeds: np.ndarray, h: int) -> np.ndarray:
        """M that take off what they can of ŵ, as replays have them: (0 to 2, h, d_u, d_w)."""
        found: list[np.ndarray] = []
        if isinstance(self._space, gym.spaces.Box):
            policy = Boxed(self._space, self._act)
            simulator = Amended(simulator_of(self._env), self.d_u, policy.coded)
            seen = self.play(np.zeros((1, h, self.d_u, self.d_w)), seeds, keep=True)
            none = np.zeros(0)
            visits = [
                Visit(*each, none, none)
                for each in zip(seen.x, seen.windows, seen.w_hat, strict=True)
            ]
            size = np.sqrt(np.square(seen.w_hat).mean(axis=0))
            moves = size > 1e-6 * max(float(size.max()), 1e-12)
            per_size = np.where(moves, 1.0 / np.where(moves, size, 1.0), 0.0)
            for lags in (1, h):
                M = cancelling(simulator, policy, visits, per_size, lags)
                found += [] if M is None else [M * per_size]
        return np.array(found).reshape(-1, h, self.d_u, self.d_w)

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
        total, index = np.zeros(len(x)), np.arange(len(x))
        kept = [(window[:0], x[:0], np.zeros((0, self.d_w)))]
        for t in range(self._steps):
            added = np.einsum("nhud,nhd->nu", M, window)
            u = self._actions(x, added, None if gumbels is None else gumbels[episode, t])
            x_next, reward, ended, w_hat = self._step(x, u, winds, episode, t)
            if keep:
                kept.append((window, x, w_hat))
            total[index] += reward
            going = ~ended
            window = np.concatenate([w_hat[:, None], window[:, :-1]], axis=1)[going]
            x, M, episode, index = x_next[going], M[going], episode[going], index[going]
            if not len(index):
                break
        steps = (np.concatenate(each) for each in zip(*kept, strict=True))
        return Played(total.reshape(count, len(seeds)), *steps)

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
