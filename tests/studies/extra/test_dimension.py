"""`dimension`: the same problem at every d_x, and the study end to end at a small size."""

import csv
from pathlib import Path

import numpy as np
import pytest
import tyro
from rich.console import Console

import windward as ww
from windward.studies.extra import dimension
from windward.studies.run import conduct
from windward.studies.spec import Execution


def test_the_problem_is_the_same_in_every_dimension() -> None:
    costs, bests = [], []
    for d_x in (4, 16):
        p, modes = dimension.problem(d_x, alpha=0.2, seed=3)
        w = dimension.wind(300, modes, seed=3)
        np.testing.assert_allclose(np.linalg.norm(w, axis=1), 1.0)
        np.testing.assert_allclose(np.linalg.norm(p.system.B, 2), 1.0)
        np.testing.assert_allclose(np.abs(np.linalg.eigvals(p.system.A)), 0.8)
        base = ww.linear.simulate(p.system, ww.base_only(4, d_x), w, **p.settings)
        costs.append(base.cost)
        bests.append(ww.linear.best_dac(p.system, w, h=2, **p.settings).cost.sum())
    np.testing.assert_allclose(costs[0], costs[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(bests[0], bests[1], rtol=1e-6)


def test_steps_is_another_name_of_t() -> None:
    given = tyro.cli(dimension.Dimension, args=["--steps", "70"])
    assert given == dimension.Dimension(T=70)


@pytest.mark.slow
def test_dimension_writes_what_it_reports(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in dimension.RECIPES:
        monkeypatch.setitem(dimension.GRIDS, name, {"eta": [1e-5], "delta": [0.1, 0.2]})
    how = Execution(runs=tmp_path / "runs", jobs=1)
    settings = dimension.Dimension(scale="smoke", out=tmp_path, how=how)
    summary = conduct(dimension.STUDY, settings, console)
    assert [(point["d_x"], point["method"]) for point in summary["points"]] == [
        (4, "Bandit GPC"), (4, "BPC"), (6, "Bandit GPC"), (6, "BPC"),
    ]  # fmt: skip
    with (tmp_path / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    for point in summary["points"]:
        mine = [r for r in rows if (int(r["d_x"]), r["method"]) == (point["d_x"], point["method"])]
        for key in ("regret_fixed", "regret_tuned"):
            mean = np.mean([float(row[key]) for row in mine])
            np.testing.assert_allclose(mean, point[key][0], rtol=1e-5)
        assert (point["hyper_fixed"] == point["hyper_tuned"]) or point["d_x"] == 6
    assert (tmp_path / "dimension.png").exists()
    assert "Regret, tuned at each d_x" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_gradients_of_bpc_grow_with_the_dimension_and_ours_do_not() -> None:
    moments = {}
    for d_x in (4, 16):
        p, modes = dimension.problem(d_x, alpha=0.2, seed=4)
        w = dimension.wind(200, modes, seed=4)
        for name in dimension.RECIPES:
            each = dimension.gradient_moment(name, p, w, 3, 0.3, list(range(8)))
            moments[name, d_x] = each.mean()
    assert moments["Bandit GPC", 16] == pytest.approx(moments["Bandit GPC", 4], rel=0.05)
    assert moments["BPC", 16] > 3 * moments["BPC", 4]
