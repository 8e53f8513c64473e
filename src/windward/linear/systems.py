"""Linear dynamical systems, x_{t+1} = A_t x_t + B_t u_t + w_t."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from windward import checks


@dataclass(frozen=True, init=False, eq=False)
class System:
    """A linear system; A and B are constant, or vary in time with a leading axis T.

    >>> double_integrator = System(A=[[1, 1], [0, 1]], B=[[0], [1]])
    >>> double_integrator.d_x, double_integrator.d_u
    (2, 1)
    """

    A: np.ndarray  # (d_x, d_x) or (T, d_x, d_x)
    B: np.ndarray  # (d_x, d_u) or (T, d_x, d_u)

    def __init__(self, A: Any, B: Any) -> None:
        A, B = checks.finite_array("A", A, ndim=(2, 3)), checks.finite_array("B", B, ndim=(2, 3))
        d_x = A.shape[-1]
        if A.shape[-2] != d_x:
            raise ValueError(f"A must be square in its last two axes; got shape {A.shape}")
        if B.shape[-2] != d_x:
            raise ValueError(
                f"B must have d_x = {d_x} rows, as A has; got an array of shape {B.shape}"
            )
        if not (A.size and B.size):
            raise ValueError(f"A and B must not be empty; got shapes {A.shape} and {B.shape}")
        if A.ndim == 3 or B.ndim == 3:
            T = A.shape[0] if A.ndim == 3 else B.shape[0]
            if A.ndim == B.ndim and len(A) != len(B):
                raise ValueError(f"A and B must have as many time steps; got {len(A)} and {len(B)}")
            A, B = np.broadcast_to(A, (T, d_x, d_x)), np.broadcast_to(B, (T, *B.shape[-2:]))
        object.__setattr__(self, "A", A)
        object.__setattr__(self, "B", B)

    @property
    def d_x(self) -> int:
        """Dimension of the state."""
        return int(self.A.shape[-1])

    @property
    def d_u(self) -> int:
        """Dimension of the control."""
        return int(self.B.shape[-1])

    @property
    def varies(self) -> bool:
        """Whether A or B changes in time."""
        return bool(self.A.ndim == 3)

    @property
    def steps(self) -> int | None:
        """How many steps a time-varying system is given for; None if it is constant."""
        return len(self.A) if self.varies else None

    def closed_loop(self, K: Any) -> np.ndarray:
        """A - BK, for each step where the system varies."""
        return self.A - self.B @ self.gain(K)

    def gain(self, K: Any) -> np.ndarray:
        """A checked gain of u = -Kx, (d_u, d_x)."""
        K = checks.finite_array("K", K)
        checks.shape("K", K, (self.d_u, self.d_x), "(d_u, d_x)")
        return K


def spectral_radius(A: np.ndarray) -> float:
    """The largest modulus of an eigenvalue."""
    return float(np.abs(np.linalg.eigvals(A)).max())


def check_stable(A_K: np.ndarray) -> None:
    """Refuses a constant closed loop whose spectral radius is 1 or more."""
    radius = spectral_radius(A_K)
    if radius >= 1:
        raise ValueError(
            f"K must stabilise the system: A - BK has spectral radius {radius:.6g}, expected "
            "less than 1 (windward.linear.lqr gives a stabilising K)"
        )


def check_costs(Q: Any, R: Any, d_x: int, d_u: int) -> tuple[np.ndarray, np.ndarray]:
    """Cost matrices of xᵀQx + uᵀRu, Q ⪰ 0 and R ⪰ 0."""
    Q, R = checks.finite_array("Q", Q), checks.finite_array("R", R)
    checks.shape("Q", Q, (d_x, d_x), "(d_x, d_x)")
    checks.shape("R", R, (d_u, d_u), "(d_u, d_u)")
    return checks.psd("Q", Q), checks.psd("R", R)
