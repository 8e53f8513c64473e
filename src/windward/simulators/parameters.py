"""Model parameters that can change: p -> p·factor, one factor for each named element."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import mujoco
import numpy as np


class Parameters(Protocol):
    """The parameters of a model, with the values it had at first."""

    elements: Mapping[str, Sequence[str]]
    """kinds ("mass") -> names of their elements ("torso", ...)"""

    def write(self, kind: str, factor: np.ndarray) -> None:
        """Sets a kind to its first values times one factor for each element."""
        ...

    def restore(self) -> None:
        """Sets everything back."""
        ...


def _names(model: mujoco.MjModel, kind: mujoco.mjtObj, count: int, first: int = 0) -> list[str]:
    """Names of a model's elements; those without one are called by their number."""
    return [mujoco.mj_id2name(model, kind, i) or str(i) for i in range(first, count)]


class MujocoParameters:
    """Mass (with inertia) of bodies, friction of geoms, gravity, gain of actuators."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self.model = model
        self.elements: dict[str, list[str]] = {
            "mass": _names(model, mujoco.mjtObj.mjOBJ_BODY, model.nbody, first=1),
            "friction": _names(model, mujoco.mjtObj.mjOBJ_GEOM, model.ngeom),
            "gravity": ["gravity"],
            "gain": _names(model, mujoco.mjtObj.mjOBJ_ACTUATOR, model.nu),
        }
        self._first = {
            kind: [array.copy() for array in self._arrays(model, kind)] for kind in self.elements
        }
        self._scratch: mujoco.MjData | None = None

    @staticmethod
    def _arrays(model: mujoco.MjModel, kind: str) -> list[np.ndarray]:
        """Views of what a kind changes; the first axis runs over its elements."""
        match kind:
            case "mass":
                return [model.body_mass[1:], model.body_inertia[1:]]
            case "friction":
                return [model.geom_friction]
            case "gravity":
                return [model.opt.gravity[None]]
            case _:
                # An actuator's force is gain·ctrl + bias: both, so that the whole force scales.
                return [model.actuator_gainprm, model.actuator_biasprm]

    def _set(self, model: mujoco.MjModel, kind: str, factor: np.ndarray | None) -> None:
        for array, first in zip(self._arrays(model, kind), self._first[kind], strict=True):
            if factor is None:
                array[...] = first
            else:
                array[...] = first * factor.reshape((-1,) + (1,) * (first.ndim - 1))
        if kind == "mass":
            # Quantities that follow from masses (weights of constraints, subtree masses).
            if self._scratch is None:
                self._scratch = mujoco.MjData(model)
            mujoco.mj_setConst(model, self._scratch)

    def write(self, kind: str, factor: np.ndarray) -> None:
        """See Parameters."""
        self._set(self.model, kind, factor)

    def restore(self) -> None:
        """See Parameters."""
        self.restore_in(self.model)

    def restore_in(self, model: mujoco.MjModel) -> None:
        """Writes the first values into another model of the same structure."""
        for kind in self.elements:
            self._set(model, kind, None)


class AttributeParameters:
    """Parameters that are attributes of an environment: masses, gravity, force of the motor."""

    def __init__(self, env: Any, attributes: Mapping[str, Mapping[str, str]]) -> None:
        self.env, self._attributes = env, attributes
        self.elements = {kind: list(names) for kind, names in attributes.items()}
        self.first = {
            attribute: getattr(env, attribute)
            for names in attributes.values()
            for attribute in names.values()
        }

    def write(self, kind: str, factor: np.ndarray) -> None:
        """See Parameters."""
        for attribute, each in zip(self._attributes[kind].values(), factor, strict=True):
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
