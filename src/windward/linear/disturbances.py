"""Disturbance sequences w of shape (T, d_x) for linear systems, and one that answers back."""

from typing import Any, NamedTuple

import numpy as np

from windward import checks


def _sizes(T: Any, d_x: Any) -> tuple[int, int]:
    return checks.integer("T", T, 1), checks.integer("d_x", d_x, 1)


def _spread(name: str, value: Any, d_x: int) -> np.ndarray:
    """One number for each coordinate."""
    array = checks.finite_array(name, value, ndim=(0, 1))
    if array.ndim == 1:
        checks.shape(name, array, (d_x,), "one for each coordinate, or one for all")
    return np.broadcast_to(array, (d_x,))


def zero(T: int, d_x: int) -> np.ndarray:
    """No disturbance."""
    return np.zeros(_sizes(T, d_x))


def sinusoid(
    T: int, d_x: int, amplitude: Any = 1.0, period: Any = 4 * np.pi**2, phase: Any = 0.0
) -> np.ndarray:
    """w_t = amplitude · sin(2πt/period + phase), each a number or one for each coordinate.

    The default period gives sin(t/2π) on all coordinates, the usual test of BPC and GPC.
    """
    T, d_x = _sizes(T, d_x)
    amplitude, phase = _spread("amplitude", amplitude, d_x), _spread("phase", phase, d_x)
    period = checks.positive("period", _spread("period", period, d_x))
    t = np.arange(T)[:, None]
    return amplitude * np.sin(2 * np.pi * t / period + phase)


def gaussian(T: int, d_x: int, scale: Any = 1.0, seed: int = 0) -> np.ndarray:
    """Independent N(0, scale²)."""
    T, d_x = _sizes(T, d_x)
    return np.random.default_rng(seed).normal(size=(T, d_x)) * _spread("scale", scale, d_x)


def uniform(T: int, d_x: int, bound: Any = 1.0, seed: int = 0) -> np.ndarray:
    """Independent U[-bound, bound]."""
    T, d_x = _sizes(T, d_x)
    return np.random.default_rng(seed).uniform(-1, 1, (T, d_x)) * _spread("bound", bound, d_x)


def random_walk(T: int, d_x: int, scale: Any = 0.1, bound: Any = 1.0, seed: int = 0) -> np.ndarray:
    """Gaussian steps of size `scale`, reflected into [-bound, bound] so that w stays bounded."""
    T, d_x = _sizes(T, d_x)
    bound = checks.positive("bound", _spread("bound", bound, d_x))
    walk = np.cumsum(gaussian(T, d_x, scale, seed), axis=0)
    folded = np.mod(walk + bound, 4 * bound)
    return np.minimum(folded, 4 * bound - folded) - bound


def step(T: int, d_x: int, size: Any = 1.0, at: int = 0) -> np.ndarray:
    """0 before step `at`, `size` from then on."""
    T, d_x = _sizes(T, d_x)
    return (np.arange(T)[:, None] >= checks.integer("at", at, 0)) * _spread("size", size, d_x)


class Adversary(NamedTuple):
    """A disturbance chosen at each step against the controller; hand it to `simulate` as w."""

    T: int
    bound: float


def adversarial(T: int, bound: float = 1.0) -> Adversary:
    """w_t = bound · ∇V/‖∇V‖ at Ax_t + Bu_t, V the base policy's value (quadratic costs).

    It sees the control that the current M and its noise chose, and pushes the next state where
    it costs most; at a zero gradient it pushes along the costliest axis. `Run.w` holds what it
    did, for `best_dac` on the same sequence.
    """
    return Adversary(checks.integer("T", T, 1), float(checks.positive("bound", bound)))
