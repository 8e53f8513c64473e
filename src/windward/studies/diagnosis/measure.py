"""One case of the study: run, diagnose, and compare with the truth."""

import json
import time
from collections.abc import Mapping
from statistics import median_low
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from windward import policies
from windward.diagnosis.diagnosis import Diagnosis
from windward.diagnosis.entry import diagnose
from windward.diagnosis.wind import Wind
from windward.simulators.parameters import OFFSETS, arrays_of, first_value
from windward.simulators.simulator import Simulator, simulator
from windward.studies.diagnosis.cases import RATIOS, Case

RANDOM_STEPS = 1000
"""steps where no policy comes with the package"""
Elements = Mapping[str, Any]
"""kind -> names of its elements"""


class Errors(NamedTuple):
    """How far a diagnosis is from the truth."""

    worst: float
    """largest relative error of a parameter, changed or not; an amount's in its unit"""
    unseen: int
    """elements that changed, were called not seen and are left out"""
    common: float
    """logarithm of the factor that shows nowhere and was removed"""


def measure(case: Case) -> dict[str, Any]:
    """A row of the study's data; of what could not be diagnosed only why."""
    world, plain = case.world(), gym.make(case.env)
    nominal = simulator(plain, noisy=False)
    policy = policies.load(case.env) if case.has_policy else None
    steps = case.steps if case.has_policy or case.steps else RANDOM_STEPS
    began = time.process_time()
    try:
        found = diagnose(
            policy, world, steps=steps, seed=case.seed, from_observations=case.observed, threads=1,
            # What is foreign is in the world's own model, which would be taken for the nominal one.
            simulator=nominal if case.foreign else None,
        )  # fmt: skip
    except ValueError as error:
        return row(case, None, nominal) | {"failure": str(error)}
    finally:
        world.close()
    # Both contain the fit: on a busy machine the one is too long, otherwise the other.
    seconds = min(found.seconds, time.process_time() - began)
    return row(case, found, nominal) | {"seconds": round(seconds, 3)}


def row(case: Case, found: Diagnosis | None, nominal: Simulator) -> dict[str, Any]:
    """A case and all that is measured of it; None for what there is not."""
    told = {
        "group": case.group, "env": case.env, "seed": case.seed, "changes": _json(case.changes),
        "wind": case.wind, "channel": case.channel, "foreign": case.foreign, "policy": case.policy,
        "failure": "", "found": "{}", "steps": None, "seconds": None, "error": None,
        "unseen": None, "reported": None, "suspects": None, "explained": None, "wrong_kind": None,
        "missed": None, "place": "", "misplaced": None, "size_error": None, "period_error": None,
        "mass_error": None, "gain_error": None,
    }  # fmt: skip
    if found is None:
        return told
    elements = nominal.dynamics.parameters.elements
    error = errors(case, found, elements)
    measured = {
        "found": _json(found.values), "steps": found.steps, "error": error.worst,
        "unseen": error.unseen, "reported": len(found.changes), "suspects": len(found.suspects),
        "explained": 1 - found.unexplained, "wrong_kind": wrong_kind(case.changes, found.values),
        "missed": missed(case.changes, found, elements),
        "place": "" if found.wind is None else found.wind.place,
    }  # fmt: skip
    if case.amplitude:
        measured |= wind_errors(case, found.wind, error.common)
    if case.observed:
        measured |= totals(case.changes, found, nominal)
    short = {key: float(f"{v:.5g}") if isinstance(v, float) else v for key, v in measured.items()}
    return told | short


def errors(case: Case, found: Diagnosis, elements: Elements) -> Errors:
    """Compares all parameters, changed or not, as far as the steps show them.

    One that is called not seen counts only if it is reported all the same, and kinds that show only
    as ratios are compared after their common factor, the median of their errors, is taken out.
    """
    values = found.values
    known = {name: value for name, value in values.items() if name.partition(":")[0] in elements}
    true, ours = arrays_of(elements, case.changes), arrays_of(elements, known)
    gaps, ratios, unseen = [float(len(values) - len(known))], [], 0
    for kind, names in elements.items():
        none = np.full(len(names), first_value(kind))
        a, b = true.get(kind, none), ours.get(kind, none)
        seen = np.array([_seen(found, kind, name) for name in names]) | (b != none)
        unseen += int((~seen & (a != none)).sum())
        if kind in OFFSETS:
            gaps += np.abs(b - a)[seen].tolist()
        elif kind in RATIOS.get(case.env, ()):
            ratios += np.log(b / a)[seen].tolist()
        else:
            gaps += np.abs(b / a - 1)[seen].tolist()
    common = median_low(ratios) if ratios else 0.0
    gaps += np.abs(np.expm1(np.array(ratios) - common)).tolist()
    return Errors(max(gaps), unseen, common)


def _seen(found: Diagnosis, kind: str, name: str) -> bool:
    """Whether the steps show an element; kinds that are one parameter have one factor for all."""
    factor = found.factors.get(f"{kind}:{name}", found.factors.get(kind))
    return factor is None or factor.seen


def wrong_kind(true: Mapping[str, float], values: Mapping[str, float]) -> int:
    """1 unless the kinds that changed are those that were named."""
    return int({_kind(name) for name in true} != {_kind(name) for name in values})


def _kind(name: str) -> str:
    return name.partition(":")[0]


def missed(true: Mapping[str, float], found: Diagnosis, elements: Elements) -> int:
    """How many true changes lie outside their 95 % interval.

    The interval is that of the change reported by this name, else those of its elements' factors.
    """
    count = 0
    for name, value in true.items():
        own = [found.changes[name]] if name in found.changes else _factors(name, found, elements)
        count += not own or not all(each.low <= value <= each.high for each in own)
    return count


def _factors(name: str, found: Diagnosis, elements: Elements) -> list[Any]:
    names = [name, *(f"{name}:{each}" for each in elements.get(name, ()))]
    return [found.factors[each] for each in names if each in found.factors]


def wind_errors(case: Case, wind: Wind | None, common: float = 0.0) -> dict[str, float]:
    """Errors of a sinusoidal force along x: its body and direction, size and period."""
    if wind is None or not wind.axes:
        return {"misplaced": 1, "size_error": 1.0, "period_error": 1.0}
    axis = max(wind.axes, key=lambda each: each.size)
    sines = axis.model.sines
    return {
        "misplaced": int((wind.place, [each.name for each in wind.axes]) != (case.channel, ["x"])),
        "size_error": abs(axis.size * np.exp(-common) / case.amplitude - 1),
        "period_error": abs(sines[0].period / case.period - 1) if sines else 1.0,
    }


def totals(true: Mapping[str, float], found: Diagnosis, nominal: Simulator) -> dict[str, float]:
    """Relative errors of the mass of all bodies together, and of the strength of all motors."""
    model: Any = nominal.env.unwrapped.model  # type: ignore[attr-defined]
    weights = {
        "mass": model.body_mass[1:],
        "gain": np.abs(model.actuator_gear[:, 0] * model.actuator_gainprm[:, 0]),
    }
    elements = nominal.dynamics.parameters.elements
    own = {name: value for name, value in found.values.items() if _kind(name) in weights}
    of_true, of_ours = (
        arrays_of(elements, {n: v for n, v in each.items() if _kind(n) in weights})
        for each in (true, own)
    )
    return {
        f"{kind}_error": abs(
            float(weight @ of_ours.get(kind, np.ones(len(weight))))
            / float(weight @ of_true.get(kind, np.ones(len(weight))))
            - 1
        )
        for kind, weight in weights.items()
    }


def _json(values: Mapping[str, float]) -> str:
    return json.dumps({name: float(f"{value:.5g}") for name, value in values.items()})
