"""From a spec to functions: which parts make which algorithm, built once for equal specs."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import optax

from windward.core import credit, estimators, parametrisations, policies, updates
from windward.core.algorithm import Functions, assemble
from windward.core.parametrisations import Factory
from windward.core.projections import Projection
from windward.core.signals import Signal


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
    score_at: str = "drawn"  # where dmf_gpc takes its scores


def _policy(spec: Spec) -> policies.Policy:
    pi = spec.parametrisation(spec.h, spec.d_u, spec.d_w)
    if spec.kind == "bpc":
        leaves = jax.tree.leaves(jax.eval_shape(pi.init))
        return policies.parameter_noise(pi, sum(leaf.size for leaf in leaves))
    if spec.kind == "dmf_gpc":
        return policies.softmax(pi, spec.d_u, score_at=spec.score_at)
    noise = policies.sphere() if spec.kind == "bandit_gpc" else policies.gaussian()
    return policies.action_noise(pi, spec.d_u, noise)


@lru_cache(maxsize=256)
def build(spec: Spec) -> Functions:
    """The functions of a spec, one object for equal specs."""
    policy = _policy(spec)
    projection = None if spec.project is None else Projection(spec.project, {})
    estimator = (
        estimators.zero()
        if spec.kind == "base_only"
        else estimators.score_function(policy, spec.h, estimators.box(spec.h))
    )
    return assemble(
        h=spec.h,
        d_u=spec.d_u,
        d_w=spec.d_w,
        gamma=spec.gamma,
        signal=spec.signal,
        policy=policy,
        estimator=estimator,
        credit=credit.cost(),
        counts_episodes=spec.every_episodes is not None,
        update=updates.gradient_step(
            delay_by=spec.delay,
            scale_by=spec.scale_by,
            projection=projection,
            margin="delta" if spec.kind == "bpc" else None,
            every_episodes=spec.every_episodes,
        ),
    )
