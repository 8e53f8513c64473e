"""The nominal simulator of an environment whose own model may have been edited."""

from dataclasses import replace

import gymnasium as gym
import numpy as np

from windward.diagnosis.rows import Nominal
from windward.simulators import wrappers
from windward.simulators.mujoco import MujocoDynamics
from windward.simulators.simulator import Simulator, simulator

LOOKS = ("cam_", "light_", "mat_", "tex_", "skin_", "bvh_", "oct_")
"""arrays of a model that are drawn, or follow from others"""


def as_registered(env: gym.Env, nominal: Nominal) -> tuple[Nominal, tuple[str, ...]]:
    """(the simulator to compare with, notes).

    Edits of an environment's own model would be in its simulator too, and could not show: then it
    is compared with the environment that its id makes. Wrappers that remember the values from
    before their changes say what is nominal themselves.
    """
    if not isinstance(nominal, Simulator) or not isinstance(nominal.dynamics, MujocoDynamics):
        return nominal, ()
    layers = list(wrappers.chain(env))
    if any(hasattr(layer, "nominal_parameters") for layer in layers):
        return nominal, ()
    fresh = _fresh(env)
    if fresh is None:
        return nominal, ()
    maps = [[wrappers.maps(each) for each in wrappers.chain(env)] for env in (env, fresh)]
    edited = _edited(nominal.dynamics, simulator(fresh, noisy=False).dynamics)
    if not edited:
        fresh.close()
        return nominal, ()
    what = f"the environment's own model was edited ({', '.join(edited[:4])})"
    if [each for each in maps[0] if each] != [each for each in maps[1] if each]:
        return nominal, (f"{what}: such changes are in its simulator too, and cannot show here",)
    assert env.spec is not None
    note = f"{what}: it is compared with a fresh {env.spec.id}"
    return simulator(fresh, noisy=False), (note,)


def _fresh(env: gym.Env) -> gym.Env | None:
    """The environment made again from its id; None where that is not possible."""
    try:
        spec = env.spec
        if spec is None:
            return None
        return gym.make(replace(spec, kwargs={**spec.kwargs, "render_mode": None}))
    except Exception:
        return None


def _edited(own: MujocoDynamics, fresh: object) -> list[str]:
    """Names of arrays and options of the physics that differ."""
    if not isinstance(fresh, MujocoDynamics):
        return []
    a, b = own.model, fresh.model
    found = []
    for name in dir(a):
        value = getattr(a, name) if name[0] != "_" else None
        if not isinstance(value, np.ndarray) or name.startswith(LOOKS) or name.endswith("rgba"):
            continue
        other = getattr(b, name)
        if value.shape != other.shape or not np.array_equal(value, other, equal_nan=False):
            found.append(name)
    for name in dir(a.opt):
        value = getattr(a.opt, name)
        if name[0] == "_" or callable(value):
            continue
        if not np.array_equal(value, getattr(b.opt, name)):
            found.append(f"opt.{name}")
    return found
