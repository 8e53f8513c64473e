"""The undisturbed environment: exact without wind, and blind to the wind where there is some."""

import copy
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv
from gymnasium.envs.mujoco.mujoco_env import MujocoEnv

from windward.envs import Disturbed, Interval
from windward.simulators import Unsupported, simulator

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Box (low|high).*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*Overriding environment.*:UserWarning"),
]

PAPER = [
    "Hopper-v5",
    "Walker2d-v5",
    "Ant-v5",
    "HalfCheetah-v5",
    "InvertedPendulum-v5",
    "Pendulum-v1",
    "CartPole-v1",
]
OTHERS = [
    "Humanoid-v5",
    "Reacher-v5",
    "Pusher-v5",
    "Swimmer-v5",
    "InvertedDoublePendulum-v5",
    "Hopper-v4",
]
ALL = int(mujoco.mjtState.mjSTATE_INTEGRATION)


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MuJoCo writes a log into the working directory when it warns."""
    monkeypatch.chdir(tmp_path)


def made(name: str, seed: int = 0, **settings: Any) -> gym.Env:
    env = gym.make(name, **settings)
    env.reset(seed=seed)
    env.action_space.seed(seed)
    return env


def walk(env: gym.Env, steps: int) -> None:
    for _ in range(steps):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()


def worst_residual(env: gym.Env, sim: Any, steps: int) -> float:
    """The largest |x_{t+1} - f_sim(x_t, u_t)| along a random walk."""
    worst = 0.0
    for _ in range(steps):
        action = env.action_space.sample()
        predicted = sim.predict(action)
        _, _, terminated, truncated, _ = env.step(action)
        worst = max(worst, float(np.abs(sim.state() - predicted).max()))
        if terminated or truncated:
            env.reset()
    return worst


def twin_step(env: gym.Env, twin: gym.Env, action: Any) -> np.ndarray:
    """The state that an undisturbed MuJoCo twin reaches from the state of `env`."""
    here, there = env.unwrapped, twin.unwrapped
    state = np.empty(mujoco.mj_stateSize(here.model, ALL))
    mujoco.mj_getState(here.model, here.data, state, ALL)
    mujoco.mj_setState(there.model, there.data, state, ALL)
    there.data.xfrc_applied[:] = 0.0
    there.step(action)
    return np.concatenate([there.data.qpos, there.data.qvel])


def arrays(item: Any) -> dict[str, np.ndarray]:
    """Copies of all arrays of MuJoCo's model or data."""
    names = [name for name in dir(item) if not name.startswith("_")]
    values = {name: getattr(item, name) for name in names if name != "contact"}
    return {name: value.copy() for name, value in values.items() if isinstance(value, np.ndarray)}


# --- exactness without a disturbance ----------------------------------------------------------


@pytest.mark.parametrize("name", PAPER)
def test_without_a_disturbance_the_residual_is_zero_for_500_steps(name: str) -> None:
    env = made(name)
    sim = simulator(env)
    assert sim.state().dtype == np.float64
    assert worst_residual(env, sim, 500) < 1e-6


@pytest.mark.parametrize("name", OTHERS)
def test_other_tasks_have_a_zero_residual_too(name: str) -> None:
    env = made(name)
    assert worst_residual(env, simulator(env), 60) < 1e-6


@pytest.mark.parametrize("name", PAPER + OTHERS)
def test_cost_and_termination_of_a_step_are_the_environments(name: str) -> None:
    env = made(name, seed=3)
    sim = simulator(env)
    ends = 0
    for _ in range(60):
        action = env.action_space.sample()
        x_next, cost, terminated = sim.step(sim.state()[None], np.asarray(action)[None])
        _, reward, ended, truncated, _ = env.step(action)
        assert np.abs(x_next[0] - sim.state()).max() < 1e-6
        assert abs(cost[0] + reward) < 1e-6
        assert terminated[0] == ended
        ends += ended
        if ended or truncated:
            env.reset()
    if name in ("Hopper-v5", "Walker2d-v5", "InvertedPendulum-v5", "CartPole-v1", "Humanoid-v5"):
        assert ends > 0


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Hopper-v5", {"exclude_current_positions_from_observation": False}),
        ("Hopper-v5", {"forward_reward_weight": 3.0, "ctrl_cost_weight": 0.7}),
        ("Hopper-v5", {"terminate_when_unhealthy": False}),
        ("Hopper-v5", {"healthy_z_range": (1.24, 2.0), "healthy_reward": 5.0}),
        ("Hopper-v5", {"healthy_state_range": (-0.5, 0.5)}),
        ("Hopper-v5", {"frame_skip": 2}),
        ("Walker2d-v5", {"healthy_angle_range": (-0.05, 0.05), "frame_skip": 3}),
        ("HalfCheetah-v5", {"ctrl_cost_weight": 2.0, "frame_skip": 1}),
        ("Ant-v5", {"healthy_z_range": (0.6, 0.8), "contact_cost_weight": 0.1}),
        ("Ant-v5", {"main_body": 2, "include_cfrc_ext_in_observation": False}),
        ("Reacher-v5", {"reward_control_weight": 2.0}),
        ("Pendulum-v1", {"g": 4.0}),
        ("CartPole-v1", {"sutton_barto_reward": True}),
    ],
)
def test_settings_of_the_environment_are_the_simulators(name: str, settings: Any) -> None:
    env = made(name, seed=1, **settings)
    sim = simulator(env)
    for _ in range(50):
        action = env.action_space.sample()
        x_next, cost, terminated = sim.step(sim.state()[None], np.asarray(action)[None])
        _, reward, ended, truncated, _ = env.step(action)
        assert np.abs(x_next[0] - sim.state()).max() < 1e-6
        assert abs(cost[0] + reward) < 1e-6
        assert terminated[0] == ended
        if ended or truncated:
            env.reset()


def test_a_cartpole_with_the_semi_implicit_integrator_is_followed() -> None:
    env = made("CartPole-v1")
    env.unwrapped.kinematics_integrator = "semi-implicit euler"
    assert worst_residual(env, simulator(env), 100) < 1e-12


def test_pendulum_settings_that_are_numpy_numbers_are_read() -> None:
    env = made("Pendulum-v1", g=np.float32(9.0))
    assert worst_residual(env, simulator(env), 5) < 1e-6


# --- environments of one's own ----------------------------------------------------------------


class Halved(HopperEnv):
    """A Hopper with weak motors and a goal."""

    def __init__(self) -> None:
        super().__init__()
        self.goal = 0.5

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = super().step(0.5 * np.asarray(action))
        reward = -abs(self.data.qpos[0] - self.goal)
        return observation, reward, terminated, truncated, info


class FromScratch(MujocoEnv):
    """A MujocoEnv that observes inside step, as its base class allows."""

    metadata = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"]}  # noqa: RUF012

    def __init__(self) -> None:
        space = gym.spaces.Box(-np.inf, np.inf, (12,), dtype=np.float64)
        super().__init__("hopper.xml", 3, observation_space=space)

    def step(self, action: Any) -> Any:
        self.do_simulation(0.25 * np.asarray(action), self.frame_skip)
        seen = np.concatenate([self.data.qpos, self.data.qvel])
        return seen, float(self.data.qvel[0]), bool(seen[1] < 0.7), False, {}

    def reset_model(self) -> np.ndarray:
        self.set_state(self.init_qpos, self.init_qvel + self.np_random.uniform(-0.01, 0.01, 6))
        return np.concatenate([self.data.qpos, self.data.qvel])


@pytest.mark.parametrize("kind", [Halved, FromScratch])
def test_a_mujoco_environment_of_ones_own_is_simulated_by_its_own_code(kind: Any) -> None:
    env = kind()
    env.reset(seed=0)
    env.action_space.seed(0)
    sim = simulator(env)
    for _ in range(60):
        action = env.action_space.sample()
        predicted = sim.predict(action)
        x_next, cost, terminated = sim.step(sim.state()[None], action[None])
        _, reward, ended, _, _ = env.step(action)
        assert np.abs(sim.state() - predicted).max() < 1e-6
        assert np.abs(sim.state() - x_next[0]).max() < 1e-6
        assert abs(cost[0] + reward) < 1e-9
        assert terminated[0] == ended
        if ended:
            env.reset()


def test_a_goal_that_changes_is_read_when_the_simulator_steps() -> None:
    env = Halved()
    env.reset(seed=0)
    sim = simulator(env)
    x, u = sim.state()[None], np.zeros((1, 3))
    before = sim.step(x, u)[1][0]
    env.goal = 7.0
    assert sim.step(x, u)[1][0] == pytest.approx(before + 6.5)


def test_rows_of_an_environment_of_ones_own_do_not_depend_on_each_other() -> None:
    env = Halved()
    env.reset(seed=0)
    sim = simulator(env)
    rng = np.random.default_rng(0)
    x = sim.state() + 0.01 * rng.standard_normal((20, 12))
    u = rng.uniform(-1, 1, (20, 3))
    whole = sim.step(x, u)
    for row in (7, 0, 19):
        for one, many in zip(sim.step(x[row : row + 1], u[row : row + 1]), whole, strict=True):
            assert np.abs(one[0] * 1.0 - many[row]).max() < 1e-9


class Remembering(HopperEnv):
    """Filters its actions in an array of its own, and counts in a list."""

    def __init__(self) -> None:
        self.filtered = np.zeros(3)
        self.trace: list[float] = []
        super().__init__()

    def step(self, action: Any) -> Any:
        self.filtered *= 0.5
        self.filtered += 0.5 * np.asarray(action)
        self.trace.append(float(self.data.qpos[0]))
        return super().step(self.filtered)


def test_arrays_and_lists_that_an_environment_changes_in_its_step_stay_as_they_were() -> None:
    env = Remembering()
    env.reset(seed=0)
    sim = simulator(env)
    sim.predict(np.ones(3))
    sim.step(sim.state()[None], np.ones((1, 3)))
    assert env.trace == []
    assert not env.filtered.any()


def test_the_observation_of_an_environment_without_get_obs_is_worked_out_or_refused() -> None:
    env = FromScratch()
    env.reset(seed=0)
    sim = simulator(env)
    try:
        seen = sim.observation(sim.state())
    except Unsupported:
        return
    assert np.array_equal(seen, sim.state())


class Gusty(HopperEnv):
    """Draws a gust from its own generator in its step."""

    def step(self, action: Any) -> Any:
        return super().step(np.asarray(action) + self.np_random.normal(0.0, 0.1, 3))


def test_a_simulator_does_not_foresee_what_the_environments_generator_will_draw() -> None:
    env = Gusty()
    env.reset(seed=0)
    sim = simulator(env)
    predicted = sim.predict(np.zeros(3))
    env.step(np.zeros(3))
    assert np.abs(sim.state() - predicted).max() > 1e-6


BALL = """
<mujoco>
  <worldbody>
    <body name="goal" mocap="true" pos="0 0 1">
      <geom size="0.1" contype="0" conaffinity="0"/>
    </body>
    <body name="ball" pos="0 0 1"><joint name="slide" type="slide" axis="1 0 0"/><geom size="0.1"/>
    </body>
  </worldbody>
  <actuator>
    <general joint="slide" ctrlrange="-1 1" dyntype="filter" dynprm="0.1" gainprm="5"/>
  </actuator>
</mujoco>
"""


class Ball(MujocoEnv):
    """A ball with a motor that has an activation, and a goal that is a mocap body."""

    metadata = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"]}  # noqa: RUF012

    def __init__(self, path: Path) -> None:
        file = path / "ball.xml"
        file.write_text(BALL)
        space = gym.spaces.Box(-np.inf, np.inf, (2,), dtype=np.float64)
        super().__init__(str(file), 5, observation_space=space)

    def _get_obs(self) -> np.ndarray:
        return np.concatenate([self.data.qpos, self.data.qvel])

    def step(self, action: Any) -> Any:
        self.do_simulation(action, self.frame_skip)
        distance = abs(float(self.data.mocap_pos[0, 0] - self.data.qpos[0]))
        return self._get_obs(), -distance, distance > 9.0, False, {}

    def reset_model(self) -> np.ndarray:
        self.data.mocap_pos[0, 0] = 4.0
        self.set_state(self.init_qpos, self.init_qvel)
        return self._get_obs()


def test_activations_are_part_of_the_state(tmp_path: Path) -> None:
    env = Ball(tmp_path)
    env.reset(seed=0)
    env.action_space.seed(0)
    sim = simulator(env)
    assert sim.d_x == 3
    assert worst_residual(env, sim, 30) < 1e-9
    x = sim.state() + np.linspace(0.1, 0.2, 20)[:, None]
    x_next = sim.step(x, np.ones((1, 1)))[0]
    assert np.abs(x_next[3] - sim.step(x[3:4], np.ones((1, 1)))[0][0]).max() < 1e-9


@pytest.mark.parametrize("shift", [0.0, 1e-9])
def test_a_goal_that_is_a_mocap_body_is_where_the_environment_has_it(
    shift: float, tmp_path: Path
) -> None:
    env = Ball(tmp_path)
    env.reset(seed=0)
    sim = simulator(env)
    cost = sim.step(sim.state()[None] + shift, np.ones((1, 1)))[1][0]
    assert cost == pytest.approx(-env.step(np.ones(1))[1], abs=1e-6)


class SlowPendulum(PendulumEnv):
    """A Pendulum whose motor gives half."""

    def step(self, u: Any) -> Any:
        return super().step(0.5 * np.asarray(u))


class IcyCartPole(CartPoleEnv):
    """A CartPole whose cart slides on."""

    def step(self, action: int) -> Any:
        _, reward, terminated, truncated, info = super().step(action)
        self.state = np.asarray(self.state) + np.array([0.01, 0.0, 0.0, 0.0])
        return np.array(self.state, dtype=np.float32), reward, terminated, truncated, info


@pytest.mark.parametrize(("kind", "action"), [(SlowPendulum, np.ones(1)), (IcyCartPole, 1)])
def test_pendulums_with_equations_of_their_own_are_never_simulated_by_gymnasiums(
    kind: Any, action: Any
) -> None:
    env = kind()
    env.reset(seed=0)
    try:
        sim = simulator(env)
    except Unsupported:
        return
    predicted = sim.predict(action)
    env.step(action)
    assert np.abs(sim.state() - predicted).max() < 1e-6


# --- disturbances -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PAPER, "Humanoid-v5", "Hopper-v4"])
def test_the_residual_is_the_injected_qpos_noise(name: str) -> None:
    env = Disturbed(gym.make(name), "uniform:bound=0.1", "qpos")
    env.reset(seed=0)
    env.action_space.seed(0)
    sim = simulator(env, noisy=False)
    size = len(env.step(env.action_space.sample())[4]["disturbance"]["qpos"])
    qpos = [0, 2] if name == "CartPole-v1" else list(range(size))
    for _ in range(40):
        action = env.action_space.sample()
        predicted = sim.predict(action)
        _, _, terminated, truncated, info = env.step(action)
        residual = sim.state() - predicted
        injected = np.zeros_like(residual)
        injected[qpos] = info["disturbance"]["qpos"]
        assert np.abs(residual - injected).max() < 1e-6
        assert np.abs(injected).max() > 0.0
        if terminated or truncated:
            env.reset()


@pytest.mark.parametrize(
    ("disturbance", "channel"),
    [
        ("bias:value=20", "force:torso"),
        ("bias:value=5", "torque:torso"),
        ("bias:value=0.5", "mass"),
        ("bias:value=1.5", "mass:foot"),
        ("bias:value=-0.5", "friction"),
        ("bias:value=-0.9", "gravity"),
        ("bias:value=0.7", "gain"),
        ("bias:value=0.4", "action"),
        ("sine:amp=0.2,period=9", "qvel"),
        ("bias:value=0.3", "observation"),
        ("bias:value=0.3", "reward"),
    ],
)
@pytest.mark.parametrize("noisy", [True, False])
def test_the_simulator_leaves_disturbances_out(disturbance: str, channel: str, noisy: bool) -> None:
    env = Disturbed(made("Hopper-v5"), disturbance, channel)
    env.reset(seed=0)
    env.action_space.seed(0)
    twin = made("Hopper-v5")
    sim, moved = simulator(env, noisy=noisy), 0.0
    for _ in range(8):
        action = 0.5 * env.action_space.sample()
        predicted = sim.predict(action)
        assert np.abs(predicted - twin_step(env, twin, action)).max() < 1e-6
        _, reward, terminated, _, _ = env.step(action)
        moved = max(moved, float(np.abs(sim.state() - predicted).max()), abs(reward))
        if terminated:
            env.reset()
    assert moved > 1e-4


def test_noise_on_parameters_is_never_simulated() -> None:
    env = Disturbed(made("Hopper-v5"), "uniform:bound=0.5", "mass")
    env.reset(seed=0)
    twin = made("Hopper-v5")
    sim = simulator(env, noisy=True)
    for _ in range(5):
        action = np.full(3, 0.3)
        assert np.abs(sim.predict(action) - twin_step(env, twin, action)).max() < 1e-6
        env.step(action)


@pytest.mark.parametrize(
    ("name", "channel"), [("CartPole-v1", "mass"), ("CartPole-v1", "gain"), ("Pendulum-v1", "mass")]
)
def test_a_simulator_made_in_mid_episode_knows_the_parameters_from_before_the_disturbance(
    name: str, channel: str
) -> None:
    env = Disturbed(gym.make(name), "bias:value=0.5", channel)
    env.reset(seed=0)
    action = 1 if name == "CartPole-v1" else np.ones(1, dtype=np.float32)
    env.step(action)
    twin = made(name)
    twin.unwrapped.state = simulator(env).state()
    predicted = simulator(env).predict(action)
    twin.step(action)
    assert np.abs(predicted - np.asarray(twin.unwrapped.state)).max() < 1e-6
    env.step(action)
    assert np.abs(predicted - np.asarray(env.unwrapped.state)).max() > 1e-6


def test_of_two_disturbed_parameters_both_are_left_out_however_the_wrappers_were_made() -> None:
    heavy = Disturbed(made("Hopper-v5"), "bias:value=0.5", "mass")
    heavy.reset(seed=0)
    heavy.step(np.zeros(3))
    both = Disturbed(heavy, "bias:value=-0.5", "friction")
    twin = made("Hopper-v5")
    action = np.full(3, 0.5)
    assert np.abs(simulator(both).predict(action) - twin_step(both, twin, action)).max() < 1e-6


# --- noise of its own -------------------------------------------------------------------------


def noisy_hopper(seed: int = 0, **settings: Any) -> gym.Env:
    env = Disturbed(gym.make("Hopper-v5"), "uniform:bound=0.1", "qpos", **settings)
    env.reset(seed=seed)
    return env


@pytest.mark.parametrize("copies", [1, 4])
def test_predictions_scatter_around_the_noise_free_one_with_variance_over_copies(
    copies: int,
) -> None:
    env, action = noisy_hopper(), np.full(3, 0.2)
    sim = simulator(env, copies=copies)
    exact = simulator(env, noisy=False).predict(action)
    draws = np.array([sim.predict(action) for _ in range(3000)]) - exact
    variance = 0.1**2 / 3 / copies
    assert np.abs(draws.mean(axis=0)).max() < 4.5 * np.sqrt(variance / 3000)
    assert np.allclose(draws[:, :6].var(axis=0), variance, rtol=0.12)
    assert not draws[:, 6:].any()


def test_noise_on_the_action_makes_copies_differ_through_the_physics() -> None:
    env = Disturbed(gym.make("InvertedPendulum-v5"), "gaussian:scale=0.1", "action")
    env.reset(seed=0)
    action = np.zeros(1)
    exact = simulator(env, noisy=False).predict(action)
    spread = {}
    for copies in (1, 9):
        sim = simulator(env, copies=copies, seed=copies)
        draws = np.array([sim.predict(action) for _ in range(500)]) - exact
        spread[copies] = draws.std(axis=0)
        assert (np.abs(draws.mean(axis=0)) < 4.5 * spread[copies] / np.sqrt(500) + 1e-5).all()
    assert spread[1].min() > 1e-4
    assert np.allclose(spread[1] / spread[9], 3.0, rtol=0.15)


def test_noise_on_a_force_makes_copies_differ_through_the_physics() -> None:
    env = Disturbed(gym.make("CartPole-v1"), "gaussian:scale=2", "force:cart")
    env.reset(seed=0)
    exact = simulator(env, noisy=False).predict(1)
    sim = simulator(env, copies=4)
    draws = np.array([sim.predict(1) for _ in range(2000)]) - exact
    # The cart's acceleration is linear in the force; positions move by the speeds before.
    assert not draws[:, [0, 2]].any()
    x = np.repeat(sim.state()[None], 4000, axis=0)
    single = simulator(env, copies=1).step(x, np.ones(1, dtype=int))[0][:, 1].std()
    assert draws[:, 1].std() == pytest.approx(single / 2, rel=0.1)
    assert abs(draws[:, 1].mean()) < 5 * draws[:, 1].std() / np.sqrt(2000)


def test_the_same_seed_draws_the_same_numbers_and_another_seed_others() -> None:
    env, action = noisy_hopper(), np.zeros(3)
    first, again, other = (simulator(env, seed=seed) for seed in (1, 1, 2))
    one = [first.predict(action) for _ in range(5)]
    assert np.array_equal(one, [again.predict(action) for _ in range(5)])
    assert not np.isclose(one, [other.predict(action) for _ in range(5)])[:, :6].any()


@pytest.mark.parametrize("seed", [0, 1])
def test_the_simulators_noise_is_not_the_environments_own(seed: int) -> None:
    env = noisy_hopper(seed)
    sim = simulator(env, copies=1, seed=seed)
    action = np.zeros(3)
    mine, theirs = [], []
    for _ in range(20):
        exact = simulator(env, noisy=False).predict(action)
        mine.append((sim.predict(action) - exact)[:6])
        theirs.append(env.step(action)[4]["disturbance"]["qpos"])
    assert not np.isclose(np.ravel(mine)[:, None], np.ravel(theirs)[None], atol=1e-9).any()


def test_rows_of_a_noisy_step_have_noise_of_their_own() -> None:
    env = noisy_hopper()
    x = np.repeat(simulator(env).state()[None], 50, axis=0)
    x_next = simulator(env).step(x, np.zeros((1, 3)))[0]
    assert len(np.unique(x_next[:, 0])) == 50
    assert np.ptp(x_next[:, 6:], axis=0).max() < 1e-12


def test_a_noisy_step_ends_as_the_disturbed_state_does_and_costs_as_before() -> None:
    env = Disturbed(gym.make("InvertedPendulum-v5"), "uniform:bound=0.5", "qpos")
    env.reset(seed=0)
    sim = simulator(env)
    x = np.repeat(sim.state()[None], 40, axis=0)
    x_next, cost, terminated = sim.step(x, np.zeros((1, 1)))
    assert np.array_equal(terminated, np.abs(x_next[:, 1]) > 0.2)
    assert terminated.any()
    assert not terminated.all()
    assert (cost == -1.0).all()


def test_noise_that_is_not_on_yet_is_not_simulated() -> None:
    env = noisy_hopper(when=Interval(start=2))
    sim, action = simulator(env), np.zeros(3)
    residuals = []
    for _ in range(4):
        residuals.append(np.abs(sim.predict(action) - simulator(env, noisy=False).predict(action)))
        env.step(action)
    assert [bool(each.any()) for each in residuals] == [False, False, True, True]


def test_noise_on_the_action_enters_where_its_wrapper_stands() -> None:
    inner = Disturbed(gym.make("Hopper-v5"), "uniform:bound=0.1", "action")
    env = gym.wrappers.RescaleAction(inner, -100.0, 100.0)
    env.reset(seed=0)
    x, wide = simulator(env).state()[None], np.zeros((1, 3), dtype=np.float32)
    bare = simulator(env.unwrapped)
    spread = np.ptp(simulator(env).step(np.repeat(x, 100, axis=0), wide)[0], axis=0)
    edges = bare.step(x, np.array([[0.1] * 3, [-0.1] * 3]))[0]
    assert spread.max() > 0.2 * np.abs(edges[0] - edges[1]).max()
    assert spread.max() < 5 * np.abs(edges[0] - edges[1]).max()


# --- the environment stays as it is -----------------------------------------------------------


@pytest.mark.parametrize("name", ["Hopper-v5", "Ant-v5", "Reacher-v5", "Hopper-v4"])
def test_queries_change_not_one_bit_of_a_mujoco_environment(name: str) -> None:
    env = Disturbed(gym.make(name), ["uniform:bound=0.01", "uniform:bound=0.1"], ["qpos", "action"])
    env.reset(seed=0)
    env.action_space.seed(0)
    walk(env, 10)
    base = env.unwrapped
    settings = {
        key: copy.deepcopy(value)
        for key, value in vars(base).items()
        if isinstance(value, (int, float, str, np.ndarray))
    }
    before = arrays(base.data), arrays(base.model), base.np_random.bit_generator.state
    sim = simulator(env, scale={"mass": 1.3, "friction": 0.5})
    sim.predict(env.action_space.sample())
    x = sim.state() + np.linspace(0.0, 0.01, 40)[:, None]
    sim.step(x, env.action_space.sample()[None])
    sim.observation(x)
    after = arrays(base.data), arrays(base.model), base.np_random.bit_generator.state
    for old, new in zip(before[:2], after[:2], strict=True):
        assert old.keys() == new.keys()
        assert [key for key in old if old[key].tobytes() != new[key].tobytes()] == []
    assert before[2] == after[2]
    for key, value in settings.items():
        assert np.array_equal(value, getattr(base, key)), key


@pytest.mark.parametrize("name", ["Hopper-v5", "Ant-v5", "Pendulum-v1", "CartPole-v1"])
def test_a_run_is_the_same_whether_or_not_a_simulator_is_asked(name: str) -> None:
    def run(asked: bool) -> list[Any]:
        env = Disturbed(gym.make(name), "uniform:bound=0.02 + sine:amp=0.01", "qvel")
        sim = simulator(env) if asked else None
        env.reset(seed=5)
        env.action_space.seed(5)
        seen = []
        for _ in range(60):
            action = env.action_space.sample()
            if sim is not None:
                sim.predict(action)
                sim.step(sim.state()[None] + np.zeros((20, 1)), np.asarray(action)[None])
                sim.observation(sim.state())
            observation, reward, terminated, _, info = env.step(action)
            seen.append([*observation, reward, terminated, *info["disturbance"]["qvel"]])
            if terminated:
                seen.append(list(env.reset()[0]))
        return seen

    assert run(True) == run(False)


def test_two_simulators_of_one_environment_do_not_disturb_each_other() -> None:
    env = made("Hopper-v5")
    good, bad = simulator(env), simulator(env, scale={"mass": 2.0})
    action = np.full(3, 0.4)
    alone = good.predict(action)
    bad.predict(action)
    assert np.array_equal(good.predict(action), alone)


class LowPass(gym.ActionWrapper):
    """Smooths actions, so it remembers the last one."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.last = np.zeros(3)

    def reset(self, **arguments: Any) -> Any:
        self.last = np.zeros(3)
        return super().reset(**arguments)

    def action(self, action: Any) -> Any:
        self.last = 0.5 * self.last + 0.5 * np.asarray(action)
        return self.last


def test_an_action_wrapper_with_a_memory_is_refused_or_left_as_it_was() -> None:
    env = LowPass(gym.make("Hopper-v5"))
    env.reset(seed=0)
    try:
        sim = simulator(env)
    except Unsupported:
        return
    sim.predict(np.ones(3))
    assert not env.last.any()


# --- batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PAPER, "Swimmer-v5"])
def test_large_batches_equal_steps_row_by_row(name: str) -> None:
    env = made(name)
    walk(env, 5)
    sim = simulator(env)
    rng = np.random.default_rng(0)
    x = sim.state() + 0.02 * rng.standard_normal((48, sim.d_x))
    u = np.stack([np.asarray(env.action_space.sample()) for _ in x])
    whole = sim.step(x, u)
    rows = [sim.step(x[i : i + 1], u[i : i + 1]) for i in range(len(x))]
    for many, ones in zip(whole, zip(*rows, strict=True), strict=True):
        assert np.abs(many * 1.0 - np.concatenate(ones)).max() < 1e-9
    assert np.ptp(whole[0], axis=0).max() > 0.01


def test_the_present_state_among_others_is_stepped_as_on_its_own() -> None:
    env = made("Hopper-v5")
    walk(env, 15)
    sim = simulator(env)
    u = np.full((1, 3), 0.5)
    x = sim.state() + np.concatenate([np.zeros((1, 12)), np.full((30, 12), 0.01)])
    x_next = sim.step(x, u)[0]
    assert np.array_equal(x_next[0], sim.predict(u[0]))
    assert np.abs(x_next[1:] - sim.step(x[1:2], u)[0]).max() < 1e-9


def test_one_state_with_many_actions_and_one_action_with_many_states_are_repeated() -> None:
    env = made("Hopper-v5")
    sim = simulator(env)
    x, u = sim.state()[None], np.linspace(-1, 1, 5)[:, None] * np.ones(3)
    one = sim.step(x, u)
    assert one[0].shape == (5, 12)
    for each, whole in zip(one, sim.step(np.repeat(x, 5, axis=0), u), strict=True):
        assert np.array_equal(each, whole)
    states = x + np.linspace(0.0, 0.1, 5)[:, None]
    many = sim.step(states, u[:1])
    for each, whole in zip(many, sim.step(states, np.repeat(u[:1], 5, axis=0)), strict=True):
        assert np.array_equal(each, whole)


@pytest.mark.parametrize("rescaled", [False, True])
def test_no_rows_give_no_rows(rescaled: bool) -> None:
    env = made("Hopper-v5")
    sim = simulator(gym.wrappers.RescaleAction(env, -2.0, 2.0) if rescaled else env)
    x_next, cost, terminated = sim.step(np.empty((0, 12)), np.empty((0, 3)))
    assert (x_next.shape, cost.shape, terminated.shape) == ((0, 12), (0,), (0,))
    assert terminated.dtype == bool


def test_a_step_leaves_its_arguments_and_earlier_answers_alone() -> None:
    env = noisy_hopper()
    sim = simulator(env)
    x, u = sim.state()[None], np.full((1, 3), 0.5)
    kept = x.copy(), u.copy()
    first = sim.step(x, u)[0]
    value = first.copy()
    sim.step(x, u)
    assert np.array_equal(x, kept[0])
    assert np.array_equal(u, kept[1])
    assert np.array_equal(first, value)


def test_an_answer_does_not_depend_on_what_was_asked_before() -> None:
    env = made("Hopper-v5")
    env.unwrapped.data.qfrc_applied[0] = 50.0
    sim = simulator(env)
    x, u = sim.state()[None] + 1e-3, np.zeros((1, 3))
    first = sim.step(x, u)[0]
    sim.predict(u[0])
    assert np.abs(sim.step(x, u)[0] - first).max() < 1e-9


def test_an_observation_does_not_depend_on_what_was_asked_before() -> None:
    env = made("Humanoid-v5")
    sim = simulator(env)
    x = sim.state() + 1e-3
    first = sim.observation(x)
    sim.step(x[None], np.full((1, 17), 0.4))
    assert np.abs(sim.observation(x) - first).max() < 1e-9


# --- rows that the physics cannot compute -----------------------------------------------------

MUJOCO = [each for each in PAPER if each not in ("Pendulum-v1", "CartPole-v1")]


@pytest.mark.parametrize("batch", [3, 40])
@pytest.mark.parametrize("name", [*MUJOCO, "Humanoid-v5"])
def test_absurd_rows_are_nan_and_terminated_and_others_are_as_ever(name: str, batch: int) -> None:
    env = made(name)
    sim = simulator(env)
    rng = np.random.default_rng(0)
    x = sim.state() + 0.001 * rng.standard_normal((batch, sim.d_x))
    u = np.zeros((batch, env.unwrapped.model.nu))
    calm = sim.step(x, u)
    x[1] = 1e12
    x_next, cost, terminated = sim.step(x, u)
    assert np.isnan(x_next[1]).all()
    assert terminated[1]
    others = np.arange(batch) != 1
    assert np.abs(x_next[others] - calm[0][others]).max() < 1e-9
    assert np.abs(cost[others] - calm[1][others]).max() < 1e-6
    assert np.array_equal(terminated[others], calm[2][others])


@pytest.mark.parametrize("name", [*MUJOCO, "Reacher-v5"])
def test_the_cost_of_an_absurd_row_is_nan(name: str) -> None:
    env = made(name)
    sim = simulator(env)
    assert np.isnan(sim.step(np.full((1, sim.d_x), 1e12), np.zeros((1, env.unwrapped.model.nu)))[1])


@pytest.mark.parametrize("name", ["Hopper-v5", "Ant-v5"])
def test_absurd_rows_under_noise_are_nan_and_terminated(name: str) -> None:
    env = Disturbed(gym.make(name), "uniform:bound=0.1", "qpos")
    env.reset(seed=0)
    sim = simulator(env)
    x = np.repeat(sim.state()[None], 3, axis=0)
    x[1] = 1e12
    x_next, _, terminated = sim.step(x, np.zeros((1, env.unwrapped.model.nu)))
    assert np.isnan(x_next).all(axis=1).tolist() == [False, True, False]
    assert terminated[1]
    assert np.isfinite(x_next[[0, 2]]).all()


def test_cartpole_rows_beyond_floats_are_nan_and_terminated() -> None:
    sim = simulator(made("CartPole-v1"))
    x_next, _, terminated = sim.step(np.array([[0.0] * 4, [1e200] * 4]), np.array([1, 1]))
    assert np.isnan(x_next[1]).all()
    assert terminated.tolist() == [False, True]


# --- arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "u", "named"),
    [
        (np.full((1, 12), np.nan), np.zeros((1, 3)), "x"),
        (np.full((1, 12), np.inf), np.zeros((1, 3)), "x"),
        (np.zeros(12), np.zeros((1, 3)), "x"),
        (np.zeros((1, 11)), np.zeros((1, 3)), "x"),
        ([["a"] * 12], np.zeros((1, 3)), "x"),
        (np.zeros((1, 12)), np.full((1, 3), np.nan), "u"),
        (np.zeros((1, 12)), np.full((1, 3), np.inf), "u"),
        (np.zeros((1, 12)), np.zeros(3), "u"),
        (np.zeros((1, 12)), np.zeros((1, 2)), "u"),
        (np.zeros((1, 12)), [["a", "b", "c"]], "u"),
        (np.zeros((1, 12)), [[0.0, 0.0, 0.0], [0.0]], "u"),
        (np.zeros((2, 12)), np.zeros((3, 3)), "x has 2 rows and u has 3"),
    ],
)
def test_bad_states_and_actions_are_named(x: Any, u: Any, named: str) -> None:
    sim = simulator(made("Hopper-v5"))
    with pytest.raises(ValueError, match=rf"^{named}\b"):
        sim.step(x, u)


@pytest.mark.parametrize(
    "action", [np.array([np.nan, 0, 0]), np.zeros(2), np.zeros(1), 0.3, np.zeros((1, 3)), "a"]
)
def test_predict_names_a_bad_action(action: Any) -> None:
    sim = simulator(made("Hopper-v5"))
    with pytest.raises(ValueError, match="action"):
        sim.predict(action)


@pytest.mark.parametrize("action", [5, -1, 0.7])
def test_an_action_outside_a_discrete_space_is_refused(action: Any) -> None:
    sim = simulator(made("CartPole-v1"))
    with pytest.raises(ValueError, match=r"\bu\b"):
        sim.step(np.zeros((1, 4)), np.array([action]))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"copies": 0}, "copies"),
        ({"copies": 1.5}, "copies"),
        ({"seed": -1}, "seed"),
        ({"scale": {"mss": 1.2}}, "mss.*mass, friction"),
        ({"scale": {"mass:head": 1.2}}, "mass:head.*torso"),
        ({"scale": {"mass": 0.0}}, "scale"),
        ({"scale": {"mass": np.nan}}, "scale"),
        ({"scale": {"mass": "heavy"}}, "scale"),
        ({"scale": 1.2}, "scale"),
        ({"step": lambda x, u: (x, x[:, 0], x[:, 0] > 0)}, "state="),
        ({"state": lambda env: env.state}, "step="),
    ],
)
def test_bad_arguments_are_named(arguments: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        simulator(made("Hopper-v5"), **arguments)


def test_a_vector_environment_is_refused() -> None:
    with pytest.raises(Unsupported, match="one environment"):
        simulator(gym.make_vec("CartPole-v1", num_envs=2))


# --- a wrong simulator ------------------------------------------------------------------------


def test_a_scaled_simulator_is_an_environment_with_the_scaled_model() -> None:
    env, heavy = made("Hopper-v5"), made("Hopper-v5")
    walk(env, 15)
    model = heavy.unwrapped.model
    model.body_mass[:] *= 1.2
    model.body_inertia[:] *= 1.2
    model.geom_friction[:] *= 0.5
    mujoco.mj_setConst(model, mujoco.MjData(model))
    sim = simulator(env, scale={"mass": 1.2, "friction": 0.5})
    action = np.full(3, 0.5)
    assert np.abs(sim.predict(action) - twin_step(env, heavy, action)).max() < 1e-9
    assert np.abs(sim.predict(action) - simulator(env).predict(action)).max() > 1e-3


def test_scaling_one_element_leaves_others() -> None:
    env, heavy = made("Hopper-v5"), made("Hopper-v5")
    walk(env, 15)
    model = heavy.unwrapped.model
    model.body_mass[1] *= 2.0
    model.body_inertia[1] *= 2.0
    mujoco.mj_setConst(model, mujoco.MjData(model))
    sim = simulator(env, scale={"mass:torso": 2.0})
    action = np.full(3, 0.5)
    assert np.abs(sim.predict(action) - twin_step(env, heavy, action)).max() < 1e-9


@pytest.mark.parametrize(
    ("scale", "torso", "thigh", "foot"),
    [
        ({"mass:torso": 2.0, "mass:thigh": 3.0}, 2.0, 3.0, 1.0),
        ({"mass": 1.5, "mass:torso": 2.0}, 3.0, 1.5, 1.5),
    ],
)
def test_factors_of_one_kind_add_up(
    scale: dict[str, float], torso: float, thigh: float, foot: float
) -> None:
    env, heavy = made("Hopper-v5"), made("Hopper-v5")
    model = heavy.unwrapped.model
    for body, factor in (("torso", torso), ("thigh", thigh), ("foot", foot), ("leg", foot)):
        model.body_mass[model.body(body).id] *= factor
        model.body_inertia[model.body(body).id] *= factor
    mujoco.mj_setConst(model, mujoco.MjData(model))
    action = np.full(3, 0.5)
    predicted = simulator(env, scale=scale).predict(action)
    assert np.abs(predicted - twin_step(env, heavy, action)).max() < 1e-9


def test_a_scaled_cartpole_is_a_cartpole_with_those_masses() -> None:
    env, heavy = made("CartPole-v1"), made("CartPole-v1")
    cart = heavy.unwrapped
    cart.masspole, cart.masscart, cart.gravity = 0.2, 2.0, 4.9
    cart.total_mass, cart.polemass_length = 2.2, 0.2 * cart.length
    cart.state = np.array(env.unwrapped.state)
    predicted = simulator(env, scale={"mass": 2.0, "gravity": 0.5}).predict(1)
    heavy.step(1)
    assert np.abs(predicted - cart.state).max() < 1e-12


# --- observations and states ------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PAPER, *OTHERS])
def test_the_present_state_is_observed_as_the_environment_observes_it(name: str) -> None:
    settings = {"include_cfrc_ext_in_observation": False} if name == "Ant-v5" else {}
    if name == "Humanoid-v5":
        settings = {
            f"include_{each}_in_observation": False
            for each in ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")
        }
    env = made(name, **settings)
    sim = simulator(env)
    for _ in range(30):
        observation, _, terminated, _, _ = env.step(env.action_space.sample())
        assert np.abs(sim.observation(sim.state()) - observation).max() < 1e-6
        assert sim.observation(sim.state()).dtype == observation.dtype
        if terminated:
            env.reset()


def test_rows_of_states_give_rows_of_observations() -> None:
    env = made("Ant-v5")
    sim = simulator(env)
    x = sim.state() + np.linspace(0.0, 0.1, 3)[:, None]
    rows = sim.observation(x)
    assert rows.shape == (3, *env.observation_space.shape)
    assert np.abs(rows[1] - sim.observation(x[1])).max() < 1e-6


def test_no_states_give_no_observations() -> None:
    env = made("Ant-v5")
    assert simulator(env).observation(np.empty((0, 29))).shape == (0, 105)


def test_fast_joints_are_observed_clipped() -> None:
    sim = simulator(made("Hopper-v5"))
    x = sim.state()
    x[6:] = [11.0, -30.0, 3.0, 10.0, 0.0, -10.0]
    assert sim.observation(x)[5:].tolist() == [10.0, -10.0, 3.0, 10.0, 0.0, -10.0]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Hopper-v5", {"exclude_current_positions_from_observation": False}),
        ("Walker2d-v5", {"exclude_current_positions_from_observation": False}),
        ("HalfCheetah-v5", {"exclude_current_positions_from_observation": False}),
        ("Swimmer-v5", {"exclude_current_positions_from_observation": False}),
        ("InvertedPendulum-v5", {}),
        ("CartPole-v1", {}),
        ("Pendulum-v1", {}),
    ],
)
def test_states_come_back_from_observations_that_hold_them(name: str, settings: Any) -> None:
    env = made(name, **settings)
    walk(env, 3)
    sim = simulator(env)
    x = sim.state() + np.linspace(0.0, 0.01, 4)[:, None]
    assert np.abs(sim.state_of(sim.observation(x)) - x).max() < 1e-6
    assert np.abs(sim.state_of(sim.observation(x[1])) - x[1]).max() < 1e-6


def test_an_observation_that_left_something_out_has_no_way_back() -> None:
    env = made("Hopper-v5")
    sim = simulator(env)
    with pytest.raises(Unsupported, match="exclude_current_positions_from_observation=False"):
        sim.state_of(sim.observation(sim.state()))


@pytest.mark.parametrize("speed", [10.0, -10.0])
def test_a_clipped_observation_has_no_way_back(speed: float) -> None:
    sim = simulator(made("Hopper-v5", exclude_current_positions_from_observation=False))
    x = sim.state()
    x[8] = speed
    with pytest.raises(Unsupported, match="clip"):
        sim.state_of(sim.observation(x))


@pytest.mark.parametrize("name", ["Pendulum-v1", "CartPole-v1", "InvertedPendulum-v5"])
def test_an_observation_of_a_wrong_size_is_named(name: str) -> None:
    sim = simulator(made(name))
    for size in (2, 9):
        with pytest.raises(ValueError, match=r"^observation"):
            sim.state_of(np.zeros(size))


def test_observations_pass_through_observation_wrappers_and_have_no_way_back() -> None:
    env = gym.wrappers.RescaleObservation(
        gym.make("Pendulum-v1"), np.float32([-1, -2, -3]), np.float32([1, 2, 3])
    )
    observation, _ = env.reset(seed=0)
    sim = simulator(env)
    assert np.abs(sim.observation(sim.state()) - observation).max() < 1e-6
    with pytest.raises(Unsupported, match="RescaleObservation"):
        sim.state_of(observation)


def test_observations_are_undisturbed() -> None:
    env = Disturbed(made("CartPole-v1"), "bias:value=0.2", "observation")
    env.reset(seed=0)
    sim = simulator(env)
    assert np.array_equal(sim.observation(sim.state()), sim.state().astype(np.float32))


@pytest.mark.parametrize("x", [np.zeros(5), np.zeros((2, 5)), np.full(12, np.nan)])
def test_observation_names_a_bad_state(x: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"^x "):
        simulator(made("Hopper-v5")).observation(x)


# --- wrappers ---------------------------------------------------------------------------------


class Recorder(gym.Wrapper):
    """Records as SB3's Monitor does."""

    see_through = True

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.rewards: list[float] = []

    def step(self, action: Any) -> Any:
        found = self.env.step(action)
        self.rewards.append(float(found[1]))
        return found


@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: env.unwrapped,
        lambda env: gym.wrappers.TimeLimit(env, 50),
        gym.wrappers.RecordEpisodeStatistics,
        Recorder,
        lambda env: Recorder(gym.wrappers.RecordEpisodeStatistics(env)),
        lambda env: gym.wrappers.RescaleAction(env, -3.0, 5.0),
        gym.wrappers.ClipAction,
        lambda env: gym.wrappers.TransformAction(env, lambda a: 0.3 * a, env.action_space),
        lambda env: gym.wrappers.ClipAction(gym.wrappers.RescaleAction(env, -3.0, 5.0)),
        lambda env: gym.wrappers.TransformReward(env, lambda r: 2.0 * r + 1.0),
        lambda env: gym.wrappers.ClipReward(
            gym.wrappers.TransformReward(env, lambda r: r - 1.2), 0.0, 0.1
        ),
    ],
)
@pytest.mark.parametrize("name", ["Hopper-v5", "Pendulum-v1"])
@pytest.mark.parametrize("ready", [True, False])
def test_the_physics_is_found_under_wrappers(wrap: Any, name: str, ready: bool) -> None:
    env = wrap(gym.make(name))
    if ready:
        env.reset(seed=0)
        env.step(np.zeros(env.action_space.shape))
    sim = simulator(env)
    if not ready:
        env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(10):
        action = rng.uniform(-3, 3, env.action_space.shape).astype(np.float32)
        predicted = sim.predict(action)
        x_next, cost, terminated = sim.step(sim.state()[None], action[None])
        _, reward, ended, truncated, _ = env.step(action)
        assert np.abs(sim.state() - predicted).max() < 1e-6
        assert np.abs(sim.state() - x_next[0]).max() < 1e-6
        assert abs(cost[0] + reward) < 1e-6
        assert terminated[0] == ended
        if ended or truncated:
            env.reset()


def test_sb3s_monitor_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"__module__": "stable_baselines3.common.monitor", "step": Recorder.step}
    monitor = type("Monitor", (gym.Wrapper,), body)
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    env = made("Pendulum-v1")
    assert np.array_equal(simulator(monitor(env)).state(), simulator(env).state())


@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: gym.wrappers.FrameStackObservation(env, 2),
        gym.wrappers.NormalizeObservation,
        gym.wrappers.NormalizeReward,
        lambda env: gym.wrappers.StickyAction(env, 0.3),
        lambda env: gym.wrappers.DelayObservation(env, 1),
        gym.wrappers.TimeAwareObservation,
        gym.wrappers.Autoreset,
    ],
)
def test_wrappers_that_cannot_be_seen_through_are_refused_with_advice(wrap: Any) -> None:
    env = wrap(gym.make("Pendulum-v1"))
    with pytest.raises(Unsupported, match=rf"{type(env).__name__}.*outside.*see_through = True"):
        simulator(env)


@pytest.mark.parametrize("outer", [True, False])
def test_a_wrapper_of_ones_own_that_overrides_step_is_refused_wherever_it_is(outer: bool) -> None:
    class Twice(gym.Wrapper):
        def step(self, action: Any) -> Any:
            self.env.step(action)
            return self.env.step(action)

    base = gym.make("Pendulum-v1")
    env = Twice(base) if outer else gym.wrappers.RecordEpisodeStatistics(Twice(base))
    with pytest.raises(Unsupported, match="Twice"):
        simulator(env)


def test_an_action_wrapper_that_overrides_step_is_refused() -> None:
    class Noisy(gym.ActionWrapper):
        def action(self, action: Any) -> Any:
            return action

        def step(self, action: Any) -> Any:
            return self.env.step(action + 1.0)

    with pytest.raises(Unsupported, match="Noisy"):
        simulator(Noisy(gym.make("Pendulum-v1")))


# --- before a reset ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Hopper-v5", "Pendulum-v1", "CartPole-v1"])
def test_a_simulator_made_before_the_first_reset_works_after_it(name: str) -> None:
    env = gym.make(name)
    sim = simulator(env)
    env.reset(seed=0)
    env.action_space.seed(0)
    assert worst_residual(env, sim, 10) < 1e-6


@pytest.mark.parametrize("name", ["Pendulum-v1", "CartPole-v1"])
def test_there_is_no_state_before_the_first_reset_and_the_error_says_so(name: str) -> None:
    sim = simulator(gym.make(name))
    with pytest.raises((ValueError, gym.error.ResetNeeded), match="reset"):
        sim.state()


# --- functions of a user ----------------------------------------------------------------------


def pendulum_step(x: np.ndarray, u: np.ndarray) -> Any:
    angle, speed = x.T
    torque = np.clip(u[:, 0], -2.0, 2.0)
    speed_next = np.clip(speed + (15.0 * np.sin(angle) + 3.0 * torque) * 0.05, -8.0, 8.0)
    wrapped = (angle + np.pi) % (2 * np.pi) - np.pi
    cost = wrapped**2 + 0.1 * speed**2 + 0.001 * torque**2
    return np.stack([angle + 0.05 * speed_next, speed_next], axis=1), cost, np.zeros(len(x), bool)


class Hidden(gym.Env):
    """An environment that windward cannot read: a pendulum behind a curtain."""

    def __init__(self) -> None:
        self.hidden = PendulumEnv()
        self.action_space = self.hidden.action_space
        self.observation_space = self.hidden.observation_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.hidden.reset(seed=seed)

    def step(self, action: Any) -> Any:
        return self.hidden.step(action)


def hidden_state(env: Any) -> Any:
    return env.hidden.state


def test_an_unknown_environment_asks_for_step_and_state() -> None:
    with pytest.raises(Unsupported, match=r"Hidden.*step=.*state="):
        simulator(Hidden())


def test_a_users_function_simulates_an_unknown_environment() -> None:
    env = gym.wrappers.RescaleAction(Hidden(), -1.0, 1.0)
    env.reset(seed=0)
    sim = simulator(env, step=pendulum_step, state=hidden_state)
    rng = np.random.default_rng(0)
    for _ in range(20):
        action = rng.uniform(-1, 1, 1).astype(np.float32)
        predicted = sim.predict(action)
        _, cost, terminated = sim.step(sim.state()[None], action[None])
        _, reward, _, _, _ = env.step(action)
        assert np.abs(sim.state() - predicted).max() < 1e-6
        assert abs(cost[0] + reward) < 1e-6
        assert not terminated[0]
    with pytest.raises(Unsupported, match="observed"):
        sim.observation(sim.state())


def test_a_users_function_may_be_given_before_the_first_reset() -> None:
    env = gym.make("Acrobot-v1")
    sim = simulator(
        env,
        step=lambda x, u: (x, np.zeros(len(x)), np.zeros(len(x), dtype=bool)),
        state=lambda base: base.state,
    )
    env.reset(seed=0)
    assert np.array_equal(sim.predict(1), np.asarray(env.unwrapped.state))


@pytest.mark.parametrize("channel", ["qpos", "action"])
def test_a_users_function_goes_with_disturbances_that_are_noise(channel: str) -> None:
    env = Disturbed(made("Pendulum-v1"), "uniform:bound=0.1", channel)
    env.reset(seed=0)
    sim = simulator(env, noisy=False, step=pendulum_step, state=lambda base: base.state)
    action = np.ones(1, dtype=np.float32)
    assert np.abs(sim.predict(action) - simulator(env, noisy=False).predict(action)).max() < 1e-6
    try:
        noisy = simulator(env, step=pendulum_step, state=lambda base: base.state)
    except Unsupported as error:
        assert "noisy=False" in str(error)  # noqa: PT017
        return
    assert np.isfinite(noisy.predict(action)).all()


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (lambda x, u: (x[:, :1], x[:, 0], x[:, 0] > 9), "x_next"),
        (lambda x, u: (x, 0.0, x[:, 0] > 9), "cost"),
        (lambda x, u: (x, x[:, 0], False), "terminated"),
    ],
)
def test_wrong_answers_of_a_users_function_are_named(answer: Any, named: str) -> None:
    env = Hidden()
    env.reset(seed=0)
    sim = simulator(env, step=answer, state=hidden_state)
    with pytest.raises(ValueError, match=named):
        sim.step(sim.state()[None], np.zeros((1, 1)))


def test_rows_that_a_users_function_cannot_compute_are_terminated() -> None:
    env = Hidden()
    env.reset(seed=0)
    sim = simulator(
        env,
        step=lambda x, u: (np.where(x > 1e3, np.nan, x), x[:, 0], np.zeros(len(x), dtype=bool)),
        state=hidden_state,
    )
    terminated = sim.step(np.array([[0.0, 0.0], [1e4, 1e4]]), np.zeros((1, 1)))[2]
    assert terminated.tolist() == [False, True]
