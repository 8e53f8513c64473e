"""Kalman filter and smoother of deviations from a trajectory, with derivatives in parameters."""

from typing import Any, NamedTuple

import numpy as np


class Linear(NamedTuple):
    """e_{t+1} = A e_t + G δθ - d + w,   o = e + M δθ + n:   deviations from a trajectory."""

    A: np.ndarray  # (b, t, c, c)
    G: np.ndarray  # (b, t, c, p)
    d: np.ndarray  # (b, t, c) the trajectory's own defect x_{t+1} - f(x_t)
    o: np.ndarray  # (b, t + 1, c) measured, from the trajectory
    kept: np.ndarray  # (b, t)
    M: np.ndarray | None = None  # (c, p) what a bias of sensors adds

    def after(self, step: np.ndarray) -> "Linear":
        """With δθ put in."""
        moved = np.zeros(self.d.shape[-1]) if self.M is None else self.M @ step
        none = np.zeros((*self.d.shape, 0))
        return self._replace(d=self.d - self.G @ step, o=self.o - moved, G=none, M=None)


class Filtered(NamedTuple):
    """Innovations as white noise, and smoothed deviations."""

    z: np.ndarray  # (b, t, c)
    slopes: np.ndarray  # (b, t, c, p) of z in δθ
    likelihood: float
    states: np.ndarray  # (b, t + 1, c)
    variances: np.ndarray  # (b, t + 1, c)
    defects: np.ndarray  # (b, t, c) expected w²


def kalman(line: Linear, R: np.ndarray, Q: np.ndarray, smooth: bool = True) -> Filtered:
    """Filter and smoother over all pieces at once; R (c,) and Q (b, t, c) are variances."""
    pieces, steps, c = line.d.shape
    M = np.zeros((c, line.G.shape[-1])) if line.M is None else line.M
    unit = np.eye(c)
    e, P = line.o[:, 0], np.broadcast_to(np.diag(R), (pieces, c, c))
    D = np.broadcast_to(-M, (pieces, *M.shape))
    z, slopes = np.zeros(line.d.shape), np.zeros(line.G.shape)
    likelihood = np.zeros((pieces, steps))
    filtered, expected = [(e, P)], []
    for t in range(steps):
        A = line.A[:, t]
        e = np.einsum("bij,bj->bi", A, e) - line.d[:, t]
        D = A @ D + line.G[:, t]
        P = A @ P @ A.transpose(0, 2, 1) + unit * Q[:, t, None, :]
        P = (P + P.transpose(0, 2, 1)) / 2
        expected.append((e, P))
        S = P + np.diag(R)
        root = np.linalg.cholesky(S)
        new = line.o[:, t + 1] - e
        white = np.linalg.solve(root, np.concatenate([new[..., None], -D - M], axis=2))
        z[:, t], slopes[:, t] = white[..., 0], white[..., 1:]
        spread = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        likelihood[:, t] = -0.5 * np.square(z[:, t]).sum(axis=1) - spread
        K = np.linalg.solve(S, P).transpose(0, 2, 1)
        e, D = e + np.einsum("bij,bj->bi", K, new), D - K @ (D + M)
        rest = unit - K
        P = rest @ P @ rest.transpose(0, 2, 1) + K * R @ K.transpose(0, 2, 1)
        filtered.append((e, P))
    z, slopes = z * line.kept[..., None], slopes * line.kept[..., None, None]
    total = float((likelihood * line.kept).sum())
    if not smooth:
        return Filtered(z, slopes, total, *(np.zeros(0),) * 3)
    return Filtered(z, slopes, total, *_smooth(line, filtered, expected))


def _smooth(
    line: Linear, filtered: list[Any], expected: list[Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(states, variances, expected w²) given all measurements (Rauch, Tung, Striebel)."""
    states, variances = np.zeros(line.o.shape), np.zeros(line.o.shape)
    defects = np.zeros(line.d.shape)
    e, P = filtered[-1]
    states[:, -1], variances[:, -1] = e, np.diagonal(P, axis1=1, axis2=2)
    for t in range(line.d.shape[1] - 1, -1, -1):
        A, kept = line.A[:, t], line.kept[:, t, None]
        (own, own_P), (ahead, ahead_P) = filtered[t], expected[t]
        C = np.linalg.solve(ahead_P, A @ own_P).transpose(0, 2, 1)
        before = own + np.einsum("bij,bj->bi", C, e - ahead)
        before_P = own_P + C @ (P - ahead_P) @ C.transpose(0, 2, 1)
        w = e - np.einsum("bij,bj->bi", A, before) + line.d[:, t]
        cross = A @ C @ P
        spread = P + A @ before_P @ A.transpose(0, 2, 1) - cross - cross.transpose(0, 2, 1)
        defects[:, t] = np.square(w) + np.maximum(np.diagonal(spread, axis1=1, axis2=2), 0.0)
        e = np.where(kept, before, own)
        P = np.where(kept[..., None], before_P, own_P)
        states[:, t], variances[:, t] = e, np.diagonal(P, axis1=1, axis2=2)
    return states, variances, defects
