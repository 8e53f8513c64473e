"""Results on disk: what is written can be read, and a bad folder is refused at once."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from windward import atomic
from windward.atomic import prepare
from windward.studies import results


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
    assert not list(tmp_path.glob("*.partial"))


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match="out must be a folder"):
        prepare(tmp_path / "file" / "results")
