"""The benchmark of simulators reports the ratios that it names."""

import json

import gymnasium as gym
import pytest

from windward.bench.simulator import BenchSimulator, _over_step, run
from windward.cli import main

KEYS = {
    "four_copies_over_env_step",
    "noise_free_over_env_step",
    "disturbed_over_env_step",
    "batched_over_rollout",
}


def test_the_report_has_every_ratio_and_its_range() -> None:
    report = run(BenchSimulator(steps=20, repeats=1, batch=16))
    assert set(report) >= KEYS
    for key in KEYS:
        low, high = report["range"][key]
        assert 0 < low <= report[key] <= high


def test_a_job_that_is_two_steps_takes_about_twice_as_long() -> None:
    env, other = gym.make("Hopper-v5"), gym.make("Hopper-v5")
    other.reset(seed=0)

    def twice(action: object) -> object:
        other.unwrapped.step(action)
        return other.unwrapped.step(action)

    ratio = _over_step(env, twice, steps=300, moves=False)
    assert 1.2 < ratio < 3.5


def test_bench_simulator_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    main(["bench", "simulator", "--json", "--steps", "16", "--repeats", "1", "--batch", "16"])
    assert set(json.loads(capsys.readouterr().out)) >= KEYS
