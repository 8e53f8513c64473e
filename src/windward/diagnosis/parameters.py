"""What may have changed: the parameters that a diagnosis tries, and the groups that they form.

A parameter is fitted in a coordinate θ of its own, 0 where nothing changed: the logarithm of a
factor, or an amount over its usual size.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from windward.simulators.classic import CartPoleDynamics
from windward.simulators.mujoco import MujocoDynamics
from windward.simulators.parameters import OFFSETS, first_value
from windward.simulators.variants import Values

CORE = ("mass", "friction", "gain", "damping")
"""kinds of MuJoCo's models that are tried first; other physics have so few that all are"""
BIAS, DELAY = "bias", "delay"
"""kinds that are not of the physics: a constant error of a sensor, late actions"""
TOGETHER = ("friction", "gravity")
"""kinds that are one parameter: all elements change alike"""
GROUPED = ("mass", "gain", "damping", "armature")
"""kinds whose elements often change alike: that counts as one change"""


class Parameter(NamedTuple):
    """One number that may have changed."""

    name: str
    kind: str
    elements: tuple[int, ...]
    """which elements of its kind it moves"""
    size: float
    """of θ = 1: of a logarithm, or an amount in `unit`"""
    unit: str
    """"x" for factors"""
    core: bool
    """whether it is tried first"""

    @property
    def is_factor(self) -> bool:
        """Whether its value multiplies."""
        return self.unit == "x"

    def value(self, theta: float) -> float:
        """The factor or amount of a θ."""
        return float(np.exp(theta * self.size)) if self.is_factor else float(theta * self.size)

    def theta(self, value: float) -> float:
        """The θ of a factor or amount."""
        return float((np.log(value) if self.is_factor else value) / self.size)


class Sizes(NamedTuple):
    """How large a change of each kind usually is: the prior's standard deviation."""

    factor: float = 0.5
    """of the logarithm of a factor"""
    com: float = 0.05
    """m"""
    frictionloss: float = 0.05
    """share of what the strongest motor can do"""
    slope: float = 0.1
    """rad"""
    offset: float = 0.1
    """in usual changes of a coordinate in a step"""
    bias: float = 0.1
    """in the unit of the sensor"""


def parameters_of(
    dynamics: Any, wanted: Sequence[str] | None, sizes: Sizes, observed: bool = False
) -> list[Parameter]:
    """The parameters of a simulator that may have changed; `wanted` names kinds or single ones.

    Sensors are among them where states are `observed`. Late actions are no parameter of a simulator
    but may be wanted.
    """
    elements = {kind: list(names) for kind, names in dynamics.parameters.elements.items()}
    physics = isinstance(dynamics, MujocoDynamics)
    if physics:
        _leave_out(elements, dynamics.model)
    found = []
    if wanted is not None:
        _check_sensors(wanted, dynamics)
    for kind, names in elements.items():
        core = kind in CORE or not physics
        unit = OFFSETS.get(kind, "x")
        size = getattr(sizes, kind, sizes.factor) if kind in OFFSETS else sizes.factor
        if kind == "frictionloss":
            size *= _strongest(dynamics.model)
        whole = dynamics.parameters.elements[kind]
        if kind in TOGETHER or len(whole) == 1:
            found.append(Parameter(kind, kind, tuple(range(len(whole))), size, unit, core))
            continue
        for name in names:
            found.append(
                Parameter(f"{kind}:{name}", kind, (list(whole).index(name),), size, unit, core)
            )
    if observed:
        found += _sensors(dynamics, sizes)
    if wanted is None:
        return found
    return _chosen(found, wanted)


def _check_sensors(wanted: Sequence[str], dynamics: Any) -> None:
    """Refuses sensors that there are not, whether they are fitted or compared."""
    known = {BIAS, *(f"{BIAS}:{number}" for number in observed_numbers(dynamics))}
    for name in [wanted] if isinstance(wanted, str) else wanted:
        if name.partition(":")[0] == BIAS and (name not in known or len(known) == 1):
            numbers = ", ".join(sorted(known - {BIAS})) or "none"
            raise ValueError(
                f"parameters has no {name!r} here; a bias is found of numbers of the observation "
                f"that are in the state too: {numbers}"
            )


def wants_delay(wanted: Sequence[str] | None) -> bool:
    """Whether late actions are among what may have changed."""
    return wanted is None or DELAY in ([wanted] if isinstance(wanted, str) else wanted)


def wants_bias(wanted: Sequence[str] | None) -> bool:
    """Whether a bias of sensors is."""
    names = [wanted] if isinstance(wanted, str) else wanted
    return names is None or any(name.partition(":")[0] == BIAS for name in names)


def observed_numbers(dynamics: Any) -> dict[int, int]:
    """Numbers of an observation that are numbers of the state: {in the one: in the other}."""
    if isinstance(dynamics, MujocoDynamics):
        return dynamics.observed()
    if isinstance(dynamics, CartPoleDynamics):
        return {i: i for i in range(dynamics.d_x)}
    return {}


def _sensors(dynamics: Any, sizes: Sizes) -> list[Parameter]:
    """A bias of each number of an observation that is one of the state as well."""
    unit = OFFSETS[BIAS]
    return [
        Parameter(f"{BIAS}:{number}", BIAS, (i,), sizes.bias, unit, False)
        for number, i in observed_numbers(dynamics).items()
    ]


def _chosen(found: list[Parameter], wanted: Sequence[str]) -> list[Parameter]:
    known = {each.kind for each in found} | {each.name for each in found} | {DELAY}
    if isinstance(wanted, str):
        wanted = [wanted]
    for name in wanted:
        if name not in known and name.partition(":")[0] != BIAS:
            kinds = ", ".join([*dict.fromkeys(each.kind for each in found), DELAY])
            raise ValueError(f"parameters has no {name!r} here; there are {kinds}")
    chosen = [each for each in found if each.kind in wanted or each.name in wanted]
    return [each._replace(core=True) for each in chosen]


def _leave_out(elements: dict[str, list[str]], model: Any) -> None:
    """Elements that cannot show: bodies without mass, dry friction where a robot floats."""
    heavy = [bool(mass > 0) for mass in model.body_mass[1:]]
    for kind in ("mass", "inertia"):
        elements[kind] = [name for name, has in zip(elements[kind], heavy, strict=True) if has]
    moved = set(elements["mass"])
    elements["com"] = [name for name in elements.get("com", []) if name.rpartition(".")[0] in moved]
    driven = set(model.actuator_trnid[:, 0].tolist())
    floating = [
        model.joint(name).id not in driven
        and model.body_parentid[model.jnt_bodyid[model.joint(name).id]] == 0
        if _named(model, name)
        else True
        for name in elements.get("frictionloss", [])
    ]
    elements["frictionloss"] = [
        name
        for name, floats in zip(elements.get("frictionloss", []), floating, strict=True)
        if not floats
    ]


def _named(model: Any, name: str) -> bool:
    try:
        model.joint(name)
    except KeyError:
        return False
    return True


def _strongest(model: Any) -> float:
    """The largest force of a motor, in newton metres or newtons."""
    if not model.nu:
        return 1.0
    limited = np.where(model.actuator_ctrllimited, np.abs(model.actuator_ctrlrange).max(axis=1), 1)
    force = np.abs(model.actuator_gear[:, 0] * model.actuator_gainprm[:, 0]) * limited
    return float(max(force.max(), 1e-6))


class Atom(NamedTuple):
    """One change in words: a parameter alone, or all of a kind alike."""

    name: str
    columns: tuple[int, ...]
    """the parameters that it moves"""


def atoms_of(parameters: Sequence[Parameter]) -> list[Atom]:
    """Every change that counts as one."""
    found = [Atom(each.name, (i,)) for i, each in enumerate(parameters)]
    for kind in GROUPED:
        own = tuple(i for i, each in enumerate(parameters) if each.kind == kind)
        if len(own) > 1:
            found.append(Atom(kind, own))
    return found


def values_of(
    parameters: Sequence[Parameter], theta: np.ndarray, elements: Mapping[str, Sequence[str]]
) -> Values:
    """θ as values by kind, as simulators take them; kinds that nothing moves are left out."""
    found: dict[str, np.ndarray] = {}
    for each, number in zip(parameters, theta, strict=True):
        if number == 0.0:
            continue
        kind = each.kind
        if kind == BIAS:
            continue
        if kind not in found:
            found[kind] = np.full(len(elements[kind]), first_value(kind))
        found[kind][list(each.elements)] = each.value(float(number))
    return found
