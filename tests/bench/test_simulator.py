"""The benchmark of simulators reports the ratios that it names."""

import json
from typing import Any

import gymnasium as gym
import pytest

from windward.bench import simulator
from windward.bench.simulator import BenchSimulator, run
from windward.cli import main

from .clock import Clock

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


@pytest.mark.parametrize("moves", [False, True])
def test_the_ratio_is_the_jobs_time_over_that_of_plain_steps(
    moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(simulator, "perf_counter", clock)
    plain, env = gym.make(simulator.ENV), gym.make(simulator.ENV)
    monkeypatch.setattr(simulator, "_hopper", lambda: plain)
    monkeypatch.setattr(plain, "step", clock.taking(2.0, plain.step))
    # Where the job is not the step, that step is on nobody's account.
    step = env.step
    monkeypatch.setattr(env, "step", clock.taking(100.0, step))
    done: list[Any] = []

    def job(action: Any) -> Any:
        done.append(action)
        return step(action) if moves else None

    ratio = simulator._over_step(env, clock.taking(5.0, job), steps=60, moves=moves)
    assert len(done) == 60
    assert ratio == 5.0 / 2.0


def test_bench_simulator_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    main(["bench", "simulator", "--json", "--steps", "16", "--repeats", "1", "--batch", "16"])
    assert set(json.loads(capsys.readouterr().out)) >= KEYS
