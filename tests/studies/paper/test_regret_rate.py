"""`regret-rate` end to end at a small size, and its rates."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tyro
from rich.console import Console

from windward.studies.paper import regret_rate as regret
from windward.studies.run import conduct
from windward.studies.spec import Execution


@pytest.mark.slow
def test_regret_rate_uses_the_theorems_rates(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regret, "CASES", regret.CASES[::2])
    how = Execution(runs=tmp_path / "runs", jobs=1)
    settings = regret.RegretRate(scale="smoke", out=tmp_path, how=how)
    summary = conduct(regret.STUDY, settings, console)
    assert {fit["theorem"] for fit in summary["slopes"]} == {2 / 3, 3 / 4}
    assert (tmp_path / "regret.png").exists()
    assert (tmp_path / "regret.pdf").exists()
    with (tmp_path / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2 * 2  # cases, methods, horizons, seeds
    for fit in summary["slopes"]:
        mine = [float(r["regret"]) for r in rows if r["T"] == "400"
                and (r["cost"], r["method"]) == (fit["cost"], fit["method"])]  # fmt: skip
        assert fit["regret"]["400"].startswith(f"{np.mean(mine):.3g} [")
    page = (tmp_path / "report.html").read_text()
    assert "Regret, quadratic cost, smooth rates" in page


def test_steps_is_another_name_of_horizons() -> None:
    given = tyro.cli(regret.RegretRate, args=["--steps", "10000", "30000"])
    assert given == regret.RegretRate(horizons=(10_000, 30_000))


def test_rates_fall_as_the_theorem_says() -> None:
    chosen: dict[str, Any] = {"smooth": False, "h": 5, "radius": 5.0}
    first, second = (
        regret.maker("BPC", T, **chosen)(eta=2.0, delta=3.0) for T in (100, 1600)
    )  # fmt: skip
    assert first.hyper["eta"] / second.hyper["eta"] == pytest.approx(16**0.75)
    assert first.hyper["delta"] == pytest.approx(3.0 * 100**-0.25)
