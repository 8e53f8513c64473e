"""Winds: what is predicted of each kind, and a force that is found again from steps."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt import winds
from windward.adapt.twin import Twin
from windward.adapt.winds import Memory, WindSettings
from windward.diagnosis.wind import Axis, Model, Sine, Wind

S = WindSettings()
STILL = Model(0.0, 0.0, 0, (), (), 0.0)


def wind(*models: Model, place: str = "force:pole", names: str = "xyz", size: float = 1.0) -> Wind:
    axes = tuple(Axis(name, size, 1.0, each) for name, each in zip(names, models, strict=False))
    return Wind(place, "N", axes, (), 1.0, (), None)


def remembered(*series: np.ndarray) -> Memory:
    """Rows of one axis each."""
    memory = winds.blank(len(series), 1, S)
    for t in range(len(series[0])):
        memory = memory.after(np.array([[each[t]] for each in series]))
    return memory


def predicted(model: Model, *series: np.ndarray) -> np.ndarray:
    return winds.predict(wind(model), remembered(*series), S)[:, 0]


def test_phases_of_a_sinusoid_are_found_in_each_row() -> None:
    t = np.arange(26)
    rows = [3.0 + 2.0 * np.sin(2 * np.pi * t / 40 + phase) for phase in (0.3, 2.0, 4.5)]
    model = STILL._replace(mean=3.0, sines=(Sine(2.0, 40.0),))
    found = predicted(model, *(each[:-1] for each in rows))
    np.testing.assert_allclose(found, [each[-1] for each in rows], rtol=1e-4)


def test_two_sinusoids_of_another_size_than_was_told() -> None:
    t = np.arange(60)
    w = 1.5 * np.sin(2 * np.pi * t / 23) - 0.4 * np.cos(2 * np.pi * t / 7)
    model = STILL._replace(sines=(Sine(1.0, 23.0), Sine(0.5, 7.0)))
    np.testing.assert_allclose(predicted(model, w[:-1]), w[-1], rtol=1e-3)


def test_before_a_phase_is_known_the_last_value_is_taken() -> None:
    model = STILL._replace(sines=(Sine(2.0, 40.0),))
    assert predicted(model, np.array([0.7, 0.9]))[0] == 0.9
    blank = winds.predict(wind(model), winds.blank(2, 1, S), S)
    np.testing.assert_array_equal(blank, np.zeros((2, 1)))


def test_a_constant_is_its_mean_and_there_from_the_first_step_on() -> None:
    model = STILL._replace(mean=2.0, noise=0.1)
    np.testing.assert_allclose(predicted(model, np.array([2.2, 1.9, 2.2])), 2.1)
    np.testing.assert_array_equal(winds.predict(wind(model), winds.blank(1, 1, S), S), [[2.0]])


def test_a_step_is_followed() -> None:
    model = STILL._replace(step=5.0, at=12)
    assert winds.predict(wind(model), winds.blank(1, 1, S), S) == 0.0
    np.testing.assert_allclose(predicted(model, np.r_[np.zeros(12), np.full(10, 5.0)]), 5.0)


def test_an_autoregression() -> None:
    model = STILL._replace(mean=1.0, past=(1.2, -0.4), noise=5.0)
    found = predicted(model, np.array([0.0, 2.0, 1.5]), np.array([np.nan, np.nan, 3.0]))
    np.testing.assert_allclose(found, [1 + 1.2 * 0.5 - 0.4 * 1.0, 1 + 1.2 * 2.0])


def test_noise_alone_is_not_predicted() -> None:
    assert predicted(STILL._replace(noise=1.0), np.array([3.0, -2.0, 4.0])) == 0.0


def test_gaps_are_left_out() -> None:
    t = np.arange(40)
    w = np.sin(2 * np.pi * t / 30)
    holes = np.where(t % 5 == 0, np.nan, w)
    model = STILL._replace(sines=(Sine(1.0, 30.0),))
    np.testing.assert_allclose(predicted(model, holes[:-1]), w[-1], atol=1e-3)


def test_only_so_many_steps_are_remembered() -> None:
    memory = remembered(np.arange(S.kept + 25.0))
    np.testing.assert_array_equal(memory.amount[0, :, 0], np.arange(25.0, S.kept + 25))


CASES = [
    ("InvertedPendulum-v5", "force:pole", "x", [4.0]),
    ("Hopper-v5", "force:torso", "xz", [5.0, -3.0]),
    ("Pendulum-v1", "action", "0", [0.6]),
]


@pytest.mark.parametrize(("name", "place", "axes", "amount"), CASES)
def test_what_disturbed_applied_is_found(name: str, place: str, axes: str, amount: Any) -> None:
    """From the states before and after each step, around any guess."""
    push = np.array(amount)
    whole = np.array([push[0], 0.0, push[1] if len(push) > 1 else 0.0])
    channel = ww.envs.Bias(push if place == "action" else whole)
    env = ww.envs.Disturbed(gym.make(name), channel, channel=place)
    env.reset(seed=1)
    sim = ww.simulator(env, noisy=False)
    own = wind(*[STILL] * len(axes), place=place, names=axes, size=float(np.abs(push).max()))
    twin = Twin(sim, sim, own, threads=1)
    weight = np.ones(sim.d_x)
    rng = np.random.default_rng(0)
    for guess in (0.0 * push, 0.8 * push, push + 1.0):
        x = sim.state()
        u = rng.uniform(-0.2, 0.2, env.action_space.shape).astype(env.action_space.dtype)
        env.step(u)
        found, left = winds.estimate(
            twin, x[None], u[None], sim.state()[None], guess[None], weight, S
        )
        np.testing.assert_allclose(found[0], push, rtol=0.02, atol=0.02)
        assert np.abs(left).max() < 1e-3


def test_estimates_are_cut_and_finite() -> None:
    env = gym.make("InvertedPendulum-v5")
    env.reset(seed=0)
    sim = ww.simulator(env, noisy=False)
    twin, x, u = Twin(sim, sim, wind(STILL), threads=1), sim.state(), np.zeros((3, 1))
    x_next = np.stack([x + 1e3, x, np.full(4, np.nan)])
    found, left = winds.estimate(twin, np.stack([x, x * np.nan, x]), u, x_next, np.zeros((3, 1)),
                                 np.ones(4), S)  # fmt: skip
    assert np.isfinite(found).all()
    assert np.isfinite(left).all()
    assert np.abs(found).max() <= S.outlier
    assert found[0, 0] == S.outlier
