"""Values of SBX's networks under JAX; `windward.policies.sb3.critic_of` is the way in."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from windward.policies.sb3 import RawValues


def values(model: Any, name: str) -> RawValues:
    """V, Q and their gradients of a model whose class is `name`, at its parameters of now."""
    V, Q, params = _table(model) if name == "DQN" else _continuous(model, name)

    def compiled(of: Callable[..., Any]) -> Callable[..., np.ndarray]:
        program = jax.jit(of)
        return lambda *arrays: np.asarray(program(params(), *arrays))

    def gradient(of: Callable[..., Any], position: int) -> Callable[..., np.ndarray]:
        return compiled(jax.grad(lambda *arguments: of(*arguments).sum(), position))

    return RawValues(
        compiled(V), compiled(Q), gradient(V, 1), None if name == "DQN" else gradient(Q, 2)
    )


_Parts = tuple[Callable[..., Any], Callable[..., Any], Callable[[], Any]]


def _table(model: Any) -> _Parts:
    """DQN: Q(x, ·) for all actions at once."""
    network = model.policy.qf_state.apply_fn

    def Q(params: Any, x: Any, u: Any) -> Any:
        return jnp.take_along_axis(network(params, x), u[:, None], axis=1)[:, 0]

    def V(params: Any, x: Any) -> Any:
        return network(params, x).max(axis=1)

    return V, Q, lambda: model.policy.qf_state.params


def _continuous(model: Any, name: str) -> _Parts:
    actor = model.policy.actor_state.apply_fn
    # Dropout is on in SBX's critics whenever they are called; values of the mean network need none.
    critic = model.policy.qf.clone(dropout_rate=0.0)

    def params() -> Any:
        policy = model.policy
        states = [policy.qf1_state, policy.qf2_state] if name == "TQC" else [policy.qf_state]
        return policy.actor_state.params, [state.params for state in states]

    def Q(params: Any, x: Any, u: Any) -> Any:
        if name == "TQC":
            return sum(critic.apply(each, x, u).mean(axis=-1) for each in params[1]) / 2
        return critic.apply(params[1][0], x, u)[..., 0].min(axis=0)

    def V(params: Any, x: Any) -> Any:
        found = actor(params[0], x)
        return Q(params, x, found.mode() if name in ("SAC", "TQC") else found)

    return V, Q, params
