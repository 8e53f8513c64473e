"""Model parameters that can change: factors on first values, or amounts added to them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import mujoco
import numpy as np

from windward import checks

OFFSETS: Mapping[str, str] = {
    "com": "m",
    "frictionloss": "N m",
    "slope": "rad",
    "offset": "",
    "bias": "",
    "delay": "steps",
}
"""kinds whose value is added, with their unit; all other kinds are factors, 1 where nothing changed

com           moves a body's centre of mass along an axis of its body
frictionloss  dry friction of a joint
slope         turns gravity, as if the floor rose along an axis
offset        a constant change of a coordinate in a step
bias          a constant error of a sensor
delay         steps by which actions come late
"""


def first_value(kind: str) -> float:
    """What a parameter of this kind is where nothing changed."""
    return 0.0 if kind in OFFSETS else 1.0


class Parameters(Protocol):
    """The parameters of a model, with the values it had at first."""

    elements: Mapping[str, Sequence[str]]
    """kinds ("mass") -> names of their elements ("torso", ...)"""

    def write(self, kind: str, value: np.ndarray) -> None:
        """Sets a kind: one factor, or for a kind in OFFSETS one amount, for each element."""
        ...

    def restore(self) -> None:
        """Sets everything back."""
        ...

    def settle(self) -> None:
        """Takes the values there are now for the first ones."""
        ...


def arrays_of(
    elements: Mapping[str, Sequence[str]], changes: Any, name: str = "changes"
) -> dict[str, np.ndarray]:
    """Values by kind from changes by name: {"mass": 1.2, "mass:torso": 1.1, "slope:x": 0.1}.

    Factors of several entries multiply, amounts add up.
    """
    if not isinstance(changes, Mapping):
        raise ValueError(f'{name} must be a mapping such as {{"mass": 1.2}}; got {changes!r}')
    found: dict[str, np.ndarray] = {}
    for key, value in changes.items():
        kind, _, element = str(key).partition(":")
        if kind not in elements or (element and element not in elements[kind]):
            known = ", ".join(elements.get(kind, elements))
            raise ValueError(f"{name} knows no {key!r} here; there are {known or 'no parameters'}")
        number = checks.finite_array(f"{name}[{key!r}]", value, ndim=0).item()
        if kind not in OFFSETS:
            checks.positive(f"{name}[{key!r}]", number)
        elif not element and len(elements[kind]) > 1:
            raise ValueError(f"{name}: {key!r} needs one of {', '.join(elements[kind])}")
        array = found.setdefault(kind, np.full(len(elements[kind]), first_value(kind)))
        picked = np.array([not element or element == each for each in elements[kind]])
        array[picked] = array[picked] + number if kind in OFFSETS else array[picked] * number
    return found


class NoParameters:
    """There is nothing to scale."""

    elements: Mapping[str, Sequence[str]] = {}

    def write(self, kind: str, value: np.ndarray) -> None:
        """See Parameters."""

    def restore(self) -> None:
        """See Parameters."""

    def settle(self) -> None:
        """See Parameters."""


class DictParameters:
    """Parameters of a user's function by name: each is a kind of its own with one element."""

    def __init__(self, first: Mapping[str, float]) -> None:
        self.first = dict(first)
        self.elements: Mapping[str, Sequence[str]] = {name: [name] for name in first}
        self.now = dict(first)

    def write(self, kind: str, value: np.ndarray) -> None:
        """See Parameters."""
        self.now[kind] = self.first[kind] * float(value[0])

    def restore(self) -> None:
        """See Parameters."""
        self.now = dict(self.first)

    def settle(self) -> None:
        """See Parameters."""
        self.first = dict(self.now)


def _names(model: mujoco.MjModel, kind: mujoco.mjtObj, count: int, first: int = 0) -> list[str]:
    """Names of a model's elements; those without one are called by their number."""
    return [mujoco.mj_id2name(model, kind, i) or str(i) for i in range(first, count)]


def _motors(model: mujoco.MjModel) -> list[str]:
    """Names of actuators; those without one are called by the joint that they drive."""
    names = _names(model, mujoco.mjtObj.mjOBJ_ACTUATOR, model.nu)
    joints = _names(model, mujoco.mjtObj.mjOBJ_JOINT, model.njnt)
    driven = model.actuator_trntype == int(mujoco.mjtTrn.mjTRN_JOINT)
    own = [
        joints[int(model.actuator_trnid[i, 0])] if name == str(i) and driven[i] else name
        for i, name in enumerate(names)
    ]
    return own if len(set(own)) == len(own) else names


_ARRAYS = (
    "body_mass",
    "body_inertia",
    "body_ipos",
    "body_sameframe",
    "geom_sameframe",
    "site_sameframe",
    "bvh_aabb",
    "geom_friction",
    "actuator_gainprm",
    "actuator_biasprm",
    "dof_damping",
    "dof_armature",
    "dof_frictionloss",
)
_CONSTANTS = ("mass", "inertia", "com", "armature")
"""kinds from which MuJoCo computes constants: weights of constraints, subtree masses"""
_DERIVED = (
    "actuator_acc0",
    "body_invweight0",
    "body_subtreemass",
    "dof_M0",
    "dof_invweight0",
    "tendon_invweight0",
)
"""those constants"""
_AXES = "xyz"
_AT_COM = int(mujoco.mjtSameFrame.mjSAMEFRAME_INERTIA)
_TURNED_ALIKE = int(mujoco.mjtSameFrame.mjSAMEFRAME_INERTIAROT)
_CONJUGATE = np.array([1.0, -1.0, -1.0, -1.0])


class MujocoParameters:
    """The parameters of a MuJoCo model; mass brings inertia with it."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self.model = model
        bodies = _names(model, mujoco.mjtObj.mjOBJ_BODY, model.nbody, first=1)
        joints = np.array(_names(model, mujoco.mjtObj.mjOBJ_JOINT, model.njnt))
        self._joint_of = joint_of = np.asarray(model.dof_jntid)
        damped, geared = (
            np.unique(joint_of[array > 0]) for array in (model.dof_damping, model.dof_armature)
        )
        scalar = np.flatnonzero(model.jnt_type >= int(mujoco.mjtJoint.mjJNT_SLIDE))
        # Where MuJoCo takes the frame of a free body for that of its mass, this cannot be undone.
        movable = [i for i in range(1, model.nbody) if not model.body_simple[i]]
        self._picked = {
            "damping": damped,
            "armature": geared,
            "frictionloss": scalar,
            "com": np.array(movable, dtype=int),
        }
        listed: dict[str, list[str]] = {
            "mass": bodies,
            "friction": _names(model, mujoco.mjtObj.mjOBJ_GEOM, model.ngeom),
            "gravity": ["gravity"],
            "gain": _motors(model),
            "inertia": bodies,
            "damping": joints[damped].tolist(),
            "armature": joints[geared].tolist(),
            "com": [f"{bodies[i - 1]}.{axis}" for i in movable for axis in _AXES],
            "frictionloss": joints[scalar].tolist(),
            "slope": ["x", "y"],
        }
        self.elements = {kind: names for kind, names in listed.items() if names}
        self._scratch: mujoco.MjData | None = None
        self.settle()

    def settle(self) -> None:
        """See Parameters."""
        self.first = {name: np.array(getattr(self.model, name)) for name in (*_ARRAYS, *_DERIVED)}
        self.first["gravity"] = np.array(self.model.opt.gravity)
        self._written: dict[str, np.ndarray] = {}

    def write(self, kind: str, value: np.ndarray) -> None:
        """See Parameters."""
        self._written[kind] = np.array(value, dtype=np.float64)
        self._apply(self.model, kind, self._written)
        if kind in _CONSTANTS:
            self._derive(self.model)

    def restore(self) -> None:
        """See Parameters."""
        self._written = {}
        self.restore_in(self.model)

    def restore_in(self, model: mujoco.MjModel) -> None:
        """Writes the first values into another model of the same structure."""
        self.write_in(model, {})

    def write_in(
        self, model: mujoco.MjModel, values: Mapping[str, np.ndarray], derive: bool = True
    ) -> None:
        """Writes all kinds into another model of the same structure; first values if left out.

        Args:
            model: the other model.
            values: kinds -> values.
            derive: compute what MuJoCo derives from masses; else it stays as at first, as in a
                model that was edited without `mj_setConst`.
        """
        for kind in self.elements:
            if kind not in ("inertia", "slope"):  # written with mass and gravity
                self._apply(model, kind, values)
        self._derive(model)
        if not derive or not any(kind in values for kind in _CONSTANTS):
            # To the bit, also of a model where they are not what MuJoCo derives.
            for name in _DERIVED:
                getattr(model, name)[:] = self.first[name]

    def _value(self, kind: str, values: Mapping[str, np.ndarray]) -> np.ndarray:
        if kind in values:
            return values[kind]
        return np.full(len(self.elements.get(kind, ())), first_value(kind))

    def _apply(self, model: mujoco.MjModel, kind: str, values: Mapping[str, np.ndarray]) -> None:
        """Writes one kind into a model, with those kinds that share an array with it."""
        first, value = self.first, self._value(kind, values)
        match kind:
            case "mass" | "inertia":
                mass, inertia = self._value("mass", values), self._value("inertia", values)
                model.body_mass[1:] = first["body_mass"][1:] * mass
                model.body_inertia[1:] = first["body_inertia"][1:] * (mass * inertia)[:, None]
            case "com":
                self._move(model, value.reshape(-1, len(_AXES)))
            case "friction":
                model.geom_friction[:] = first["geom_friction"] * value[:, None]
            case "gravity" | "slope":
                model.opt.gravity[:] = self._tilted(values)
            case "gain":
                # An actuator's force is gain·ctrl + bias: both, so that the whole force scales.
                for name in ("actuator_gainprm", "actuator_biasprm"):
                    getattr(model, name)[:] = first[name] * value[:, None]
            case "damping" | "armature":
                each = np.ones(model.njnt)
                each[self._picked[kind]] = value
                getattr(model, f"dof_{kind}")[:] = first[f"dof_{kind}"] * each[self._joint_of]
            case "frictionloss":
                each = np.zeros(model.njnt)
                each[self._picked[kind]] = value
                # No less than none: dry friction takes energy only.
                more = first["dof_frictionloss"] + each[self._joint_of]
                model.dof_frictionloss[:] = np.maximum(more, 0.0)
            case _:
                raise AssertionError(f"nothing says how to write {kind!r}")

    def _move(self, model: mujoco.MjModel, moved: np.ndarray) -> None:
        """Moves centres of mass, and nothing that MuJoCo keeps relative to them."""
        for name in ("body_ipos", "body_sameframe", "geom_sameframe", "site_sameframe", "bvh_aabb"):
            getattr(model, name)[:] = self.first[name]
        model.body_ipos[self._picked["com"]] += moved
        # MuJoCo 4 works out the rest in mj_setConst, earlier versions do not.
        for body, each in zip(self._picked["com"], moved, strict=True):
            if not each.any():
                continue
            model.body_sameframe[body] = 0
            for frames, bodies in (
                (model.geom_sameframe, model.geom_bodyid),
                (model.site_sameframe, model.site_bodyid),
            ):
                frames[(bodies == body) & (frames == _AT_COM)] = _TURNED_ALIKE
            back, own = np.empty(3), int(model.body_bvhadr[body])
            mujoco.mju_rotVecQuat(back, -each, model.body_iquat[body] * _CONJUGATE)
            model.bvh_aabb[own : own + int(model.body_bvhnum[body]), :3] += back

    def _derive(self, model: mujoco.MjModel) -> None:
        if self._scratch is None:
            self._scratch = mujoco.MjData(model)
        mujoco.mj_setConst(model, self._scratch)

    def _tilted(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Gravity scaled, and turned about y and x: the floor rises along x and y."""
        gravity = self.first["gravity"] * self._value("gravity", values)[0]
        if "slope" not in values:
            return gravity
        along_x, along_y = values["slope"]
        c, s = np.cos(along_x), np.sin(along_x)
        gravity = np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]]) @ gravity
        c, s = np.cos(along_y), np.sin(along_y)
        return np.array([[1.0, 0.0, 0.0], [0.0, c, s], [0.0, -s, c]]) @ gravity


class AttributeParameters:
    """Parameters that are attributes of an environment: masses, gravity, force of the motor."""

    def __init__(self, env: Any, attributes: Mapping[str, Mapping[str, str]]) -> None:
        self.env, self._attributes = env, attributes
        self.elements = {kind: list(names) for kind, names in attributes.items()}
        self.settle()

    def settle(self) -> None:
        """See Parameters."""
        self.first = {
            attribute: getattr(self.env, attribute)
            for names in self._attributes.values()
            for attribute in names.values()
        }

    def write(self, kind: str, value: np.ndarray) -> None:
        """See Parameters."""
        for attribute, each in zip(self._attributes[kind].values(), value, strict=True):
            setattr(self.env, attribute, self.first[attribute] * float(each))
        self._follow()

    def restore(self) -> None:
        """See Parameters."""
        for attribute, value in self.first.items():
            setattr(self.env, attribute, value)
        self._follow()

    def _follow(self) -> None:
        """CartPole keeps two quantities that follow from its masses."""
        if hasattr(self.env, "polemass_length"):
            self.env.total_mass = self.env.masspole + self.env.masscart
            self.env.polemass_length = self.env.masspole * self.env.length
