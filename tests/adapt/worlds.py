"""What the tests of the adaptive layer share: small worlds, their values, MF-GPC by hand."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

import windward as ww

A = np.array([[0.9, 0.2], [-0.1, 0.8]])
B = np.array([[0.5], [1.0]])
K = np.array([[0.2, 0.3]])
Q, R = np.diag([1.0, 0.5]), np.array([[0.1]])
SYSTEM = ww.linear.System(A, B)
X0 = np.array([0.3, -0.2])
GAMMA = 0.9


def wind(T: int, seed: int = 0) -> np.ndarray:
    """Small enough for actions to stay inside [-1, 1]."""
    rng = np.random.default_rng(seed)
    return 0.05 * np.sin(np.arange(T)[:, None] / 7 + np.arange(2)) + 0.01 * rng.normal(size=(T, 2))


class Plant(gym.Env[np.ndarray, np.ndarray]):
    """x' = Ax + Bu + w with quadratic costs, in float64; episodes end after `length` steps.

    `half` stretches the actions: u is what is executed, divided by it. `reuse` writes all
    observations into one array, as some environments do.
    """

    def __init__(
        self,
        w: np.ndarray,
        *,
        half: float = 1.0,
        middle: float = 0.0,
        length: int | None = None,
        ends: str = "terminated",
        x0: np.ndarray = X0,
        reuse: bool = False,
    ) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = gym.spaces.Box(middle - half, middle + half, (1,), np.float64)
        self.w, self.half, self.middle = w, half, middle
        self.length, self.ends, self.x0, self.reuse = length, ends, x0, reuse
        self.t = self.in_episode = 0
        self.x = x0
        self.costs: list[float] = []
        self.executed: list[np.ndarray] = []
        self._buffer = np.zeros(2)

    def _seen(self) -> np.ndarray:
        if not self.reuse:
            return self.x.copy()
        self._buffer[:] = self.x
        return self._buffer

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.x, self.in_episode = self.x0.copy(), 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        u = (np.asarray(action) - self.middle) / self.half
        cost = float(self.x @ Q @ self.x + u @ R @ u)
        self.x = A @ self.x + B @ u + self.w[self.t % len(self.w)]
        self.t += 1
        self.in_episode += 1
        self.costs.append(cost)
        self.executed.append(np.array(action))
        over = self.in_episode == self.length
        ended = (over, False) if self.ends == "terminated" else (False, over)
        return self._seen(), -cost, *ended, {}

    def base(self, x: np.ndarray) -> np.ndarray:
        """The base policy u = -Kx, in the units of the space."""
        return self.middle + self.half * (-K @ x)


def true_w(x: Any, u: Any, reward: Any, x_next: Any) -> np.ndarray:
    """The disturbance of `Plant` at half width 1, as a user's own signal."""
    return x_next - A @ x - B @ u


class ScalarValues:
    """V and Q of the base policy in units of reward, for PD1."""

    def __init__(self) -> None:
        self.gamma = GAMMA
        self._values = ww.linear.quadratic_values(SYSTEM, K, Q, R, gamma=GAMMA)

    def V(self, x: Any) -> np.ndarray:
        return -self._values.V(x)

    def Q(self, x: Any, u: Any) -> np.ndarray:
        return -self._values.Q(x, u)


class VectorValues:
    """c(x) = x and its values, for PD2."""

    def __init__(self) -> None:
        self.gamma, self.d_w = GAMMA, 2
        self._values = ww.linear.vector_values(SYSTEM, K, gamma=GAMMA)

    def c(self, x: Any) -> np.ndarray:
        return np.asarray(x)

    def V(self, x: Any) -> np.ndarray:
        return self._values.V(x)

    def Q(self, x: Any, u: Any) -> np.ndarray:
        return self._values.Q(x, u)


class HandMade:
    """MF-GPC in plain NumPy for rows that share M: Algorithm 1 as it is printed.

    Noise is what the wrapper says it used; all else is computed here.
    """

    def __init__(self, rows: int, h: int, eta: float, sigma: float, M: np.ndarray) -> None:
        self.h, self.eta, self.sigma, self.M = h, eta, sigma, M.copy()
        self.w = np.zeros((rows, 2 * h, M.shape[2]))  # newest first
        self.n = np.zeros((rows, h, M.shape[1]))

    def correction(self, row: int) -> np.ndarray:
        """Σ M_i ŵ_{t-i}."""
        return np.einsum("iuw,iw->u", self.M, self.w[row, : self.h])

    def observe(
        self, n: np.ndarray, c: np.ndarray, w_hat: np.ndarray, ended: np.ndarray, real: np.ndarray
    ) -> None:
        """One step of all rows; rows that are not real change nothing."""
        gradients = []
        for row in np.flatnonzero(real):
            self.n[row] = np.concatenate([n[row][None], self.n[row, :-1]])
            gradients.append(
                sum(
                    c[row] / self.sigma**2 * self.n[row, i][None, :, None]
                    * self.w[row, i : i + self.h][:, None, :]
                    for i in range(self.h)
                )
            )  # fmt: skip
            self.w[row] = np.concatenate([w_hat[row][None], self.w[row, :-1]])
            if ended[row]:
                self.w[row], self.n[row] = 0.0, 0.0
        if gradients:
            self.M = self.M - self.eta * np.mean(gradients, axis=0)


def drive(env: gym.Env, act: Callable[[Any], Any], steps: int, x: Any) -> tuple[list[dict], Any]:
    """Steps on, through resets without a seed; what `info["windward"]` told, and the last x."""
    told = []
    for _ in range(steps):
        x, reward, terminated, truncated, info = env.step(act(x))
        told.append({**info["windward"], "x": x, "reward": reward})
        if terminated or truncated:
            x, _ = env.reset()
    return told, x


def assert_same(a: list[dict], b: list[dict]) -> None:
    """Two runs told the same, to the bit."""
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
