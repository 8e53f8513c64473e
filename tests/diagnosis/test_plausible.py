"""Doubts: what is of another kind than parameters and winds is not explained by them."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.diagnosis.explanation import Identified
from windward.diagnosis.parameters import Sizes, parameters_of
from windward.diagnosis.plausible import doubts_of
from windward.diagnosis.residuals import Residuals, Rows
from windward.diagnosis.wind import Axis, Coordinate, Model, Wind
from windward.envs import Changed, Disturbed
from windward.simulators import simulator

SEED = 931


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MuJoCo writes a log into the working directory when it warns."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("factor", [0.8, 1.1])
def test_another_time_step_is_no_change_of_parameters(factor: float) -> None:
    name = "InvertedPendulum-v5"
    env: Any = gym.make(name)
    nominal = simulator(gym.make(name), noisy=False)
    env.unwrapped.model.opt.timestep *= factor
    found = ww.diagnose(None, env, simulator=nominal, steps=150, seed=SEED, threads=1)
    assert not found.changes
    assert found.unexplained > 0.1
    assert any(f"positions move x{factor:.3g}" in note for note in found.notes)
    assert found.wind is None or not found.wind.axes


def test_a_wind_is_no_other_time_step() -> None:
    world = Disturbed(
        gym.make("InvertedPendulum-v5"), "sine:amp=6/0/0,period=90", "force:pole", seed=SEED
    )
    found = ww.diagnose(None, world, steps=150, seed=SEED, threads=1)
    assert not found.notes
    assert found.wind.place == "force:pole"
    assert found.unexplained < 0.01


def test_another_unit_is_no_change_of_parameters() -> None:
    env = ww.Recorder(gym.make("InvertedPendulum-v5"))
    env.reset(seed=SEED)
    env.action_space.seed(SEED)
    for _ in range(150):
        if env.step(env.action_space.sample())[2]:
            env.reset()
    env.close()
    states, actions, ends = [], [], []
    for episode in env.log.episodes:
        assert episode.states is not None
        degrees = np.concatenate([episode.states[:, :2], 57.3 * episode.states[:, 2:]], axis=1)
        states.append(degrees)
        actions.append(np.concatenate([episode.actions, episode.actions[-1:]]))
        ends.append(np.arange(len(degrees)) == len(degrees) - 1)
    arrays = {"states": states, "actions": actions, "ends": ends}
    log = {name: np.concatenate(each) for name, each in arrays.items()}
    found = ww.diagnose_log(log, "InvertedPendulum-v5", threads=1)
    assert not found.changes
    assert found.unexplained > 0.1
    assert found.notes


# --- a wind that is none -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def hopper() -> tuple[Residuals, Rows, np.ndarray]:
    """Residuals, rows of a jump, and in which of them the foot touches the floor."""
    env: Any = gym.make("Hopper-v5")
    sim = simulator(env, noisy=False)
    x, u, x_next, run = [], [], [], []
    for episode in range(4):
        env.reset(seed=SEED + episode)
        env.action_space.seed(SEED + episode)
        done = False
        while not done:
            action = env.action_space.sample()
            x.append(sim.state())
            done = env.step(action)[2]
            u.append(np.asarray(action, dtype=np.float64))
            x_next.append(sim.state())
            run.append(episode)
    own, time = np.array(run), np.arange(len(run))
    rows = Rows(np.array(x), np.array(u), np.array(x_next), own, time, own)
    scale = np.std(rows.x_next - rows.x, axis=0)
    residuals = Residuals(sim.dynamics, parameters_of(sim.dynamics, None, Sizes()), 1, scale)
    import mujoco

    model: Any = sim.dynamics.model  # type: ignore[attr-defined]
    data = mujoco.MjData(model)
    touching = np.zeros(rows.size, dtype=bool)
    for i, pair in enumerate(zip(rows.x, rows.x_next, strict=True)):
        for state in pair:
            data.qpos[:] = state[: model.nq]
            mujoco.mj_fwdPosition(model, data)
            touching[i] |= data.ncon > 0
    assert 20 < touching.sum() < rows.size - 20
    return residuals, rows, touching


def doubts(residuals: Residuals, rows: Rows, force: np.ndarray, **about: Any) -> tuple[str, ...]:
    """Doubts about a force on the torso along x."""
    theta = np.zeros(residuals.count)
    theta[0] = about.pop("theta", 0.0)
    found = Identified(
        theta, (), np.zeros((0, 0)), np.zeros(0), 10, None, 1.0, 0.0, theta, theta,  # type: ignore[arg-type]
        np.eye(len(theta)), rows,
    )  # fmt: skip
    size = float(np.sqrt(np.square(force).mean()))
    axis = Axis("x", size, 0.9, Model(0.0, 0.0, 0, (), (), size))
    rest: dict[str, Any] = {"explained": 0.999} | about
    wind = Wind(
        "force:torso", "N", (axis,), (force[:, None],), rest["explained"],
        (Coordinate("rootx", 0.1, 0.9, None),), 0.008,
    )  # fmt: skip
    return doubts_of(residuals, found, wind, rows, 0.5)


def test_a_wind_that_blows_always_is_believed(hopper: Any) -> None:
    residuals, rows, _ = hopper
    assert not doubts(residuals, rows, 5 * np.sin(np.arange(rows.size) / 9))
    assert not doubts(residuals, rows, np.random.default_rng(0).standard_normal(rows.size))


def test_a_force_at_contacts_alone_is_no_wind(hopper: Any) -> None:
    residuals, rows, touching = hopper
    noise = 0.1 * np.random.default_rng(0).standard_normal(rows.size)
    for where in (touching, ~touching):
        (reason,) = doubts(residuals, rows, 20.0 * where + noise)
        assert "contacts" in reason


def test_a_force_of_many_weights_is_no_wind(hopper: Any) -> None:
    residuals, rows, _ = hopper
    (reason,) = doubts(residuals, rows, 2000 * np.sin(np.arange(rows.size) / 9))
    assert "weights of the robot" in reason


def test_a_regular_force_that_leaves_much_is_no_wind(hopper: Any) -> None:
    residuals, rows, _ = hopper
    reasons = doubts(residuals, rows, np.sin(np.arange(rows.size) / 9), explained=0.7)
    assert len(reasons) == 1


def test_changes_far_from_nominal_are_believed_only_where_nothing_is_left(hopper: Any) -> None:
    residuals, rows, _ = hopper
    wind = np.sin(np.arange(rows.size) / 9)
    (reason,) = doubts(residuals, rows, wind, theta=5.0)
    assert "far from nominal" in reason
    world = Changed(gym.make("Hopper-v5"), {"mass:torso": 0.05})
    found = ww.diagnose(None, world, steps=150, seed=SEED, threads=1)
    assert found.values["mass:torso"] == pytest.approx(0.05, rel=0.01)
