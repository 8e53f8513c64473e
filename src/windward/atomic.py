"""Files that are written whole or not at all: beside the old one, then renamed."""

import csv
import io
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

PARTIAL = ".partial"
"""how files end that are being written"""


def beside(path: Path) -> Path:
    """A temporary name of its own: writers of one file do not mix, and the last rename wins."""
    return path.with_name(f"{path.name}.{secrets.token_hex(8)}{PARTIAL}")


def write_text(path: Path, text: str) -> None:
    """Puts the text in place of what was there."""
    write_bytes(path, text.encode())


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to; it takes the place of what was there once all is on the disk."""
    partial = beside(path)
    try:
        with partial.open("wb") as file:  # unlike tempfile's, for all whom the umask allows
            yield file
            file.flush()
            os.fsync(file.fileno())  # or the name may be on the disk before what it names
        os.replace(partial, path)
    except BaseException:  # a full disk: what was there before stays, and nothing else
        partial.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Puts the bytes in place of what was there."""
    with replacing(path) as file:
        file.write(content)


def clean(folder: Path) -> None:
    """Deletes what a kill left of files that were being written; for who alone writes there."""
    for path in folder.glob(f"*{PARTIAL}"):
        path.unlink(missing_ok=True)


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows of the same keys, at least one, as CSV."""
    rows = list(rows)
    if not rows:
        raise ValueError(f"there are no rows to write to {path}")
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
