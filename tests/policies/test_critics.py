"""Critics of networks: values, gradients and the two forms of PD2's values."""

import gymnasium as gym
import jax
import numpy as np
import pytest

from windward.policies.critics import NetworkCritic
from windward.policies.features import linear
from windward.policies.networks import critic, init_mlp, policy
from windward.policies.vectors import CriticUnits, VectorHead, horizon

SPACE = gym.spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([3.0, 2.0], np.float32))
D_X, D_U = 3, 2


def _critic(atoms: np.ndarray) -> tuple[NetworkCritic, dict, dict]:
    rng = np.random.default_rng(2)
    actor, value = init_mlp(rng, (D_X, 16, D_U)), init_mlp(rng, (D_X + D_U, 16, 8, len(atoms)))
    return NetworkCritic(actor, value, atoms, SPACE, 0.99), actor, value


@pytest.fixture(params=[1, 5])
def parts(request: pytest.FixtureRequest) -> tuple[NetworkCritic, dict, dict, np.ndarray]:
    atoms = np.linspace(-10, 10, request.param, dtype=np.float32)
    return *_critic(atoms), atoms


def _points(n: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, D_X))
    return x, np.stack([rng.uniform(-1, 3, n), rng.uniform(0, 2, n)], axis=1)


def test_q_is_the_mean_of_the_network_at_the_scaled_action(parts: tuple) -> None:
    values, _, network, atoms = parts
    x, u = _points()
    scaled = np.stack([(u[:, 0] - 1) / 2, u[:, 1] - 1], axis=1)
    logits = np.asarray(critic(network, x.astype(np.float32), scaled.astype(np.float32)))
    wanted = logits[:, 0] if len(atoms) == 1 else np.asarray(jax.nn.softmax(logits)) @ atoms
    np.testing.assert_allclose(values.Q(x, u), wanted, rtol=1e-4, atol=1e-5)


def test_v_is_q_at_the_base_action(parts: tuple) -> None:
    values, actor, _, _ = parts
    x, _ = _points()
    base = np.asarray(policy(actor, x.astype(np.float32)))
    actions = np.stack([1 + 2 * base[:, 0], 1 + base[:, 1]], axis=1)
    np.testing.assert_allclose(values.V(x), values.Q(x, actions), rtol=1e-4, atol=1e-5)


def test_gradients_are_those_of_finite_differences(parts: tuple) -> None:
    values, *_ = parts
    x, u = _points()
    step = 1e-2
    for i in range(D_U):
        move = step * np.eye(D_U)[i]
        slope = (values.Q(x, u + move) - values.Q(x, u - move)) / (2 * step)
        np.testing.assert_allclose(values.grad_Q(x, u)[:, i], slope, rtol=2e-2, atol=2e-3)
    for i in range(D_X):
        move = step * np.eye(D_X)[i]
        slope = (values.V(x + move) - values.V(x - move)) / (2 * step)
        np.testing.assert_allclose(values.grad_V(x)[:, i], slope, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize(("d_x", "atoms", "d_w"), [(3, 5, 3), (7, 5, 5)])
def test_critic_units_are_the_first_logits(d_x: int, atoms: int, d_w: int) -> None:
    rng = np.random.default_rng(1)
    actor, network = init_mlp(rng, (d_x, 8, D_U)), init_mlp(rng, (d_x + D_U, 8, atoms))
    values = NetworkCritic(actor, network, np.linspace(-1, 1, atoms), SPACE, 0.99)
    units = CriticUnits(values, d_x, atoms)
    x, u = rng.standard_normal((4, d_x)), np.ones((4, 2))
    assert units.d_w == d_w
    np.testing.assert_allclose(units.c(x), x[:, :d_w], rtol=1e-6)
    np.testing.assert_array_equal(units.Q(x, u), values.logits_Q(x, u)[:, :d_w])
    np.testing.assert_array_equal(units.V(x), values.logits_V(x)[:, :d_w])


def test_a_vector_head_gives_values_of_its_features() -> None:
    rng = np.random.default_rng(1)
    L = rng.standard_normal((2, D_X))
    actor, network = init_mlp(rng, (D_X, 8, D_U)), init_mlp(rng, (D_X + D_U, 8, 2))
    head = VectorHead(actor, network, linear(L), 0.9, SPACE)
    x, u = _points()
    np.testing.assert_allclose(head.c(x), x @ L.T, rtol=1e-4, atol=1e-5)
    scaled = np.stack([(u[:, 0] - 1) / 2, u[:, 1] - 1], axis=1).astype(np.float32)
    wanted = horizon(0.9) * np.asarray(critic(network, x.astype(np.float32), scaled))
    np.testing.assert_allclose(head.Q(x, u), wanted, rtol=1e-4, atol=1e-4)
