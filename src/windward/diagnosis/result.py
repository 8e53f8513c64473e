"""The result: from what was identified to a Diagnosis with intervals, groups and traces."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from windward.diagnosis.diagnosis import (
    FUNCTION,
    LEARNED,
    MUCH,
    PHYSICS,
    Change,
    Diagnosis,
    Trace,
)
from windward.diagnosis.fit import interval_width
from windward.diagnosis.identify import Identified
from windward.diagnosis.parameters import Parameter
from windward.diagnosis.plausible import doubts_of
from windward.diagnosis.residuals import Residuals, Rows
from windward.diagnosis.rows import Nominal
from windward.diagnosis.sensors import Bias
from windward.diagnosis.wind import Wind
from windward.envs.changed import BIAS, DELAY
from windward.simulators.function import FunctionDynamics
from windward.simulators.learned import LearnedSimulator
from windward.simulators.parameters import OFFSETS

SEEN = 0.5
"""a parameter is seen if its interval is narrower than this share of what was before the data"""
REGULAR = 0.6
"""share of what is left over that its past predicts, from which on it is no noise"""
MOST = 0.5
"""share of the deviation that may stay unexplained if it looks like noise"""
TINY = 1e-3
"""of the usual change in a step, and of the deviation: a wind with less effect is not reported"""
BULK = 0.98
"""share of the steps from which the effect of a wind is taken: single ones may be outliers"""


class Parts(NamedTuple):
    """What a diagnosis is made of."""

    found: Identified
    wind: Wind | None
    residuals: Residuals
    rows: Rows
    """with the delay found"""
    env: gym.Env
    nominal: Nominal
    notes: tuple[str, ...]
    seconds: float
    complete: bool
    sensed: tuple[Bias, ...] = ()
    """of sensors, where true states were recorded beside them"""


def result_of(parts: Parts) -> Diagnosis:
    """The diagnosis; what was not finished, or leaves too much unexplained, is only suspected."""
    found, residuals, rows, env = parts.found, parts.residuals, parts.rows, parts.env
    parameters = residuals.parameters
    before, after = residuals.at([np.zeros(len(parameters)), found.theta], rows)
    deviation = float(np.sqrt(found.nominal))
    wind = None if _tiny(after, deviation) else parts.wind
    unexplained, foreign = _unexplained(parts.wind, wind, after, before, rows)
    if not parts.complete:
        unexplained = _share(after, before)
    doubts = doubts_of(residuals, found, wind, rows, _share(after, before))
    if doubts:
        unexplained = 1.0  # what is not believed explains nothing
        wind = None if wind is None else wind.nowhere()
    changes = _changes(found, parameters)
    if found.explanation.delay:
        late = float(found.explanation.delay)
        changes[DELAY] = Change(late, late, late, "steps")
    for each in parts.sensed:
        error = 1.96 * each.error
        ends = each.amount - error, each.amount + error
        changes[each.name] = Change(each.amount, *ends, OFFSETS[BIAS])
    # Changes that leave much were fitted to something else; less so where it looks like noise.
    # A fit through noise of sensors leaves smoothed states, whose residuals are next to nothing.
    most = MUCH if foreign else MOST if found.noise is None else 1.0
    strange = unexplained > most
    doubtful = not parts.complete or strange or bool(doubts)
    source, values = _source(parts.nominal)
    return Diagnosis(
        changes={} if doubtful else changes,
        suspects=changes if doubtful else {},
        factors=_factors(found, parameters),
        wind=wind,
        unexplained=unexplained,
        together=() if doubtful else _together(found, parameters, changes),
        deviation=deviation,
        env_id=None if env.spec is None else env.spec.id,
        env_options={} if env.unwrapped.spec is None else dict(env.unwrapped.spec.kwargs),
        steps=rows.size,
        episodes=len(np.unique(rows.episode)),
        seconds=parts.seconds,
        simulated=residuals.simulated,
        complete=parts.complete,
        notes=(*doubts, *parts.notes),
        trace=Trace(_rms(before), _rms(after), rows.episode),
        source=source,
        nominal_values=values,
        env=env,
        nominal=parts.nominal,
    )


def _source(nominal: Any) -> tuple[str, dict[str, float]]:
    """(what the nominal simulator is made of, the values it was made with)."""
    if isinstance(nominal, LearnedSimulator):
        return LEARNED, {}
    if isinstance(nominal.dynamics, FunctionDynamics):
        return FUNCTION, dict(nominal.dynamics.first)
    return PHYSICS, {name: float(value) for name, value in nominal.scale.items()}


def _rms(r: np.ndarray) -> np.ndarray:
    """The size of each row; NaN where nothing could be computed."""
    ok = np.isfinite(r)
    total, count = np.square(np.where(ok, r, 0.0)).sum(axis=1), ok.sum(axis=1)
    return np.where(count > 0, np.sqrt(total / np.maximum(count, 1)), np.nan)


def _tiny(after: np.ndarray, deviation: float) -> bool:
    """Whether what is left over has next to no effect on all but single steps."""
    size = _rms(after)
    size = np.sort(size[np.isfinite(size)])
    bulk = size[: max(1, int(BULK * len(size)))]
    return not len(bulk) or float(np.sqrt(np.square(bulk).mean())) < TINY * max(1.0, deviation)


def _share(after: np.ndarray, before: np.ndarray) -> float:
    """Share of the deviation that is left."""
    ok = np.isfinite(after).all(axis=1) & np.isfinite(before).all(axis=1)
    return float(min(1.0, np.square(after[ok]).sum() / max(np.square(before[ok]).sum(), 1e-300)))


def _unexplained(
    left: Wind | None, wind: Wind | None, after: np.ndarray, before: np.ndarray, rows: Rows
) -> tuple[float, bool]:
    """(share of the deviation that nothing explains, whether that is more than noise).

    Args:
        left: what is left over, and `wind` that if it is worth a report.
    """
    if left is None:
        return 0.0, False
    share = _share(after, before)
    if wind is None:
        return share, False
    ok = np.isfinite(after).all(axis=1) & np.isfinite(before).all(axis=1)
    if not wind.axes:
        past = np.mean([each.predictable for each in wind.coordinates])
        return share, bool(past > REGULAR) or _depends(after[ok], rows.take(ok))
    amount = np.concatenate(wind.series)
    if _modelled(wind):
        return share * (1 - wind.explained), False
    if _depends(amount[ok], rows.take(ok)):
        return share, True  # what follows from state and action is no wind
    return share * (1 - wind.explained), False


def _modelled(wind: Wind) -> bool:
    """Whether a sinusoid, a step or a constant is most of the wind."""
    strongest = max(wind.axes, key=lambda each: each.size)
    model = strongest.model
    rest = model.noise
    return bool((model.sines or model.step or abs(model.mean) > rest) and rest < strongest.size)


def _depends(w: np.ndarray, rows: Rows, most: float = 0.4) -> bool:
    """Whether state and action tell much of a series, on steps held out."""
    z = np.concatenate([rows.x, np.reshape(rows.u, (rows.size, -1))], axis=1)
    z = (z - z.mean(axis=0)) / (z.std(axis=0) + 1e-9)
    z = np.concatenate([z, np.square(z), np.ones((len(z), 1))], axis=1)
    half = (np.arange(len(z)) // 25) % 2 == 0
    if half.all() or len(z) < 40:
        return False
    size = np.median(np.abs(w), axis=0) + 1e-12
    y = np.clip(w / size, -6, 6)
    ridge = z[half].T @ z[half] + 0.01 * half.sum() * np.eye(z.shape[1])
    guess = z @ np.linalg.solve(ridge, z[half].T @ y[half])
    left = np.square(y[~half] - guess[~half]).sum() / max(np.square(y[~half]).sum(), 1e-12)
    return bool(1 - left > most)


def _changes(found: Identified, parameters: list[Parameter]) -> dict[str, Change]:
    """The chosen changes; where two overlap, each parameter by itself."""
    width = interval_width(found.scores)
    errors = width * np.sqrt(np.diag(found.covariance))
    taken = np.zeros(len(parameters))
    for atom in found.chosen:
        taken[list(atom.columns)] += 1
    changes: dict[str, Change] = {}
    for i, atom in enumerate(found.chosen):
        whole = not (taken[list(atom.columns)] > 1).any()
        for column in atom.columns[:1] if whole else atom.columns:
            parts = [k for k, each in enumerate(found.chosen) if column in each.columns]
            weight = np.zeros(len(found.chosen))
            weight[parts] = 1.0
            error = width * float(np.sqrt(weight @ found.covariance @ weight))
            name = atom.name if whole else parameters[column].name
            theta = float(found.theta[column])
            changes[name] = _change(parameters[column], theta, errors[i] if whole else error)
    return changes


def _change(parameter: Parameter, theta: float, error: float, seen: bool = True) -> Change:
    low, high = parameter.value(theta - error), parameter.value(theta + error)
    return Change(parameter.value(theta), low, high, parameter.unit, seen)


def _factors(found: Identified, parameters: list[Parameter]) -> dict[str, Change]:
    """Every parameter: as chosen, or what it would be if it were added to those."""
    chosen = {column: i for i, atom in enumerate(found.chosen) for column in atom.columns}
    width = interval_width(found.scores)
    factors = {}
    for i, parameter in enumerate(parameters):
        if i in chosen:
            error = width * float(np.sqrt(found.covariance[chosen[i], chosen[i]]))
            factors[parameter.name] = _change(parameter, float(found.theta[i]), error)
        else:
            error = 1.96 * float(found.errors[i])
            estimate = float(found.estimates[i])
            middle = 0.0 if abs(estimate) < error else estimate
            factors[parameter.name] = _change(
                parameter, middle, error, bool(found.errors[i] < SEEN)
            )
    return factors


def _together(
    found: Identified, parameters: list[Parameter], changes: Mapping[str, Change]
) -> tuple[tuple[str, ...], ...]:
    """Kinds that only show together, where a change is among them.

    A combination of kinds that has no effect is an eigenvector of the Hessian of next to no
    eigenvalue: all masses, gains and dampings times one number, say.
    """
    kinds = [
        kind
        for kind in dict.fromkeys(each.kind for each in parameters if each.is_factor)
        if kind != "inertia"
    ]
    B = np.array([[float(each.kind == kind) for kind in kinds] for each in parameters])
    if not kinds or not changes:
        return ()
    H = B.T @ found.hessian @ B
    size = np.sqrt(np.diag(H))
    felt = size > 1e-3 * size.max(initial=0.0)
    if felt.sum() < 2:
        return ()
    H = H[np.ix_(felt, felt)]
    values, vectors = np.linalg.eigh(H)
    own = [kind for kind, has in zip(kinds, felt, strict=True) if has]
    groups = []
    for value, vector in zip(values, vectors.T, strict=True):
        if value > 1e-5 * np.median(np.diag(H)):
            continue
        members = tuple(
            kind
            for kind, weight in zip(own, vector, strict=True)
            if abs(weight) > 0.2 * np.abs(vector).max()
        )
        # A single body's mass is no question of ratios.
        if len(members) > 1 and any(name in members for name in changes):
            groups.append(members)
    return tuple(groups)
