"""One update of D4PG as a pure function."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from windward.agents.losses import Batch, critic_loss, policy_gradient
from windward.agents.networks import Params, init_mlp


class Rule(NamedTuple):
    """What an update is compiled for."""

    atoms: tuple[float, float, int]
    """lowest and highest return, and how many"""
    learning_rate: float
    clip: float
    """of the gradient's norm"""
    slope_clip: float
    """of dQ/du's norm"""
    penalty: float
    """on the policy's output before tanh, beyond 2"""
    period: int
    """updates between copies to the target networks"""


class Learner(NamedTuple):
    """What learning changes; `steps` counts updates."""

    policy: Params
    critic: Params
    target_policy: Params
    target_critic: Params
    policy_optimiser: Any
    critic_optimiser: Any
    steps: int


def _optimiser(rule: Rule) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(rule.clip), optax.adam(rule.learning_rate))


def atoms_of(rule: Rule) -> np.ndarray:
    """The support of the value distribution."""
    low, high, count = rule.atoms
    return np.linspace(low, high, count, dtype=np.float32)


def init(rule: Rule, d_x: int, d_u: int, widths: tuple[int, ...], seed: int) -> Learner:
    """Fresh networks; the policy begins near zero."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    policy = init_mlp(rng, (d_x, *widths, d_u), last=1e-4)
    critic = init_mlp(rng, (d_x + d_u, *widths, rule.atoms[2]))
    optimiser = _optimiser(rule)
    as_jax: Any = jax.tree.map(jnp.asarray, (policy, critic))
    policy, critic = as_jax
    return Learner(
        policy, critic, policy, critic, optimiser.init(policy), optimiser.init(critic), 0
    )


@cache
def critic_step(rule: Rule) -> Any:
    """(critic, optimiser, target critic, target policy, batch) -> (critic, optimiser, loss)."""
    optimiser = _optimiser(rule)

    def step(
        critic: Params, state: Any, target: Params, target_policy: Params, batch: Batch
    ) -> Any:
        atoms = jnp.asarray(atoms_of(rule))
        loss, slope = jax.value_and_grad(critic_loss)(critic, target, target_policy, batch, atoms)
        change, state = optimiser.update(slope, state)
        return optax.apply_updates(critic, change), state, loss

    return jax.jit(step)


@cache
def policy_step(rule: Rule) -> Any:
    """(policy, optimiser, critic, x) -> (policy, optimiser, loss)."""
    optimiser = _optimiser(rule)

    def step(policy: Params, state: Any, critic: Params, x: Any) -> Any:
        atoms = jnp.asarray(atoms_of(rule))
        loss, slope = policy_gradient(policy, critic, x, atoms, rule.slope_clip, rule.penalty)
        change, state = optimiser.update(slope, state)
        return optax.apply_updates(policy, change), state, loss

    return jax.jit(step)


def update(rule: Rule, learner: Learner, batch: Batch) -> tuple[Learner, tuple[Any, Any]]:
    """One step of Adam for critic and policy, and the targets' copy when it is due.

    Both gradients are taken at the parameters from before the update, and the policy's at x_next,
    as in Acme. The copy is a reference: inside the compiled program it would cost every update.
    `Pipeline` does the same with both steps side by side.
    """
    critic, critic_optimiser, critic_cost = critic_step(rule)(
        learner.critic, learner.critic_optimiser, learner.target_critic, learner.target_policy,
        batch,
    )  # fmt: skip
    policy, policy_optimiser, policy_cost = policy_step(rule)(
        learner.policy, learner.policy_optimiser, learner.critic, batch.x_next
    )
    steps = learner.steps + 1
    due = steps % rule.period == 0
    return Learner(
        policy,
        critic,
        policy if due else learner.target_policy,
        critic if due else learner.target_critic,
        policy_optimiser,
        critic_optimiser,
        steps,
    ), (critic_cost, policy_cost)
