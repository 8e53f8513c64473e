"""Cost, termination and observation of Gymnasium's tasks as functions of the state."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.mujoco.mujoco_env import MujocoEnv

from windward.simulators.tasks import TASKS, Task

NAMES = ["Hopper-v5", "Walker2d-v5", "HalfCheetah-v5", "Swimmer-v5", "InvertedPendulum-v5"]
UPRIGHT = ["Hopper-v5", "Walker2d-v5"]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MuJoCo writes a log into the working directory when it warns."""
    monkeypatch.chdir(tmp_path)


def made(name: str, **settings: Any) -> MujocoEnv:
    env = gym.make(name, **settings).unwrapped
    env.reset(seed=0)
    env.action_space.seed(0)
    return env


def task_of(env: MujocoEnv) -> Task:
    return TASKS[type(env)]


def state_of(env: MujocoEnv) -> np.ndarray:
    return np.concatenate([env.data.qpos, env.data.qvel])


def recorded(env: MujocoEnv, steps: int = 60) -> dict[str, np.ndarray]:
    """What the environment itself says along a random walk."""
    rows: dict[str, list[Any]] = {key: [] for key in ("x", "u", "y", "seen", "reward", "ended")}
    for _ in range(steps):
        rows["x"].append(state_of(env))
        rows["u"].append(env.action_space.sample())
        seen, reward, ended, _, _ = env.step(rows["u"][-1])
        for key, value in (("y", state_of(env)), ("seen", seen), ("reward", reward)):
            rows[key].append(value)
        rows["ended"].append(ended)
        if ended:
            env.reset()
    return {key: np.array(values) for key, values in rows.items()}


SETTINGS = [
    *[(name, {}) for name in NAMES],
    ("Hopper-v5", {"exclude_current_positions_from_observation": False}),
    ("Hopper-v5", {"forward_reward_weight": 2.5, "ctrl_cost_weight": 0.3, "healthy_reward": 4.0}),
    ("Hopper-v5", {"terminate_when_unhealthy": False, "healthy_z_range": (1.24, 1.26)}),
    ("Hopper-v5", {"healthy_z_range": (1.2, 1.26)}),
    ("Hopper-v5", {"healthy_angle_range": (-0.01, 0.01)}),
    ("Hopper-v5", {"healthy_state_range": (-1.0, 1.0)}),
    ("Hopper-v5", {"frame_skip": 2}),
    ("Walker2d-v5", {"exclude_current_positions_from_observation": False, "frame_skip": 2}),
    ("Walker2d-v5", {"terminate_when_unhealthy": False, "healthy_angle_range": (-0.02, 0.02)}),
    ("HalfCheetah-v5", {"forward_reward_weight": 0.2, "ctrl_cost_weight": 3.0}),
    ("HalfCheetah-v5", {"exclude_current_positions_from_observation": False}),
    ("Swimmer-v5", {"exclude_current_positions_from_observation": False, "ctrl_cost_weight": 1.0}),
]


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_tasks_say_what_the_environment_says(name: str, settings: Any) -> None:
    env = made(name, **settings)
    task, seen = task_of(env), recorded(env)
    assert np.abs(task.cost(env, seen["x"].T, seen["u"], seen["y"].T) + seen["reward"]).max() < 1e-6
    assert np.array_equal(task.terminated(env, seen["y"].T), seen["ended"])
    assert np.array_equal(task.observation(env, seen["y"]), seen["seen"])


@pytest.mark.parametrize("name", NAMES)
def test_one_state_is_the_same_as_a_row(name: str) -> None:
    env = made(name)
    task, seen = task_of(env), recorded(env, 5)
    for i in range(5):
        y = seen["y"][i]
        assert task.terminated(env, y.tolist()) == task.terminated(env, y[None].T)[0]
        assert np.array_equal(task.observation(env, y), task.observation(env, y[None])[0])


@pytest.mark.parametrize("name", NAMES)
def test_flags_are_booleans(name: str) -> None:
    env = made(name)
    flags = task_of(env).terminated(env, np.stack([state_of(env)] * 3).T)
    assert flags.dtype == bool
    assert flags.shape == (3,)


@pytest.mark.parametrize("name", [*UPRIGHT, "InvertedPendulum-v5"])
def test_a_fall_ends_an_episode_and_upright_does_not(name: str) -> None:
    env = made(name)
    upright = state_of(env)
    fallen = upright.copy()
    fallen[1] = 0.3
    assert task_of(env).terminated(env, np.stack([upright, fallen]).T).tolist() == [False, True]


@pytest.mark.parametrize("name", UPRIGHT)
def test_bounds_of_health_are_open(name: str) -> None:
    env = made(name, healthy_z_range=(0.75, 1.5))
    at = np.stack([state_of(env)] * 4)
    at[:, 1] = [0.75, np.nextafter(0.75, 1.0), np.nextafter(1.5, 1.0), 1.5]
    at[:, 2] = 0.0
    assert task_of(env).terminated(env, at.T).tolist() == [True, False, False, True]


def test_a_pendulum_at_its_bound_stands() -> None:
    env = made("InvertedPendulum-v5")
    at = np.zeros((4, 4))
    at[:, 1] = [0.2, -0.2, np.nextafter(0.2, 1.0), -np.nextafter(0.2, 1.0)]
    assert task_of(env).terminated(env, at.T).tolist() == [False, False, True, True]


@pytest.mark.parametrize("coordinate", [2, 5, 6, 11])
def test_a_hopper_that_moves_beyond_its_range_is_not_healthy(coordinate: int) -> None:
    env = made("Hopper-v5", healthy_angle_range=(-200.0, 200.0))
    at = np.stack([state_of(env)] * 2)
    at[1, coordinate] = 100.5
    assert task_of(env).terminated(env, at.T).tolist() == [False, True]


def test_a_hopper_may_be_anywhere_along_its_way() -> None:
    env = made("Hopper-v5")
    x = state_of(env)
    x[0] = 1e4
    assert not task_of(env).terminated(env, x.tolist())


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Swimmer-v5"])
def test_some_tasks_never_end(name: str) -> None:
    env = made(name)
    x = 1e6 * np.ones((2, state_of(env).size))
    assert task_of(env).terminated(env, x.T).tolist() == [False, False]


@pytest.mark.parametrize("name", UPRIGHT)
def test_the_bonus_is_lost_with_health_whether_or_not_that_ends_the_episode(name: str) -> None:
    env = made(name, terminate_when_unhealthy=False, healthy_reward=7.0)
    x = np.stack([state_of(env)] * 2)
    y = x.copy()
    y[1, 1] = 0.1
    cost = task_of(env).cost(env, x.T, np.zeros((2, env.model.nu)), y.T)
    assert cost[1] - cost[0] == pytest.approx(7.0)
    assert task_of(env).terminated(env, y.T).tolist() == [False, False]


@pytest.mark.parametrize("name", [*UPRIGHT, "InvertedPendulum-v5"])
def test_a_state_that_is_not_a_number_is_terminal(name: str) -> None:
    env = made(name)
    x = np.stack([state_of(env), np.full(state_of(env).size, np.nan)])
    assert task_of(env).terminated(env, x.T).tolist() == [False, True]


@pytest.mark.parametrize("name", NAMES[:-1])
def test_a_state_that_is_not_a_number_costs_no_number(name: str) -> None:
    env = made(name)
    x = state_of(env)[None]
    assert np.isnan(
        task_of(env).cost(env, x.T, np.zeros((1, env.model.nu)), np.full_like(x, np.nan).T)
    )


@pytest.mark.parametrize(("name", "clip"), [("Hopper-v5", 10.0), ("Walker2d-v5", 10.0)])
def test_observations_clip_fast_joints(name: str, clip: float) -> None:
    env = made(name)
    env.data.qvel[:] = np.linspace(-30.0, 30.0, env.model.nv)
    task = task_of(env)
    assert np.array_equal(task.observation(env, state_of(env)), env._get_obs())
    assert np.abs(task.observation(env, state_of(env))[env.model.nq - 1 :]).max() == clip
    assert task.clip == clip


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Swimmer-v5", "InvertedPendulum-v5"])
def test_other_observations_clip_nothing(name: str) -> None:
    env = made(name)
    env.data.qvel[:] = 1e3
    assert np.array_equal(task_of(env).observation(env, state_of(env)), env._get_obs())


@pytest.mark.parametrize("name", NAMES)
def test_looking_changes_nothing(name: str) -> None:
    env = made(name)
    x = np.stack([state_of(env)] * 2)
    x[:, -1] = 50.0
    u, before = np.ones((2, env.model.nu)), x.copy()
    seen = task_of(env).observation(env, x)
    seen[:] = -1.0
    task_of(env).cost(env, x.T, u, x.T)
    task_of(env).terminated(env, x.T)
    assert np.array_equal(x, before)
    assert (u == 1.0).all()


def test_tasks_are_of_exactly_those_classes() -> None:
    own = type("Own", (type(made("Hopper-v5")),), {})
    assert own not in TASKS
    assert len(TASKS) == len(NAMES)
    assert {type(made(name)) for name in NAMES} == set(TASKS)
