"""What a draw is credited with: the number, or one number for each lag, that meets its score.

The paper credits every draw with the plain cost of each of the next h steps (`cost`). The others
go beyond it: each takes away a part of the cost that the draw cannot have caused, which leaves the
mean of the estimate as it was and takes from its variance. They compose with `chain`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from windward.core import history, regression, signals
from windward.types import Array, Hyper, Local, PyTree, Transition

MEAN_STEPS = 500.0
"""steps that a running mean of the cost is taken over"""


class Look(NamedTuple):
    """One step of B environments, as a credit sees it."""

    tr: Transition
    local: Local  # step t is in its records, ŵ_t is not yet in its windows
    w_hat: Array  # (B, d_w): ŵ_t
    accepted: Array  # (B,) bool; what a refused row holds need not be finite


class Credit(NamedTuple):
    """``init()`` gives the state; ``update(state, look, hyper)`` gives state and credits (B, ...).

    ``needs`` names the aux values that it looks at.
    """

    init: Callable[[], PyTree]
    update: Callable[[PyTree, Look, Hyper], tuple[PyTree, Array]]
    needs: tuple[str, ...] = ()


class Rewrite(NamedTuple):
    """A part of a `chain`: ``update(state, credits, look, hyper)`` gives state and new credits."""

    init: Callable[[], PyTree]
    update: Callable[[PyTree, Array, Look, Hyper], tuple[PyTree, Array]]


def chain(first: Credit, *rewrites: Rewrite) -> Credit:
    """The credits of `first`, rewritten by each of the others in turn."""

    def init() -> PyTree:
        return (first.init(), *(each.init() for each in rewrites))

    def update(state: PyTree, look: Look, hyper: Hyper) -> tuple[PyTree, Array]:
        now, given = first.update(state[0], look, hyper)
        states = [now]
        for each, own in zip(rewrites, state[1:], strict=True):
            now, given = each.update(own, given, look, hyper)
            states.append(now)
        return tuple(states), given

    return Credit(init, update, first.needs)


def row_by_row(one: Callable[..., tuple[PyTree, Any]]) -> Callable[..., tuple[PyTree, Any]]:
    """``one(state, row) -> state, out`` on B rows in turn, refused ones left out.

    ``row`` holds a boolean ``accepted`` and what `one` reads. Environments that share M share what
    they learn.
    """

    def step(state: PyTree, row: Any) -> tuple[PyTree, Any]:
        accepted, row = row
        new, out = one(state, row)
        return history.keep_if(accepted, new, state), history.zero_if(~accepted, out)

    def rows(state: PyTree, accepted: Array, row: Any) -> tuple[PyTree, Any]:
        if len(accepted) == 1:  # no loop around the usual case
            state, out = step(state, jax.tree.map(lambda leaf: leaf[0], (accepted, row)))
            return state, jax.tree.map(lambda leaf: leaf[None], out)
        return jax.lax.scan(step, state, (accepted, row))

    return rows


def cost() -> Credit:
    """The cost c_t(x_t, u_t) itself, as in `algo:generic`, `algo:discrete`, `algo:banditgpc`."""
    return Credit(lambda: (), lambda state, look, hyper: (state, look.tr.c))


def residual(lags: int) -> Credit:
    """c_t - c_{t-1-i} for the draw of step t-i, i < lags: the last cost that it could not change.

    Residual feedback (Zhang et al. 2020). The records must hold lags + 1 costs, as ``c``; what is
    before an episode's start counts as 0.
    """

    def update(state: PyTree, look: Look, hyper: Hyper) -> tuple[PyTree, Array]:
        past = look.local.records["c"]
        weights = look.tr.c[:, None] - past[:, 1 : lags + 1]
        return state, jnp.pad(weights, ((0, 0), (0, 1)))

    return Credit(lambda: (), update)


def advantage(gamma: float) -> Credit:
    """The TD error of the base policy's value, δ_t = c_t + γV(x_{t+1}) - V(x_t).

    With the trace (γλ)^i it makes λ-advantages. V(x_{t+1}) = 0 on termination. Its mean is the
    gradient of the cost to go as V sees it: V knows neither the wind nor M, which is its bias.
    """

    def update(state: PyTree, look: Look, hyper: Hyper) -> tuple[PyTree, Array]:
        aux = look.tr.aux
        v_next = jnp.where(look.tr.terminated, 0.0, aux[signals.V_NEXT])
        delta = look.tr.c + gamma * v_next - aux[signals.V_NOW]
        return state, jnp.where(look.accepted, delta, 0.0)

    return Credit(lambda: (), update, (signals.V_NOW, signals.V_NEXT))


def running_mean() -> Rewrite:
    """Takes away the mean of past credits: c_t - b, b ← b + (c_t - b)/min(t, 500)."""

    def one(state: PyTree, c: Array) -> tuple[PyTree, Array]:
        mean, count = state
        count = count + 1.0
        credit = jnp.where(count > 1, c - mean, 0.0)
        return (mean + (c - mean) / jnp.minimum(count, MEAN_STEPS), count), credit

    rows = row_by_row(one)

    def update(state: PyTree, given: Array, look: Look, hyper: Hyper) -> tuple[PyTree, Array]:
        return rows(state, look.accepted, given)

    return Rewrite(lambda: (jnp.zeros(()), jnp.zeros(())), update)


class Regressed(NamedTuple):
    """What a regression on ŵ knows."""

    spectrum: regression.Spectrum
    sizes: regression.Sizes
    fit: PyTree


COMPONENTS = 20
"""components of the window of ŵ whose products explain the cost"""
PRIOR = 1.0


def on_disturbances(
    h: int, d_w: int, components: int = COMPONENTS, fit_every: int | None = 1
) -> Rewrite:
    """Takes away what recent ŵ explain: c_t - θᵀf(ŵ_{t-1:t-h}), θ by recursive least squares.

    f are products of the leading components of the window and 1. Under a stable base policy the
    cost is nearly a function of recent ŵ and draws; ŵ are known and the draws are not in f, so the
    mean of the estimate stays. What is taken away is predicted before c_t is learned from.
    ``fit_every`` is that of `regression.fitter`.
    """
    r = min(components, h * d_w)
    products = regression.quadratic(r + 1)
    fitter = regression.fitter(products.n, 1, PRIOR, every=fit_every)

    def init() -> Regressed:
        return Regressed(
            regression.spectrum_init(h * d_w, r),
            regression.sizes_init(r),
            fitter.init(),
        )

    def one(state: Regressed, row: tuple[Array, Array]) -> tuple[Regressed, Array]:
        c, window = row
        spectrum, y = regression.spectrum_step(state.spectrum, window)
        sizes, rms, _ = regression.sizes_step(state.sizes, y)
        f = products.features(jnp.append(y / rms, 1.0))
        credit = c - fitter.theta(state.fit)[0] @ f
        fit = fitter.step(state.fit, f, c[None], jnp.ones_like(f))
        return Regressed(spectrum, sizes, fit), credit

    rows = row_by_row(one)

    def update(state: PyTree, given: Array, look: Look, hyper: Hyper) -> tuple[PyTree, Array]:
        windows = look.local.w_hist[:, :h].reshape(len(given), -1)
        return rows(state, look.accepted, (given, windows))

    return Rewrite(init, update)


LIMIT = 3.0
"""credits beyond so many standard deviations are cut off"""


def normalised(h: int, variance: Callable[[Hyper], Array], on_windows: bool = True) -> Rewrite:
    """Credits over their size and that of the windows, so that η needs no units.

    credit · σ²/(rms(credit) · E‖ŵ_{t-1:t-h}‖²): a step then moves the correction by about η of the
    exploration noise, whatever the units of cost, ŵ and action. ``variance`` gives σ², that of a
    number of the draw; draws on M itself meet no windows.
    """

    def one(state: PyTree, row: tuple[Array, Array]) -> tuple[PyTree, Array]:
        credit, square = row
        sizes, rms, _ = regression.sizes_step(
            state, jnp.stack([jnp.sqrt(jnp.mean(credit**2)), jnp.sqrt(square)])
        )
        del rms  # sizes of two different units: each is taken by itself
        size, window = jnp.sqrt(sizes.square[0] + 1e-24), sizes.square[1] + 1e-24
        return sizes, jnp.clip(credit / size, -LIMIT, LIMIT) / (window if on_windows else 1.0)

    rows = row_by_row(one)

    def update(state: PyTree, given: Array, look: Look, hyper: Hyper) -> tuple[PyTree, Array]:
        square = jnp.sum(look.local.w_hist[:, :h] ** 2, axis=(1, 2))
        state, given = rows(state, look.accepted, (given, square))
        return state, given * variance(hyper)

    return Rewrite(lambda: regression.sizes_init(2), update)
