"""Runs on disk: each a folder named by its settings, which can be left and taken up at any moment.

A folder has settings.json, curves.csv (the metrics as they come), whatever checkpoint the work
writes, and finished.json when it is done; after a failure error.txt. Each file is written whole or
not at all, and by one process at a time.
"""

import csv
import errno
import json
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from windward.agents.progress import Board
from windward.atomic import clean, write_text
from windward.studies.runs import locks
from windward.studies.runs.locks import Lock
from windward.studies.runs.origin import commit, versions
from windward.studies.spec import Pace, Run, Task, unique

SETTINGS, CURVES, FINISHED, ERROR = "settings.json", "curves.csv", "finished.json", "error.txt"
WHOLE = ".curve"
"""how files for TensorBoard end that are written when a run is finished"""
OF_CODE = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
"""warnings that tell of libraries, not of the run"""


class Done(NamedTuple):
    """The finished mark."""

    goal: int
    pace: Pace
    warned: tuple[str, ...]


def finished(run: Run, root: Path) -> Done | None:
    """The finished mark of a run, if it has come as far as this one's goal."""
    done = mark(run, root)
    return done if done is not None and done.goal >= run.goal else None


def mark(run: Run, root: Path) -> Done | None:
    """The finished mark of a run, however far it had to go then."""
    try:
        found = json.loads((run.folder(root) / FINISHED).read_text())
        return Done(found["goal"], Pace(*found["pace"]), tuple(found["warned"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{run.folder(root) / FINISHED} is damaged ({error!r}): delete it, and the run goes on "
            "from its checkpoint"
        ) from error


def core_hours(runs: Iterable[Run], root: Path) -> float:
    """What finished runs took, as far as they were timed."""
    marks = (mark(run, root) for run in unique(runs))
    timed = [done for done in marks if done is not None and done.pace.units]
    seconds = sum(done.goal * done.pace.seconds / done.pace.units for done in timed)
    return float(f"{seconds / 3600:.3g}")


def failed(run: Run, root: Path) -> bool:
    """Whether it ended with an error, and was not finished since."""
    return (run.folder(root) / ERROR).exists() and finished(run, root) is None


def holder(run: Run, root: Path) -> str | None:
    """Who works on it now, in words."""
    return locks.holder(run.folder(root))


def reached(run: Run, root: Path) -> int:
    """How far it has come: to its goal, or as far as its curve, where it writes one."""
    if finished(run, root) is not None:
        return run.goal
    try:
        with (run.folder(root) / CURVES).open() as file:
            first, *_, last = file.read().splitlines()
        return min(run.goal, int(last.split(",")[first.split(",").index("steps")]))
    except (OSError, ValueError):  # none yet
        return 0


def curve(run: Run, root: Path) -> dict[str, np.ndarray]:
    """The columns of its curve, up to its goal; {} if there is none yet."""
    path = run.folder(root) / CURVES
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        return {}
    columns = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    kept = columns["steps"] <= run.goal  # a run may have gone on for longer
    return {name: column[kept] for name, column in columns.items()}


def perform(run: Run, root: Path) -> str | None:
    """Does a run if it is not finished; gives who else is at it, if somebody is.

    What the work raises is kept in error.txt and raised again.
    """
    folder = run.folder(root)
    with speaking_of(folder):
        folder.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder)
    with speaking_of(folder):
        owner = lock.take()
    if owner is not None:
        return owner
    try:
        with speaking_of(folder):
            if finished(run, root) is None:
                clean(folder)
                _settle(run, folder)
                _work(run, folder, lock)
    except Exception:
        with suppress(OSError):  # the disk may be full, which is then what is raised
            write_text(folder / ERROR, traceback.format_exc())
        raise
    finally:
        with suppress(OSError):
            lock.release()
    return None


def _work(run: Run, folder: Path, lock: Lock) -> None:
    def check() -> None:
        if not lock.ours:
            raise RuntimeError(f"{folder} was deleted while this process worked in it")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        pace = run.do(Task(run, folder, check))
    check()
    told = (str(each.message) for each in caught if not issubclass(each.category, OF_CODE))
    done = Done(run.goal, pace, tuple(dict.fromkeys(told)))
    write_text(folder / FINISHED, json.dumps(done._asdict(), indent=1) + "\n")
    (folder / ERROR).unlink(missing_ok=True)
    with suppress(OSError):  # it can be made again of the curve
        _board(run, folder)


def _board(run: Run, folder: Path) -> None:
    """The curve for TensorBoard, whole, of work that does not write it by itself."""
    for path in folder.glob(f"events.*{WHOLE}"):  # of when it had come less far
        path.unlink()
    columns = curve(run, folder.parent)
    if columns and not any(folder.glob("events.*")):
        board = Board(folder, WHOLE)
        for row in zip(*columns.values(), strict=True):
            board.add(dict(zip(columns, map(float, row), strict=True)))
        board.close()


def _settle(run: Run, folder: Path) -> None:
    """Writes down the settings, or refuses a folder of others."""
    path = folder / SETTINGS
    ours = json.loads(json.dumps(run.settings))
    if not path.exists():
        content = {"settings": ours, "versions": versions(), "commits": [commit()]}
        write_text(path, json.dumps(content, indent=1) + "\n")
        return
    try:
        content = json.loads(path.read_text())
        theirs, commits = content["settings"], content.get("commits", [None])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}): delete the folder {folder}") from error
    if theirs != ours:
        changed = [name for name in {**ours, **theirs} if theirs.get(name) != ours.get(name)]
        raise ValueError(
            f"{folder} holds a run with other settings ({', '.join(sorted(changed))}): delete it, "
            "or name another folder with --runs"
        )
    if (now := commit()) not in commits:  # it goes on with other code
        write_text(path, json.dumps({**content, "commits": [*commits, now]}, indent=1) + "\n")


def commits(runs: Iterable[Run], root: Path) -> list[str]:
    """Of the code that made what there is of these runs, each once; "unknown" outside of git."""
    found: dict[str, None] = {}
    for run in runs:
        path = run.folder(root) / SETTINGS
        if path.exists():
            told = json.loads(path.read_text()).get("commits", [None])
            found |= dict.fromkeys(each or "unknown" for each in told)
    return list(found)


@contextmanager
def speaking_of(folder: Path) -> Iterator[None]:
    """Errors of the disk in words that say what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ValueError(
                f"the disk is full at {folder}: what was written before stays. Make room, and the "
                "same command goes on"
            ) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            raise ValueError(f"{folder} cannot be written: {error}") from error
        raise
