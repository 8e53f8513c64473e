"""Episodes of an evaluation: the same starts and the same wind for every policy.

What episode k of seed s begins with follows from (s, k) alone, and so does its wind: how long the
episodes before were, and who acted in them, makes no difference.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import numpy as np

from windward.adapt import RobustWrapper
from windward.policies import predictor

M_EVERY = 10  # steps between looks at M


def begin(env: gym.Env, seed: int, episode: int) -> Any:
    """The first observation of an episode."""
    if episode == 0:
        return env.reset(seed=seed)[0]
    # Not reset(seed=...), which would begin the wind's count of episodes again.
    env.unwrapped.np_random = np.random.default_rng([seed, episode])
    return env.reset()[0]


class Actor:
    """The base policy in action: without noise, or drawn from the softmax of `logits`.

    What it draws follows from (seed, episode, step), so that policies are compared on equal luck.
    """

    def __init__(self, model: Any, space: gym.Space, logits: Any = None) -> None:
        self._act, self._space, self._logits = predictor(model, space), space, logits

    def begin(self, seed: int, episode: int) -> None:
        """An episode begins."""
        self._rng = np.random.default_rng([seed, episode, 1])

    def __call__(self, x: Any) -> Any:
        """The base action for one observation."""
        rows = np.asarray(x)[None]
        if self._logits is None:
            return self._act(rows)[0]
        assert isinstance(self._space, gym.spaces.Discrete)
        logits = np.asarray(self._logits(rows)[0], dtype=np.float64)
        drawn = int((logits + self._rng.gumbel(size=logits.shape)).argmax())
        return self._space.dtype.type(self._space.start + drawn)


class Episode(NamedTuple):
    """What an episode came to."""

    total: float  # the sum of rewards
    length: int
    clipped: int = 0  # executed actions cut off at the bounds
    M_norm: float = 0.0  # at its end


Watch = Callable[[int, dict[str, Any]], None]
"""told the number of an episode and the info of each of its steps"""


def play(
    env: gym.Env, actor: Actor, seed: int, episode: int, watch: Watch | None = None
) -> Episode:
    """One episode."""
    x = begin(env, seed, episode)
    actor.begin(seed, episode)
    total, length, ended = 0.0, 0, False
    while not ended:
        x, reward, terminated, truncated, info = env.step(actor(x))
        if watch is not None:
            watch(episode, info)
        total += float(reward)
        length += 1
        ended = bool(terminated or truncated)
    return Episode(total, length)


def play_adapted(
    env: RobustWrapper, actor: Actor, seed: int, episode: int, watch: Watch | None = None
) -> Episode:
    """One episode inside a wrapper that learns."""
    before = env.clipped
    played = play(env, actor, seed, episode, watch)
    norm = float(np.linalg.norm(flat_M(env)))
    return played._replace(clipped=env.clipped - before, M_norm=norm)


def flat_M(env: RobustWrapper) -> np.ndarray:
    """All parameters of M in a row; none for learners that have no M."""
    if not env.has_M:
        return np.zeros(0)
    leaves = jax.tree.leaves(env.M)
    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in leaves])


class Trace(NamedTuple):
    """The adapted policy step by step."""

    episode: np.ndarray  # (T,)
    w_hat: np.ndarray  # (T, d_w)
    correction: np.ndarray  # (T, d_u), in actions scaled to [-1, 1]
    wind: dict[str, np.ndarray]  # what was sent to each channel, (T, size)
    M_at: np.ndarray  # (m,) steps at which M was looked at
    M: np.ndarray  # (m, h·d_u·d_w)


class Recorder:
    """Watches a wrapper and keeps what a trace needs."""

    def __init__(self, env: RobustWrapper) -> None:
        self._env = env
        self._rows: list[tuple[int, np.ndarray, np.ndarray]] = []
        self._wind: dict[str, list[np.ndarray]] = {}
        self._M: list[tuple[int, np.ndarray]] = []

    def __call__(self, episode: int, info: dict[str, Any]) -> None:
        """One step."""
        told, t = info["windward"], len(self._rows)
        self._rows.append((episode, told["w_hat"], told["correction"]))
        for name, w in info.get("disturbance", {}).items():
            self._wind.setdefault(name, []).append(np.ravel(w))
        if t % M_EVERY == 0:
            self._M.append((t, flat_M(self._env)))

    def trace(self) -> Trace:
        """What was seen."""
        episode, w_hat, correction = zip(*self._rows, strict=True)
        at, M = zip(*self._M, strict=True)
        wind = {name: np.stack(rows) for name, rows in self._wind.items()}
        return Trace(
            np.array(episode), np.stack(w_hat), np.stack(correction), wind, np.array(at),
            np.stack(M),
        )  # fmt: skip
