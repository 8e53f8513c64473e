"""Randomised policies on a window of ŵ, and the scores of their draws (paper section 4).

Each policy says how a unit draw becomes exploration, what to remember of a step, and the score
∇_M log π of remembered steps; the gradient estimate itself is written once, in `estimators`.
All functions see one environment.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from windward.core.parametrisations import Parametrisation
from windward.core.signals import LOGITS
from windward.types import Array, Hyper, Plan, PyTree, Transition


class Policy(NamedTuple):
    """A randomised disturbance-based policy.

    ``score(M, records, windows, weights, hyper)`` is Σ_i weights[i] ∇_M log π(step t-i), with
    ``records[i]`` and ``windows[i]`` what step t-i left behind. ``action_score`` is the same
    gradient taken in the action (or logits), which PD1 needs; None where there is none.
    """

    init: Callable[[], PyTree]
    unit_shape: tuple[int, ...]
    unit_sampler: Callable[..., Array]  # jax.random.normal or jax.random.gumbel
    plan: Callable[[PyTree, Array, Array, Hyper], Plan]
    record: Callable[[PyTree, Array, Array, Transition, Hyper], PyTree]
    score: Callable[[PyTree, PyTree, Array, Array, Hyper], PyTree]
    action_score: Callable[[PyTree, Array, Array, Transition, Hyper], Array] | None
    apply: Callable[[Plan, Array], Array]
    aux: tuple[str, ...] = ()


def add(plan: Plan, base: Array) -> Array:
    """u_t = base + correction + n_t (`algo:generic` line 3); NumPy or JAX."""
    return base + plan.correction + plan.draw


def gumbel_argmax(plan: Plan, logits: Array) -> Array:
    """An exact draw from softmax(logits + correction), its Gumbel noise in the plan."""
    return (logits + plan.correction + plan.draw).argmax(-1)


class Noise(NamedTuple):
    """Action noise: ``draw`` makes n from a unit draw; ``precision`` is its score in the mean."""

    draw: Callable[[Array, Hyper], Array]
    precision: Callable[[Array, Hyper], Array]


def _over_square(numerator: Array, scale: Array) -> Array:
    """numerator / scale², and 0 at scale 0, where nothing was explored (deviation 7)."""
    return jnp.where(scale > 0, numerator / jnp.where(scale > 0, scale, 1.0) ** 2, 0.0)


def gaussian() -> Noise:
    """N ~ N(0, σ²Σ); its score is (σ²Σ)⁻¹ n. hyper: sigma, and Sigma where it is not I."""

    def draw(unit: Array, hyper: Hyper) -> Array:
        if "Sigma" in hyper:
            unit = jnp.linalg.cholesky(hyper["Sigma"]) @ unit
        return hyper["sigma"] * unit

    def precision(n: Array, hyper: Hyper) -> Array:
        if "Sigma" in hyper:
            n = jnp.linalg.solve(hyper["Sigma"], n)
        return _over_square(n, hyper["sigma"])

    return Noise(draw, precision)


def _unit_sphere(unit: Array) -> Array:
    return unit / jnp.sqrt(jnp.sum(unit**2))


def sphere() -> Noise:
    """δn with n uniform on the unit sphere; its score is (d_u/δ) n (`algo:banditgpc`).

    Times a cost, its mean is the gradient of the cost smoothed over the ball (deviation 6).
    """

    def draw(unit: Array, hyper: Hyper) -> Array:
        return hyper["delta"] * _unit_sphere(unit)

    def precision(n: Array, hyper: Hyper) -> Array:
        return _over_square(n.shape[-1] * n, hyper["delta"])

    return Noise(draw, precision)


def pull_back(
    parametrisation: Parametrisation, M: PyTree, windows: Array, cotangents: Array
) -> PyTree:
    """Σ_i cotangents[i] ⊗ J_i, with the paper's J_i at M by autodiff."""
    if len(windows) > FEW:
        _, vjp = jax.vjp(lambda M: jax.vmap(parametrisation.apply, (None, 0))(M, windows), M)
        return vjp(cotangents)[0]

    def outputs(M: PyTree) -> list[Array]:
        # Written out over the few windows: the transpose is then a sum that XLA fuses, where
        # a reduction over a tiny axis is a library call.
        return [parametrisation.apply(M, window) for window in windows]

    _, vjp = jax.vjp(outputs, M)
    return vjp(list(cotangents))[0]


FEW = 32
"""windows that are written out one by one at most"""


def action_noise(parametrisation: Parametrisation, d_u: int, noise: Noise) -> Policy:
    """u = base + π(window | M) + n: MF-GPC with `gaussian`, Bandit GPC with `sphere`.

    ∇_M log π = Σ⁻¹n ⊗ J, J at the current M and n as drawn, before any clipping (deviation 5).
    """

    def plan(M: PyTree, window: Array, unit: Array, hyper: Hyper) -> Plan:
        return Plan(parametrisation.apply(M, window), noise.draw(unit, hyper))

    def record(M: PyTree, window: Array, unit: Array, tr: Transition, hyper: Hyper) -> Array:
        return noise.draw(unit, hyper)

    def score(M: PyTree, records: Array, windows: Array, weights: Array, hyper: Hyper) -> PyTree:
        precisions = jax.vmap(noise.precision, (0, None))(records, hyper)
        return pull_back(parametrisation, M, windows, weights[:, None] * precisions)

    def action_score(M: PyTree, window: Array, unit: Array, tr: Transition, hyper: Hyper) -> Array:
        return noise.precision(noise.draw(unit, hyper), hyper)

    return Policy(
        parametrisation.init, (d_u,), jax.random.normal, plan, record, score, action_score, add
    )


def remembering(policy: Policy) -> Policy:
    """The same policy, with a record {n, v, c}: the draw, all that moved the base action, cost."""

    def record(M: PyTree, window: Array, unit: Array, tr: Transition, hyper: Hyper) -> PyTree:
        plan = policy.plan(M, window, unit, hyper)
        return {"n": plan.draw, "v": plan.correction + plan.draw, "c": tr.c}

    def score(M: PyTree, records: PyTree, windows: Array, weights: Array, hyper: Hyper) -> PyTree:
        return policy.score(M, records["n"], windows, weights, hyper)

    return policy._replace(record=record, score=score)


def parameter_noise(parametrisation: Parametrisation, size: int) -> Policy:
    """u = base + π(window | M + δε), ε uniform on the unit sphere of R^size (BPC, Gradu et al.).

    ∇_M log π = (dim M / δ) ε, whatever the parametrisation.
    """

    def epsilon(M: PyTree, unit: Array, hyper: Hyper) -> PyTree:
        flat, unravel = ravel_pytree(M)
        return unravel(_unit_sphere(unit).astype(flat.dtype))

    def plan(M: PyTree, window: Array, unit: Array, hyper: Hyper) -> Plan:
        noisy = jax.tree.map(lambda m, e: m + hyper["delta"] * e, M, epsilon(M, unit, hyper))
        correction = parametrisation.apply(M, window)
        return Plan(correction, parametrisation.apply(noisy, window) - correction)

    def record(M: PyTree, window: Array, unit: Array, tr: Transition, hyper: Hyper) -> PyTree:
        return epsilon(M, unit, hyper)

    def score(M: PyTree, records: PyTree, windows: Array, weights: Array, hyper: Hyper) -> PyTree:
        scale = size / hyper["delta"]
        return jax.tree.map(lambda e: scale * jnp.tensordot(weights, e, axes=1), records)

    return Policy(parametrisation.init, (size,), jax.random.normal, plan, record, score, None, add)


def softmax(parametrisation: Parametrisation, d_u: int, *, score_at: str) -> Policy:
    """u ~ softmax(logits + π(window | M)) over d_u actions (`eq:discrete_policy`).

    The score in the logits is one-hot(u) - probabilities. With ``score_at="current"`` it is
    taken at the current M, as `algo:discrete` line 6 prints it; with ``"drawn"`` at the M that
    drew the action, whose expectation is the gradient (deviation 5).
    """

    def logit_score(M: PyTree, window: Array, u: Array, logits: Array) -> Array:
        return u - jax.nn.softmax(logits + parametrisation.apply(M, window))

    def plan(M: PyTree, window: Array, unit: Array, hyper: Hyper) -> Plan:
        return Plan(parametrisation.apply(M, window), unit)

    def action_score(M: PyTree, window: Array, unit: Array, tr: Transition, hyper: Hyper) -> Array:
        logits = tr.aux[LOGITS]
        return logit_score(M, window, jax.nn.one_hot(tr.u, d_u, dtype=logits.dtype), logits)

    def record_step(M: PyTree, window: Array, unit: Array, tr: Transition, hyper: Hyper) -> PyTree:
        # A zeroed record (an ended episode) must score 0, hence the weight beside the action.
        logits = tr.aux[LOGITS]
        u = jax.nn.one_hot(tr.u, d_u, dtype=logits.dtype)
        return {"u": u, "logits": logits, "weight": jnp.ones((), logits.dtype)}

    def score_current(
        M: PyTree, records: PyTree, windows: Array, weights: Array, hyper: Hyper
    ) -> PyTree:
        at_M = jax.vmap(logit_score, (None, 0, 0, 0))(M, windows, records["u"], records["logits"])
        return pull_back(parametrisation, M, windows, (weights * records["weight"])[:, None] * at_M)

    def record_score(M: PyTree, window: Array, unit: Array, tr: Transition, hyper: Hyper) -> PyTree:
        in_logits = action_score(M, window, unit, tr, hyper)
        return pull_back(parametrisation, M, window[None], in_logits[None])

    def score_drawn(
        M: PyTree, records: PyTree, windows: Array, weights: Array, hyper: Hyper
    ) -> PyTree:
        return jax.tree.map(lambda s: jnp.tensordot(weights, s, axes=1), records)

    record, score = {
        "current": (record_step, score_current),
        "drawn": (record_score, score_drawn),
    }[score_at]
    return Policy(
        parametrisation.init,
        (d_u,),
        jax.random.gumbel,
        plan,
        record,
        score,
        action_score,
        gumbel_argmax,
        aux=(LOGITS,),
    )
