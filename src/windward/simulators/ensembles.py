"""Several small networks at once: learned together under JAX, asked under NumPy.

Each layer's weights have a leading axis for the members, so that all learn in one compiled program
and answer in one product. Between layers is tanh.
"""

from collections.abc import Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.progress import track

from windward.policies.networks import Params, depth

BLOCK = 250
"""updates in one compiled call, after which held-out rows are looked at"""
BATCH = 128
PATIENCE = 8
"""blocks without a member that does better on held-out rows before learning stops"""
RARE = 5.0
"""weight of a step of the rare class"""
CLASSES = "classes"
NUMBERS = "numbers"

ADAM = optax.scale_by_adam()


def init_ensemble(
    rng: np.random.Generator, members: int, sizes: Sequence[int]
) -> dict[str, np.ndarray]:
    """Parameters for layers of the given sizes; the last is 0, so that all begin by saying 0."""
    params: dict[str, np.ndarray] = {}
    for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        weights = rng.standard_normal((members, fan_in, fan_out)) / np.sqrt(fan_in)
        if i == len(sizes) - 2:
            weights[:] = 0.0
        params[f"w{i}"] = weights.astype(np.float32)
        params[f"b{i}"] = np.zeros((members, 1, fan_out), np.float32)
    return params


def forward(params: Params, x: jax.Array) -> jax.Array:
    """Under JAX: (members, n, in) to (members, n, out)."""
    last = depth(params) - 1
    for i in range(last):
        x = jnp.tanh(x @ params[f"w{i}"] + params[f"b{i}"])
    return x @ params[f"w{last}"] + params[f"b{last}"]


def forward_numpy(params: Params, x: np.ndarray) -> np.ndarray:
    """Under NumPy: rows to (members, n, out)."""
    last = depth(params) - 1
    h = x.astype(np.float32)
    for i in range(last):
        h = h @ params[f"w{i}"]
        h += params[f"b{i}"]
        np.tanh(h, out=h)
    return np.asarray(h @ params[f"w{last}"] + params[f"b{last}"])


def _losses(params: Params, x: jax.Array, y: jax.Array, kind: str) -> jax.Array:
    """The mean loss of each member on its own rows."""
    given = forward(params, x)
    if kind == CLASSES:
        weight = jnp.where(y > 0, RARE, 1.0)
        each = weight * optax.sigmoid_binary_cross_entropy(given, y)
    else:
        each = jnp.square(given - y)
    return each.mean(axis=(1, 2))


def _block(
    params: Params,
    memory: optax.OptState,
    rows: tuple[jax.Array, jax.Array],
    indices: jax.Array,
    rates: jax.Array,
    kind: str,
) -> tuple[Params, optax.OptState]:
    """Updates on the rows of each line of indices, (members, batch), at its learning rate."""

    def body(carry: tuple[Params, optax.OptState], each: tuple[jax.Array, jax.Array]) -> object:
        params, memory = carry
        index, rate = each
        slope = jax.grad(lambda p: _losses(p, rows[0][index], rows[1][index], kind).sum())(params)
        change, memory = ADAM.update(slope, memory)
        return (jax.tree.map(lambda p, d: p - rate * d, params, change), memory), None

    (params, memory), _ = jax.lax.scan(body, (params, memory), (indices, rates))  # type: ignore[arg-type]
    return params, memory


_learn_block = jax.jit(_block, static_argnames="kind")
_judge = jax.jit(_losses, static_argnames="kind")


def learn_ensemble(
    params: Params,
    rows: tuple[np.ndarray, np.ndarray],
    stop: tuple[np.ndarray, np.ndarray],
    *,
    kind: str = NUMBERS,
    updates: int,
    learning_rate: float,
    rng: np.random.Generator,
    label: str,
    progress_bar: bool = False,
) -> dict[str, np.ndarray]:
    """Adam on (inputs, targets); each member as it was when it did best on the rows `stop`.

    Members differ in where they begin and in the order of their rows. Learning ends early when none
    has done better for a while.
    """
    members, n = len(params["w0"]), len(rows[0])
    data = tuple(jnp.asarray(each, jnp.float32) for each in rows)
    held = [jnp.asarray(np.broadcast_to(y, (members, *y.shape)), jnp.float32) for y in stop]
    now = {name: jnp.asarray(each) for name, each in params.items()}
    memory, best = ADAM.init(now), now
    lowest = np.asarray(_judge(now, *held, kind=kind))
    blocks = max(1, updates // BLOCK)
    rates = learning_rate * 0.5 * (1 + np.cos(np.pi * np.arange(blocks * BLOCK) / blocks / BLOCK))
    waited = 0
    for block in track(range(blocks), label, disable=not progress_bar, transient=True):
        indices = rng.integers(0, n, (BLOCK, members, min(BATCH, n)))
        rate = rates[block * BLOCK : (block + 1) * BLOCK].astype(np.float32)
        now, memory = _learn_block(now, memory, data, indices, rate, kind=kind)
        losses = np.asarray(_judge(now, *held, kind=kind))
        better = losses < lowest  # never, of what is not finite
        lowest = np.where(better, losses, lowest)
        pick = jnp.asarray(better).reshape(-1, 1, 1)
        best = jax.tree.map(lambda new, old, pick=pick: jnp.where(pick, new, old), now, best)
        waited = 0 if better.any() else waited + 1
        if waited >= PATIENCE:
            break
    return {name: np.asarray(each) for name, each in best.items()}
