"""The benchmark of the adaptive layer reports the ratios that it names."""

from windward.bench.overhead import BenchOverhead, run

KEYS = {
    "overhead_over_env_step",
    "pd2_networks_over_env_step",
    "pd3_over_env_step",
    "vector16_over_one",
}


def test_the_report_has_every_ratio_its_range_and_latencies() -> None:
    report = run(BenchOverhead(steps=20, repeats=2))
    for key in KEYS:
        low, high = report["range"][key]
        assert 0 < low <= report[key] <= high
    for each in report["latency"].values():
        assert 0 < each["median_us"] <= each["p99_us"]
    # A prediction is a physics step of its own, on top of everything else.
    assert report["latency"]["pd3"]["median_us"] > report["latency"]["pd2_given"]["median_us"]
