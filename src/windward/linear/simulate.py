"""Run an algorithm on a linear system: one scan over time, vmapped over seeds and grids."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from windward import checks
from windward.core.algorithm import Algorithm, Functions
from windward.linear import oracles
from windward.linear.costs import CostFunction, choose
from windward.linear.disturbances import Adversary
from windward.linear.runs import FIELDS, KEEP, Run, finish
from windward.linear.systems import System, check_stable
from windward.linear.values import quadratic_values
from windward.types import Array, Transition


class _Static(NamedTuple):
    """What a compiled program depends on besides shapes."""

    functions: Functions
    cost: CostFunction
    adversary: bool
    keep: tuple[str, ...]
    thin: int | None
    block: int  # steps whose draws are made at once


DRAWS_AT_ONCE = 2**22  # numbers; what bounds the memory of a block of draws


def _block(T: int, numbers_per_step: int) -> int:
    """How many steps' draws to make at once: as many as fit, rather a divisor of T.

    Draws depend on the step's own key alone, so the block changes speed and memory, not results.
    """
    most = min(T, max(1, DRAWS_AT_ONCE // numbers_per_step))
    return next((b for b in range(most, most // 2, -1) if T % b == 0), most)


def _one_run(static: _Static, hyper: Any, key: Array, data: Any, timed: Any) -> dict[str, Any]:
    """One seed at one point of the grid."""
    functions, cost = static.functions, static.cost

    def unit(t: Array) -> Array:
        return functions.unit(jax.random.fold_in(key, t), 1)

    def advance(carry: Any, now: Any) -> tuple[Any, dict[str, Array]]:
        x, state, plan, M_history = carry
        here = {**data, **now}
        u = functions.apply(plan, -oracles.apply(here["K"], x)[None])[0]
        c = cost(here, x, u, now["t"])
        x_mean = oracles.apply(here["A"], x) + oracles.apply(here["B"], u)
        if static.adversary:
            w = push_along(here["P_adversary"], x_mean, here["worst_axis"], here["bound"])
        else:
            w = now["w"]
        x_next = x_mean + w
        step = oracles.Step(x, u, x_mean, x_next, w)
        no, yes = jnp.zeros((1,), bool), jnp.ones((1,), bool)
        tr = Transition(
            x[None], u[None], c[None], x_next[None],
            oracles.aux(functions.needs, here, step), no, no, yes,
        )  # fmt: skip
        if static.thin is not None:
            slot = jnp.where(now["t"] % static.thin == 0, now["t"] // static.thin, -1)
            M_history = jax.tree.map(
                lambda past, m: past.at[slot].set(m, mode="drop", wrap_negative_indices=False),
                M_history,
                state.learner.M,
            )
        state, plan, info = functions.observe(state, tr, now["unit"])
        out = {"x": x, "u": u, "cost": c, "w_hat": info.w_hat[0], "w": w}
        out["gradient_norm"] = optax.tree.norm(info.gradient)
        return (x_next, state, plan, M_history), {name: out[name] for name in static.keep}

    state, plan = functions.init(hyper, unit(jnp.zeros((), jnp.int32)))
    M_history = None
    if static.thin is not None:
        slots = -(-len(timed["t"]) // static.thin)
        M_history = jax.tree.map(lambda m: jnp.zeros((slots, *m.shape), m.dtype), state.learner.M)
    carry = (data["x0"], state, plan, M_history)

    def block(carry: Any, steps: Any) -> tuple[Any, Any]:
        return jax.lax.scan(advance, carry, {**steps, "unit": jax.vmap(unit)(steps["t"] + 1)})

    whole = len(timed["t"]) // static.block * static.block
    blocks = jax.tree.map(
        lambda leaf: leaf[:whole].reshape(-1, static.block, *leaf.shape[1:]), timed
    )
    carry, out = jax.lax.scan(block, carry, blocks)
    out = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), out)
    if whole < len(timed["t"]):
        carry, rest = block(carry, jax.tree.map(lambda leaf: leaf[whole:], timed))
        out = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), out, rest)
    _, state, _, M_history = carry
    return {**out, "M": state.learner.M, "M_history": M_history}


def push_along(P: Array, x_mean: Array, axis: Array, bound: Array) -> Array:
    """Bound · Px/‖Px‖, and along the costliest axis where Px is 0."""
    gradient = oracles.apply(P, x_mean)
    norm = jnp.sqrt(jnp.sum(gradient**2))
    return bound * jnp.where(norm > 0, gradient / jnp.where(norm > 0, norm, 1.0), axis)


@lru_cache(maxsize=64)
def _program(
    static: _Static, grid: tuple[str, ...], timed_axes: tuple[tuple[str, bool], ...]
) -> Callable[..., Any]:
    """The compiled program: grid axis outside, seed axis inside."""
    axes = {name: 0 if has_seeds else None for name, has_seeds in timed_axes}

    def seeds(hyper: Any, keys: Array, data: Any, timed: Any) -> Any:
        def one(key: Array, timed: Any) -> Any:
            return _one_run(static, hyper, key, data, timed)

        return jax.vmap(one, (0, axes))(keys, timed)

    def everything(gridded: Any, fixed: Any, keys: Array, data: Any, timed: Any) -> Any:
        def point(gridded: Any) -> Any:
            return seeds({**fixed, **gridded}, keys, data, timed)

        return jax.vmap(point)(gridded) if grid else point({})

    return jax.jit(everything)


def _grid(algorithm: Algorithm) -> tuple[dict[str, np.ndarray], tuple[int, ...]]:
    """The gridded hyper flattened to one axis, and the shape of the grid."""
    arrays = {name: algorithm.hyper[name] for name in algorithm.grid}
    try:
        grid_shape = np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError as error:
        shapes = {name: array.shape for name, array in arrays.items() if array.ndim}
        raise ValueError(f"arrays of hyperparameters must broadcast; got {shapes}") from error
    if not grid_shape:
        return {}, ()
    return {
        name: np.broadcast_to(array, grid_shape).reshape(-1) for name, array in arrays.items()
    }, grid_shape


def _check_seeds(seed: Any) -> tuple[bool, list[int]]:
    """Whether it is one seed, and the list of seeds."""
    single = np.ndim(seed) == 0
    seeds = [checks.integer("seed", s, 0) for s in np.atleast_1d(np.asarray(seed)).tolist()]
    if not seeds or max(seeds) >= 2**32:
        raise ValueError(
            f"seed must be an int or a non-empty sequence of ints below 2**32; got {seed!r}"
        )
    return single, seeds


def _check_w(w: Any, system: System, seeds: int | None) -> tuple[np.ndarray, bool]:
    w = checks.finite_array("w", w, ndim=(2, 3))
    if w.shape[-1] != system.d_x:
        raise ValueError(f"w must have d_x = {system.d_x} columns; got an array of shape {w.shape}")
    if w.shape[-2] == 0:
        raise ValueError(f"w must have at least 1 step; got an array of shape {w.shape}")
    if w.ndim == 3 and w.shape[0] != seeds:
        raise ValueError(
            f"w with a leading axis must have one sequence for each seed; got shape {w.shape} "
            f"and {seeds if seeds is not None else 'a single'} seed(s)"
        )
    return w, w.ndim == 3


def simulate(
    system: System,
    algorithm: Algorithm,
    w: Any,
    *,
    K: Any,
    Q: Any = None,
    R: Any = None,
    cost: Callable[..., Any] | None = None,
    x0: Any = None,
    seed: int | Sequence[int] = 0,
    L: Any = None,
    simulator: System | None = None,
    keep: Sequence[str] = KEEP,
    M_every: int | None = None,
) -> Run:
    """Runs `algorithm` on top of u = -Kx for as many steps as `w` has.

    Args:
      system: x_{t+1} = A_t x_t + B_t u_t + w_t.
      w: (T, d_x); (seeds, T, d_x) for one sequence each; or an `adversarial` one.
      K: the base policy's gain; A - BK must be stable.
      Q, R: the cost xᵀQx + uᵀRu; or ``cost``: a JAX function (x, u) or (x, u, t) in their place.
      x0: initial state, 0 if None.
      seed: an int, or a sequence of them for a leading seed axis. The draws of a seed differ
        between float32 and float64.
      L: vector cost Lx of PD2; the identity if None.
      simulator: the system that PD3 predicts with; the true one if None.
      keep: what to return beside the cost, of x, u, w_hat, w and gradient_norm; less saves memory.
      M_every: also return M at every so many steps.

    Hyperparameters of the algorithm may be arrays: the result then has their axes in front, and
    ``diverged_at`` tells which entries diverged, and when.

    Raises:
      Diverged: a run without such a grid left the finite numbers; its finite part is attached.
    """
    if not isinstance(algorithm, Algorithm):
        raise ValueError(
            f"algorithm must be made by a recipe such as ww.bandit_gpc(d_u, d_w); got {algorithm!r}"
        )
    K = system.gain(K)
    if not system.varies:
        check_stable(system.closed_loop(K))
    single, seeds = _check_seeds(seed)
    if isinstance(keep, str):
        raise ValueError(f"keep must be a sequence of names; got {keep!r}: pass ({keep!r},)")
    for name in keep:
        checks.choice("keep", name, FIELDS)
    if M_every is not None:
        checks.integer("M_every", M_every, 1)

    function, costs = choose(system, Q, R, cost)
    data: dict[str, Any] = {"K": K, **costs}
    timed: dict[str, Any] = {}
    adversary = isinstance(w, Adversary)
    with_seeds = False
    if isinstance(w, Adversary):
        if Q is None:
            raise ValueError("an adversarial w needs Q and R, to know what costs most")
        P = quadratic_values(system, K, Q, R).P
        data |= {"P_adversary": P, "worst_axis": np.linalg.eigh(P)[1][:, -1], "bound": w.bound}
        T = w.T
    else:
        timed["w"], with_seeds = _check_w(w, system, None if single else len(seeds))
        T = timed["w"].shape[-2]
    if system.varies and system.steps != T:
        raise ValueError(f"w must have as many steps as A, {system.steps}; got {T}")
    (timed if system.varies else data).update({"A": system.A, "B": system.B})
    x0 = np.zeros(system.d_x) if x0 is None else checks.finite_array("x0", x0)
    checks.shape("x0", x0, (system.d_x,), "(d_x,)")
    data["x0"] = x0

    constant, changing = oracles.prepare(
        algorithm.needs, algorithm.signal, system, K, Q, R, algorithm.gamma, L,
        simulator or system, T,
    )  # fmt: skip
    data |= constant
    timed |= changing
    _check_dimensions(algorithm, system, data, T)

    grid, grid_shape = _grid(algorithm)
    fixed = {name: value for name, value in algorithm.hyper.items() if name not in grid}
    static = _Static(
        Functions(*(getattr(algorithm, field) for field in Functions._fields)),
        function,
        adversary,
        tuple(dict.fromkeys(("cost", *keep))),
        M_every,
        _block(T, _draw_size(algorithm) * len(seeds) * max(1, int(np.prod(grid_shape)))),
    )
    dtype = jnp.zeros(()).dtype
    as_float = lambda tree: jax.tree.map(lambda leaf: np.asarray(leaf, dtype), tree)  # noqa: E731
    timed = as_float(timed)
    axes = tuple((name, name == "w" and with_seeds) for name in timed)
    timed["t"] = np.arange(T, dtype=np.int32)
    program = _program(static, tuple(grid), (*axes, ("t", False)))
    keys = jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32))
    out = program(as_float(grid), as_float(fixed), keys, as_float(data), timed)
    return finish(out, grid_shape, single, T, algorithm)


def _draw_size(algorithm: Algorithm) -> int:
    return jax.eval_shape(lambda key: algorithm.unit(key, 1), jax.random.key(0)).size


def _check_dimensions(algorithm: Algorithm, system: System, data: Any, T: int) -> None:
    varying = np.asarray(algorithm.hyper.get("A", 0.0))  # of a GPC made for a varying system
    if varying.ndim == 3 and len(varying) != T:
        raise ValueError(f"the algorithm was made for {len(varying)} steps; w has {T}")
    if algorithm.d_u != system.d_u:
        raise ValueError(
            f"d_u of the algorithm must be the system's {system.d_u}; got {algorithm.d_u}"
        )
    expected = oracles.width(algorithm.signal, data, system.d_x, system.d_u)
    if expected is not None and algorithm.d_w != expected:
        raise ValueError(
            f"d_w must be {expected} for signal {algorithm.signal!r} on this system; got "
            f"{algorithm.d_w}"
        )
