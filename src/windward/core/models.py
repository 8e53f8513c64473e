"""Credits for each entry of each recent action, from models that are fitted while running.

Beyond the paper. What was added to the base action i steps ago, v_{t-i} = Σ_j M_j ŵ_{t-i-j} +
n_{t-i}, is credited with λ_i, an estimate of ∂c_t/∂v_{t-i}; the chain rule makes of it the gradient
Σ_i λ_i ⊗ J_{t-i} (`estimators.chain_rule`). Both models are exact on a linear system with quadratic
costs once the exploration noise has shown them every direction. λ is over the model's curvature,
so that η = 1 would be the step of Newton along the steepest direction.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
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
FORGET_COST = 1e-7
"""of the regression of the cost on ŵ and v, which does not change with M"""
UNIT = 3.0
"""of v in the regression of the cost, over σ at the start"""
PRIOR_COST = 1.0
PRIOR_STATE = 100.0
MOVE = 8.0
"""usual step of v at most, over the size of the exploration noise"""


def lags_of(h: int) -> int:
    """How many past v are credited: as long as a stable base policy's response, and 2h at least."""
    return max(2 * h, 10)


def _scaled(lam: Array, curvature: Array, square: Array, sigma: Array, progress: Array) -> Array:
    """λ over E‖window‖² and the curvature, at most so long as to move v by `MOVE` σ√d_u.

    A curvature that is not positive has been fitted to noise: nothing is learned from it. Steps
    grow from 0 while ``progress``, steps seen over coefficients, grows from 1 to 2.
    """
    step = lam / jnp.where(curvature > 0, curvature, 1.0)
    length = jnp.sum(jnp.sqrt(jnp.sum(step**2, axis=1)))
    limit = MOVE * sigma * np.sqrt(lam.shape[1])
    share = jnp.clip(progress - 1.0, 0.0, 1.0) / jnp.maximum(square, 1e-24)
    scaled = step * (share * jnp.minimum(1.0, limit / jnp.maximum(length, 1e-24)))
    return jnp.where((curvature > 0) & jnp.all(jnp.isfinite(scaled)), scaled, 0.0)


class Row(NamedTuple):
    """One step of one environment, as the models see it."""

    c: Array
    w_hat: Array
    window: Array  # (h d_w,)
    v: Array  # (lags, d_u), newest first
    n: Array  # (lags, d_u)
    sigma: Array
    aux: dict[str, Array]


def _credit(init: Callable[[], PyTree], one: Any, h: int, needs: tuple[str, ...]) -> Credit:
    """A credit from ``one(state, row) -> state, λ``."""
    rows = row_by_row(one)

    def update(state: PyTree, look: Look, hyper: Hyper) -> tuple[PyTree, Array]:
        B, local = len(look.accepted), look.local
        row = Row(
            look.tr.c, look.w_hat, local.w_hist[:, :h].reshape(B, -1), local.records["v"],
            local.records["n"], jnp.broadcast_to(hyper["sigma"], (B,)),
            {name: look.tr.aux[name] for name in needs},
        )  # fmt: skip
        return rows(state, look.accepted, row)

    return Credit(init, update, needs)


class CostModel(NamedTuple):
    """What `quadratic_cost` knows."""

    spectrum: regression.Spectrum
    sizes: regression.Sizes  # of φ
    unit: Array  # () of v: a change of it would be a change of the prior
    fit: PyTree


def quadratic_cost(
    h: int,
    d_u: int,
    d_w: int,
    components: int = COMPONENTS,
    steered: int = STEERED,
    traces: tuple[float, ...] = TRACES,
    fit_every: int | None = 1,
) -> Credit:
    """λ_i from a regression of the cost on ŵ and v: it sees the scalar cost and ŵ alone.

    c_t ≈ zᵀΘz, z = (1, φ, v_t, s¹_t, s²_t, ...), with φ the leading components of ŵ_{t-1:t-h} and
    s^k_t = (1-ρ_k) Σ_{i≥1} ρ_k^{i-1} v_{t-i}. Then λ_0 = 2(Θz)_v and
    λ_i = Σ_k (1-ρ_k) ρ_k^{i-1} 2(Θz)_{s^k}, at z without the draws.
    Θ holds no products of v with components beyond the first `steered`. It does not depend on
    M, so nothing has to be forgotten when M moves. ``fit_every`` is that of `regression.fitter`.
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
    fitter = regression.fitter(products.n, 1, PRIOR_COST, FORGET_COST, fit_every)

    def init() -> CostModel:
        return CostModel(
            regression.spectrum_init(h * d_w, r),
            regression.sizes_init(r),
            jnp.zeros(()),
            fitter.init(),
        )

    def one(state: CostModel, row: Row) -> tuple[CostModel, Array]:
        c, v, n = row.c, row.v, row.n
        kappa = jnp.asarray(kernel, v.dtype)
        spectrum, phi = regression.spectrum_step(state.spectrum, row.window)
        traced, quiet = (kappa @ v).ravel(), (kappa @ (v - n)).ravel()
        # V turns, so that what is learned early counts less anyway: nothing is rescaled.
        sizes, rms, _ = regression.sizes_step(state.sizes, phi)
        unit = jnp.where(state.unit > 0, state.unit, UNIT * row.sigma + 1e-12)
        front = jnp.ones((1,), v.dtype)
        z = jnp.concatenate([front, phi / rms, traced / unit])
        f = products.features(z)
        fit = fitter.step(state.fit, f, c[None], jnp.ones_like(f))
        Theta = products.matrix(fitter.theta(fit)[0])[1 + r :]
        z = jnp.concatenate([front, phi / rms, quiet / unit])
        slope = (2 * (Theta @ z) / unit).reshape(K, d_u)
        Theta_v = (Theta[:, 1 + r :] / unit**2).reshape(K, d_u, K, d_u)
        # Of a v that is held: what slow wind asks for.
        held = 2 * jnp.trace(jnp.sum(Theta_v, axis=(0, 2)))
        at_once = 2 * jnp.trace(Theta_v[0, :, 0])
        curvature, progress = jnp.maximum(held, at_once), sizes.seen / products.n
        lam = _scaled(kappa.T @ slope, curvature, spectrum.size, row.sigma, progress)
        return CostModel(spectrum, sizes, unit, fit), lam

    return _credit(init, one, h, ())


class StateModel(NamedTuple):
    """What `response` knows."""

    sizes: regression.Sizes  # of x, v, ŵ
    window: regression.Sizes
    dynamics: PyTree
    cost: PyTree  # nothing where the cost is known


def response(
    h: int,
    d_u: int,
    d_w: int,
    d_x: int,
    fit_every: int | None = 1,
    cost: Callable[[Array, Array], Array] | None = None,
) -> Credit:
    """λ_i from the response of the state to v and the slope of the cost in the state.

    x_{t+1} ≈ Âx_t + B̂v_t + Ĉŵ_t + d̂ (the loop closed by the base policy) and c_t ≈ zᵀΘz with
    z = (1, x_t, v_t), both by recursive least squares. The impulse response of x to v is
    B̂, ÂB̂, Â²B̂, ..., so λ_0 = ∂c/∂v and λ_i = B̂ᵀ(Âᵀ)^{i-1} ∂c/∂x, both at x_t as it was and v_t
    without its draw. Needs aux ``x`` and ``x_next``. With many states only squares are in Θ. A
    ``cost`` c(x, v) that is known takes the place of Θ, by its own slopes and second derivatives.
    """
    lags, n_z, n_r = lags_of(h), 1 + d_x + d_u, d_x + d_u + d_w + 1
    pairs = np.ones((n_z, n_z), bool)
    if n_z * (n_z + 1) // 2 > MOST_PRODUCTS:
        pairs = np.eye(n_z, dtype=bool)
        pairs[0] = True
    products = regression.quadratic(n_z, pairs.tobytes())
    motion = regression.fitter(n_r, d_x, PRIOR_STATE, every=fit_every)
    costs = regression.fitter(products.n, 1, PRIOR_STATE, every=fit_every)

    def init() -> StateModel:
        return StateModel(
            regression.sizes_init(n_r - 1),
            regression.sizes_init(1),
            motion.init(),
            costs.init() if cost is None else (),
        )

    def fitted(
        state: StateModel, c: Array, x: Array, v: Array, n: Array, rms: Array, grown: Array
    ) -> tuple[PyTree, Array, Array]:
        """The regression of the cost, its slope in (x, v) at v - n, and Θ without its constant."""
        m, unit = d_x + d_u, jnp.ones((1,), x.dtype)
        z = jnp.concatenate([unit, jnp.concatenate([x, v]) / rms])
        grown = products.features(jnp.concatenate([unit, grown]))
        fit = costs.step(state.cost, products.features(z), c[None], grown)
        Theta = products.matrix(costs.theta(fit)[0])
        quiet = jnp.concatenate([unit, jnp.concatenate([x, v - n]) / rms])
        return fit, 2 * (Theta[1:] @ quiet) / rms, Theta[1:, 1:] / (rms[:m, None] * rms[:m])

    def known(x: Array, v: Array) -> tuple[Array, Array]:
        """The slope of the known cost, and half its second derivatives."""
        assert cost is not None

        def joint(z: Array) -> Array:
            return cost(z[:d_x], z[d_x:])

        z = jnp.concatenate([x, v])
        return jax.grad(joint)(z), jax.hessian(joint)(z) / 2

    def one(state: StateModel, row: Row) -> tuple[StateModel, Array]:
        c, w_hat, v, n = row.c, row.w_hat, row.v[0], row.n[0]
        x, x_next = row.aux[signals.X_NOW], row.aux[signals.X_NEXT]
        sizes, rms, grown = regression.sizes_step(state.sizes, jnp.concatenate([x, v, w_hat]))
        window, _, _ = regression.sizes_step(state.window, jnp.sqrt(row.window @ row.window)[None])
        unit = jnp.ones((1,), x.dtype)
        regressors = jnp.concatenate([jnp.concatenate([x, v, w_hat]) / rms, unit])
        dynamics = motion.step(state.dynamics, regressors, x_next, jnp.concatenate([grown, unit]))
        m = d_x + d_u
        fit: PyTree = ()
        if cost is None:
            fit, slope, Theta = fitted(state, c, x, v, n, rms[:m], grown[:m])
        else:
            slope, Theta = known(x, v - n)
        theta = motion.theta(dynamics)
        A, B = theta[:, :d_x] / rms[:d_x], theta[:, d_x:m] / rms[d_x:m]
        back, held, ahead = slope[:d_x], jnp.zeros_like(B), B
        lam = [slope[d_x:]]
        for _ in range(1, lags):
            lam.append(B.T @ back)
            back, held, ahead = A.T @ back, held + ahead, A @ ahead
        J = jnp.concatenate([held, jnp.eye(d_u, dtype=x.dtype)])
        curvature = 2 * jnp.sum(J * (Theta @ J))  # its trace, for a v that is held
        progress = sizes.seen / (max(products.n, n_r) if cost is None else n_r)
        credit = _scaled(jnp.stack(lam), curvature, window.square[0], row.sigma, progress)
        return StateModel(sizes, window, dynamics, fit), credit

    return _credit(init, one, h, (signals.X_NOW, signals.X_NEXT))
