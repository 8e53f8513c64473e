"""Gauss-Newton on robust residuals with a prior, wind projected out or whitened by its own past.

    min_θ Σ_t ρ(P_t r_t(θ) / σ) + |θ|²/2

ρ is Huber's loss, σ the median size of each coordinate's residual. P_t takes out what a wind in
known directions could have done at step t, whatever its size; or residuals are whitened by an
autoregression, where the wind's direction is not known.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from windward.diagnosis.residuals import Residuals, Rows

HIDDEN = 0.02
"""share of a parameter's effect that must be left once a wind is taken out, for it to show"""
ROUNDING = 1e-14
"""share of a matrix's diagonal that keeps it from being singular by rounding"""
TINIEST = 1e-200
"""... and where all of it is 0"""
MAD = 1.4826
"""standard deviation of a normal variable over its median absolute value"""


@dataclass(frozen=True)
class FitSettings:
    """How the search for θ goes."""

    iterations: int = 20
    """at most"""
    huber: float = 2.0
    """residuals beyond so many σ count linearly, not squared"""
    longest: float = 2.0
    """largest change of a θ in one iteration, in prior standard deviations"""
    tolerance: float = 1e-6
    """a step this small ends the search"""
    settled: float = 0.05
    """... and so does one of this share of the standard deviations"""
    floor: float = 1e-7
    """smallest σ, in usual changes of a coordinate in a step: what the solver's tolerance leaves"""
    past: int = 8
    """order of the autoregression that whitens"""
    shares: tuple[float, ...] = (1.0, 0.5, 0.25, 0.0625, 0.0156)
    """of a Gauss-Newton step, the longest that lowers the loss is taken"""
    bends: int = 2
    """corrections of a step that does not lower the loss, by its own derivatives"""
    stall: float = 0.02
    """a search whose residuals shrink by a smaller share than this ..."""
    drop: float = 0.05
    """... and whose loss falls by a smaller one ..."""
    patience: int = 3
    """... in so many iterations in a row ends"""


class Diverged(ValueError):
    """A simulator that cannot follow the recorded steps."""


class ActionNoise(NamedTuple):
    """A wind on the action: what it must have been is fitted too, as noise.

    Parameters that act as the action does, gains and dampings, show in it alone.
    """

    amount: np.ndarray  # (m, k) that rows are pushed by already
    inside: np.ndarray  # (m, k) where that amount is not cut off by a bound
    rows: Rows
    """the rows without that push, and `effect` there: a gain multiplies the noise too, and a
    derivative with the noise in it would be correlated with the noise"""
    effect: np.ndarray  # (m, c, k)


class Whitening(NamedTuple):
    """What is taken out of residuals before they are fitted."""

    effect: np.ndarray | None = None  # (m, c, k) of a wind in known directions
    past: int = 0  # order of an autoregression, 0 for none; of an action's noise where there is one
    action: ActionNoise | None = None
    floor: float = 0.0
    """smallest σ of what is left once the wind is taken out: a share of what it does"""


class Fitted(NamedTuple):
    """θ where the search ended, and the quadratic model of the loss there."""

    theta: np.ndarray
    phi: np.ndarray  # θ = basis φ
    hessian: np.ndarray  # of the loss in φ, prior included
    score: np.ndarray  # gradient of the loss in φ
    scores: np.ndarray  # (blocks, φ) gradients of the loss in blocks of steps
    loss: float
    sigma: np.ndarray
    iterations: int
    slopes: np.ndarray | None = None  # (kept rows, c, φ) of r / σ, with the wind taken out
    pull: np.ndarray | None = None  # (kept rows, c) r / σ, cut as Huber's loss does


def whitened(
    r: np.ndarray,
    jacobian: np.ndarray,
    rows: Rows,
    how: Whitening,
    noise: bool = True,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(r, J, kept rows) with the wind taken out, and the action's `noise` beside it.

    Where an action is noisy J is that of the rows without the noise.
    """
    ok = np.isfinite(r).all(axis=1) & np.isfinite(jacobian).all(axis=(1, 2))
    r = np.where(ok[:, None], r, 0.0)
    jacobian = np.where(ok[:, None, None], jacobian, 0.0)
    if how.effect is None:
        return _autoregressed(r, jacobian, rows, ok, how.past) if how.past else (r, jacobian, ok)
    left, slopes = _projected(r, jacobian, how.effect)
    if how.action is not None and noise:
        slopes = _projected(r, jacobian, how.action.effect)[1]
        fresh, own = _action_noise(r, jacobian, rows, ok, how, how.action)
        return np.hstack([left, fresh]), np.concatenate([slopes, own], axis=1), ok
    if how.past:
        return _autoregressed(left, slopes, rows, ok, how.past)
    return left, slopes, ok


def _projected(
    r: np.ndarray, jacobian: np.ndarray, effect: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Takes out what `effect` spans at each step."""
    basis, triangle = np.linalg.qr(np.nan_to_num(effect))
    size = np.abs(np.diagonal(triangle, axis1=1, axis2=2))
    basis = basis * (size > 1e-9 * size.max())[:, None, :]
    r = r - np.einsum("tck,tk->tc", basis, np.einsum("tck,tc->tk", basis, r))
    along = np.einsum("tck,tcp->tkp", basis, jacobian)
    rest = jacobian - np.einsum("tck,tkp->tcp", basis, along)
    # What is left of a parameter that acts just as the wind does is an error of differences, large
    # at the few steps in which a contact begins or ends: its usual size tells.
    size, left = (np.sqrt(np.square(each).sum(axis=1)) for each in (jacobian, rest))
    return r, rest * (_usual(np.where(size > 0, left, 0.0)) > HIDDEN * _usual(size))


def _action_noise(
    r: np.ndarray,
    jacobian: np.ndarray,
    rows: Rows,
    ok: np.ndarray,
    how: Whitening,
    action: ActionNoise,
) -> tuple[np.ndarray, np.ndarray]:
    """Innovations of the action's noise (m, k) and their Jacobian; 0 where there is no past."""
    assert how.effect is not None
    noise = action.amount + np.einsum("tkc,tc->tk", np.linalg.pinv(np.nan_to_num(how.effect)), r)
    back = np.linalg.pinv(np.nan_to_num(action.effect))
    slopes = np.einsum("tkc,tcp->tkp", back, jacobian)
    kept = ok
    if how.past:
        noise, slopes, kept = _autoregressed(noise, slopes, rows, ok, how.past)
    shown = kept[:, None] & action.inside
    return noise * shown, slopes * shown[..., None]


def lagged(run: np.ndarray, order: int) -> np.ndarray:
    """Rows whose `order` predecessors are in the same run."""
    index = np.arange(order, len(run))
    return index[run[index] == run[index - order]]


def autoregression(y: np.ndarray, past: np.ndarray, rounds: int = 5) -> np.ndarray:
    """Robust least squares of y on its past, slightly damped."""
    size = np.median(np.abs(y)) + 1e-12
    weight = np.ones(len(y))
    damping = 1e-5 * size**2 * len(y) * np.eye(past.shape[1])
    coefficients = np.zeros(past.shape[1])
    for _ in range(rounds):
        scaled = past * weight[:, None]
        gram = scaled.T @ past + damping
        # A series that is next to nothing but for a few blows has a past that hardly varies.
        gram += (ROUNDING * np.trace(gram) + TINIEST) * np.eye(len(gram))
        coefficients = np.linalg.solve(gram, scaled.T @ y)
        rest = np.abs(y - past @ coefficients)
        usual = 2 * MAD * float(np.median(rest)) + 1e-15
        weight = usual / np.maximum(usual, rest)
    return coefficients


def predictable(w: np.ndarray, run: np.ndarray, order: int = 8) -> float:
    """Share of a series that its past tells, on the half that was not fitted."""
    index = lagged(run, order)
    if len(index) < 4 * order:
        return 0.0
    past = np.stack([w[index - k] for k in range(1, order + 1)], axis=1)
    now, half = w[index], len(index) // 2
    left = np.abs(now[half:] - past[half:] @ autoregression(now[:half], past[:half]))
    size = np.median(np.abs(now[half:])) + 1e-300
    return float(1 - np.square(min(float(np.median(left) / size), 1.0)))


def _autoregressed(
    r: np.ndarray, jacobian: np.ndarray, rows: Rows, ok: np.ndarray, order: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Residuals less what their own past says of them; rows without a past are dropped."""
    index = lagged(rows.run, order)
    if len(index) < 2 * order:
        return r, jacobian, ok
    fresh, slopes, kept = np.zeros_like(r), np.zeros_like(jacobian), np.zeros(len(r), dtype=bool)
    for c in range(r.shape[1]):
        past = np.stack([r[index - k, c] for k in range(1, order + 1)], axis=1)
        a = autoregression(r[index, c], past)
        fresh[index, c] = r[index, c] - past @ a
        slopes[index, c] = jacobian[index, c] - sum(
            a[k - 1] * jacobian[index - k, c] for k in range(1, order + 1)
        )
    kept[index] = True
    for k in range(order + 1):
        kept[index] &= ok[index - k]
    return fresh, slopes, kept


def _cut(z: np.ndarray, settings: FitSettings) -> np.ndarray:
    """The derivative of Huber's loss."""
    return np.clip(z, -settings.huber, settings.huber)


def huber(z: np.ndarray, k: float) -> np.ndarray:
    """Huber's loss."""
    size = np.abs(z)
    return np.where(size <= k, 0.5 * z * z, k * (size - 0.5 * k))


def spread(r: np.ndarray, floor: float) -> np.ndarray:
    """σ of each coordinate: the median size of its residuals."""
    return MAD * _usual(np.abs(r)) + floor


def _usual(size: np.ndarray) -> np.ndarray:
    """The median of each column; what is 0 to the bit was not there."""
    shown = np.where(size > 0, size, np.nan)
    some = np.isfinite(shown).any(axis=0)
    median = np.zeros(size.shape[1])
    median[some] = np.nanmedian(shown[:, some], axis=0)
    return median


def gauss_newton(
    residuals: Residuals,
    rows: Rows,
    basis: np.ndarray,
    start: np.ndarray,
    settings: FitSettings,
    how: Whitening | None = None,
) -> Fitted:
    """Fits θ = basis φ, each φ with a prior of N(0, 1), from the φ nearest to `start`."""
    how = how or Whitening()
    phi = np.linalg.lstsq(basis, start, rcond=None)[0]
    found: Fitted | None = None
    waited, smallest, drop = 0, float("inf"), 0.0
    for iteration in range(settings.iterations):
        found = quadratic(residuals, rows, basis, phi, settings, how)._replace(iterations=iteration)
        # An explanation that cannot do better is not worth the search.
        size = float(np.log(found.sigma).mean())
        waited = 0 if size < smallest - settings.stall or drop > settings.drop else waited + 1
        smallest = min(size, smallest)
        step = -solved(found.hessian, found.score)
        largest = float(np.abs(step).max(initial=0.0))
        error = 1 / np.sqrt(np.diag(found.hessian))
        settled = (np.abs(step) < settings.settled * error).all()
        # While residuals shrink so do errors, and the prior's pull with them.
        done = largest < settings.tolerance or (settled and waited > 0)
        if done or waited >= settings.patience:
            break
        step *= min(1.0, settings.longest / largest)
        phi, drop = _searched(residuals, rows, basis, phi, step, found, how, settings)
        if not drop > 0:
            break
    assert found is not None
    return found


def quadratic(
    residuals: Residuals,
    rows: Rows,
    basis: np.ndarray,
    phi: np.ndarray,
    settings: FitSettings,
    how: Whitening,
    central: bool = False,
    floor: float = 0.0,
    steps: int = 0,
) -> Fitted:
    """The quadratic model of the loss at φ; σ is at least `floor`.

    After `steps` of Newton's, in which residuals are taken to be linear in φ.
    """
    theta = basis @ phi
    if how.action is None:
        r, jacobian = residuals.jacobian(theta, rows, basis, central)
    else:
        r = residuals.at([theta], rows)[0]
        jacobian = residuals.jacobian(theta, how.action.rows, basis, central)[1]
    fresh, slopes, kept = whitened(r, jacobian, rows, how)
    if not kept.any():
        raise Diverged("the simulator could not compute any of the recorded steps")
    fresh, slopes, run = fresh[kept], slopes[kept], rows.run[kept]
    widths = np.full(fresh.shape[1], floor)
    widths[: r.shape[1]] = np.maximum(floor, how.floor)
    found = _model(fresh, slopes, run, basis, phi, widths, settings)
    for _ in range(steps):
        step = -solved(found.hessian, found.score)
        step *= min(1.0, settings.longest / max(float(np.abs(step).max(initial=0.0)), 1e-300))
        fresh, phi = fresh + slopes @ step, phi + step
        found = _model(fresh, slopes, run, basis, phi, widths, settings)
    return found


def _model(
    fresh: np.ndarray,
    slopes: np.ndarray,
    run: np.ndarray,
    basis: np.ndarray,
    phi: np.ndarray,
    floor: np.ndarray,
    settings: FitSettings,
) -> Fitted:
    """The quadratic model from whitened residuals and their Jacobian."""
    sigma = np.maximum(spread(fresh, settings.floor), floor)
    z, scaled = fresh / sigma, slopes / sigma[:, None]
    w = 1 / np.maximum(1.0, np.abs(z) / settings.huber)
    hessian = np.einsum("tc,tcp,tcq->pq", w, scaled, scaled) + np.eye(len(phi))
    each = np.einsum("tc,tcp->tp", w * z, scaled)
    return Fitted(
        basis @ phi, phi, hessian, each.sum(axis=0) + phi, _blocks(each, run),
        float(huber(z, settings.huber).sum()), sigma, 0, scaled,
        w * z,
    )  # fmt: skip


def solved(hessian: np.ndarray, score: np.ndarray) -> np.ndarray:
    """H⁻¹ g of a Hessian whose parameters show to very different degrees."""
    size = 1 / np.sqrt(np.diag(hessian))
    scaled = hessian * np.outer(size, size) + ROUNDING * np.eye(len(size))
    return np.asarray(size * np.linalg.solve(scaled, size * score))


def _searched(
    residuals: Residuals,
    rows: Rows,
    basis: np.ndarray,
    phi: np.ndarray,
    step: np.ndarray,
    now: Fitted,
    how: Whitening,
    settings: FitSettings,
) -> tuple[np.ndarray, float]:
    """(φ after the longest share of the step that lowers the loss, by what share it falls)."""
    before = now.loss + 0.5 * float(phi @ phi)
    for share in settings.shares:
        trial = phi + share * step
        for _ in range(1 + settings.bends):
            r = residuals.at([basis @ trial], rows)[0]
            fresh, _, kept = whitened(r, np.zeros((*r.shape, 0)), rows, how)
            z = fresh[kept] / now.sigma
            loss = float(huber(z, settings.huber).sum()) + 0.5 * float(trial @ trial)
            if loss < before and kept.mean() > 0.5 * np.isfinite(r).all(axis=1).mean():
                return trial, 1 - loss / before
            if now.slopes is None or now.pull is None or z.shape != now.slopes.shape[:2]:
                break
            # A valley bends away from the step: back to its floor, by the same derivatives.
            missed = np.einsum("tc,tcp->p", _cut(z, settings) - (1 - share) * now.pull, now.slopes)
            back = -solved(now.hessian, missed)
            trial = trial + back * min(1.0, settings.longest / (np.abs(back).max() + 1e-300))
    return phi, 0.0


def _blocks(each: np.ndarray, run: np.ndarray, length: int = 20) -> np.ndarray:
    """Sums over consecutive rows, blocks for a variance that knows of correlation in time."""
    starts = np.flatnonzero(np.r_[True, run[1:] != run[:-1]])
    ends = np.r_[starts[1:], len(run)]
    size = max(1, min(length, len(run) // 10))
    sums = [
        each[a : min(a + size, end)].sum(axis=0)
        for start, end in zip(starts, ends, strict=True)
        for a in range(start, end, size)
    ]
    return np.array(sums).reshape(len(sums), each.shape[1])


def covariance(found: Fitted, floor: float) -> np.ndarray:
    """Of the fitted numbers: sandwich estimate over blocks of steps, and a floor for the solver's.

    A⁻¹ B A⁻¹ with A the Hessian and B the sum of squared block scores.
    """
    inverse = np.linalg.inv(found.hessian)
    blocks = len(found.scores)
    centred = found.scores - found.scores.mean(axis=0)
    middle = centred.T @ centred * blocks / max(1, blocks - 1)
    # Where blocks are few, the model's own variance is the better guess.
    sandwich = inverse @ middle @ inverse
    both = np.maximum(np.diag(sandwich), np.diag(inverse))
    scale = np.sqrt(both / np.maximum(np.diag(sandwich), 1e-300))
    return sandwich * np.outer(scale, scale) + floor**2 * np.eye(len(inverse))


def posterior(found: Fitted) -> np.ndarray:
    """Variance of θ that the loss leaves, wide where the data shows nothing; positive definite."""
    values, vectors = np.linalg.eigh((found.hessian + found.hessian.T) / 2)
    # The prior is in the Hessian, so no direction is less certain than it says.
    plain = (vectors / np.clip(values, 1.0, None)) @ vectors.T
    centred = found.scores - found.scores.mean(axis=0)
    return plain + plain @ (centred.T @ centred) @ plain


def interval_width(blocks: int, level: float = 0.95) -> float:
    """Student's quantile for as many blocks."""
    from scipy.stats import t

    return float(t.ppf(0.5 + level / 2, max(1, blocks - 1)))


def energy(r: np.ndarray) -> float:
    """Mean square of finite residuals."""
    ok = np.isfinite(r).all(axis=1)
    return float(np.square(r[ok]).mean()) if ok.any() else float("inf")
