"""The state of `Diagnosed` as arrays and JSON: what is believed, what acts, what was recorded.

The base policy, the environment and the simulators are not part of it: make the same again.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from windward.adapt.corrections import Carry, Choice, Correction, Matching, Residual
from windward.adapt.episodes import Window
from windward.adapt.judges import Returns, Verdict
from windward.adapt.learners.base import Arrays
from windward.adapt.memory import Track
from windward.adapt.proposers.base import Situation
from windward.adapt.supervisor import Belief, Phase
from windward.adapt.twin import Twin
from windward.adapt.winds import Memory
from windward.diagnosis.diagnosis import Diagnosis
from windward.simulators.learned import LearnedSimulator

ROWS = ("_known", "_totals", "_acted", "_lengths")
"""arrays with a number for each row"""
MAY_BE_NAN = ("winds", "state", "x", "rows/totals")
"""arrays in which NaN says that something is not known"""
SITUATION = ("root", "scale", "starts", "recent", "observations")
"""arrays of a situation"""


def snapshot(learner: Any) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and a header from which an equal runtime goes on exactly."""
    supervisor, memory = learner.supervisor, learner.memory
    arrays: Arrays = {f"rows/{name.strip('_')}": getattr(learner, name) for name in ROWS}
    for name, each in zip(Carry._fields, learner._carry, strict=True):
        arrays[f"carry/{name}"] = each
    arrays["winds"] = learner._winds.amount
    for name, value in (("x", learner.x), ("state", learner._state), ("guess", learner._guess)):
        if value is not None:
            arrays[name] = np.asarray(value)
    for name, value in (("scale", supervisor._scale), ("running", supervisor._running)):
        if value is not None:
            arrays[f"supervisor/{name}"] = value
    arrays["supervisor/deviations"] = np.array(supervisor._deviations)
    arrays["supervisor/usual"] = np.array(supervisor._usual)
    arrays["supervisor/base"] = np.array(supervisor._base)
    tracks = []
    for i, track in enumerate(memory._tracks):
        for name in ("x", "observations", "u"):
            arrays[f"tracks/{i}/{name}"] = np.array(getattr(track, name))
        row = next((r for r, each in enumerate(memory._open) if each is track), None)
        tracks.append({"row": row, "whole": track.whole})
    beliefs = []
    for i, belief in enumerate(supervisor.beliefs[1:]):
        own, header = _belief(belief)
        arrays |= {f"beliefs/{i}/{name}": each for name, each in own.items()}
        beliefs.append(header)
    now = next(i for i, each in enumerate(supervisor.beliefs) if each is supervisor.belief)
    header = {
        "tracks": tracks,
        "beliefs": beliefs,
        "belief": now,
        "phase": str(supervisor.phase),
        "decisions": list(supervisor.decisions),
        "counts": {
            "steps": supervisor.steps, "due": supervisor._due, "asked": supervisor._asked,
            "recorded": memory.steps,
        },
    }  # fmt: skip
    return arrays, header


def _belief(belief: Belief) -> tuple[Arrays, dict[str, Any]]:
    found, at = belief.diagnosis, belief.situation
    assert found is not None
    assert at is not None
    arrays = {f"diagnosis/{name}": each for name, each in found.arrays().items()}
    arrays |= {name: getattr(at, name) for name in SITUATION}
    arrays |= {"window/size": at.window.size, "window/coordinates": at.window.coordinates}
    changed = belief.twin.changed
    if isinstance(changed, LearnedSimulator) and changed.networks.added is not None:
        arrays["added"] = changed.networks.added
    own, kind = _correction(belief.correction)
    arrays |= {f"correction/{name}": each for name, each in own.items()}
    return arrays, {
        "diagnosis": found.header(),
        "correction": kind,
        "verdict": None if belief.verdict is None else belief.verdict._asdict(),
        "noise": belief.noise,
        "unknown": at.noise,
        "searched": belief.searched,
        "done": belief.done,
        "withdrawn": belief.withdrawn,
        "returns": belief.returns.memory(),
    }


def _correction(found: Correction | None) -> tuple[Arrays, dict[str, Any] | None]:
    """Arrays of a correction, and its kind."""
    if found is None:
        return {}, None
    arrays: Arrays = {}
    if isinstance(found, Matching):
        arrays["root"] = found.root
        numbers = {name: getattr(found, name) for name in ("damping", "step", "iterations")}
        return arrays, {"kind": "matching", **numbers}
    if isinstance(found, Choice):
        arrays["root"] = found.root
        return arrays, {"kind": "choice", "damping": found.damping, "kept": found.kept}
    assert isinstance(found, Residual)
    for name in ("weights", "mean", "spread", "wind", "parts"):
        arrays[name] = getattr(found, name)
    under, kind = _correction(found.under)
    arrays |= {f"under/{name}": each for name, each in under.items()}
    return arrays, {"kind": "residual", "reach": found.reach, "under": kind}


def _made(arrays: Mapping[str, np.ndarray], kind: Any, space: Any) -> Any:
    """A correction again."""
    if kind is None:
        return None
    if kind["kind"] == "matching":
        return Matching(
            space, arrays["root"], float(kind["damping"]), float(kind["step"]),
            int(kind["iterations"]),
        )  # fmt: skip
    if kind["kind"] == "choice":
        return Choice(space, arrays["root"], float(kind["damping"]), float(kind["kept"]))
    if kind["kind"] != "residual":
        raise ValueError(f"there is no correction {kind['kind']!r}")
    under = _made(_under(arrays, "under"), kind["under"], space)
    return Residual(
        space, arrays["weights"], arrays["mean"], arrays["spread"], arrays["wind"],
        arrays["parts"], float(kind["reach"]), under,
    )  # fmt: skip


def _under(arrays: Mapping[str, np.ndarray], prefix: str) -> Arrays:
    return {name[len(prefix) + 1 :]: each for name, each in arrays.items()
            if name.startswith(prefix + "/")}  # fmt: skip


def restore(learner: Any, arrays: Arrays, header: dict[str, Any]) -> None:
    """Takes over a snapshot; what does not fit is refused, and changes nothing."""
    for key, each in arrays.items():
        if each.dtype.kind == "f" and key not in MAY_BE_NAN and np.isnan(each).any():
            raise ValueError(f"{key} holds numbers that are none")
    try:
        beliefs = [
            _believed(learner, _under(arrays, f"beliefs/{i}"), each)
            for i, each in enumerate(header["beliefs"])
        ]
        tracks = [
            (_track(_under(arrays, f"tracks/{i}"), bool(each["whole"])), each["row"])
            for i, each in enumerate(header["tracks"])
        ]
        phase, now = Phase(header["phase"]), int(header["belief"])
        counts = {key: int(value) for key, value in header["counts"].items()}
        rows = {key: arrays[f"rows/{key.strip('_')}"] for key in ROWS}
        carry = Carry(*(arrays[f"carry/{each}"] for each in Carry._fields))
        if not 0 <= now <= len(beliefs):
            raise ValueError("its counts are of another kind")
        for key, each in rows.items():
            if each.shape != (learner.rows,):
                raise ValueError(f"{key.strip('_')} has shape {each.shape}")
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(repr(error)) from error
    _take(learner, arrays, header, beliefs, tracks, counts)
    learner.frozen = False  # or it would be thawed; the runtime freezes it if it was frozen
    learner.supervisor.phase = phase
    learner.supervisor.belief = learner.supervisor.beliefs[now]
    learner._follow(anew=True)
    for key, each in rows.items():
        setattr(learner, key, each.copy())
    learner._carry, learner._winds = carry, Memory(arrays["winds"])
    learner._guess = arrays.get("guess")


def _take(
    learner: Any,
    arrays: Arrays,
    header: dict[str, Any],
    beliefs: list[Belief],
    tracks: list[tuple[Track, int | None]],
    counts: dict[str, int],
) -> None:
    learner._start()
    supervisor, memory = learner.supervisor, learner.memory
    supervisor.beliefs = [supervisor.nominal, *beliefs]
    supervisor.decisions[:] = [str(each) for each in header["decisions"]]
    supervisor.steps, supervisor._due = counts["steps"], counts["due"]
    supervisor._asked = counts["asked"]
    supervisor._scale = arrays.get("supervisor/scale")
    supervisor._running = arrays.get("supervisor/running")
    supervisor._deviations = arrays["supervisor/deviations"].tolist()
    supervisor._usual = arrays["supervisor/usual"].tolist()
    supervisor._base = arrays["supervisor/base"].tolist()
    memory._tracks = [track for track, _ in tracks]
    for track, row in tracks:
        if row is not None:
            memory._open[row] = track
    memory.steps = counts["recorded"]
    learner.x, learner._state = arrays.get("x"), arrays.get("state")


def _track(arrays: Arrays, whole: bool) -> Track:
    return Track(list(arrays["x"]), list(arrays["observations"]), list(arrays["u"]), whole)


def _believed(learner: Any, arrays: Arrays, header: dict[str, Any]) -> Belief:
    """A belief again, with simulators made anew."""
    parts = learner.parts
    found = Diagnosis.made(_under(arrays, "diagnosis"), header["diagnosis"])
    wind = found.wind if found.wind is not None and found.wind.axes else None
    changed: Any = parts.nominal
    if "added" in arrays:
        changed = changed.corrected(arrays["added"])
    elif not isinstance(changed, LearnedSimulator):
        changed = found.simulator(changed)
    twin = Twin(parts.nominal, changed, wind, parts.threads)
    window = Window(
        parts.simulation.h, arrays["window/size"], arrays["window/coordinates"].astype(int)
    )
    root, scale, starts, recent, observations = (arrays[name] for name in SITUATION)
    at = Situation(
        found, twin, parts.policy, parts.range, parts.dtype, root, scale, starts, recent,
        observations, window, parts.horizon, parts.simulation, parts.winds,
        float(header["unknown"]),
    )  # fmt: skip
    verdict = header["verdict"]
    returns = Returns()
    returns.adapted = [float(each) for each in header["returns"]["adapted"]]
    returns.base = [float(each) for each in header["returns"]["base"]]
    return Belief(
        found, twin, at, _made(_under(arrays, "correction"), header["correction"], parts.range),
        None if verdict is None else Verdict(**verdict), float(header["noise"]),
        int(header["searched"]), bool(header["done"]),
        int(header["withdrawn"]), returns,
    )  # fmt: skip
