"""Results on disk: raw rows as CSV, a summary as JSON, each written whole or not at all."""

import json
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from windward.atomic import write_text

LIBRARIES = ("windward", "gymnasium", "jax", "jaxlib", "mujoco", "numpy", "optax", "scipy")


def versions() -> dict[str, str]:
    """What a number was made with."""
    return {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES}


def write_summary(path: Path, command: str, settings: Any, **content: Any) -> dict[str, Any]:
    """The summary with the command, settings and versions that made it.

    Folders are left out: where files lay is no part of a result.
    """
    chosen = {name: each for name, each in asdict(settings).items() if not isinstance(each, Path)}
    summary = {
        "command": command,
        "settings": chosen,
        "versions": versions(),
        **content,
    }
    write_text(path, json.dumps(summary, indent=1, default=str) + "\n")
    return summary
