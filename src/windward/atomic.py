"""Files that are written whole or not at all: beside the old one, then renamed."""

import csv
import io
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Puts the text in place of what was there."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Puts the bytes in place of what was there."""
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError:  # a full disk: what was there before stays, and nothing else
        partial.unlink(missing_ok=True)
        raise


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
        # A name of its own: two commands may begin in one folder at the same moment.
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise ValueError(f"out must be a folder that can be written; {out}: {error}") from error
    return out
