"""The wind as it blows: estimated from each step, and predicted for the coming one."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from windward.adapt.twin import Twin
from windward.diagnosis.wind import Model, Wind


@dataclass(frozen=True)
class WindSettings:
    """How a wind is followed."""

    kept: int = 60
    """steps of the wind that predictions look at"""
    probe: float = 1e-2
    """of finite differences in the wind, as a share of its size"""
    least: int = 4
    """steps from which on a sinusoid's phase is fitted; before, the last value is taken"""
    outlier: float = 4.0
    """estimates beyond so many times the wind's size are cut: at contacts a force is badly known"""


class Memory(NamedTuple):
    """The last winds of rows, oldest first; NaN where there is none."""

    amount: np.ndarray  # (n, kept, axes)

    def after(self, amount: np.ndarray) -> "Memory":
        """With another step."""
        return Memory(np.concatenate([self.amount[:, 1:], amount[:, None]], axis=1))


def blank(n: int, axes: int, settings: WindSettings) -> Memory:
    """No past."""
    return Memory(np.full((n, settings.kept, axes), np.nan))


def estimate(
    twin: Twin,
    x: np.ndarray,
    u: np.ndarray,
    x_next: np.ndarray,
    guess: np.ndarray,
    weight: np.ndarray,
    settings: WindSettings,
) -> tuple[np.ndarray, np.ndarray]:
    """The wind in steps that were made, by least squares around a guess, and what it leaves.

    Returns:
        (n, axes), and (n, d_x) weighted deviations from the diagnosed world in that wind.
    """
    assert twin.wind is not None
    n, k = guess.shape
    sizes = np.array([max(axis.size, 1e-9) for axis in twin.wind.axes])
    pushed = np.repeat(guess[:, None], k + 1, axis=1)
    pushed[:, np.arange(k) + 1, np.arange(k)] += settings.probe * sizes
    rows = np.repeat(np.arange(n), k + 1)
    made = twin.advance(
        np.ones(len(rows), dtype=bool), x[rows], u[rows], pushed.reshape(-1, k)
    ).reshape(n, k + 1, -1)
    r = twin.gap(x_next, made[:, 0]) * weight
    effect = np.moveaxis(made[:, 1:] - made[:, :1], 1, 2) * weight[:, None] / settings.probe
    gram = np.einsum("nck,ncl->nkl", effect, effect)
    ridge = 1e-6 * np.trace(gram, axis1=1, axis2=2)[:, None, None] * np.eye(k) + 1e-30 * np.eye(k)
    with np.errstate(all="ignore"):
        found = np.linalg.solve(
            np.nan_to_num(gram + ridge) + 1e-30 * np.eye(k),
            np.nan_to_num(np.einsum("nck,nc->nk", effect, r))[..., None],
        )[..., 0]
    most = settings.outlier * sizes
    amount = np.clip(guess + found * sizes, -most, most)
    # What only a far stronger wind would explain is left over: the world may have changed.
    taken = (amount - guess) / sizes
    left = np.nan_to_num(r) - np.einsum("nck,nk->nc", np.nan_to_num(effect), taken)
    return amount, left


def predict(wind: Wind, memory: Memory, settings: WindSettings) -> np.ndarray:
    """(n, axes) of the coming step."""
    past = memory.amount
    return np.stack(
        [_next(axis.model, past[:, :, i], settings) for i, axis in enumerate(wind.axes)], axis=1
    )


def _next(model: Model, past: np.ndarray, settings: WindSettings) -> np.ndarray:
    """The next number of rows (n, kept) by a model."""
    seen = np.isfinite(past)
    last = np.where(seen[:, -1], past[:, -1], 0.0)
    if model.sines:
        return _sinusoid(model, past, seen, last, settings)
    if model.step or abs(model.mean) > model.noise:
        count = seen[:, -10:].sum(axis=1)
        mean = np.where(seen, past, 0.0)[:, -10:].sum(axis=1) / np.maximum(count, 1)
        return np.where(count > 0, mean, model.mean)
    if model.past:
        own = np.where(seen, past - model.mean, 0.0)
        recent = own[:, ::-1][:, : len(model.past)]
        return np.asarray(model.mean + recent @ np.array(model.past))
    return np.full(len(past), model.mean)


def _sinusoid(
    model: Model, past: np.ndarray, seen: np.ndarray, last: np.ndarray, settings: WindSettings
) -> np.ndarray:
    """Phases of known periods by least squares on what was seen, at the coming step."""
    kept = past.shape[1]
    t = np.arange(kept) - kept  # 0 is the coming step
    waves = [f(2 * np.pi * t / sine.period) for sine in model.sines for f in (np.cos, np.sin)]
    basis = np.stack(waves, axis=1)
    ahead = np.array([f for _ in model.sines for f in (1.0, 0.0)])
    y = np.where(seen, past - model.mean, 0.0)
    size = np.square(max(sine.amplitude for sine in model.sines))
    damping = (1e-4 + np.square(model.noise) / max(size, 1e-30)) * np.eye(basis.shape[1])
    gram = np.einsum("nt,ta,tb->nab", seen.astype(float), basis, basis) + damping
    found = np.linalg.solve(gram, np.einsum("nt,ta->na", y, basis)[..., None])[..., 0]
    guess = model.mean + found @ ahead
    return np.where(seen.sum(axis=1) >= settings.least, guess, last)
