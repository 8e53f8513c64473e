"""GPC with full information (Agarwal, Bullins, Hazan, Kakade, Singh 2019).

It knows A, B and the cost, so it descends the exact gradient of the idealised cost C̃_t(M): the
cost that M would have had at step t, had it been played for the last h steps from a zero state.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from windward import checks
from windward.core import credit, history, parametrisations, policies, signals, updates
from windward.core.algorithm import Algorithm, Functions, assemble
from windward.core.estimators import Estimator
from windward.core.projections import DEFAULT_BALL, Projection
from windward.core.recipes import initial_M, projection_function
from windward.linear.costs import CostFunction, choose
from windward.linear.oracles import apply
from windward.linear.systems import System, check_stable
from windward.types import Array, Hyper, Local, Transition


def idealised_cost(M: Array, w_hist: Array, t: Array, hyper: Hyper, cost: CostFunction) -> Array:
    """C̃_t(M) = c_t(y_t(M), u_t(M)), with w_hist[j] = w_{t-1-j} and 2h of them.

    y_t is the state after h steps from 0 under u = -Ky + Σ_j M_j w_{·-j}; A and B may vary.
    Unrolled, it is Σ_i Ψ_i w_{t-1-i} with the corrected Ψ (deviation 6), cut after h steps as F_t
    is: j = 0..h-1, and A^i for i < h.
    """
    h = M.shape[0]
    windows = history.past_windows(w_hist, h, h + 1)

    def at(name: str, i: int) -> Array:
        """A or B at step t - i."""
        matrix = hyper[name]
        return matrix if matrix.ndim == 2 else matrix[jnp.maximum(t - i, 0)]

    def control(y: Array, i: int) -> Array:
        return -apply(hyper["K"], y) + jnp.sum(M * windows[i][:, None, :], axis=(0, 2))

    y = jnp.zeros(hyper["K"].shape[1], M.dtype)
    for i in range(h, 0, -1):  # the state at step t - i
        y = apply(at("A", i), y) + apply(at("B", i), control(y, i)) + w_hist[i - 1]
    return cost(hyper, y, control(y, 0), t)


@lru_cache(maxsize=64)
def _build(
    d_u: int, d_x: int, h: int, cost: CostFunction, project: Any, scale_by: Any
) -> Functions:
    def gradient(M: Array, _: Array, local: Local, tr: Transition, hyper: Hyper) -> Array:
        return jax.grad(idealised_cost)(M, local.w_hist, local.t, hyper, cost)

    return assemble(
        h=h,
        d_u=d_u,
        d_w=d_x,
        gamma=1.0,
        signal=signals.get("w"),
        policy=policies.action_noise(
            parametrisations.linear(h, d_u, d_x), d_u, policies.gaussian()
        ),
        estimator=Estimator(h + 1, gradient),
        credit=credit.cost(),
        counts_episodes=False,
        update=updates.gradient_step(
            scale_by=scale_by, projection=None if project is None else Projection(project, {})
        ),
    )


def gpc(
    system: System,
    *,
    K: Any,
    Q: Any = None,
    R: Any = None,
    cost: Callable[..., Any] | None = None,
    h: int = 5,
    eta: Any = 1e-3,
    projection: Projection | None = DEFAULT_BALL,
    scale_by: optax.GradientTransformation | None = None,
    weight_decay: Any = 0.0,
    M0: Any = None,
) -> Algorithm:
    """GPC: u_t = -Kx_t + Σ M_i^t w_{t-i}, M^{t+1} = Π[M^t - η ∇C̃_t(M^t)].

    The cost is xᵀQx + uᵀRu, or any convex ``cost`` (x, u) or (x, u, t). Arguments are those of
    `windward.bandit_gpc`; there is no exploration.
    """
    h = checks.integer("h", h, 1)
    project = projection_function(projection)
    K = system.gain(K)
    if not system.varies:
        check_stable(system.closed_loop(K))
    hyper: dict[str, np.ndarray] = {
        "eta": checks.positive("eta", eta, zero=True),
        "weight_decay": checks.positive("weight_decay", weight_decay, zero=True),
        "sigma": np.zeros(()),
        **({} if projection is None else projection.hyper),
    }
    grid = tuple(hyper)
    function, data = choose(system, Q, R, cost)
    hyper |= {"A": system.A, "B": system.B, "K": K, **data}
    if M0 is not None:
        hyper["M0"] = initial_M(M0, h, system.d_u, system.d_x)
    functions = _build(
        system.d_u,
        system.d_x,
        h,
        function,
        project,
        scale_by,
    )
    return Algorithm(
        "gpc", *functions, signal="w", gamma=1.0, d_u=system.d_u, d_w=system.d_x, h=h,
        hyper=hyper, grid=grid,
    )  # fmt: skip
