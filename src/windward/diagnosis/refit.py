"""A learned simulator refitted to a changed world by a linear map, from the world's own steps."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from windward.diagnosis.coordinate_wind import coordinate_wind
from windward.diagnosis.diagnosis import LEARNED, Change, Diagnosis, Trace
from windward.diagnosis.fit import autoregression, lagged, predictable
from windward.diagnosis.log import Log
from windward.diagnosis.residuals import Rows
from windward.diagnosis.rows import rows_of
from windward.diagnosis.wind import Wind
from windward.simulators.learned import LearnedSimulator, percent
from windward.simulators.ridge import explained, huber_loss, robust_ridge, usual_size


@dataclass(frozen=True)
class RefitSettings:
    """How a learned simulator is corrected for a changed world, and when that is believed."""

    steps: int = 8000
    """that are looked at, at most"""
    ridge: float = 10.0
    """of the linear map, in steps that say 0"""
    tested: float = 100.0
    """the same where it is tested whether there is any: a blunt map shows with fewer steps"""
    share: float = 0.03
    """of what the simulator misses that the map must explain on steps held out; in one coordinate
    `most`"""
    most: float = 0.15
    """see `share`"""
    sure: float = 3.0
    """standard errors, over blocks of steps, by which it must explain some"""
    least: int = 150
    """steps before it is looked for: fewer blocks tell no standard error"""
    effect: float = 0.01
    """of the map in a step, in usual changes of a coordinate, below which it is left out there"""
    worth: float = 0.02
    """the same in the coordinate where it is largest, below which nothing changed"""
    past: int = 8
    """order of the autoregressions that a wind is told by"""
    regular: float = 0.7
    """share of what is left over in a coordinate that its past must tell to be called a wind"""
    told: float = 0.8
    """share of it that state and action tell, from which on it is none"""
    times: float = 3.0
    """errors of the simulator on the policy's own steps that a wind must be larger than"""


class Refit(NamedTuple):
    """A learned simulator, corrected for a changed world."""

    simulator: LearnedSimulator
    diagnosis: Diagnosis


def refit(
    log: Log, nominal: LearnedSimulator, settings: RefitSettings | None = None
) -> Refit | None:
    """The correction that recorded steps ask for; None where nothing changed.

        f_changed = f + Θ (x, u, 1, f(x, u) - x)

    Θ is a robust ridge regression, taken where it explains steps that it was not fitted on. A wind,
    what the past of the rest tells in a coordinate, is taken out by whitening both sides.
    """
    s = settings or RefitSettings()
    rows, _ = rows_of(log, nominal, True, s.steps)
    u = nominal.inner(rows.u)
    e = nominal.gap(rows.x_next, nominal.advance(rows.x, u))
    ok = np.isfinite(e).all(axis=1)
    rows, u, e = rows.take(ok), u[ok], e[ok]
    F = nominal.features(rows.x, u)
    windy, told = _windy(e, rows, nominal, s), np.zeros(nominal.d_x, dtype=bool)
    if windy.any():
        # Whatever is smooth is told by its past; what state and action tell is no wind.
        told = explained(F, e, s.ridge).share >= s.told
        windy &= ~told
    found = np.zeros((F.shape[1], e.shape[1]))
    for _ in range(2 if windy.any() else 1):
        found = _map(F, e, e - F @ found, rows, windy, s)
    motion = np.maximum(nominal.fit.motion, 1e-12)
    effect = np.sqrt(np.square(F @ found / motion).mean(axis=0))
    found[:, (effect < s.effect) | (effect.max() < s.worth)] = 0.0
    rest = e - F @ found
    windy = _windy(rest, rows, nominal, s) & ~(told & ~found.any(axis=0))
    if not found.any() and not windy.any():
        return None
    wind = coordinate_wind(rest, np.arange(nominal.d_x), rows, windy, None)
    added = found if nominal.networks.added is None else nominal.networks.added + found
    changed = nominal.corrected(added) if found.any() else nominal
    return Refit(changed, _diagnosis(rows, e, rest, found, motion, nominal, wind))


def _map(
    F: np.ndarray,
    e: np.ndarray,
    rest: np.ndarray,
    rows: Rows,
    windy: np.ndarray,
    s: RefitSettings,
) -> np.ndarray:
    """Θ where it is believed, 0 elsewhere."""
    found = np.zeros((F.shape[1], e.shape[1]))
    if rows.size < s.least:
        return found
    calm = np.flatnonzero(~windy)
    if len(calm):
        told = explained(F, e[:, calm], s.tested)
        if told.joint > s.share and told.joint_sure > s.sure:
            good = told.share > 0
        else:
            good = (told.share > s.most) & (told.sure > s.sure)
        if good.any():
            found[:, calm[good]] = robust_ridge(F, e[:, calm[good]], s.ridge)
    index = lagged(rows.run, s.past)
    for c in np.flatnonzero(windy) if len(index) > 2 * s.past else ():
        past = np.stack([rest[index - k, c] for k in range(1, s.past + 1)], axis=1)
        a = np.append(1.0, -autoregression(rest[index, c], past))
        white = np.sum([a[k] * e[index - k, c] for k in range(s.past + 1)], axis=0)
        Z = np.sum([a[k] * F[index - k] for k in range(s.past + 1)], axis=0)
        told = explained(Z, white[:, None], s.ridge)
        if told.share[0] > s.most and told.sure[0] > s.sure:
            found[:, c] = robust_ridge(Z, white[:, None], s.ridge)[:, 0]
    return found


def _windy(e: np.ndarray, rows: Rows, nominal: LearnedSimulator, s: RefitSettings) -> np.ndarray:
    """(d_x,) in which coordinates a wind blows."""
    size = np.sqrt(np.median(np.square(e), axis=0))
    large = size > np.maximum(s.times * nominal.fit.own, s.effect * nominal.fit.motion)
    return np.array(
        [bool(large[c]) and predictable(e[:, c], rows.run, s.past) > s.regular
         for c in range(e.shape[1])]
    )  # fmt: skip


def _diagnosis(
    rows: Rows,
    e: np.ndarray,
    rest: np.ndarray,
    found: np.ndarray,
    motion: np.ndarray,
    nominal: LearnedSimulator,
    wind: Wind | None,
) -> Diagnosis:
    """What changed, coordinate by coordinate: how strongly it answers."""
    before, after = (np.sqrt(np.square(each / motion).mean(axis=1)) for each in (e, rest))
    factors = {
        f"response:{i}": _response(rows.x_next[:, i] - rows.x[:, i], e[:, i])
        for i in range(e.shape[1])
    }
    changed = {f"response:{c}" for c in np.flatnonzero(found.any(axis=0))}
    size = usual_size(e)
    left = float(huber_loss(rest / size).sum() / max(float(huber_loss(e / size).sum()), 1e-12))
    return Diagnosis(
        changes={name: each for name, each in factors.items() if name in changed},
        factors=factors,
        wind=wind,
        unexplained=min(1.0, left) if wind is None else 0.0,
        deviation=float(np.sqrt(np.square(e / motion).mean())),
        steps=rows.size,
        episodes=len(np.unique(rows.episode)),
        notes=(f"a linear map of state, action and predicted change explains "
               f"{percent(max(0.0, 1 - left))} of what the learned simulator misses",),
        trace=Trace(before, after, rows.episode),
        source=LEARNED,
        nominal=nominal,
    )  # fmt: skip


def _response(moved: np.ndarray, e: np.ndarray) -> Change:
    """How strongly a coordinate answers: its change over the one that was predicted."""
    told = moved - e
    told = told - told.mean()
    power = float(told @ told)
    if power <= 0.0:
        return Change(1.0, 1.0, 1.0, seen=False)
    slope = float(told @ (moved - moved.mean())) / power
    rest = moved - moved.mean() - slope * told
    error = 1.96 * float(np.sqrt(rest @ rest / max(len(rest) - 2, 1) / power))
    return Change(slope, slope - error, slope + error)
