"""One network under JAX and NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from windward.policies.networks import _elu, forward, forward_numpy, init_mlp, policy, policy_numpy


@pytest.mark.parametrize("sizes", [(3, 8, 2), (5, 16, 16, 4), (11, 32, 32, 32, 51)])
def test_numpy_and_jax_agree(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    params = init_mlp(rng, sizes)
    x = rng.normal(size=(7, sizes[0])).astype(np.float32)
    np.testing.assert_allclose(forward_numpy(params, x), forward(params, x), atol=1e-5)
    np.testing.assert_allclose(policy_numpy(params, x), policy(params, x), atol=1e-5)


def test_the_network_by_hand() -> None:
    params = {
        "w0": np.array([[1.0, 3.0]], np.float32), "b0": np.zeros(2, np.float32),
        "scale": np.ones(2, np.float32), "offset": np.zeros(2, np.float32),
        "w1": np.array([[2.0], [0.0]], np.float32), "b1": np.array([0.5], np.float32),
        "w2": np.array([[3.0]], np.float32), "b2": np.array([1.0], np.float32),
    }  # fmt: skip
    # layer norm of (1, 3) is (-1, 1); 2·tanh(-1) + 0.5 < 0, so ELU; times 3, plus 1
    inner = 2 * np.tanh(-1.0) + 0.5
    expected = 3 * (np.exp(inner) - 1) + 1
    got = forward_numpy(params, np.ones((1, 1), np.float32))
    assert got[0, 0] == pytest.approx(expected, rel=1e-4)


def test_elu_and_its_slope_are_those_of_jax() -> None:
    x = jnp.linspace(-6.0, 6.0, 101)
    np.testing.assert_allclose(_elu(x), jax.nn.elu(x), atol=1e-6)
    np.testing.assert_allclose(
        jax.vmap(jax.grad(_elu))(x), jax.vmap(jax.grad(jax.nn.elu))(x), atol=1e-6
    )


def test_fresh_weights_have_the_stated_spread() -> None:
    params = init_mlp(np.random.default_rng(0), (300, 400, 200), last=1e-4)
    assert params["w0"].var() == pytest.approx(1 / (3 * 400), rel=0.02)
    assert np.abs(params["w1"]).max() == pytest.approx(2 * np.sqrt(1e-4 / 400))
    assert not params["b0"].any()
