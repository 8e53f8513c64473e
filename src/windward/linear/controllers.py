"""Linear state feedback u = -Kx: LQR and H-infinity."""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from windward import checks
from windward.linear.systems import System, check_costs, spectral_radius

STABLE = 1 - 1e-6  # a solver's rounding may leave a mode that it cannot move just inside 1
NOT_DETECTED = (
    "Q must put a cost on every mode of A on the unit circle: the Riccati equation of (A, B, Q, R) "
    "has no stabilising solution; add weight to Q"
)


class LQR(NamedTuple):
    """u = -Kx and the value xᵀPx of following it."""

    K: np.ndarray
    P: np.ndarray


class HInfinity(NamedTuple):
    """u = -Kx, the value xᵀPx of the game, and the attenuation level reached."""

    K: np.ndarray
    P: np.ndarray
    level: float


def _check(A: Any, B: Any, Q: Any, R: Any) -> tuple[System, np.ndarray, np.ndarray]:
    system = System(A, B)
    if system.varies:
        raise ValueError(f"A and B must be constant matrices here; got A of shape {system.A.shape}")
    Q, R = check_costs(Q, R, system.d_x, system.d_u)
    checks.psd("R", R, definite=True)
    return system, Q, R


def _check_stabilisable(A: np.ndarray, B: np.ndarray) -> None:
    """The Hautus test: [A - λI, B] has full rank for every eigenvalue with |λ| ≥ 1."""
    for value in np.linalg.eigvals(A):
        if abs(value) >= 1 - 1e-12:
            test = np.hstack([A - value * np.eye(len(A)), B])
            if np.linalg.matrix_rank(test) < len(A):
                raise ValueError(
                    f"(A, B) must be stabilisable; the eigenvalue {value:.6g} of A has modulus "
                    f"{abs(value):.6g} >= 1 and B cannot move it"
                )


def lqr(A: Any, B: Any, Q: Any, R: Any) -> LQR:
    """The infinite-horizon linear-quadratic regulator, K = (R + BᵀPB)⁻¹BᵀPA.

    P solves P = Q + AᵀPA - AᵀPB(R + BᵀPB)⁻¹BᵀPA.

    >>> lqr([[1.0]], [[1.0]], [[1.0]], [[1.0]]).P.round(3).tolist()
    [[1.618]]
    """
    system, Q, R = _check(A, B, Q, R)
    A, B = system.A, system.B
    _check_stabilisable(A, B)
    try:
        P = scipy.linalg.solve_discrete_are(A, B, Q, R)
    except np.linalg.LinAlgError as error:
        raise ValueError(NOT_DETECTED) from error
    K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
    if spectral_radius(A - B @ K) >= STABLE:
        raise ValueError(NOT_DETECTED)
    return LQR(K, P)


def _h_infinity_at(
    A: np.ndarray, B: np.ndarray, Q: np.ndarray, R: np.ndarray, level: float
) -> HInfinity | None:
    """The game's solution at an attenuation level, or None if the level is too small.

    The disturbance is a second player with the input matrix I and the weight -level².
    """
    d_x = len(A)
    inputs = np.hstack([B, np.eye(d_x)])
    weights = scipy.linalg.block_diag(R, -(level**2) * np.eye(d_x))
    try:
        P = scipy.linalg.solve_discrete_are(A, inputs, Q, weights)
    except np.linalg.LinAlgError:
        return None
    slack = level**2 * np.eye(d_x) - P
    if np.linalg.eigvalsh(slack).min() <= 0 or np.linalg.eigvalsh(P).min() < -1e-9:
        return None
    worst = P + P @ np.linalg.solve(slack, P)  # the value once w has answered
    K = np.linalg.solve(R + B.T @ worst @ B, B.T @ worst @ A)
    return HInfinity(K, P, level) if spectral_radius(A - B @ K) < STABLE else None


def h_infinity(A: Any, B: Any, Q: Any, R: Any, level: float | None = None) -> HInfinity:
    """The controller that keeps Σ(xᵀQx + uᵀRu) ≤ level² Σ‖w‖² from x_0 = 0.

    P solves the game Riccati equation P = Q + AᵀP(I + (BR⁻¹Bᵀ - level⁻²I)P)⁻¹A. Without
    `level`, the smallest one is found by bisection, to a relative 1e-3 above it.
    """
    system, Q, R = _check(A, B, Q, R)
    A, B = system.A, system.B
    _check_stabilisable(A, B)
    if level is not None:
        solution = _h_infinity_at(A, B, Q, R, float(checks.positive("level", level)))
        if solution is None:
            raise ValueError(
                f"level must be larger: no controller attenuates to {level}; leave it out to "
                "find the smallest"
            )
        return solution
    low, high = 0.0, 1.0
    best = _h_infinity_at(A, B, Q, R, high)
    while best is None:
        low, high = high, 2 * high
        if high > 1e8:
            raise ValueError(NOT_DETECTED)
        best = _h_infinity_at(A, B, Q, R, high)
    while high - low > max(1e-3 * high, 1e-9):
        middle = (low + high) / 2
        solution = _h_infinity_at(A, B, Q, R, middle)
        if solution is None:
            low = middle
        else:
            best, high = solution, middle
    return best
