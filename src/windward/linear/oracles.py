"""The aux values that signals ask for, in closed form on a linear system."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from windward.core import signals
from windward.linear.systems import System
from windward.linear.values import quadratic_values, vector_values
from windward.types import Array

Data = dict[str, Any]


class Step(NamedTuple):
    """One step of the system, as an oracle sees it; ``x_mean`` is Ax + Bu."""

    x: Array
    u: Array
    x_mean: Array
    x_next: Array
    w: Array


SMALL = 256  # entries of a matrix below which a fused sum of products beats a library call


def apply(A: Array, x: Array) -> Array:
    """Ax. A small product is written out: XLA then fuses it into the step around it."""
    return jnp.sum(A * x, axis=-1) if A.size <= SMALL else A @ x


def quadratic(P: Array, x: Array) -> Array:
    """xᵀPx."""
    return jnp.sum(apply(P, x) * x)


def _q(data: Data, step: Step) -> Array:
    cost = quadratic(data["Q"], step.x) + quadratic(data["R"], step.u)
    return cost + data["gamma"] * quadratic(data["P"], step.x_mean)


ORACLES: dict[str, Callable[[Data, Step], Array]] = {
    signals.W: lambda data, step: step.w,
    signals.X_PRED: lambda data, step: apply(data["A_sim"], step.x) + apply(data["B_sim"], step.u),
    signals.X_NOW: lambda data, step: step.x,
    signals.X_NEXT: lambda data, step: step.x_next,
    signals.V_NOW: lambda data, step: quadratic(data["P"], step.x),
    signals.V_NEXT: lambda data, step: quadratic(data["P"], step.x_next),
    signals.Q_NOW: _q,
    signals.GRAD_Q_MINUS_C: lambda data, step: (
        2 * data["gamma"] * apply(data["B"].T, apply(data["P"], step.x_mean))
    ),
    signals.C_VEC: lambda data, step: apply(data["L"], step.x),
    signals.V_VEC_NEXT: lambda data, step: apply(data["G"], step.x_next),
    signals.Q_VEC: lambda data, step: (
        apply(data["L"], step.x) + data["gamma"] * apply(data["G"], step.x_mean)
    ),
}

_SCALAR = {signals.V_NOW, signals.V_NEXT, signals.Q_NOW, signals.GRAD_Q_MINUS_C}
_VECTOR = {signals.C_VEC, signals.V_VEC_NEXT, signals.Q_VEC}


def prepare(
    needs: tuple[str, ...],
    signal: str,
    system: System,
    K: np.ndarray,
    Q: np.ndarray | None,
    R: np.ndarray | None,
    gamma: float,
    L: Any,
    simulator: System,
    T: int,
) -> tuple[Data, Data]:
    """Checks that the needs can be met; gives constant data and data with a time axis."""
    constant: Data = {"gamma": np.asarray(gamma)}
    timed: Data = {}
    unknown = set(needs) - set(ORACLES)
    if unknown:
        raise ValueError(
            f"signal {signal!r} needs {sorted(unknown)}, which a linear system cannot give; it "
            f"can give {sorted(ORACLES)}"
        )
    if set(needs) & (_SCALAR | _VECTOR) and system.varies:
        raise ValueError(
            f"signal {signal!r} needs value functions, which a time-varying system has not; "
            "'pd3' and 'w' work"
        )
    if set(needs) & _SCALAR:
        if Q is None or R is None:
            raise ValueError(
                f"signal {signal!r} needs quadratic values and so Q and R, not cost=; 'pd2', "
                "'pd3' and 'w' work"
            )
        constant["P"] = quadratic_values(system, K, Q, R, gamma).P
    if set(needs) & _VECTOR:
        values = vector_values(system, K, gamma, L)
        constant |= {"L": values.L, "G": values.G}
    if signals.X_PRED in needs:
        if (simulator.d_x, simulator.d_u) != (system.d_x, system.d_u):
            raise ValueError(
                f"simulator must have d_x = {system.d_x} and d_u = {system.d_u}; got "
                f"{simulator.d_x} and {simulator.d_u}"
            )
        if simulator.varies and simulator.steps != T:
            raise ValueError(
                f"simulator must have as many steps as w, {T}; it has {simulator.steps}"
            )
        target = timed if simulator.varies else constant
        target |= {"A_sim": simulator.A, "B_sim": simulator.B}
    return constant, timed


def width(signal: str, data: Data, d_x: int, d_u: int) -> int | None:
    """How many numbers a built-in signal gives on this system; None for a user's own."""
    if signal in ("w", "pd3"):
        return d_x
    if signal == "pd2":
        return len(data["L"])
    return d_u if signal in ("pd1", "pd1-value") else None


def aux(needs: tuple[str, ...], data: Data, step: Step) -> dict[str, Array]:
    """The values asked for, each with the leading axis B = 1 of a `Transition`."""
    return {name: jnp.asarray(ORACLES[name](data, step))[None] for name in needs}
