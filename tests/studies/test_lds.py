"""`lds-low` end to end at a small size: files, keys, and claims that hold even there."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from windward.studies import lds

pytestmark = pytest.mark.usefixtures("cheap_compiling")


def test_lds_low_writes_what_it_reports(tmp_path: Path, console: Console) -> None:
    settings = lds.LdsLow(
        T=600, last=100, tune_periods=(32.0,), report_periods=(40.0,), tune_seeds=1,
        report_seeds=2, out=tmp_path,
    )  # fmt: skip
    summary = lds.run(settings, console)
    with (tmp_path / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(summary["headroom"]) * 2
    for name, reported in summary["headroom"].items():
        mine = [float(row["headroom"]) for row in rows if row["method"] == name]
        np.testing.assert_allclose(np.mean(mine), reported["mean"], rtol=1e-5, atol=1e-5)
        assert min(mine) == pytest.approx(reported["worst"], rel=1e-5, abs=1e-5)
    assert summary["headroom"]["LQR"]["mean"] == 0
    assert summary["headroom"]["GPC"]["mean"] > 0.7
    assert (tmp_path / "costs.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "summary.json").read_text())["command"].startswith("windward")


def test_tuning_and_report_share_no_wind_and_no_seed() -> None:
    settings = lds.LdsLow()
    assert not set(settings.tune_periods) & set(settings.report_periods)
    assert settings.tune_seeds <= lds.REPORT_SEED
