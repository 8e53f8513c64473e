"""`lds-high`: numbers by hand, equal tuning, and a small one end to end."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tyro
from rich.console import Console

from windward.studies.paper import lds_high
from windward.studies.paper.lds_high import BINNED, METHODS, LdsHigh
from windward.studies.paper.systems import BEST, LQR, REPORT_SEED, problem
from windward.studies.run import Plan, Result, conduct
from windward.studies.runs.pool import Outcome
from windward.studies.spec import Execution
from windward.studies.stats import student_interval


def test_bpc_and_bandit_gpc_are_tuned_over_the_same_grid_on_the_same_seeds() -> None:
    runs = lds_high.make_runs(LdsHigh())
    made = {
        run.settings["method"]: lds_high.tunable(
            run.settings["method"], problem(10, 5, 500), run.settings
        )
        for run in runs
        if run.settings["method"] != BEST
    }
    grids = {method: grid for method, (_, grid) in made.items()}
    assert set(grids["BPC"]) == {"eta", "delta"}
    for name, values in grids["BPC"].items():
        np.testing.assert_array_equal(values, grids["Bandit GPC"][name])
    radii = [made[name][0](eta=1e-6, delta=0.1).hyper["radius"] for name in lds_high.BANDITS]
    assert radii == [LdsHigh().radius] * 2
    by_method: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        settings = dict(run.settings)
        by_method.setdefault(settings.pop("method"), []).append(settings)
    assert by_method["BPC"] == by_method["Bandit GPC"]
    assert set(by_method) == set(METHODS)
    assert not set(LdsHigh().winds) & set(LdsHigh().tune_winds)


def test_headroom_by_hand() -> None:
    runs = lds_high.make_runs(LdsHigh(systems=2, horizons=(100,)))
    costs = {
        LQR: [[10.0], [20.0]],
        BEST: [[5.0], [10.0]],
        "GPC": [[5.0, 5.0], [10.0, 10.0]],
        "BPC": [[12.0, 14.0], [20.0, 20.0]],
        "Bandit GPC": [[7.5, 7.5], [15.0, 10.0]],
    }
    results = [
        Result(run, {"last": each, "whole": each, "hyper": {}, "on_edge": []}, {}, Path())
        for run in runs
        for each in (costs[run.settings["method"]],)
    ]
    raw = lds_high.rows_of(results)
    headroom = lds_high.numbers(raw)["headroom"]
    rows = {row["method"]: row for row in headroom}
    np.testing.assert_allclose(rows["GPC"]["systems"], [1.0, 1.0])
    np.testing.assert_allclose(rows["BPC"]["systems"], (-0.4 - 0.8 + 0 + 0) / 4)
    assert rows["BPC"]["worst"] == pytest.approx(-0.8)
    assert rows["BPC"]["median"] == pytest.approx(-0.2)
    assert max(rows["BPC"]["saved"]) <= 0
    np.testing.assert_allclose(rows["Bandit GPC"]["systems"], (0.5 + 0.5 + 0.5 + 1.0) / 4)
    np.testing.assert_allclose(rows["Bandit GPC"]["saved"], 1 - 10.0 / 15.0)
    (said,) = lds_high.verdicts(headroom)
    assert "Bandit GPC improves on LQR and BPC not for sure, as the paper says" in said
    assert "Bandit GPC saves on 2 of 2 systems" in said
    # A system of which a run is missing does not count.
    fewer = lds_high.numbers(lds_high.rows_of(results[:-1]))["headroom"]
    assert len(fewer[-1]["systems"]) == 1


@pytest.mark.parametrize(
    ("bpc", "bandit", "said"),
    [
        ([0.1, 0.11], [0.3, 0.31], "here BPC can be tuned to learn"),
        ([-0.1, 0.2], [-0.3, 0.4], "neither improves on LQR for sure"),
        ([0.1, 0.11], [-0.3, 0.4], "which the paper does not find"),
        ([0.1], [0.2], "one system tells nothing of others"),
    ],
)
def test_what_holds_of_the_claim_is_said(bpc: Any, bandit: Any, said: str) -> None:
    rows = []
    for name, each in (("BPC", bpc), ("Bandit GPC", bandit)):
        mean = student_interval(np.array(each))
        within = [mean.low, mean.high] if len(each) > 1 else None
        row = {"T": 10, "method": name, "mean": mean.value, "interval": within, "saved": each}
        rows.append(row)
    (found,) = lds_high.verdicts(rows)
    assert said in found
    assert ("[" in found) == (len(bpc) > 1)


def test_a_method_that_is_not_finished_anywhere_leaves_the_rest(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = LdsHigh(systems=1, horizons=(100, 200), out=tmp_path)
    curve = {"steps": np.array([1.0, 2.0]), "cost": np.array([1.0, 2.0])}
    np.save(tmp_path / BINNED, np.array([[3.0, 4.0]]), allow_pickle=False)
    cost = {LQR: 2.0, BEST: 1.0, "GPC": 1.5}
    results = [
        Result(run, {"last": [[cost[name]]] * 3, "whole": [[cost[name]]] * 3, "hyper": {"eta": 0.1},
                     "on_edge": []}, curve, tmp_path)
        for run in lds_high.make_runs(settings)
        for name in (run.settings["method"],)
        if name in (LQR, BEST) or (name == "GPC" and run.settings["T"] == 100)
    ]  # fmt: skip
    plan = Plan("lds-high", settings, lds_high.make_runs(settings), "windward run lds-high")
    monkeypatch.setattr("windward.studies.run.compute", lambda *_: (results, Outcome()))
    summary = conduct(lds_high.STUDY, settings, console)
    assert len(plan.runs) == 10
    assert summary["found"] == "Not finished: 5 of 10 runs are. Runs are still to come."
    assert [row["interval"] for row in summary["headroom"]] == [None]
    page = (tmp_path / "report.html").read_text()
    assert "System 520, T = 100, wind sine 30" in page  # most methods are finished there
    assert "0.50 [" not in page


def test_raw_results_name_the_seed_that_was_run() -> None:
    (run,) = (
        run for run in lds_high.make_runs(LdsHigh(systems=1, horizons=(100,), winds=("sine 20",)))
        if run.settings["method"] == "BPC"
    )  # fmt: skip
    content = {"last": [[1.0, 2.0]], "whole": [[3.0, 4.0]]}
    rows = lds_high.rows_of([Result(run, content, {}, Path())])
    assert [(row["seed"], row["cost_last"]) for row in rows] == [(1000, 1.0), (1001, 2.0)]


def test_costs_of_each_seed_are_drawn(tmp_path: Path) -> None:
    curve = {"steps": np.array([50.0, 100.0]), "cost": np.array([1.0, 2.0])}
    np.save(tmp_path / BINNED, np.array([[3.0, 4.0], [5.0, 6.0]]), allow_pickle=False)
    runs = lds_high.make_runs(LdsHigh(systems=1, horizons=(100,)))
    mean, _, every = lds_high.shown_costs([Result(run, {}, curve, tmp_path) for run in runs])
    assert [each.name for each in mean.curves] == list(METHODS)
    assert mean.note.startswith("System 520, T = 100, wind sine 30.")  # the middle one
    line = mean.curves[METHODS.index("BPC")]
    np.testing.assert_allclose(np.asarray(line.y)[[0, -1]], [4.0, 5.0], atol=0.01)
    dots = np.asarray(every.curves[METHODS.index("BPC")].y)
    np.testing.assert_array_equal(dots[np.isfinite(dots)], [3, 4, 5, 6])


def test_steps_is_another_name_of_horizons() -> None:
    assert tyro.cli(LdsHigh, args=["--steps", "100", "200"]) == LdsHigh(horizons=(100, 200))


@pytest.mark.slow
def test_a_small_one_writes_what_it_reports_and_is_not_repeated(
    tmp_path: Path, console: Console
) -> None:
    how = Execution(runs=tmp_path / "runs", jobs=1)
    study = LdsHigh(scale="smoke", out=tmp_path / "out", how=how)
    summary = conduct(lds_high.STUDY, study, console)
    with (tmp_path / "out" / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * (1 + 1 + 1 + 2 * 2)  # two systems; two seeds of what draws at random
    seeds = {name: {r["seed"] for r in rows if r["method"] == name} for name in (LQR, "BPC")}
    assert seeds == {LQR: {f"{REPORT_SEED}"}, "BPC": {f"{REPORT_SEED}", f"{REPORT_SEED + 1}"}}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "System 520, T = 200, wind sine 20. Drawn as the paper" in page
    assert "Cost over time, every run, not smoothed" in page
    (gpc,) = (row for row in summary["headroom"] if row["method"] == "GPC")
    assert min(gpc["systems"]) > 0.5
    marks = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/finished.json")}
    assert conduct(lds_high.STUDY, study, console) == summary
    assert {path: path.stat().st_mtime_ns for path in marks} == marks
    assert (tmp_path / "out" / "lds-high.pdf").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"last": 0.0}, r"last must lie in \(0, 1\]"),
        ({"horizons": ()}, "horizons must name at least one"),
        ({"winds": ("gale 3",)}, "a wind must be"),
        ({"deltas": (0.5, 2.0)}, r"deltas must be less than radius, 2.0.*got \(0.5, 2.0\)"),
        ({"tune_seeds": 4}, "screen_seeds must be less than tune_seeds, 4; got 4"),
        ({"etas": ()}, "etas must hold at least one number"),
    ],
)
def test_bad_settings_are_refused(
    change: dict[str, Any], message: str, tmp_path: Path, console: Console
) -> None:
    with pytest.raises(ValueError, match=message):
        conduct(lds_high.STUDY, replace(LdsHigh(out=tmp_path), **change), console)
