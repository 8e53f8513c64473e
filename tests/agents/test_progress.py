"""What learning writes for TensorBoard: each row once, whatever was killed before."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from tensorboardX.proto.event_pb2 import Event

from windward.agents.progress import OURS, Log

LENGTH, CHECK = 8, 4
"""bytes of a record's length, and of each of its checksums"""


def scalars(path: Path) -> Counter[tuple[str, int, float]]:
    """(name, step, value) of all scalars in a file for TensorBoard, and how often."""
    content, found, at = path.read_bytes(), Counter[tuple[str, int, float]](), 0
    while at < len(content):
        size = int.from_bytes(content[at : at + LENGTH], "little")
        begin = at + LENGTH + CHECK
        event: Any = Event.FromString(content[begin : begin + size])
        found.update((v.tag, event.step, round(v.simple_value, 3)) for v in event.summary.value)
        at = begin + size + CHECK
    return found


def _written(log: Log, folder: Path, *steps: int) -> None:
    log.open(folder)
    for step in steps:
        log.add(steps=step, eval_return=step / 2, train_return=np.nan)
    log.close()


def test_a_log_that_goes_on_has_each_row_once_in_one_file(tmp_path: Path) -> None:
    first = Log()
    _written(first, tmp_path, 10, 20, 30)
    (file,) = tmp_path.glob("events.*")
    assert file.name.endswith(OURS)
    # Another process, later: it has the rows of the last checkpoint, and the file has others.
    file.rename(file.with_name(f"events.out.tfevents.1.elsewhere{OURS}"))
    second = Log()
    second.rows = first.rows[:2]
    _written(second, tmp_path, 40)
    (file,) = tmp_path.glob("events.*")
    assert scalars(file) == Counter(("eval_return", step, step / 2) for step in (10, 20, 40))


def test_a_row_that_a_kill_lost_is_there_when_the_log_goes_on(tmp_path: Path) -> None:
    first = Log()
    _written(first, tmp_path, 10, 20)
    (file,) = tmp_path.glob("events.*")
    file.write_bytes(file.read_bytes()[:-30])  # torn in the middle of the last record
    second = Log()
    second.rows = first.rows
    second.open(tmp_path)
    second.close()
    (file,) = tmp_path.glob("events.*")
    assert scalars(file) == Counter(("eval_return", step, step / 2) for step in (10, 20))


def test_files_of_others_are_not_touched(tmp_path: Path) -> None:
    names = ("events.out.tfevents.1.host", "events.out.tfevents.1.host.curve", f"notes{OURS}")
    for name in names:
        (tmp_path / name).write_text("a user's")
    log = Log()
    for _ in range(2):
        _written(log, tmp_path, 10)
    assert [(tmp_path / name).read_text() for name in names] == ["a user's"] * 3
    assert len(list(tmp_path.glob(f"events.*{OURS}"))) == 1
