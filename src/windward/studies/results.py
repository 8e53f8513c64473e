"""Results on disk: raw rows as CSV, a summary as JSON, each written whole or not at all."""

import csv
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

LIBRARIES = ("windward", "gymnasium", "jax", "jaxlib", "mujoco", "numpy", "optax", "scipy")


def versions() -> dict[str, str]:
    """What a number was made with."""
    return {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES}


def prepare(out: Path) -> Path:
    """The folder for results; refuses one that cannot be written, before any work starts."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(f"out must be a folder that can be written; {out}: {error}") from error
    return out


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    os.replace(partial, path)


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows of the same keys, as CSV."""
    rows = list(rows)
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(partial, path)


def write_summary(path: Path, command: str, settings: Any, **content: Any) -> dict[str, Any]:
    """The summary with the command, settings and versions that made it."""
    summary = {
        "command": command,
        "settings": {name: value for name, value in asdict(settings).items() if name != "out"},
        "versions": versions(),
        **content,
    }
    _replace(path, json.dumps(summary, indent=1, default=str) + "\n")
    return summary
