"""Environments stepped in this process, feeding the replay."""

from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from windward.agents.adaptation import Adaptation, peek
from windward.agents.replay import NStep
from windward.policies.actions import ActionCode
from windward.policies.features import Features
from windward.policies.networks import Params, policy_numpy


def maker(env: Any) -> tuple[Callable[..., gym.Env], str | None]:
    """(a function that makes an environment, its id if it has one).

    It takes options of `gym.make`; a function of the user's makes what it makes, without.
    """
    if isinstance(env, str):
        return lambda **options: gym.make(env, **options), env
    if isinstance(env, gym.Env):
        spec = env.spec
        if spec is None:
            raise ValueError(
                "D4PG steps several environments: give an id, a function that makes one, or an "
                "environment made by gym.make"
            )
        return lambda **options: gym.make(spec, **options), _plain_id(spec)
    if callable(env):
        return lambda **options: env(), None
    raise ValueError(
        f"env must be an id, a function that makes an environment, or one; got {env!r}"
    )


def _plain_id(spec: Any) -> str | None:
    """The id, if it alone makes the same environment."""
    registered = gym.spec(spec.id)
    own = {name: each for name, each in spec.kwargs.items() if name != "render_mode"}
    same = own == registered.kwargs and spec.max_episode_steps == registered.max_episode_steps
    return spec.id if same and not spec.additional_wrappers else None


def check_spaces(env: gym.Env) -> tuple[gym.spaces.Box, gym.spaces.Box]:
    """(observation space, action space), or an error that names what does not fit."""
    observation, action = env.observation_space, env.action_space
    if isinstance(action, gym.spaces.Box) and action.dtype.kind != "f":
        raise ValueError(f"D4PG needs continuous actions; those of {action} are whole numbers")
    if not isinstance(action, gym.spaces.Box):
        raise ValueError(
            f"D4PG needs continuous actions; the action space is {action}"
            + (": DMF-GPC and DQN are for discrete ones" if "Discrete" in str(action) else "")
        )
    with np.errstate(over="ignore"):
        bounded = np.isfinite(action.low) & np.isfinite(action.high - action.low)
    if not bounded.all():
        raise ValueError(
            f"D4PG scales actions to [-1, 1], and the action space is unbounded: {action}; bound "
            "it with gymnasium.wrappers.RescaleAction or ClipAction"
        )
    if not isinstance(observation, gym.spaces.Box):
        raise ValueError(
            f"D4PG needs observations in a Box; the space is {type(observation).__name__}: flatten "
            "it with gymnasium.wrappers.FlattenObservation"
        )
    return observation, action


class NotFinite(RuntimeError):
    """A loss or a network became NaN or infinite; the last checkpoint is as it was."""


class NotFiniteStep(ValueError):
    """An environment gave a reward or an observation that is NaN or infinite."""


class Recent:
    """The last episodes that ended by themselves: their returns, plain and discounted."""

    def __init__(self) -> None:
        self.returns: deque[float] = deque(maxlen=20)
        self.discounted: deque[float] = deque(maxlen=100)

    def add(self, total: float, discounted: float) -> None:
        """An episode."""
        self.returns.append(total)
        self.discounted.append(discounted)

    def extend(self, other: "Recent") -> None:
        """The episodes of another, after these."""
        self.returns.extend(other.returns)
        self.discounted.extend(other.discounted)


class Actors:
    """Steps environments with the policy and Gaussian noise on actions in [-1, 1].

    With an `adaptation` its correction is added: u = clip(π(x) + Σ M_i ŵ_{t-i} + σε), which is what
    is executed and what the replay holds. `first` is the number by which errors name the first of
    them.
    """

    def __init__(
        self,
        make: Callable[[], gym.Env],
        count: int,
        sigma: float,
        recent: "Recent",
        features: Features | None = None,
        first: int = 0,
        adaptation: Adaptation | None = None,
    ) -> None:
        self.envs = [make() for _ in range(count)]
        self._code = ActionCode(self.envs[0].action_space)
        self._space = self.envs[0].observation_space
        self._sigma, self._recent, self._features = sigma, recent, features
        self._first, self._adaptation = first, adaptation

    def reset(self, seeds: list[int], adders: list[NStep], gamma: float) -> None:
        """Begins an episode in each environment."""
        self._adders, self._gamma = adders, gamma
        self._x = np.stack([self._begin(i, seed) for i, seed in enumerate(seeds)])
        self._totals = np.zeros((3, len(self.envs)))  # return, discounted return, γ^t

    def _begin(self, i: int, seed: int | None = None) -> np.ndarray:
        """The first observation of an episode."""
        x = _vector(self.envs[i].reset(seed=seed)[0])
        self._check(i, x, 0.0)
        return x

    def _check(self, i: int, x: np.ndarray, reward: float) -> None:
        if not (np.isfinite(x).all() and np.isfinite(reward)):
            raise NotFiniteStep(
                f"environment {self._first + i} gave a reward of {reward} and an observation "
                f"with {int((~np.isfinite(x)).sum())} numbers that are not finite"
            )

    def step(self, policy: Params, rng: np.random.Generator, cut: bool = False) -> None:
        """One step of each environment; `cut` ends all episodes with it."""
        noise = rng.standard_normal((len(self.envs), self._code.size))
        base, adaptation = policy_numpy(policy, self._x), self._adaptation
        if not np.isfinite(base).all():
            raise NotFinite(
                "the policy's actions are no longer finite; the last checkpoint is as it was. Try "
                "a smaller learning_rate"
            )
        if adaptation is not None:
            base = base + adaptation.engine.correction
        wanted = base + self._sigma * noise
        u = np.clip(wanted, -1.0, 1.0).astype(np.float32)
        actions = self._code.decode(u)
        phi = None
        if self._features is not None:
            phi = self._features(self._shown())
        if adaptation is not None:
            adaptation.act(self._shown(), actions, int((np.abs(wanted) > 1.0).any(axis=1).sum()))
        for i, env in enumerate(self.envs):
            seen, given, terminated, truncated, _ = env.step(actions[i])
            x_next, reward = _vector(seen), float(given)
            self._check(i, x_next, reward)
            ended = bool(terminated or truncated)
            if adaptation is not None:
                over = ended or cut
                adaptation.see(i, seen, reward, bool(terminated), over, ended and not cut)
            self._adders[i].add(
                self._x[i].copy(), u[i], reward, x_next, bool(terminated), truncated or cut,
                None if phi is None else phi[i],
            )  # fmt: skip
            self._count(i, reward, ended)
            self._x[i] = self._begin(i) if ended and not cut else x_next
        if adaptation is not None:
            adaptation.learn(peek(rng, noise.shape))

    def _shown(self) -> np.ndarray:
        """Observations as the space has them."""
        rows = self._x.reshape(-1, *(self._space.shape or ()))
        return rows.astype(self._space.dtype)

    def _count(self, i: int, reward: float, ended: bool) -> None:
        scale = self._gamma ** self._totals[2, i]
        self._totals[:, i] += (reward, scale * reward, 1)
        if ended:
            self._recent.add(float(self._totals[0, i]), float(self._totals[1, i]))
            self._totals[:, i] = 0.0

    def close(self) -> None:
        """Closes the environments."""
        for env in self.envs:
            env.close()


def _vector(observation: Any) -> np.ndarray:
    return np.asarray(observation, dtype=np.float32).ravel()
