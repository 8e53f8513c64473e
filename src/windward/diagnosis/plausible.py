"""Doubts: signs that something changed that is of another kind than parameters and winds."""

from typing import Any

import mujoco
import numpy as np

from windward.diagnosis.explanation import Identified
from windward.diagnosis.fit import MAD
from windward.diagnosis.residuals import Residuals, Rows
from windward.diagnosis.sensors import pairs_of, regression
from windward.diagnosis.wind import Wind
from windward.simulators.mujoco import MujocoDynamics

PACE = 0.03
"""positions that move by so much more or less than velocities say are of another time step"""
CONTACT = 3.0
"""a force that is so many times larger with contacts than without, or the other way, is no wind"""
SOME = 10
"""steps with and without contacts, from which on they are compared"""
HEAVY = 5.0
"""weights of the robot that a wind may push with"""
PARTIAL = 0.9
"""share of what is left over that a wind in one place must explain"""
REGULAR = 0.3
"""share of a wind that its past tells, from which on it is no noise"""
BURSTS = 0.4
"""median over root mean square of what noise leaves; of less, most is in few steps"""
FAR = 4.0
"""standard deviations of the prior beyond which a change is believed only where nothing is left"""
LITTLE = 0.01
"""share of the deviation that is next to nothing"""


def doubts_of(
    residuals: Residuals, found: Identified, wind: Wind | None, rows: Rows, share: float
) -> tuple[str, ...]:
    """Reasons not to believe what was found, in words; none where it looks right.

    Args:
        residuals: of the simulator.
        found: what was found.
        wind: what is left over.
        rows: of recorded steps, with the delay found.
        share: of the deviation that parameters leave.
    """
    if found.noise is not None:
        return ()
    reasons = []
    pace = _pace(residuals, found, rows)
    if pace is not None:
        reasons.append(
            f"positions move x{pace:.3g} as far as velocities and the simulator's time step say: "
            "another environment, other units or another time step?"
        )
    if wind is None:
        return tuple(reasons)
    far = [
        each.name
        for each, theta in zip(residuals.parameters, found.theta, strict=True)
        if abs(theta) > FAR
    ]
    if far and share > LITTLE:
        more = f" and {len(far) - 2} more" if len(far) > 2 else ""
        reasons.append(
            f"{', '.join(far[:2])}{more} would be far from nominal, and still steps are left "
            "unexplained: another environment, other units or another time step?"
        )
    reasons += _of_wind(residuals, found.theta, wind, rows)
    return tuple(reasons)


def _of_wind(residuals: Residuals, theta: np.ndarray, wind: Wind, rows: Rows) -> list[str]:
    size = np.linalg.norm(np.nan_to_num(residuals.at([theta], rows)[0]), axis=1)
    amount = np.concatenate(wind.series) if wind.axes else size[:, None]
    if wind.place.startswith("force:") and isinstance(residuals.dynamics, MujocoDynamics):
        model = residuals.dynamics.model
        weight = float(model.body_mass.sum() * np.linalg.norm(model.opt.gravity))
        if weight > 0 and wind.size > HEAVY * weight:
            return [f"a push of {wind.size:.3g} N would be {wind.size / weight:.2g} weights of the "
                    "robot, and is no wind"]  # fmt: skip
    if _by_contact(residuals.dynamics, amount, rows):
        return ["what is left over comes and goes with contacts: they are not as in the simulator"]
    if wind.axes and wind.explained > PARTIAL:
        return []
    if np.median(size) < BURSTS * np.sqrt(np.square(size).mean()):
        return ["what is left over comes in bursts, and is neither noise nor a push in one place"]
    if any(axis.predictable > REGULAR for axis in wind.axes):
        return ["what is left over is regular, and no push in one place explains all of it"]
    return []


def _by_contact(dynamics: Any, amount: np.ndarray, rows: Rows) -> bool:
    """Whether a push is much larger with contacts than without, or the other way."""
    if not isinstance(dynamics, MujocoDynamics) or len(amount) != rows.size:
        return False
    data = mujoco.MjData(dynamics.model)
    touching = np.zeros(rows.size, dtype=bool)
    for i, (x, after) in enumerate(zip(rows.x, rows.x_next, strict=True)):
        for state in (x, after):
            data.qpos[:] = state[: dynamics.model.nq]
            mujoco.mj_fwdPosition(dynamics.model, data)
            touching[i] |= data.ncon > 0
    if min(touching.sum(), (~touching).sum()) < SOME:
        return False
    sizes = np.array([np.median(np.abs(amount[w]), axis=0) for w in (touching, ~touching)])
    strong = sizes.max(axis=0) > 0.3 * sizes.max()
    return bool((sizes.max(axis=0) > CONTACT * sizes.min(axis=0))[strong].any())


def _pace(residuals: Residuals, found: Identified, rows: Rows) -> float | None:
    """How far positions move for what the simulator says; None where that is right."""
    pairs = pairs_of(residuals.dynamics, rows)
    if not len(pairs):
        return None
    dynamics = residuals.dynamics
    predicted = residuals.advance([found.theta], rows.x, rows.u)[0]
    said = dynamics.gap(predicted, rows.x)
    miss = dynamics.gap(rows.x_next, predicted)
    paces = []
    for q, v in pairs:
        x, y, speed = (np.nan_to_num(each) for each in (said[:, q], miss[:, q], miss[:, v]))
        # What pushes a velocity moves its position too.
        _, own, _ = regression(x, speed)
        _, rest, _ = regression(y, speed)
        slope, _, size = regression(rest, own)
        # A joint that hardly moves does not tell.
        if size < 0.2 * MAD * float(np.median(np.abs(x))):
            paces.append(1 + slope)
    if len(paces) < 0.5 * len(pairs):
        return None
    pace = float(np.median(paces))
    return pace if abs(pace - 1) > PACE else None
