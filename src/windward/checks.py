"""Clear errors for bad arguments: each names the argument, its value and what was expected."""

from typing import Any

import numpy as np


def finite_array(name: str, value: Any, ndim: int | tuple[int, ...] | None = None) -> np.ndarray:
    """`value` as a float64 array; refuses non-numbers, NaN, infinities and a wrong rank."""
    try:
        if np.asarray(value).dtype.kind not in "biuf":
            raise TypeError
        array = np.array(value, dtype=np.float64)  # a copy: the caller may change theirs
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be an array of numbers; got {type(value).__name__}"
        ) from error
    if ndim is not None:
        ranks = (ndim,) if isinstance(ndim, int) else ndim
        if array.ndim not in ranks:
            wanted = " or ".join(str(rank) for rank in ranks)
            raise ValueError(
                f"{name} must have {wanted} dimension(s); got an array of shape {array.shape}"
            )
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        at = f"[{', '.join(map(str, where))}]" if where else ""
        raise ValueError(f"{name} must be finite; {name}{at} is {array[where]}")
    return array


def shape(name: str, array: np.ndarray, expected: tuple[int, ...], why: str = "") -> None:
    """Refuses an array whose shape is not `expected`."""
    if array.shape != expected:
        because = f" ({why})" if why else ""
        raise ValueError(f"{name} must have shape {expected}{because}; got {array.shape}")


def integer(name: str, value: Any, minimum: int) -> int:
    """`value` as an int that is at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}; got {value!r}")
    return int(value)


def positive(name: str, value: Any, *, zero: bool = False) -> np.ndarray:
    """`value` (a number or a grid of numbers) as an array that is > 0, or >= 0 with `zero`."""
    array = finite_array(name, value)
    if not array.size:
        raise ValueError(f"{name} must hold at least one number; got {value!r}")
    if (array < 0).any() or (not zero and (array == 0).any()):
        bound = "at least 0" if zero else "greater than 0"
        raise ValueError(f"{name} must be {bound}; got {value!r}")
    return array


def discount(name: str, value: Any) -> float:
    """`value` as a discount factor in (0, 1]."""
    array = finite_array(name, value, ndim=0)
    if not 0.0 < array <= 1.0:
        raise ValueError(f"{name} must lie in (0, 1]; got {value!r}")
    return float(array)


def choice(name: str, value: Any, options: Any) -> None:
    """Refuses a value that is not among `options`, and lists them."""
    if value not in options:
        listed = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name} must be one of {listed}; got {value!r}")


def psd(name: str, matrix: np.ndarray, *, definite: bool = False) -> np.ndarray:
    """A symmetric matrix that is positive semidefinite, or definite."""
    if not np.allclose(matrix, matrix.T, rtol=1e-8, atol=1e-10):
        raise ValueError(f"{name} must be symmetric; it differs from its transpose")
    smallest = float(np.linalg.eigvalsh(matrix).min())
    scale = max(1.0, float(np.abs(matrix).max()))
    if definite and smallest <= 0:
        raise ValueError(f"{name} must be positive definite; its smallest eigenvalue is {smallest}")
    if smallest < -1e-9 * scale:
        raise ValueError(
            f"{name} must be positive semidefinite; its smallest eigenvalue is {smallest}"
        )
    return (matrix + matrix.T) / 2
