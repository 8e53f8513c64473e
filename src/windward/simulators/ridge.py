"""Ridge regression that outliers do not bend, and how much it explains on blocks held out."""

from typing import NamedTuple

import numpy as np

HUBER = 1.5
"""residuals beyond so many times their usual size count linearly, not squared: contacts"""
ROUNDS = 8
"""of reweighting"""
MAD = 1.4826
"""standard deviation of a normal variable over its median absolute value"""
BLOCK = 25
"""consecutive steps that are held out together: neighbours are alike"""


class Explained(NamedTuple):
    """How much a ridge regression explains of steps that it was not fitted on."""

    share: np.ndarray  # (c,) of Huber's loss in each coordinate
    sure: np.ndarray  # (c,) over its standard error, by blocks
    joint: float
    """the share of all coordinates together"""
    joint_sure: float


def usual_size(y: np.ndarray) -> np.ndarray:
    """(c,) robust standard deviation of each column; 1 for those that are 0."""
    size = MAD * np.median(np.abs(y), axis=0)
    size = np.where(size > 0, size, y.std(axis=0))
    return np.where(size > 0, size, 1.0)


def huber_loss(r: np.ndarray) -> np.ndarray:
    """Of residuals in usual sizes."""
    a = np.abs(r)
    return np.where(a < HUBER, a * a / 2, HUBER * a - HUBER**2 / 2)


def robust_ridge(z: np.ndarray, y: np.ndarray, ridge: float) -> np.ndarray:
    """(k, c) weights W that make z W near to y.

    Args:
        z: (n, k) features.
        y: (n, c) targets.
        ridge: weight of the prior, in steps that say 0, for features at unit size.
    """
    size = np.sqrt(np.square(z).mean(axis=0))
    size = np.where(size > 0, size, 1.0)
    scaled, units = z / size, usual_size(y)
    targets, prior = y / units, ridge * np.eye(z.shape[1])
    weights = np.zeros((z.shape[1], y.shape[1]))
    for c in range(y.shape[1]):
        own, rest = np.zeros(z.shape[1]), targets[:, c]
        for _ in range(ROUNDS):
            reach = HUBER * float(usual_size(rest[:, None])[0])
            weight = reach / np.maximum(reach, np.abs(rest))
            heavy = scaled * weight[:, None]
            own = np.linalg.solve(heavy.T @ scaled + prior, heavy.T @ targets[:, c])
            rest = targets[:, c] - scaled @ own
        weights[:, c] = own
    return weights * units / size[:, None]


def explained(z: np.ndarray, y: np.ndarray, ridge: float) -> Explained:
    """Fits on every other block of consecutive steps, judges on the rest, and the other way."""
    block = np.arange(len(z)) // BLOCK
    even = block % 2 == 0
    left = np.array(y)
    if even.any() and not even.all():
        for held in (even, ~even):
            left[held] -= z[held] @ robust_ridge(z[~held], y[~held], ridge)
    size = usual_size(y)
    before = huber_loss(y / size)
    gain = before - huber_loss(left / size)
    count = int(block.max(initial=0)) + 1
    parts = np.array([gain[block == i].mean(axis=0) for i in range(count)])
    root = np.sqrt(count)
    error = parts.std(axis=0) / root + 1e-12
    total = parts.mean(axis=1)
    scale = np.maximum(before.mean(axis=0), 1e-12)
    return Explained(
        gain.mean(axis=0) / scale, parts.mean(axis=0) / error,
        float(gain.mean() / max(float(before.mean()), 1e-12)),
        float(total.mean() / (total.std() / root + 1e-12)),
    )  # fmt: skip
