"""Regressions learned while running: recursive least squares that float32 can carry.

Beyond the paper: `credit` and `models` fit the cost, and the state, with these.
"""

from collections.abc import Callable
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from windward.types import Array

FORGET = 1e-6
"""variance that each coefficient gains at a step: what was learned long ago counts less"""
MEMORY = 2000.0
"""steps over which sizes are averaged"""
EASY = 150
"""features whose covariance may be updated at every step of an environment that is quick"""
RAREST = 16
"""steps that wait for an update at most"""


class Fit(NamedTuple):
    """Coefficients and their covariance, in units of the residual's variance."""

    theta: Array  # (outputs, n)
    P: Array  # (n, n)


def fit_init(n: int, outputs: int, prior: float) -> Fit:
    """θ = 0, P = prior·I: a ridge of 1/prior."""
    return Fit(jnp.zeros((outputs, n)), prior * jnp.eye(n))


def fit_step(
    fit: Fit, features: Array, y: Array, rescale: Array, prior: float, forget: float = FORGET
) -> Fit:
    """One step of recursive least squares, written as a Kalman filter.

    k = Pf/(1 + fᵀPf); θ ← θ + k(y - θf); P ← P - k(Pf)ᵀ + forget·I.

    Process noise replaces the usual forgetting factor, under which P of a direction that is never
    excited (a constant ŵ) grows without bound. ``rescale`` is how much larger the unit of each
    feature has become, θ ← Dθ and P ← DPD; no variance is let above ``prior``. A step that would
    leave the finite numbers changes nothing.
    """
    theta = fit.theta * rescale
    variance = jnp.diagonal(fit.P) * rescale**2
    d = rescale * jnp.minimum(1.0, jnp.sqrt(prior / jnp.maximum(variance, 1e-30)))
    Pf = d * (fit.P @ (d * features))
    k = Pf / (1.0 + jnp.maximum(features @ Pf, 0.0))
    moved = theta + (y - theta @ features)[:, None] * k
    ok = jnp.all(jnp.isfinite(moved)) & jnp.all(jnp.isfinite(k))
    # One pass over P: it is the only large thing here.
    P = fit.P * (d[:, None] * d) - k[:, None] * Pf + forget * jnp.eye(len(features))
    return Fit(jnp.where(ok, moved, fit.theta), jnp.where(ok, P, fit.P))


class Waiting(NamedTuple):
    """A fit that learns from every so-many-th step on, and the steps that it has not learned from.

    θ has the units of the last step; P those of the last update.
    """

    fit: Fit
    features: Array  # (every, n)
    y: Array  # (every, outputs)
    rescale: Array  # (n,) since the last update
    seen: Array  # () int32: how many wait


class Fitter(NamedTuple):
    """``init()`` gives a state, ``step(state, features, y, rescale)`` the next, ``theta`` its θ."""

    init: Callable[[], Any]
    step: Callable[..., Any]
    theta: Callable[[Any], Array]


def every_of(n: int) -> int:
    """At which steps a fit of n features learns, where a step should stay quick.

    An update takes a time of n².

    >>> [every_of(n) for n in (66, 231, 441, 5000)]
    [1, 3, 9, 16]
    """
    return min(ceil((n / EASY) ** 2), RAREST)


def fitter(
    n: int, outputs: int, prior: float, forget: float = FORGET, every: int | None = 1
) -> Fitter:
    """A fit by `fit_step`, or by `block_step` with all steps since the last at every so-many-th.

    Nothing is left out; θ is only behind by less than ``every`` steps, `every_of` n if None.
    """
    k = every_of(n) if every is None else every
    if k == 1:

        def at_once(fit: Fit, features: Array, y: Array, rescale: Array) -> Fit:
            return fit_step(fit, features, y, rescale, prior, forget)

        return Fitter(lambda: fit_init(n, outputs, prior), at_once, lambda fit: fit.theta)

    def init() -> Waiting:
        nothing, none = jnp.zeros((k, n)), jnp.zeros((), jnp.int32)
        return Waiting(
            fit_init(n, outputs, prior), nothing, jnp.zeros((k, outputs)), jnp.ones(n), none
        )

    def update(w: Waiting) -> Waiting:
        fit = block_step(w.fit, w.features, w.y, w.rescale, prior, forget)
        return Waiting(fit, jnp.zeros_like(w.features), w.y, jnp.ones_like(w.rescale), 0 * w.seen)

    def step(w: Waiting, features: Array, y: Array, rescale: Array) -> Waiting:
        ok = jnp.all(jnp.isfinite(features)) & jnp.all(jnp.isfinite(y))
        features, y = jnp.where(ok, features, 0.0), jnp.where(ok, y, 0.0)
        more = Waiting(
            w.fit._replace(theta=w.fit.theta * rescale),
            (w.features / rescale).at[w.seen].set(features),
            w.y.at[w.seen].set(y),
            w.rescale * rescale,
            w.seen + 1,
        )
        # One of two programs is run: what is not due takes no time.
        return jax.lax.cond(more.seen == k, update, lambda same: same, more)

    return Fitter(init, step, lambda w: w.fit.theta)


def block_step(
    fit: Fit, features: Array, y: Array, rescale: Array, prior: float, forget: float = FORGET
) -> Fit:
    """`fit_step` with k steps at once, rows of features and y.

    K = PFᵀ(I + FPFᵀ)⁻¹; θ ← θ + (y - θFᵀ)Kᵀ; P ← P - KFP + k·forget·I. ``rescale`` is for P alone:
    θ has the new units already. But for what is forgotten on the way this is k times `fit_step`.
    """
    k, n = features.shape
    variance = jnp.diagonal(fit.P) * rescale**2
    d = rescale * jnp.minimum(1.0, jnp.sqrt(prior / jnp.maximum(variance, 1e-30)))
    FP = d * ((features * d) @ fit.P)
    S = FP @ features.T
    K = jnp.linalg.solve(jnp.eye(k) + (S + S.T) / 2, FP)  # its transpose
    moved = fit.theta + (y - features @ fit.theta.T).T @ K
    ok = jnp.all(jnp.isfinite(moved)) & jnp.all(jnp.isfinite(K))
    P = fit.P * (d[:, None] * d) - FP.T @ K + k * forget * jnp.eye(n)
    return Fit(jnp.where(ok, moved, fit.theta), jnp.where(ok, P, fit.P))


class Sizes(NamedTuple):
    """Mean squares of the entries of a vector, and the steps that they were taken over."""

    square: Array
    seen: Array  # (): steps


def sizes_init(n: int) -> Sizes:
    """Nothing seen."""
    return Sizes(jnp.zeros(n), jnp.zeros(()))


def sizes_step(sizes: Sizes, values: Array) -> tuple[Sizes, Array, Array]:
    """The sizes with `values` in them, root mean squares, and how much these have grown.

    An entry far smaller than the others counts as of 1e-4 of the largest, so that rounding errors
    in a signal that is 0 are not blown up. A square that is not finite any more is left out.
    """
    count = sizes.seen + 1.0
    square = sizes.square + (values**2 - sizes.square) / jnp.minimum(count, MEMORY)
    square = jnp.where(jnp.isfinite(square), square, sizes.square)
    rms = root(square)
    grown = jnp.clip(rms / root(sizes.square), 0.5, 2.0)
    return Sizes(square, count), rms, jnp.where(count > 1, grown, 1.0)


def root(square: Array) -> Array:
    """Root mean squares that one may divide by."""
    return jnp.sqrt(jnp.maximum(square, 1e-8 * jnp.max(square)) + 1e-24)


class Quadratic(NamedTuple):
    """Which products z_i z_j are features, and where the coefficient of each pair stands."""

    i: np.ndarray
    j: np.ndarray
    where: np.ndarray  # (n_z, n_z): the feature of a pair, or n for none
    half: np.ndarray  # (n_z, n_z): 1 on the diagonal, 1/2 elsewhere

    @property
    def n(self) -> int:
        """How many features there are."""
        return len(self.i)

    def features(self, z: Array) -> Array:
        """All z_i z_j."""
        return z[self.i] * z[self.j]

    def matrix(self, theta: Array) -> Array:
        """The symmetric Θ with θᵀfeatures(z) = zᵀΘz."""
        return jnp.asarray(self.half, theta.dtype) * jnp.append(theta, 0.0)[self.where]


@lru_cache
def quadratic(n_z: int, pairs: bytes | None = None) -> Quadratic:
    """Products of n_z numbers: all, or those allowed by a packed boolean (n_z, n_z)."""
    allowed = np.ones((n_z, n_z), bool)
    if pairs is not None:
        allowed = np.frombuffer(pairs, bool).reshape(n_z, n_z)
    # 32 bits: indices of 64 make JAX fail where a program was made in float64 before.
    i, j = (each.astype(np.int32) for each in np.nonzero(np.triu(allowed)))
    where = np.full((n_z, n_z), len(i), np.int32)
    where[i, j] = where[j, i] = np.arange(len(i))
    return Quadratic(i, j, where, np.where(np.eye(n_z, dtype=bool), 1.0, 0.5))


class Spectrum(NamedTuple):
    """The leading directions of a vector's covariance, columns of V."""

    V: Array  # (n, r)
    size: Array  # (): mean squared length
    seen: Array  # (): steps


@lru_cache
def _directions(n: int, r: int) -> np.ndarray:
    """Orthonormal columns in general position."""
    return np.linalg.qr(np.random.default_rng(0).normal(size=(n, r)))[0]


def spectrum_init(n: int, r: int) -> Spectrum:
    """Directions that favour no entry."""
    return Spectrum(jnp.asarray(_directions(n, r), jnp.zeros(()).dtype), *jnp.zeros((2,)))


def spectrum_step(spectrum: Spectrum, value: Array) -> tuple[Spectrum, Array]:
    """Oja's rule, V ← orth(V + g (s - VVᵀs)(Vᵀs)ᵀ), g ~ 10/t; and the components Vᵀs.

    A sinusoid's window has rank 2 whatever its length, a random walk's nearly d_w: so few
    components tell all of a long memory. Two steps of Newton and Schulz keep V orthonormal. A
    value whose square is not finite any more changes nothing.
    """
    V, size, count = spectrum
    count = count + 1.0
    square = value @ value
    size = size + (square - size) / jnp.minimum(count, MEMORY)
    y = value @ V
    rate = jnp.minimum(0.3, 10.0 / count) / jnp.maximum(jnp.maximum(size, square), 1e-24)
    V = V + rate * (value - V @ y)[:, None] * y
    for _ in range(2):
        V = 1.5 * V - 0.5 * V @ (V.T @ V)
    ok = jnp.isfinite(square)
    V, size = jnp.where(ok, V, spectrum.V), jnp.where(ok, size, spectrum.size)
    return Spectrum(V, size, count), value @ V
