"""Sensors: noise and how it is told from wind, the filter, fits through noise, and bias."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.diagnosis.kalman import Linear, kalman
from windward.diagnosis.parameters import Sizes, parameters_of
from windward.diagnosis.residuals import Residuals, Rows
from windward.diagnosis.sensors import SensorSettings, noisy
from windward.diagnosis.track import Track
from windward.envs import Changed, Disturbed
from windward.simulators import simulator

NOISE = "gaussian:scale=0.01"
SETTINGS = SensorSettings()


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MuJoCo writes a log into the working directory when it warns."""
    monkeypatch.chdir(tmp_path)


def seen(
    name: str, changes: dict[str, float], steps: int, noise: str = NOISE, seed: int = 917
) -> Any:
    """The diagnosis from noisy observations of a changed world."""
    world = Disturbed(Changed(gym.make(name), changes), noise, "observation", seed=seed)
    return ww.diagnose(None, world, steps=steps, seed=seed, from_observations=True, threads=1)


# --- the filter --------------------------------------------------------------------------------


def chain(rng: np.random.Generator, steps: int = 6, c: int = 2, p: int = 2) -> Linear:
    return Linear(
        A=rng.standard_normal((1, steps, c, c)),
        G=rng.standard_normal((1, steps, c, p)),
        d=rng.standard_normal((1, steps, c)),
        o=rng.standard_normal((1, steps + 1, c)),
        kept=np.ones((1, steps), dtype=bool),
        M=rng.standard_normal((c, p)),
    )


def dense(line: Linear, R: np.ndarray, Q: np.ndarray, step: np.ndarray) -> Any:
    """(least sum of squares over all deviations, the deviations there) by one dense system."""
    _, steps, c = line.d.shape
    M = np.zeros((c, len(step))) if line.M is None else line.M
    rows, targets = [], []
    for t in range(steps + 1):
        row = np.zeros((c, (steps + 1) * c))
        row[:, t * c : (t + 1) * c] = np.eye(c)
        rows.append(row / np.sqrt(R)[:, None])
        targets.append((line.o[0, t] - M @ step) / np.sqrt(R))
    for t in range(steps):
        row = np.zeros((c, (steps + 1) * c))
        row[:, (t + 1) * c : (t + 2) * c] = np.eye(c)
        row[:, t * c : (t + 1) * c] = -line.A[0, t]
        rows.append(row / np.sqrt(Q[0, t])[:, None])
        targets.append((line.G[0, t] @ step - line.d[0, t]) / np.sqrt(Q[0, t]))
    X, y = np.concatenate(rows), np.concatenate(targets)
    e = np.linalg.lstsq(X, y, rcond=None)[0]
    return float(np.square(y - X @ e).sum()), e.reshape(steps + 1, c), np.linalg.inv(X.T @ X)


@pytest.mark.parametrize("seed", range(3))
def test_filter_and_smoother_are_least_squares_over_all_states(seed: int) -> None:
    rng = np.random.default_rng(seed)
    line = chain(rng)
    R, Q = np.array([0.3, 2.0]), rng.uniform(0.1, 3.0, line.d.shape)
    found = kalman(line, R, Q)
    for step in (np.zeros(2), np.array([0.3, -0.5])):
        least, e, covariance = dense(line, R, Q, step)
        # Innovations and their derivatives in θ.
        moved = found.z + found.slopes @ step
        assert float(np.square(moved).sum()) == pytest.approx(least, rel=1e-8)
        after = kalman(line.after(step), R, Q)
        np.testing.assert_allclose(after.states[0], e, atol=1e-8)
        np.testing.assert_allclose(after.variances[0].ravel(), np.diag(covariance), atol=1e-8)


def test_the_likelihood_is_that_of_the_measurements_and_w_has_its_expected_size() -> None:
    rng = np.random.default_rng(1)
    line = chain(rng, steps=3)
    R, Q = np.array([0.5, 0.7]), np.full(line.d.shape, 0.4)
    found = kalman(line, R, Q)
    # The measurements after the first are normal given the first.
    a, b = line.A[0], line.o[0]
    mean, P, total = b[0], np.diag(R), 0.0
    for t in range(3):
        mean, P = a[t] @ mean - line.d[0, t], a[t] @ P @ a[t].T + np.diag(Q[0, t])
        S, new = P + np.diag(R), b[t + 1] - mean
        total -= 0.5 * (new @ np.linalg.solve(S, new) + np.linalg.slogdet(S)[1])
        K = P @ np.linalg.inv(S)
        mean, P = mean + K @ new, P - K @ P
    assert found.likelihood == pytest.approx(total)
    _, e, covariance = dense(line, R, Q, np.zeros(2))
    for t in range(3):
        T = np.zeros((2, 8))
        T[:, 2 * t + 2 : 2 * t + 4], T[:, 2 * t : 2 * t + 2] = np.eye(2), -a[t]
        w = e[t + 1] - a[t] @ e[t] + line.d[0, t]
        expected = np.square(w) + np.diag(T @ covariance @ T.T)
        np.testing.assert_allclose(found.defects[0, t], expected, atol=1e-8)


def test_pieces_of_several_lengths_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(2)
    one, two = chain(rng, steps=5), chain(rng, steps=5)
    R, Q = np.array([1.0, 1.0]), np.ones((2, 5, 2))
    kept = np.array([[True] * 5, [True] * 3 + [False] * 2])
    parts = [np.concatenate(each) for each in zip(one[:5], two[:5], strict=True)]
    both = kalman(Linear(parts[0], parts[1], parts[2], parts[3], kept, one.M), R, Q)
    short = Linear(*(each[:, :3] for each in two[:3]), two.o[:, :4], two.kept[:, :3], one.M)
    alone = kalman(short, R, Q[:1, :3])
    np.testing.assert_allclose(both.z[1, :3], alone.z[0], atol=1e-9)
    np.testing.assert_allclose(both.states[1, :4], alone.states[0], atol=1e-9)
    assert not both.z[1, 3:].any()


# --- noise is found, and nothing else is taken for it -------------------------------------------


def rows_of(env: gym.Env, steps: int, noise: float, seed: int = 917) -> tuple[Rows, Residuals]:
    sim = simulator(env, noisy=False)
    env.reset(seed=seed)
    env.action_space.seed(seed)
    x, u = [sim.state()], []
    for _ in range(steps):
        u.append(np.asarray(env.action_space.sample(), dtype=np.float64))
        env.step(u[-1].astype(np.float32))
        x.append(sim.state())
    states = np.array(x)
    states += noise * np.random.default_rng(seed).standard_normal(states.shape)
    none = np.zeros(steps, dtype=int)
    rows = Rows(states[:-1], np.array(u), states[1:], none, np.arange(steps), none)
    scale = np.std(rows.x_next - rows.x, axis=0) + 1e-9
    parameters = parameters_of(sim.dynamics, None, Sizes())
    return rows, Residuals(sim.dynamics, parameters, threads=1, scale=scale)


@pytest.mark.parametrize("scale", [0.002, 0.02])
@pytest.mark.parametrize("name", ["HalfCheetah-v5", "InvertedPendulum-v5", "Pendulum-v1"])
def test_noise_is_found(name: str, scale: float) -> None:
    rows, residuals = rows_of(gym.make(name), 150, scale)
    assert noisy(residuals, np.zeros(residuals.count), rows, SETTINGS)


@pytest.mark.parametrize(
    ("wind", "channel"),
    [("", ""), ("uniform:bound=0.1", "action"), ("gaussian:scale=0.02", "qvel"),
     ("ou:scale=20/0/0", "force:torso"), ("gaussian:scale=20/0/0", "force:bfoot")],
)  # fmt: skip
def test_changes_and_winds_are_no_noise_of_sensors(wind: str, channel: str) -> None:
    world: gym.Env = Changed(gym.make("HalfCheetah-v5"), {"mass:torso": 1.6})
    if wind:
        world = Disturbed(world, wind, channel, seed=917)
    rows, residuals = rows_of(world, 150, 0.0)
    assert not noisy(residuals, np.zeros(residuals.count), rows, SETTINGS)


def test_positions_are_smoothed_from_velocities() -> None:
    env = gym.make("InvertedPendulum-v5")
    rows, residuals = rows_of(env, 60, 0.0)
    clean = np.concatenate([rows.x, rows.x_next[-1:]])
    noise = 0.01 * np.random.default_rng(3).standard_normal(clean.shape)
    shaken = rows._replace(x=rows.x + noise[:-1], x_next=rows.x_next + noise[1:])
    track = Track(residuals, shaken, 100)
    track.smooth_positions()
    error = track.x[0] - clean
    assert np.sqrt(np.square(error[:, :2]).mean()) < 0.6 * 0.01
    back = track.smoothed()
    np.testing.assert_array_equal(back.x[1:], back.x_next[:-1])
    np.testing.assert_array_equal(back.u, rows.u)


# --- fits through noise ------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "steps"), [("InvertedPendulum-v5", 300), ("HalfCheetah-v5", 120)])
def test_where_nothing_changed_noise_makes_no_change_and_no_wind(name: str, steps: int) -> None:
    found = seen(name, {}, steps)
    assert not found.changes
    assert not found.suspects
    assert found.wind is None
    assert any(note.startswith("sensors: noise of 0.0") for note in found.notes)


@pytest.mark.parametrize(
    ("name", "changes", "steps"),
    [
        ("InvertedPendulum-v5", {"gain": 0.8}, 300),
        ("HalfCheetah-v5", {"mass": 1.3}, 120),
        ("Swimmer-v5", {"mass": 0.75}, 200),
    ],
)
def test_changes_are_found_through_noise(name: str, changes: dict[str, float], steps: int) -> None:
    found = seen(name, changes, steps)
    assert set(found.changes) == set(changes)
    for each, value in changes.items():
        assert found.values[each] == pytest.approx(value, rel=0.03)
        assert found.changes[each].low < value < found.changes[each].high
    assert found.unexplained < 0.01


def test_late_actions_and_a_bias_are_found_through_noise() -> None:
    found = seen("InvertedPendulum-v5", {"delay": 2, "gain": 1.3}, 400)
    assert found.values["delay"] == 2
    assert found.values["gain"] == pytest.approx(1.3, rel=0.03)
    found = seen("CartPole-v1", {"bias:2": 0.05, "gain": 1.3}, 400)
    assert set(found.changes) == {"bias:2", "gain"}
    assert found.values["bias:2"] == pytest.approx(0.05, abs=0.005)


# --- bias --------------------------------------------------------------------------------------


def test_a_bias_of_a_sensor_is_no_change_of_the_robot() -> None:
    world = Changed(gym.make("Hopper-v5"), {"bias:2": 0.1})
    found = ww.diagnose(None, world, steps=100, seed=917, from_observations=True, threads=1)
    assert set(found.changes) == {"bias:2"}
    assert found.values["bias:2"] == pytest.approx(0.1, abs=1e-4)
    assert found.unexplained < 1e-6


def test_true_states_beside_observations_show_a_bias_at_once() -> None:
    world = Changed(gym.make("Hopper-v5"), {"bias:2": 0.1, "bias:7": -0.3, "gain": 0.8})
    found = ww.diagnose(None, world, steps=60, seed=917, threads=1)
    assert set(found.changes) == {"bias:2", "bias:7", "gain"}
    assert found.values["bias:2"] == pytest.approx(0.1, abs=1e-4)
    assert found.values["bias:7"] == pytest.approx(-0.3, abs=1e-4)
    noise = Disturbed(gym.make("Hopper-v5"), NOISE, "observation", seed=917)
    assert not ww.diagnose(None, noise, steps=60, seed=917, threads=1).changes


def test_sensors_and_late_actions_may_be_wanted() -> None:
    world = Changed(gym.make("CartPole-v1"), {"bias:2": 0.02, "delay": 1})
    options: Any = {"steps": 120, "seed": 917, "threads": 1, "from_observations": True}
    found = ww.diagnose(None, world, parameters=["bias", "delay"], **options)
    assert set(found.changes) == {"bias:2", "delay"}
    late = Changed(gym.make("CartPole-v1"), {"delay": 1})
    assert set(ww.diagnose(None, late, parameters=["delay"], **options).changes) == {"delay"}
    assert "delay" not in ww.diagnose(None, late, parameters=["mass"], **options).changes
    with pytest.raises(ValueError, match=r"no 'bias:9'.*bias:0, bias:1, bias:2, bias:3"):
        ww.diagnose(None, world, parameters=["bias:9"], **options)
