"""The benchmark of diagnoses reports the ratios and errors that it names."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from windward.bench import diagnose
from windward.bench.diagnose import ACCURACY, PEERS, SPEED, _Problem, _Raw, _TimeUp
from windward.cli import main
from windward.simulators import simulator


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MuJoCo writes a log into the working directory when it warns."""
    monkeypatch.chdir(tmp_path)


def test_bench_diagnose_prints_one_json_object_with_every_ratio_and_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = {name: world for name, world in SPEED.items() if name != "ant"}
    monkeypatch.setattr(diagnose, "SPEED", quick)
    main(["bench", "diagnose", "--json", "--steps", "12", "--repeats", "1", "--seeds", "1",
          "--limit", "0.2", "--least", "0"])  # fmt: skip
    report = json.loads(capsys.readouterr().out)
    assert set(report["speed"]) == set(quick)
    for each in report["speed"].values():
        low, high = each["range"]
        assert 0 < low <= each["fit_over_raw"] <= high <= report["fit_over_raw"]
    assert set(report["accuracy"]) == set(ACCURACY)
    for case in report["accuracy"].values():
        assert set(case) == {"windward", *PEERS}
        for each in case.values():
            assert np.isfinite(each["error"])
            assert each["error"] >= 0
            assert each["simulated"] > 0
            assert each["converged"] in (0, 1)
        assert case["windward"]["seconds_over_windward"] == 1.0


class Line:
    """Residuals that are linear in θ."""

    def __init__(self, X: np.ndarray, true: np.ndarray) -> None:
        self.X, self.y, self.simulated, self.compared = X, X @ true, 0, range(X.shape[1])
        self.parameters, self.count = [Unit()] * len(true), len(true)

    def at(self, thetas: list[np.ndarray], rows: Any) -> np.ndarray:
        return np.stack([self.y - self.X @ theta for theta in thetas])


class Unit:
    def theta(self, value: float) -> float:
        return float(np.log(value))


class Some:
    size = 30


@pytest.mark.parametrize("name", list(PEERS))
def test_peers_find_the_least_squares_within_their_bounds(name: str) -> None:
    X = np.random.default_rng(0).standard_normal((30, 2, 3))
    for true, best in (([0.5, -1.0, 0.2],) * 2, ([4.0, 0.0, 0.0], None)):
        line: Any = Line(X, np.array(true))
        problem = _Problem(line, Some(), 0, 60.0)  # type: ignore[arg-type]
        PEERS[name](problem, 0)
        assert (np.abs(problem.best) <= problem.reach).all()
        if best is None:
            assert problem.best[0] == pytest.approx(np.log(10))
        else:
            np.testing.assert_allclose(problem.best, best, atol=1e-5)


def test_a_peer_without_time_is_stopped_before_it_begins() -> None:
    line: Any = Line(np.ones((30, 2, 3)), np.ones(3))
    problem = _Problem(line, Some(), 0, -1.0)  # type: ignore[arg-type]
    with pytest.raises(_TimeUp):
        PEERS["cma"](problem, 0)
    np.testing.assert_array_equal(problem.best, 0.0)


def test_steps_that_cannot_be_simulated_are_costly() -> None:
    line: Any = Line(np.ones((30, 2, 1)), np.zeros(1))
    line.y[3] = np.nan
    problem = _Problem(line, Some(), 0, 60.0)  # type: ignore[arg-type]
    assert np.abs(problem(np.zeros((1, 1)))).max() == diagnose.DIVERGED


def test_raw_steps_are_those_that_were_recorded() -> None:
    world = SPEED["hopper"]._replace(changes={})
    log, env = diagnose._recorded(world, 12, 0), gym.make(world.env)
    raw = _Raw(env.unwrapped, log)
    raw.seconds(12)
    x, u, x_next = diagnose._transitions(log)
    np.testing.assert_allclose(raw._states[:, -1, 1:], x_next, atol=1e-6)
    env.reset(seed=0)
    np.testing.assert_allclose(
        raw._states[:, -1, 1:], simulator(env, noisy=False).step(x, u)[0], atol=1e-9
    )
    # As many rows as were asked for, the recorded ones again and again.
    taken: list[int] = []

    class Counting:
        def rollout(self, models: list[Any], *_: Any, **__: Any) -> None:
            taken.append(len(models))

    raw._pool = Counting()
    raw.seconds(29)
    assert taken == [12, 12, 5]
