"""Variants: one batch under many parameter values equals environments changed one by one."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import pytest
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv

from windward.envs import Bias, Changed, Disturbed
from windward.simulators import simulator
from windward.simulators.parameters import arrays_of
from windward.simulators.variants import MujocoVariants, WrittenVariants, variants_of

CHANGES: dict[str, list[dict[str, float]]] = {
    "Hopper-v5": [
        {},
        {"mass": 1.3, "gain:leg_joint": 0.7, "slope:x": 0.1},
        {"mass:torso": 0.8, "inertia": 1.5, "damping": 2.0, "armature:foot_joint": 1.4},
        {"com:torso.x": 0.05, "friction": 0.5, "gravity": 1.1, "frictionloss:leg_joint": 2.0},
        {"com:foot.z": -0.02, "com:foot.x": 0.03},
        {"mass:torso": 1.1},
    ],
    "Ant-v5": [
        {"mass": 1.2, "friction": 0.6, "com:torso.y": 0.04},
        {},
        {"gain:hip_4": 0.5, "armature": 1.5, "slope:y": -0.1, "gravity": 0.9},
        {"mass:torso": 2.0, "inertia:torso": 0.5, "damping:ankle_1": 3.0},
    ],
    "Pendulum-v1": [{}, {"mass": 1.3, "length": 0.8}, {"gravity": 0.5}, {"mass": 0.7}],
    "CartPole-v1": [{"mass:pole": 2.0, "gain": 0.8}, {}, {"length": 1.2, "gravity": 1.1}],
}


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MuJoCo writes a log into the working directory when it warns."""
    monkeypatch.chdir(tmp_path)


def made(env: gym.Env, seed: int = 0) -> gym.Env:
    env.reset(seed=seed)
    env.action_space.seed(seed)
    return env


def state_of(env: gym.Env) -> np.ndarray:
    base: Any = env.unwrapped
    if hasattr(base, "data"):
        return np.concatenate([base.data.qpos, base.data.qvel])
    return np.array(base.state, dtype=np.float64)


def place(env: gym.Env, x: np.ndarray) -> None:
    base: Any = env.unwrapped
    if hasattr(base, "data"):
        mujoco.mj_resetData(base.model, base.data)
        base.set_state(x[: base.model.nq], x[base.model.nq :])
        base.data.qacc_warmstart[:] = 0.0
    else:
        base.state = np.array(x)


def walked(env: gym.Env, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """States and actions of a random walk, on the ground too."""
    x, u = [], []
    for _ in range(steps):
        action = env.action_space.sample()
        x.append(state_of(env))
        u.append(np.asarray(action))
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    return np.array(x), np.array(u)


def by_hand(env: gym.Env, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The environment itself from each of the states."""
    rows = []
    for each, action in zip(x, u, strict=True):
        place(env, each)
        env.step(action if action.ndim else int(action))
        rows.append(state_of(env))
    return np.array(rows)


def values_for(sim: Any, changes: list[dict[str, float]]) -> list[dict[str, np.ndarray]]:
    return [arrays_of(sim.dynamics.parameters.elements, each) for each in changes]


@pytest.mark.parametrize("name", list(CHANGES))
def test_variants_are_changed_environments_stepped_one_by_one(name: str) -> None:
    env = made(gym.make(name))
    sim = simulator(env, noisy=False)
    x, u = walked(env, 24)
    variants = variants_of(sim.dynamics, threads=1)
    assert isinstance(variants, MujocoVariants) == (name in ("Hopper-v5", "Ant-v5"))
    start = np.repeat(x[None], len(CHANGES[name]), axis=0)
    found = variants.advance(values_for(sim, CHANGES[name]), start, u)
    nominal = by_hand(made(gym.make(name)), x, u)
    for changes, rows in zip(CHANGES[name], found, strict=True):
        expected = by_hand(made(Changed(gym.make(name), changes)), x, u)
        np.testing.assert_allclose(rows, expected, rtol=1e-7, atol=1e-7)
        if changes:
            assert np.abs(rows - nominal).max() > 1e-5


@pytest.mark.parametrize("name", ["Hopper-v5", "CartPole-v1"])
def test_what_one_batch_wrote_is_gone_in_the_next(name: str) -> None:
    env = made(gym.make(name))
    sim = simulator(env, noisy=False)
    x, u = walked(env, 10)
    values = values_for(sim, CHANGES[name])
    used = variants_of(sim.dynamics, threads=1)
    used.advance(values, np.repeat(x[None], len(values), axis=0), u)
    for order in (values[::-1], values[1:], values[:1]):
        start = np.repeat(x[None], len(order), axis=0)
        fresh = variants_of(simulator(env, noisy=False).dynamics, threads=1)
        np.testing.assert_array_equal(used.advance(order, start, u), fresh.advance(order, start, u))


@pytest.mark.parametrize("name", ["Hopper-v5", "Pendulum-v1"])
def test_the_simulator_itself_stays_as_it_was(name: str) -> None:
    env = made(gym.make(name))
    sim = simulator(env, noisy=False)
    x, u = walked(env, 6)
    before = sim.step(x, u)[0]
    values = values_for(sim, CHANGES[name])
    variants_of(sim.dynamics, threads=1).advance(values, np.repeat(x[None], len(values), 0), u)
    np.testing.assert_array_equal(sim.step(x, u)[0], before)


@pytest.mark.parametrize("name", ["Hopper-v5", "Pendulum-v1"])
def test_variants_of_a_scaled_simulator_are_from_its_own_values(name: str) -> None:
    env = made(gym.make(name))
    sim = simulator(env, noisy=False, scale={"mass": 1.5})
    x, u = walked(env, 8)
    before = sim.step(x, u)[0]
    variants = variants_of(sim.dynamics, threads=1)
    found = variants.advance(values_for(sim, [{}, {"mass": 2.0}]), np.stack([x, x]), u)
    np.testing.assert_allclose(found[0], before, rtol=1e-9, atol=1e-9)
    expected = by_hand(made(Changed(gym.make(name), {"mass": 3.0})), x, u)
    np.testing.assert_allclose(found[1], expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_array_equal(sim.step(x, u)[0], before)


@pytest.mark.parametrize("name", ["Hopper-v5", "Ant-v5"])
def test_a_thread_computes_what_two_do(name: str) -> None:
    env = made(gym.make(name))
    sim = simulator(env, noisy=False)
    x, u = walked(env, 16)
    values = values_for(sim, CHANGES[name])
    start = np.repeat(x[None], len(values), axis=0)
    one, two = (MujocoVariants(sim.dynamics, threads=n).advance(values, start, u) for n in (1, 2))  # type: ignore[arg-type]
    assert one.tobytes() == two.tobytes()


def test_each_variant_may_start_from_states_of_its_own() -> None:
    env = made(gym.make("Hopper-v5"))
    sim = simulator(env, noisy=False)
    x, u = walked(env, 6)
    start = np.stack([x, x + 0.01, x - 0.01])
    found = variants_of(sim.dynamics, 1).advance([{}] * 3, start, u)
    for rows, each in zip(found, start, strict=True):
        np.testing.assert_allclose(rows, sim.step(each, u)[0], rtol=1e-9, atol=1e-9)


# --- forces ------------------------------------------------------------------------------------


class AsItIs(HopperEnv):
    """A user's Hopper with a reward of its own; actions go to the motors as they are."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward - 1.0, terminated, truncated, info


class Halved(HopperEnv):
    """A user's Hopper with motors of half the strength."""

    def step(self, action: Any) -> Any:
        return super().step(0.5 * np.asarray(action))


class Clipped(HopperEnv):
    """Takes small actions as they are, and no larger ones."""

    def step(self, action: Any) -> Any:
        return super().step(np.clip(action, -0.4, 0.4))


@pytest.mark.parametrize(
    ("kind", "body"),
    [("Hopper-v5", "torso"), ("Hopper-v5", "foot"), ("Ant-v5", "torso"), (Halved, "leg")],
)
def test_forces_are_those_of_disturbed(kind: Any, body: str) -> None:
    def new() -> gym.Env:
        return gym.make(kind) if isinstance(kind, str) else kind()

    env = made(new())
    sim = simulator(env, noisy=False)
    x, u = walked(env, 10)
    push = (20.0, -5.0, 30.0)
    bodies = list(sim.dynamics.parameters.elements["mass"])
    force = np.zeros((2, 10, 3 * len(bodies)))
    first = 3 * bodies.index(body)
    force[1, :, first : first + 3] = push
    found = variants_of(sim.dynamics, 1).advance([{}, {}], np.stack([x, x]), u, force)
    world = made(Disturbed(new(), Bias(push), f"force:{body}"))
    np.testing.assert_allclose(found[1], by_hand(world, x, u), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(found[0], sim.step(x, u)[0], rtol=1e-7, atol=1e-7)
    assert np.abs(found[1] - found[0]).max() > 1e-3


def test_a_force_of_nothing_is_no_force_and_leaves_nothing_for_the_next_batch() -> None:
    env = made(gym.make("Hopper-v5"))
    sim = simulator(env, noisy=False)
    x, u = walked(env, 8)
    variants = variants_of(sim.dynamics, 1)
    plain = variants.advance([{}], x[None], u)
    none, strong = np.zeros((1, 8, 12)), np.full((1, 8, 12), 50.0)
    assert variants.advance([{}], x[None], u, none).tobytes() == plain.tobytes()
    assert np.abs(variants.advance([{}], x[None], u, strong) - plain).max() > 0.1
    assert variants.advance([{}], x[None], u).tobytes() == plain.tobytes()


# --- physics that blow up ----------------------------------------------------------------------


def test_rows_that_the_physics_cannot_compute_are_nan_and_the_others_are_not() -> None:
    env = made(gym.make("HalfCheetah-v5"))
    sim = simulator(env, noisy=False)
    x, u = walked(env, 6)
    start = np.stack([x, x])
    start[0, 2, 9] = 1e12
    start[1, 4, 3] = np.nan
    found = variants_of(sim.dynamics, 1).advance(values_for(sim, [{}, {"mass": 1.1}]), start, u)
    lost = np.isnan(found).all(axis=2)
    assert np.array_equal(lost, np.isnan(found).any(axis=2))
    assert np.argwhere(lost).tolist() == [[0, 2], [1, 4]]
    again = variants_of(sim.dynamics, 1).advance([{}], x[None], u)
    np.testing.assert_array_equal(found[0][~lost[0]], again[0][~lost[0]])


def test_a_force_too_strong_for_mujoco_gives_nan() -> None:
    env = made(gym.make("Hopper-v5"))
    sim = simulator(env, noisy=False)
    x, u = walked(env, 4)
    force = np.zeros((1, 4, 12))
    force[0, 1, 0] = 1e16
    found = variants_of(sim.dynamics, 1).advance([{}], x[None], u, force)
    assert np.isnan(found[0]).any(axis=1).tolist() == [False, True, False, False]


def test_rows_that_blow_up_are_nan_where_the_environment_steps_itself() -> None:
    env = made(Halved())
    sim = simulator(env, noisy=False)
    x, u = walked(env, 4)
    start = x.copy()
    start[2, 7] = 1e12
    found = variants_of(sim.dynamics, 1).advance([{}], start[None], u)
    assert np.isnan(found[0]).any(axis=1).tolist() == [False, False, True, False]


# --- environments of one's own -----------------------------------------------------------------


@pytest.mark.parametrize(("kind", "quick"), [(AsItIs, True), (Halved, False), (Clipped, False)])
@pytest.mark.parametrize("size", [1.0, 0.0, 0.1])
def test_a_step_of_ones_own_is_taken_for_physics_only_if_it_is_that(
    kind: Any, quick: bool, size: float
) -> None:
    env = made(kind())
    sim = simulator(env, noisy=False)
    x, u = walked(env, 20)
    variants: Any = variants_of(sim.dynamics, 1)
    changes: list[dict[str, float]] = [{}, {"mass": 1.3, "gain": 0.8, "com:torso.x": 0.03}]
    values, start = values_for(sim, changes), np.stack([x, x])
    # Small actions first: what is found out with them is asked of large ones too.
    variants.advance(values, start, size * u)
    assert variants._alike == quick
    found = variants.advance(values, start, u)
    for each, rows in zip(changes, found, strict=True):
        expected = by_hand(made(Changed(kind(), each)), x, u)
        np.testing.assert_allclose(rows, expected, rtol=1e-7, atol=1e-7)


def test_the_present_state_of_the_environment_may_be_among_the_rows() -> None:
    env = made(AsItIs())
    walked(env, 10)
    sim = simulator(env, noisy=False)
    variants: Any = variants_of(sim.dynamics, 1)
    variants.advance([{}], sim.state()[None, None], np.zeros((1, 3)))
    assert variants._alike


def test_written_variants_restore_the_parameters_when_the_physics_fails() -> None:
    env = gym.make("Pendulum-v1")
    env.reset(seed=0)

    def step(x: np.ndarray, u: np.ndarray, drag: float) -> Any:
        if drag > 1.0:
            raise RuntimeError("too much")
        return x * (1 - drag), np.zeros(len(x)), np.zeros(len(x), dtype=bool)

    sim = simulator(
        env, noisy=False, step=step, state=lambda base: np.ones(2), parameters={"drag": 0.5}
    )
    variants = variants_of(sim.dynamics)
    assert isinstance(variants, WrittenVariants)
    x, u = np.ones((2, 3, 2)), np.zeros((3, 1))
    found = variants.advance(values_for(sim, [{}, {"drag": 1.2}]), x, u)
    np.testing.assert_allclose(found[0], 0.5)
    np.testing.assert_allclose(found[1], 0.4)
    with pytest.raises(ValueError, match=r"step\(x, u, drag=1.5\).*RuntimeError: too much"):
        variants.advance(values_for(sim, [{"drag": 3.0}]), x[:1], u)
    np.testing.assert_allclose(sim.step(x[0], u)[0], 0.5)
