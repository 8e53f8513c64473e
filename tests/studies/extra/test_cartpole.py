"""`cartpole-discrete` end to end at a small size."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from windward.studies.extra import cartpole
from windward.studies.extra.cartpole import CartpoleDiscrete
from windward.studies.spec import Execution


def _study(folder: Path) -> CartpoleDiscrete:
    return CartpoleDiscrete(
        scale="smoke", signals=("pd2",), etas=(1e-3,), seeds=1, tune_seeds=0, out=folder / "out",
        how=Execution(runs=folder / "runs", jobs=1),
    )  # fmt: skip


def test_both_meet_the_same_wind_and_eta_0_is_the_policy_alone(
    tmp_path: Path, console: Console
) -> None:
    study = replace(_study(tmp_path), etas=(0.0,))
    summary = cartpole.run(study, console)
    with (tmp_path / "out" / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    groups = [group["group"] for group in summary["groups"]]
    assert groups == ["baseline", "DMF-GPC PD2, η = 0"]
    returns = [[row["eval_return"] for row in rows if row["group"] == name] for name in groups]
    assert returns[0] == returns[1]
    assert len(returns[0]) == 2
    assert float(returns[0][0]) < 500  # the wind is strong enough that there is something to win
    assert "episodes" in (tmp_path / "out" / "report.html").read_text()


def test_every_signal_has_its_etas_and_seeds_that_choose_are_not_shown() -> None:
    groups = cartpole.make_groups(CartpoleDiscrete(), cartpole.FULL)
    assert [group.method for group in groups].count("DMF-GPC PD1") == 3
    shown = {run.settings["seed"] for group in groups for run in group.shown}
    judged = {run.settings["seed"] for group in groups for run in group.judged}
    assert len(shown) == 25
    assert not shown & judged


def test_a_signal_that_is_none_is_refused(tmp_path: Path, console: Console) -> None:
    with pytest.raises(ValueError, match="signals must be one of"):
        cartpole.run(replace(_study(tmp_path), signals=("pd4",)), console)  # type: ignore[arg-type]
