"""The folder of a study's results: one set of settings for each name, and files written whole."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from windward.atomic import prepare, write_text
from windward.studies.runs.locks import guard
from windward.studies.runs.store import speaking_of

STUDY, RESULTS = "study.json", "summary.json"
"""the settings that a folder is for, and what is there once they have come to something"""


def claim(out: Path, identity: dict[str, Any]) -> Path:
    """Makes the folder for these settings, or refuses one that is for others."""
    prepare(out)
    ours = _text(identity)
    with speaking_of(out), guard(out):
        refuse_others(out, identity)
        path = out / STUDY
        if not path.exists() or path.read_text() != ours:  # settings that are new since then
            write_text(path, ours)
    return out


def refuse_others(out: Path, identity: dict[str, Any]) -> None:
    """Refuses a folder that is for other settings, and writes nothing.

    A setting that did not exist when the folder was made is not held against it.
    """
    path = out / STUDY
    try:
        theirs = json.loads(path.read_text())
    except FileNotFoundError:
        return
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): delete it") from error
    changed = list(_changes("", theirs, json.loads(_text(identity))))
    if changed:
        holds = "holds results with" if (out / RESULTS).exists() else "was begun with"
        raise ValueError(
            f"{out} {holds} other settings ({'; '.join(changed)}): give another --out, or delete it"
        )


def _text(identity: dict[str, Any]) -> str:
    return json.dumps(identity, indent=1, default=str) + "\n"


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
