"""What PD2 is a value of: φ, from an observation to R^{d_w} (paper section 3.2, Lemma PD2's L).

φ(x) = x is the paper's choice. A linear map, a random projection, the critic's hidden layer or any
function makes d_w free, and images fit.
"""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks


def _probe(space: gym.Space) -> np.ndarray:
    """Three observations that are the same everywhere, to tell one φ from another."""
    rng = np.random.default_rng(7)
    shape = (3, *(space.shape or ()))
    if space.dtype == np.uint8:
        return rng.integers(0, 256, shape, dtype=np.uint8)
    return rng.standard_normal(shape).astype(space.dtype)


def fingerprint(phi: "Features", space: gym.Space) -> list[list[float]]:
    """φ at a few fixed observations, for a file that cannot hold φ itself."""
    rows: list[list[float]] = phi(_probe(space)).tolist()
    return rows


def from_file(
    name: str | None, found: Any, space: gym.Space, given: Any, path: Any
) -> "Features | None":
    """The features that a file is of, by their name or as given again; refuses others."""
    if name is None and given is None:
        return None
    if given is None and name is not None and not name.startswith(("identity", "random:")):
        raise ValueError(
            f"{str(path)!r} is of features that a file cannot hold ({name}): pass features= again"
        )
    phi = as_features(name if given is None else given, space)
    there = None if found is None else np.asarray(found)
    here = np.asarray(fingerprint(phi, space))
    if there is None or there.shape != here.shape or not np.allclose(there, here, atol=1e-5):
        raise ValueError(f"{str(path)!r} is of other features ({name}) than {phi.name}")
    return phi


class Features:
    """φ on rows of observations, and its number of coordinates d_w."""

    def __init__(self, of: Callable[[np.ndarray], np.ndarray], d_w: int, name: str) -> None:
        self._of, self.d_w, self.name = of, d_w, name

    def __call__(self, observations: Any) -> np.ndarray:
        """φ of each observation, rows."""
        rows = np.asarray(self._of(np.asarray(observations)), dtype=np.float32)
        if rows.shape != (len(observations), self.d_w):
            raise ValueError(
                f"features must give {self.d_w} numbers for each observation, shape "
                f"{(len(observations), self.d_w)}; got {rows.shape}"
            )
        return rows


def flattened(observations: np.ndarray) -> np.ndarray:
    """Rows of numbers, one for each observation."""
    return observations.reshape(len(observations), -1).astype(np.float32)


def identity(space: gym.spaces.Box) -> Features:
    """φ(x) = x, the paper's."""
    return Features(flattened, int(np.prod(space.shape)), "identity")


def linear(L: Any) -> Features:
    """φ(x) = Lx, for observations flattened."""
    matrix = checks.finite_array("L", L, ndim=2).astype(np.float32)

    def of(observations: np.ndarray) -> np.ndarray:
        rows = flattened(observations)
        if rows.shape[1] != matrix.shape[1]:
            raise ValueError(
                f"L must have a column for each of {rows.shape[1]} coordinates of the observation; "
                f"its shape is {matrix.shape}"
            )
        return rows @ matrix.T

    return Features(of, len(matrix), "linear")


def random_projection(space: gym.Space, d_w: int, seed: int = 0) -> Features:
    """φ(x) = Lx with L of independent normal entries of variance 1/d_x.

    Observations of bytes are divided by 255 first.
    """
    checks.integer("d_w", d_w, 1)
    d_x = int(np.prod(space.shape or ()))
    rng = np.random.default_rng(seed)
    scale = 255.0 if space.dtype == np.uint8 else 1.0
    L = rng.standard_normal((d_w, d_x)) / np.sqrt(d_x) / scale
    return Features(linear(L), d_w, f"random:{d_w}:{seed}")


def hidden(critic: Any, units: int | None = None) -> Features:
    """φ(x) = the first units of the critic's last hidden layer at (x, π(x))."""
    size = critic.hidden_units
    taken = size if units is None else checks.integer("units", units, 1)
    if taken > size:
        raise ValueError(f"the critic's hidden layer has {size} units; asked for {units}")
    return Features(lambda observations: critic.hidden(observations)[:, :taken], taken, "hidden")


def as_features(given: Any, space: gym.Space) -> Features:
    """Features from "identity", "random:d_w", "random:d_w:seed", a matrix L or a function.

    A function takes one observation and gives a vector; for a quick one on rows make `Features`.
    """
    if isinstance(given, Features):
        return _tried(given, space)
    if isinstance(given, str):
        return _named(given, space)
    if not callable(given):
        return _tried(linear(given), space)

    def of(observations: np.ndarray) -> np.ndarray:
        return np.stack([np.asarray(given(each)).reshape(-1) for each in observations])

    name = getattr(given, "__name__", type(given).__name__)
    try:
        d_w = np.asarray(of(_probe(space)), dtype=np.float32).shape[1]
    except Exception as error:  # the user's function may fail in any way
        raise ValueError(
            f"features must be a function from one observation, here of shape {space.shape}, to a "
            f"vector; {name!r} fails: {error!r}"
        ) from error
    return _tried(Features(of, d_w, f"function {name}"), space)


def _tried(phi: Features, space: gym.Space) -> Features:
    """Features that work on this space, or an error now and not in the middle of learning."""
    if phi.d_w < 1:
        raise ValueError(f"features must give at least one number; {phi.name} give none")
    phi(_probe(space))
    return phi


def _named(name: str, space: gym.Space) -> Features:
    if not isinstance(space, gym.spaces.Box):
        raise ValueError(f"features {name!r} need observations in a Box; the space is {space}")
    if name == "identity":
        if len(space.shape) > 1:
            raise ValueError(
                f"observations of shape {space.shape} are too many numbers for PD2: give "
                "features='random:8', a matrix or a function of the observation"
            )
        return identity(space)
    kind, _, number = name.partition(":")
    parts = number.split(":")
    if kind == "random" and len(parts) <= 2 and all(part.isdigit() for part in parts):
        return random_projection(space, *map(int, parts))
    raise ValueError(
        f"features must be 'identity', 'random:d_w', 'random:d_w:seed', a matrix or a function; "
        f"got {name!r}"
    )
