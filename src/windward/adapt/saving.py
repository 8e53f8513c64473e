"""The state of a module in a file: M, windows, optimiser, draws; not the environment's state."""

from pathlib import Path
from typing import Any

import numpy as np

from windward import files
from windward.adapt.module import Module
from windward.types import State

KIND = "windward.adaptation"


def snapshot(module: Module) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and a header from which an equal module goes on exactly."""
    engine = module.engine
    arrays = files.flatten("state", engine.state)
    arrays |= {"fallback": module.fallback, "mid_episode": module.mid_episode}
    if module.x is not None:
        arrays["x"] = np.asarray(module.x)
    header = _identity(module) | {
        "kind": KIND,
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
    engine = module.engine
    algorithm = engine.algorithm
    return {
        "algorithm": algorithm.name,
        "signal": module.source.name,
        "h": algorithm.h,
        "d_u": algorithm.d_u,
        "d_w": algorithm.d_w,
        "rows": engine.rows,
        "shared": engine.shared,
    }


def restore(
    module: Module, arrays: dict[str, np.ndarray], header: dict[str, Any], name: str
) -> None:
    """Takes over a snapshot; anything that does not fit is an error before a thing is changed."""
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
    if not all(np.isfinite(each).all() for each in leaves):
        raise ValueError(f"{name} is damaged: it holds numbers that are not finite")
    fallback, mid_episode = arrays["fallback"], arrays["mid_episode"]
    t, seed, frozen = int(header["t"]), int(header["seed"]), bool(header["frozen"])
    faults, clipped, memory = header["faults"], int(header["clipped"]), header["memory"]
    module.source.remember(memory)
    module.engine.restore(state, t, seed)
    module.fallback, module.mid_episode = fallback, mid_episode
    module.frozen, module.clipped = frozen, clipped
    module.faults.clear()
    module.faults.update(faults)
    module.x = arrays.get("x")


def save(module: Module, path: str | Path) -> None:
    """Writes the state, whole or not at all."""
    files.write(path, *snapshot(module))


def load(module: Module, path: str | Path) -> None:
    """Reads a state that `save` wrote, or changes nothing."""
    restore(module, *files.read(path, KIND), f"{str(path)!r}")
