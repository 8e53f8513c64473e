"""A run's folder: its name, what is in it, who may write there, and what is refused."""

import errno
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.studies.runs import work
from windward.studies.runs import locks, store
from windward.studies.runs.locks import Lock
from windward.studies.spec import Pace, Run, Task


def test_a_name_says_the_settings_and_nothing_else() -> None:
    one = work.run(3)
    assert one.name.startswith("count-seed3-")
    assert work.run(3, goal=1000).name == one.name  # a longer run is the same run
    assert work.run(3, fail=7).name != one.name
    reordered = Run(one.label, dict(reversed(list(one.settings.items()))), 50, one.do)
    assert reordered.name == one.name


def test_a_finished_run_has_its_files_and_is_not_repeated(tmp_path: Path) -> None:
    run = work.run(3)
    assert store.finished(run, tmp_path) is None
    assert store.perform(run, tmp_path) is None
    folder = run.folder(tmp_path)
    (board,) = folder.glob("events.*")
    assert {path.name for path in folder.iterdir()} - {board.name} == {
        ".lock", "curves.csv", "finished.json", "settings.json", "starts.txt", "state.json"
    }  # fmt: skip
    assert json.loads((folder / "settings.json").read_text())["settings"] == {"seed": 3}
    done = store.finished(run, tmp_path)
    assert done is not None
    assert done.goal == 50
    assert store.perform(run, tmp_path) is None
    assert work.starts(folder) == ["0"]


def test_a_higher_goal_goes_on_and_ends_like_one_that_went_through(tmp_path: Path) -> None:
    short, long = work.run(3, 40), work.run(3, 90)
    store.perform(short, tmp_path / "a")
    assert store.finished(long, tmp_path / "a") is None
    store.perform(long, tmp_path / "a")
    assert work.starts(long.folder(tmp_path / "a")) == ["0", "40"]
    store.perform(long, tmp_path / "b")
    curves = [store.curve(long, tmp_path / root) for root in "ab"]
    np.testing.assert_array_equal(curves[0]["eval_return"], curves[1]["eval_return"])
    # And the short one is still there: the curve up to its goal.
    assert store.curve(short, tmp_path / "a")["steps"].tolist() == [10, 20, 30, 40]
    assert store.reached(short, tmp_path / "a") == 40
    assert store.finished(short, tmp_path / "a") is not None


def test_how_far_a_run_has_come_is_told_by_its_mark_or_else_by_its_curve(tmp_path: Path) -> None:
    run = work.run(3, 40)
    assert store.reached(run, tmp_path) == 0
    store.perform(run, tmp_path)
    (run.folder(tmp_path) / store.CURVES).unlink()  # as of runs that write none
    assert store.reached(run, tmp_path) == 40
    assert store.reached(work.run(3, 90), tmp_path) == 0


def test_the_commits_of_the_code_that_made_a_run_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for code, goal in (("one", 20), ("two", 40), ("two", 50)):
        monkeypatch.setattr(store, "commit", lambda code=code: code)
        store.perform(work.run(1, goal), tmp_path)
    monkeypatch.setattr(store, "commit", lambda: None)  # outside of git
    store.perform(work.run(2), tmp_path)
    runs = [work.run(seed) for seed in (1, 2, 3)]
    assert store.commits(runs, tmp_path) == ["one", "two", "unknown"]


def test_a_failure_is_kept_and_raised_and_the_next_try_goes_on(tmp_path: Path) -> None:
    run = work.run(3, fail=35)
    folder = run.folder(tmp_path)
    with pytest.raises(RuntimeError, match="it failed at step 35"):
        store.perform(run, tmp_path)
    assert "RuntimeError: it failed at step 35" in (folder / "error.txt").read_text()
    assert store.finished(run, tmp_path) is None
    assert store.holder(run, tmp_path) is None
    healed = replace(run, do=_healed)
    store.perform(healed, tmp_path)
    assert work.starts(folder) == ["0", "30"]
    assert not (folder / "error.txt").exists()


def _healed(task: Task) -> Pace:
    settings = {"seed": task.run.settings["seed"]}
    return work.counting(task._replace(run=replace(task.run, settings=settings)))


def test_what_a_kill_left_half_written_is_gone_when_the_run_goes_on(tmp_path: Path) -> None:
    run = work.run(3)
    folder = run.folder(tmp_path)
    folder.mkdir()
    for name in ("curves.csv.0123456789abcdef.partial", "last.npz.partial"):
        (folder / name).write_text("half")
    store.perform(run, tmp_path)
    assert not list(folder.glob("*.partial"))
    assert store.finished(run, tmp_path) is not None


def test_other_settings_in_the_folder_are_refused(tmp_path: Path) -> None:
    run = work.run(3)
    store.perform(run, tmp_path)
    folder = run.folder(tmp_path)
    (folder / "finished.json").unlink()
    (folder / "settings.json").write_text(json.dumps({"settings": {"seed": 4, "new": 1}}))
    before = (folder / "curves.csv").read_text()
    with pytest.raises(ValueError, match=r"holds a run with other settings \(new, seed\)"):
        store.perform(run, tmp_path)
    assert (folder / "curves.csv").read_text() == before


@pytest.mark.parametrize("name", ["settings.json", "finished.json"])
def test_a_damaged_file_is_named(name: str, tmp_path: Path) -> None:
    run = work.run(3)
    store.perform(run, tmp_path)
    (run.folder(tmp_path) / "finished.json").unlink()
    (run.folder(tmp_path) / name).write_text("{")
    with pytest.raises(ValueError, match=f"{name} is damaged"):
        store.perform(run, tmp_path)


def test_a_full_disk_ends_in_a_clear_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = work.run(3)

    def full(path: Path, text: str) -> None:
        if path.name == "state.json" and "30" in text:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _write(path, text)

    _write = work.write_text
    monkeypatch.setattr(work, "write_text", full)
    with pytest.raises(ValueError, match=r"the disk is full at .*the same command goes on"):
        store.perform(run, tmp_path)
    assert store.holder(run, tmp_path) is None
    monkeypatch.undo()
    store.perform(run, tmp_path)
    assert work.starts(run.folder(tmp_path)) == ["0", "20"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="cannot be written"):
        store.perform(work.run(3), tmp_path / "file")


def test_warnings_are_kept_with_the_mark(tmp_path: Path) -> None:
    store.perform(replace(work.run(3), do=_warns), tmp_path)
    done = store.finished(work.run(3), tmp_path)
    assert done is not None
    assert done.warned == ("beware",)


def _warns(task: Task) -> Pace:
    import warnings

    for _ in range(2):
        warnings.warn("beware", stacklevel=1)
    return work.counting(task)


# Locks.

HOLD = """
import sys, time
from pathlib import Path
from windward.studies.runs.locks import Lock
with Lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def _held(folder: Path) -> subprocess.Popen[str]:
    """Another process that holds a folder."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_held_lock_is_respected_and_given_back(tmp_path: Path) -> None:
    with Lock(tmp_path) as one:
        other = Lock(tmp_path)
        assert other.take() == one.owner
        assert locks.holder(tmp_path) == one.owner
        with pytest.raises(ValueError, match=f"held by process {os.getpid()} on"):
            other.__enter__()
        other.release()  # what is not ours stays
        assert one.ours
    assert locks.holder(tmp_path) is None
    assert other.take() is None
    other.release()


def test_a_lock_whose_owner_was_killed_is_free(tmp_path: Path) -> None:
    """Whatever host, container or number the process had: the kernel knows that it is gone."""
    child = _held(tmp_path)
    lock = Lock(tmp_path)
    owner = lock.take()
    assert owner is not None
    assert owner.startswith(f"process {child.pid} on ")
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie does not hold it either
    assert lock.take() is None
    lock.release()
    child.communicate()


def test_a_lock_that_cannot_be_made_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / locks.NAME).mkdir()
    with pytest.raises(IsADirectoryError):
        Lock(tmp_path).take()


def test_a_lock_whose_owner_wrote_nothing_is_held_all_the_same(tmp_path: Path) -> None:
    with Lock(tmp_path):
        (tmp_path / locks.HOLDER).unlink()
        assert Lock(tmp_path).take() == locks.SOMEBODY


def test_a_run_whose_folder_was_deleted_meanwhile_stops(tmp_path: Path) -> None:
    run = replace(work.run(3), do=_robbed)
    with pytest.raises(RuntimeError, match="was deleted while this process worked in it"):
        store.perform(run, tmp_path)


def _robbed(task: Task) -> Pace:
    shutil.rmtree(task.folder)
    task.folder.mkdir()
    task.check()
    raise AssertionError


def test_of_many_who_want_it_one_at_a_time_is_in(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("0")

    def count() -> None:
        for _ in range(20):
            lock = Lock(tmp_path)
            while lock.take() is not None:
                pass
            number = int((tmp_path / "number").read_text())
            (tmp_path / "number").write_text(str(number + 1))
            lock.release()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "number").read_text() == "80"


def test_a_process_that_was_killed_in_the_middle_leaves_what_the_next_takes_up(
    tmp_path: Path,
) -> None:
    run = work.run(3, wait=25, file=str(tmp_path / "go"))
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=store.perform, args=(run, tmp_path))
    process.start()
    while not (tmp_path / "waiting-3").exists():
        process.join(0.01)
        assert process.is_alive()
    assert process.pid is not None
    owner = store.perform(run, tmp_path)  # the other is at it
    assert owner is not None
    assert owner.startswith(f"process {process.pid} on ")
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    (tmp_path / "go").touch()
    assert store.perform(run, tmp_path) is None
    assert work.starts(run.folder(tmp_path)) == ["0", "20"]
    calm = work.run(3)
    store.perform(calm, tmp_path)
    ours, theirs = store.curve(run, tmp_path), store.curve(calm, tmp_path)
    np.testing.assert_array_equal(ours["eval_return"], theirs["eval_return"])
