"""`lds-low` end to end at a small size: files, keys, and claims that hold even there."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from windward.studies import lds
from windward.studies.execution import Execution


def test_lds_low_writes_what_it_reports(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each method is a program of its own to compile; what is written is the same for all.
    every, chosen = lds.methods, ("LQR", "GPC", "Bandit GPC", "MF-GPC, PD3")
    monkeypatch.setattr(lds, "methods", lambda p, h: {name: every(p, h)[name] for name in chosen})
    settings = lds.LdsLow(
        T=600, last=100, tune_periods=(32.0,), periods=(40.0,), tune_seeds=1, seeds=2,
        out=tmp_path, how=Execution(runs=tmp_path / "runs", jobs=1),
    )  # fmt: skip
    summary = lds.run(settings, console)
    with (tmp_path / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(summary["headroom"]) == list(chosen)
    assert len(rows) == len(chosen) * 2
    for name, reported in summary["headroom"].items():
        mine = [float(row["headroom"]) for row in rows if row["method"] == name]
        np.testing.assert_allclose(np.mean(mine), reported["mean"], rtol=1e-5, atol=1e-5)
        assert min(mine) == pytest.approx(reported["worst"], rel=1e-5, abs=1e-5)
    assert summary["headroom"]["LQR"]["mean"] == 0
    assert summary["headroom"]["GPC"]["mean"] > 0.7
    assert (tmp_path / "costs.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "costs.pdf").exists()
    kept = json.loads((tmp_path / "summary.json").read_text())
    assert kept["command"].startswith("windward run lds-low --out ")
    assert "--T 600 --last 100" in kept["command"]
    page = (tmp_path / "report.html").read_text()
    assert "Cost over time" in page
    assert "Bandit GPC" in page


def test_other_grids_and_seeds_are_other_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {run.settings["method"]: run.name for run in lds.make_runs(lds.LdsLow())}
    monkeypatch.setattr(lds, "FIRST_SEED", 3000)
    moved = {run.settings["method"]: run.name for run in lds.make_runs(lds.LdsLow())}
    assert [name for name in names if names[name] == moved[name]] == ["best fixed M"]
    every = lds.methods

    def wider(problem: Any, h: int) -> Any:
        found = every(problem, h)
        return found | {"BPC": found["BPC"]._replace(grid={"eta": np.array([1e-6])})}

    monkeypatch.setattr(lds, "methods", wider)
    again = {run.settings["method"]: run.name for run in lds.make_runs(lds.LdsLow())}
    assert [name for name in moved if moved[name] != again[name]] == ["BPC"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"last": 0}, "last must be .* at least 1"),
        ({"last": 20_000}, "last must lie between 1 and T = 10000; got 20000"),
        ({"periods": ()}, "periods must hold at least one number"),
        ({"seeds": 0}, "seeds must be"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_made(
    change: dict[str, Any], message: str, tmp_path: Path, console: Console
) -> None:
    with pytest.raises(ValueError, match=message):
        lds.run(replace(lds.LdsLow(out=tmp_path / "out"), **change), console)
    assert not list(tmp_path.iterdir())


def test_every_method_can_be_made_from_its_grid() -> None:
    for name, method in lds.methods(lds.double_integrator(), h=5).items():
        algorithm = method.make(**method.grid)
        assert set(algorithm.grid) >= set(method.grid), name


def test_tuning_and_report_share_no_wind_and_no_seed() -> None:
    settings = lds.LdsLow()
    assert not set(settings.tune_periods) & set(settings.periods)
    assert settings.tune_seeds <= lds.FIRST_SEED
