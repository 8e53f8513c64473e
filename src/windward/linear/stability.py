"""Strong stability of a closed loop, and what the paper derives from it."""

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize

from windward import checks
from windward.linear.systems import spectral_radius


class StrongStability(NamedTuple):
    """A = QLQ⁻¹ with ‖Q‖, ‖Q⁻¹‖ ≤ κ and ‖L‖ ≤ 1 - α (assumption 2 of the theorem)."""

    kappa: float
    alpha: float
    Q: np.ndarray
    L: np.ndarray

    def memory(self, T: int) -> int:
        """h = α⁻¹ log(2κ³T) of `eq:state_bound`, rounded up."""
        T = checks.integer("T", T, 1)
        return max(1, math.ceil(math.log(2 * self.kappa**3 * T) / self.alpha))

    def state_bound(self, W: float, h: int) -> float:
        """D_{x,u} = max(10 α⁻¹κ⁴W(hκ + 1), 1) of `eq:state_bound`, for ‖w‖ ≤ W."""
        return max(10 / self.alpha * self.kappa**4 * W * (h * self.kappa + 1), 1.0)

    def radii(self, h: int) -> np.ndarray:
        """2κ⁴(1-α)^i for i = 1..h: the spectral radii of the sets M_i (assumption 4)."""
        return 2 * self.kappa**4 * (1 - self.alpha) ** np.arange(1, h + 1)


def _decompose(A: np.ndarray, rate: float) -> tuple[float, np.ndarray]:
    """κ and Q for ‖L‖ ≤ rate, from the Lyapunov equation P = (A/rate)ᵀP(A/rate) + I.

    Then AᵀPA ⪯ rate²P, so L = P^{1/2}AP^{-1/2} has ‖L‖ ≤ rate. Unlike eigenvectors this also
    serves matrices that cannot be diagonalised.
    """
    P = scipy.linalg.solve_discrete_lyapunov((A / rate).T, np.eye(len(A)))
    values, vectors = np.linalg.eigh((P + P.T) / 2)
    scale = (values[0] * values[-1]) ** 0.25  # makes ‖Q‖ = ‖Q⁻¹‖
    Q = scale * (vectors / np.sqrt(values)) @ vectors.T
    return float((values[-1] / values[0]) ** 0.25), Q


def strong_stability(A_K: Any, B: Any = None, alpha: float | None = None) -> StrongStability:
    """(κ, α) of a stable matrix, with the decomposition that proves them.

    A larger α costs a larger κ; without `alpha` the one with the smallest α⁻¹(1 + log κ) is
    taken, the trade that `eq:state_bound` makes. With `B`, κ is also at least ‖B‖, as
    assumption 1 asks.
    """
    A = checks.finite_array("A_K", A_K, ndim=2)
    checks.shape("A_K", A, (len(A), len(A)), "square")
    radius = spectral_radius(A)
    if radius >= 1:
        raise ValueError(
            f"A_K must be stable: its spectral radius is {radius:.6g}, expected less than 1"
        )
    if alpha is None:

        def price(rate: float) -> float:
            return (1 + math.log(_decompose(A, rate)[0])) / (1 - rate)

        low = radius + 1e-3 * (1 - radius)
        rate = float(scipy.optimize.minimize_scalar(price, bounds=(low, 1 - 1e-6 * (1 - radius)),
                                                    method="bounded").x)  # fmt: skip
    else:
        rate = 1 - float(checks.positive("alpha", alpha))
        if not radius < rate:
            raise ValueError(
                f"alpha must be less than 1 - spectral radius = {1 - radius:.6g}; got {alpha}"
            )
    kappa, Q = _decompose(A, rate)
    if B is not None:
        kappa = max(kappa, float(np.linalg.norm(checks.finite_array("B", B, ndim=2), 2)))
    return StrongStability(max(kappa, 1.0), 1 - rate, Q, np.linalg.solve(Q, A @ Q))
