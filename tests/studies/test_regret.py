"""`regret-rate` end to end at a small size, and its rates."""

from pathlib import Path

import pytest
from rich.console import Console

from windward.studies import regret


@pytest.mark.slow
def test_regret_rate_uses_the_theorems_rates(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regret, "CASES", regret.CASES[::2])
    settings = regret.RegretRate(
        horizons=(200, 400), tune_horizon=200, seeds=2, tune_seeds=1, radius=5.0, out=tmp_path
    )
    summary = regret.run(settings, console)
    assert {fit["theorem"] for fit in summary["slopes"]} == {2 / 3, 3 / 4}
    assert (tmp_path / "regret.png").exists()
    first, second = (
        regret._maker("BPC", settings, T, False)(eta=2.0, delta=3.0) for T in (100, 1600)
    )
    assert first.hyper["eta"] / second.hyper["eta"] == pytest.approx(16**0.75)
    assert first.hyper["delta"] == pytest.approx(3.0 * 100**-0.25)
