"""Closed-form values of a linear policy u = -Kx on a linear system, with discount.

Values are of the noise-free policy (deviation 9): for zero-mean disturbances independent of
the state they differ from the noisy ones by a constant (quadratic costs) or not at all (linear
costs).
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from windward import checks
from windward.linear.systems import System, check_costs, spectral_radius


def _discounted_loop(system: System, K: Any, gamma: float, power: int) -> np.ndarray:
    """A - BK, refused where the values, of degree `power` in the state, are infinite."""
    if system.varies:
        raise ValueError(
            "the system must be constant in time to have value functions; it varies (PD3 works)"
        )
    gamma = checks.discount("gamma", gamma)
    A_K = system.closed_loop(K)
    if gamma * spectral_radius(A_K) ** power >= 1:
        raise ValueError(
            f"the value of K is infinite: A - BK has spectral radius {spectral_radius(A_K):.6g} "
            f"and gamma is {gamma}"
        )
    return A_K


class QuadraticValues(NamedTuple):
    """V(x) = xᵀPx and Q(x, u) = xᵀQx + uᵀRu + γV(Ax + Bu)."""

    P: np.ndarray
    Q_cost: np.ndarray
    R_cost: np.ndarray
    system: System
    gamma: float

    def V(self, x: Any) -> np.ndarray:
        """V(x), for x of shape (..., d_x)."""
        x = np.asarray(x)
        return np.asarray(np.sum((x @ self.P) * x, axis=-1))

    def Q(self, x: Any, u: Any) -> np.ndarray:
        """Q(x, u)."""
        x, u = np.asarray(x), np.asarray(u)
        cost = np.sum((x @ self.Q_cost) * x, -1) + np.sum((u @ self.R_cost) * u, -1)
        return np.asarray(cost + self.gamma * self.V(x @ self.system.A.T + u @ self.system.B.T))

    def grad_q_minus_c(self, x: Any, u: Any) -> np.ndarray:
        """∇_u(Q(x, u) - c(x, u)) = 2γBᵀP(Ax + Bu)."""
        x, u = np.asarray(x), np.asarray(u)
        predicted = x @ self.system.A.T + u @ self.system.B.T
        return 2 * self.gamma * predicted @ self.P @ self.system.B

    @property
    def T(self) -> np.ndarray:
        """PD1's map: E[ŵ_t | x_t] = T w_t with T = 2γBᵀP (`lem:pd1`, deviation 1)."""
        return 2 * self.gamma * self.system.B.T @ self.P


class VectorValues(NamedTuple):
    """For the vector cost c(x) = Lx: V(x) = Gx and Q(x, u) = Lx + γG(Ax + Bu)."""

    L: np.ndarray
    G: np.ndarray
    system: System
    gamma: float

    def V(self, x: Any) -> np.ndarray:
        """V(x), for x of shape (..., d_x)."""
        return np.asarray(x) @ self.G.T

    def Q(self, x: Any, u: Any) -> np.ndarray:
        """Q(x, u)."""
        x, u = np.asarray(x), np.asarray(u)
        predicted = x @ self.system.A.T + u @ self.system.B.T
        return x @ self.L.T + self.gamma * predicted @ self.G.T

    @property
    def T(self) -> np.ndarray:
        """PD2's map: ŵ_t = T w_t with T = γL(I - γA_π)⁻¹ (`lem:pd2`, deviation 2)."""
        return self.gamma * self.G


def quadratic_values(system: System, K: Any, Q: Any, R: Any, gamma: float = 1.0) -> QuadraticValues:
    """V and Q of u = -Kx for xᵀQx + uᵀRu: P = Q + KᵀRK + γA_πᵀPA_π."""
    A_K = _discounted_loop(system, K, gamma, power=2)
    Q, R = check_costs(Q, R, system.d_x, system.d_u)
    K = system.gain(K)
    P = scipy.linalg.solve_discrete_lyapunov(gamma**0.5 * A_K.T, Q + K.T @ R @ K)
    return QuadraticValues((P + P.T) / 2, Q, R, system, gamma)


def vector_values(system: System, K: Any, gamma: float = 1.0, L: Any = None) -> VectorValues:
    """V and Q of u = -Kx for the vector cost Lx: G = L(I - γA_π)⁻¹; L is I if None."""
    A_K = _discounted_loop(system, K, gamma, power=1)
    d_x = system.d_x
    L = np.eye(d_x) if L is None else checks.finite_array("L", L, ndim=2)
    if L.shape[1] != d_x:
        raise ValueError(f"L must have d_x = {d_x} columns; got shape {L.shape}")
    return VectorValues(L, L @ np.linalg.inv(np.eye(d_x) - gamma * A_K), system, gamma)
