"""A wind that pushes several coordinates of the state at once, each with a model of its own."""

from dataclasses import replace
from typing import Any

import numpy as np

from windward.diagnosis.diagnosis import Diagnosis
from windward.diagnosis.explanation import Settings
from windward.diagnosis.fit import predictable
from windward.diagnosis.log import Log
from windward.diagnosis.residuals import Rows, compared
from windward.diagnosis.rows import rows_of, scale_of
from windward.diagnosis.wind import Axis, Coordinate, Wind, fit_model

PLACE = "coordinates"
"""kind of such a wind's place; the names of its axes are directions in the state"""
REGULAR = 0.7
"""share of what is left over in a coordinate that its past must tell to be called a wind"""
LEAST = 0.01
"""usual changes of a coordinate in a step, below which nothing is left"""

PART = 0.05
"""share of what is left over that a principal part must have to be an axis of its own"""
OUTLIER = 5.0
"""usual sizes beyond which what is left over is cut"""


def placed(found: Diagnosis, log: Log, nominal: Any) -> Diagnosis:
    """The diagnosis with a wind in coordinates, where no single place has what is left over."""
    if found.wind is None or found.wind.axes:
        return found
    rows, _ = rows_of(log, nominal, False, Settings().steps)
    dynamics = found.simulator(nominal).dynamics
    index = compared(dynamics)
    rest = dynamics.gap(rows.x_next, dynamics.advance(rows.x, rows.u, {}))[:, index]
    size = np.sqrt(np.median(np.square(rest), axis=0))
    past = np.array([predictable(w, rows.run) for w in rest.T])
    windy = (size > LEAST * scale_of(rows)[index]) & (past > REGULAR)
    wind = coordinate_wind(rest, index, rows, windy, found.wind.seconds)
    return found if wind is None else replace(found, wind=wind)


def coordinate_wind(
    rest: np.ndarray, index: np.ndarray, rows: Rows, windy: np.ndarray, seconds: float | None
) -> Wind | None:
    """The wind in coordinates, from what steps leave over; None where it blows in none.

    What pushes several of them at once is one axis: a principal part of what is left over.

    Args:
        rest: (m, c) x_next less the prediction, in the state's units.
        index: (c,) which coordinates of the state those are.
        rows: the steps.
        windy: (c,) in which of them a wind blows.
        seconds: of a step, where known.
    """
    own = np.flatnonzero(windy)
    if not len(own):
        return None
    size = np.sqrt(np.median(np.square(rest[:, own]), axis=0))
    flat = np.clip(rest[:, own] / size, -OUTLIER, OUTLIER)
    _, values, parts = np.linalg.svd(flat, full_matrices=False)
    parts = parts[np.square(values) > PART * np.square(values).sum()]
    # One unit of a wind is one of the coordinate that it moves most.
    most = np.abs(parts * size).max(axis=1)
    amount = flat @ parts.T * most
    axes = tuple(
        _axis(direction_name(index[own], part * size / each), amount[:, i], rows)
        for i, (part, each) in enumerate(zip(parts, most, strict=True))
    )
    shown = tuple(
        Coordinate(str(index[i]), float(np.sqrt(np.square(rest[:, i]).mean())),
                   predictable(rest[:, i], rows.run), axes[0].model.sines[0].period
                   if axes[0].model.sines else None)
        for i in own
    )  # fmt: skip
    series = tuple(amount[rows.episode == each] for each in np.unique(rows.episode))
    place = f"{PLACE}:{','.join(each.name for each in shown)}"
    return Wind(place, "a step", axes, series, 1.0, shown, seconds)


def direction_name(index: np.ndarray, amounts: np.ndarray) -> str:
    """A direction in the state in words: what one unit of the wind adds to each coordinate."""
    return " ".join(f"{int(i)}:{value:.9g}" for i, value in zip(index, amounts, strict=True))


def direction(name: str, d_x: int) -> np.ndarray:
    """(d_x,) the direction that `direction_name` wrote."""
    found = np.zeros(d_x)
    for part in name.split():
        i, _, value = part.partition(":")
        found[int(i)] = float(value)
    return found


def _axis(name: str, w: np.ndarray, rows: Rows) -> Axis:
    model = fit_model(w, rows)
    sizes = (sum(each.amplitude for each in model.sines), abs(model.step), abs(model.mean))
    size = max(*sizes, float(np.sqrt(np.median(np.square(w)))))
    return Axis(name, size, predictable(w, rows.run), model)
