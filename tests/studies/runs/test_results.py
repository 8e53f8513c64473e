"""Results on disk: what is written can be read, and a bad folder is refused at once."""

import csv
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from windward import atomic
from windward.atomic import prepare
from windward.studies.runs import study_folder as results
from windward.studies.runs.origin import commit


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


def test_a_summary_is_json_that_every_reader_takes(tmp_path: Path) -> None:
    rows = [{"mean": float("nan"), "interval": (float("-inf"), 2.0)}]
    written = results.write_summary(tmp_path / "summary.json", "x", Settings(), rows=rows)
    assert written["rows"] == [{"mean": None, "interval": [None, 2.0]}]
    text = (tmp_path / "summary.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == written


def test_no_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no rows to write to"):
        atomic.write_rows(tmp_path / "runs.csv", [])


def test_many_may_prepare_one_folder_at_the_same_moment(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(prepare, [tmp_path / "out"] * 400)) == {tmp_path / "out"}
    assert not list((tmp_path / "out").iterdir())


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match="out must be a folder"):
        prepare(tmp_path / "file" / "results")
