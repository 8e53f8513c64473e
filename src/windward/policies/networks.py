"""The networks of D4PG: a layer-norm MLP for the policy and for the critic, as plain arrays.

x -> W_0 x + b_0 -> layer norm -> tanh -> (W_i · + b_i -> ELU) ... -> W_k · + b_k

as in Acme's LayerNormMLP. Parameters are a flat dictionary of arrays, so that they go to a file and
back by name, and the same network runs under JAX for learning and under NumPy for acting: on one
observation NumPy is quicker than the dispatch of a compiled call.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Params = Mapping[str, Any]
EPSILON = 1e-5
"""added to the variance of the layer norm"""


def init_mlp(
    rng: np.random.Generator, sizes: Sequence[int], last: float | None = None
) -> dict[str, np.ndarray]:
    """Parameters for layers of the given sizes, input and output included.

    Uniform with variance 1/(3·fan_out), biases 0, as in Acme; `last` instead gives the last layer
    a truncated normal of variance last/fan_in: near zero for a policy.
    """
    params: dict[str, np.ndarray] = {}
    for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        if last is not None and i == len(sizes) - 2:
            draw = np.clip(rng.standard_normal((fan_in, fan_out)), -2, 2)
            weights = draw * np.sqrt(last / fan_in)
        else:
            bound = np.sqrt(1.0 / fan_out)  # variance bound²/3 = 1/(3·fan_out)
            weights = rng.uniform(-bound, bound, (fan_in, fan_out))
        params[f"w{i}"] = weights.astype(np.float32)
        params[f"b{i}"] = np.zeros(fan_out, np.float32)
    params["scale"] = np.ones(sizes[1], np.float32)
    params["offset"] = np.zeros(sizes[1], np.float32)
    return params


def depth(params: Params) -> int:
    """How many linear layers there are."""
    return sum(name.startswith("w") for name in params)


@jax.custom_vjp
def _times(x: jax.Array, w: jax.Array) -> jax.Array:
    """x @ w, with a quicker gradient in w: XLA's CPU product of a transposed matrix is slow."""
    return x @ w


def _times_forward(x: jax.Array, w: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return x @ w, (x, w)


def _times_backward(
    saved: tuple[jax.Array, jax.Array], g: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, w = saved
    return g @ w.T, jax.lax.optimization_barrier(x.T) @ g


_times.defvjp(_times_forward, _times_backward)


@jax.custom_vjp
def _elu(x: jax.Array) -> jax.Array:
    # exp - 1 and not expm1: half the time, and exact enough next to a bias.
    return jnp.where(x > 0, x, jnp.exp(jnp.minimum(x, 0.0)) - 1.0)


def _elu_forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    y = _elu(x)
    return y, y


def _elu_backward(y: jax.Array, g: jax.Array) -> tuple[jax.Array]:
    # The derivative from the output: the exponential is not taken again.
    return (jnp.where(y > 0, g, g * (y + 1.0)),)


_elu.defvjp(_elu_forward, _elu_backward)


def hidden(params: Params, x: Any) -> jax.Array:
    """The last hidden layer under JAX, rows."""
    h = _times(x, params["w0"]) + params["b0"]
    centred = h - h.mean(axis=-1, keepdims=True)
    variance = jnp.square(centred).mean(axis=-1, keepdims=True)
    h = jnp.tanh(centred * jax.lax.rsqrt(variance + EPSILON) * params["scale"] + params["offset"])
    for i in range(1, depth(params) - 1):
        h = _elu(_times(h, params[f"w{i}"]) + params[f"b{i}"])
    return h


def forward(params: Params, x: Any) -> jax.Array:
    """The network under JAX, rows."""
    last = depth(params) - 1
    return _times(hidden(params, x), params[f"w{last}"]) + params[f"b{last}"]


def hidden_numpy(params: Params, x: np.ndarray) -> np.ndarray:
    """The last hidden layer under NumPy, rows."""
    h = x @ params["w0"] + params["b0"]
    h -= h.mean(axis=-1, keepdims=True)
    h /= np.sqrt(np.square(h).mean(axis=-1, keepdims=True) + EPSILON)
    h = np.tanh(h * params["scale"] + params["offset"])
    for i in range(1, depth(params) - 1):
        h = h @ params[f"w{i}"]
        h += params[f"b{i}"]
        # elu: with exp, which NumPy has in vector instructions, where expm1 is a call for each.
        below = np.exp(np.minimum(h, 0.0))
        below -= 1.0
        np.maximum(h, 0.0, out=h)
        h += below
    return h


def forward_numpy(params: Params, x: np.ndarray) -> np.ndarray:
    """The network under NumPy, rows."""
    last = depth(params) - 1
    return hidden_numpy(params, x) @ params[f"w{last}"] + params[f"b{last}"]


def plain_numpy(params: Params, x: np.ndarray) -> np.ndarray:
    """A plain MLP with tanh between its layers, as Stable-Baselines3's PPO has, rows."""
    last = depth(params) - 1
    h = x
    for i in range(last):
        h = np.tanh(h @ params[f"w{i}"] + params[f"b{i}"])
    return h @ params[f"w{last}"] + params[f"b{last}"]


def policy(params: Params, x: Any) -> jax.Array:
    """Actions in [-1, 1] under JAX."""
    return jnp.tanh(forward(params, x))


def policy_numpy(params: Params, x: np.ndarray) -> np.ndarray:
    """Actions in [-1, 1] under NumPy."""
    return np.tanh(forward_numpy(params, x))


def critic(params: Params, x: Any, u: Any) -> jax.Array:
    """Logits of the value distribution (or the value itself with one atom), rows."""
    return forward(params, jnp.concatenate([x, u], axis=-1))
