"""Disturbed: where and when disturbances enter, how they repeat, and what it refuses."""

import pickle
import subprocess
import sys
from functools import partial
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import pytest
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv
from gymnasium.utils.env_checker import check_env
from scipy.linalg import solve_discrete_are

from windward import envs, simulators

MUJOCO = ("InvertedPendulum-v5", "Hopper-v5", "HalfCheetah-v5", "Reacher-v5", "Ant-v5")
CLASSIC = ("Pendulum-v1", "CartPole-v1")


@pytest.fixture(autouse=True)
def _mujoco_logs_elsewhere(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo writes its warnings, HalfCheetah's own among them, to where it runs."""
    monkeypatch.chdir(tmp_path)


class Plain(gym.Env):
    """An environment that windward knows nothing of; it counts, and remembers its last action."""

    def __init__(self, observation_space: Any = None, action_space: Any = None) -> None:
        box = gym.spaces.Box(-10.0, 10.0, (2,), np.float64)
        self.observation_space = observation_space or box
        self.action_space = action_space or gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.count = 0
        self.acted: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.count = 0
        return np.full(2, 5.0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.count, self.acted = self.count + 1, action
        return np.full(2, 5.0), 1.0, False, False, {}


def make(name: str, **settings: Any) -> gym.Env:
    """Gymnasium's environment without its checker, which warns of things that are meant here."""
    return gym.make(name, disable_env_checker=True, **settings)


def state_of(env: gym.Env) -> np.ndarray:
    base: Any = env.unwrapped
    if hasattr(base, "data"):
        return np.concatenate([base.data.qpos, base.data.qvel])
    return np.array(base.state, dtype=np.float64)


def place(env: gym.Env, x: np.ndarray) -> None:
    base: Any = env.unwrapped
    if hasattr(base, "data"):
        base.set_state(x[: base.model.nq], x[base.model.nq :])
    else:
        base.state = np.array(x)


def actions_for(env: gym.Env, steps: int, seed: int = 0) -> list[Any]:
    env.action_space.seed(seed)
    return [env.action_space.sample() for _ in range(steps)]


def rollout(env: gym.Env, steps: int, seed: int | None = 0, actions: int = 0) -> list[Any]:
    """Everything that comes out of an episode's first steps, as bytes where it is an array."""
    out: list[Any] = [np.asarray(env.reset(seed=seed)[0]).tobytes()]
    for action in actions_for(env, steps, actions):
        observation, reward, terminated, truncated, info = env.step(action)
        shares = {name: np.asarray(w).tobytes() for name, w in info["disturbance"].items()}
        out.append((np.asarray(observation).tobytes(), float(reward), terminated, shares))
        if terminated or truncated:
            env.reset()
    return out


def shares(env: gym.Env, channel: str, steps: int, actions: int = 0) -> np.ndarray:
    """The disturbances of a channel in the coming steps."""
    rows = [
        env.step(action)[4]["disturbance"][channel] for action in actions_for(env, steps, actions)
    ]
    return np.array(rows)


def model_bytes(env: gym.Env) -> bytes:
    """The whole MuJoCo model."""
    model = env.unwrapped.model  # type: ignore[attr-defined]
    buffer = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return buffer.tobytes()


# The state


@pytest.mark.parametrize("channel", ["qpos", "qvel", "state"])
@pytest.mark.parametrize("name", [*MUJOCO, *CLASSIC])
def test_state_is_shifted_after_the_step_and_the_reward_stays(name: str, channel: str) -> None:
    env, twin = envs.Disturbed(make(name), envs.Gaussian(0.01), channel), make(name)
    env.reset(seed=1)
    twin.reset(seed=1)
    for action in actions_for(env, 4):
        place(twin, state_of(env))
        _, reward, _, _, info = env.step(action)
        _, expected, _, _, _ = twin.step(action)
        before, after = state_of(twin), state_of(env)
        w = info["disturbance"][channel]
        moved = after - before
        assert w.any()
        assert reward == pytest.approx(expected, abs=1e-6)
        inside = {"state": np.ones(before.size, bool)}
        if name == "CartPole-v1":
            inside["qpos"] = np.array([True, False, True, False])
        else:
            inside["qpos"] = np.arange(before.size) < w.size
            if channel == "qvel":
                inside["qpos"] = np.arange(before.size) < before.size - w.size
        inside["qvel"] = ~inside["qpos"]
        # Solvers start elsewhere in the twin, so MuJoCo's agree to some digits only.
        np.testing.assert_allclose(moved[inside[channel]], w, atol=1e-6)
        np.testing.assert_allclose(moved[~inside[channel]], 0.0, atol=1e-6)


@pytest.mark.parametrize("name", [*MUJOCO, *CLASSIC, "Walker2d-v5", "Swimmer-v5", "Humanoid-v5"])
def test_the_observation_is_that_of_the_disturbed_state(name: str) -> None:
    env = envs.Disturbed(make(name), envs.Gaussian(0.01), "state")
    env.reset(seed=1)
    for action in actions_for(env, 5):
        observation = env.step(action)[0]
        base: Any = env.unwrapped
        seen = base._get_obs() if hasattr(base, "_get_obs") else base.state.astype(np.float32)
        np.testing.assert_array_equal(observation, seen)
        assert observation.dtype == seen.dtype


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("InvertedPendulum-v5", (0.0, 0.5)),
        ("CartPole-v1", (0.0, 0.5)),
        ("CartPole-v1", (5.0, 0.0)),
        ("Hopper-v5", (0.0, -1.0, 0.0, 0.0, 0.0, 0.0)),
        ("Walker2d-v5", (0.0, -1.0, *[0.0] * 7)),
        ("Ant-v5", (0.0, 0.0, 2.0, *[0.0] * 12)),
    ],
)
def test_termination_is_that_of_the_disturbed_state(name: str, size: tuple[float, ...]) -> None:
    env = envs.Disturbed(make(name), envs.Impulse(size, at=1), "qpos")
    env.reset(seed=0)
    still = 0 if name == "CartPole-v1" else np.zeros(env.action_space.shape)
    assert env.step(still)[2] is False
    assert env.step(still)[2] is True


def test_a_push_can_undo_a_fall() -> None:
    env = envs.Disturbed(make("CartPole-v1"), envs.Impulse((0.0, -0.3), at=0), "qpos")
    env.reset(seed=0)
    env.unwrapped.state = np.array([0.0, 0.0, 0.3, 0.0])
    _, reward, terminated, _, _ = env.step(1)
    assert (reward, terminated) == (1.0, False)
    assert env.step(1)[1] == 1.0


def test_nothing_is_added_to_the_state_at_a_reset() -> None:
    env, twin = envs.Disturbed(make("Hopper-v5"), envs.Bias(0.5), "qpos"), make("Hopper-v5")
    seen, info = env.reset(seed=3)
    np.testing.assert_array_equal(seen, twin.reset(seed=3)[0])
    assert "disturbance" not in info or not info["disturbance"]


@pytest.mark.parametrize(
    ("disturbance", "when"),
    [
        (envs.Uniform(0.0), None),
        (envs.Bias(0.0), None),
        (envs.Bias(0.1), envs.Interval(1000)),
        (envs.Bias(0.1), lambda step, episode: 0.0),
    ],
    ids=["uniform of 0", "bias of 0", "interval", "function"],
)
def test_a_disturbance_that_is_off_leaves_ant_as_it_is(disturbance: Any, when: Any) -> None:
    env = envs.Disturbed(make("Ant-v5"), disturbance, "qvel", when=when)
    twin = make("Ant-v5")
    env.reset(seed=0)
    twin.reset(seed=0)
    for action in actions_for(twin, 40):
        np.testing.assert_array_equal(env.step(action)[0], twin.step(action)[0])


def test_looking_again_does_not_run_an_environments_step_on_its_own_things() -> None:
    class Logging(HopperEnv):
        def __init__(self) -> None:
            self.log: list[int] = []
            super().__init__()

        def step(self, action: Any) -> Any:
            self.log.append(1)
            return super().step(action)

    env = envs.Disturbed(Logging(), envs.Bias(0.001), "qpos")
    env.reset(seed=0)
    env.step(np.zeros(3))
    assert len(env.unwrapped.log) == 1


def test_observation_wrappers_inside_are_looked_through() -> None:
    double = partial(gym.wrappers.TransformObservation, func=lambda o: 2 * o)
    inner = make("Pendulum-v1")
    env = envs.Disturbed(double(inner, observation_space=None), envs.Bias(0.5), "qvel")
    env.reset(seed=0)
    np.testing.assert_allclose(env.step(np.zeros(1))[0], 2 * env.unwrapped._get_obs())


def test_a_disturbed_observation_inside_stays_disturbed_when_the_state_moves_outside() -> None:
    inner = envs.Disturbed(make("Pendulum-v1"), envs.Gaussian(0.01), "observation")
    env = envs.Disturbed(inner, envs.Bias(0.5), "qvel")
    env.reset(seed=0)
    for action in actions_for(env, 3):
        observation, _, _, _, info = env.step(action)
        expected = env.unwrapped._get_obs() + info["disturbance"]["observation"]
        high = env.observation_space.high
        np.testing.assert_allclose(observation, np.clip(expected, -high, high), rtol=1e-5)


def test_actions_reach_the_wind_through_wrappers() -> None:
    flipped = gym.wrappers.TransformAction(
        make("CartPole-v1"), lambda a: 1 - a, gym.spaces.Discrete(2)
    )
    env, twin = envs.Disturbed(flipped, envs.Bias(4.0), "force:cart"), make("CartPole-v1")
    env.reset(seed=0)
    twin.reset(seed=0)
    twin.unwrapped.force_mag = 14.0
    np.testing.assert_allclose(env.step(0)[0], twin.step(1)[0], rtol=1e-6)


def test_a_wrapper_with_a_memory_inside_is_refused_for_the_state_and_not_for_forces() -> None:
    stacked = gym.wrappers.FrameStackObservation(make("Hopper-v5"), 2)
    with pytest.raises(simulators.Unsupported, match="FrameStackObservation"):
        envs.Disturbed(stacked, envs.Bias(0.1), "qpos")
    env = envs.Disturbed(stacked, envs.Bias(0.1), "force:torso")
    env.reset(seed=0)
    assert env.step(np.zeros(3))[0].shape == (2, 11)


# Forces


@pytest.mark.parametrize("kind", ["force", "torque"])
def test_a_force_is_applied_through_the_step_and_then_gone(kind: str) -> None:
    push = (30.0, 0.0, 20.0) if kind == "force" else (0.0, 5.0, 0.0)
    env = envs.Disturbed(make("Hopper-v5"), envs.Bias(push), f"{kind}:thigh")
    twin = make("Hopper-v5")
    env.reset(seed=2)
    twin.reset(seed=2)
    data: Any = twin.unwrapped.data
    body = mujoco.mj_name2id(twin.unwrapped.model, mujoco.mjtObj.mjOBJ_BODY, "thigh")
    still = make("Hopper-v5")
    still.reset(seed=2)
    for action in actions_for(env, 5):
        first = 0 if kind == "force" else 3
        data.xfrc_applied[body, first : first + 3] = push
        ours, theirs = env.step(action), twin.step(action)
        still.step(action)
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1] == theirs[1]
        np.testing.assert_array_equal(ours[4]["disturbance"][f"{kind}:thigh"], push)
        assert not env.unwrapped.data.xfrc_applied.any()
    assert np.abs(state_of(env) - state_of(still)).max() > 1e-3


def test_what_others_apply_to_a_body_stays() -> None:
    env = envs.Disturbed(make("Hopper-v5"), envs.Bias(1.0), "force:torso")
    env.reset(seed=0)
    env.unwrapped.data.xfrc_applied[1] = 7.0
    env.step(np.zeros(3))
    np.testing.assert_array_equal(env.unwrapped.data.xfrc_applied[1], np.full(6, 7.0))


@pytest.mark.parametrize("action", [0, 1])
def test_wind_on_the_cart_adds_to_the_motor_and_leaves_it_alone(action: int) -> None:
    env, twin = (
        envs.Disturbed(make("CartPole-v1"), envs.Bias(4.0), "force:cart"),
        make("CartPole-v1"),
    )
    env.reset(seed=0)
    twin.reset(seed=0)
    twin.unwrapped.force_mag = 14.0 if action == 1 else 6.0
    np.testing.assert_allclose(env.step(action)[0], twin.step(action)[0], rtol=1e-6)
    assert env.unwrapped.force_mag == 10.0


# Parameters


@pytest.mark.parametrize("channel", ["mass", "friction", "gravity", "gain", "mass:torso"])
@pytest.mark.parametrize("name", ["Hopper-v5", "Ant-v5"])
def test_reset_and_close_restore_a_model_bit_by_bit(name: str, channel: str) -> None:
    env = envs.Disturbed(make(name), envs.Gaussian(0.1), channel)
    first = model_bytes(env)
    env.reset(seed=0)
    for action in actions_for(env, 3):
        env.step(action)
    assert model_bytes(env) != first
    env.reset()
    assert model_bytes(env) == first
    env.step(env.action_space.sample())
    assert model_bytes(env) != first
    env.close()
    assert model_bytes(env) == first


@pytest.mark.parametrize(
    ("channel", "of"),
    [
        ("mass", lambda model: model.body_mass[1:]),
        ("mass", lambda model: model.body_inertia[1:]),
        ("friction", lambda model: model.geom_friction),
        ("gravity", lambda model: model.opt.gravity),
        ("gain", lambda model: model.actuator_gainprm),
    ],
)
def test_a_parameter_is_scaled_by_one_plus_w_at_its_first_value(channel: str, of: Any) -> None:
    env = envs.Disturbed(make("Hopper-v5"), envs.Uniform(0.2), channel)
    env.reset(seed=0)
    first = of(env.unwrapped.model).copy()
    for action in actions_for(env, 3):
        w = env.step(action)[4]["disturbance"][channel]
        rows = first.reshape(w.size, -1)
        np.testing.assert_allclose(
            of(env.unwrapped.model).reshape(w.size, -1), rows * (1 + w[:, None]), rtol=1e-12
        )


def test_one_element_of_a_parameter_leaves_the_others() -> None:
    env = envs.Disturbed(make("Hopper-v5"), envs.Bias(0.5), "mass:leg")
    env.reset(seed=0)
    first = env.unwrapped.model.body_mass.copy()
    env.step(np.zeros(3))
    scale = np.where(np.arange(5) == 3, 1.5, 1.0)
    np.testing.assert_allclose(env.unwrapped.model.body_mass, first * scale)


PARAMETERS = [
    ("Pendulum-v1", "mass", "m", 1.0),
    ("Pendulum-v1", "gravity", "g", 10.0),
    ("CartPole-v1", "mass:cart", "masscart", 1.0),
    ("CartPole-v1", "mass:pole", "masspole", 0.1),
    ("CartPole-v1", "gravity", "gravity", 9.8),
    ("CartPole-v1", "gain", "force_mag", 10.0),
]


@pytest.mark.parametrize(("name", "channel", "attribute", "first"), PARAMETERS)
def test_classic_parameters_change_and_come_back(
    name: str, channel: str, attribute: str, first: float
) -> None:
    env = envs.Disturbed(make(name), envs.Bias(0.5), channel)
    env.reset(seed=0)
    for _ in range(2):
        env.step(env.action_space.sample())
        assert getattr(env.unwrapped, attribute) == pytest.approx(1.5 * first)
    env.reset()
    assert getattr(env.unwrapped, attribute) == first
    env.step(env.action_space.sample())
    env.close()
    assert getattr(env.unwrapped, attribute) == first


def test_what_follows_from_cartpoles_masses_follows() -> None:
    env = envs.Disturbed(make("CartPole-v1"), envs.Bias((1.0, 2.0)), "mass")
    env.reset(seed=0)
    env.step(0)
    base: Any = env.unwrapped
    assert base.total_mass == pytest.approx(2.0 + 0.3)
    assert base.polemass_length == pytest.approx(0.3 * 0.5)
    env.close()
    assert (base.total_mass, base.polemass_length) == (1.1, 0.05)


@pytest.mark.parametrize(("name", "channel", "attribute", "first"), PARAMETERS)
def test_a_pickle_from_the_middle_of_an_episode_knows_the_first_parameters(
    name: str, channel: str, attribute: str, first: float
) -> None:
    env = envs.Disturbed(make(name), envs.Bias(0.5), channel)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    copy = pickle.loads(pickle.dumps(env))
    copy.reset(seed=0)
    assert getattr(copy.unwrapped, attribute) == first
    copy.step(copy.action_space.sample())
    assert getattr(copy.unwrapped, attribute) == pytest.approx(1.5 * first)


def test_a_parameter_may_not_fall_to_zero() -> None:
    env = envs.Disturbed(make("Hopper-v5"), envs.Bias(-1.5), "mass:leg")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"mass of 'leg' by -0\.5"):
        env.step(np.zeros(3))


def test_two_wrappers_may_not_write_the_same_parameter() -> None:
    inner = envs.Disturbed(make("Hopper-v5"), envs.Bias(0.1), "mass")
    with pytest.raises(ValueError, match="'mass' is disturbed already"):
        envs.Disturbed(inner, envs.Bias(0.1), "mass:torso")


# Actions, observations, rewards


def test_an_action_is_disturbed_and_kept_inside_its_space() -> None:
    env = envs.Disturbed(Plain(), envs.Bias((0.3, -0.3)), "action")
    env.reset(seed=0)
    info = env.step(np.array([0.5, -0.9], np.float32))[4]
    np.testing.assert_allclose(env.unwrapped.acted, [0.8, -1.0], rtol=1e-6)
    assert env.unwrapped.acted.dtype == np.float32
    np.testing.assert_array_equal(info["disturbance"]["action"], [0.3, -0.3])


@pytest.mark.parametrize("action", [[0, 1], np.array([0, 1]), (0.0, 1.0)], ids=repr)
def test_an_action_of_whole_numbers_is_disturbed_all_the_same(action: Any) -> None:
    env = envs.Disturbed(Plain(), envs.Bias(-0.2), "action")
    env.reset(seed=0)
    env.step(action)
    np.testing.assert_allclose(env.unwrapped.acted, [-0.2, 0.8])


def test_the_callers_action_is_not_changed() -> None:
    env = envs.Disturbed(Plain(), envs.Bias(0.3), "action")
    env.reset(seed=0)
    action = np.zeros(2, np.float32)
    env.step(action)
    assert not action.any()


def test_an_observation_is_disturbed_from_the_reset_on_and_the_state_is_not() -> None:
    sine = envs.Sinusoid(0.2, period=8.0, phase=1.0)
    env, twin = envs.Disturbed(make("Pendulum-v1"), sine, "observation"), make("Pendulum-v1")
    expected = 0.2 * np.sin(2 * np.pi * np.arange(12) / 8 + 1.0)
    observation, info = env.reset(seed=0)
    true, _ = twin.reset(seed=0)
    for t, action in enumerate(actions_for(env, 11)):
        high = env.observation_space.high
        np.testing.assert_allclose(
            observation, np.clip(true + expected[t], -high, high), rtol=1e-6, atol=1e-7
        )
        np.testing.assert_allclose(info["disturbance"]["observation"], [expected[t]] * 3)
        assert env.observation_space.contains(observation)
        observation, reward, _, _, info = env.step(action)
        true, same, _, _, _ = twin.step(action)
        assert reward == same
    np.testing.assert_array_equal(state_of(env), state_of(twin))


def test_images_stay_whole_numbers_inside_their_range() -> None:
    class Image(Plain):
        def reset(self, **_: Any) -> Any:
            return np.full((4, 4, 3), 250, np.uint8), {}

    space = gym.spaces.Box(0, 255, (4, 4, 3), np.uint8)
    env = envs.Disturbed(Image(space), envs.Gaussian(20.0), "observation")
    observation, _ = env.reset(seed=0)
    assert observation.dtype == np.uint8
    assert space.contains(observation)
    assert observation.max() == 255
    assert len(np.unique(observation)) > 5


def test_a_reward_is_disturbed_and_nothing_else() -> None:
    env, twin = envs.Disturbed(make("Hopper-v5"), envs.Bias(2.5), "reward"), make("Hopper-v5")
    env.reset(seed=0)
    twin.reset(seed=0)
    ours, theirs = env.step(np.ones(3)), twin.step(np.ones(3))
    assert ours[1] == pytest.approx(theirs[1] + 2.5)
    np.testing.assert_array_equal(ours[0], theirs[0])


def test_several_disturbances_add_up_on_one_channel() -> None:
    inner = envs.Disturbed(make("Pendulum-v1"), [envs.Bias(0.1), "bias:value=0.2"], "qvel")
    env = envs.Disturbed(inner, envs.Bias(0.4), "qvel")
    twin = make("Pendulum-v1")
    env.reset(seed=0)
    twin.reset(seed=0)
    info = env.step(np.zeros(1))[4]
    twin.step(np.zeros(1))
    np.testing.assert_allclose(info["disturbance"]["qvel"], [0.7])
    np.testing.assert_allclose(state_of(env) - state_of(twin), [0.0, 0.7], atol=1e-12)


def test_each_of_a_list_has_its_own_channel_and_all_are_told() -> None:
    env = envs.Disturbed(
        make("Pendulum-v1"),
        ["bias:value=1", "bias:value=2,channel=reward", "bias:value=3"],
        ["action", "qpos", "observation"],
    )
    env.reset(seed=0)
    told = env.step(np.zeros(1))[4]["disturbance"]
    assert {name: float(w[0]) for name, w in told.items()} == {
        "action": 1.0,
        "reward": 2.0,
        "observation": 3.0,
    }


# The same again


@pytest.mark.parametrize("channel", ["qpos", "force:torso", "action", "observation", "mass"])
def test_a_seed_gives_the_same_disturbances_whatever_the_policy_does(channel: str) -> None:
    env = envs.Disturbed(make("Hopper-v5"), envs.OrnsteinUhlenbeck(0.01), channel)
    env.reset(seed=4)
    first = [shares(env, channel, 10, actions=1)]
    env.reset()
    first.append(shares(env, channel, 70, actions=1))
    env.reset(seed=4)
    again = [shares(env, channel, 90, actions=2)[:10]]
    env.reset()
    again.append(shares(env, channel, 70, actions=3))
    for a, b in zip(first, again, strict=True):
        assert a.tobytes() == b.tobytes()
    assert not np.array_equal(first[0], first[1][:10])


def test_the_seed_of_the_constructor_is_that_of_a_reset() -> None:
    one = envs.Disturbed(Plain(), envs.Gaussian(), "action", seed=9)
    two = envs.Disturbed(Plain(), envs.Gaussian(), "action")
    for seeds in ((None, 9), (None, None), (5, 5), (None, None)):
        one.reset(seed=seeds[0])
        two.reset(seed=seeds[1])
        np.testing.assert_array_equal(shares(one, "action", 5), shares(two, "action", 5))


def test_without_a_seed_runs_differ() -> None:
    rows = []
    for _ in range(2):
        env = envs.Disturbed(Plain(), envs.Gaussian(), "action")
        env.reset()
        rows.append(shares(env, "action", 3))
    assert not np.array_equal(*rows)


def test_a_refused_seed_leaves_the_environment_usable() -> None:
    env = envs.Disturbed(Plain(), envs.Gaussian(), "action")
    env.reset(seed=0)
    with pytest.raises(gym.error.Error, match="-1"):
        env.reset(seed=-1)
    env.reset()
    assert shares(env, "action", 1).any()


@pytest.mark.parametrize(
    ("name", "channel"),
    [
        ("Hopper-v5", "qpos"),
        ("Hopper-v5", "mass"),
        ("Ant-v5", "force:torso"),
        ("Pendulum-v1", "state"),
        ("CartPole-v1", "gain"),
        ("Pendulum-v1", "observation"),
    ],
)
def test_a_pickled_environment_behaves_the_same(name: str, channel: str) -> None:
    env = envs.Disturbed(make(name), [envs.Gaussian(0.01), "ou:scale=0.02"], channel)
    env.reset(seed=1)
    env.step(env.action_space.sample())
    copy = pickle.loads(pickle.dumps(env))
    with pytest.raises(gym.error.ResetNeeded):
        copy.step(copy.action_space.sample())
    assert rollout(copy, 8, seed=7) == rollout(env, 8, seed=7)


@pytest.mark.parametrize("disturbance", ["ou:scale=0.02", envs.OrnsteinUhlenbeck(0.02)], ids=repr)
def test_a_spec_rebuilds_the_environment(disturbance: Any) -> None:
    env = envs.Disturbed(
        make("Hopper-v5"), disturbance, "qvel", when=[envs.Interval(1), envs.Probability(0.8)]
    )
    twin = gym.make(env.spec)
    assert isinstance(twin, envs.Disturbed)
    assert rollout(twin, 8) == rollout(env, 8)


@pytest.mark.parametrize("disturbance", ["ou:scale=0.02", envs.OrnsteinUhlenbeck(0.02)], ids=repr)
def test_a_spec_survives_json_or_says_that_it_cannot(disturbance: Any) -> None:
    env = envs.Disturbed(make("Pendulum-v1"), disturbance, "qvel")
    try:
        text = env.spec.to_json()
    except ValueError:
        return
    twin = gym.make(gym.envs.registration.EnvSpec.from_json(text))
    assert rollout(twin, 4) == rollout(env, 4)


def test_other_processes_draw_the_same_bytes() -> None:
    program = (
        "import gymnasium as gym, numpy as np, windward\n"
        "env = gym.make('windward/NoisyHopper-v0', disable_env_checker=True)\n"
        "env = windward.envs.Disturbed(env, 'ou:scale=0.1', 'action')\n"
        "env.reset(seed=11)\n"
        "for _ in range(20):\n"
        "    told = env.step(np.zeros(3))[4]['disturbance']\n"
        "print(told['qpos'].tobytes().hex(), told['action'].tobytes().hex())\n"
    )
    out = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    env = gym.make("windward/NoisyHopper-v0", disable_env_checker=True)
    env = envs.Disturbed(env, "ou:scale=0.1", "action")
    env.reset(seed=11)
    for _ in range(20):
        told = env.step(np.ones(3))[4]["disturbance"]
    assert out == [told["qpos"].tobytes().hex(), told["action"].tobytes().hex()]


def test_a_process_that_only_steps_environments_never_loads_jax() -> None:
    program = (
        "import sys, gymnasium as gym, windward\n"
        "env = gym.make('windward/SinePendulum-v0', disable_env_checker=True)\n"
        "env.reset(seed=0); env.step([0.0])\n"
        "print('jax' in sys.modules)\n"
    )
    out = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "False"


# Gradient-sign


def riccati(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return solve_discrete_are(A, B, np.eye(len(A)), np.eye(B.shape[1]))


def test_the_default_value_is_that_of_the_linearised_pendulum() -> None:
    env = envs.Disturbed(make("Pendulum-v1"), envs.GradientSign((0.1, 0.2)), "state")
    env.reset(seed=0)
    dt, slope, drive = 0.05, 15.0, 3.0  # θ̈ = 3g/2l·θ + 3/ml²·u
    A = np.array([[1 + slope * dt**2, dt], [slope * dt, 1.0]])
    B = np.array([[drive * dt**2], [drive * dt]])
    P = riccati(A, B)
    for angle, speed in [(0.1, 0.3), (0.1, -0.8), (-0.2, 0.9), (-0.05, -0.1), (2 * np.pi, 0.1)]:
        place(env, np.array([angle, speed]))
        w = env.step(np.zeros(1))[4]["disturbance"]["state"]
        reached = state_of(env) - w
        reached[0] = (reached[0] + np.pi) % (2 * np.pi) - np.pi
        np.testing.assert_array_equal(w, np.array([0.1, 0.2]) * np.sign(P @ reached))


def test_a_value_of_ones_own_is_differentiated_by_jax_or_by_differences() -> None:
    import jax.numpy as jnp

    def by_jax(x: Any) -> Any:
        return jnp.sum(jnp.array([1.0, -2.0]) * x**2)

    def by_numpy(x: Any) -> float:
        return float(np.dot([1.0, -2.0], np.asarray(x) ** 2))

    answers = []
    for settings in (
        {"value": by_jax},
        {"value": by_numpy},
        {"gradient": lambda x: np.array([2 * x[0], -4 * x[1]])},
    ):
        env = envs.Disturbed(make("Pendulum-v1"), envs.GradientSign(0.1, **settings), "state")
        env.reset(seed=0)
        w = shares(env, "state", 10)
        answers.append(w)
        reached = state_of(env) - w[-1]
        np.testing.assert_array_equal(w[-1], 0.1 * np.sign(reached * [1.0, -1.0]))
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], answers[2])


@pytest.mark.parametrize("channel", ["qpos", "qvel"])
def test_gradient_sign_of_a_part_takes_that_part_of_the_gradient(channel: str) -> None:
    gradient = envs.GradientSign(0.1, gradient=lambda x: np.array([1.0, -1.0, -1.0, 1.0]))
    env = envs.Disturbed(make("CartPole-v1"), gradient, channel)
    env.reset(seed=0)
    expected = [0.1, -0.1] if channel == "qpos" else [-0.1, 0.1]
    np.testing.assert_array_equal(env.step(0)[4]["disturbance"][channel], expected)


def test_gradient_sign_of_an_observation_sees_the_observation() -> None:
    env = envs.Disturbed(
        make("Pendulum-v1"),
        envs.GradientSign(0.05, gradient=lambda o: np.array([o[0], -o[1], o[2]])),
        "observation",
    )
    env.reset(seed=0)
    w = env.step(np.zeros(1))[4]["disturbance"]["observation"]
    true = env.unwrapped._get_obs()
    np.testing.assert_array_equal(w, 0.05 * np.sign(true * [1, -1, 1]))


def test_the_registered_adversary_pushes_every_coordinate_by_epsilon() -> None:
    env = make("windward/FGSMPendulum-v0", epsilon=0.05)
    env.reset(seed=0)
    told = shares(env, "state", 20)
    assert set(np.abs(told).ravel()) == {0.05}


def test_the_adversary_ends_an_episode_sooner_than_noise_of_its_size() -> None:
    lengths = {}
    for kind in ("fgsm:epsilon=0.005", "uniform:bound=0.005"):
        env = envs.Disturbed(make("InvertedPendulum-v5"), kind, "state")
        lengths[kind] = 0
        for seed in range(5):
            env.reset(seed=seed)
            ended = False
            while not ended:
                ended = env.step(np.zeros(1))[2]
                lengths[kind] += 1
    assert lengths["fgsm:epsilon=0.005"] < 0.7 * lengths["uniform:bound=0.005"]


def test_a_gradient_that_is_not_a_number_is_an_error() -> None:
    broken = envs.GradientSign(0.1, gradient=lambda x: x * np.nan)
    with pytest.raises((ValueError, simulators.Unstable)):  # noqa: PT012 - it may see it at once
        env = envs.Disturbed(make("InvertedPendulum-v5"), broken, "state")
        env.reset(seed=0)
        env.step(np.zeros(1))


# What it refuses


@pytest.mark.parametrize(
    ("name", "channel", "message"),
    [
        ("Hopper-v5", "wind", "no channel 'wind'.*qpos.*force:torso.*observation"),
        ("Hopper-v5", "force:head", "'head'.*force:torso, force:thigh, force:leg, force:foot"),
        ("Hopper-v5", "torque:head", "'head'.*torque:torso"),
        ("Hopper-v5", "mass:head", "'head'.*mass:torso"),
        ("Hopper-v5", "force", "'force' needs a body.*force:torso"),
        ("Hopper-v5", None, "channel=.*qpos"),
        ("Hopper-v5", 3, "got 3.*qpos"),
        ("Pendulum-v1", "force:torso", "'force:torso'.*PendulumEnv has qpos, qvel, state"),
        ("Pendulum-v1", "friction", "'friction'.*PendulumEnv has qpos"),
        ("CartPole-v1", "action", "'action' needs a Box space; it is Discrete.*force:cart"),
        ("MountainCarContinuous-v0", "qpos", "'qpos'.*MuJoCo.*has action, observation, reward"),
        ("MountainCarContinuous-v0", "force:x", "'force:x'.*has action, observation, reward"),
        ("MountainCarContinuous-v0", "gravity", "'gravity'.*has action, observation, reward"),
    ],
)
def test_a_wrong_channel_is_named_with_what_there_is(name: str, channel: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        envs.Disturbed(make(name), envs.Bias(0.1), channel)


def test_an_unknown_environment_has_action_observation_and_reward() -> None:
    assert list(envs.channels_of(Plain())) == ["action", "observation", "reward"]


@pytest.mark.parametrize(
    ("space", "name"),
    [
        (gym.spaces.Dict({"a": gym.spaces.Box(-1, 1, (2,))}), "Dict"),
        (gym.spaces.Tuple([gym.spaces.Box(-1, 1, (2,))]), "Tuple"),
    ],
)
def test_spaces_with_parts_are_refused(space: gym.Space, name: str) -> None:
    with pytest.raises(ValueError, match=f"'observation'.*{name}.*FlattenObservation.*reward"):
        envs.Disturbed(Plain(observation_space=space), envs.Bias(0.1), "observation")
    with pytest.raises(ValueError, match=f"'action'.*{name}.*reward"):
        envs.Disturbed(Plain(action_space=space), envs.Bias(0.1), "action")
    envs.Disturbed(Plain(space, space), envs.Bias(0.1), "reward")


@pytest.mark.parametrize(
    ("disturbance", "parameter"),
    [
        (envs.Uniform((0.1, 0.2)), "bound"),
        (envs.Gaussian((0.1, 0.2)), "scale"),
        (envs.Sinusoid((0.1, 0.2)), "amplitude"),
        (envs.Sinusoid(0.1, (6.0, 5.0)), "period"),
        (envs.Sinusoid(0.1, 6.0, (6.0, 5.0)), "phase"),
        (envs.SquareWave((0.1, 0.2)), "amplitude"),
        (envs.OrnsteinUhlenbeck((0.1, 0.2)), "scale"),
        (envs.OrnsteinUhlenbeck(0.1, mean=(0.1, 0.2)), "mean"),
        (envs.RandomWalk((0.1, 0.2)), "scale"),
        (envs.RandomWalk(0.1, (1.0, 2.0)), "bound"),
        (envs.Step((0.1, 0.2)), "size"),
        (envs.Impulse((0.1, 0.2)), "size"),
        (envs.Bias((0.1, 0.2)), "value"),
        (envs.Recorded(np.ones((9, 2))), "sequence"),
        (envs.GradientSign((0.1, 0.2), gradient=lambda x: x), "epsilon"),
    ],
)
def test_a_parameter_of_the_wrong_shape_is_named_with_both_shapes(
    disturbance: Any, parameter: str
) -> None:
    with pytest.raises(ValueError, match=rf"{parameter} must have.*\(6,\).*got \(2,\)"):
        envs.Disturbed(make("Hopper-v5"), disturbance, "qvel")


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (envs.Uniform, {"bound": -0.1}, r"bound must be at least 0; got -0\.1"),
        (envs.Uniform, {"bound": np.nan}, "bound must be finite"),
        (envs.Uniform, {"bound": "big"}, "bound must be an array of numbers"),
        (envs.Gaussian, {"scale": (1.0, -2.0)}, r"scale must be at least 0.*-2\.0"),
        (envs.Sinusoid, {"period": 0.0}, r"period must be greater than 0; got 0\.0"),
        (envs.Sinusoid, {"phase": "later"}, 'phase.*"random".*later'),
        (envs.SquareWave, {"duty": 1.5}, r"duty must lie in \[0, 1\]; got 1\.5"),
        (envs.OrnsteinUhlenbeck, {"tau": 0.0}, r"tau must be greater than 0; got 0\.0"),
        (envs.RandomWalk, {"bound": 0.0}, r"bound must be greater than 0; got 0\.0"),
        (envs.Step, {"at": -1}, "at must be an integer of at least 0; got -1"),
        (envs.Step, {"at": 1.5}, r"at must be an integer.*1\.5"),
        (envs.Impulse, {"width": 0}, "width.*at least 1; got 0"),
        (envs.Impulse, {"width": 3, "every": 2}, "every.*width = 3; got 2"),
        (envs.Recorded, {"sequence": []}, "at least one row"),
        (envs.Recorded, {"sequence": [1.0, np.inf]}, "sequence must be finite"),
        (envs.Recorded, {"sequence": "wind.txt"}, r"\.npy or \.csv.*wind\.txt"),
        (envs.Recorded, {"sequence": "nowhere.npy"}, "no file 'nowhere.npy'"),
        (envs.Recorded, {"sequence": [1.0], "after": "stop"}, "'error', 'repeat', 'zero'.*'stop'"),
        (envs.GradientSign, {"value": sum, "gradient": sum}, "not both"),
        (envs.Interval, {"start": 5, "stop": 5}, "stop.*5"),
        (envs.Interval, {"start": -2}, "start.*-2"),
        (envs.Probability, {"p": 1.5}, r"probability must lie in \[0, 1\]; got 1\.5"),
        (envs.FromEpisode, {"episode": -1}, "episode.*-1"),
        (envs.Growing, {}, "steps or episodes"),
        (envs.Growing, {"steps": 0}, "at least 1; got 0"),
    ],
)
def test_bad_numbers_are_named(kind: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**settings)


@pytest.mark.parametrize("wrong", [envs.Uniform, 0.1, None, {"bound": 0.1}])
def test_what_is_not_a_disturbance_is_refused_with_what_there_is(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"(?s)Uniform\(0\.1\) or text.*uniform.*sine.*ou"):
        envs.Disturbed(Plain(), wrong, "action")


@pytest.mark.parametrize("wrong", ["always", 0.5, envs.Probability, envs.Interval])
def test_what_is_not_a_schedule_is_refused_with_what_there_is(wrong: Any) -> None:
    with pytest.raises(ValueError, match="when must be Interval, Probability"):
        envs.Disturbed(Plain(), envs.Bias(0.1), "action", when=wrong)


@pytest.mark.parametrize("factor", [np.nan, "full", [1.0, 2.0], None])
def test_a_schedule_function_must_return_a_number(factor: Any) -> None:
    env = envs.Disturbed(Plain(), envs.Bias(0.1), "action", when=lambda step, episode: factor)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="factor that when"):
        env.step(np.zeros(2))


def test_a_disturbance_of_ones_own_with_rows_of_a_wrong_shape_is_refused() -> None:
    class Scalar:
        iid = False

        def block(self, ask: Any) -> Any:
            return np.arange(float(ask.n)), None

    with pytest.raises(ValueError, match="shape"):
        envs.Disturbed(Plain(), Scalar(), "action")


def test_as_many_channels_as_disturbances() -> None:
    with pytest.raises(ValueError, match="2 disturbances and 3 channels"):
        envs.Disturbed(Plain(), ["uniform", "ou"], ["action", "reward", "observation"])
    with pytest.raises(ValueError, match="at least one disturbance"):
        envs.Disturbed(Plain(), [], "action")


def test_a_recording_that_ends_says_what_to_do() -> None:
    env = envs.Disturbed(Plain(), envs.Recorded(np.ones((2, 2))), "action")
    env.reset(seed=0)
    env.step(np.zeros(2))
    env.step(np.zeros(2))
    with pytest.raises(ValueError, match=r"2 rows.*repeat"):
        env.step(np.zeros(2))
    env.reset()
    env.step(np.zeros(2))


def test_a_recording_need_not_cover_steps_at_which_it_is_off() -> None:
    recorded = envs.Recorded(np.ones((2, 2)))
    env = envs.Disturbed(Plain(), recorded, "action", when=envs.Interval(0, 2))
    env.reset(seed=0)
    assert shares(env, "action", 4).sum() == 4.0


@pytest.mark.parametrize("channel", ["action", "observation", "reward"])
def test_a_step_before_reset_is_refused(channel: str) -> None:
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        envs.Disturbed(Plain(), envs.Bias(0.1), channel).step(np.zeros(2))


def test_a_vector_environment_is_sent_to_disturbed_vector() -> None:
    vector = gym.vector.SyncVectorEnv([Plain])
    with pytest.raises(ValueError, match="DisturbedVector"):
        envs.Disturbed(vector, envs.Bias(0.1), "action")


@pytest.mark.parametrize(
    ("channel", "size"),
    [("force:torso", 1e15), ("torque:leg", 1e15), ("qpos", 1e12), ("qvel", 1e12), ("state", 1e12)],
)
def test_a_push_that_breaks_mujoco_is_an_error_and_a_reset_goes_on(
    channel: str, size: float
) -> None:
    impulse = envs.Impulse(size, at=1)
    env = envs.Disturbed(make("HalfCheetah-v5"), impulse, channel.replace("leg", "bthigh"))
    env.reset(seed=0)
    with pytest.raises(simulators.Unstable, match="disturbance is too strong"):  # noqa: PT012
        for _ in range(3):  # a state is only found out in the step after
            env.step(np.zeros(6))
    env.reset(seed=0)
    assert np.isfinite(env.step(np.zeros(6))[0]).all()


# Registered environments


@pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")
@pytest.mark.parametrize("name", envs.IDS)
def test_registered_environments_pass_gymnasiums_checker(name: str) -> None:
    check_env(gym.make(name, disable_env_checker=True), skip_render_check=True)


@pytest.mark.parametrize("name", envs.IDS)
def test_registered_environments_are_disturbed_reproducible_and_rebuilt(name: str) -> None:
    env = make(name)
    first = rollout(env, 6, seed=5)
    assert any(any(any(share) for share in step[3].values()) for step in first[1:])
    for twin in (make(name), gym.make(env.spec), pickle.loads(pickle.dumps(env))):
        assert rollout(twin, 6, seed=5) == first
    assert rollout(env, 6, seed=6) != first


@pytest.mark.parametrize("task", ["Hopper", "Walker2d", "Ant", "HalfCheetah"])
def test_the_papers_noise_is_a_tenth_on_every_position(task: str) -> None:
    env = make(f"windward/Noisy{task}-v0")
    env.reset(seed=0)
    w = shares(env, "qpos", 100)
    assert w.shape == (100, env.unwrapped.model.nq)
    assert np.abs(w).max() <= 0.1
    assert (np.abs(w).max(axis=0) > 0.08).all()


def test_settings_reach_registered_environments() -> None:
    env = make("windward/SinePendulum-v0", pendulum="Pendulum", amplitude=0.5, period=8.0, g=5.0)
    env.reset(seed=0)
    np.testing.assert_allclose(shares(env, "qvel", 3)[2], [0.5])
    assert isinstance(env.unwrapped, PendulumEnv)
    assert env.unwrapped.g == 5.0


def test_importing_twice_registers_once() -> None:
    envs.register()
    assert set(envs.IDS) <= set(gym.registry)
