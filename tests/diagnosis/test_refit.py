"""Learned simulators refitted to changed worlds, and winds along directions of the state."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.diagnosis.coordinate_wind import coordinate_wind, direction, direction_name
from windward.diagnosis.log import Log, log_of
from windward.diagnosis.refit import Refit, refit
from windward.diagnosis.residuals import Rows

BOX = gym.spaces.Box(-2.0, 2.0, (1,), np.float64)


class Cart(gym.Env):
    """Two states and a force; `heavy` divides what the force does, `pushed` adds a sine."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = BOX

    def __init__(self, heavy: float = 1.0, pushed: float = 0.0, blur: float = 0.0) -> None:
        self.heavy, self.pushed, self.blur = heavy, pushed, blur

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.x, self.t = self.np_random.uniform(-1, 1, 2), 0
        return self.x.copy(), {}

    def step(self, u: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        wind = self.pushed * np.sin(2 * np.pi * self.t / 25)
        noise = self.blur * self.np_random.standard_normal()
        v = self.x[1] + 0.3 * np.sin(self.x[0]) + 0.2 * float(u[0]) / self.heavy + wind + noise
        self.x, self.t = np.array([self.x[0] + 0.1 * v, v]), self.t + 1
        return self.x.copy(), -float(self.x @ self.x), False, self.t >= 100, {}


def policy(x: np.ndarray) -> np.ndarray:
    return np.clip(np.array([-3.0 * x[0] - 2.0 * x[1]]), -2, 2)


@pytest.fixture(scope="module")
def learned() -> Any:
    return ww.fit_simulator(
        Cart, policy, steps=5_000, updates=2_500, widths=(32, 32), members=2, sigma=0.7
    )


def log(env: gym.Env, episodes: int = 4, seed: int = 50, noise: float = 0.0) -> Log:
    rng = np.random.default_rng(seed)
    x_all: list[Any] = []
    u_all: list[Any] = []
    ends: list[bool] = []
    for k in range(episodes):
        x, _ = env.reset(seed=seed + k)
        over = False
        while not over:
            u = np.clip(policy(x) + noise * rng.standard_normal(1), -2, 2)
            x_all.append(x)
            u_all.append(u)
            ends.append(False)
            x, _, terminated, truncated, _ = env.step(u)
            over = terminated or truncated
        x_all.append(x)
        u_all.append(np.zeros(1))
        ends.append(True)
    return log_of({
        "observations": np.array(x_all), "actions": np.array(u_all), "ends": np.array(ends)
    })  # fmt: skip


def error(simulator: Any, world: Log) -> float:
    """Mean square error of v."""
    total = []
    for each in world.episodes:
        x = np.asarray(each.observations, dtype=float)
        total.append(simulator.step(x[:-1], each.actions)[0][:, 1] - x[1:, 1])
    return float(np.square(np.concatenate(total)).mean())


@pytest.mark.parametrize("blur", [0.0, 0.05])
@pytest.mark.parametrize("seed", [10, 60, 110])
def test_where_nothing_changed_nothing_is_found(learned: Any, blur: float, seed: int) -> None:
    assert refit(log(Cart(blur=blur), 6, seed), learned) is None


def test_a_heavier_cart_is_followed(learned: Any) -> None:
    """Without noise on the actions; on steps that were not fitted."""
    found = refit(log(Cart(heavy=1.6)), learned)
    assert isinstance(found, Refit)
    assert "response:1" in found.diagnosis.changes
    assert found.diagnosis.wind is None
    assert found.diagnosis.unexplained < 0.3
    other = log(Cart(heavy=1.6), 3, 900)
    assert error(found.simulator, other) < 0.4 * error(learned, other)
    again = learned.corrected(found.simulator.networks.added)
    assert error(again, other) == error(found.simulator, other)


def test_a_sine_is_a_wind_and_bends_no_map(learned: Any) -> None:
    found = refit(log(Cart(pushed=0.1), 3), learned)
    assert isinstance(found, Refit)
    wind = found.diagnosis.wind
    assert wind is not None
    assert wind.period == pytest.approx(25, rel=0.03)
    np.testing.assert_allclose(np.abs(direction(wind.axes[0].name, 2)), [0.1, 1.0], rtol=0.15)
    assert wind.size == pytest.approx(0.1, rel=0.1)
    calm = log(Cart(), 3, 700)
    assert error(found.simulator, calm) < 3 * error(learned, calm)


def test_too_few_steps_tell_no_map(learned: Any) -> None:
    assert refit(log(Cart(heavy=1.6), 1), learned) is None


def test_what_pushes_two_coordinates_is_one_axis() -> None:
    rng = np.random.default_rng(0)
    t = np.arange(200)
    w = np.sin(2 * np.pi * t / 40)
    rest = np.outer(w, [0.0, 0.2, 0.0, -0.5]) + 1e-4 * rng.standard_normal((200, 4))
    rows = Rows(rest, rest[:, :1], rest, np.zeros(200, dtype=int), t, np.zeros(200, dtype=int))
    wind = coordinate_wind(rest[:, [1, 3]], np.array([1, 3]), rows, np.array([True, True]), None)
    assert wind is not None
    assert len(wind.axes) == 1
    assert wind.period == pytest.approx(40, rel=0.01)
    assert wind.size == pytest.approx(0.5, rel=0.02)
    found = direction(wind.axes[0].name, 4)
    np.testing.assert_allclose(np.abs(found), [0, 0.4, 0, 1.0], rtol=0.02, atol=1e-12)
    assert found[1] * found[3] < 0
    drawn = wind.draw(np.random.default_rng(1), 80)
    assert drawn.shape == (80, 1)
    assert coordinate_wind(rest, np.arange(4), rows, np.zeros(4, dtype=bool), None) is None


def test_a_direction_is_read_as_it_was_written() -> None:
    name = direction_name(np.array([2, 0]), np.array([-1.5e-7, 1.0]))
    np.testing.assert_array_equal(direction(name, 3), [1.0, 0.0, -1.5e-7])
