"""A study of a few sums, end to end: resumed, planned, refused; what it leaves."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from windward.studies import run
from windward.studies.report import Chart, Points, Table, Text
from windward.studies.run import Computed, Plan, Result, conduct
from windward.studies.runs.study_folder import read_rows
from windward.studies.spec import Pace, Run, Shown, Study, Task, sized


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
    run.leave(task, {"sum": s["T"] + s["seed"] / 4}, np.arange(2.0 * s["T"]).reshape(2, -1))
    return Pace(s["T"], 700.0)


def make_runs(settings: Small) -> list[Run]:
    return [
        Run(f"sum {seed}", {"T": settings.n, "seed": seed}, settings.n, add)
        for seed in range(settings.seeds)
    ]


def show(done: Sequence[Result], settings: Small) -> Shown:
    rows = [{"seed": each.run.settings["seed"], "sum": each.content["sum"]} for each in done]
    table = Table("Sums", ("seed", "sum"), [[row["seed"], row["sum"]] for row in rows])
    dots = [Points("sum", [row["seed"] for row in rows], [row["sum"] for row in rows])]
    sections = [table, Chart("A chart", "seed", "sum", dots), Text("A title", ["a paragraph"])]
    return Shown("So much.", rows, total(rows), sections)


def total(rows: Any) -> dict[str, Any]:
    return {"total": float(sum(row["sum"] for row in rows))}


def check(settings: Small) -> None:
    if settings.n < 1:
        raise ValueError(f"n must be at least 1; got {settings.n}")


STUDY = Study(
    "sums", Small(), "sums", "a second", "a few sums", "How much?", make_runs, show, total, check,
    {"n": 1, "seeds": 1}, free=("seeds",),
)  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path) -> Small:
    return Small(out=tmp_path / "out", how=run.Execution(runs=tmp_path / "runs", jobs=1))


def sums(settings: Small, console: Console) -> float:
    value: float = conduct(STUDY, settings, console)["total"]
    return value


def test_finished_runs_are_not_repeated_and_more_of_them_go_on(
    settings: Small, console: Console
) -> None:
    assert sums(settings, console) == 15.75
    assert sums(replace(settings, seeds=4), console) == 21.5
    times = [path.read_text() for path in settings.how.runs.glob("*/times")]
    assert times == ["once\n"] * 4


def test_what_it_leaves(settings: Small, console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windward.studies.runs.store.commit", lambda: "of runs")
    monkeypatch.setattr("windward.studies.runs.study_folder.commit", lambda: "of the page")
    settings = replace(settings, n=4)
    summary = conduct(STUDY, settings, console)
    out = settings.out
    assert out is not None
    names = {"runs.csv", "summary.json", "report.html", "sums.png", "sums.pdf", "study.json"}
    assert {path.name for path in out.iterdir()} == names | {".guard"}
    with (out / "runs.csv").open() as file:
        assert [row["sum"] for row in csv.DictReader(file)] == ["4", "4.25", "4.5"]
    # The raw results alone give the numbers again.
    assert total(read_rows(out / "runs.csv")) == {"total": summary["total"]}
    assert json.loads((out / "summary.json").read_text()) == summary
    assert summary["command"].startswith("windward run sums --out ")
    assert summary["command"].endswith(" --jobs 1 --n 4")
    assert (summary["commit"], summary["commits_of_runs"]) == ("of the page", ["of runs"])
    assert summary["settings"] == {"scale": "laptop", "n": 4, "seeds": 3}
    page = (out / "report.html").read_text()
    for part in ("How much?", "So much.", "a paragraph", "A chart", "of runs", "--n 4"):
        assert part in page


def test_a_failure_is_told_and_the_others_stay(settings: Small, console: Console) -> None:
    settings.how.runs.mkdir()
    (settings.how.runs / "fail-1").touch()
    with pytest.raises(ValueError, match="1 of 3 runs failed"):
        conduct(STUDY, settings, console)
    drawn = replace(settings, how=replace(settings.how, train=False))
    with pytest.raises(ValueError, match=r"2 of 3 runs are finished; .* without --no-train"):
        conduct(STUDY, drawn, console)
    some = conduct(replace(STUDY, partial=True), drawn, console)
    assert some["found"] == "Not finished: 2 of 3 runs are. So much."
    assert some["total"] == 10.5
    (settings.how.runs / "fail-1").unlink()
    assert sums(settings, console) == 15.75


def test_other_settings_under_one_name_and_damaged_results_are_refused(
    settings: Small, console: Console
) -> None:
    sums(settings, console)
    with pytest.raises(ValueError, match=r"holds results with other settings .*n was 5, now 6"):
        conduct(STUDY, replace(settings, n=6), console)
    path = make_runs(settings)[0].folder(settings.how.runs) / run.RESULT
    path.write_text("{")
    with pytest.raises(ValueError, match=r"result.json is damaged .*: delete"):
        conduct(STUDY, settings, console)


def test_bad_settings_are_refused_before_anything_is_made(
    settings: Small, tmp_path: Path, console: Console
) -> None:
    with pytest.raises(ValueError, match="n must be at least 1; got 0"):
        conduct(STUDY, replace(settings, n=0), console)
    assert not list(tmp_path.iterdir())


def test_a_plan_runs_nothing_and_knows_what_runs_took(
    settings: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(width=200)
    dry = replace(settings, how=replace(settings.how, dry_run=True))
    assert conduct(STUDY, dry, console) == {}
    assert not list(tmp_path.iterdir())
    told = capsys.readouterr().out
    assert "3 runs, 0 of them finished" in told
    assert "what the others take is known once one is finished" in told
    assert "sum 2" in told
    conduct(STUDY, settings, Console(quiet=True))
    conduct(STUDY, replace(dry, seeds=4), console)
    told = capsys.readouterr().out
    assert "4 runs, 3 of them finished" in told
    assert f"{700 / 3600:.2f} core-hours (by finished runs)" in told


def test_a_speed_that_is_known_counts_until_a_run_is_finished(settings: Small) -> None:
    plan = Plan("sums", settings, make_runs(settings), "sums", pace=0.01)
    assert run.seconds_left(plan) == (pytest.approx(3 * 5 / 0.01), "measured speed")


def test_the_curve_is_the_mean_cost_in_bins(settings: Small, console: Console) -> None:
    found = run.compute(Plan("sums", settings, make_runs(settings), "sums"), console)
    assert found is not None
    (first, *_), _ = found
    np.testing.assert_array_equal(first.curve["steps"], [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(first.curve["cost"], [2.5, 3.5, 4.5, 5.5, 6.5])


def test_smoke_changes_what_is_as_it_comes(settings: Small, console: Console) -> None:
    small = {"n": 1, "seeds": 1}
    assert sized(Small(), Small(), small) == Small()
    assert sized(Small(scale="smoke", n=2), Small(), small) == Small(scale="smoke", n=2, seeds=1)
    assert conduct(STUDY, replace(settings, scale="smoke"), console)["found"].startswith(
        "Scale smoke shows that everything works; its numbers mean nothing. So much."
    )
