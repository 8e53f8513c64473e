"""The state of a runtime in a file: what was learned and recorded; not the environment's state."""

from pathlib import Path
from typing import Any

import numpy as np

from windward import files
from windward.adapt.faults import FAULTS
from windward.adapt.runtime import Runtime

KIND = "windward.adaptation"
LEARNER = "learner/"
FLAGS = ("fallback", "ended")
LARGEST = 2**63


def snapshot(runtime: Runtime) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and a header from which an equal runtime goes on exactly."""
    learner = runtime.learner
    arrays = {f"{LEARNER}{name}": each for name, each in learner.arrays().items()}
    arrays |= {name: getattr(runtime, name) for name in FLAGS}
    if runtime.x is not None:
        arrays["x"] = np.asarray(runtime.x)
    header = _identity(runtime) | {
        "kind": KIND,
        "state": learner.header(),
        "frozen": runtime.frozen,
        "faults": dict(runtime.faults),
        "clipped": runtime.clipped,
        "notes": list(runtime.notes),
    }
    return arrays, header


def _identity(runtime: Runtime) -> dict[str, Any]:
    """What must be the same for a state to fit."""
    return {
        "learner": runtime.learner.name,
        "rows": runtime.rows,
        **runtime.learner.identity(),
    }


def restore(
    runtime: Runtime, arrays: dict[str, np.ndarray], header: dict[str, Any], name: str
) -> None:
    """Takes over a snapshot; anything that does not fit is an error before a thing is changed."""
    for field, here in _identity(runtime).items():
        if field not in header or header[field] != here:
            there = header.get(field, "none")
            raise ValueError(
                f"{name} is of {field} = {there!r}, and here it is {here!r}: make the "
                "wrapper with the settings that it was saved with"
            )
    flags, counts, x = _flags(runtime, arrays, name), _counts(header, name), arrays.get("x")
    frozen, notes = header["frozen"], header["notes"]
    if not isinstance(frozen, bool) or not isinstance(notes, list):
        raise ValueError(f"{name} is damaged: 'frozen' is {frozen!r} and 'notes' are {notes!r}")
    if x is not None and runtime.x is not None and x.shape != np.shape(runtime.x):
        raise ValueError(f"{name} has observations of shape {x.shape}; here {np.shape(runtime.x)}")
    size = len(LEARNER)
    own = {key[size:]: each for key, each in arrays.items() if key.startswith(LEARNER)}
    try:
        runtime.learner.restore(own, header["state"])
    except (KeyError, ValueError, TypeError) as error:
        said = str(error) if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"{name} is damaged or of other settings: {said}") from error
    runtime.take(x, flags, frozen, counts["clipped"])
    runtime.notes = [str(each) for each in notes]
    runtime.faults.clear()
    runtime.faults.update(header["faults"])


def _counts(header: dict[str, Any], name: str) -> dict[str, int]:
    """Numbers of a header that count something."""
    faults = header["faults"]
    if not isinstance(faults, dict) or not set(faults) <= set(FAULTS):
        raise ValueError(f"{name} is damaged: 'faults' is {faults!r}")
    numbers = {"clipped": header["clipped"]}
    for field, value in (numbers | faults).items():
        if type(value) is not int or not 0 <= value < LARGEST:
            raise ValueError(f"{name} is damaged: {field!r} is {value!r}")
    return numbers


def _flags(runtime: Runtime, arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """Flags of rows."""
    for field in FLAGS:
        if arrays[field].shape != (runtime.rows,) or arrays[field].dtype != bool:
            raise ValueError(f"{name} is damaged: {field!r} is {arrays[field]!r}")
    return {field: arrays[field] for field in FLAGS}


def save(runtime: Runtime, path: str | Path) -> None:
    """Writes the state, whole or not at all."""
    files.write(path, *snapshot(runtime))


def load(runtime: Runtime, path: str | Path) -> None:
    """Reads a state that `save` wrote, or changes nothing."""
    restore(runtime, *files.read(path, KIND), f"{str(path)!r}")
