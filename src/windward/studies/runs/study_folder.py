"""The folder of a study's results: one set of settings for each name, and files written whole."""

import csv
import gzip
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from windward.atomic import prepare, write_text
from windward.studies.runs.locks import guard
from windward.studies.runs.origin import commit, versions
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


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a CSV with numbers as such, or of its .gz; [] if there is neither.

    >>> [parsed(text) for text in ("3", "-0.5", "sine 16", "")]
    [3, -0.5, 'sine 16', '']
    """
    packed = path.with_name(f"{path.name}.gz")
    if not path.exists() and not packed.exists():
        return []
    with path.open(newline="") if path.exists() else gzip.open(packed, "rt", newline="") as file:
        return [{name: parsed(text) for name, text in row.items()} for row in csv.DictReader(file)]


def parsed(text: str) -> Any:
    """A cell as what it is."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
