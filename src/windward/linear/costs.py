"""Costs of a linear system: quadratic, or any JAX function of (x, u) or (x, u, t)."""

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from windward.linear.oracles import quadratic
from windward.types import Array

# cost(data, x, u, t): data holds Q and R, so that one compiled program serves all of them.
CostFunction = Callable[[dict[str, Any], Array, Array, Array], Array]


def quadratic_cost(data: dict[str, Any], x: Array, u: Array, t: Array) -> Array:
    """xᵀQx + uᵀRu."""
    return quadratic(data["Q"], x) + quadratic(data["R"], u)


@lru_cache(maxsize=256)
def with_time(cost: Callable[..., Any]) -> CostFunction:
    """A user's cost as a `CostFunction`; it may take the time step or leave it."""
    takes_time = len(inspect.signature(cost).parameters) >= 3

    def wrapped(data: dict[str, Any], x: Array, u: Array, t: Array) -> Array:
        return cost(x, u, t) if takes_time else cost(x, u)

    return wrapped
