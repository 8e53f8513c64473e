"""Credits for each entry of each recent action, from models that are fitted while running.

Beyond the paper. What was added to the base action i steps ago, v_{t-i} = Σ_j M_j ŵ_{t-i-j} +
n_{t-i}, is credited with λ_i, an estimate of ∂c_t/∂v_{t-i}; the chain rule makes of it the gradient
Σ_i λ_i ⊗ J_{t-i} (`estimators.chain_rule`). Both models are exact on a linear system with quadratic
costs once the exploration noise has shown them every direction. λ is over the model's curvature,
so that η = 1 would be the step of Newton along the steepest direction.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from windward.core import regression, signals
from windward.core.credit import Credit, Look, row_by_row
from windward.types import Array, Hyper, PyTree

COMPONENTS = 20
"""components of the window of ŵ whose products explain the cost"""
STEERED = 10
"""leading ones of them whose products with v do"""
TRACES = (0.0, 0.5, 0.8)
"""decay of the traces of past v that the cost is fitted on"""
MOST_PRODUCTS = 800
"""beyond so many products of states and actions only squares are fitted"""
MOVE = 0.5
"""largest step, over the size of v"""


def lags_of(h: int) -> int:
    """How many past v are credited: as long as a stable base policy's response, and 2h at least."""
    return max(2 * h, 10)


def _limited(
    lam: Array, curvature: Array, square: Array, v: regression.Sizes, progress: Array
) -> Array:
    """λ over the curvature and E‖window‖², at most so long as to move v by `MOVE` of its size.

    No step is made on a curvature that is not positive, and steps grow from 0 while the model is
    fitted (``progress``: steps seen over coefficients).
    """
    step = lam / jnp.where(curvature > 0, curvature, 1.0)
    length = jnp.sum(jnp.sqrt(jnp.sum(step**2, axis=1)))
    limit = MOVE * jnp.sqrt(jnp.sum(v.square))
    shrink = jnp.minimum(1.0, limit / jnp.maximum(length, 1e-24))
    share = jnp.clip(progress - 1.0, 0.0, 1.0) * shrink / jnp.maximum(square, 1e-24)
    return jnp.where((curvature > 0) & jnp.isfinite(share), share * step, 0.0)


class CostModel(NamedTuple):
    """What `quadratic_cost` knows."""

    spectrum: regression.Spectrum
    sizes: regression.Sizes  # of z without its 1
    fit: regression.Fit


def quadratic_cost(
    h: int,
    d_u: int,
    d_w: int,
    components: int = COMPONENTS,
    steered: int = STEERED,
    traces: tuple[float, ...] = TRACES,
) -> Credit:
    """λ_i from a regression of the cost on ŵ and v: it sees the scalar cost and ŵ alone.

    c_t ≈ zᵀΘz, z = (1, φ, v_t, s¹_t, s²_t, ...), with φ the leading components of ŵ_{t-1:t-h} and
    s^k_t = (1-ρ_k) Σ_{i≥1} ρ_k^{i-1} v_{t-i}. Then λ_0 = 2(Θz)_v and
    λ_i = Σ_k (1-ρ_k) ρ_k^{i-1} 2(Θz)_{s^k}, at z without the draws.
    Θ holds no products of v with components beyond the first `steered`. It does not depend on
    M, so nothing has to be forgotten when M moves.
    """
    r = min(components, h * d_w)
    r_v, lags, K = min(steered, r), lags_of(h), len(traces) + 1
    n_z = 1 + r + K * d_u
    pairs = np.ones((n_z, n_z), bool)
    pairs[1 + r_v : 1 + r, 1 + r :] = False
    products = regression.quadratic(n_z, pairs.tobytes())
    kernel = np.zeros((K, lags))
    kernel[0, 0] = 1.0
    for k, rho in enumerate(traces, 1):
        kernel[k, 1:] = (1 - rho) * np.power(rho, np.arange(lags - 1))
    prior = 1.0

    def init() -> CostModel:
        return CostModel(
            regression.spectrum_init(h * d_w, r),
            regression.sizes_init(n_z - 1),
            regression.fit_init(products.n, 1, prior),
        )

    def one(state: CostModel, row: tuple[Array, ...]) -> tuple[CostModel, Array]:
        c, window, v, n = row
        kappa = jnp.asarray(kernel, v.dtype)
        spectrum, phi = regression.spectrum_step(state.spectrum, window)
        traced, quiet = (kappa @ v).ravel(), (kappa @ (v - n)).ravel()
        sizes, rms, grown = regression.sizes_step(state.sizes, jnp.concatenate([phi, traced]))
        one = jnp.ones((1,), v.dtype)
        z = jnp.concatenate([one, phi / rms[:r], traced / rms[r:]])
        fit = regression.fit_step(
            state.fit, products.features(z), c[None],
            products.features(jnp.concatenate([one, grown])), prior, FORGET_COST,
        )  # fmt: skip
        Theta = products.matrix(fit.theta[0])
        z = jnp.concatenate([one, phi / rms[:r], quiet / rms[r:]])
        slope = (2 * (Theta[1 + r :] @ z) / rms[r:]).reshape(K, d_u)
        Theta_v = (Theta[1 + r :, 1 + r :] / (rms[r:, None] * rms[r:])).reshape(K, d_u, K, d_u)
        # Of a v that is held: what slow wind asks for.
        held = 2 * jnp.trace(jnp.sum(Theta_v, axis=(0, 2)))
        at_once = 2 * jnp.trace(Theta_v[0, :, 0])
        v_sizes = regression.Sizes(sizes.square[r : r + d_u], sizes.count)
        progress = sizes.count / products.n
        lam = _limited(
            kappa.T @ slope, jnp.maximum(held, at_once), spectrum.size, v_sizes, progress
        )
        return CostModel(spectrum, sizes, fit), lam

    rows = row_by_row(one)

    def update(state: PyTree, look: Look, hyper: Hyper) -> tuple[PyTree, Array]:
        local = look.local
        windows = local.w_hist[:, :h].reshape(len(look.accepted), -1)
        row = (look.tr.c, windows, local.records["v"], local.records["n"])
        return rows(state, look.accepted, row)

    return Credit(init, update)


FORGET_COST = 1e-7


class StateModel(NamedTuple):
    """What `response` knows."""

    sizes: regression.Sizes  # of x, v, ŵ
    window: regression.Sizes
    dynamics: regression.Fit
    cost: regression.Fit


def response(h: int, d_u: int, d_w: int, d_x: int) -> Credit:
    """λ_i from the response of the state to v and the slope of the cost in the state.

    x_{t+1} ≈ Âx_t + B̂v_t + Ĉŵ_t + d̂ (the loop closed by the base policy) and c_t ≈ zᵀΘz with
    z = (1, x_t, v_t), both by recursive least squares. The impulse response of x to v is
    B̂, ÂB̂, Â²B̂, ..., so λ_0 = ∂c/∂v and λ_i = B̂ᵀ(Âᵀ)^{i-1} ∂c/∂x, both at x_t as it was and v_t
    without its draw. Needs aux ``x`` and ``x_next``. With many states only squares are in Θ.
    """
    lags, n_z, n_r = lags_of(h), 1 + d_x + d_u, d_x + d_u + d_w + 1
    pairs = np.ones((n_z, n_z), bool)
    if n_z * (n_z + 1) // 2 > MOST_PRODUCTS:
        pairs = np.eye(n_z, dtype=bool)
        pairs[0] = True
    products = regression.quadratic(n_z, pairs.tobytes())
    prior = 100.0

    def init() -> StateModel:
        return StateModel(
            regression.sizes_init(n_r - 1),
            regression.sizes_init(1),
            regression.fit_init(n_r, d_x, prior),
            regression.fit_init(products.n, 1, prior),
        )

    def one(state: StateModel, row: tuple[Array, ...]) -> tuple[StateModel, Array]:
        c, x, x_next, w_hat, v, n, square = row
        sizes, rms, grown = regression.sizes_step(state.sizes, jnp.concatenate([x, v, w_hat]))
        window, _, _ = regression.sizes_step(state.window, jnp.sqrt(square)[None])
        unit = jnp.ones((1,), x.dtype)
        regressors = jnp.concatenate([jnp.concatenate([x, v, w_hat]) / rms, unit])
        dynamics = regression.fit_step(
            state.dynamics, regressors, x_next, jnp.concatenate([grown, unit]), prior
        )
        m = d_x + d_u
        z = jnp.concatenate([unit, regressors[:m]])
        grown_z = jnp.concatenate([unit, grown[:m]])
        fit = regression.fit_step(
            state.cost, products.features(z), c[None], products.features(grown_z), prior
        )
        Theta = products.matrix(fit.theta[0])
        quiet = jnp.concatenate([unit, regressors[:d_x], (v - n) / rms[d_x:m]])
        slope = 2 * (Theta[1:] @ quiet) / rms[:m]
        A, B = dynamics.theta[:, :d_x] / rms[:d_x], dynamics.theta[:, d_x:m] / rms[d_x:m]
        back, held, ahead = slope[:d_x], jnp.zeros_like(B), B
        lam = [slope[d_x:]]
        for _ in range(1, lags):
            lam.append(B.T @ back)
            back, held, ahead = A.T @ back, held + ahead, A @ ahead
        Theta = Theta[1:, 1:] / (rms[:m, None] * rms[:m])
        J = jnp.concatenate([held, jnp.eye(d_u, dtype=x.dtype)])
        curvature = 2 * jnp.sum(J * (Theta @ J))  # its trace, for a v that is held
        v_sizes = regression.Sizes(sizes.square[d_x:m], sizes.count)
        progress = sizes.count / max(products.n, n_r)
        credit = _limited(jnp.stack(lam), curvature, window.square[0], v_sizes, progress)
        return StateModel(sizes, window, dynamics, fit), credit

    rows = row_by_row(one)

    def update(state: PyTree, look: Look, hyper: Hyper) -> tuple[PyTree, Array]:
        aux, records = look.tr.aux, look.local.records
        square = jnp.sum(look.local.w_hist[:, :h] ** 2, axis=(1, 2))
        row = (
            look.tr.c, aux[signals.X_NOW], aux[signals.X_NEXT], look.w_hat,
            records["v"][:, 0], records["n"][:, 0], square,
        )  # fmt: skip
        return rows(state, look.accepted, row)

    return Credit(init, update, (signals.X_NOW, signals.X_NEXT))
