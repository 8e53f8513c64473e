"""Results on disk: what is written can be read, and a bad folder is refused at once."""

import csv
import errno
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from windward import atomic
from windward.atomic import prepare
from windward.studies import results
from windward.studies.commands import commit


@dataclass(frozen=True)
class Settings:
    T: int = 3
    out: Path = Path("x")


def test_rows_and_summary_round_trip(tmp_path: Path) -> None:
    atomic.write_rows(tmp_path / "runs.csv", [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])
    with (tmp_path / "runs.csv").open() as file:
        assert list(csv.DictReader(file)) == [{"a": "1", "b": "x"}, {"a": "2", "b": "y"}]
    results.write_summary(tmp_path / "summary.json", "windward run x", Settings(), slope=[0.5])
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["settings"] == {"T": 3}
    assert summary["slope"] == [0.5]
    assert summary["versions"]["jax"]
    assert summary["commit"] == commit()
    assert not list(tmp_path.glob("*.partial"))


def test_many_may_prepare_one_folder_at_the_same_moment(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(prepare, [tmp_path / "out"] * 400)) == {tmp_path / "out"}
    assert not list((tmp_path / "out").iterdir())


def test_a_full_disk_leaves_what_was_there_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    atomic.write_text(tmp_path / "a.txt", "before")

    def full(path: Path, content: bytes) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        atomic.write_text(tmp_path / "a.txt", "after")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.txt", "before")]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match="out must be a folder"):
        prepare(tmp_path / "file" / "results")
