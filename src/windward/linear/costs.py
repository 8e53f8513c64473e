"""Costs of a linear system: quadratic, or any JAX function of (x, u) or (x, u, t)."""

import inspect
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp

from windward.linear.oracles import quadratic
from windward.linear.systems import System, check_costs
from windward.types import Array

# cost(data, x, u, t): data holds Q and R, so that one compiled program serves all of them.
CostFunction = Callable[[dict[str, Any], Array, Array, Array], Array]


def quadratic_cost(data: dict[str, Any], x: Array, u: Array, t: Array) -> Array:
    """xᵀQx + uᵀRu."""
    return quadratic(data["Q"], x) + quadratic(data["R"], u)


def _takes_time(cost: Callable[..., Any]) -> bool:
    """Whether a third argument must be given, or is named t; other options keep their defaults."""
    positional = [
        parameter
        for parameter in inspect.signature(cost).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return len(positional) >= 3 and (
        positional[2].default is inspect.Parameter.empty or positional[2].name == "t"
    )


@lru_cache(maxsize=256)
def with_time(cost: Callable[..., Any]) -> CostFunction:
    """A user's cost as a `CostFunction`; it may take the time step or leave it."""
    takes_time = _takes_time(cost)

    def wrapped(data: dict[str, Any], x: Array, u: Array, t: Array) -> Array:
        return jnp.asarray(cost(x, u, t) if takes_time else cost(x, u), x.dtype)

    return wrapped


@lru_cache(maxsize=256)
def _shape(function: CostFunction, d_x: int, d_u: int) -> tuple[int, ...]:
    """What a cost returns, found once by tracing it."""
    x, u, t = jnp.zeros(d_x), jnp.zeros(d_u), jnp.zeros((), jnp.int32)
    return jax.eval_shape(partial(function, {}), x, u, t).shape


def choose(
    system: System, Q: Any, R: Any, cost: Callable[..., Any] | None
) -> tuple[CostFunction, dict[str, Any]]:
    """The cost that a user asked for, either by Q and R or by ``cost``, and the data it reads."""
    if cost is None:
        if Q is None or R is None:
            raise ValueError("pass Q and R for quadratic costs, or cost= for others")
        Q, R = check_costs(Q, R, system.d_x, system.d_u)
        return quadratic_cost, {"Q": Q, "R": R}
    if Q is not None or R is not None:
        raise ValueError("pass either Q and R, or cost=, not both")
    try:
        function = with_time(cost)
        shape = _shape(function, system.d_x, system.d_u)
    except TypeError as error:
        raise ValueError(
            f"cost must be a hashable JAX function of (x, u) or (x, u, t); calling it gave: {error}"
        ) from error
    if shape != ():
        raise ValueError(f"cost must return one number; it returns an array of shape {shape}")
    return function, {}
