"""Values that were learned from steps of a policy: scalar ones for PD1, vector ones for PD2."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import numpy as np

from windward.policies.actions import ActionCode
from windward.policies.critics import rows_in
from windward.policies.features import Features, flattened
from windward.policies.networks import Params, critic, forward_numpy
from windward.policies.rollouts import Rows
from windward.policies.td import td_init, td_update

ONLINE_BATCH = 64
ONLINE_RATE = 3e-4
"""learning rate of Adam while adapting: slow, as the policy is the same and the world drifts"""


class Fit(NamedTuple):
    """Bellman error on held-out steps: rms of c + γV(x_next) - Q(x, u), and the rms of c itself.

    An error as large as the costs is no better than V = 0.
    """

    bellman: float
    costs: float
    vector_bellman: np.ndarray
    vector_costs: np.ndarray

    @property
    def relative(self) -> float:
        """Error of the scalar values over the size of the costs."""
        return self.bellman / max(self.costs, 1e-12)

    @property
    def vector_relative(self) -> np.ndarray:
        """The same for each coordinate of the vector values."""
        return self.vector_bellman / np.maximum(self.vector_costs, 1e-12)


def input_of(space: gym.Space, phi: Features) -> Callable[[np.ndarray], np.ndarray]:
    """What the network sees of rows of observations: the numbers of each, or φ of an image."""
    if len(space.shape or ()) > 1:
        return phi
    return flattened


class Network(NamedTuple):
    """Q of all costs at once: size·net((x - mean)/spread, u)."""

    params: Params
    mean: np.ndarray
    spread: np.ndarray
    size: np.ndarray

    def inputs(self, x: np.ndarray) -> np.ndarray:
        """x at unit spread."""
        return ((x - self.mean) / self.spread).astype(np.float32)

    def __call__(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Q(x, u), a column for each cost."""
        both = np.concatenate([self.inputs(x), u], axis=-1)
        return self.size * forward_numpy(self.params, both)


_online_update = jax.jit(td_update)


class Values:
    """What `fit_values` gives: `.critic` for PD1, `.vector` for PD2, and how good they are, `.fit`.

    They call the policy itself for V(x) = Q(x, π(x)).
    """

    def __init__(
        self,
        network: Network,
        act: Callable[[np.ndarray], np.ndarray],
        observation_space: gym.Space,
        action_space: gym.Space,
        features: Features,
        gamma: float,
        fit: Fit,
        rows: Rows | None,
        seed: int,
    ) -> None:
        self.network, self.gamma, self.fit, self.features = network, gamma, fit, features
        self._act, self._code = act, ActionCode(action_space)
        self.observation_space = observation_space
        self._see = input_of(observation_space, features)
        self.critic, self.vector = FittedCritic(self), FittedVector(self)
        self._learning = None if rows is None else _Learning(network, rows, gamma, seed)

    @property
    def online(self) -> bool:
        """Whether `observe` may be called, and should be after every step of adapting."""
        return self._learning is not None

    def Q(self, x: Any, u: Any) -> np.ndarray:
        """Q(x, u) of the reward and then of φ, rows."""
        rows, coded = self._see(rows_in(self.observation_space, x)), self._code.encode(u)
        if len(rows) != len(coded):
            raise ValueError(
                f"there must be an action for each observation; got {len(coded)} for {len(rows)}"
            )
        return self.network(rows, coded)

    def V(self, x: Any) -> np.ndarray:
        """Q(x, π(x)), rows."""
        rows = rows_in(self.observation_space, x)
        return self.Q(rows, self._act(rows))

    def grad_Q(self, x: Any, u: Any) -> np.ndarray:
        """Gradient of the scalar Q in u, in the environment's units, rows."""
        if self._code.discrete:
            raise ValueError("Q has no gradient in the action: the actions are discrete")
        rows = self.network.inputs(self._see(rows_in(self.observation_space, x)))
        slope = _slope_in_u(self.network.params, rows, self._code.encode(u))
        return self._code.slope(self.network.size[0] * np.asarray(slope))

    def observe(self, x: Any, u: Any, reward: float, x_next: Any, terminated: bool) -> None:
        """One more step, executed action u, of one environment; and one TD update."""
        if self._learning is None:
            raise ValueError("these values do not go on learning: fit them with online=True")
        x, x_next = np.asarray(x)[None], np.asarray(x_next)[None]
        costs = np.array([[reward, *self.features(x)[0]]], np.float32)
        if not (np.isfinite(costs).all() and np.isfinite(self._see(x_next)).all()):
            return  # nothing to learn from
        self.network = self._learning.step(
            self._see(x), self._code.encode([u]), costs,
            0.0 if terminated else self.gamma, self._see(x_next),
            self._code.encode(self._act(x_next)),
        )  # fmt: skip


@jax.jit
def _slope_in_u(params: Params, x: Any, u: Any) -> Any:
    return jax.grad(lambda u: critic(params, x, u)[:, 0].sum())(u)


class _Learning:
    """The steps that were learned from, overwritten by newer ones, and one update for each."""

    def __init__(self, network: Network, rows: Rows, gamma: float, seed: int) -> None:
        self._network, self._rng = network, np.random.default_rng((seed, 2))
        self._state = td_init(network.params)
        n = network
        self._rows = [
            n.inputs(rows.x), rows.u.copy(), (rows.G / n.size).astype(np.float32),
            rows.discount.copy(), n.inputs(rows.x_ahead), rows.u_ahead.copy(),
        ]  # fmt: skip
        self._oldest = 0

    def step(
        self,
        x: np.ndarray,
        u: np.ndarray,
        costs: np.ndarray,
        discount: float,
        x_next: np.ndarray,
        u_next: np.ndarray,
    ) -> Network:
        """Puts a step in place of the oldest; one update on a batch that contains it."""
        n = self._network
        new = (n.inputs(x), u, costs / n.size, discount, n.inputs(x_next), u_next)
        for column, value in zip(self._rows, new, strict=True):
            column[self._oldest] = value if np.isscalar(value) else np.asarray(value)[0]
        index = self._rng.integers(0, len(self._rows[0]), ONLINE_BATCH)
        index[0] = self._oldest
        self._oldest = (self._oldest + 1) % len(self._rows[0])
        batch = [column[index] for column in self._rows]
        self._state = _online_update(self._state, batch, ONLINE_RATE)
        params = {name: np.asarray(each) for name, each in self._state.params.items()}
        return n._replace(params=params)


class FittedCritic:
    """Scalar V and Q, in units of reward."""

    def __init__(self, values: Values) -> None:
        self._values, self.gamma = values, values.gamma

    def V(self, x: Any) -> np.ndarray:
        """Q(x, π(x))."""
        return self._values.V(x)[:, 0]

    def Q(self, x: Any, u: Any) -> np.ndarray:
        """Q(x, u)."""
        return self._values.Q(x, u)[:, 0]

    def grad_V(self, x: Any, step: float = 1e-3) -> np.ndarray:
        """Gradient of V in x by central differences: the policy inside cannot be looked into."""
        rows = rows_in(self._values.observation_space, x).astype(np.float64)
        flat = rows.reshape(len(rows), -1)
        d_x = flat.shape[1]
        moves = step * np.eye(d_x)
        around = np.concatenate([flat[:, None] + moves, flat[:, None] - moves], axis=1)
        values = self.V(around.reshape(-1, *rows.shape[1:])).reshape(len(rows), 2 * d_x)
        return (values[:, :d_x] - values[:, d_x:]) / (2 * step)

    def grad_Q(self, x: Any, u: Any) -> np.ndarray:
        """Gradient of Q in u, in the environment's units."""
        return self._values.grad_Q(x, u)


class FittedVector:
    """c(x) = φ(x) and its V and Q."""

    def __init__(self, values: Values) -> None:
        self._values, self.d_w, self.gamma = values, values.features.d_w, values.gamma

    def c(self, x: Any) -> np.ndarray:
        """φ(x)."""
        return self._values.features(rows_in(self._values.observation_space, x))

    def V(self, x: Any) -> np.ndarray:
        """Q(x, π(x))."""
        return self._values.V(x)[:, 1:]

    def Q(self, x: Any, u: Any) -> np.ndarray:
        """Q(x, u)."""
        return self._values.Q(x, u)[:, 1:]
