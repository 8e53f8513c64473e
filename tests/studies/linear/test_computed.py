"""Studies that are computed at one go: resumed, planned, refused; commands and commits kept."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from windward.studies.linear import computed
from windward.studies.linear.computed import Computed, Plan
from windward.studies.pages.report import Text
from windward.studies.runs.execution import Execution
from windward.studies.runs.store import Pace, Run, Task


@dataclass(frozen=True)
class Small(Computed):
    """A study of a few sums."""

    n: int = 5
    seeds: int = 3


def add(task: Task) -> Pace:
    s = task.run.settings
    if (task.folder.parent / f"fail-{s['seed']}").exists():
        raise RuntimeError("it was told to")
    with (task.folder / "times").open("a") as file:
        file.write("once\n")
    computed.leave(task, {"sum": s["T"] + s["seed"]}, np.arange(2.0 * s["T"]).reshape(2, -1))
    return Pace(s["T"], 700.0)


def plan_of(settings: Small) -> Plan:
    runs = [
        Run(f"sum {seed}", {"T": settings.n, "seed": seed}, settings.n, add)
        for seed in range(settings.seeds)
    ]
    command = computed.command_of("sums", settings, Small())
    return Plan("sums", settings, runs, command, pace=0.01, free=("seeds",))


@pytest.fixture
def settings(tmp_path: Path) -> Small:
    return Small(out=tmp_path / "out", how=Execution(runs=tmp_path / "runs", jobs=1))


def sums(plan: Plan, console: Console) -> list[int]:
    done = computed.whole(plan, console)
    assert done is not None
    return [each.content["sum"] for each in done]


def test_finished_runs_are_not_repeated_and_more_of_them_go_on(
    settings: Small, console: Console
) -> None:
    assert sums(plan_of(settings), console) == [5, 6, 7]
    assert sums(plan_of(replace(settings, seeds=4)), console) == [5, 6, 7, 8]
    times = [path.read_text() for path in settings.how.runs.glob("*/times")]
    assert times == ["once\n"] * 4


def test_a_failure_is_told_and_the_others_stay(settings: Small, console: Console) -> None:
    settings.how.runs.mkdir()
    (settings.how.runs / "fail-1").touch()
    with pytest.raises(ValueError, match="1 of 3 runs failed"):
        computed.whole(plan_of(settings), console)
    drawn = replace(settings, how=replace(settings.how, train=False))
    with pytest.raises(ValueError, match=r"2 of 3 runs are finished; .* without --no-train"):
        computed.whole(plan_of(drawn), console)
    found = computed.compute(plan_of(drawn), console)
    assert found is not None
    assert [each.content["sum"] for each in found[0]] == [5, 7]
    (settings.how.runs / "fail-1").unlink()
    assert sums(plan_of(settings), console) == [5, 6, 7]


def test_other_settings_under_one_name_and_damaged_results_are_refused(
    settings: Small, console: Console
) -> None:
    plan = plan_of(settings)
    sums(plan, console)
    with pytest.raises(ValueError, match=r"was begun with other settings .*n was 5, now 6"):
        computed.whole(plan_of(replace(settings, n=6)), console)
    path = plan.runs[0].folder(settings.how.runs) / computed.RESULT
    path.write_text("{")
    with pytest.raises(ValueError, match=r"result.json is damaged .*: delete"):
        computed.whole(plan, console)


def test_a_plan_runs_nothing_and_knows_what_runs_took(
    settings: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(width=200)
    dry = replace(settings, how=replace(settings.how, dry_run=True))
    assert computed.whole(plan_of(dry), console) is None
    assert not list(tmp_path.iterdir())
    told = capsys.readouterr().out
    assert "3 runs, 0 of them finished" in told
    assert "sum 2" in told
    assert f"{3 * (5 / 0.01 + 4) / 3600:.2f} core-hours (by measured speed)" in told
    computed.whole(plan_of(settings), Console(quiet=True))
    computed.whole(plan_of(replace(dry, seeds=4)), console)
    told = capsys.readouterr().out
    assert "4 runs, 3 of them finished" in told
    assert f"{700 / 3600:.2f} core-hours (by finished runs)" in told


def test_work_and_speed_know_the_size_of_a_system_and_what_a_start_takes(tmp_path: Path) -> None:
    small, large = ({"T": 100, "d_x": d_x, "d_u": 4, "h": 5} for d_x in (2, 64))
    assert computed.work(small) == 100
    assert computed.work(large) == 100 * 64 * 4 * 5 / 50
    assert computed.work({"T": 100, "d_x": 64, "h": 5}) == 640  # whose d_u is not told
    # A run that took no longer than a start tells little of its speed.
    assert computed.speed([100.0, 100.0], [2.0, 14.0]) == pytest.approx(200 / 11)
    plan = plan_of(Small(how=Execution(runs=tmp_path)))._replace(pace=1e9)
    assert computed.hours_left(plan, plan.runs, []) == pytest.approx(3 * 4 / 3600)


def test_the_curve_is_the_mean_cost_in_bins(settings: Small, console: Console) -> None:
    done = computed.whole(plan_of(settings), console)
    assert done is not None
    np.testing.assert_array_equal(done[0].curve["steps"], [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(done[0].curve["cost"], [2.5, 3.5, 4.5, 5.5, 6.5])


def test_summary_and_page_have_the_exact_command_and_the_commits(
    settings: Small, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windward.studies.runs.store.commit", lambda: "of runs")
    monkeypatch.setattr("windward.studies.runs.results.commit", lambda: "of the page")
    plan = plan_of(replace(settings, n=4, how=replace(settings.how, jobs=1)))
    done = computed.whole(plan, console)
    assert done is not None
    text: Any = [Text("A title", ["a paragraph"])]
    written = computed.write(plan, done, "sums", "How much?", "So much.", text, console, total=[1])
    assert json.loads((plan.out / "summary.json").read_text()) == written
    assert written["command"].startswith("windward run sums --out ")
    assert written["command"].endswith(" --jobs 1 --n 4")
    assert (written["commit"], written["commits_of_runs"]) == ("of the page", ["of runs"])
    assert written["settings"] == {"scale": "laptop", "n": 4, "seeds": 3}
    page = (plan.out / "report.html").read_text()
    for part in ("How much?", "So much.", "a paragraph", "of runs", "--n 4"):
        assert part in page


def test_smoke_changes_what_is_as_it_comes() -> None:
    small = {"n": 1, "seeds": 1}
    assert computed.sized(Small(), Small(), small) == Small()
    assert computed.sized(Small(scale="smoke", n=2), Small(), small) == Small(
        scale="smoke", n=2, seeds=1
    )
