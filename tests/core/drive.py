"""What the tests of the core share: steps by hand, compiled observes, a world for every signal."""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import windward as ww


@lru_cache
def compiled(function: Any) -> Any:
    """One jit for each function object; equal recipes share theirs, so they share programs."""
    return jax.jit(function)


def step(
    c: Any,
    *,
    x: Any = None,
    u: Any = None,
    x_next: Any = None,
    terminated: Any = False,
    truncated: Any = False,
    valid: Any = True,
    **aux: Any,
) -> ww.Transition:
    """A transition of B = len(c) environments; flags may be one for all.

    Numbers stay in NumPy unless they are traced: each operation of JAX would compile.
    """
    dtype = jnp.zeros(()).dtype

    def array(value: Any, dtype: Any = dtype) -> Any:
        return value if isinstance(value, jax.Array) else np.asarray(value, dtype)

    c = array(c)
    (B,) = c.shape

    def flag(value: Any) -> Any:
        return np.broadcast_to(np.asarray(value, bool), (B,))

    nothing = np.zeros((B, 1), dtype)
    return ww.Transition(
        nothing if x is None else array(x),
        nothing if u is None else array(u, None),
        c,
        nothing if x_next is None else array(x_next),
        {name: array(value) for name, value in aux.items()},
        flag(terminated),
        flag(truncated),
        flag(valid),
    )


class Trace(NamedTuple):
    """What a run by hand showed: index k of a list is what held before (plan, M) step k + 1."""

    plans: list[ww.Plan]
    Ms: list[Any]
    infos: list[ww.Info]
    state: ww.State


def on_host(tree: Any) -> Any:
    """The same tree in NumPy."""
    return jax.tree.map(np.asarray, tree)


def play(algorithm: ww.Algorithm, units: Any, steps: list[ww.Transition]) -> Trace:
    """init with units[0], then one observe for each step; units[k] is behind plan k + 1."""
    units = np.asarray(units, jnp.zeros(()).dtype)
    state, plan = compiled(algorithm.init)(algorithm.hyper, units[0])
    observe = compiled(algorithm.observe)
    plans, Ms, infos = [on_host(plan)], [on_host(state.learner.M)], []
    for tr, unit in zip(steps, units[1:], strict=True):
        state, plan, info = observe(state, tr, unit)
        plans.append(on_host(plan))
        Ms.append(on_host(state.learner.M))
        infos.append(on_host(info))
    return Trace(plans, Ms, infos, state)


def leaves_equal(a: Any, b: Any) -> bool:
    """Whether two trees hold the same floats, bit for bit (NaN equal to NaN)."""
    la, lb = jax.tree.leaves(a), jax.tree.leaves(b)
    return len(la) == len(lb) and all(
        np.array_equal(np.asarray(p), np.asarray(q), equal_nan=True)
        if jnp.issubdtype(p.dtype, jnp.floating)
        else np.array_equal(np.asarray(p), np.asarray(q))
        for p, q in zip(la, lb, strict=True)
    )


# A world that can answer every signal: d_x = d_u = d_w = 2, two actions where they are discrete.
D = 2
GAMMA = 0.9
A = np.array([[0.8, 0.1], [-0.1, 0.7]])
PUSH = np.array([[0.5, -0.2], [-0.3, 0.4]])  # what each discrete action does


def world(needs: tuple[str, ...], x: Any, u: Any, t: Any) -> ww.Transition:
    """One step of B environments; environment 0 terminates and environment 1 is cut off."""
    B = x.shape[0]
    discrete = jnp.issubdtype(u.dtype, jnp.integer)
    force = jnp.asarray(PUSH, x.dtype)[u] if discrete else u
    w = 0.3 * jnp.sin(t + jnp.arange(B)[:, None] + jnp.arange(D)).astype(x.dtype)
    x_pred = x @ jnp.asarray(A.T, x.dtype) + force
    x_next = x_pred + w
    c = jnp.sum(x**2, -1) + 0.5 * jnp.sum(force**2, -1)
    aux = {
        "w": w,
        "x_pred": x_pred,
        "v_next": 2 * jnp.sum(x_next**2, -1),
        "q": c + GAMMA * 2 * jnp.sum(x_pred**2, -1),
        "grad_q_minus_c": GAMMA * 4 * x_pred,
        "c_vec": x,
        "v_vec_next": 3 * x_next,
        "q_vec": x + GAMMA * 3 * x_pred,
        "logits": x,
    }
    env = jnp.arange(B)
    terminated = (env == 0) & (t % 5 == 4)
    truncated = (env == 1) & (t % 7 == 6)
    aux = {name: aux[name] for name in needs}
    return ww.Transition(x, u, c, x_next, aux, terminated, truncated, jnp.ones(B, bool))


def act(algorithm: ww.Algorithm, plan: ww.Plan, x: Any) -> Any:
    """The action on top of u = -x/2, or on top of logits x."""
    return algorithm.apply(plan, x if "logits" in algorithm.needs else -0.5 * x)


def start(B: int) -> Any:
    return jnp.ones((B, D)) * (1 + jnp.arange(B)[:, None])


def draws(algorithm: ww.Algorithm, key: Any, T: int, B: int) -> Any:
    """The T + 1 unit draws of a run."""
    return jax.vmap(lambda k: algorithm.unit(k, B))(jax.random.split(key, T + 1))


def rollout(algorithm: ww.Algorithm, hyper: Any, units: Any) -> Any:
    """A whole run of the world in one scan: the final state, and each step's plan and info."""

    def advance(carry: Any, now: Any) -> Any:
        x, state, plan = carry
        t, unit = now
        tr = world(algorithm.needs, x, act(algorithm, plan, x), t)
        state, plan, info = algorithm.observe(state, tr, unit)
        x = jnp.where((tr.terminated | tr.truncated)[:, None], start(x.shape[0]), tr.x_next)
        return (x, state, plan), (plan, info, tr.c)

    state, plan = algorithm.init(hyper, units[0])
    T, B = units.shape[0] - 1, units.shape[1]
    (_, state, _), out = jax.lax.scan(advance, (start(B), state, plan), (jnp.arange(T), units[1:]))
    return state, out
