"""Random stable linear systems under LQR, and winds by name, for studies on many of them."""

import numpy as np

import windward as ww
from windward.linear import disturbances
from windward.studies.linear.lds import Problem


def problem(d_x: int, d_u: int, seed: int) -> Problem:
    """A random stable system, spectral radius in [0.8, 0.98]; Q = R = I, base policy LQR."""
    rng = np.random.default_rng(seed + 1000 * d_x)
    A = rng.normal(size=(d_x, d_x))
    A *= rng.uniform(0.8, 0.98) / np.abs(np.linalg.eigvals(A)).max()
    B = rng.normal(size=(d_x, d_u)) / np.sqrt(d_x)
    Q, R = np.eye(d_x), np.eye(d_u)
    return Problem(ww.linear.System(A, B), ww.linear.lqr(A, B, Q, R).K, Q, R)


def wind(name: str, T: int, d_x: int, seed: int) -> np.ndarray:
    """A wind by name, with amplitudes and phases, one for each coordinate, by seed."""
    rng = np.random.default_rng(seed + 7)
    kind, *numbers = name.split()
    if kind in ("sine", "tones") and numbers:
        tones = [
            disturbances.sinusoid(
                T, d_x, amplitude=rng.uniform(0.5, 1.0, d_x), period=float(period),
                phase=rng.uniform(0, 2 * np.pi, d_x),
            )
            for period in numbers
        ]  # fmt: skip
        total: np.ndarray = np.sum(tones, axis=0) / np.sqrt(len(tones))
        return total
    if kind == "walk":
        return disturbances.random_walk(T, d_x, seed=seed)
    if kind == "constant":
        return np.ones((T, 1)) * rng.uniform(-1, 1, d_x)
    raise ValueError(
        f"a wind must be 'sine PERIOD', 'tones PERIOD PERIOD', 'walk' or 'constant'; got {name!r}"
    )
