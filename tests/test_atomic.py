"""Files that are written whole or not at all, whoever else writes them at the same moment."""

import multiprocessing
import os
from pathlib import Path

import pytest

from windward import atomic

SIZE = 200_000


def _write(path: Path, letter: bytes, times: int) -> None:
    for _ in range(times):
        atomic.write_bytes(path, letter * SIZE)


def test_two_processes_that_write_one_file_do_not_tear_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic.write_bytes(path, b"a" * SIZE)
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(path, each, 300)) for each in (b"a", b"b")]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        content = path.read_bytes()
        assert content in (b"a" * SIZE, b"b" * SIZE)
        seen.add(content[:1])
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert b"b" in seen
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_a_file_may_be_read_by_whom_the_umask_allows(umask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        atomic.write_text(tmp_path / "file", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_fails_leaves_what_was_there_and_nothing_else(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    atomic.write_text(path, "before")

    def fail(partial: Path, target: Path) -> None:
        assert partial.read_text() == "after"
        raise error

    monkeypatch.setattr(atomic.os, "replace", fail)
    with pytest.raises(error):
        atomic.write_text(path, "after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    """A limit on a file's size fails in the middle of writing, as a full disk does."""
    path = tmp_path / "file"
    atomic.write_text(path, "before")
    context = multiprocessing.get_context("spawn")
    writer = context.Process(target=_write_limited, args=(path,))
    writer.start()
    writer.join()
    assert writer.exitcode == 3
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def _write_limited(path: Path) -> None:
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # or it kills
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        atomic.write_bytes(path, b"a" * SIZE)
    except OSError:
        os._exit(3)


def test_leftovers_of_a_kill_are_deleted_and_nothing_else(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writer = context.Process(target=_write_killed, args=(tmp_path / "file",))
    writer.start()
    writer.join()
    (left,) = tmp_path.iterdir()
    assert left.name.startswith("file.")
    (tmp_path / "other").touch()
    atomic.clean(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["other"]


def _write_killed(path: Path) -> None:
    atomic.os.replace = lambda *_: os._exit(9)  # type: ignore[assignment]
    atomic.write_text(path, "text")
