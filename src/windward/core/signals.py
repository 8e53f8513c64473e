"""Pseudo-disturbances: what a step tells of the disturbance (paper section 3, `sec:signals`).

The formulas are plain functions of values, one step each; a `Signal` binds one of them to the
names of the values it needs. Nothing here calls a critic or a simulator: the values come in
`Transition.aux`, made where the environment lives. V of the next state counts as 0 on
termination (deviation 9), and V, Q belong to the noise-free base policy.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from windward import checks
from windward.types import Array, Transition

# aux names, so that a missing one can be named in an error before any work starts.
W = "w"  # the true disturbance w_t
X_PRED = "x_pred"  # f_sim(x_t, u_t)
V_NEXT = "v_next"  # V(x_{t+1})
Q_NOW = "q"  # Q(x_t, u_t)
GRAD_Q_MINUS_C = "grad_q_minus_c"  # gradient in u of Q(x_t, u) - c(x_t, u), at u_t
C_VEC = "c_vec"  # vector cost c(x_t)
V_VEC_NEXT = "v_vec_next"  # vector value of x_{t+1}
Q_VEC = "q_vec"  # vector Q(x_t, u_t)
V_NOW = "v"  # V(x_t)
X_NOW = "x"  # x_t, for estimators that look at states
X_NEXT = "x_next"  # x_{t+1}, of the step and not of a reset after it
LOGITS = "logits"  # the base policy's logits


def pd1_exact(grad_v_next: Array, grad_q_minus_c: Array, gamma: float) -> Array:
    """ŵ_t = ∇_u(γ V(f(x_t, u) + w_t) - (Q(x_t, u) - c(x_t, u))), the form above `eqn:pd1`.

    It needs the gradient of V through the dynamics, so it is the oracle for the two estimators.
    """
    return gamma * grad_v_next - grad_q_minus_c


def pd1_value(v_next: Array, score: Array, grad_q_minus_c: Array, gamma: float) -> Array:
    """ŵ_t = γ V(x_{t+1}) Σ⁻¹n_t - ∇_u(Q - c), `eqn:pd1`; ``score`` is Σ⁻¹n_t."""
    return gamma * v_next * score - grad_q_minus_c


def pd1(c: Array, v_next: Array, q: Array, score: Array, gamma: float) -> Array:
    """ŵ_t = (c_t + γ V(x_{t+1}) - Q(x_t, u_t)) Σ⁻¹n_t, `eq:efficient1`.

    With ``score`` = one-hot(u_t) - softmax(logits) it is the discrete form `eq:pd1_discrete`,
    its gradient taken in the logits (deviation 3).
    """
    return (c + gamma * v_next - q) * score


def pd2(c_vec: Array, v_vec_next: Array, q_vec: Array, gamma: float) -> Array:
    """ŵ_t = c(x_t) + γ V(x_{t+1}) - Q(x_t, u_t) for vector costs and values, `eqn:pd2`."""
    return c_vec + gamma * v_vec_next - q_vec


def pd3(x_next: Array, x_pred: Array) -> Array:
    """ŵ_t = x_{t+1} - f_sim(x_t, u_t), `eqn:pd3`."""
    return x_next - x_pred


class Signal(NamedTuple):
    """A pseudo-disturbance: the aux values it needs and the formula that joins them.

    ``compute(transition, score, gamma)`` sees one step of one environment; ``score`` is the
    gradient of the log-density of the executed action in action (or logit) space. Where ŵ follows
    from aux values alone, ``plain(aux, gamma)`` is the same for a step that does not terminate,
    on rows of NumPy.
    """

    name: str
    needs: tuple[str, ...]
    compute: Callable[[Transition, Array, float], Array]
    uses_score: bool = False
    plain: Callable[[dict[str, Any], float], Any] | None = None


def _alive(tr: Transition, value: Array) -> Array:
    return jnp.where(tr.terminated, jnp.zeros_like(value), value)


SIGNALS: dict[str, Signal] = {
    "w": Signal(
        "w",
        (W,),
        lambda tr, score, gamma: tr.aux[W],
        plain=lambda aux, gamma: aux[W],
    ),
    "pd1": Signal(
        "pd1",
        (V_NEXT, Q_NOW),
        lambda tr, score, gamma: pd1(tr.c, _alive(tr, tr.aux[V_NEXT]), tr.aux[Q_NOW], score, gamma),
        uses_score=True,
    ),
    "pd1-value": Signal(
        "pd1-value",
        (V_NEXT, GRAD_Q_MINUS_C),
        lambda tr, score, gamma: pd1_value(
            _alive(tr, tr.aux[V_NEXT]), score, tr.aux[GRAD_Q_MINUS_C], gamma
        ),
        uses_score=True,
    ),
    "pd2": Signal(
        "pd2",
        (C_VEC, V_VEC_NEXT, Q_VEC),
        lambda tr, score, gamma: pd2(
            tr.aux[C_VEC], _alive(tr, tr.aux[V_VEC_NEXT]), tr.aux[Q_VEC], gamma
        ),
        plain=lambda aux, gamma: pd2(aux[C_VEC], aux[V_VEC_NEXT], aux[Q_VEC], gamma),
    ),
    "pd3": Signal("pd3", (X_PRED,), lambda tr, score, gamma: pd3(tr.x_next, tr.aux[X_PRED])),
}


def get(signal: str | Signal) -> Signal:
    """A signal by name, or the user's own as it is."""
    if isinstance(signal, Signal):
        return signal
    checks.choice("signal", signal, SIGNALS)
    return SIGNALS[signal]


def check_d_w(signal: Signal, d_u: int, d_w: int) -> None:
    """PD1 lives in action (or logit) space, so its d_w is d_u."""
    if signal.uses_score and signal.name in SIGNALS and d_w != d_u:
        raise ValueError(
            f"d_w must be d_u = {d_u} for signal {signal.name!r}, which is a gradient in the "
            f"action; got d_w = {d_w}"
        )
