"""The benchmark of the adaptive layer reports the ratios that it names."""

import pytest

from windward.adapt import PD2
from windward.bench import overhead
from windward.bench.overhead import BenchOverhead, run
from windward.simulators import Simulator

from .clock import Clock

KEYS = {
    "overhead_over_env_step",
    "pd2_networks_over_env_step",
    "pd3_over_env_step",
    "regression_over_env_step",
    "vector16_over_one",
    "matching_over_env_step",
    "auto_idle_over_env_step",
}


def test_the_report_has_every_ratio_its_range_and_latencies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overhead, "ROWS", 2)
    report = run(BenchOverhead(steps=6, repeats=2))  # too few for a diagnosis, which takes long
    for key in KEYS:
        low, high = report["range"][key]
        assert 0 < low <= report[key] <= high
    for each in report["latency"].values():
        assert 0 < each["median_us"] <= each["p99_us"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(overhead, "perf_counter", clock)
    return clock


def test_a_prediction_is_added_to_the_step(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulator, "predict", clock.taking(5.0, Simulator.predict))
    one = overhead._One(signal="pd3")
    plain = one._timed.env
    monkeypatch.setattr(plain, "step", clock.taking(2.0, plain.step))
    assert one.step() == (5.0, 2.0)


def test_values_of_all_rows_are_added_to_the_step(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = overhead._Given(11, 2)
    monkeypatch.setattr(given, "Q", clock.taking(5.0, given.Q))
    many = overhead._Many(2, signal=PD2(given))
    for env in many._inner.envs:
        monkeypatch.setattr(env, "step", clock.taking(2.0, env.step))
    assert many.step() == (5.0, 4.0)
