"""What a study of trainings says: as little as one seed, unfinished or failed runs allow."""

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from windward.atomic import write_rows, write_text
from windward.studies import plots
from windward.studies import stats as smoothing
from windward.studies.paper import group_study, groups
from windward.studies.paper import training as robust_training
from windward.studies.paper import trainings as catalogue
from windward.studies.paper.groups import Found, Group, size_of
from windward.studies.paper.training import RobustTraining
from windward.studies.paper.trainings import ENTRIES
from windward.studies.runs import study_folder
from windward.studies.spec import Execution

DRAW = plots.draw


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few resamples, and no figures: what is looked at is what is said."""
    few = partial(smoothing.interquartile_band, resamples=20)
    monkeypatch.setattr(smoothing, "interquartile_band", few)
    monkeypatch.setattr(study_folder, "commit", lambda: "a commit")
    monkeypatch.setattr(plots, "draw", lambda *_, **__: None)
    monkeypatch.setattr(plots, "save", lambda *_: None)


def _study(folder: Path, name: str = "hopper-pd3", **changes: Any) -> RobustTraining:
    """A study of which only what is there is drawn."""
    how = Execution(runs=folder / "runs", train=False)
    return replace(ENTRIES[name].default, out=folder / "out", how=how, **changes)


def _groups(study: RobustTraining) -> list[Group]:
    return robust_training.make_groups(study, size_of(study, ENTRIES[study.study]))


def _fill(study: RobustTraining, returns: Any, part: Any = lambda seed: 1.0) -> None:
    """Runs with `returns(group, seed)` throughout, as far as `part(seed)` of them."""
    for i, group in enumerate(_groups(study)):
        for run in (*group.judged, *group.shown):
            seed = run.settings["seed"]
            folder = run.folder(study.how.runs)
            folder.mkdir(parents=True, exist_ok=True)
            steps = (np.linspace(0.25, 1, 4) * part(seed) * run.goal).astype(int)
            value = float(returns(i, seed))
            rows = [{"steps": s, "eval_return": value, "eval_worst": value} for s in steps]
            if group.method != "baseline":
                rows = [row | {"M_norm": 0.5} for row in rows]
            if part(seed):
                write_rows(folder / "curves.csv", rows)
            if part(seed) == 1:
                mark = {"goal": run.goal, "pace": [1, 1.0], "warned": []}
                write_text(folder / "finished.json", json.dumps(mark))


def _strict(path: Path) -> dict[str, Any]:
    """A summary, if it is JSON: Python alone takes NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    summary: dict[str, Any] = json.loads(path.read_text(), parse_constant=refuse)
    return summary


def _charts(page: str) -> dict[str, Any]:
    found = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    return {chart["title"]: chart for chart in map(json.loads, found)}


def test_one_seed_has_no_interval_and_no_band(tmp_path: Path, console: Console) -> None:
    study = _study(tmp_path, "hopper-clean", seeds=1)
    _fill(study, lambda i, seed: 100.0 * i)
    catalogue.run(study, console)
    summary = _strict(tmp_path / "out" / "summary.json")
    assert [group["mean"] for group in summary["groups"]] == [
        {"value": 0.0, "interval": None}, {"value": 100.0, "interval": None}
    ]  # fmt: skip
    assert "too few runs to tell, 1 seed against 1" in summary["found"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "100.0 [" not in page
    assert "Of one run there is no band" in page
    for curve in _charts(page)["Learning curves"]["curves"]:
        assert set(curve["low"]) == {None}


def test_the_answer_names_both_returns_and_their_difference(
    tmp_path: Path, console: Console
) -> None:
    study = _study(tmp_path)
    _fill(study, lambda i, seed: 1000.0 * i + seed)
    summary = catalogue.run(study, console)
    assert summary["found"].startswith(
        "Higher: MF-GPC PD3, σ = 0.25 ends with 5101.0, baseline, σ = 0.25 with 2101.0; difference "
        "3000.0 [2997.7, 3002.3]. Mean final returns of 3 seeds, 300,000 environment steps each"
    )
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Does MF-GPC PD3 end with a higher return than the baseline?" in page
    assert "No run is left out of any number" in page
    sizes = _charts(page)["Size of M"]
    assert sizes["y"]["label"] == "|M|"
    assert [curve["name"] for curve in sizes["curves"]] == ["MF-GPC PD3, σ = 0.25"]


def test_runs_that_are_not_finished_are_told_and_not_compared(
    tmp_path: Path, console: Console
) -> None:
    study = _study(tmp_path)
    _fill(study, lambda i, seed: 10.0 * i + seed, lambda seed: {101: 0.5, 102: 0.0}.get(seed, 1.0))
    summary = catalogue.run(study, console)
    assert "Not finished: 2 of 6 runs are" in summary["found"]
    assert "not yet to be compared" in summary["found"]
    assert "difference" not in summary["found"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Of 2 of 6 runs there is no return yet" in page
    assert "No run is left out" not in page


def test_unfinished_or_broken_runs_do_not_choose(tmp_path: Path, console: Console) -> None:
    study = _study(tmp_path)
    # The first of each method would stay in front of all others if NaN were compared.
    _fill(study, lambda i, seed: np.nan if i % 3 == 0 and seed < 100 else 10.0 * i + seed)
    summary = catalogue.run(study, console)
    assert summary["chosen"] == {
        "baseline": "baseline, σ = 0.25", "MF-GPC PD3": "MF-GPC PD3, σ = 0.25"
    }  # fmt: skip
    strict = _strict(tmp_path / "out" / "summary.json")
    assert strict["scores"]["baseline, σ = 0.15"] is None
    for mark in tmp_path.glob("runs/*seed0-*/finished.json"):
        mark.unlink()
    summary = catalogue.run(study, console)
    assert "others may be shown in the end" in summary["found"]
    assert "the choice may change" in (tmp_path / "out" / "report.html").read_text()


def test_a_return_that_is_no_number_is_counted_as_missing(tmp_path: Path, console: Console) -> None:
    study = _study(tmp_path)
    _fill(study, lambda i, seed: np.nan if seed == 102 else 10.0 * i + seed)
    catalogue.run(study, console)
    summary = _strict(tmp_path / "out" / "summary.json")
    assert [run["final_return"] for run in summary["groups"][0]["runs"]] == [120.0, 121.0, None]
    assert "Of 2 of 6 runs there is no return yet" in (tmp_path / "out/report.html").read_text()


def test_of_a_sweep_the_spread_of_each_method_is_told(tmp_path: Path, console: Console) -> None:
    study = _study(tmp_path, "walker-pd3-sweep")
    _fill(study, lambda i, seed: 10.0 * i + 3 * (seed == 100))
    found = catalogue.run(study, console)["found"]
    assert (
        "Baseline, 3 settings of 3 seeds: mean final returns from 1.0 to 21.0, standard error up to"
        in found
    )
    assert "MF-GPC PD3, 9 settings of 3 seeds: mean final returns from 31.0 to 111.0" in found
    page = (tmp_path / "out" / "report.html").read_text()
    assert "How much do the settings of MF-GPC PD3 and of the baseline matter?" in page
    alone = replace(study, seeds=1)
    assert (
        "one seed each cannot tell settings from chance" in catalogue.run(alone, console)["found"]
    )


def test_figures_of_groups_that_are_no_longer_shown_are_removed(
    tmp_path: Path, console: Console
) -> None:
    study = _study(tmp_path)
    _fill(study, lambda i, seed: 10.0 * i + seed)
    (tmp_path / "out").mkdir()
    for kind in ("png", "pdf"):
        (tmp_path / "out" / f"all.{kind}").touch()
    catalogue.run(study, console)
    assert not list((tmp_path / "out").glob("all.*"))


def _panels(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """The panels of raw.png that will be drawn: their titles, and the curves in each."""
    found: dict[str, list[Any]] = {}

    def look(figure: Any, out: Path, name: str) -> None:
        if name == "raw":
            found.clear()
            found.update(
                (axes.get_title(), axes.lines) for axes in figure.axes if axes.get_visible()
            )

    monkeypatch.setattr(plots, "draw", DRAW)
    monkeypatch.setattr(plots, "save", look)
    return found


def test_groups_that_were_not_chosen_are_drawn_by_the_runs_that_chose(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, panels = _study(tmp_path, "hopper-pd1", tune_seeds=2), _panels(monkeypatch)
    _fill(study, lambda i, seed: 10.0 * i + seed)
    summary = catalogue.run(study, console)
    shown = ["baseline, σ = 0.3", "MF-GPC PD1, σ = 0.2"]
    others = [group.name for group in _groups(study) if group.name not in shown]
    assert len(others) == 3 + 3
    assert list(panels) == [*shown, *(f"{name} (choosing runs)" for name in others)]
    assert [len(curves) for curves in panels.values()] == [3, 3, *[2] * 6]
    first = panels["baseline, σ = 0.1 (choosing runs)"]
    assert [set(curve.get_ydata()) for curve in first] == [{0.0}, {1.0}]
    size = size_of(study, ENTRIES["hopper-pd1"])
    assert {max(curve.get_xdata()) for curve in first} == {size.tune_steps}
    # Panels reach equally far, so that shorter runs look shorter.
    (ends,) = {curves[0].axes.get_xlim() for curves in panels.values()}
    assert ends[1] > size.steps
    # They are in no number and in no other chart.
    assert [group["group"] for group in summary["groups"]] == shown
    page = (tmp_path / "out" / "report.html").read_text()
    charts = _charts(page)
    assert [
        each["name"] for each in charts["Learning curves, every run, not smoothed"]["curves"]
    ] == shown
    chart = charts["Groups that were not chosen, not smoothed"]
    assert [each["name"] for each in chart["curves"]] == list(panels)[2:]
    assert (
        "only the shorter runs that chose the best of each method: 2 other seeds of "
        f"{size.tune_steps:,} environment steps each"
    ) in page
    assert all(name not in (tmp_path / "out" / "curves.csv").read_text() for name in others)


@pytest.mark.parametrize(("name", "changes"), [("hopper-pd1", {"all_groups": True}),
                                               ("walker-pd3-sweep", {})])  # fmt: skip
def test_where_all_groups_are_shown_no_choosing_runs_are_drawn(
    name: str, changes: Any, tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, panels = _study(tmp_path, name, **changes), _panels(monkeypatch)
    _fill(study, lambda i, seed: 10.0 * i + seed)
    catalogue.run(study, console)
    assert list(panels) == [group.name for group in _groups(study)]
    assert "not chosen" not in (tmp_path / "out" / "report.html").read_text()


def test_groups_that_have_no_curve_have_no_panel(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, panels = _study(tmp_path, "hopper-pd1"), _panels(monkeypatch)
    _fill(study, lambda i, seed: 10.0 * i + seed)
    first = _groups(study)[0]
    for run in first.judged:
        (run.folder(study.how.runs) / "curves.csv").unlink()
    catalogue.run(study, console)
    assert len(panels) == 2 + 5
    assert not {first.name, f"{first.name} (choosing runs)"} & panels.keys()


def test_failed_runs_are_named_even_if_they_only_choose(tmp_path: Path) -> None:
    study = _study(tmp_path)
    _fill(study, lambda i, seed: 10.0 * i + seed)
    entry = ENTRIES["hopper-pd3"]
    every = _groups(study)
    best = groups.best(every, study.how.runs)
    found = Found(
        study, entry, size_of(study, entry), every, list(best.values()), best,
        {every[0].judged[0].name: "the disk was gone"},
    )  # fmt: skip
    (tmp_path / "out").mkdir()
    summary = group_study.write(tmp_path / "out", found, "windward run", Console(quiet=True))
    assert "1 run failed" in summary["found"]
    assert "the disk was gone" in (tmp_path / "out" / "report.html").read_text()


def test_a_method_of_which_nothing_could_be_chosen_is_left_out_and_named(
    tmp_path: Path, console: Console
) -> None:
    study = _study(tmp_path)
    _fill(study, lambda i, seed: np.nan if i >= 3 and seed < 100 else 10.0 * i + seed)
    summary = catalogue.run(study, console)
    assert summary["chosen"] == {"baseline": "baseline, σ = 0.25"}
    assert [group["group"] for group in summary["groups"]] == ["baseline, σ = 0.25"]
    assert "MF-GPC PD3 is not shown: none of its groups has a return" in summary["found"]


@pytest.mark.parametrize(("scale", "told"), [("smoke", True), ("laptop", False)])
def test_the_smallest_scale_says_that_it_means_nothing(
    tmp_path: Path, console: Console, scale: Any, told: bool
) -> None:
    study = robust_training.scaled(_study(tmp_path, scale=scale), ENTRIES["hopper-pd3"])
    _fill(study, lambda i, seed: 10.0 * i + seed)
    summary = catalogue.run(study, console)
    assert ("its numbers mean nothing" in summary["found"]) == told
