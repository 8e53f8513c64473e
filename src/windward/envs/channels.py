"""Where it pushes: the channels of an environment, each with a shape.

state, qpos, qvel       added to the state after the physics step
force:BODY, torque:BODY applied through the step (MuJoCo: newtons and newton metres, world frame)
action, observation     added, and kept inside the space
reward                  added
mass, friction, gravity, gain, inertia, damping, armature, length
                        p -> p·(1 + w) through the step; mass:BODY and so on for one element
com:BODY.AXIS, frictionloss:JOINT, slope:AXIS
                        p -> p + w through the step, in metres, newton metres, radians
"""

from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np

from windward.simulators.base import Physics
from windward.simulators.physics import physics_of

Stage = Literal["action", "push", "parameter", "state", "observation", "reward"]
PHYSICAL = (
    "qpos", "qvel", "state", "force", "torque", "mass", "friction", "gravity", "gain", "inertia",
    "damping", "armature", "length", "com", "frictionloss", "slope",
)  # fmt: skip


class Channel(NamedTuple):
    """A place where a disturbance enters, and when in a step it does."""

    name: str
    stage: Stage
    shape: tuple[int, ...]
    part: str = ""
    """the part of the state, the force, or the kind of parameter"""
    elements: np.ndarray | None = None
    """which elements of a kind of parameter"""


def channels_of(env: gym.Env) -> dict[str, Channel]:
    """All channels of an environment by name."""
    return _channels(env, physics_of(env.unwrapped))


def _channels(env: gym.Env, physics: Physics | None) -> dict[str, Channel]:
    found: dict[str, Channel] = {}
    if physics is not None:
        for part, index in physics.parts.items():
            found[part] = Channel(part, "state", index.shape, part)
        for name, size in physics.pushes.items():
            found[name] = Channel(name, "push", (size,), name)
        for kind, names in physics.parameters.elements.items():
            count = len(names)
            found[kind] = Channel(kind, "parameter", (count,), kind, np.arange(count))
            for i, name in enumerate(names):
                if name != kind:
                    one = f"{kind}:{name}"
                    found[one] = Channel(one, "parameter", (1,), kind, np.array([i]))
    action, observation = env.action_space, env.observation_space
    if isinstance(action, gym.spaces.Box):
        found["action"] = Channel("action", "action", action.shape)
    if isinstance(observation, gym.spaces.Box):
        found["observation"] = Channel("observation", "observation", observation.shape)
    found["reward"] = Channel("reward", "reward", (1,))
    return found


def _listed(found: dict[str, Channel]) -> str:
    return ", ".join(found)


def resolve(name: Any, env: gym.Env, physics: Physics | None) -> Channel:
    """The channel of that name, or an error that says what this environment has."""
    found = _channels(env, physics)
    if isinstance(name, str) and name in found:
        return found[name]
    base = type(env.unwrapped).__name__
    possible = f"{base} has {_listed(found)}"
    if name is None:
        raise ValueError(f"say where to disturb: channel=...; {possible}")
    if not isinstance(name, str):
        raise ValueError(f"channel must be a name; got {name!r}; {possible}")
    kind, _, element = name.partition(":")
    own = [each for each in found if each.startswith(f"{kind}:")]
    if not element and len(own) == 1:
        return found[own[0]]
    if own and element:
        raise ValueError(
            f"there is no {element!r} for channel {kind!r} here; there are {', '.join(own)}"
        )
    if own:
        raise ValueError(f"channel {name!r} needs a body; there are {', '.join(own)}")
    spaces = {"action": env.action_space, "observation": env.observation_space}
    if name in spaces:
        space = spaces[name]
        hint = (
            "; flatten it first with gymnasium.wrappers.FlattenObservation"
            if name == "observation" and isinstance(space, (gym.spaces.Dict, gym.spaces.Tuple))
            else ""
        )
        raise ValueError(
            f"channel {name!r} needs a Box space; it is {type(space).__name__}{hint}; {possible}"
        )
    if kind in PHYSICAL and physics is None:
        raise ValueError(
            f"channel {name!r} needs a physics that windward knows (MuJoCo, Pendulum, CartPole); "
            f"{possible}"
        )
    raise ValueError(f"there is no channel {name!r}; {possible}")
