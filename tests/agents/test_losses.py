"""Losses against numbers worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from windward.agents import losses
from windward.agents.losses import Batch
from windward.policies import critics, networks
from windward.policies.networks import init_mlp

# Compiled whole: one program for each shape, not one for each operation.
critic_goal, critic_loss = jax.jit(losses.critic_goal), jax.jit(losses.critic_loss)
project = jax.jit(losses.project)
policy_gradient = jax.jit(losses.policy_gradient)
value_of = jax.jit(critics.value_of)
critic, forward, policy = (
    jax.jit(each) for each in (networks.critic, networks.forward, networks.policy)
)

ATOMS = np.array([-1.0, 0.0, 1.0], np.float32)


@pytest.mark.parametrize(
    ("reward", "discount", "p", "expected"),
    [
        (0.0, 1.0, [0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),
        # after termination all mass is at the reward: 0.25 is a quarter of the way from 0 to 1
        (0.25, 0.0, [0.2, 0.3, 0.5], [0.0, 0.75, 0.25]),
        # atoms go to -0.5, 0, 0.5: halves of the outer ones move to the middle
        (0.0, 0.5, [0.2, 0.3, 0.5], [0.1, 0.65, 0.25]),
        # atoms go to -0.4, 0.6, 1.6; the last is clipped to 1
        (0.6, 1.0, [0.2, 0.3, 0.5], [0.08, 0.12 + 0.12, 0.18 + 0.5]),
        (9.0, 1.0, [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]),
        (-9.0, 1.0, [0.2, 0.3, 0.5], [1.0, 0.0, 0.0]),
    ],
)
def test_the_projection_by_hand(
    reward: float, discount: float, p: list[float], expected: list[float]
) -> None:
    got = project(np.array([reward]), np.array([discount]), np.array([p]), ATOMS)
    np.testing.assert_allclose(got[0], expected, atol=1e-6)


def test_the_projection_keeps_mass_and_mean() -> None:
    rng = np.random.default_rng(0)
    atoms = np.linspace(-10.0, 10.0, 51)
    p = scipy.special.softmax(rng.normal(size=(64, 51)), axis=1)
    reward, discount = rng.uniform(-0.5, 0.5, 64), np.full(64, 0.9)
    got = np.asarray(project(reward, discount, p, atoms))
    np.testing.assert_allclose(got.sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(got @ atoms, reward + discount * (p @ atoms), atol=1e-4)


def test_q_is_the_mean_of_the_distribution() -> None:
    logits = np.log([[0.2, 0.3, 0.5]])
    np.testing.assert_allclose(value_of(logits, ATOMS), [0.3], atol=1e-6)
    np.testing.assert_allclose(value_of(np.array([[4.0]]), np.array([0.0])), [4.0])


def _networks(atoms: int) -> tuple[dict, dict]:
    rng = np.random.default_rng(3)
    return init_mlp(rng, (2, 8, 1)), init_mlp(rng, (3, 8, atoms))


def _batch(n: int = 4) -> Batch:
    rng = np.random.default_rng(1)
    x, x_next = rng.normal(size=(2, n, 2)).astype(np.float32)
    discount = np.array([0.9, 0.0, 0.9, 0.5], np.float32)
    u, reward = rng.uniform(-1, 1, (n, 1)).astype(np.float32), np.ones(n, np.float32)
    return Batch(x, u, reward, discount, x_next)


def test_one_atom_is_the_squared_td_error() -> None:
    actor, value = _networks(1)
    batch = _batch()
    ahead = np.asarray(critic(value, batch.x_next, policy(actor, batch.x_next)))[:, 0]
    now = np.asarray(critic(value, batch.x, batch.u))[:, 0]
    error = batch.reward + batch.discount * ahead - now
    goal = critic_goal(value, actor, batch, np.array([0.0], np.float32))
    loss = critic_loss(value, goal, batch.x, batch.u)
    assert float(loss) == pytest.approx(float(0.5 * (error**2).mean()), rel=1e-5)


def test_the_loss_is_the_cross_entropy_to_the_projected_target() -> None:
    actor, value = _networks(3)
    batch = _batch()
    logits = np.asarray(critic(value, batch.x_next, policy(actor, batch.x_next)))
    ahead = scipy.special.softmax(logits, axis=1)
    goal = np.asarray(project(batch.reward, batch.discount, ahead, ATOMS))
    q = scipy.special.softmax(np.asarray(critic(value, batch.x, batch.u)), axis=1)
    np.testing.assert_allclose(critic_goal(value, actor, batch, ATOMS), goal, atol=1e-6)
    loss = critic_loss(value, goal, batch.x, batch.u)
    assert float(loss) == pytest.approx(float(-(goal * np.log(q)).sum(axis=1).mean()), rel=1e-5)


def test_the_policy_goes_up_q() -> None:
    actor, value = _networks(3)
    x = _batch().x

    @jax.jit
    def mean_q(params: dict) -> jax.Array:
        return value_of(critic(value, x, policy(params, x)), ATOMS).mean()

    loss, slope = policy_gradient(actor, value, x, ATOMS, clip=np.inf, penalty=0.0)
    assert float(loss) == pytest.approx(-float(mean_q(actor)), rel=1e-5)
    for name, each in jax.jit(jax.grad(mean_q))(actor).items():
        np.testing.assert_allclose(slope[name], -each, atol=1e-6)


def test_the_slope_of_q_is_clipped_for_each_sample() -> None:
    actor, value = _networks(3)
    x = _batch().x
    steep = ATOMS * 1e4
    _, free = policy_gradient(actor, value, x, steep, clip=np.inf, penalty=0.0)
    _, clipped = policy_gradient(actor, value, x, steep, clip=1.0, penalty=0.0)
    # with one action the clipped slope is ±1: the gradient of the mean of ±π(x)
    slope = jax.jit(jax.grad(lambda u: value_of(critic(value, x, u), steep).sum()))
    sign = np.sign(slope(policy(actor, x)))
    wanted = jax.jit(jax.grad(lambda each: -(sign * policy(each, x)).mean()))(actor)
    for name in actor:
        np.testing.assert_allclose(clipped[name], wanted[name], rtol=1e-4, atol=1e-6)
    assert np.abs(free["w0"]).max() > 10 * np.abs(clipped["w0"]).max()


def test_the_penalty_pulls_saturated_actions_back_and_leaves_others_alone() -> None:
    actor, value = _networks(3)
    x = _batch().x

    @jax.jit
    def excess(params: dict) -> jax.Array:
        beyond = jnp.maximum(jnp.abs(forward(params, x)) - 2.0, 0.0)
        return 0.05 * jnp.square(beyond).sum() / len(x)

    far = {**actor, "b1": actor["b1"] + 5.0}
    for params in (actor, far):
        _, without = policy_gradient(params, value, x, ATOMS, clip=1.0, penalty=0.0)
        _, slope = policy_gradient(params, value, x, ATOMS, clip=1.0, penalty=0.1)
        for name, each in jax.jit(jax.grad(excess))(params).items():
            change = np.asarray(slope[name]) - np.asarray(without[name])
            np.testing.assert_allclose(change, each, rtol=1e-4, atol=1e-6)
    assert float(excess(actor)) == 0.0
    assert float(excess(far)) > 0.1
