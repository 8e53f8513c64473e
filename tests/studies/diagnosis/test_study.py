"""`diagnose` end to end at a small size: files, goals, and what is worked out of the cases."""

import csv
import json
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from windward.studies.diagnosis import study
from windward.studies.diagnosis.goals import GROUPS, Goal, score
from windward.studies.spec import Execution


@pytest.fixture
def settings(tmp_path: Path) -> study.DiagnoseStudy:
    return study.DiagnoseStudy(
        groups=("single", "nothing"), envs=("CartPole-v1", "InvertedPendulum-v5"), seeds=3,
        chunk=2, most=1, out=tmp_path / "out", how=Execution(runs=tmp_path / "runs", jobs=1),
    )  # fmt: skip


def test_writes_what_it_measures(settings: study.DiagnoseStudy, console: Console) -> None:
    summary = study.run(settings, console)
    assert settings.out is not None
    with (settings.out / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(run.goal for run in study.make_runs(settings))
    assert {int(row["seed"]) for row in rows} == {2000, 2002}  # of each run the first
    first = summary["scores"][0]
    assert (first["group"], first["env"], first["goal"]["measure"]) == ("single", "all", "error")
    own = [float(row["error"]) for row in rows if row["group"] == "single"]
    assert first["cases"] == len(own)
    assert first["worst"] == max(own) < 0.01
    assert first["held"]
    assert summary["groups"]["nothing"]["a change reported"] == 0
    assert "--groups single nothing --envs CartPole-v1" in summary["command"]
    assert json.loads((settings.out / "summary.json").read_text()) == json.loads(
        json.dumps(summary)
    )
    assert (settings.out / "diagnose.png").exists()
    assert "Cases by what was said" in (settings.out / "report.html").read_text()
    again = replace(settings, how=replace(settings.how, train=False))
    assert study.run(again, console)["scores"] == summary["scores"]
    with pytest.raises(ValueError, match="holds results with other settings"):
        study.run(replace(settings, first_seed=3000), console)


def test_a_plan_knows_what_groups_take(
    settings: study.DiagnoseStudy, capsys: pytest.CaptureFixture[str]
) -> None:
    dry = replace(settings.how, dry_run=True)
    study.run(study.DiagnoseStudy(groups=("coverage",), how=dry), Console(width=200))
    told = capsys.readouterr().out
    least = 408 * GROUPS["coverage"].seconds / 3600
    assert float(told.split(" core-hours")[0].split()[-1]) == pytest.approx(least, rel=0.05)


@pytest.mark.parametrize(
    ("given", "match"),
    [({"groups": ("single", "none")}, "groups must be of"), ({"seeds": 0}, "seeds must be"),
     ({"groups": ("spatial",)}, "has cases on")],
)  # fmt: skip
def test_bad_settings_are_refused(
    settings: study.DiagnoseStudy, console: Console, given: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        study.run(replace(settings, **given), console)


def test_scores_are_wilsons_and_count_failures() -> None:
    row = {"env": "a", "seed": 1, "foreign": "", "wind": "", "changes": "{}", "seconds": 1.0,
           "unseen": 0}  # fmt: skip
    rows = [row | {"seed": i, "error": 0.001 * i} for i in range(9)]
    rows += [row | {"seed": 9, "error": None, "seconds": None}]
    found = score("single", "", Goal("error", 0.0075, least=0.8), rows)
    assert (found.cases, found.share, found.held) == (10, 0.8, True)
    # 8 of 10, as tables of the Wilson interval have it.
    assert (found.low, found.high) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert (found.worst, found.worst_seconds, found.worst_case) == (inf, inf, "a, seed 9")
    assert found.unseen == 0
    assert found.median == pytest.approx(0.0045)
    assert not score("coverage", "", Goal("error", 1, 0.5, 0.85), rows).held  # 9 of 10
