"""From a spec to functions: which parts make which algorithm, built once for equal specs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import optax

from windward.core import credit, estimators, models, parametrisations, policies, updates
from windward.core.algorithm import Functions, assemble
from windward.core.held import Held, observing
from windward.core.parametrisations import Factory
from windward.core.projections import Projection
from windward.core.signals import Signal
from windward.types import Array


@dataclass(frozen=True)
class Spec:
    """Everything about an algorithm that is compiled in; its numbers are hyper."""

    kind: str
    d_u: int
    d_w: int
    h: int
    gamma: float
    signal: Signal
    parametrisation: Factory = parametrisations.linear
    delay: int = 0
    scale_by: optax.GradientTransformation | None = None
    project: Any = None
    every_episodes: int | str | None = None  # a number, or "told"
    every_steps: int = 1
    score_at: str = "drawn"  # where dmf_gpc takes its scores
    gradient: str = "reinforce"
    baseline: str = "none"
    lam: float = 0.0  # of the advantages
    d_x: int = 0  # of the states that gradient="response" looks at
    fit_every: int | None = 1  # steps between updates of regressions; None: by their size
    cost: Callable[[Array, Array], Array] | None = None  # c(x, v), where gradient="response" has it


def _policy(spec: Spec) -> policies.Policy:
    pi = spec.parametrisation(spec.h, spec.d_u, spec.d_w)
    if spec.kind == "bpc":
        leaves = jax.tree.leaves(jax.eval_shape(pi.init))
        return policies.parameter_noise(pi, sum(leaf.size for leaf in leaves))
    if spec.kind == "dmf_gpc":
        return policies.softmax(pi, spec.d_u, score_at=spec.score_at)
    noise = policies.sphere() if spec.kind == "bandit_gpc" else policies.gaussian()
    return policies.action_noise(pi, spec.d_u, noise)


def _learning(
    spec: Spec, policy: policies.Policy
) -> tuple[policies.Policy, estimators.Estimator, credit.Credit]:
    """The policy with the memory that it needs, the estimator and the credit."""
    h = spec.h
    if spec.kind == "base_only":
        return policy, estimators.zero(), credit.cost()
    if spec.gradient in ("quadratic", "response"):
        pi = spec.parametrisation(h, spec.d_u, spec.d_w)
        given = (
            models.quadratic_cost(h, spec.d_u, spec.d_w, fit_every=spec.fit_every)
            if spec.gradient == "quadratic"
            else models.response(h, spec.d_u, spec.d_w, spec.d_x, spec.fit_every, spec.cost)
        )
        chain_rule = estimators.chain_rule(pi, h, models.lags_of(h))
        return policies.remembering(policy), chain_rule, given
    trace = estimators.box(h)
    if spec.gradient == "reinforce" and spec.baseline == "none":
        return policy, estimators.score_function(policy, h, trace), credit.cost()
    first = credit.cost()
    if spec.gradient == "residual":
        policy, first, trace = policies.remembering(policy), credit.residual(h), (*trace, 0.0)
    elif spec.gradient == "advantage":
        first, trace = credit.advantage(spec.gamma), estimators.exponential(spec.lam, h)
    baselines = {
        "none": (),
        "mean": (credit.running_mean(),),
        "regression": (credit.on_disturbances(h, spec.d_w, fit_every=spec.fit_every),),
    }
    size = credit.normalised(h, *_draw(spec))
    given = credit.chain(first, *baselines[spec.baseline], size)
    return policy, estimators.score_function(policy, h, trace), given


def _draw(spec: Spec) -> tuple[Callable[[Any], Array], bool]:
    """(variance of a number of the draw, whether it meets windows of ŵ in the score)."""
    if spec.kind == "bandit_gpc":
        return lambda hyper: hyper["delta"] ** 2 / spec.d_u, True
    if spec.kind == "bpc":
        return lambda hyper: hyper["delta"] ** 2 / (spec.h * spec.d_u * spec.d_w), False
    return lambda hyper: hyper["sigma"] ** 2, True


def _update(spec: Spec) -> updates.Transform:
    return updates.gradient_step(
        delay_by=spec.delay,
        scale_by=spec.scale_by,
        projection=None if spec.project is None else Projection(spec.project, {}),
        margin="delta" if spec.kind == "bpc" else None,
        every_episodes=spec.every_episodes,
        every_steps=spec.every_steps,
    )


@lru_cache(maxsize=256)
def held(spec: Spec) -> Held | None:
    """How a host plans steps of mf_gpc while M stays, where it can; one object for equal specs."""
    moves = spec.every_steps == 1 and spec.every_episodes is None
    plain = spec.gradient == "reinforce" and spec.baseline == "none" and spec.delay == 0
    linear = spec.parametrisation is parametrisations.linear
    if moves or not (plain and linear) or spec.signal.plain is None:
        return None
    steps = None if spec.every_episodes else spec.every_steps
    observe = observing(spec.h, _policy(spec), estimators.box(spec.h), _update(spec))
    return Held(steps, spec.signal.plain, observe)


@lru_cache(maxsize=256)
def build(spec: Spec) -> Functions:
    """The functions of a spec, one object for equal specs."""
    policy, estimator, given = _learning(spec, _policy(spec))
    return assemble(
        h=spec.h,
        d_u=spec.d_u,
        d_w=spec.d_w,
        gamma=spec.gamma,
        signal=spec.signal,
        policy=policy,
        estimator=estimator,
        credit=given,
        counts_episodes=spec.every_episodes is not None,
        update=_update(spec),
    )
