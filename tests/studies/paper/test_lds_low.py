"""`lds-low` end to end at a small size: files, keys, and claims that hold even there."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from windward import cli
from windward.studies import plots
from windward.studies.paper import lds_low as lds
from windward.studies.paper import systems
from windward.studies.paper.systems import BEST, LQR
from windward.studies.report import Curve
from windward.studies.run import BINS, binned, conduct
from windward.studies.spec import Execution


@pytest.mark.slow
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
    summary = conduct(lds.STUDY, settings, console)
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
    for title in (
        "Cost over time",
        "Cost over time, interquartile mean",
        "Cost over time, every run",
    ):
        assert title in page
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
        conduct(lds.STUDY, replace(lds.LdsLow(out=tmp_path / "out"), **change), console)
    assert not list(tmp_path.iterdir())


def test_every_method_can_be_made_from_its_grid() -> None:
    for name, method in lds.methods(lds.double_integrator(), h=5).items():
        algorithm = method.make(**method.grid)
        assert set(algorithm.grid) >= set(method.grid), name


def test_tuning_and_report_share_no_wind_and_no_seed() -> None:
    settings = lds.LdsLow()
    assert not set(settings.tune_periods) & set(settings.periods)
    assert settings.tune_seeds <= lds.FIRST_SEED


def drawn_by_hand() -> dict[str, Any]:
    """Costs of two runs that settle, of which one diverges at its end, beside LQR and the best."""
    steps, flat = np.arange(1, 101), np.ones(100)
    astray = np.where(steps > 90, 1e9, 3.0)
    costs = {LQR: [4 * flat] * 2, "GPC": [2 * flat, astray], BEST: [flat]}
    return {
        name: systems.drawing(steps, np.array(each), lds.FIRST_SEED) for name, each in costs.items()
    }


def test_runs_are_smoothed_one_by_one_and_kept_as_they_are() -> None:
    drawn = drawn_by_hand()["GPC"]
    assert [seed for seed, *_ in drawn.raw] == [lds.FIRST_SEED, lds.FIRST_SEED + 1]
    assert drawn.raw[1][2].max() == 1e9
    assert drawn.mean.y[0] == pytest.approx(2.5)
    assert drawn.mean.high[0] - drawn.mean.y[0] == pytest.approx(0.5)  # σ/√N of 2 and 3
    # A tenth of the whole after it went astray, a run is at 1 - 1/e of the new cost.
    assert drawn.rows[1, -1] == pytest.approx((1 - np.exp(-1)) * 1e9, rel=0.01)
    assert np.isnan(drawn_by_hand()[BEST].mean.low).all()  # of one run there is no band


def test_a_run_that_diverges_does_not_flatten_the_others_and_is_told_of() -> None:
    figure = plots.draw(systems.cost_charts(drawn_by_hand(), "here"))
    assert [axes.get_ylim()[1] for axes in figure.axes] == [systems.CEILING * 4] * 3
    assert [axes.get_yscale() for axes in figure.axes] == ["log"] * 3
    titles = [axes.get_title() for axes in figure.axes]
    assert all(title.endswith("; 1 goes higher") for title in titles)
    calm = drawn_by_hand()
    del calm["GPC"]
    quiet = plots.draw(systems.cost_charts(calm, "here")).axes
    assert quiet[0].get_ylim()[1] < 5
    assert "higher" not in quiet[0].get_title()


def test_the_charts_of_a_page_show_mean_middle_and_every_run() -> None:
    mean, iqm, every = systems.cost_charts(drawn_by_hand(), "here")
    assert mean.note.startswith("here. ")
    for chart in (mean, iqm, every):
        assert chart.log_y
        assert [(each.name, each.dashed) for each in chart.curves if isinstance(each, Curve)] == [
            (LQR, True), ("GPC", False), (BEST, True),
        ]  # fmt: skip
    joined = np.asarray(every.curves[1].y)
    assert np.isnan(joined[[100, 201]]).all()  # a gap after each run
    assert joined[200] == 1e9


def test_costs_in_bins() -> None:
    cost = np.arange(2.0 * 3 * BINS).reshape(2, -1)
    steps, costs = binned(cost)
    assert (steps[0], steps[-1], costs.shape) == (3, 3 * BINS, (2, BINS))
    np.testing.assert_allclose(costs[1], cost[1].reshape(BINS, 3).mean(axis=1))
    np.testing.assert_array_equal(binned(cost[:, :7])[1], cost[:, :7])  # no more bins than steps


def test_steps_is_another_name_of_t(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def planned(flag: str) -> str:
        words = f"run lds-low {flag} 300 --last 100 --dry-run --runs {tmp_path}"
        cli.main(words.split())
        return capsys.readouterr().out

    told = planned("--steps")
    assert "8 runs, 0 of them finished" in " ".join(told.split())
    assert told == planned("--T")
