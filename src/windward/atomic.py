"""Files that are written whole or not at all: beside the old one, then renamed."""

import csv
import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Puts the text in place of what was there."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    os.replace(partial, path)


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows of the same keys, as CSV."""
    rows = list(rows)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


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
