"""Tune hyperparameters on a grid, all points and seeds in one compiled program.

Many seeds are dear on a whole grid, and few do not see that a point goes astray now and then. So
the grid may be screened by the first few runs, and the best of its points be judged by the rest.
"""

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

    ``on_edge`` names the parameters whose best value is the first or last of its list. With
    `screen` the cost is that of screening; `best` was judged by other runs.
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
    screen: int | None = None,
    finalists: int = 6,
    seed: int | Sequence[int] = 0,
    **settings: Any,
) -> Tuned:
    """The point of the grid with the smallest mean cost over seeds and the `last` steps.

    Args:
      make: builds the algorithm from the grid's keywords, such as
        ``lambda **k: ww.bandit_gpc(1, 2, **k)``.
      grid: values for each keyword; the grid is their product.
      last: how many final steps count; all if None.
      screen: how many of the seeds (from the first on) the whole grid is tried on; the `finalists`
        best points are then judged by the other seeds alone. All see all seeds if None.
      finalists: how many points are judged so.
      seed, settings: passed to `simulate` (K, Q, R or cost, ...). Report on other seeds.
    """
    if not grid:
        raise ValueError("grid must name at least one hyperparameter")
    values = {name: checks.finite_array(name, options, ndim=1) for name, options in grid.items()}
    for name, options in values.items():
        if not len(options):
            raise ValueError(f"grid[{name!r}] must hold at least one value; it is empty")
    if last is not None:
        checks.integer("last", last, 1)
    checks.integer("finalists", finalists, 1)
    mesh = dict(zip(values, np.meshgrid(*values.values(), indexing="ij"), strict=True))
    shape = tuple(len(options) for options in values.values())

    def mean_cost(points: Mapping[str, np.ndarray], w: Any, seed: Any) -> np.ndarray:
        """Of each point; inf where one of its runs diverged, though it may have come back."""
        run = simulate(system, make(**points), w, keep=("cost",), seed=seed, **settings)
        costs = run.cost if last is None else run.cost[..., -last:]
        with np.errstate(invalid="ignore", over="ignore"):
            mean = costs.astype(np.float64).mean(-1)
        mean = np.where(run.diverged_at < run.cost.shape[-1], np.inf, mean)
        return mean if np.ndim(seed) == 0 else mean.mean(-1)

    (w_first, first), (w_rest, rest) = _split(w, seed, screen)
    cost = mean_cost(mesh, w_first, first)
    order = np.argsort(cost, axis=None, kind="stable")
    order = order[np.isfinite(cost.ravel()[order])]  # what diverged once is no finalist
    if not len(order):
        raise ValueError(f"every point of the grid diverged; try smaller values than {dict(grid)}")
    if screen is not None:
        order = order[:finalists]
        judged = mean_cost({name: each.ravel()[order] for name, each in mesh.items()}, w_rest, rest)
        if not np.isfinite(judged).any():
            raise ValueError(
                f"all {len(order)} finalists diverged; try smaller values than {dict(grid)}"
            )
        order = order[np.argsort(judged, kind="stable")]
    at = np.unravel_index(int(order[0]), shape)
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
    return Tuned(best, cost, values, on_edge)


def _split(w: Any, seed: Any, screen: int | None) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Winds and seeds of screening, and those of the finalists; a single wind serves for both."""
    if screen is None:
        return (w, seed), (None, None)
    checks.integer("screen", screen, 1)
    count = np.size(seed)
    if screen >= count:
        raise ValueError(f"screen must leave seeds for the finalists; got {screen} of {count}")
    each = np.ndim(w) == 3
    if each and len(w) != count:  # or the cut would hide it
        raise ValueError(f"w must have one sequence for each of {count} seeds; got {len(w)}")
    first, rest = slice(screen), slice(screen, None)
    return (w[first] if each else w, seed[first]), (w[rest] if each else w, seed[rest])
