"""Learned simulators with coordinates that answer otherwise."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from windward.diagnosis import Change, Diagnosis
from windward.diagnosis.learned import LearnedDynamics
from windward.simulators import Unsupported
from windward.simulators.learned import Fit, LearnedSimulator, Networks
from windward.simulators.variants import WrittenVariants, variants_of

MEAN, SPREAD = np.array([0.5, -1.0, 0.0]), np.array([2.0, 0.5, 1.0])
MOTION = np.array([0.3, 0.2, 0.1])


def learned(circles: bool = False) -> LearnedSimulator:
    """A network of numbers by hand, for states of 3 and actions of 1."""
    rng = np.random.default_rng(0)
    around = np.zeros((3, int(circles)))
    around[:2] = 1.0
    networks = Networks(
        mean=MEAN,
        spread=SPREAD,
        low=np.full(3, -3.0),
        high=np.full(3, 3.0),
        linear=0.1 * rng.standard_normal((5, 4)),
        size=np.array([0.2, 0.1, 0.3, 1.0]),
        circles=around,
        params={
            "w0": rng.standard_normal((2, 4, 6)).astype(np.float32),
            "b0": rng.standard_normal((2, 1, 6)).astype(np.float32),
            "w1": rng.standard_normal((2, 6, 4)).astype(np.float32),
            "b1": rng.standard_normal((2, 1, 4)).astype(np.float32),
        },
        ends=None,
    )
    fit = Fit(100, 0.01 * MOTION, MOTION, 0.1, 1.0, 0, 0, 0, 0.01 * MOTION)
    seen = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    return LearnedSimulator(networks, seen, gym.spaces.Box(-1.0, 1.0, (1,), np.float64), fit)


@pytest.fixture
def points() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.uniform(-1, 1, (40, 3)), rng.uniform(-1, 1, (40, 1))


def by_hand(sim: LearnedSimulator, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The change that its networks tell."""
    n = sim.networks
    z = np.concatenate([(x - MEAN) / SPREAD, u], axis=1).astype(np.float32)
    p: Any = n.params
    added = np.mean([
        np.tanh(z @ p["w0"][k] + p["b0"][k]) @ p["w1"][k] + p["b1"][k] for k in range(2)
    ], axis=0)  # fmt: skip
    one = np.ones((len(x), 1))
    return np.concatenate([(x - MEAN) / SPREAD, u, one], axis=1) @ n.linear + n.size * added


def test_a_changed_simulator_answers_otherwise_in_the_coordinates_named(points: Any) -> None:
    sim, (x, u) = learned(), points
    change = by_hand(sim, x, u)[:, :3]
    np.testing.assert_allclose(sim.step(x, u)[0], x + change, atol=1e-6)
    other = sim.changed({"response": 1.1, "response:1": 0.5, "offset:0": 2.0, "offset:2": -1.0})
    np.testing.assert_allclose(
        other.step(x, u)[0],
        x + change * [1.1, 0.55, 1.1] + MOTION * [2.0, 0.0, -1.0],
        atol=1e-6,
    )
    np.testing.assert_array_equal(other.step(x, u)[1], sim.step(x, u)[1])  # the reward stays
    assert other.fit is sim.fit


def test_changes_of_changes_multiply_and_add_up(points: Any) -> None:
    sim, (x, u) = learned(), points
    twice = sim.changed({"response:1": 0.5}).changed({"response:1": 3.0, "offset:1": 0.5})
    once = sim.changed({"response:1": 1.5, "offset:1": 0.5})
    np.testing.assert_allclose(twice.step(x, u)[0], once.step(x, u)[0], rtol=1e-12)


def test_a_change_of_nothing_is_the_same_simulator(points: Any) -> None:
    sim, (x, u) = learned(circles=True), points
    for nothing in ({}, {"response": 1.0}, {"offset:0": 0.0}):
        for one, other in zip(sim.changed(nothing).step(x, u), sim.step(x, u), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_changed_simulator_stays_on_its_circles(points: Any) -> None:
    sim, (x, u) = learned(circles=True), points
    x_next = sim.changed({"response:0": 3.0, "offset:1": 4.0}).step(x, u)[0]
    np.testing.assert_allclose(np.hypot(x_next[:, 0], x_next[:, 1]), 1.0, rtol=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mass": 1.1}, "'mass'.*response, offset"),
        ({"response:3": 1.1}, "'response:3'.*0, 1, 2"),
        ({"response:1": 0.0}, r"scale\['response:1'\] must be greater than 0"),
        ({"offset": 0.1}, "'offset' needs one of 0, 1, 2"),
        ({"offset:0": np.nan}, r"scale\['offset:0'\] must be finite"),
        (None, "scale must be a mapping"),
    ],
)
def test_wrong_changes_are_named(changes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        learned().changed(changes)


def test_as_a_physics_it_does_what_the_changed_simulator_does(points: Any) -> None:
    sim, (x, u) = learned(), points
    dynamics = LearnedDynamics(sim)
    variants = variants_of(dynamics)  # type: ignore[arg-type]
    assert isinstance(variants, WrittenVariants)
    values = [
        {},
        {"response": np.array([0.8, 1.0, 1.3])},
        {"offset": np.array([0.0, 0.5, -0.5]), "response": np.array([1.2, 1.0, 1.0])},
    ]
    changes = [
        {},
        {"response:0": 0.8, "response:2": 1.3},
        {"offset:1": 0.5, "offset:2": -0.5, "response:0": 1.2},
    ]
    found = variants.advance(values, np.stack([x] * 3), u)
    for rows, each in zip(found, changes, strict=True):
        np.testing.assert_allclose(rows, sim.changed(each).step(x, u)[0], atol=1e-9)
    np.testing.assert_array_equal(dynamics.advance(x, u, {}), found[0])
    np.testing.assert_allclose(dynamics.gap(found[1], found[0]), found[1] - found[0])


# --- as a diagnosis ----------------------------------------------------------------------------


def diagnosed(**more: Any) -> Diagnosis:
    changes = {"response:0": Change(0.8, 0.7, 0.9)}
    return Diagnosis(changes, changes, None, more.pop("unexplained", 0.0), source="learned", **more)


def test_a_learned_simulator_has_no_environment_and_says_what_there_is(tmp_path: Path) -> None:
    found = diagnosed(nominal=learned(), env_id="Pendulum-v1")
    assert isinstance(found.simulator(), LearnedSimulator)
    with pytest.raises(Unsupported, match=r"response:0.*Use simulator\(\)"):
        found.environment()
    found.save(tmp_path / "diagnosis.npz")
    loaded = Diagnosis.load(tmp_path / "diagnosis.npz")
    with pytest.raises(Unsupported, match=r"nominal=windward\.load_simulator"):
        loaded.simulator()
    with pytest.raises(ValueError, match="nominal must be a simulator"):
        loaded.simulator(nominal="learned.npz")
    again = loaded.simulator(nominal=learned())
    x, u = np.full((2, again.d_x), 0.1), np.full((2, 1), 0.1)
    np.testing.assert_array_equal(again.step(x, u)[0], found.simulator().step(x, u)[0])


def test_what_stays_unexplained_means_something_else_there() -> None:
    said = str(diagnosed(unexplained=0.4))
    assert said.startswith("40 % of the deviation stays unexplained")
    assert "number of the observation" in said
    assert "stuck joint" not in said
