"""Plain NumPy float64 versions of the paper's formulas and algorithms, written from the paper.

Nothing here calls windward but `draws`, which asks an algorithm for its random numbers, since
those are inputs. Steps count from 0, and disturbances and draws before step 0 are 0.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Trace(NamedTuple):
    """A run; M[t] is the parameter that acted at step t, with one more at the end."""

    x: np.ndarray
    u: np.ndarray
    cost: np.ndarray
    w_hat: np.ndarray
    M: np.ndarray
    gradient: np.ndarray


def draws(algorithm: Any, seed: int, T: int) -> np.ndarray:
    """The unit draws of steps 0..T-1."""
    key = jax.random.key(seed)

    def one(t: Any) -> Any:
        return algorithm.unit(jax.random.fold_in(key, t), 1)[0]

    return np.asarray(jax.vmap(one)(jnp.arange(T)), np.float64)


def at(matrix: np.ndarray, t: int) -> np.ndarray:
    return matrix if matrix.ndim == 2 else matrix[t]


def past(sequence: list[np.ndarray] | np.ndarray, t: int, h: int, like: np.ndarray) -> np.ndarray:
    """Entries t-1, ..., t-h, newest first, zeros before the start."""
    return np.stack(
        [sequence[t - i] if t - i >= 0 else np.zeros_like(like) for i in range(1, h + 1)]
    )


def dac(M: np.ndarray, window: np.ndarray) -> np.ndarray:
    return sum(M[i] @ window[i] for i in range(len(M)))


def to_ball(M: np.ndarray, radius: float) -> np.ndarray:
    norm = np.sqrt((M**2).sum())
    return M if norm <= radius else M * (radius / norm)


def to_dac_set(M: np.ndarray, kappa: float, alpha: float) -> np.ndarray:
    """Each M_i to spectral norm at most 2κ⁴(1-α)^i."""
    out = []
    for i, matrix in enumerate(M, start=1):
        u, s, vt = np.linalg.svd(matrix, full_matrices=False)
        out.append(u @ np.diag(np.minimum(s, 2 * kappa**4 * (1 - alpha) ** i)) @ vt)
    return np.stack(out)


def quadratic(Q: np.ndarray, R: np.ndarray) -> Callable[..., Any]:
    return lambda x, u, t: x @ Q @ x + u @ R @ u


def true_w(t: int, x: Any, u: Any, c: Any, x_next: Any, score: Any, w: np.ndarray) -> np.ndarray:
    return w


def run(
    A: np.ndarray,
    B: np.ndarray,
    K: np.ndarray,
    cost: Callable[..., Any],
    w: np.ndarray,
    *,
    M0: np.ndarray,
    act: Callable[[int, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    gradient: Callable[..., np.ndarray],
    update: Callable[[int, np.ndarray, list[np.ndarray]], np.ndarray],
    signal: Callable[..., np.ndarray] = true_w,
    x0: np.ndarray | None = None,
) -> Trace:
    """The loop of algo:generic. ``act`` gives the added control and the score Σ⁻¹n."""
    x = np.zeros(A.shape[-1]) if x0 is None else np.asarray(x0, float)
    h, _, d_w = M0.shape
    M, w_hats, gradients = M0, [], []
    xs, us, costs, Ms = [], [], [], [M0]
    for t in range(len(w)):
        window = past(w_hats, t, h, np.zeros(d_w))
        added, score = act(t, M, window)
        u = -K @ x + added
        c = cost(x, u, t)
        x_next = at(A, t) @ x + at(B, t) @ u + w[t]
        w_hat = signal(t, x, u, c, x_next, score, w[t])
        gradients.append(gradient(t, M, c, w_hats))
        M = update(t, M, gradients)
        w_hats.append(w_hat)
        for store, value in ((xs, x), (us, u), (costs, c), (Ms, M)):
            store.append(value)
        x = x_next
    return Trace(*(np.stack(part) for part in (xs, us, costs, w_hats, Ms, gradients)))


def _outer_sum(t: int, scores: np.ndarray, w_hats: list[np.ndarray], M: np.ndarray) -> np.ndarray:
    """Σ_{i=0..h-1} score_{t-i} ⊗ ŵ_{t-i-1 : t-i-h}."""
    h, _, d_w = M.shape
    total = np.zeros_like(M)
    for i in range(h):
        if t - i < 0:
            continue
        window = past(w_hats, t - i, h, np.zeros(d_w))
        for j in range(h):
            total[j] += np.outer(scores[t - i], window[j])
    return total


def bandit_gpc(
    A: np.ndarray, B: np.ndarray, K: np.ndarray, cost: Any, w: np.ndarray, units: np.ndarray, *,
    M0: np.ndarray, eta: float, delta: float, project: Any = lambda M: M, **more: Any,
) -> Trace:  # fmt: skip
    """algo:banditgpc, with ŵ in place of w where a signal is given."""
    n = units / np.linalg.norm(units, axis=1, keepdims=True)
    h, d_u = M0.shape[:2]
    return run(
        A, B, K, cost, w, M0=M0,
        act=lambda t, M, window: (dac(M, window) + delta * n[t], d_u * n[t] / delta),
        gradient=lambda t, M, c, w_hats: d_u * c / delta * _outer_sum(t, n, w_hats, M),
        update=lambda t, M, gradients: (
            project(M - eta * gradients[t - h]) if t >= h else project(M)
        ),
        **more,
    )  # fmt: skip


def bpc(
    A: np.ndarray, B: np.ndarray, K: np.ndarray, cost: Any, w: np.ndarray, units: np.ndarray, *,
    M0: np.ndarray, eta: float, delta: float, radius: float, **more: Any,
) -> Trace:  # fmt: skip
    """Gradu, Hallman and Hazan 2020: noise on the sphere of all entries of M."""
    eps = (units / np.linalg.norm(units, axis=1, keepdims=True)).reshape(-1, *M0.shape)
    h = len(M0)

    def gradient(t: int, M: np.ndarray, c: float, w_hats: Any) -> np.ndarray:
        return M.size * c / delta * sum(eps[t - i] for i in range(h) if t - i >= 0)

    return run(
        A, B, K, cost, w, M0=M0,
        act=lambda t, M, window: (dac(M + delta * eps[t], window), np.zeros(M.shape[1])),
        gradient=gradient,
        update=lambda t, M, gradients: to_ball(
            M - eta * gradients[t - h] if t >= h else M, radius - delta
        ),
        **more,
    )  # fmt: skip


def mf_gpc(
    A: np.ndarray, B: np.ndarray, K: np.ndarray, cost: Any, w: np.ndarray, units: np.ndarray, *,
    M0: np.ndarray, eta: float, Sigma: np.ndarray, decay: float = 0.0, **more: Any,
) -> Trace:  # fmt: skip
    """algo:generic with the linear policy; Sigma is the full covariance of n."""
    n = units @ np.linalg.cholesky(Sigma).T
    scores = n @ np.linalg.inv(Sigma)
    return run(
        A, B, K, cost, w, M0=M0,
        act=lambda t, M, window: (dac(M, window) + n[t], scores[t]),
        gradient=lambda t, M, c, w_hats: c * _outer_sum(t, scores, w_hats, M),
        update=lambda t, M, gradients: M - eta * (gradients[t] + decay * M),
        **more,
    )  # fmt: skip


def fixed(
    A: np.ndarray, B: np.ndarray, K: np.ndarray, cost: Any, w: np.ndarray, M: np.ndarray,
    **more: Any,
) -> Trace:  # fmt: skip
    """The counterfactual run of one M, without noise."""
    return run(
        A, B, K, cost, w, M0=M,
        act=lambda t, M, window: (dac(M, window), np.zeros(M.shape[1])),
        gradient=lambda t, M, c, w_hats: np.zeros_like(M),
        update=lambda t, M, gradients: M,
        **more,
    )  # fmt: skip


def idealised(
    A: np.ndarray, B: np.ndarray, K: np.ndarray, M: np.ndarray, w: np.ndarray, t: int
) -> tuple[np.ndarray, np.ndarray]:
    """y_t and u_t after h steps of M from a zero state at step t - h."""
    h, _, d_x = M.shape
    zero = np.zeros(d_x)

    def window(s: int) -> np.ndarray:
        return np.stack([w[s - i] if s - i >= 0 else zero for i in range(1, h + 1)])

    y = np.zeros(d_x, M.dtype)
    for s in range(t - h, t):
        u = -K @ y + dac(M, window(s))
        y = at(A, max(s, 0)) @ y + at(B, max(s, 0)) @ u + (w[s] if s >= 0 else zero)
    return y, -K @ y + dac(M, window(t))


def complex_step(function: Callable[[np.ndarray], Any], M: np.ndarray) -> np.ndarray:
    """The gradient of an analytic function to machine precision."""
    gradient = np.zeros(M.shape)
    for index in np.ndindex(*M.shape):
        shifted = M.astype(complex)
        shifted[index] += 1e-30j
        gradient[index] = np.imag(function(shifted)) / 1e-30
    return gradient


def gpc(
    A: np.ndarray, B: np.ndarray, K: np.ndarray, cost: Any, w: np.ndarray, *,
    M0: np.ndarray, eta: float, radius: float, **more: Any,
) -> Trace:  # fmt: skip
    """GPC on an analytic cost: descends the idealised cost by complex steps."""

    def gradient(t: int, M: np.ndarray, c: float, w_hats: Any) -> np.ndarray:
        return complex_step(lambda M: cost(*idealised(A, B, K, M, w, t), t), M)

    return run(
        A, B, K, cost, w, M0=M0,
        act=lambda t, M, window: (dac(M, window), np.zeros(M.shape[1])),
        gradient=gradient,
        update=lambda t, M, gradients: to_ball(M - eta * gradients[t], radius),
        **more,
    )  # fmt: skip


def discounted(
    A_K: np.ndarray, weight: np.ndarray, gamma: float, steps: int = 20_000
) -> np.ndarray:
    """Σ_k γ^k (A_Kᵏ)ᵀ weight A_Kᵏ by summation."""
    total, power = np.zeros_like(weight), np.eye(len(A_K))
    for k in range(steps):
        term = gamma**k * power.T @ weight @ power
        total = total + term
        power = A_K @ power
        if np.abs(term).max() < 1e-18 * np.abs(total).max():
            return total
    raise AssertionError("the series did not settle")
