"""Linear systems of `headroom-linear` as environments, for `headroom`: LQR is the base policy.

One system of each size, in episodes of 200 steps: windward/Linear2x1-v0, windward/Linear10x5-v0.
"""

from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np

from windward.simulators.linear import LinearEnv
from windward.studies.linear.random_systems import problem

STEPS = 200
SYSTEM = 400
"""one that served for nothing else"""
SIZES = ((2, 1), (10, 5))


class Lqr:
    """u = -Kx of the system of a size."""

    def __init__(self, d_x: int, d_u: int) -> None:
        self.size = d_x, d_u

    @cached_property
    def K(self) -> np.ndarray:
        """LQR's gain."""
        return np.asarray(problem(*self.size, SYSTEM).K, dtype=np.float64)

    def predict(
        self, observation: Any, deterministic: bool = True
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """The action of an observation, or of rows of them."""
        return -(np.asarray(observation, dtype=np.float64) @ self.K.T), None


LQR_2X1, LQR_10X5 = (Lqr(*size) for size in SIZES)


def make(d_x: int, d_u: int) -> gym.Env:
    """The environment; LQR has its bounds at six standard deviations of its largest actions."""
    p = problem(d_x, d_u, SYSTEM)
    A, B, K = (np.asarray(each, dtype=np.float64) for each in (p.system.A, p.system.B, p.K))
    # Of u_t = -K(A - BK)ᵗx_0 with x_0 ~ N(0, I).
    gains = [K @ np.linalg.matrix_power(A - B @ K, t) for t in range(STEPS)]
    largest = np.sqrt((np.array(gains) ** 2).sum(axis=2)).max(axis=0)
    return LinearEnv(A, B, p.Q, p.R, 6 * largest)


def env_id(d_x: int, d_u: int) -> str:
    """Its name in Gymnasium."""
    return f"windward/Linear{d_x}x{d_u}-v0"


for d_x, d_u in SIZES:
    if env_id(d_x, d_u) not in gym.registry:
        gym.register(
            env_id(d_x, d_u), f"{__name__}:make", max_episode_steps=STEPS,
            kwargs={"d_x": d_x, "d_u": d_u},
        )  # fmt: skip
