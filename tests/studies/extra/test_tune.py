"""The search of `windward tune`: its seeds, ranges and rungs, and what Ray Tune makes of them."""

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from windward.cli import main
from windward.studies.extra import tune
from windward.studies.extra.tune import Tune
from windward.studies.paper import training as robust_training
from windward.studies.paper.groups import size_of
from windward.studies.paper.trainings import ENTRIES
from windward.studies.spec import Execution


def _tuning(folder: Path) -> Tune:
    how = Execution(runs=folder / "runs")
    study = replace(ENTRIES["pendulum-sine"].default, scale="smoke", out=folder / "out", how=how)
    return Tune(study, points=3, decades=1.0)


def test_the_ranges_are_around_the_studys_own(tmp_path: Path) -> None:
    robust = ENTRIES["pendulum-sine"].default.agent.robust
    ranges = tune.space(_tuning(tmp_path))
    assert ranges["eta"] == pytest.approx((robust.eta / 10, robust.eta * 10))
    assert ranges["weight_decay"] == pytest.approx((robust.weight_decay / 10, 50.0))
    assert ranges["sigma"] == (0.05, 0.4)


def test_the_command_at_the_end_keeps_what_was_searched_with(tmp_path: Path) -> None:
    study = replace(
        _tuning(tmp_path).study, steps=800, agent=replace(_tuning(tmp_path).study.agent, n_step=3)
    )
    command = tune.study_with(study, {"sigma": 0.12345, "eta": 1.23456e-3, "weight_decay": 2.0})
    assert command == (
        "windward run pendulum-sine --scale smoke --steps 800 --sigmas 0.123 --n-step 3 "
        f"--eta 0.00123 --weight-decay 2.0 --runs {tmp_path / 'runs'}"
    )


def test_a_plan_searches_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tuning = _tuning(tmp_path)
    how = replace(tuning.study.how, dry_run=True, address="head:6379")
    tuning = replace(tuning, study=replace(tuning.study, how=how))
    assert tune.run(tuning, Console(width=200)) == {}
    out = capsys.readouterr().out
    assert "3 points, 1 seed(s) each from 1000 on, compared after 100, 200, 400 steps" in out
    assert not list(tmp_path.iterdir())


def test_a_search_without_training_is_refused(tmp_path: Path, console: Console) -> None:
    tuning = _tuning(tmp_path)
    idle = replace(tuning.study, how=replace(tuning.study.how, train=False))
    with pytest.raises(ValueError, match="a search trains"):
        tune.run(replace(tuning, study=idle), console)


def test_flags_of_the_search_stand_before_the_study_or_behind_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ("hopper-pd3 --points 4 --scale smoke", "--points 4 hopper-pd3 --scale smoke"):
        main(["tune", *given.split(), "--dry-run"])
        assert "4 points" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main(["tune", "--help"])
    assert "windward tune hopper-pd3 --points 4" in capsys.readouterr().out


@pytest.mark.slow
def test_a_point_is_trained_from_rung_to_rung_on_seeds_of_the_searchs_own(tmp_path: Path) -> None:
    entry = ENTRIES["pendulum-sine"]
    study = robust_training.scaled(_tuning(tmp_path).study, entry)
    size = size_of(study, entry)
    made = robust_training.make_groups(study, size)
    seeds = {run.settings["seed"] for group in made for run in (*group.shown, *group.judged)}
    assert not seeds & set(range(tune.FIRST, tune.FIRST + 100))
    point = {"sigma": 0.1, "eta": 1e-3, "weight_decay": 2.0}
    scores = [tune.judge(study, size, point, 1, steps, tmp_path) for steps in (100, 200)]
    (folder,) = tmp_path.glob("SinePendulum*")  # one run that went on
    settings = json.loads((folder / "settings.json").read_text())["settings"]
    assert settings["seed"] == tune.FIRST
    assert settings["agent"]["sigma"] == 0.1
    assert settings["agent"]["robust"]["eta"] == 1e-3
    assert settings["agent"]["robust"]["weight_decay"] == 2.0
    rows = (folder / "curves.csv").read_text().splitlines()[1:]
    returns = [float(row.split(",")[2]) for row in rows]
    assert scores == [pytest.approx(returns[0]), pytest.approx(returns[1])]


def test_without_ray_tune_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    monkeypatch.setattr(tune, "connected", lambda address: nullcontext())
    for name in list(sys.modules):
        if name.partition(".tune")[0] == "ray" and ".tune" in name:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray.tune", None)
    with pytest.raises(ValueError, match=r"needs Ray Tune .*pip install 'ray\[tune\]'"):
        tune.run(_tuning(tmp_path), console)


@pytest.mark.slow
def test_a_search_finds_a_point_and_says_how_to_run_it(tmp_path: Path, console: Console) -> None:
    summary = tune.run(_tuning(tmp_path), console)
    assert len(summary["points"]) == 3
    assert summary["best"]["steps"] == 400
    assert summary["study"].startswith("windward run pendulum-sine --scale smoke --sigmas")
    assert summary["command"].startswith("windward tune pendulum-sine --scale smoke --out ")
    assert summary["command"].endswith(" --points 3 --decades 1.0")
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary
    assert "Score over eta" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.slow
def test_a_point_that_fails_is_told_and_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuning = replace(_tuning(tmp_path), points=1)
    wild = replace(tuning.study.agent, learning_rate=1e30)
    with pytest.raises(ValueError, match="every point failed"):
        tune.run(replace(tuning, study=replace(tuning.study, agent=wild)), Console(width=200))
    assert capsys.readouterr().out.count("a point failed: NotFinite") == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [({"sigmas": (0.3,)}, "draws sigma from --sigma-range"),
     ({"how": Execution(jobs=2)}, "--jobs 2 says nothing to a search")],
)  # fmt: skip
def test_flags_that_say_nothing_to_a_search_are_refused(
    tmp_path: Path, console: Console, change: dict[str, Any], message: str
) -> None:
    tuning = _tuning(tmp_path)
    with pytest.raises(ValueError, match=message):
        tune.run(replace(tuning, study=replace(tuning.study, **change)), console)
