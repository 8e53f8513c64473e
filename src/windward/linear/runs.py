"""What a simulation returns, and how a diverging one ends."""

from typing import Any, NamedTuple

import jax
import numpy as np

from windward.core.algorithm import Algorithm
from windward.types import PyTree

FIELDS = ("x", "u", "cost", "w_hat", "w", "gradient_norm")
KEEP = ("x", "u", "cost", "w_hat", "w")  # what is returned unless asked otherwise


class Run(NamedTuple):
    """What happened; leading axes are those of the grid, then of the seeds, where there are any.

    Fields left out by ``keep`` are None. ``M_history[k]`` is M at step ``k * M_every``;
    ``diverged_at`` is the first step with a non-finite state or cost, T if there is none.
    """

    x: Any  # (..., T, d_x)
    u: Any  # (..., T, d_u)
    cost: Any  # (..., T)
    w_hat: Any  # (..., T, d_w)
    w: Any  # (..., T, d_x): the disturbance as it was
    gradient_norm: Any  # (..., T): length of the gradient estimate
    M: PyTree  # (..., h, d_u, d_w): at the end
    M_history: PyTree
    diverged_at: Any  # (...)


class Diverged(RuntimeError):
    """A run left the finite numbers; ``run`` holds its finite part, cut for all seeds alike."""

    def __init__(self, message: str, run: Run) -> None:
        super().__init__(message, run)  # both, so that it survives pickling
        self.run = run

    def __str__(self) -> str:
        return str(self.args[0])


def _first_bad_step(out: dict[str, Any], T: int) -> np.ndarray:
    finite = np.isfinite(out["cost"])
    if "x" in out:
        finite &= np.isfinite(out["x"]).all(-1)
    return np.where(finite.all(-1), T, np.argmin(finite, axis=-1))


def _cut(run: Run, steps: int) -> Run:
    """The first steps of a run."""
    axis = {"cost": -1, "gradient_norm": -1}
    parts = {name: getattr(run, name) for name in FIELDS if getattr(run, name) is not None}
    return run._replace(
        **{
            name: np.take(part, range(steps), axis=axis.get(name, -2))
            for name, part in parts.items()
        }
    )


def finish(
    out: dict[str, Any], grid_shape: tuple[int, ...], single: bool, T: int, algorithm: Algorithm
) -> Run:
    """A program's output as NumPy arrays with the right leading axes, checked for divergence."""
    out = jax.tree.map(np.asarray, out)
    diverged_at = _first_bad_step(out, T)

    def shaped(leaf: np.ndarray) -> np.ndarray:
        lead = 1 + bool(grid_shape)  # the grid, flattened, and the seeds
        seeds = () if single else (leaf.shape[lead - 1],)
        return leaf.reshape((*grid_shape, *seeds, *leaf.shape[lead:]))

    fields: dict[str, Any] = dict.fromkeys(FIELDS) | jax.tree.map(shaped, out)
    run = Run(**fields, diverged_at=shaped(diverged_at))
    first = int(diverged_at.min())
    if first == T or grid_shape:
        return run
    numbers = ", ".join(f"{name}={float(algorithm.hyper[name]):.3g}" for name in algorithm.grid)
    which = "" if single else f" (seed number {int(np.argmin(diverged_at))} first)"
    raise Diverged(
        f"{algorithm.name} diverged at step {first} of {T}{which}: the state or the cost is no "
        f"longer finite. It ran with {numbers}; a smaller eta, or a projection, helps. The first "
        f"{first} steps are in the exception's .run",
        _cut(run, first),
    )
