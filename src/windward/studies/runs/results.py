"""Results on disk: raw rows as CSV, a summary as JSON, each written whole or not at all."""

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

from windward.atomic import write_text
from windward.studies.runs.commands import commit

LIBRARIES = ("windward", "gymnasium", "jax", "jaxlib", "mujoco", "numpy", "optax", "scipy")


def versions() -> dict[str, str]:
    """What a number was made with."""
    return {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES}


def write_summary(path: Path, command: str, settings: Any, **content: Any) -> dict[str, Any]:
    """The summary with the command, settings, versions and commit that made it.

    Folders and how runs were done are left out: they are no part of a result.
    """
    chosen = {
        name: each for name, each in asdict(settings).items()
        if name not in ("out", "how") and not isinstance(each, Path)
    }  # fmt: skip
    summary = {
        "command": command,
        "settings": chosen,
        "versions": versions(),
        "commit": commit(),
        **content,
    }
    summary = {name: finite(each) for name, each in summary.items()}
    write_text(path, json.dumps(summary, indent=1, default=str, allow_nan=False) + "\n")
    return summary


def finite(tree: Any) -> Any:
    """With null in place of numbers that JSON does not have.

    >>> finite({"mean": 0.5, "worst": [float("-inf"), 1]})
    {'mean': 0.5, 'worst': [None, 1]}
    """
    if isinstance(tree, Mapping):
        return {name: finite(each) for name, each in tree.items()}
    if isinstance(tree, list | tuple):
        return [finite(each) for each in tree]
    return None if isinstance(tree, float) and not isfinite(tree) else tree
