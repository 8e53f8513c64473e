"""The two worlds side by side: next states of simulators, winds as `Disturbed` blows them."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt.twin import Twin
from windward.diagnosis.wind import Axis, Model, Wind

CHANGES = {
    "Pendulum-v1": {"mass": 1.3},
    "InvertedPendulum-v5": {"gain": 0.7},
    "Hopper-v5": {"mass": 1.1},
}
STILL = Model(0.0, 0.0, 0, (), (), 0.0)


def wind(place: str, *names: str, size: float = 1.0) -> Wind:
    axes = tuple(Axis(name, size, 1.0, STILL) for name in names)
    return Wind(place, "", axes, (), 1.0, (), None)


@pytest.fixture(scope="module")
def simulators() -> dict[str, tuple[Any, Any]]:
    """(nominal, changed) by environment."""
    found = {}
    for name, changes in CHANGES.items():
        env = gym.make(name)
        env.reset(seed=0)
        nominal = ww.simulator(env, noisy=False)
        found[name] = nominal, nominal.changed(changes)
    return found


def rows(sim: Any, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """States near the environment's, actions all over the space."""
    rng, space = np.random.default_rng(seed), sim.env.action_space
    x = sim.state() + rng.uniform(-0.05, 0.05, (n, sim.d_x))
    u = rng.uniform(space.low, space.high, (n, *space.shape)).astype(space.dtype)
    return x, u


@pytest.mark.parametrize("name", CHANGES)
def test_next_states_are_those_of_the_simulators(simulators: Any, name: str) -> None:
    nominal, changed = simulators[name]
    twin, (x, u) = Twin(nominal, changed, threads=1), rows(nominal, 12)
    flags = np.arange(12) % 3 == 0
    made = twin.advance(flags, x, u)
    for sim, own, flag in ((nominal, ~flags, False), (changed, flags, True)):
        x_next, cost, ended = sim.step(x[own], u[own])
        np.testing.assert_allclose(made[own], x_next, rtol=1e-9, atol=1e-9)
        stepped, reward, over = twin.step(x[own], u[own], None, flag)
        np.testing.assert_array_equal(stepped, made[own])
        np.testing.assert_allclose(reward, -cost, rtol=1e-7, atol=1e-7)
        np.testing.assert_array_equal(over, ended)
    assert np.abs(made[flags] - nominal.step(x[flags], u[flags])[0]).max() > 1e-5
    np.testing.assert_array_equal(twin.observe(x), nominal.observation(x))


@pytest.mark.parametrize("name", ["InvertedPendulum-v5", "Hopper-v5"])
def test_bits_do_not_depend_on_how_many_rows_there_are(simulators: Any, name: str) -> None:
    twin, (x, u) = Twin(*simulators[name], threads=1), rows(simulators[name][0], 6)
    flags = np.arange(6) % 2 == 0
    together = twin.advance(flags, x, u)
    for i in range(6):
        np.testing.assert_array_equal(twin.advance(flags[[i]], x[[i]], u[[i]])[0], together[i])


BLOWN = [
    ("Hopper-v5", "force:torso", "xz", "force:torso", lambda w: np.array([w[0], 0.0, w[1]])),
    ("Hopper-v5", "force:foot", "x", "force:foot", lambda w: np.array([w[0], 0.0, 0.0])),
    ("InvertedPendulum-v5", "force:pole", "x", "force:pole", lambda w: np.array([w[0], 0.0, 0.0])),
    ("Pendulum-v1", "action", "0", "action", lambda w: w),
    ("Hopper-v5", "action", "02", "action", lambda w: np.array([w[0], 0.0, w[1]])),
]


@pytest.mark.parametrize(("name", "place", "axes", "channel", "whole"), BLOWN)
def test_winds_do_what_disturbed_does(
    simulators: Any, name: str, place: str, axes: str, channel: str, whole: Any
) -> None:
    """State, reward and end of a step; on the action it is cut at the space's bounds, as there."""
    sim = simulators[name][0]
    twin, amount = Twin(sim, sim, wind(place, *axes), threads=1), np.array([3.0, -1.5])[: len(axes)]
    assert twin.axes == len(axes)
    env = ww.envs.Disturbed(gym.make(name), ww.envs.Bias(whole(amount)), channel=channel)
    env.reset(seed=3)
    inside = ww.simulator(env, noisy=False)
    rng = np.random.default_rng(0)
    for _ in range(8):
        x = inside.state()
        u = rng.uniform(env.action_space.low, env.action_space.high).astype(env.action_space.dtype)
        _, reward, terminated, _, _ = env.step(u)
        made, told, ended = twin.step(x[None], u[None], amount[None])
        np.testing.assert_allclose(made[0], inside.state(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(told[0], reward, rtol=1e-5, atol=1e-5)
        assert ended[0] == terminated
        np.testing.assert_array_equal(
            twin.advance(np.ones(1, bool), x[None], u[None], amount[None]), made
        )


def test_a_wind_on_a_coordinate_shifts_the_next_state(simulators: Any) -> None:
    """As in Disturbed the reward stays, and the end is that of the shifted state."""
    from windward.diagnosis.residuals import compared, coordinates

    for name in ("InvertedPendulum-v5", "Pendulum-v1"):
        sim = simulators[name][0]
        index = int(compared(sim.dynamics)[-1])
        twin = Twin(sim, sim, wind(f"coordinate:{coordinates(sim.dynamics)[index]}", ""), threads=1)
        x, u = rows(sim, 4)
        calm, blown = twin.step(x, u), twin.step(x, u, np.full((4, 1), 0.3))
        shift = np.zeros(sim.d_x)
        shift[index] = 0.3
        np.testing.assert_allclose(blown[0] - calm[0], np.tile(shift, (4, 1)), atol=1e-12)
        np.testing.assert_array_equal(blown[1], calm[1])
        np.testing.assert_array_equal(blown[2], sim.terminated(blown[0], u))


def test_rewards_are_those_that_wrappers_make_of_them() -> None:
    env = gym.wrappers.TransformReward(gym.make("Pendulum-v1"), lambda reward: 0.1 * reward)
    env.reset(seed=0)
    sim = ww.simulator(env, noisy=False)
    x = sim.state()
    _, reward, *_ = env.step(np.array([1.0], np.float32))
    told = Twin(sim, sim).step(x[None], np.array([[1.0]], np.float32))[1]
    np.testing.assert_allclose(told[0], reward, rtol=1e-5)


def test_rows_that_cannot_be_computed_are_nan_and_have_ended(simulators: Any) -> None:
    twin = Twin(*simulators["InvertedPendulum-v5"], threads=1)
    x, u = rows(simulators["InvertedPendulum-v5"][0], 4)
    x[1], x[2, 3] = np.nan, 1e30
    made = twin.advance(np.ones(4, dtype=bool), x, u)
    np.testing.assert_array_equal(np.isnan(made).any(axis=1), [False, True, True, False])
    _, reward, ended = twin.step(x, u)
    assert np.isfinite(reward).all()
    assert ended[1]
    assert ended[2]
    good = [0, 3]
    alone = twin.advance(np.ones(2, dtype=bool), x[good], u[good])
    np.testing.assert_array_equal(made[good], alone)


def test_learned_simulators_stand_side_by_side() -> None:
    """States are observations; a wind along a direction moves several coordinates at once."""
    policy = ww.policies.load("Pendulum-v1")
    small: dict[str, Any] = {"steps": 1000, "updates": 250, "widths": (8,), "members": 2}
    with pytest.warns(UserWarning, match="ill-fitted"):
        learned = ww.fit_simulator("Pendulum-v1", policy, **small)
    before = learned.networks.added
    added = np.zeros((2 * 3 + 1 + 1, 3)) if before is None else before.copy()
    added[4, 2] += 0.25  # a constant
    changed = learned.corrected(added)
    twin = Twin(learned, changed, wind("coordinates:0,2", "0:0.1 2:1"))
    assert twin.axes == 1
    rng = np.random.default_rng(0)
    angle, speed = rng.uniform(-3, 3, 6), rng.uniform(-1, 1, 6)
    x = np.stack([np.cos(angle), np.sin(angle), speed], axis=1)
    u = rng.uniform(-2, 2, (6, 1)).astype(np.float32)
    flags = np.arange(6) % 2 == 0
    made = twin.advance(flags, x, u)
    np.testing.assert_allclose(made[flags, 2], learned.step(x, u)[0][flags, 2] + 0.25, atol=1e-6)
    np.testing.assert_array_equal(made[~flags], learned.step(x, u)[0][~flags])
    blown = twin.advance(flags, x, u, np.full((6, 1), 0.5))
    np.testing.assert_allclose(blown - made, np.tile([0.05, 0.0, 0.5], (6, 1)), atol=1e-12)
    stepped, reward, ended = twin.step(x, u, None, True)
    np.testing.assert_array_equal(stepped, changed.step(x, u)[0])
    np.testing.assert_array_equal(reward, -changed.step(x, u)[1])
    assert not ended.any()
    bad = twin.advance(flags, np.full((6, 3), np.nan), u)
    assert np.isnan(bad).all()
