"""The folder of a study's results: one set of settings for each name, and files written whole."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from windward.atomic import prepare, write_text
from windward.studies.runs.locks import guard
from windward.studies.runs.store import speaking_of

STUDY = "study.json"


RESULTS = "summary.json"


def claim(out: Path, identity: dict[str, Any]) -> Path:
    """Makes the folder for these settings, or refuses one that holds results of others.

    A setting that did not exist when the results were made is not held against them.
    """
    prepare(out)
    ours = json.loads(json.dumps(identity, default=str))
    path = out / STUDY
    with speaking_of(out), guard(out):
        if not path.exists():
            write_text(path, json.dumps(ours, indent=1) + "\n")
            return out
        try:
            theirs = json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}): delete it") from error
    changed = list(_changes("", theirs, ours))
    if changed:
        holds = "holds results with" if (out / RESULTS).exists() else "was begun with"
        raise ValueError(
            f"{out} {holds} other settings ({'; '.join(changed)}): give another --out, or delete it"
        )
    return out


def _changes(prefix: str, theirs: Any, ours: Any) -> Iterator[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in theirs:
            yield from _changes(name, theirs[name], ours.get(name))
    elif theirs != ours:
        yield f"{prefix} was {theirs}, now {ours}"


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Two commands that end at the same moment write one after the other."""
    with speaking_of(out), guard(out):
        yield
