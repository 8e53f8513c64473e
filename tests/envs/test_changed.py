"""Changed: another world for good, with late actions and biased sensors, and its copies."""

import copy
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import pytest
from gymnasium.envs.mujoco.mujoco_env import MujocoEnv
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from windward import envs
from windward.diagnosis import Change, Diagnosis
from windward.envs import Changed, Disturbed
from windward.simulators import Unsupported, simulator

SEVERAL = {
    "mass": 1.2,
    "mass:torso": 1.5,
    "gain:leg_joint": 0.7,
    "slope:x": 0.1,
    "com:torso.x": 0.04,
    "frictionloss:foot_joint": 1.0,
    "delay": 2,
    "bias:3": 0.05,
}
WORLDS: list[tuple[str, dict[str, Any]]] = [
    ("Hopper-v5", SEVERAL),
    ("Ant-v5", {"friction": 0.5, "damping": 1.5, "delay": 1}),
    ("Pendulum-v1", {"mass": 1.3, "length": 0.9, "delay": 3, "bias:2": -0.1}),
    ("CartPole-v1", {"mass:pole": 2.0, "gain": 0.8, "delay": 1, "bias:0": 0.01}),
]
IDS = [name for name, _ in WORLDS]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MuJoCo writes a log into the working directory when it warns."""
    monkeypatch.chdir(tmp_path)


def make(name: str, **settings: Any) -> gym.Env:
    """Gymnasium's environment without its checker, which warns of things that are meant here."""
    return gym.make(name, disable_env_checker=True, **settings)


def model_bytes(env: gym.Env) -> bytes:
    model = env.unwrapped.model  # type: ignore[attr-defined]
    buffer = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return buffer.tobytes()


def state_of(env: gym.Env) -> np.ndarray:
    base: Any = env.unwrapped
    if hasattr(base, "data"):
        return np.concatenate([base.data.qpos, base.data.qvel])
    return np.array(base.state, dtype=np.float64)


def actions_for(env: gym.Env, steps: int, seed: int = 0) -> list[Any]:
    env.action_space.seed(seed)
    return [env.action_space.sample() for _ in range(steps)]


def rollout(env: gym.Env, steps: int = 15, seed: int | None = 0) -> list[Any]:
    """All that an episode's first steps show."""
    out: list[Any] = [np.asarray(env.reset(seed=seed)[0]).tobytes()]
    for action in actions_for(env, steps):
        observation, reward, terminated, truncated, _ = env.step(action)
        out.append((np.asarray(observation).tobytes(), float(reward), terminated, truncated))
        if terminated or truncated:
            env.reset()
    return out


class Plain(gym.Env):
    """Remembers which actions it was given."""

    def __init__(self, observation_space: Any = None, action_space: Any = None) -> None:
        self.observation_space = observation_space or gym.spaces.Box(-10.0, 10.0, (2,), np.float64)
        self.action_space = action_space or gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.acted: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.acted = []
        return np.full(2, 5.0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.acted.append(action)
        return np.full(2, 5.0), 1.0, False, False, {}


# --- parameters --------------------------------------------------------------------------------


def test_parameters_are_written_and_the_physics_is_that_of_the_other_world() -> None:
    env = Changed(make("Hopper-v5"), {"mass": 1.2, "mass:leg": 1.5, "gravity": 0.5})
    twin = make("Hopper-v5")
    model: Any = twin.unwrapped.model  # type: ignore[attr-defined]
    scale = np.array([1.0, 1.2, 1.2, 1.8, 1.2])
    model.body_mass[:] *= scale
    model.body_inertia[:] *= scale[:, None]
    model.opt.gravity[:] *= 0.5
    mujoco.mj_setConst(model, mujoco.MjData(model))
    for one, other in zip(rollout(env), rollout(twin), strict=True):
        if isinstance(one, bytes):
            assert one == other
            continue
        np.testing.assert_allclose(
            np.frombuffer(one[0]), np.frombuffer(other[0]), rtol=1e-9, atol=1e-9
        )
    assert env.changes == {"mass": 1.2, "mass:leg": 1.5, "gravity": 0.5}


def test_a_changed_pendulum_follows_its_equation() -> None:
    env = Changed(make("Pendulum-v1"), {"mass": 1.3, "length": 0.8, "gravity": 0.9})
    env.reset(seed=0)
    for action in actions_for(env, 5):
        angle, speed = state_of(env)
        turn = 3 * 9.0 / (2 * 0.8) * np.sin(angle) + 3.0 / (1.3 * 0.64) * float(action[0])
        env.step(action)
        np.testing.assert_allclose(state_of(env)[1], np.clip(speed + 0.05 * turn, -8, 8))


def test_a_changed_cartpole_has_what_follows_from_its_masses() -> None:
    env = Changed(make("CartPole-v1"), {"mass": 2.0, "mass:pole": 1.5, "length": 2.0})
    base: Any = env.unwrapped
    assert (base.masscart, base.masspole, base.length) == pytest.approx((2.0, 0.3, 1.0))
    assert (base.total_mass, base.polemass_length) == pytest.approx((2.3, 0.3))


@pytest.mark.parametrize("name", ["Hopper-v5", "Ant-v5", "Pendulum-v1", "CartPole-v1"])
@pytest.mark.parametrize("nothing", ["empty", "ones", "zeros"])
def test_a_change_of_nothing_leaves_every_number(name: str, nothing: str) -> None:
    changes: dict[str, Any] = {
        "empty": {},
        "ones": {"mass": 1.0, "gravity": 1.0},
        "zeros": {"delay": 0, "bias:0": 0.0},
    }[nothing]
    if nothing != "empty" and name in ("Hopper-v5", "Ant-v5"):
        changes |= {"gain": 1.0, "inertia": 1.0, "slope:x": 0.0, "com:torso.x": 0.0}
    assert rollout(Changed(make(name), changes), 40) == rollout(make(name), 40)


@pytest.mark.parametrize(("name", "changes"), WORLDS, ids=IDS)
def test_close_sets_the_parameters_back(name: str, changes: dict[str, Any]) -> None:
    inner = make(name)
    bare: Any = inner.unwrapped
    before = model_bytes(inner) if hasattr(bare, "model") else dict(vars(bare))
    env = Changed(inner, changes)
    rollout(env, 3)
    env.close()
    if hasattr(bare, "model"):
        assert model_bytes(inner) == before
    else:
        for key in ("m", "g", "l", "masspole", "total_mass", "polemass_length", "force_mag"):
            assert vars(bare).get(key) == before.get(key)


def test_nested_changes_multiply_and_close_from_the_outside_in() -> None:
    inner = make("Hopper-v5")
    first, mass = model_bytes(inner), inner.unwrapped.model.body_mass.copy()  # type: ignore[attr-defined]
    env = Changed(
        Changed(inner, {"mass": 1.2, "slope:x": 0.1}), {"mass:torso": 1.5, "slope:x": 0.1}
    )
    model: Any = env.unwrapped.model
    np.testing.assert_allclose(model.body_mass, mass * [1.0, 1.8, 1.2, 1.2, 1.2])
    np.testing.assert_allclose(model.opt.gravity[0], -9.81 * np.sin(0.2))
    sim = simulator(env)
    np.testing.assert_array_equal(sim.dynamics.model.body_mass, mass)  # type: ignore[attr-defined]
    env.close()
    assert model_bytes(inner) == first


# --- the interface -----------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("name", ["Hopper-v5", "Pendulum-v1", "CartPole-v1"])
def test_actions_come_late_by_so_many_steps_and_nothing_is_done_before(
    name: str, steps: int
) -> None:
    env, twin = Changed(make(name), {"delay": steps}), make(name)
    for _ in range(2):  # each episode begins idle
        env.reset(seed=1)
        twin.reset(seed=1)
        idle = 0 if name == "CartPole-v1" else np.zeros(twin.action_space.shape, np.float32)
        actions = actions_for(twin, 8)
        for late, action in zip([idle] * steps + actions, actions, strict=False):
            np.testing.assert_array_equal(env.step(action)[0], twin.step(late)[0])


def test_a_late_action_is_the_one_that_was_given_whatever_becomes_of_its_array() -> None:
    env = Changed(Plain(), {"delay": 1})
    env.reset(seed=0)
    for given in (np.ones(2, np.float32), [1.0, 1.0]):
        action: Any = given
        env.step(action)
        action[0] = -7.0
        env.step(np.zeros(2, np.float32))
        np.testing.assert_array_equal(env.unwrapped.acted[-1], [1.0, 1.0])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("space", "idle"),
    [
        (gym.spaces.Box(0.5, 1.0, (2,), np.float32), [0.5, 0.5]),
        (gym.spaces.Box(-2, 3, (1,), np.int64), [0]),
        (gym.spaces.Discrete(4, start=3), 3),
    ],
    ids=["positive", "whole", "discrete"],
)
def test_idle_actions_are_in_the_action_space(space: Any, idle: Any) -> None:
    env = Changed(Plain(action_space=space), {"delay": 1})
    env.reset(seed=0)
    env.step(space.sample())
    (acted,) = env.unwrapped.acted  # type: ignore[attr-defined]
    np.testing.assert_array_equal(acted, idle)
    assert space.contains(acted)


def test_actions_are_late_before_a_reset_too_where_the_environment_allows_it() -> None:
    env = Changed(Plain(), {"delay": 2})
    for _ in range(3):
        env.step(np.ones(2, np.float32))
    assert [float(each[0]) for each in env.unwrapped.acted] == [0.0, 0.0, 1.0]  # type: ignore[attr-defined]


def test_a_bias_is_added_to_its_number_from_the_reset_on_and_the_state_is_not_moved() -> None:
    env, twin = Changed(make("Hopper-v5"), {"bias:3": 0.05, "bias:10": -1.0}), make("Hopper-v5")
    offset = np.zeros(11)
    offset[3], offset[10] = 0.05, -1.0
    np.testing.assert_allclose(env.reset(seed=0)[0], twin.reset(seed=0)[0] + offset)
    for action in actions_for(twin, 6):
        seen, reward, *_ = env.step(action)
        true, same, *_ = twin.step(action)
        np.testing.assert_allclose(seen, true + offset)
        assert reward == same
    np.testing.assert_array_equal(state_of(env), state_of(twin))


def test_a_biased_observation_stays_in_its_space_and_of_its_type() -> None:
    env = Changed(make("Pendulum-v1"), {"bias:0": 0.9, "bias:2": 20.0})
    seen = env.reset(seed=0)[0]
    for action in actions_for(env, 10):
        assert env.observation_space.contains(seen)
        assert seen.dtype == np.float32
        cos, _, speed = env.unwrapped._get_obs()  # type: ignore[attr-defined]
        np.testing.assert_allclose(seen[[0, 2]], [min(cos + 0.9, 1.0), min(speed + 20, 8.0)], 1e-6)
        seen = env.step(action)[0]


def test_numbers_of_an_observation_with_rows_are_counted_along_them() -> None:
    class Rows(Plain):
        def reset(self, **_: Any) -> Any:
            return np.zeros((2, 3)), {}

    env = Changed(Rows(gym.spaces.Box(-9.0, 9.0, (2, 3), np.float64)), {"bias:4": 2.0})
    np.testing.assert_array_equal(env.reset()[0], [[0, 0, 0], [0, 2, 0]])


# --- with others -------------------------------------------------------------------------------


def test_a_disturbance_outside_is_of_the_changed_world() -> None:
    env = Disturbed(
        Changed(make("Hopper-v5"), {"mass": 1.5, "bias:0": 0.1}), envs.Bias(0.2), "mass"
    )
    env.reset(seed=0)
    model: Any = env.unwrapped.model
    before = model.body_mass.copy()
    env.step(np.zeros(3))
    np.testing.assert_allclose(model.body_mass, 1.2 * before)
    sim = simulator(env, noisy=False)
    np.testing.assert_allclose(sim.dynamics.model.body_mass, before / 1.5)  # type: ignore[attr-defined]
    env.reset()
    np.testing.assert_array_equal(model.body_mass, before)
    first = make("Hopper-v5").unwrapped.model.body_mass  # type: ignore[attr-defined]
    env.close()
    np.testing.assert_array_equal(model.body_mass, first)


def test_a_disturbed_parameter_inside_is_refused_and_a_disturbed_state_is_not() -> None:
    with pytest.raises(ValueError, match=r"Changed first.*Disturbed\s+around"):
        Changed(Disturbed(make("Hopper-v5"), envs.Bias(0.1), "mass"), {"gain": 0.9})
    env = Changed(Disturbed(make("Hopper-v5"), envs.Bias(0.01), "qvel"), {"gain": 0.9})
    env.reset(seed=0)
    assert "qvel" in env.step(np.zeros(3))[4]["disturbance"]


def test_a_state_moved_outside_is_observed_with_the_bias() -> None:
    env = Disturbed(Changed(make("Pendulum-v1"), {"bias:2": 0.3}), envs.Bias(0.5), "qvel")
    env.reset(seed=0)
    for action in actions_for(env, 3):
        seen = env.step(action)[0]
        true = env.unwrapped._get_obs()  # type: ignore[attr-defined]
        np.testing.assert_allclose(seen, np.clip(true + np.array([0, 0, 0.3]), -8, 8), rtol=1e-6)


def test_wind_on_a_cart_that_acts_late_blows_the_same_way_whatever_the_motor_does() -> None:
    inner, twin = Changed(make("CartPole-v1"), {"delay": 1}), make("CartPole-v1")
    env = Disturbed(inner, envs.Bias(4.0), "force:cart")
    env.reset(seed=0)
    twin.reset(seed=0)
    late = 0
    for action in (1, 1, 0, 1, 0, 0):
        twin.unwrapped.force_mag = 14.0 if late == 1 else 6.0  # type: ignore[attr-defined]
        np.testing.assert_allclose(env.step(action)[0], twin.step(late)[0], rtol=1e-6)
        late = action


@pytest.mark.parametrize(("name", "changes"), WORLDS, ids=IDS)
def test_a_simulator_is_that_of_the_unchanged_world(name: str, changes: dict[str, Any]) -> None:
    env, twin = Changed(make(name), changes), make(name)
    env.reset(seed=2)
    twin.reset(seed=2)
    sim, other = simulator(env), simulator(twin)
    x = sim.state()[None]
    np.testing.assert_array_equal(x[0], other.state())
    for action in actions_for(twin, 3):
        u = np.asarray(action)[None]
        for one, two in zip(sim.step(x, u), other.step(x, u), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(sim.predict(action), other.predict(action), atol=1e-9)
        np.testing.assert_allclose(sim.observation(x), other.observation(x))
    assert np.abs(sim.predict(action) - simulator(twin, scale=_own(changes)).predict(action)).any()


def _own(changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if name[:4] not in ("dela", "bias")}


def test_a_scaled_simulator_of_the_nominal_world_foresees_the_changed_one() -> None:
    changes = _own(SEVERAL)
    env = Changed(make("Hopper-v5"), changes)
    env.reset(seed=0)
    sim = simulator(env, scale=changes)
    for action in actions_for(env, 10):
        predicted = sim.predict(action)
        env.step(action)
        np.testing.assert_allclose(state_of(env), predicted, atol=1e-6)


# --- copies and specs --------------------------------------------------------------------------

COPIES = [
    pytest.param(lambda env: pickle.loads(pickle.dumps(env)), id="pickle"),
    pytest.param(copy.deepcopy, id="deepcopy"),
]


@pytest.mark.parametrize("again", COPIES)
@pytest.mark.parametrize(("name", "changes"), WORLDS, ids=IDS)
def test_a_copy_is_of_the_same_world_and_closes_on_its_own(
    name: str, changes: dict[str, Any], again: Any
) -> None:
    env = Changed(make(name), changes)
    rollout(env, 4)
    twin = again(env)
    assert twin.unwrapped is not env.unwrapped
    assert rollout(twin) == rollout(env)
    if hasattr(env.unwrapped, "model"):
        first = model_bytes(make(name))
        assert model_bytes(twin) == model_bytes(env) != first
        twin.close()
        assert model_bytes(twin) == first
        assert model_bytes(env) != first
    else:
        twin.close()
        nominal: Any = make(name).unwrapped
        for key in ("m", "l", "masspole", "polemass_length", "force_mag"):
            assert getattr(twin.unwrapped, key, None) == getattr(nominal, key, None)
    assert rollout(env) == rollout(Changed(make(name), changes))


@pytest.mark.parametrize("again", COPIES)
@pytest.mark.parametrize("name", ["Hopper-v5", "Pendulum-v1"])
def test_a_copy_of_nested_changes_has_each_once(name: str, again: Any) -> None:
    env = Changed(Changed(make(name), {"mass": 1.2, "delay": 1}), {"mass": 1.5, "gravity": 0.9})
    env.reset(seed=0)
    env.step(env.action_space.sample())
    assert rollout(again(again(env))) == rollout(env)


@pytest.mark.parametrize("again", COPIES)
def test_a_copy_from_the_middle_of_an_episode_goes_on_with_its_late_actions(again: Any) -> None:
    env = Changed(make("Pendulum-v1"), {"mass": 1.3, "delay": 3})
    env.reset(seed=0)
    for action in actions_for(env, 5):
        env.step(action)
    twin = again(env)
    for action in actions_for(env, 6, seed=1):
        np.testing.assert_array_equal(twin.step(action)[0], env.step(action)[0])


class Slider(MujocoEnv):
    """A MujocoEnv that is copied with its model, not made anew."""

    metadata = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"]}  # noqa: RUF012

    def __init__(self) -> None:
        space = gym.spaces.Box(-np.inf, np.inf, (12,), dtype=np.float64)
        super().__init__("hopper.xml", 4, observation_space=space)

    def step(self, action: Any) -> Any:
        self.do_simulation(action, self.frame_skip)
        return self._seen(), 0.0, False, False, {}

    def reset_model(self) -> np.ndarray:
        self.set_state(self.init_qpos, self.init_qvel + self.np_random.uniform(-0.01, 0.01, 6))
        return self._seen()

    def _seen(self) -> np.ndarray:
        return np.concatenate([self.data.qpos, self.data.qvel])


@pytest.mark.parametrize("again", COPIES)
def test_a_model_that_is_copied_as_it_is_does_not_change_twice(again: Any) -> None:
    env = Changed(Slider(), {"mass": 1.5, "com:torso.x": 0.05, "slope:x": 0.1})
    env.reset(seed=0)
    twin = again(env)
    assert model_bytes(twin) == model_bytes(env)
    assert rollout(twin) == rollout(env)
    twin.close()
    assert model_bytes(twin) == model_bytes(Slider())


@pytest.mark.parametrize(("name", "changes"), WORLDS, ids=IDS)
def test_a_spec_rebuilds_the_world(name: str, changes: dict[str, Any]) -> None:
    env = Changed(make(name), changes)
    twin = gym.make(env.spec)
    assert isinstance(twin, Changed)
    assert twin.changes == changes
    assert rollout(twin) == rollout(env)


def test_a_spec_goes_to_json_and_back_with_numbers_of_numpy() -> None:
    changes = {"mass": np.float32(1.25), "slope:x": np.float64(0.1), "delay": np.int64(2)}
    env = Changed(make("Hopper-v5"), changes)
    assert env.changes == {"mass": 1.25, "slope:x": 0.1, "delay": 2}
    twin = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert rollout(twin) == rollout(env)


def test_the_callers_changes_may_change_afterwards() -> None:
    changes = {"mass": 1.5}
    env = Changed(make("Pendulum-v1"), changes)
    changes["mass"] = 9.0
    assert env.changes == {"mass": 1.5}
    assert gym.make(env.spec).unwrapped.m == 1.5  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "changes"), WORLDS, ids=IDS)
def test_the_same_seed_gives_the_same_floats(name: str, changes: dict[str, Any]) -> None:
    env = Changed(make(name), changes)
    first = rollout(env, seed=3)
    rollout(env, seed=4)
    assert rollout(env, seed=3) == first
    assert rollout(Changed(make(name), changes), seed=3) == first
    assert rollout(make(name), seed=3) != first


@pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")
@pytest.mark.parametrize(("name", "changes"), WORLDS, ids=IDS)
def test_changed_worlds_pass_gymnasiums_checker(name: str, changes: dict[str, Any]) -> None:
    check_env(Changed(make(name), changes), skip_render_check=True)


def test_channels_are_those_of_the_environment_inside() -> None:
    env = Changed(make("Hopper-v5"), {"mass": 1.1})
    found = envs.channels_of(env)
    assert found.keys() == envs.channels_of(make("Hopper-v5")).keys()
    assert {"com", "com:torso.x", "frictionloss:leg_joint", "slope:x", "inertia:leg"} <= set(found)
    assert found["slope"].shape == (2,)


@pytest.mark.parametrize(
    ("channel", "w", "of"),
    [
        ("com:torso.x", 0.03, lambda model: model.body_ipos[1, 0]),
        ("frictionloss:leg_joint", 0.7, lambda model: model.dof_frictionloss[4]),
    ],
)
def test_amounts_are_disturbed_by_adding(channel: str, w: float, of: Any) -> None:
    env = Disturbed(make("Hopper-v5"), envs.Bias(w), channel)
    first = model_bytes(env)
    env.reset(seed=0)
    before = float(of(env.unwrapped.model))
    for _ in range(2):
        env.step(np.zeros(3))
        assert float(of(env.unwrapped.model)) == pytest.approx(before + w)
    env.reset()
    assert model_bytes(env) == first


# --- what it refuses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("Hopper-v5", None, "changes must be a mapping.*got None"),
        ("Hopper-v5", [("mass", 1.1)], "mapping"),
        ("Hopper-v5", {"weight": 1.1}, "'weight'.*mass, friction, gravity"),
        ("Hopper-v5", {"mass:arm": 1.1}, "'mass:arm'.*torso, thigh, leg, foot"),
        ("Hopper-v5", {"mass": 0.0}, r"changes\['mass'\] must be greater than 0; got 0"),
        ("Hopper-v5", {"mass": np.nan}, r"changes\['mass'\] must be finite"),
        ("Hopper-v5", {"mass": "heavy"}, r"changes\['mass'\]"),
        ("Hopper-v5", {"slope": 0.1}, "'slope' needs one of x, y"),
        ("Hopper-v5", {"delay": -1}, r"changes\['delay'\].*at least 0; got -1"),
        ("Hopper-v5", {"delay": 1.5}, r"changes\['delay'\].*got 1\.5"),
        ("Hopper-v5", {"delay": True}, r"changes\['delay'\].*got True"),
        ("Hopper-v5", {"delay:leg": 2}, "'delay'; got 'delay:leg'"),
        ("Hopper-v5", {"bias": 0.1}, "'bias' needs one of 0, 1"),
        ("Hopper-v5", {"bias:11": 0.1}, "'bias:11'.*0, 1"),
        ("Hopper-v5", {"bias:0": np.inf}, r"changes\['bias:0'\] must be finite"),
        ("Pendulum-v1", {"friction": 0.5}, "'friction'.*mass, gravity, length"),
        ("CartPole-v1", {"mass:rod": 0.5}, "'mass:rod'.*cart, pole"),
        ("MountainCarContinuous-v0", {"mass": 1.1}, "no physics.*'mass'"),
    ],
)
def test_wrong_changes_are_named(name: str, changes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Changed(make(name), changes)


def test_a_refused_change_leaves_the_environment_as_it_was() -> None:
    env = make("Hopper-v5")
    first = model_bytes(env)
    for wrong in ({"gain": 0.5, "mass": -1.0}, {"gain": 0.5, "delay": -1}, {"mass": 2, "bias": 1}):
        with pytest.raises(ValueError, match=r"mass|delay|bias"):
            Changed(env, wrong)
        assert model_bytes(env) == first


def test_what_is_no_environment_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'Hopper-v5'.*gym\.make"):
        Changed("Hopper-v5", {"mass": 1.1})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one environment"):
        Changed(gym.vector.SyncVectorEnv([Plain]), {"delay": 1})  # type: ignore[arg-type]


def test_spaces_with_parts_have_no_bias_and_no_idle_action() -> None:
    parts = gym.spaces.Dict({"a": gym.spaces.Box(-1, 1, (2,))})
    with pytest.raises(Unsupported, match=r"bias.*Dict"):
        Changed(Plain(observation_space=parts), {"bias:0": 0.1})
    with pytest.raises(Unsupported, match=r"late actions.*Dict"):
        Changed(Plain(action_space=parts), {"delay": 1})
    Changed(Plain(parts, parts), {})


def test_an_environment_without_a_known_physics_has_an_interface_all_the_same() -> None:
    env = Changed(make("MountainCarContinuous-v0"), {"delay": 1, "bias:0": 0.01})
    twin = make("MountainCarContinuous-v0")
    np.testing.assert_allclose(env.reset(seed=0)[0], twin.reset(seed=0)[0] + [0.01, 0], rtol=1e-6)
    env.step(np.ones(1, np.float32))
    twin.step(np.zeros(1, np.float32))
    np.testing.assert_array_equal(state_of(env), state_of(twin))


# --- there and back ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("Hopper-v5", {"mass": 1.2}),
        ("Hopper-v5", {"mass:leg": 1.2, "mass:foot": 0.7}),
        ("Hopper-v5", {"inertia:leg": 1.4}),
        ("Hopper-v5", {"com:torso.x": 0.04}),
        ("Hopper-v5", {"gain:leg_joint": 0.7}),
        ("Hopper-v5", {"friction": 0.5}),
        ("Hopper-v5", {"damping:foot_joint": 1.5}),
        ("Hopper-v5", {"armature": 0.8}),
        ("Hopper-v5", {"frictionloss:foot_joint": 1.0}),
        ("Hopper-v5", {"gravity": 0.9}),
        ("Hopper-v5", {"slope:x": 0.1}),
        ("Hopper-v5", {"delay": 2}),
        ("Hopper-v5", {"bias:3": 0.05}),
        ("Pendulum-v1", {"length": 0.9, "delay": 1}),
    ],
    ids=str,
)
def test_the_environment_of_a_diagnosis_is_the_changed_world(
    name: str, change: dict[str, Any], tmp_path: Path
) -> None:
    world = Changed(make(name), change)
    found = Diagnosis(
        {key: Change(float(value), value, value) for key, value in change.items()}, {}, None, 0.0,
        env_id=name, env=world,
    )  # fmt: skip
    found.save(tmp_path / "diagnosis.npz")
    expected = rollout(Changed(make(name), change))
    for each in (found, Diagnosis.load(tmp_path / "diagnosis.npz")):
        assert rollout(each.environment(disable_env_checker=True)) == expected
