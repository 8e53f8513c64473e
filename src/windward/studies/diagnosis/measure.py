"""One case of the study: run, diagnose, and compare with the truth."""

import json
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from windward import bases
from windward.diagnosis.entry import diagnose
from windward.diagnosis.diagnosis import Diagnosis
from windward.simulators.parameters import OFFSETS, arrays_of, first_value
from windward.simulators.physics import dynamics_of
from windward.studies.diagnosis.cases import Case

RANDOM_STEPS = 1000


def measure(case: Case) -> dict[str, Any]:
    """A row of the study's data: times, errors, and what the diagnosis said."""
    env = case.world()
    policy = bases.load(case.env) if case.has_policy else None
    steps = case.steps if case.has_policy or case.steps else RANDOM_STEPS
    began = time.perf_counter()
    found = diagnose(
        policy, env, steps=steps, seed=case.seed, from_observations=case.observed, threads=1
    )
    seconds = time.perf_counter() - began
    env.close()
    return {
        "group": case.group, "env": case.env, "seed": case.seed,
        "changes": json.dumps(dict(case.changes)), "wind": case.wind, "foreign": case.foreign,
        "steps": found.steps, "seconds": round(found.seconds, 3), "all_seconds": round(seconds, 3),
        "simulated": found.simulated, "found": json.dumps(found.values),
        "error": errors(case, found), "reported": len(found.changes),
        "right": int(right(case.changes, found.values)),
        "suspects": len(found.suspects), "unexplained": found.unexplained,
        **_wind(case, found), **_coverage(case, found),
    }  # fmt: skip


def errors(case: Case, found: Diagnosis) -> float:
    """The largest relative error of a parameter, changed or not, that the steps show.

    A parameter that is called not seen counts only if it is reported all the same.
    """
    values = found.values
    dynamics: Any = dynamics_of(case.world().unwrapped)
    elements = dynamics.parameters.elements
    known = {name: value for name, value in values.items() if name.partition(":")[0] in elements}
    true, ours = arrays_of(elements, case.changes), arrays_of(elements, known)
    worst = 0.0
    for kind in {*true, *ours}:
        none = np.full(len(elements[kind]), first_value(kind))
        a, b = true.get(kind, none), ours.get(kind, none)
        gap = np.abs(b - a) if kind in OFFSETS else np.abs(b / a - 1)
        for i, name in enumerate(elements[kind]):
            factor = found.factors.get(f"{kind}:{name}")
            if factor is not None and not factor.seen and b[i] == none[i]:
                gap[i] = 0.0
        worst = max(worst, float(gap.max()))
    return max(worst, float(len(values) - len(known)))


def right(true: Mapping[str, float], values: Mapping[str, float]) -> bool:
    """Whether the kinds that changed are those that were named."""
    return {_kind(name) for name in true} == {_kind(name) for name in values}


def _kind(name: str) -> str:
    return name.partition(":")[0]


def _wind(case: Case, found: Diagnosis) -> dict[str, Any]:
    """Errors of a sinusoidal force."""
    row: dict[str, Any] = {"place": "", "place_right": "", "size_error": "", "period_error": ""}
    if found.wind is None:
        return row
    row["place"] = found.wind.place
    if not (case.wind.startswith("sine") and case.channel.startswith("force")):
        return row
    _, _, rest = case.wind.partition("amp=")
    amplitude = float(rest.partition("/")[0])
    period = float(case.wind.partition("period=")[2].partition(",")[0])
    axis = found.wind.axes[0] if found.wind.axes else None
    row["place_right"] = int(found.wind.place == case.channel and axis is not None
                             and axis.name == "x" and len(found.wind.axes) == 1)  # fmt: skip
    if axis is not None:
        row["size_error"] = abs(axis.size / amplitude - 1)
        sines = axis.model.sines
        row["period_error"] = abs(sines[0].period / period - 1) if sines else 1.0
    return row


def _coverage(case: Case, found: Diagnosis) -> dict[str, Any]:
    """How many of the true changes have an interval, and how many of these hold them."""
    own = [name for name in case.changes if name in found.changes]
    held = [
        found.changes[name].low <= case.changes[name] <= found.changes[name].high for name in own
    ]
    return {"intervals": len(own), "held": sum(held)}
