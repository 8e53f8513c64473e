"""The metric of the nominal closed loop: how much a deviation of the next state comes to matter.

    P = mean over visited states of Σ_{k=0..H} γ^k D_kᵀ Q D_k,   D_k = ∂x_{t+k} / ∂x_t

under the policy. Q weighs each coordinate by its usual change in a step, and D_k are finite
differences.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from windward.adapt.twin import Twin


@dataclass(frozen=True)
class MetricSettings:
    """How the metric is made."""

    horizon: int = 30
    """steps over which a deviation is followed"""
    discount: float = 0.98
    """γ, weight of a step against the one before"""
    states: int = 12
    """visited states that it is averaged over"""
    visited: int = 150
    """simulated steps of the policy in the nominal world, from which they are taken, twice"""
    size: float = 0.05
    """of the deviations, in usual changes of a coordinate in a step"""
    floor: float = 1e-3
    """least usual change of a coordinate, as a share of the largest"""
    alone: float = 1e-6
    """change of others, against its own, below which a coordinate moves nothing but itself"""
    free: float = 0.3
    """weight of such a coordinate, a position on which nothing depends"""
    outlier: float = 20.0
    """states that count so many times the median are left out: a contact was just missed there"""


def usual_change(x: np.ndarray, floor: float) -> np.ndarray:
    """(d_x,) standard deviation of x_{t+1} - x_t of consecutive states."""
    change = np.diff(x, axis=0)
    # Where two stretches meet there is a jump.
    size = 1.4826 * np.median(np.abs(change), axis=0)
    size = np.maximum(size, np.std(np.clip(change, -5 * size, 5 * size), axis=0))
    return np.maximum(size, floor * float(size.max(initial=0.0)) + 1e-12)


def closed_loop_metric(
    twin: Twin,
    policy: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    scale: np.ndarray,
    settings: MetricSettings,
) -> np.ndarray:
    """L (d_x, d_x) with |L e|² = eᵀPe; 1 on average for deviations of the usual size.

    Args:
        x: states that the policy visits.
        scale: usual change of each coordinate.
    """
    d = twin.d_x
    picked = x[np.unique(np.linspace(0, len(x) - 1, settings.states).astype(int))]
    n = len(picked)
    moved = np.repeat(picked[:, None], d + 1, axis=1)
    moved[:, np.arange(d) + 1, np.arange(d)] += settings.size * scale
    rows = moved.reshape(-1, d)
    nominal = np.zeros(len(rows), dtype=bool)
    changes = [np.tile(np.eye(d), (n, 1, 1))]
    alone = np.ones((n, d), dtype=bool)
    for _ in range(settings.horizon):
        u = policy(twin.observe(np.where(np.isfinite(rows), rows, 0.0)))
        rows = twin.advance(nominal, rows, u)
        each = rows.reshape(n, d + 1, d)
        D = twin.gap(each[:, 1:].reshape(-1, d), np.repeat(each[:, 0], d, axis=0))
        # D[s, i, j]: change of coordinate i for a deviation of coordinate j, in usual changes
        D = np.moveaxis(D.reshape(n, d, d), 1, 2) / settings.size / scale[None, :, None]
        changes.append(D)
        alone &= np.abs(D - np.eye(d)).max(axis=1) < settings.alone
    # What moves itself alone is a position on which nothing depends. In some states a contact makes
    # rounding errors large, so most of them decide.
    known = np.isfinite(changes[-1]).all(axis=(1, 2))
    carried = alone[known].mean(axis=0) > 0.5 if known.any() else np.zeros(d, dtype=bool)
    weight = np.where(carried, settings.free, 1.0)
    P = np.zeros((n, d, d))
    with np.errstate(all="ignore"):
        for k, D in enumerate(changes):
            P += settings.discount**k * np.einsum("nij,i,nik->njk", D, weight, D)
    return _root(P, weight > 0, scale, settings)


def _root(
    P: np.ndarray, counts: np.ndarray, scale: np.ndarray, settings: MetricSettings
) -> np.ndarray:
    P = P * counts[:, None] * counts
    size = np.trace(P, axis1=1, axis2=2)
    good = np.isfinite(size) & (size > 0)
    d = len(scale)
    if not good.any():
        return np.diag(counts / scale)
    good &= size <= settings.outlier * np.median(size[good])
    mean = (P[good] / size[good, None, None]).mean(axis=0) * d
    values, vectors = np.linalg.eigh((mean + mean.T) / 2)
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    return np.asarray(root / scale[None])
