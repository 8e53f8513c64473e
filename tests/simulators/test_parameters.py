"""Model parameters: what each kind writes, how it is undone, and how names become arrays."""

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import pytest

from windward.envs import Disturbed
from windward.simulators import Unsupported, simulator
from windward.simulators.parameters import (
    OFFSETS,
    AttributeParameters,
    DictParameters,
    MujocoParameters,
    NoParameters,
    arrays_of,
    first_value,
)

ROBOTS = ["Hopper-v5", "Ant-v5", "Humanoid-v5", "Reacher-v5", "InvertedDoublePendulum-v5"]
AMOUNTS = {"com": 0.03, "frictionloss": 0.2, "slope": 0.1}


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MuJoCo writes a log into the working directory when it warns."""
    monkeypatch.chdir(tmp_path)


def model_of(name: str = "Hopper-v5") -> mujoco.MjModel:
    return gym.make(name).unwrapped.model  # type: ignore[attr-defined]


def model_bytes(model: mujoco.MjModel) -> bytes:
    buffer = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return buffer.tobytes()


def changed_arrays(model: mujoco.MjModel, other: mujoco.MjModel) -> set[str]:
    """Names of arrays in which two models differ."""
    names = [name for name in dir(model) if isinstance(getattr(model, name), np.ndarray)]
    pairs = {name: (getattr(model, name), getattr(other, name)) for name in names}
    pairs["gravity"] = model.opt.gravity, other.opt.gravity
    return {name for name, (one, two) in pairs.items() if one.tobytes() != two.tobytes()}


def at(parameters: MujocoParameters, kind: str, element: str, value: float) -> np.ndarray:
    """A value for one element, the first value for the others."""
    names = list(parameters.elements[kind])
    array = np.full(len(names), first_value(kind))
    array[names.index(element)] = value
    return array


def every_kind(parameters: MujocoParameters, factor: float = 1.2) -> dict[str, np.ndarray]:
    """A value for each kind that changes all its elements, each by another number."""
    return {
        kind: (
            np.linspace(0.5, 1.0, len(names)) * AMOUNTS[kind]
            if kind in OFFSETS
            else np.linspace(factor, factor + 0.1, len(names))
        )
        for kind, names in parameters.elements.items()
    }


def body(model: mujoco.MjModel, name: str) -> int:
    return mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, name)


def dof(model: mujoco.MjModel, joint: str) -> int:
    return int(model.joint(joint).dofadr[0])


# --- what each kind writes ---------------------------------------------------------------------


def test_a_mass_brings_its_inertia_and_the_masses_of_subtrees() -> None:
    model, before = model_of(), model_of()
    parameters = MujocoParameters(model)
    parameters.write("mass", at(parameters, "mass", "leg", 1.5))
    leg = body(model, "leg")
    scale = np.where(np.arange(model.nbody) == leg, 1.5, 1.0)
    np.testing.assert_allclose(model.body_mass, before.body_mass * scale, rtol=1e-15)
    np.testing.assert_allclose(model.body_inertia, before.body_inertia * scale[:, None], rtol=1e-15)
    more = 0.5 * before.body_mass[leg]
    above = [0, *(body(model, name) for name in ("torso", "thigh", "leg"))]
    np.testing.assert_allclose(
        model.body_subtreemass - before.body_subtreemass,
        np.where(np.isin(np.arange(model.nbody), above), more, 0.0),
        atol=1e-12,
    )


def test_an_inertia_alone_leaves_the_mass_and_multiplies_with_it() -> None:
    model, before = model_of(), model_of()
    parameters = MujocoParameters(model)
    parameters.write("inertia", at(parameters, "inertia", "thigh", 2.0))
    assert np.array_equal(model.body_mass, before.body_mass)
    thigh = body(model, "thigh")
    np.testing.assert_allclose(model.body_inertia[thigh], 2.0 * before.body_inertia[thigh])
    parameters.write("mass", np.full(4, 1.5))
    np.testing.assert_allclose(model.body_inertia[thigh], 3.0 * before.body_inertia[thigh])
    np.testing.assert_allclose(model.body_inertia[1], 1.5 * before.body_inertia[1])


@pytest.mark.parametrize("first", ["mass", "inertia"])
def test_weights_of_constraints_follow_mass_and_inertia(first: str) -> None:
    model, before = model_of(), model_of()
    parameters = MujocoParameters(model)
    parameters.write(first, np.full(4, 2.0))
    parameters.write("inertia" if first == "mass" else "mass", np.full(4, 0.5))
    other = model_of()
    other.body_mass[:] *= 2.0 if first == "mass" else 0.5  # and the inertia is what it was
    mujoco.mj_setConst(other, mujoco.MjData(other))
    np.testing.assert_allclose(model.body_mass, other.body_mass)
    np.testing.assert_allclose(model.dof_invweight0, other.dof_invweight0, rtol=1e-12)
    np.testing.assert_allclose(model.body_invweight0, other.body_invweight0, rtol=1e-12)
    assert not np.array_equal(model.dof_invweight0, before.dof_invweight0)


def test_a_centre_of_mass_moves_along_axes_of_its_body() -> None:
    model, before = model_of(), model_of()
    parameters = MujocoParameters(model)
    parameters.write("com", at(parameters, "com", "torso.x", 0.04))
    torso = body(model, "torso")
    moved = np.zeros((model.nbody, 3))
    moved[torso, 0] = 0.04
    np.testing.assert_allclose(model.body_ipos, before.body_ipos + moved, atol=1e-15)
    same = int(mujoco.mjtSameFrame.mjSAMEFRAME_BODY)
    assert before.body_sameframe[torso] == same
    assert model.body_sameframe[torso] != same
    others = np.arange(model.nbody) != torso
    assert np.array_equal(model.body_sameframe[others], before.body_sameframe[others])
    assert np.array_equal(model.body_mass, before.body_mass)


@pytest.mark.parametrize("name", ROBOTS)
def test_shapes_and_sites_stay_where_they_are_when_a_centre_of_mass_moves(name: str) -> None:
    model = model_of(name)
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    velocity = rng.standard_normal(model.nv)
    mujoco.mj_integratePos(model, data.qpos, velocity, 0.3)
    mujoco.mj_kinematics(model, data)
    before = [np.array(each) for each in (data.geom_xpos, data.geom_xmat, data.site_xpos)]
    centres = data.xipos.copy()
    parameters = MujocoParameters(model)
    parameters.write("com", np.full(len(parameters.elements["com"]), 0.03))
    mujoco.mj_kinematics(model, data)
    for now, each in zip((data.geom_xpos, data.geom_xmat, data.site_xpos), before, strict=True):
        np.testing.assert_allclose(now, each, atol=1e-12)
    distance = np.linalg.norm(data.xipos - centres, axis=1)
    movable = [i for i in range(1, model.nbody) if not model.body_simple[i]]
    np.testing.assert_allclose(distance[movable], 0.03 * np.sqrt(3), rtol=1e-9)


def test_friction_of_a_shape_scales_all_its_coefficients() -> None:
    model, before = model_of(), model_of()
    parameters = MujocoParameters(model)
    shape = parameters.elements["friction"][-1]
    parameters.write("friction", at(parameters, "friction", shape, 0.25))
    np.testing.assert_allclose(model.geom_friction[:-1], before.geom_friction[:-1], rtol=0)
    np.testing.assert_allclose(model.geom_friction[-1], 0.25 * before.geom_friction[-1])


SERVO = """
<mujoco>
  <worldbody>
    <body name="arm">
      <joint name="elbow" type="hinge" axis="0 1 0" damping="0.3" armature="0.1"/>
      <geom size="0.1" mass="1"/>
      <body name="hand" pos="0.4 0 0">
        <joint name="wrist" type="hinge" axis="0 1 0"/><geom name="palm" size="0.05" mass="0.4"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position joint="elbow" kp="20" kv="2"/>
    <motor name="twist" joint="wrist" gear="3"/>
  </actuator>
</mujoco>
"""


def test_a_gain_scales_the_whole_force_of_a_servo() -> None:
    model = mujoco.MjModel.from_xml_string(SERVO)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.ctrl[:] = (0.3, -0.2), (0.7, 0.1), (0.5, 0.2)
    mujoco.mj_forward(model, data)
    first = data.actuator_force.copy()
    np.testing.assert_allclose(first, [20 * (0.5 - 0.3) - 2 * 0.7, 0.2])
    parameters = MujocoParameters(model)
    parameters.write("gain", np.array([0.6, 1.5]))
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(data.actuator_force, first * [0.6, 1.5], rtol=1e-12)


def test_motors_without_a_name_are_called_by_their_joint() -> None:
    model = mujoco.MjModel.from_xml_string(SERVO)
    assert MujocoParameters(model).elements["gain"] == ["elbow", "twist"]
    hopper = MujocoParameters(model_of())
    assert hopper.elements["gain"] == ["thigh_joint", "leg_joint", "foot_joint"]


def test_motors_that_drive_the_same_joint_keep_their_numbers() -> None:
    both = SERVO.replace('name="twist" joint="wrist"', 'joint="elbow"')
    parameters = MujocoParameters(mujoco.MjModel.from_xml_string(both))
    assert parameters.elements["gain"] == ["0", "1"]


def test_kinds_without_an_element_are_not_there() -> None:
    bare = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><freejoint/><geom size='.1'/></body></worldbody></mujoco>"
    )
    parameters = MujocoParameters(bare)
    assert set(parameters.elements) == {"mass", "inertia", "friction", "gravity", "slope"}
    before = model_bytes(bare)
    parameters.write("mass", np.array([2.0]))
    parameters.restore()
    assert model_bytes(bare) == before


@pytest.mark.parametrize("kind", ["damping", "armature"])
def test_damping_and_armature_are_those_of_the_joint_alone(kind: str) -> None:
    model, before = model_of(), model_of()
    parameters = MujocoParameters(model)
    assert parameters.elements[kind] == ["thigh_joint", "leg_joint", "foot_joint"]
    parameters.write(kind, at(parameters, kind, "leg_joint", 3.0))
    scale = np.ones(model.nv)
    scale[dof(model, "leg_joint")] = 3.0
    expected = getattr(before, f"dof_{kind}") * scale
    np.testing.assert_allclose(getattr(model, f"dof_{kind}"), expected, rtol=1e-15)
    other = "dof_armature" if kind == "damping" else "dof_damping"
    assert np.array_equal(getattr(model, other), getattr(before, other))


def test_dry_friction_is_added_to_its_joint_and_never_below_none() -> None:
    model = mujoco.MjModel.from_xml_string(SERVO.replace('armature="0.1"', 'frictionloss="0.5"'))
    parameters = MujocoParameters(model)
    assert parameters.elements["frictionloss"] == ["elbow", "wrist"]
    parameters.write("frictionloss", np.array([0.2, 0.3]))
    np.testing.assert_allclose(model.dof_frictionloss, [0.7, 0.3])
    parameters.write("frictionloss", np.array([-0.8, 0.0]))
    np.testing.assert_allclose(model.dof_frictionloss, [0.0, 0.0])


def test_dry_friction_holds_a_joint_until_its_torque_is_larger() -> None:
    model = model_of("Reacher-v5")
    parameters = MujocoParameters(model)
    parameters.write("frictionloss", at(parameters, "frictionloss", "joint0", 30.0))
    data = mujoco.MjData(model)
    for torque, moves in ((0.1, False), (1.0, True)):  # gear 200
        mujoco.mj_resetData(model, data)
        data.ctrl[0] = torque
        mujoco.mj_step(model, data, 20)
        assert (abs(data.qpos[0]) > 1e-2) == moves


def test_gravity_is_scaled_and_turned_with_its_size_kept() -> None:
    model = model_of()
    parameters = MujocoParameters(model)
    parameters.write("gravity", np.array([0.5]))
    np.testing.assert_allclose(model.opt.gravity, [0.0, 0.0, -4.905])
    parameters.write("slope", np.array([0.3, 0.0]))
    np.testing.assert_allclose(
        model.opt.gravity, 4.905 * np.array([-np.sin(0.3), 0.0, -np.cos(0.3)]), atol=1e-12
    )
    parameters.write("slope", np.array([0.0, 0.2]))
    np.testing.assert_allclose(
        model.opt.gravity, 4.905 * np.array([0.0, -np.sin(0.2), -np.cos(0.2)]), atol=1e-12
    )
    parameters.write("slope", np.array([0.3, 0.2]))
    assert np.linalg.norm(model.opt.gravity) == pytest.approx(4.905, rel=1e-12)
    parameters.write("gravity", np.array([1.0]))
    assert np.linalg.norm(model.opt.gravity) == pytest.approx(9.81, rel=1e-12)


def test_where_the_floor_rises_along_x_a_ball_rolls_back() -> None:
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><geom type='plane' size='9 9 .1'/><body pos='0 0 .1'><freejoint/>"
        "<geom size='.1'/></body></worldbody></mujoco>"
    )
    MujocoParameters(model).write("slope", np.array([0.2, 0.0]))
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, 250)
    # A rolling ball goes 5/7 of g·sin(angle)·t²/2.
    assert data.qpos[0] == pytest.approx(-5 / 7 * 9.81 * np.sin(0.2) * 0.5**2 / 2, rel=0.05)
    assert abs(data.qpos[1]) < 1e-6


PAIR = """
<mujoco>
  <compiler inertiafromgeom="false"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body name="a" pos="0 0 0.4">
      <inertial pos="{a}" mass="2" diaginertia=".1 .2 .15" quat="{turn}"/>
      <joint name="lift" type="slide" axis="0 0 1"/>
      <joint name="hip" type="hinge" axis="0 1 0" armature="0.01" damping="0.2"/>
      <geom name="one" type="sphere" size=".1"/>
      <geom name="two" type="sphere" size=".1" pos=".2 0 .1"/>
      <body name="b" pos=".3 0 0">
        <inertial pos="{b}" mass="1" diaginertia=".01 .02 .02"/>
        <joint name="knee" type="hinge" axis="0 .6 .8"/>
        <geom name="shin" type="capsule" size=".05 .2" pos="0 0 -.2"/>
        <site name="toe" pos="0 0 -.2"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize("turn", ["1 0 0 0", "0.8 0.6 0 0"])
def test_a_moved_centre_of_mass_is_that_of_a_model_compiled_with_it(turn: str) -> None:
    c = {"a": np.array([0.05, 0.01, -0.02]), "b": np.array([0.0, -0.03, 0.04])}
    first = {"a": np.zeros(3), "b": np.array([0.0, 0.0, -0.2])}

    def compiled(move: float) -> mujoco.MjModel:
        text = {name: " ".join(map(str, first[name] + move * c[name])) for name in c}
        return mujoco.MjModel.from_xml_string(PAIR.format(**text, turn=turn))

    model, wanted, untouched = compiled(0.0), compiled(1.0), compiled(0.0)
    parameters = MujocoParameters(model)
    assert parameters.elements["com"] == ["a.x", "a.y", "a.z", "b.x", "b.y", "b.z"]
    parameters.write("com", np.concatenate([c["a"], c["b"]]))
    rng = np.random.default_rng(0)
    contacts = 0
    for _ in range(40):
        accelerations = []
        q, v = rng.uniform(-0.5, 0.5, 3), rng.standard_normal(3)
        for each in (model, wanted, untouched):
            data = mujoco.MjData(each)
            data.qpos[:], data.qvel[:] = q, v
            mujoco.mj_forward(each, data)
            accelerations.append(data.qacc.copy())
            contacts += data.ncon
        np.testing.assert_allclose(accelerations[0], accelerations[1], rtol=1e-9, atol=1e-9)
        assert np.abs(accelerations[0] - accelerations[2]).max() > 1e-3
    assert contacts > 30
    np.testing.assert_allclose(model.body_invweight0, wanted.body_invweight0, rtol=1e-12)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mass:arm": 2.0}, ('size="0.1" mass="1"', 'size="0.1" mass="2"')),
        ({"damping": 0.5}, ('damping="0.3"', 'damping="0.15"')),
        ({"armature:elbow": 3.0}, ('armature="0.1"', 'armature="0.3"')),
        ({"frictionloss:elbow": 0.2}, ('damping="0.3"', 'damping="0.3" frictionloss="0.2"')),
        ({"gravity": 0.5}, ("<worldbody>", '<option gravity="0 0 -4.905"/><worldbody>')),
        ({"gain:twist": 2.0}, ('gear="3"', 'gear="6"')),
        ({"gain:elbow": 1.5}, ('kp="20" kv="2"', 'kp="30" kv="3"')),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_changes_are_those_of_a_model_compiled_with_them(
    changes: dict[str, float], text: tuple[str, str]
) -> None:
    assert text[0] in SERVO
    model = mujoco.MjModel.from_xml_string(SERVO)
    wanted = mujoco.MjModel.from_xml_string(SERVO.replace(*text))
    parameters = MujocoParameters(model)
    for kind, value in arrays_of(parameters.elements, changes).items():
        parameters.write(kind, value)
    ends = []
    for each in (model, wanted, mujoco.MjModel.from_xml_string(SERVO)):
        data = mujoco.MjData(each)
        data.qvel[:], data.ctrl[:] = (0.4, -0.3), (0.3, 0.1)
        mujoco.mj_step(each, data, 50)
        ends.append(np.concatenate([data.qpos, data.qvel]))
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-9, atol=1e-9)
    assert np.abs(ends[0] - ends[2]).max() > 1e-4


# --- undoing it --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROBOTS)
def test_restore_brings_back_the_whole_model_bit_for_bit(name: str) -> None:
    model = model_of(name)
    first, pristine = model_bytes(model), copy.copy(model)
    parameters = MujocoParameters(model)
    values = every_kind(parameters)
    for kind, value in values.items():
        parameters.write(kind, value)
    assert changed_arrays(model, pristine) >= {"body_mass", "body_ipos", "dof_frictionloss"}
    parameters.restore()
    assert changed_arrays(model, pristine) == set()
    assert model_bytes(model) == first
    for kind, value in values.items():  # each alone
        parameters.write(kind, value)
        assert model_bytes(model) != first
        parameters.restore()
        assert model_bytes(model) == first, kind


@pytest.mark.parametrize("name", ["Hopper-v5", "Ant-v5"])
def test_factors_of_one_and_amounts_of_nothing_leave_every_bit(name: str) -> None:
    model = model_of(name)
    first = model_bytes(model)
    parameters = MujocoParameters(model)
    for kind, names in parameters.elements.items():
        parameters.write(kind, np.full(len(names), first_value(kind)))
    assert model_bytes(model) == first


def test_writing_is_from_first_values_and_not_from_the_last() -> None:
    model, once = model_of(), model_of()
    parameters = MujocoParameters(model)
    for factor in (3.0, 0.1, 1.4):
        for kind, value in every_kind(parameters, factor).items():
            parameters.write(kind, value)
    other = MujocoParameters(once)
    for kind, value in every_kind(other, 1.4).items():
        other.write(kind, value)
    assert changed_arrays(model, once) == set()


def test_what_is_settled_is_first_from_then_on() -> None:
    model = model_of()
    mass, gravity = model.body_mass.copy(), model.opt.gravity.copy()
    parameters = MujocoParameters(model)
    parameters.write("mass", np.full(4, 2.0))
    parameters.write("slope", np.array([0.1, 0.0]))
    parameters.settle()
    parameters.write("mass", np.full(4, 1.5))
    parameters.write("gravity", np.array([2.0]))
    np.testing.assert_allclose(model.body_mass, 3.0 * mass)
    np.testing.assert_allclose(np.linalg.norm(model.opt.gravity), 2 * np.linalg.norm(gravity))
    parameters.restore()
    np.testing.assert_allclose(model.body_mass, 2.0 * mass)
    np.testing.assert_allclose(model.opt.gravity[0], -9.81 * np.sin(0.1))


# --- other models ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Hopper-v5", "Ant-v5"])
def test_writing_into_a_copy_leaves_the_own_model_alone(name: str) -> None:
    model = model_of(name)
    first, other = model_bytes(model), copy.copy(model)
    parameters = MujocoParameters(model)
    values = every_kind(parameters)
    parameters.write_in(other, values)
    assert model_bytes(model) == first
    for kind, value in values.items():
        parameters.write(kind, value)
    assert changed_arrays(model, other) == set()
    parameters.write_in(other, {"mass": values["mass"]})
    alone = MujocoParameters(model_of(name))
    alone.write("mass", values["mass"])
    assert changed_arrays(other, alone.model) == set()
    parameters.restore_in(other)
    assert model_bytes(other) == first


@pytest.mark.parametrize(("kind", "other"), [("mass", "inertia"), ("slope", "gravity")])
def test_writing_into_a_copy_does_not_forget_what_the_own_model_has(kind: str, other: str) -> None:
    model, alike = model_of(), model_of()
    parameters, twin = MujocoParameters(model), MujocoParameters(alike)
    values = every_kind(parameters)
    parameters.write(kind, values[kind])
    parameters.write_in(copy.copy(model), {"mass": np.full(4, 7.0), "gravity": np.array([0.3])})
    parameters.write(other, values[other])
    for each in (kind, other):
        twin.write(each, values[each])
    assert changed_arrays(model, alike) == set()


def test_a_simulator_made_in_an_episode_does_not_undo_a_disturbance() -> None:
    env = Disturbed(
        gym.make("Hopper-v5"), ["bias:value=0.2", "uniform:bound=0.1"], ["mass", "inertia"]
    )
    env.reset(seed=0)
    mass = env.unwrapped.model.body_mass.copy()  # type: ignore[attr-defined]
    for _ in range(3):
        env.step(np.zeros(3))
        sim = simulator(env, noisy=False)
        np.testing.assert_allclose(sim.dynamics.model.body_mass, mass)  # type: ignore[attr-defined]
        np.testing.assert_allclose(env.unwrapped.model.body_mass, 1.2 * mass)  # type: ignore[attr-defined]


# --- other physics -----------------------------------------------------------------------------


class Cart:
    """The attributes of CartPole that its parameters are."""

    masscart, masspole, length, total_mass, polemass_length = 1.0, 0.1, 0.5, 1.1, 0.05


def test_attributes_are_scaled_from_their_first_values_and_what_follows_follows() -> None:
    cart = Cart()
    parameters = AttributeParameters(
        cart, {"mass": {"cart": "masscart", "pole": "masspole"}, "length": {"pole": "length"}}
    )
    for _ in range(2):
        parameters.write("mass", np.array([2.0, 3.0]))
    parameters.write("length", np.array([2.0]))
    assert (cart.masscart, cart.masspole, cart.length) == pytest.approx((2.0, 0.3, 1.0))
    assert (cart.total_mass, cart.polemass_length) == pytest.approx((2.3, 0.3))
    parameters.restore()
    assert (cart.masscart, cart.masspole, cart.length) == (1.0, 0.1, 0.5)
    assert (cart.total_mass, cart.polemass_length) == pytest.approx((1.1, 0.05))
    parameters.write("length", np.array([2.0]))
    parameters.settle()
    parameters.write("length", np.array([2.0]))
    assert cart.length == 2.0


def test_a_functions_parameters_are_scaled_from_their_nominal_values() -> None:
    parameters = DictParameters({"drag": 0.5, "lift": 2.0})
    assert parameters.elements == {"drag": ["drag"], "lift": ["lift"]}
    parameters.write("drag", np.array([1.2]))
    parameters.write("drag", np.array([1.5]))
    assert parameters.now == {"drag": 0.75, "lift": 2.0}
    parameters.restore()
    assert parameters.now == {"drag": 0.5, "lift": 2.0}
    parameters.write("lift", np.array([2.0]))
    parameters.settle()
    parameters.restore()
    assert parameters.now == {"drag": 0.5, "lift": 4.0}


def test_where_there_is_nothing_to_change_nothing_does() -> None:
    parameters = NoParameters()
    parameters.write("mass", np.ones(1))
    parameters.restore()
    parameters.settle()
    assert parameters.elements == {}


# --- a simulator with other parameters ---------------------------------------------------------


def test_a_scaled_simulator_adds_amounts_and_multiplies_factors() -> None:
    env = gym.make("Hopper-v5")
    env.reset(seed=0)
    first = model_bytes(env.unwrapped.model)  # type: ignore[attr-defined]
    sim = simulator(env).scaled({"mass": 1.2, "mass:leg": 1.5, "slope:x": 0.1})
    model: Any = sim.dynamics.model  # type: ignore[attr-defined]
    scale = np.where(np.arange(5) == 3, 1.8, 1.2)
    np.testing.assert_allclose(model.body_mass[1:], env.unwrapped.model.body_mass[1:] * scale[1:])  # type: ignore[attr-defined]
    np.testing.assert_allclose(model.opt.gravity, [-9.81 * np.sin(0.1), 0, -9.81 * np.cos(0.1)])
    assert model_bytes(env.unwrapped.model) == first  # type: ignore[attr-defined]
    assert sim.seconds == pytest.approx(0.008)


def test_scaling_again_is_of_the_environment_and_not_of_what_was_scaled() -> None:
    env = gym.make("Pendulum-v1")
    env.reset(seed=0)
    sim = simulator(env).scaled({"mass": 2.0}).scaled({"gravity": 0.5})
    p: Any = sim.dynamics.p  # type: ignore[attr-defined]
    assert (p.m, p.g) == (1.0, 5.0)
    assert sim.seconds == 0.05


def drag_step(x: np.ndarray, u: np.ndarray, drag: float, push: float) -> Any:
    return x - drag * x + push * u[:, :1], np.zeros(len(x)), np.zeros(len(x), dtype=bool)


def test_a_functions_parameters_reach_the_function() -> None:
    env = gym.make("Pendulum-v1")
    env.reset(seed=0)
    options: Any = {"step": drag_step, "state": lambda base: np.ones(1)}
    sim = simulator(env, parameters={"drag": 0.1, "push": 2.0}, scale={"drag": 3.0}, **options)
    u = np.array([[0.5]])
    np.testing.assert_allclose(sim.step(np.ones((1, 1)), u)[0], [[1 - 0.3 + 1.0]])
    np.testing.assert_allclose(sim.scaled({"push": 0.5}).predict(u[0]), [1 - 0.1 + 0.5])
    assert copy.deepcopy(sim).predict(u[0]) == sim.predict(u[0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"drag": 0.0}, r"parameters\['drag'\] must be greater than 0"),
        ({"drag": "much"}, r"parameters\['drag'\]"),
        ({"slope": 0.1}, "'slope'.*com, frictionloss, slope"),
        ({"delay": 2.0}, "'delay'"),
        ({"drag:left": 0.1}, "'drag:left'"),
    ],
)
def test_a_functions_parameters_that_cannot_be_scaled_are_refused(
    parameters: dict[str, Any], message: str
) -> None:
    env = gym.make("Pendulum-v1")
    with pytest.raises(ValueError, match=message):
        simulator(env, step=drag_step, state=lambda base: np.ones(1), parameters=parameters)


def test_parameters_without_a_function_are_refused() -> None:
    with pytest.raises(ValueError, match="step="):
        simulator(gym.make("Pendulum-v1"), parameters={"drag": 0.1})


# --- states of observations --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Hopper-v5", "HalfCheetah-v5", "Pendulum-v1", "CartPole-v1"])
def test_states_seen_in_observations_are_the_true_ones_where_they_are_known(name: str) -> None:
    env = gym.make(name)
    seen, true = [env.reset(seed=0)[0]], []
    sim = simulator(env)
    true.append(sim.state())
    env.action_space.seed(0)
    for _ in range(8):
        seen.append(env.step(env.action_space.sample())[0])
        true.append(sim.state())
    x, known = sim.states_seen(np.array(seen))
    assert known.all()
    expected = np.array(true)
    if name in ("Hopper-v5", "HalfCheetah-v5"):
        expected[:, 0] = 0.0  # left out of the observation, and nothing depends on it
    np.testing.assert_allclose(sim.gap(x, expected), 0.0, atol=1e-6)


def test_a_state_whose_velocity_was_clipped_is_not_known() -> None:
    sim = simulator(gym.make("Hopper-v5"))
    seen = np.zeros((3, 11))
    seen[1, 7] = 10.0
    seen[2, 10] = -10.0
    assert sim.states_seen(seen)[1].tolist() == [True, False, False]


# --- names -------------------------------------------------------------------------------------

ELEMENTS = {"mass": ["torso", "leg"], "slope": ["x", "y"], "gravity": ["gravity"], "delay": ["d"]}


def test_factors_multiply_and_amounts_add_up() -> None:
    found = arrays_of(
        ELEMENTS, {"mass": 2.0, "mass:leg": 1.5, "slope:x": 0.1, "slope:y": -0.2, "gravity": 0.9}
    )
    np.testing.assert_allclose(found["mass"], [2.0, 3.0])
    np.testing.assert_allclose(found["slope"], [0.1, -0.2])
    np.testing.assert_allclose(found["gravity"], [0.9])
    assert set(found) == {"mass", "slope", "gravity"}
    np.testing.assert_allclose(arrays_of(ELEMENTS, {"delay": 1.0, "delay:d": 2.0})["delay"], [3.0])
    assert arrays_of(ELEMENTS, {}) == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (3, r"scale must be a mapping.*\"mass\": 1\.2.*got 3"),
        (None, "got None"),
        (["mass"], "mapping"),
        ({"weight": 1.1}, "'weight'.*mass, slope, gravity"),
        ({"mass:arm": 1.1}, "'mass:arm'.*torso, leg"),
        ({3: 1.1}, "knows no 3"),
        ({"mass": -1.0}, r"scale\['mass'\] must be greater than 0; got -1"),
        ({"mass": 0}, r"scale\['mass'\] must be greater than 0"),
        ({"mass": np.nan}, r"scale\['mass'\] must be finite"),
        ({"slope:x": np.inf}, r"scale\['slope:x'\] must be finite"),
        ({"mass": "heavy"}, r"scale\['mass'\].*str"),
        ({"mass": [1.0, 2.0]}, r"scale\['mass'\].*shape \(2,\)"),
        ({"slope": 0.1}, "'slope' needs one of x, y"),
    ],
    ids=repr,
)
def test_wrong_changes_are_named(changes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        arrays_of(ELEMENTS, changes, "scale")


def test_where_there_are_no_parameters_the_error_says_so() -> None:
    with pytest.raises(ValueError, match=r"'mass'.*no parameters"):
        arrays_of({}, {"mass": 1.1})


# --- a function and its faults -----------------------------------------------------------------


def in_pairs(x: np.ndarray, u: np.ndarray, drag: float) -> Any:
    return x, np.zeros(len(x))


def in_words(x: np.ndarray, u: np.ndarray, drag: float) -> Any:
    return [["far"]] * len(x), np.zeros(len(x)), np.zeros(len(x), dtype=bool)


def without_parameters(x: np.ndarray, u: np.ndarray) -> Any:
    return x, np.zeros(len(x)), np.zeros(len(x), dtype=bool)


def divided(x: np.ndarray, u: np.ndarray, drag: float) -> Any:
    raise ZeroDivisionError("drag is too small")


def flat(x: np.ndarray, u: np.ndarray, drag: float) -> Any:
    return x[:, 0], np.zeros(len(x)), np.zeros(len(x), dtype=bool)


def spoiling(x: np.ndarray, u: np.ndarray, drag: float) -> Any:
    x *= drag
    return x, np.zeros(len(x)), np.zeros(len(x), dtype=bool)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda x, u, drag: x, r"^step\(x, u, drag=0.1\) must return.*one array of float64"),
        (lambda x, u, drag: None, r"^step\(x, u, drag=0.1\) must return.*; got None"),
        (in_pairs, r"^in_pairs\(x, u, drag=0.1\).*\(3, 2\), \(3,\) and \(3,\).*got 2 values"),
        (in_words, r"^in_words\(.*x_next is a list, not numbers"),
        (without_parameters, r"^without_parameters\(x, u, drag=0.1\).*TypeError.*'drag'"),
        (divided, r"^divided\(x, u, drag=0.1\).*ZeroDivisionError: drag is too small"),
        (flat, r"^flat\(x, u, drag=0.1\).*x_next has shape \(3,\)"),
    ],
)
def test_what_a_function_gets_wrong_is_named_with_its_parameters(step: Any, message: str) -> None:
    env = gym.make("Pendulum-v1")
    sim = simulator(
        env, noisy=False, step=step, state=lambda base: base.state, parameters={"drag": 0.1}
    )
    with pytest.raises(ValueError, match=message):
        sim.step(np.ones((3, 2)), np.ones((3, 1)))


def test_a_function_may_change_its_arguments_and_they_stay() -> None:
    sim = simulator(
        gym.make("Pendulum-v1"), step=spoiling, state=lambda base: base.state,
        parameters={"drag": 0.1},
    )  # fmt: skip
    x = np.ones((3, 2))
    np.testing.assert_allclose(sim.step(x, np.ones((3, 1)))[0], 0.1)
    np.testing.assert_array_equal(x, 1.0)


def reads_nothing(base: Any) -> Any:
    raise AssertionError("there is no state before reset")


def test_a_state_is_not_read_before_there_is_one() -> None:
    env = gym.make("Pendulum-v1")
    sim = simulator(env, step=without_parameters, state=reads_nothing)
    sim.step(np.ones((3, 2)), np.ones((3, 1)))
    with pytest.raises(ValueError, match=r"reads_nothing\(env\) raised.*after reset"):
        sim.state()


def test_a_function_observes_by_another_or_by_the_state_itself() -> None:
    env = gym.make("Pendulum-v1")
    options: Any = {"step": without_parameters, "state": reads_nothing}
    x = np.array([[0.3, 2.0], [1.0, -1.0]])

    def seen(x: np.ndarray) -> np.ndarray:
        return np.stack([np.cos(x[:, 0]), np.sin(x[:, 0]), x[:, 1]], axis=1)

    sim = simulator(env, observation=seen, **options)
    np.testing.assert_allclose(sim.observation(x), seen(x))
    assert sim.terminated(x, np.ones((2, 1))).tolist() == [False, False]
    with pytest.raises(Unsupported, match="record states"):
        sim.state_of(seen(x))
    with pytest.raises(Unsupported, match="give observation="):
        simulator(env, **options).observation(x)
    wide = np.ones((2, 3))
    same = simulator(env, **options)
    np.testing.assert_array_equal(same.observation(wide), wide)
    np.testing.assert_array_equal(same.state_of(wide), wide)
    wrong = simulator(env, observation=lambda x: x, **options)
    with pytest.raises(ValueError, match=r"observation\(x\) must return.*\(2, 3\).*\(2, 2\)"):
        wrong.observation(x)
    with pytest.raises(ValueError, match="step="):
        simulator(env, observation=seen)


def test_changes_go_on_top_of_the_scale_that_a_simulator_was_made_with() -> None:
    env = gym.make("Pendulum-v1")
    x, u = np.array([[0.5, 1.0]]), np.array([[0.7]])
    both = simulator(env, scale={"mass": 2.4, "gravity": 0.5})
    changed = simulator(env, scale={"mass": 2.0}).changed({"mass": 1.2, "gravity": 0.5})
    np.testing.assert_allclose(changed.step(x, u)[0], both.step(x, u)[0])


def test_the_same_simulator_without_noise() -> None:
    sim = simulator(Disturbed(gym.make("Pendulum-v1"), "uniform:bound=0.5", "qvel"))
    x, u = np.zeros((4, 2)), np.zeros((4, 1))
    assert np.ptp(sim.step(x, u)[0][:, 1]) > 0
    calm = sim.quiet()
    assert not calm.noisy
    assert np.ptp(calm.step(x, u)[0][:, 1]) == 0
    assert calm.quiet() is calm
