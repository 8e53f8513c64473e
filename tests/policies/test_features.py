"""What PD2 is a value of."""

import gymnasium as gym
import numpy as np
import pytest

from windward.policies.actions import ActionCode
from windward.policies.critics import NetworkCritic
from windward.policies.features import as_features, hidden, linear, random_projection
from windward.policies.networks import hidden_numpy, init_mlp, policy_numpy

SPACE = gym.spaces.Box(-np.inf, np.inf, (3,))
IMAGE = gym.spaces.Box(0, 255, (4, 4, 3), np.uint8)


def test_identity_and_linear() -> None:
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(as_features("identity", SPACE)(x), x)
    L = np.array([[1.0, 0.0, -1.0]])
    phi = as_features(L, SPACE)
    assert phi.d_w == 1
    np.testing.assert_array_equal(phi(x), x @ L.T)


def test_a_random_projection_keeps_size_and_scales_bytes() -> None:
    phi = random_projection(IMAGE, 64, seed=1)
    white = np.full((1, 4, 4, 3), 255, np.uint8)
    rng = np.random.default_rng(1)
    L = rng.standard_normal((64, 48)) / np.sqrt(48)
    np.testing.assert_allclose(phi(white)[0], L.sum(axis=1), rtol=1e-4, atol=1e-4)
    assert as_features("random:5", IMAGE)(white).shape == (1, 5)


def test_the_hidden_layer_of_a_critic() -> None:
    rng = np.random.default_rng(0)
    actor, network = init_mlp(rng, (3, 8, 2)), init_mlp(rng, (5, 16, 12, 4))
    space = gym.spaces.Box(-1.0, 1.0, (2,))
    critic = NetworkCritic(actor, network, np.linspace(-1, 1, 4), space, 0.99)
    x = rng.standard_normal((5, 3)).astype(np.float32)
    both = np.concatenate([x, policy_numpy(actor, x)], axis=1)
    phi = hidden(critic, units=7)
    assert phi.d_w == 7
    np.testing.assert_allclose(phi(x), hidden_numpy(network, both)[:, :7], rtol=1e-5)
    assert hidden(critic).d_w == 12
    with pytest.raises(ValueError, match="has 12 units; asked for 13"):
        hidden(critic, units=13)


def test_a_function_of_one_observation() -> None:
    x = np.arange(12.0).reshape(4, 3)
    phi = as_features(lambda each: each[:2] ** 2, SPACE)
    np.testing.assert_array_equal(phi(x), x[:, :2] ** 2)


@pytest.mark.parametrize(
    ("features", "space", "message"),
    [
        ("identity", IMAGE, "give features='random:8'"),
        ("random:0", SPACE, "d_w must be an integer of at least 1; got 0"),
        ("random:", SPACE, "features must be 'identity'"),
        (lambda x: x[9], SPACE, "function from one observation, here of shape"),
        (np.array([1.0, np.nan, 0.0])[None], SPACE, "L must be finite"),
        ("identity", gym.spaces.Discrete(3), "need observations in a Box"),
    ],
)
def test_bad_features_are_named(features: object, space: gym.Space, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_features(features, space)


def test_a_wrong_matrix_is_named() -> None:
    with pytest.raises(ValueError, match=r"column for each of 2 coordinates"):
        linear(np.eye(3))(np.ones((1, 2)))


def test_actions_and_back() -> None:
    box = gym.spaces.Box(np.array([-1.0, -np.inf], np.float32), np.array([3.0, np.inf], np.float32))
    code = ActionCode(box)
    u = np.array([[-1.0, 7.0], [3.0, -4.0], [1.0, 0.0]], np.float32)
    np.testing.assert_array_equal(code.encode(u), [[-1, 7], [1, -4], [0, 0]])
    np.testing.assert_array_equal(code.decode(code.encode(u)), u)
    assert code.decode(np.array([[5.0, 0.0]]))[0, 0] == 3.0  # never outside the bounds
    index = ActionCode(gym.spaces.Discrete(3, start=2))
    np.testing.assert_array_equal(index.encode([2, 4]), [[1, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(index.decode(index.encode([2, 4])), [2, 4])
    with pytest.raises(ValueError, match="MultiBinary"):
        ActionCode(gym.spaces.MultiBinary(2))
