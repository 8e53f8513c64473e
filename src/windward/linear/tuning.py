"""Tune hyperparameters on a grid, all points and seeds in one compiled program."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from windward import checks
from windward.core.algorithm import Algorithm
from windward.linear.simulate import simulate
from windward.linear.systems import System


class Tuned(NamedTuple):
    """The best point, the mean cost at every point (inf where a seed diverged), and the grid.

    ``on_edge`` names the parameters whose best value is the first or last of its list.
    """

    best: dict[str, float]
    cost: np.ndarray
    grid: dict[str, np.ndarray]
    on_edge: tuple[str, ...]


def tune(
    system: System,
    make: Callable[..., Algorithm],
    w: Any,
    *,
    grid: Mapping[str, Sequence[float] | np.ndarray],
    last: int | None = None,
    **settings: Any,
) -> Tuned:
    """The point of the grid with the smallest mean cost over seeds and the `last` steps.

    Args:
      make: builds the algorithm from the grid's keywords, such as
        ``lambda **k: ww.bandit_gpc(1, 2, **k)``.
      grid: values for each keyword; the grid is their product.
      last: how many final steps count; all if None.
      settings: passed to `simulate` (K, Q, R or cost, seed, ...). Report on other seeds.
    """
    if not grid:
        raise ValueError("grid must name at least one hyperparameter")
    values = {name: checks.finite_array(name, options, ndim=1) for name, options in grid.items()}
    for name, options in values.items():
        if not len(options):
            raise ValueError(f"grid[{name!r}] must hold at least one value; it is empty")
    if last is not None:
        checks.integer("last", last, 1)
    mesh = dict(zip(values, np.meshgrid(*values.values(), indexing="ij"), strict=True))
    run = simulate(system, make(**mesh), w, keep=("cost",), **settings)
    costs = run.cost if last is None else run.cost[..., -last:]
    with np.errstate(invalid="ignore", over="ignore"):
        mean = costs.astype(np.float64).mean(-1)
    # A run that diverged may have come back before the last steps: it still counts as diverged.
    mean = np.where(run.diverged_at < run.cost.shape[-1], np.inf, mean)
    if mean.ndim > len(values):
        mean = mean.mean(-1)
    at = np.unravel_index(int(np.argmin(mean)), mean.shape)
    if not np.isfinite(mean[at]):
        raise ValueError(f"every point of the grid diverged; try smaller values than {dict(grid)}")
    best = {name: float(options[i]) for (name, options), i in zip(values.items(), at, strict=True)}
    on_edge = tuple(
        name
        for (name, options), i in zip(values.items(), at, strict=True)
        if len(options) > 2 and i in (0, len(options) - 1)
    )
    if on_edge:
        warnings.warn(
            f"the best {' and '.join(on_edge)} lies on the grid's edge: widen the grid",
            stacklevel=2,
        )
    return Tuned(best, mean, values, on_edge)
