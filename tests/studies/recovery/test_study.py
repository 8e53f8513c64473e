"""`recovery` end to end at a small size, and its numbers from episodes that are made by hand."""

import csv
import json
from dataclasses import replace
from math import inf, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from windward.cli import STUDIES
from windward.studies.recovery import report, study
from windward.studies.recovery.cases import CASES
from windward.studies.spec import Execution


@pytest.fixture
def settings(tmp_path: Path) -> study.RecoveryStudy:
    how = Execution(runs=tmp_path / "runs", jobs=1)
    return study.RecoveryStudy(scale="smoke", out=tmp_path / "out", how=how)


def content(nominal: Any, base: Any, adapted: Any, **more: Any) -> dict[str, Any]:
    """What a run leaves, from the returns of its episodes."""
    returns = {"nominal": nominal, "base": base, "adapted": adapted}
    rows = [
        {"policy": policy, "episode": i, "return": float(total), "length": 10}
        for policy, totals in returns.items()
        for i, total in enumerate(totals)
    ]
    rest = {"exact": False, "slowest": 1.0, "supervisor": 2.0, "step_ms": 0.5, "base_ms": 0.1,
            "phase": "active", "decisions": [], "faults": {}}  # fmt: skip
    return {"rows": rows, **rest, **more}


def test_writes_what_it_measures(settings: study.RecoveryStudy, console: Console) -> None:
    summary = study.run(settings, console)
    assert settings.out is not None
    with (settings.out / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 3 * 2  # cases, policies, episodes
    assert list(rows[0]) == ["case", "learner", "seed", "episode", "policy", "return", "length"]
    sine, calm = summary["scores"]
    assert (sine["case"], sine["learner"]) == ("pendulum-slow-sine", "matching")
    assert sine["first"]["nominal"] > sine["first"]["base"]
    assert sine["later"]["worst_seed"] == 3000
    assert not sine["exact"]
    assert calm["exact"]
    assert calm["held"]
    assert calm["later"]["lost"] == 0
    assert calm["supervisor"] > 0
    assert calm["slowest"] > calm["step_ms"] / 1000 > 0
    assert [each["case"] for each in summary["decisions"]] == [sine["case"], calm["case"]]
    assert any("acting" in said for said in summary["decisions"][0]["decisions"])
    assert json.loads((settings.out / "summary.json").read_text()) == json.loads(
        json.dumps(summary)
    )
    assert (settings.out / "recovery.png").exists()
    page = (settings.out / "report.html").read_text()
    assert "Never harm" in page
    again = replace(settings, how=replace(settings.how, train=False))
    assert study.run(again, console)["scores"] == summary["scores"]


def test_starts_and_winds_are_those_of_every_policy() -> None:
    found = study.measure(CASES["pendulum-calm"], "matching", 3001, 2, lambda: None)
    returns = {
        policy: [row["return"] for row in found["rows"] if row["policy"] == policy]
        for policy in report.POLICIES
    }
    assert returns["nominal"] == returns["base"] == returns["adapted"]
    assert found["exact"]


def test_recovered_is_per_seed_and_the_worst_is_named() -> None:
    nominal, base = [100.0, 100.0, 100.0], [0.0, 50.0, 50.0]
    contents = {
        3000: content(nominal, base, [50.0, 100.0, 80.0]),  # 0.5, then 0.8
        3001: content(nominal, base, [100.0, 50.0, 90.0]),  # 1.0, then 0.4
        3002: content(nominal, nominal, [99.0, 98.0, 96.0]),  # nothing was lost: left out
    }
    found = report.score("halfcheetah-mass", "auto", contents)
    assert found.first.recovered is not None
    assert found.later.recovered is not None
    half = 12.7062 * np.std([0.5, 1.0], ddof=1) / sqrt(2)  # Student's t with one degree
    assert found.first.recovered == pytest.approx((0.75, 0.75 - half, 0.75 + half), rel=1e-4)
    assert found.later.recovered.value == pytest.approx(0.6)
    assert (found.later.worst, found.later.worst_seed) == (pytest.approx(0.4), 3001)
    assert (found.later.seeds, found.later.lost_seed) == (2, 3002)
    assert found.later.lost == pytest.approx(3.0)
    assert (found.first.held, found.later.held, found.held) == (True, False, False)
    assert (found.first.base, found.first.adapted) == (100 / 3, 83)


def test_a_goal_may_ask_for_every_seed() -> None:
    nominal, base = [1000.0, 1000.0], [0.0, 0.0]
    contents = {
        3000: content(nominal, base, [1000.0, 1000.0]), 3001: content(nominal, base, [500.0, 940.0])
    }  # fmt: skip
    found = report.score("inverted-pendulum-force", "auto", contents)
    assert found.later.recovered is not None
    assert found.later.recovered.value == pytest.approx(0.97)
    assert (found.first.held, found.later.held) == (True, False)


def test_one_seed_has_no_interval_and_no_loss_has_no_share() -> None:
    one = report.score("hopper-mass", "auto", {1: content([9, 9], [0, 9], [9, 9])})
    assert one.first.recovered == (1.0, -inf, inf)
    assert (one.later.recovered, one.later.worst, one.later.held) == (None, None, True)
    harmed = report.score("hopper-mass", "auto", {1: content([9, 9], [0, 9], [9, 8])})
    assert (harmed.later.recovered, harmed.later.held) == (None, False)


@pytest.mark.parametrize(
    ("name", "adapted", "exact", "held"),
    [("hopper-calm", 100.0, True, True), ("hopper-calm", 100.0, False, False),
     ("hopper-noise", 99.5, False, True), ("hopper-noise", 98.5, False, False),
     ("hopper-friction", 97.5, False, True), ("hopper-friction", 96.5, False, False)],
)  # fmt: skip
def test_harm_is_that_of_the_worst_seed(name: str, adapted: float, exact: bool, held: bool) -> None:
    contents = {
        1: content([100, 100], [100, 100], [120, 120], exact=exact),
        2: content([100, 100], [100, 100], [100, adapted], exact=exact),
    }
    found = report.score(name, "matching", contents)
    assert found.later.lost == pytest.approx(100 - adapted)
    assert (found.later.lost_seed, found.held) == (2, held)


def test_a_plan_has_a_run_for_each_case_learner_and_seed(
    settings: study.RecoveryStudy, capsys: pytest.CaptureFixture[str]
) -> None:
    dry = replace(settings.how, dry_run=True)
    study.run(study.RecoveryStudy(how=dry), Console(width=200))
    told = capsys.readouterr().out
    assert told.startswith(f"recovery: {47 * 2 * 4} runs, 0 of them finished")
    assert "recovery hopper-mass auto 3003" in told
    assert study.RecoveryStudy in STUDIES


@pytest.mark.parametrize(
    ("given", "match"),
    [({"cases": ("hopper",)}, "cases must be of hopper-mass"), ({"seeds": 0}, "seeds must be"),
     ({"learners": ("best",)}, "learners must be of auto"), ({"episodes": 1}, "episodes must be")],
)  # fmt: skip
def test_bad_settings_are_refused(
    settings: study.RecoveryStudy, console: Console, given: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        study.run(replace(settings, **given), console)
