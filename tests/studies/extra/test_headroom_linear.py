"""`headroom-linear` at a small size: files, keys, and claims that hold even there."""

import csv
from pathlib import Path

import numpy as np
import pytest
import tyro
from rich.console import Console

import windward as ww
from windward.studies.extra import headroom_linear as study
from windward.studies.paper.systems import wind
from windward.studies.run import conduct
from windward.studies.spec import Execution


@pytest.mark.slow
def test_writes_what_it_reports(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ("paper's update", "response", "GPC")
    monkeypatch.setattr(study, "METHODS", {name: study.METHODS[name] for name in chosen})
    settings = study.HeadroomLinear(
        sizes=((2, 1),), T=600, last=200, systems=2, seeds=2, winds=("sine 16",),
        tune_winds=("sine 20",), out=tmp_path, how=Execution(runs=tmp_path / "runs", jobs=1),
    )  # fmt: skip
    summary = conduct(study.STUDY, settings, console)
    with (tmp_path / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * len(chosen)
    for name, reported in summary["headroom"]["2x1"].items():
        mine = [float(row["headroom"]) for row in rows if row["method"] == name]
        np.testing.assert_allclose(np.mean(mine), reported["mean"], rtol=1e-4, atol=1e-5)
        assert min(mine) == pytest.approx(reported["worst"], rel=1e-4)
    assert summary["headroom"]["2x1"]["response"]["mean"] > 0.5
    assert (tmp_path / "summary.json").exists()
    assert "--sizes 2 1 --T 600 --last 200" in summary["command"]
    assert set(summary["tuned"]["2x1"]["paper's update"]) == {"eta", "sigma"}
    assert (tmp_path / "headroom.pdf").exists()
    assert "Every run, 2x1" in (tmp_path / "report.html").read_text()


def test_what_diverges_on_one_of_the_tuning_systems_is_not_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Costs are shares of what LQR alone costs: a system of large ones counts no more."""
    costs = iter([[1.0, 3.0, 2.0], [np.inf, 1.0, 1.5], [900.0, 100.0, 0.0]])
    bases = iter([1.0, 1.0, 1000.0])
    grid = {"eta": np.array([0.1, 0.2, 0.3])}

    def tune(*_: object, **__: object) -> ww.linear.Tuned:
        return ww.linear.Tuned({}, np.array(next(costs)), grid, ())

    monkeypatch.setattr(ww.linear, "tune", tune)
    monkeypatch.setattr(study, "_base_cost", lambda *_: np.array([next(bases)]))
    method = study.METHODS["GPC"]._replace(grid=grid)
    settings = study.HeadroomLinear(T=50, last=10, sizes=((2, 1),))
    (run,) = (each for each in study.make_runs(settings) if each.settings["method"] == "GPC")
    assert study._tuned(method, run.settings) == {"eta": 0.3}


def test_tuning_shares_no_system_and_no_wind_of_a_period_with_the_report() -> None:
    settings = study.HeadroomLinear()
    assert settings.tune_systems <= study.FIRST
    tones = [name for name in settings.tune_winds if name != "walk"]
    assert not set(tones) & set(settings.winds)


def test_steps_is_another_name_of_t() -> None:
    given = tyro.cli(study.HeadroomLinear, args=["--steps", "5000"])
    assert given == study.HeadroomLinear(T=5000)


def test_winds_by_name() -> None:
    assert wind("constant", 5, 3, seed=0).std(axis=0).max() == 0
    assert wind("tones 19 44", 50, 3, seed=0).shape == (50, 3)
    assert not np.array_equal(wind("walk", 9, 2, 0), wind("walk", 9, 2, 1))
    with pytest.raises(ValueError, match="a wind must be"):
        wind("gust", 5, 3, seed=0)
