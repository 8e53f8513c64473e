"""Least squares for the input map: a regression over rows that fade, and a weighted inverse."""

import numpy as np

RIDGE = 1e-8  # of the regression, over the square of each column
DAMPING = 1e-3  # of the inverse, over the mean square of B's columns
TINY = 1e-12


class LeastSquares:
    """Θ of y ≈ Θᵀz: S = λS + Σzzᵀ, Θ = (S + ρ diag S)⁻¹ Σzyᵀ, faded by λ = `forget`.

    >>> fit = LeastSquares(1, 1, forget=1.0)
    >>> fit.add(np.array([[1.0], [2.0]]), np.array([[3.0], [6.0]]))
    >>> fit.theta.round(6)
    array([[3.]])
    """

    def __init__(self, d_z: int, d_y: int, forget: float) -> None:
        self._forget = forget
        self._S, self._Y, self._squares = np.zeros((d_z, d_z)), np.zeros((d_z, d_y)), np.zeros(d_y)
        self.count = 0.0
        """rows that count"""

    def add(self, z: np.ndarray, y: np.ndarray) -> None:
        """Rows of one step."""
        fade = self._forget
        self._S, self._Y = fade * self._S + z.T @ z, fade * self._Y + z.T @ y
        self._squares = fade * self._squares + (y**2).sum(axis=0)
        self.count = fade * self.count + len(z)

    @property
    def _ridged(self) -> np.ndarray:
        return self._S + np.diag(RIDGE * np.diag(self._S) + TINY)

    @property
    def theta(self) -> np.ndarray:
        """(d_z, d_y)."""
        return np.linalg.solve(self._ridged, self._Y)

    def doubt(self, weights: np.ndarray) -> np.ndarray:
        """Σ_k weights_k Cov(θ_k), (d_z, d_z): how far Θ may be off, judged by its residuals."""
        left = np.maximum(self._squares - (self.theta * self._Y).sum(axis=0), 0.0)
        freedom = max(self.count - len(self._S), 1.0)
        return float(weights @ left) / freedom * np.linalg.inv(self._ridged)


def inverse(B: np.ndarray, weights: np.ndarray, doubt: np.ndarray) -> np.ndarray:
    """B⁺ = (BᵀWB + doubt + ρI)⁻¹BᵀW, (d_u, d_w), with W = diag(weights).

    B⁺ŵ is the action whose effect is nearest to ŵ, and less of it where B is not known well.

    >>> inverse(np.array([[0.0], [0.5]]), np.ones(2), np.zeros((1, 1))).round(2)
    array([[0., 2.]])
    """
    weighted = B.T * weights
    gram = weighted @ B
    n = len(gram)
    damping = DAMPING * np.trace(gram) / n + TINY
    return np.linalg.solve(gram + doubt + damping * np.eye(n), weighted)
