"""How a residual policy is learned: what it sees, remembers and updates (see `residual.py`)."""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks, files
from windward.adapt.sources import Happened
from windward.agents import learner
from windward.agents.replay import NStep, Replay
from windward.agents.training import as_numpy
from windward.policies.actions import ActionCode
from windward.policies.networks import policy_numpy
from windward.policies.vectors import horizon

LARGEST = 1e30
"""of a number that is learned from: sums of its squares and of a few of it are finite"""
SPREAD = 10.0
"""of a feature, in standard deviations"""


@dataclass(frozen=True)
class Residual:
    """How a residual policy is learned; each field is an argument of `ResidualPolicy`."""

    scale: float = 0.5
    """largest correction, in actions scaled to [-1, 1]"""
    sigma: float = 0.3
    """standard deviation of the exploration, in shares of `scale`"""
    widths: tuple[int, ...] = (64, 64)
    """hidden layers of policy and critic"""
    gamma: float = 0.99
    """discount"""
    n_step: int = 3
    """steps in a transition"""
    batch_size: int = 128
    """transitions in an update"""
    updates: int = 1
    """for each step"""
    learning_rate: float = 1e-3
    """of Adam, for both networks"""
    burn_in: int = 500
    """steps for which the critic alone learns; updates begin at a fifth of them"""
    target_period: int = 100
    """updates between copies to the target networks"""
    replay_size: int = 100_000
    """transitions kept"""

    def __post_init__(self) -> None:
        for name in ("n_step", "batch_size", "updates", "burn_in", "target_period", "replay_size"):
            checks.integer(name, getattr(self, name), 1)
        for name in ("scale", "sigma", "learning_rate"):
            value = checks.finite_array(name, getattr(self, name), ndim=0)
            checks.positive(name, value, zero=name == "sigma")
        checks.discount("gamma", self.gamma)
        object.__setattr__(
            self, "widths", tuple(checks.integer("widths", w, 1) for w in self.widths)
        )

    @property
    def rule(self) -> learner.Rule:
        """What an update is compiled for: one atom is a scalar value."""
        clip, slope_clip, penalty = 40.0, 1.0, 0.1  # D4PG's
        return learner.Rule(
            (0.0, 0.0, 1), self.learning_rate, clip, slope_clip, penalty, self.target_period,
            horizon(self.gamma),
        )  # fmt: skip


class Moments:
    """Running mean and standard deviation of features, and the size of rewards."""

    def __init__(self, d_z: int) -> None:
        self.count, self._mean, self._squares = 0, np.zeros(d_z), np.zeros(d_z)
        self._rewards = 0.0

    def add(self, z: np.ndarray, reward: float) -> None:
        """One step."""
        self.count += 1
        away = z - self._mean
        self._mean = self._mean + away / self.count
        self._squares = self._squares + away * (z - self._mean)
        self._rewards += reward**2

    def scaled(self, z: np.ndarray) -> np.ndarray:
        """Rows of features in standard deviations; what does not move is 0."""
        spread = np.sqrt(self._squares / max(self.count, 1))
        moves = spread > 1e-6 * (1.0 + np.abs(self._mean))
        inside = (z - self._mean) * np.where(moves, 1.0 / np.where(moves, spread, 1.0), 0.0)
        return np.clip(inside, -SPREAD, SPREAD).astype(np.float32)

    def arrays(self) -> dict[str, np.ndarray]:
        """For a file."""
        numbers = np.array([self.count, self._rewards], dtype=np.float64)
        return {
            "moments/mean": self._mean, "moments/squares": self._squares, "moments/sums": numbers
        }  # fmt: skip

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Goes on from what `arrays` gave."""
        self._mean, self._squares = arrays["moments/mean"], arrays["moments/squares"]
        self.count, self._rewards = int(arrays["moments/sums"][0]), float(arrays["moments/sums"][1])

    @property
    def reward_size(self) -> float:
        """Root mean square."""
        return max(float(np.sqrt(self._rewards / max(self.count, 1))), 1e-6)


class Learning:
    """The law of a residual policy: acts, remembers, learns."""

    def __init__(self, chosen: Residual, space: gym.spaces.Box, d_x: int, shape: Any, seed: int):
        self._chosen, self._code, self._seed = chosen, ActionCode(space), seed
        self._shape: tuple[int, int] = shape
        self._d_z = d_x + self._code.size + shape[0] * shape[1]
        self.forget()

    def forget(self) -> None:
        """See Law."""
        chosen, d_u = self._chosen, self._code.size
        self._rng = np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=(1,)))
        self._learner = learner.init(chosen.rule, self._d_z, d_u, chosen.widths, self._seed)
        self._policy = as_numpy(self._learner.policy)
        self._replay = Replay(chosen.replay_size, self._d_z, d_u)
        self._moments = Moments(self._d_z)
        self.begin()

    def begin(self) -> None:
        """See Law: of a chain of steps that breaks off the last few are not remembered."""
        self._chain = NStep(self._replay, self._chosen.n_step, self._chosen.gamma)
        self._window = np.zeros(self._shape)
        self._acted: tuple[np.ndarray, np.ndarray] | None = None
        self._paid: float | None = None

    def plan(self, x: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See Law: π(z) and its exploration; the step before is remembered, as z is its x_next."""
        z = np.concatenate([x.ravel(), self._code.encode(base)[0], self._window.ravel()])
        z = z.astype(np.float64)
        if not (np.abs(z) < LARGEST).all():
            self.begin()
            raise ValueError("an observation is too large to learn from")
        if self._acted is not None and self._paid is not None:
            self._chain.add(*self._acted, self._paid, z, False, False)
        elif self._acted is not None:  # what it came to was not usable
            self._chain = NStep(self._replay, self._chosen.n_step, self._chosen.gamma)
        scale, sigma = self._chosen.scale, self._chosen.sigma
        own = policy_numpy(self._policy, self._moments.scaled(z[None]))[0].astype(np.float64)
        drawn = np.clip(own + sigma * self._rng.standard_normal(own.shape), -1.0, 1.0)
        self._acted, self._paid = (z, drawn), None
        return scale * own, scale * (drawn - own)

    def observe(self, step: Happened, w_hat: np.ndarray) -> None:
        """See Law."""
        reward = float(step.reward[0])
        if len(self._window):
            self._window = np.concatenate([w_hat[None], self._window[:-1]])
        if not step.learn or not abs(reward) < LARGEST:
            self._acted = None
            return
        assert self._acted is not None
        self._moments.add(self._acted[0], reward)
        self._paid = reward
        if step.terminated[0]:  # no value follows, so no z is needed
            z = self._acted[0]
            self._chain.add(*self._acted, reward, z, True, False)
            self._acted = None
        if self._moments.count >= max(self._chosen.burn_in // 5, 1) and len(self._replay):
            for _ in range(self._chosen.updates):
                self._update()

    def arrays(self) -> dict[str, np.ndarray]:
        """See Law."""
        own = files.flatten("networks", self._learner) | self._moments.arrays()
        own |= {f"replay/{name}": each for name, each in self._replay.arrays().items()}
        steps = list(self._chain.steps)
        for i, name in enumerate(("x", "u", "reward")):
            own[f"chain/{name}"] = np.array([step[i] for step in steps])
        if self._acted is not None:
            own |= {"acted/z": self._acted[0], "acted/u": self._acted[1]}
        return own | {"window": self._window}

    def header(self) -> dict[str, Any]:
        """See Law."""
        return {"generator": self._rng.bit_generator.state, "paid": self._paid}

    def restore(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        """See Law."""
        learner_state = files.unflatten("networks", self._learner, arrays)
        self.forget()
        self._learner, self._policy = learner_state, as_numpy(learner_state.policy)
        self._rng.bit_generator.state = header["generator"]
        self._moments.restore(arrays)
        size = len("replay/")
        self._replay.restore(
            {name[size:]: each for name, each in arrays.items() if name.startswith("replay/")}
        )
        chain = (arrays[f"chain/{name}"] for name in ("x", "u", "reward"))
        self._chain.steps.extend((x, u, float(paid)) for x, u, paid in zip(*chain, strict=True))
        self._window, self._paid = arrays["window"], header["paid"]
        if "acted/z" in arrays:
            self._acted = arrays["acted/z"], arrays["acted/u"]

    def _update(self) -> None:
        """One update of both networks; of the critic alone while it burns in."""
        chosen, before, moments = self._chosen, self._learner, self._moments
        batch = self._replay.sample(self._rng, chosen.batch_size)
        scaled = batch._replace(
            x=moments.scaled(batch.x),
            x_next=moments.scaled(batch.x_next),
            # In sizes of rewards and over the horizon: values are then about 1.
            reward=batch.reward / np.float32(moments.reward_size * horizon(chosen.gamma)),
        )
        fresh, losses = learner.update(chosen.rule, before, scaled)
        if not np.isfinite(losses).all():
            return
        if moments.count < chosen.burn_in:
            fresh = fresh._replace(
                policy=before.policy, policy_optimiser=before.policy_optimiser,
                target_policy=before.target_policy,
            )  # fmt: skip
        self._learner, self._policy = fresh, as_numpy(fresh.policy)
