"""Gradient estimates of the cost in M, for one environment (paper `sec:grad_deriv`)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from windward.core import history
from windward.core.parametrisations import Parametrisation
from windward.core.policies import Policy, pull_back
from windward.types import Array, Hyper, Local, PyTree, Transition


class Estimator(NamedTuple):
    """``gradient(M, credit, local, transition, hyper)`` is an estimate like M.

    It is formed before ŵ_t enters ``local.w_hist`` and after step t entered ``local.records``.
    ``lags`` is how many past windows it looks at, so the history holds h + lags - 1 of ŵ.
    """

    lags: int
    gradient: Callable[[PyTree, Array, Local, Transition, Hyper], PyTree]


def box(h: int) -> tuple[float, ...]:
    """The paper's trace: each draw is credited in full with the next h costs, then dropped."""
    return (1.0,) * h


def exponential(decay: float, h: int) -> tuple[float, ...]:
    """The trace of λ-advantages: decay^i, cut off after h steps."""
    return tuple(float(decay) ** i for i in range(h))


def score_function(policy: Policy, h: int, trace: tuple[float, ...]) -> Estimator:
    """The paper's estimate, for every policy: credit_t Σ_i trace[i] ∇_M log π(step t-i).

    With the cost as credit and `box(h)` it is, by policy,
    c_t Σ⁻¹ Σ_{i=0..h-1} n_{t-i} ⊗ J_i (`algo:generic` line 6, deviation 4),
    c_t Σ_i ∇_M log π(u_{t-i} | ŵ_{t-i-1:t-i-h}, M) (`algo:discrete` line 6),
    (d_u c_t/δ) Σ_i n_{t-i} ⊗ ŵ_{t-i-1:t-i-h} (`algo:banditgpc` line 5).
    A credit may be one number, or one for each lag.
    """
    lags = len(trace)

    def gradient(M: PyTree, credit: Array, local: Local, tr: Transition, hyper: Hyper) -> PyTree:
        windows = history.past_windows(local.w_hist, h, lags)
        weights = credit * jnp.asarray(trace, dtype=credit.dtype)
        return policy.score(M, local.records, windows, weights, hyper)

    return Estimator(lags, gradient)


def chain_rule(parametrisation: Parametrisation, h: int, lags: int) -> Estimator:
    """Σ_{i<lags} λ_i ⊗ J_{t-i} from credits λ (lags, d_u) that are slopes of the cost already.

    J_{t-i} is the Jacobian of π(ŵ_{t-i-1:t-i-h} | M) in M; there is no score, and so none of the
    variance of n/σ².
    """

    def gradient(M: PyTree, credit: Array, local: Local, tr: Transition, hyper: Hyper) -> PyTree:
        return pull_back(parametrisation, M, history.past_windows(local.w_hist, h, lags), credit)

    return Estimator(lags, gradient)


def zero() -> Estimator:
    """No learning: M stays where it is."""

    def gradient(M: PyTree, credit: Array, local: Local, tr: Transition, hyper: Hyper) -> PyTree:
        return jax.tree.map(jnp.zeros_like, M)

    return Estimator(1, gradient)
