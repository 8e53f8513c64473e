"""The paper's algorithms by name: each recipe picks parts and checks its arguments.

Equal recipes share their functions (only numbers differ), so a program compiled for one serves
the other. Arguments that are numbers, eta, sigma, delta, weight_decay, radius, may be arrays:
`windward.linear.simulate` then runs the grid in one program.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from windward import checks
from windward.core import choices, parametrisations, signals
from windward.core.algorithm import Algorithm
from windward.core.parametrisations import Factory
from windward.core.projections import DEFAULT_BALL, Projection
from windward.core.signals import Signal
from windward.core.spec import Spec, build, held
from windward.core.updates import TOLD
from windward.types import Array


@lru_cache
def _no_signal(d_w: int) -> Signal:
    return Signal("none", (), lambda tr, score, gamma: jnp.zeros(d_w))


def _algorithm(name: str, spec: Spec, hyper: dict[str, np.ndarray], M0: Any) -> Algorithm:
    grid = tuple(hyper)
    if M0 is not None:
        if spec.parametrisation is not parametrisations.linear:
            raise ValueError("M0 is for the linear parametrisation; a network starts by its own")
        hyper = {**hyper, "M0": initial_M(M0, spec.h, spec.d_u, spec.d_w)}
    functions = build(spec)
    return Algorithm(
        name,
        *functions,
        signal=spec.signal.name,
        gamma=spec.gamma,
        d_u=spec.d_u,
        d_w=spec.d_w,
        h=spec.h,
        hyper=hyper,
        grid=grid,
        clock=(spec.every_steps, spec.every_episodes),
        d_x=spec.d_x,
    )


def initial_M(M0: Any, h: int, d_u: int, d_w: int) -> np.ndarray:
    """A checked M^1 for the linear parametrisation."""
    array = checks.finite_array("M0", M0)
    checks.shape("M0", array, (h, d_u, d_w), "(h, d_u, d_w)")
    return array


def _spec(
    kind: str, d_u: Any, d_w: Any, h: Any, gamma: Any, signal: str | Signal, **more: Any
) -> Spec:
    spec = Spec(
        kind,
        checks.integer("d_u", d_u, 1),
        checks.integer("d_w", d_w, 1),
        checks.integer("h", h, 1),
        checks.discount("gamma", gamma),
        signals.get(signal),
        **more,
    )
    signals.check_d_w(spec.signal, spec.d_u, spec.d_w)
    told = isinstance(spec.every_episodes, str) and spec.every_episodes == TOLD
    if spec.every_episodes is not None and not told:
        checks.integer(f"every_episodes, unless it is {TOLD!r},", spec.every_episodes, 1)
    return spec


def projection_function(projection: Projection | None) -> Any:
    """The compiled part of a projection; refuses what is none."""
    if projection is None:
        return None
    if not isinstance(projection, Projection):
        raise ValueError(
            f"projection must be made by frobenius_ball(radius) or dac_set(kappa, alpha), or be "
            f"None; got {projection!r}"
        )
    return projection.apply


def _step_hyper(
    eta: Any, weight_decay: Any, projection: Projection | None
) -> dict[str, np.ndarray]:
    hyper = {
        "eta": checks.positive("eta", eta, zero=True),
        "weight_decay": checks.positive("weight_decay", weight_decay, zero=True),
    }
    return hyper if projection is None else {**hyper, **projection.hyper}


def base_only(d_u: int, d_w: int) -> Algorithm:
    """The base policy alone: no correction, no exploration, ŵ = 0."""
    d_w = checks.integer("d_w", d_w, 1)
    spec = _spec("base_only", d_u, d_w, 1, 1.0, _no_signal(d_w))
    hyper = {name: np.zeros(()) for name in ("eta", "weight_decay", "sigma")}
    return _algorithm("base_only", spec, hyper, None)


def mf_gpc(
    d_u: int,
    d_w: int,
    h: int = 5,
    eta: Any = None,
    sigma: Any = None,
    signal: str | Signal = "pd3",
    gamma: float = 0.99,
    *,
    gradient: str = "reinforce",
    baseline: str = "none",
    lam: float = 0.5,
    d_x: int | None = None,
    cost: Callable[[Array, Array], Array] | None = None,
    fit_every: int | str = 1,
    sigma_end: Any = None,
    Sigma: Any = None,
    weight_decay: Any = 0.0,
    every_episodes: int | str | None = None,
    every_steps: int = 1,
    delay: int = 0,
    projection: Projection | None = DEFAULT_BALL,
    scale_by: optax.GradientTransformation | None = None,
    parametrisation: Factory = parametrisations.linear,
    M0: Any = None,
) -> Algorithm:
    """MF-GPC (`algo:generic`): u_t = base + π(ŵ_{t-1:t-h} | M^t) + n_t, n_t ~ N(0, σ²Σ).

    M^{t+1} = M^t - η c_t (σ²Σ)⁻¹ Σ_{i=0..h-1} n_{t-i} ⊗ J_i.

    Args:
      d_u, d_w: sizes of the action and of the pseudo-disturbance (PD1: d_u; PD3: d_x).
      h: memory. eta: learning rate; None for 1e-5 with the paper's update, and else for what suits
        the gradient (`choices.USUAL`). sigma: standard deviation of the noise; both may be grids.
      signal: "pd1" (TD error), "pd1-value", "pd2", "pd3", "w", or a `Signal`.
      gamma: discount of the values behind PD1 and PD2.
      gradient: how the gradient is estimated. "reinforce", the paper's: credit times score.
        "residual": the credit is the cost less the last one before the draw. "advantage": the TD
        error of the base policy's value, traces (γ lam)^i. "quadratic": the slope of a regression
        of the cost on ŵ and v. "response": the state's (d_x numbers), with that of the cost.
      cost: for "response": c(x, v) in terms of jax.numpy, of the state and of what was added to the
        base action (in wrappers of the observation, and of an action scaled to [-1, 1]); it is
        fitted if None. Make it once: each new one is compiled anew.
      baseline: what the credit is less of: "none", "mean" of the past, "regression" on ŵ.
      fit_every: regressions learn at every so-many-th step, from all steps since; "auto": the
        more features there are the more seldom, at every step up to 150 of them.
      sigma_end: where σ falls to, not with the paper's update.
      Sigma: covariance of the noise up to σ², a matrix or its diagonal; the identity if None.
      weight_decay: λ of M - η(g + λM). every_episodes: update once per so many episodes, or, with
        "told", when the wrapper's `update_M` says so; gradients are summed until then.
      every_steps: update at every so-many-th step; gradients are summed until then.
      delay: apply the gradient of so many steps ago.
      projection: a set that holds M, a ball of radius 10 by default; None for none, as printed.
      scale_by: an optax preconditioner such as ``optax.scale_by_adam()``; make it once and reuse
        it, each new one is compiled anew.
      parametrisation: `linear`, or ``mlp(width)`` or any factory of your own.
      M0: the initial M (h, d_u, d_w); 0 if None.

    >>> mf_gpc(d_u=1, d_w=2, signal="pd3").needs
    ('x_pred',)
    """
    usual = choices.usual(gradient, baseline)
    decay = float(checks.discount("gamma", gamma) * checks.positive("lam", lam, zero=True))
    eta, sigma = usual.eta if eta is None else eta, usual.sigma if sigma is None else sigma
    spec = _spec(
        "mf_gpc", d_u, d_w, h, gamma, signal, gradient=gradient, baseline=baseline,
        lam=decay if gradient == "advantage" else 0.0,
        d_x=0 if gradient != "response" else d_w if d_x is None else checks.integer("d_x", d_x, 1),
        fit_every=_fit_every(fit_every), cost=cost,
        parametrisation=parametrisation, delay=checks.integer("delay", delay, 0),
        scale_by=scale_by, project=projection_function(projection),
        every_episodes=every_episodes, every_steps=checks.integer("every_steps", every_steps, 1),
    )  # fmt: skip
    if cost is not None:
        _check_cost(cost, gradient, spec.d_x, spec.d_u)
    if every_steps > 1 and every_episodes is not None:
        raise ValueError(
            f"every_steps = {every_steps} and every_episodes = {every_episodes} say both when M is "
            "updated; give one of them"
        )
    hyper = {
        **_step_hyper(eta, weight_decay, projection),
        "sigma": checks.positive("sigma", sigma, zero=True),
    }
    if usual.falls is not None:
        end = usual.falls * hyper["sigma"] if sigma_end is None else sigma_end
        hyper["sigma_end"] = checks.positive("sigma_end", end, zero=True)
    elif sigma_end is not None:
        raise ValueError("sigma_end is not for the paper's update, whose noise stays as it is")
    if spec.signal.uses_score and (hyper["sigma"] == 0).any():
        raise ValueError(
            f"sigma must be greater than 0 for signal {spec.signal.name!r}, which is estimated "
            "from the exploration noise; got 0 (pd2 and pd3 work without noise)"
        )
    algorithm = _algorithm("mf_gpc", spec, hyper, M0)
    if Sigma is None:
        return algorithm if "sigma_end" in hyper else algorithm._replace(held=held(spec))
    matrix = checks.finite_array("Sigma", Sigma, ndim=(1, 2))
    matrix = np.diag(matrix) if matrix.ndim == 1 else matrix
    checks.shape("Sigma", matrix, (d_u, d_u), "(d_u, d_u)")
    matrix = checks.psd("Sigma", matrix, definite=True)
    return algorithm._replace(hyper={**algorithm.hyper, "Sigma": matrix})


def _check_cost(cost: Any, gradient: str, d_x: int, d_u: int) -> None:
    """Refuses what is no c(x, v) before anything is run."""
    if gradient != "response":
        raise ValueError(f"cost= is for gradient 'response'; got gradient {gradient!r}")
    try:
        found = jax.eval_shape(cost, jnp.zeros(d_x), jnp.zeros(d_u))
        scalar = found.shape == () and jnp.issubdtype(found.dtype, jnp.floating)
    except Exception as error:  # a user's function may fail in any way
        raise ValueError(f"cost must be a function of jax.numpy, c(x, v): {error}") from error
    if not scalar:
        raise ValueError(f"cost must be a function c(x, v) to one real number; it gives {found}")


def _fit_every(given: int | str) -> int | None:
    """A number of steps; None for "auto"."""
    return None if given == "auto" else checks.integer("fit_every, unless it is 'auto',", given, 1)


def dmf_gpc(
    d_u: int,
    d_w: int,
    h: int = 5,
    eta: Any = 1e-3,
    signal: str | Signal = "pd3",
    gamma: float = 0.99,
    *,
    preset: str | None = None,
    weight_decay: Any = 0.0,
    every_episodes: int | str | None = None,
    projection: Projection | None = DEFAULT_BALL,
    scale_by: optax.GradientTransformation | None = None,
    parametrisation: Factory = parametrisations.linear,
    M0: Any = None,
) -> Algorithm:
    """DMF-GPC (`algo:discrete`): u_t ~ softmax(base logits + π(ŵ_{t-1:t-h} | M^t)).

    M^{t+1} = M^t - η c_t Σ_{j=0..h-1} ∇_M log π(u_{t-j} | ŵ_{t-j-1:t-j-h}, M).

    ``d_u`` is the number of actions and `Transition.u` their index. Scores are taken at the M
    that drew the action; ``preset="paper"`` takes them at M^t, as printed. "pd1" is the discrete
    PD1, in the logits. Other arguments as in `mf_gpc`.
    """
    checks.choice("preset", preset, (None, "paper"))
    if d_u == 1:
        raise ValueError("d_u must be at least 2 actions for dmf_gpc; got 1")
    if signals.get(signal).name == "pd1-value":
        raise ValueError("signal 'pd1-value' needs a gradient in u; use 'pd1' with dmf_gpc")
    spec = _spec(
        "dmf_gpc", d_u, d_w, h, gamma, signal,
        parametrisation=parametrisation, scale_by=scale_by,
        project=projection_function(projection), every_episodes=every_episodes,
        score_at="drawn" if preset is None else "current",
    )  # fmt: skip
    return _algorithm("dmf_gpc", spec, _step_hyper(eta, weight_decay, projection), M0)


def bandit_gpc(
    d_u: int,
    d_w: int,
    h: int = 5,
    eta: Any = None,
    delta: Any = 0.2,
    signal: str | Signal = "w",
    gamma: float = 0.99,
    *,
    projection: Projection | None = DEFAULT_BALL,
    scale_by: optax.GradientTransformation | None = None,
    weight_decay: Any = 0.0,
    M0: Any = None,
) -> Algorithm:
    """Bandit GPC (`algo:banditgpc`): u_t = base + Σ M_i^t w_{t-i} + δn_t, n_t on the sphere.

    ∇̂_t = (d_u c_t/δ) Σ_{i=0..h-1} n_{t-i} ⊗ w_{t-i-1:t-i-h};
    M^{t+1} = Π[M^t - η ∇̂_{t-h}].

    ``signal="w"`` is the true disturbance; any pseudo-disturbance makes it the algorithm of
    `thm:main_appendix`. `theorem_rates` gives η and δ of `thm:34`, `dac_set` its set. The paper's
    η has units and depends on the system; without one (None) the credits are costs less their
    running mean, over their size, and η = 0.01 has no unit (deviation 22).
    """
    return _bandit("bandit_gpc", d_u, d_w, h, eta, delta, signal, gamma, projection, scale_by,
                   weight_decay, M0)  # fmt: skip


def bpc(
    d_u: int,
    d_w: int,
    h: int = 5,
    eta: Any = None,
    delta: Any = 0.2,
    signal: str | Signal = "w",
    gamma: float = 0.99,
    *,
    projection: Projection | None = DEFAULT_BALL,
    scale_by: optax.GradientTransformation | None = None,
    weight_decay: Any = 0.0,
    M0: Any = None,
) -> Algorithm:
    """BPC (Gradu, Hallman, Hazan 2020): the noise is on the parameters, M̃^t = M^t + δε_t.

    ∇̂_t = (dim M c_t/δ) Σ_{i=0..h-1} ε_{t-i}; M^{t+1} = Π[M^t - η ∇̂_{t-h}], the set shrunk by δ
    so that M̃ stays inside. Arguments as in `bandit_gpc`; PD1 needs noise on the action.
    """
    if signals.get(signal).uses_score:
        raise ValueError(
            f"signal {signals.get(signal).name!r} needs noise on the action, and bpc has none; "
            "'w', 'pd2' and 'pd3' work"
        )
    return _bandit("bpc", d_u, d_w, h, eta, delta, signal, gamma, projection, scale_by,
                   weight_decay, M0)  # fmt: skip


def _bandit(
    kind: str, d_u: Any, d_w: Any, h: Any, eta: Any, delta: Any, signal: str | Signal, gamma: Any,
    projection: Projection | None, scale_by: Any, weight_decay: Any, M0: Any,
) -> Algorithm:  # fmt: skip
    spec = _spec(
        kind, d_u, d_w, h, gamma, signal, delay=h, scale_by=scale_by,
        project=projection_function(projection), baseline="mean" if eta is None else "none",
    )  # fmt: skip
    if eta is None:
        eta = choices.usual("reinforce", "mean").eta
    hyper = {
        **_step_hyper(eta, weight_decay, projection),
        "delta": checks.positive("delta", delta),
    }
    if kind == "bpc" and "radius" in hyper and (hyper["delta"] >= hyper["radius"]).any():
        raise ValueError(
            f"delta must be less than the projection's radius {hyper['radius']}, or bpc cannot "
            f"move; got {delta!r}"
        )
    return _algorithm(kind, spec, hyper, M0)
