"""The state of a module in a file: M, windows, optimiser, draws; not the environment's state."""

from pathlib import Path
from typing import Any

import numpy as np

from windward import files
from windward.adapt import resume
from windward.adapt.faults import FAULTS
from windward.adapt.module import Module
from windward.adapt.runtime import Runtime
from windward.types import State

KIND = "windward.adaptation"
TEACHER = "teacher/"
FLAGS = ("fallback", "mid_episode", "ended")


def snapshot(module: Module | Runtime) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and a header from which an equal module goes on exactly."""
    if isinstance(module, Runtime):
        return resume.snapshot(module)
    engine = module.engine
    engine.settle()
    arrays = files.flatten("state", engine.state)
    arrays |= {field: getattr(module, field) for field in FLAGS}
    if module.x is not None:
        arrays["x"] = np.asarray(module.x)
    teacher = module.teacher
    if teacher is not None:
        arrays |= {f"{TEACHER}{name}": each for name, each in teacher.arrays().items()}
    header = _identity(module) | {
        "kind": KIND,
        "teacher": None if teacher is None else teacher.memory(),
        "guard": None if module.guard is None else module.guard.memory(),
        "leaves": sum(name.startswith("state/") for name in arrays),
        "t": engine.t,
        "seed": engine.seed,
        "frozen": module.frozen,
        "faults": dict(module.faults),
        "clipped": module.clipped,
        "memory": module.source.memory(),
    }
    return arrays, header


def _identity(module: Module) -> dict[str, Any]:
    """What must be the same for a state to fit."""
    engine, teacher = module.engine, module.teacher
    algorithm = engine.algorithm
    return {
        "algorithm": algorithm.name,
        "signal": module.source.name,
        "gradient": module.gradient,
        "guarded": module.guard is not None or (teacher is not None and teacher.doubting),
        "h": algorithm.h,
        "d_u": algorithm.d_u,
        "d_w": algorithm.d_w,
        "rows": engine.rows,
        "shared": engine.shared,
        "clock": list(algorithm.clock),
    }


def restore(
    module: Module | Runtime, arrays: dict[str, np.ndarray], header: dict[str, Any], name: str
) -> None:
    """Takes over a snapshot; anything that does not fit is an error before a thing is changed."""
    if (header["kind"] == resume.KIND) != isinstance(module, Runtime):
        raise ValueError(f"{name} is of another learner: make the wrapper with the same learner=")
    if isinstance(module, Runtime):
        resume.restore(module, arrays, header, name)
        return
    for field, here in _identity(module).items():
        if header[field] != here:
            raise ValueError(
                f"{name} is of {field} = {header[field]!r}, and here it is {here!r}: make the "
                "wrapper with the settings that it was saved with"
            )
    like = module.engine.state
    state: State = files.unflatten("state", like, arrays)
    leaves = [each for key, each in arrays.items() if key.startswith("state/")]
    if len(leaves) != header["leaves"] or len(leaves) != len(files.flatten("state", like)):
        raise ValueError(f"{name} was saved with other settings of the update")
    if any(np.isnan(each).any() for each in leaves if each.dtype.kind == "f"):
        raise ValueError(f"{name} is damaged: it holds numbers that are none")
    counts, flags = _counts(header, name), _flags(module, arrays, name)
    x = arrays.get("x")
    if x is not None and module.x is not None and x.shape != np.shape(module.x):
        raise ValueError(f"{name} has observations of shape {x.shape}; here {np.shape(module.x)}")
    _restore_parts(module, arrays, header, name)
    module.stretch()
    module.engine.restore(state, counts["t"], counts["seed"])
    module.fallback, module.mid_episode, module.ended = flags
    module.frozen, module.clipped = bool(header["frozen"]), counts["clipped"]
    module.faults.clear()
    module.faults.update(header["faults"])
    module.x = x
    module.telling.begin()


def _restore_parts(
    module: Module, arrays: dict[str, np.ndarray], header: dict[str, Any], name: str
) -> None:
    """The source, the teacher and the guard, all or none."""
    teacher, guard, size = module.teacher, module.guard, len(TEACHER)
    guarded = None if guard is None else guard.memory()
    if guard is not None:
        try:
            guard.restore(header["guard"])
        except ValueError as error:
            raise ValueError(f"{name} does not fit in 'guard': {error}") from error
    if teacher is not None:
        own = {key[size:]: each for key, each in arrays.items() if key.startswith(TEACHER)}
        before = teacher.arrays(), teacher.memory()
        try:
            teacher.restore(own, header["teacher"])
        except ValueError as error:
            raise ValueError(f"{name} does not fit in what replays need: {error}") from error
    try:
        module.source.remember(header["memory"])
    except ValueError as error:
        if teacher is not None:
            teacher.restore(*before)
        if guard is not None:
            guard.restore(guarded)
        raise ValueError(f"{name} does not fit in 'memory': {error}") from error


def _counts(header: dict[str, Any], name: str) -> dict[str, int]:
    """Numbers of a header that count something."""
    limits = {"t": 2**31, "seed": 2**32, "clipped": 2**63}
    numbers = {field: header[field] for field in limits}
    faults = header["faults"]
    if not isinstance(faults, dict) or not set(faults) <= set(FAULTS):
        raise ValueError(f"{name} is damaged: 'faults' is {faults!r}")
    limits |= dict.fromkeys(faults, 2**63)
    for field, value in (numbers | faults).items():
        if type(value) is not int or not 0 <= value < limits[field]:
            raise ValueError(f"{name} is damaged: {field!r} is {value!r}")
    return numbers


def _flags(module: Module, arrays: dict[str, np.ndarray], name: str) -> list[np.ndarray]:
    """Flags of rows."""
    for field in FLAGS:
        if arrays[field].shape != (module.rows,) or arrays[field].dtype != bool:
            raise ValueError(f"{name} is damaged: {field!r} is {arrays[field]!r}")
    return [arrays[field] for field in FLAGS]


def save(module: Module | Runtime, path: str | Path) -> None:
    """Writes the state, whole or not at all."""
    files.write(path, *snapshot(module))


def load(module: Module | Runtime, path: str | Path) -> None:
    """Reads a state that `save` wrote, or changes nothing."""
    restore(module, *files.read(path, KIND, resume.KIND), f"{str(path)!r}")
