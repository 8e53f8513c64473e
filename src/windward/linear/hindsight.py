"""The best fixed disturbance-action controller in hindsight, and regret against it.

States and controls are affine in a fixed M, so the total cost is convex in it: a least-squares
problem for quadratic costs, solved exactly, a convex program for others. It is unconstrained,
and so at least as good as the best M of the paper's set: regret here is never flattered.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.optimize

from windward import checks
from windward.linear.costs import CostFunction, choose
from windward.linear.runs import Run
from windward.linear.systems import System, check_stable
from windward.types import Array

CHUNK_NUMBERS = 2**24  # entries of the least-squares rows held at once
BLUR_NUMBERS = 2**22  # entries of the noise that smooths a cost with kinks


class BestDAC(NamedTuple):
    """The best M in hindsight, and its run: cost (T,), x (T, d_x), u (T, d_u)."""

    M: np.ndarray
    cost: np.ndarray
    x: np.ndarray
    u: np.ndarray


def _windows(w: np.ndarray, h: int) -> np.ndarray:
    """windows[t, i-1] = w_{t-i}, zero before the start: (T, h, d_x)."""
    padded = np.concatenate([np.zeros((h, w.shape[1])), w])
    return np.stack([padded[h - i : h - i + len(w)] for i in range(1, h + 1)], axis=1)


def _steps(system: System, w: np.ndarray, h: int) -> dict[str, np.ndarray]:
    T = len(w)
    return {
        "A": np.broadcast_to(system.A, (T, system.d_x, system.d_x)),
        "B": np.broadcast_to(system.B, (T, system.d_x, system.d_u)),
        "w": w,
        "window": _windows(w, h),
        "t": np.arange(T, dtype=np.int32),
    }


def _rollout(M: Array, x0: Array, K: Array, steps: Any, cost: CostFunction, data: Any) -> Any:
    """cost, x, u of a fixed M."""

    def advance(x: Array, now: Any) -> tuple[Array, Any]:
        u = -K @ x + jnp.einsum("iab,ib->a", M, now["window"])
        x_next = now["A"] @ x + now["B"] @ u + now["w"]
        return x_next, (cost(data, x, u, now["t"]), x, u)

    return jax.lax.scan(advance, x0, steps)[1]


def _responses(S: Array, K: Array, steps: Any) -> tuple[Array, tuple[Array, Array]]:
    """How states and controls depend on M: x_t = S_t[:, :-1] M + S_t[:, -1], u_t likewise by U_t.

    M is flattened; column (i, a, b) is what that entry alone would cause, and the last column
    is the run of M = 0. Returns S after the last step, and all S_t and U_t.
    """
    h, d_x = steps["window"].shape[1:]
    d_u = K.shape[0]

    def advance(S: Array, now: Any) -> tuple[Array, tuple[Array, Array]]:
        direct = jnp.einsum("ac,ib->ciab", jnp.eye(d_u), now["window"]).reshape(d_u, h * d_u * d_x)
        U = -K @ S + jnp.concatenate([direct, jnp.zeros((d_u, 1))], axis=1)
        return (now["A"] @ S + now["B"] @ U).at[:, -1].add(now["w"]), (S, U)

    return jax.lax.scan(advance, S, steps)


def _start(x0: Array, size: int) -> Array:
    return jnp.zeros((len(x0), size + 1)).at[:, -1].set(x0)


def _normal_equations(
    x0: Array, K: Array, steps: Any, Q_root: Array, R_root: Array, chunk: int
) -> tuple[Array, Array]:
    """G and g of the total cost MᵀGM + 2gᵀM + const, summed chunk by chunk."""
    T = len(steps["t"])
    size = int(np.prod(steps["window"].shape[1:])) * K.shape[0]

    def one_chunk(carry: Any, steps: Any) -> tuple[Any, None]:
        S, total = carry
        counts = steps.pop("counts")[:, None, None]
        S, (states, controls) = _responses(S, K, steps)
        rows = counts * jnp.concatenate([Q_root @ states, R_root @ controls], axis=1)
        rows = rows.reshape(-1, size + 1)
        return (S, total + rows.T @ rows), None

    pad = -T % chunk
    padded = {
        name: jnp.concatenate([leaf, jnp.zeros((pad, *leaf.shape[1:]), leaf.dtype)])
        for name, leaf in {**steps, "counts": jnp.ones(T)}.items()
    }
    chunks = {name: leaf.reshape(-1, chunk, *leaf.shape[1:]) for name, leaf in padded.items()}
    carry = (_start(x0, size), jnp.zeros((size + 1, size + 1)))
    (_, total), _ = jax.lax.scan(one_chunk, carry, chunks)
    return total[:-1, :-1], total[:-1, -1]


def _root(matrix: np.ndarray) -> np.ndarray:
    return np.real(scipy.linalg.sqrtm(matrix))


def best_dac(
    system: System,
    w: Any,
    *,
    K: Any,
    Q: Any = None,
    R: Any = None,
    cost: Callable[..., Any] | None = None,
    h: int = 5,
    x0: Any = None,
) -> BestDAC:
    """min_M Σ_t c_t(x_t^M, u_t^M) with u_t = -Kx_t + Σ_{i=1..h} M_i w_{t-i}, M fixed.

    Exact for quadratic costs (the solution of least norm where there are many); for a convex
    ``cost`` (x, u) or (x, u, t), by L-BFGS, with smoothing that is taken back for costs with
    kinks (it holds T (d_x + d_u) dim M numbers in memory). Computed in float64.
    """
    h = checks.integer("h", h, 1)
    w = checks.finite_array("w", w, ndim=2)
    if len(w) == 0:
        raise ValueError(f"w must have at least 1 step; got an array of shape {w.shape}")
    checks.shape("w", w, (len(w), system.d_x), "(T, d_x)")
    K = system.gain(K)
    if system.varies:
        if system.steps != len(w):
            raise ValueError(f"w must have as many steps as A, {system.steps}; got {len(w)}")
    else:
        check_stable(system.closed_loop(K))
    x0 = np.zeros(system.d_x) if x0 is None else checks.finite_array("x0", x0)
    checks.shape("x0", x0, (system.d_x,), "(d_x,)")
    M_shape = (h, system.d_u, system.d_x)
    steps = _steps(system, w, h)
    function, data = choose(system, Q, R, cost)
    with jax.enable_x64(True):
        if cost is None:
            rows = (system.d_x + system.d_u) * (np.prod(M_shape) + 1)
            chunk = int(np.clip(CHUNK_NUMBERS // rows, 1, len(w)))
            G, g = jax.jit(_normal_equations, static_argnums=5)(
                x0, K, steps, _root(data["Q"]), _root(data["R"]), chunk
            )
            M = np.linalg.lstsq(np.asarray(G), -np.asarray(g), rcond=1e-12)[0].reshape(M_shape)
        else:
            M = _minimise(function, x0, K, steps, M_shape)
        run = jax.jit(_rollout, static_argnums=4)(M, x0, K, steps, function, data)
        costs, x, u = (np.asarray(part) for part in run)
    return BestDAC(M, costs, x, u)


def _minimise(
    cost: CostFunction, x0: np.ndarray, K: np.ndarray, steps: Any, M_shape: tuple[int, ...]
) -> np.ndarray:
    """Convex minimisation of the total cost by L-BFGS.

    Kinks stall L-BFGS, so states and controls are blurred by a fixed sample of noise (mirrored,
    a sample of its own for each step), less and less, and not at all in the end.
    """
    size = int(np.prod(M_shape))
    _, (states, controls) = jax.jit(_responses)(_start(jnp.asarray(x0), size), K, steps)
    rng = np.random.default_rng(0)
    T = len(steps["t"])
    samples = int(np.clip(BLUR_NUMBERS // (T * sum(K.shape)), 1, 16))
    noise_x, noise_u = (rng.normal(size=(samples, T, d)) for d in K.shape[::-1])
    each = jax.vmap(lambda x, u, t: cost({}, x, u, t))

    @jax.jit
    def value_and_grad(flat: Array, blur: Array, states: Array, controls: Array) -> Any:
        def mean(flat: Array) -> Array:
            coefficients = jnp.append(flat, 1.0)
            x, u = states @ coefficients, controls @ coefficients

            def blurred(noise: Any) -> Array:
                e_x, e_u = blur * noise[0], blur * noise[1]
                plus, minus = each(x + e_x, u + e_u, steps["t"]), each(x - e_x, u - e_u, steps["t"])
                return jnp.mean(plus + minus) / 2

            return jnp.mean(jax.lax.map(blurred, (noise_x, noise_u)))

        return jax.value_and_grad(mean)(flat)

    def objective(flat: np.ndarray, blur: float) -> tuple[float, np.ndarray]:
        value, gradient = value_and_grad(flat, blur, states, controls)
        return float(value), np.asarray(gradient)

    flat = np.zeros(size)
    if not np.isfinite(objective(flat, 0.0)[0]):
        raise ValueError("cost must be finite at M = 0; it is not along the base policy's run")
    scale = float(jnp.sqrt(jnp.mean(states[..., -1] ** 2)))
    for blur in (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 0.0):
        result = scipy.optimize.minimize(
            objective, flat, args=(blur * scale,), jac=True, method="L-BFGS-B",
            options={"maxiter": 2000, "maxcor": 30, "ftol": 1e-13, "gtol": 1e-10, "maxls": 50},
        )  # fmt: skip
        flat = result.x
    return flat.reshape(M_shape)


def regret(run: Run, best: BestDAC) -> np.ndarray:
    """Σ_{s≤t} c_s - Σ_{s≤t} c_s^best for each t, with the run's leading axes: (..., T)."""
    costs = np.asarray(run.cost, np.float64)
    if costs.shape[-1] != len(best.cost):
        raise ValueError(
            f"run and best must have as many steps; got {costs.shape[-1]} and {len(best.cost)}"
        )
    return np.cumsum(costs - best.cost, axis=-1)
