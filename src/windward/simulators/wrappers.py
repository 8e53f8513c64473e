"""Looks through the wrappers around an environment, and says so where it cannot.

Actions pass through `ActionWrapper`s, observations and rewards through their stateless kinds; time
limits, checkers and recorders leave all three alone. A wrapper class of one's own that leaves the
dynamics alone says `see_through = True`.

A wrapper that disturbs, as `windward.envs.Disturbed` does, is left out by simulators. Its class may
offer them two things, and no other is asked of it:

`fresh_noise(rng)`     its iid disturbances as (`Place`, `Noise`), drawn anew from a simulator's own
                       generator; none without it.
`nominal_parameters`   `Parameters` that remember the values from before any disturbance by it or by
                       wrappers inside it, or None where these disturb none. The innermost wrapper
                       that has them was there first.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from windward.simulators.parameters import Parameters
from windward.simulators.shell import Unsupported

PASSIVE = (gym.wrappers.PassiveEnvChecker, gym.wrappers.OrderEnforcing, gym.wrappers.TimeLimit)
"""Wrappers that neither change what passes nor draw conclusions from it."""
_RECORDERS = (
    gym.wrappers.RecordEpisodeStatistics,
    gym.wrappers.RecordVideo,
    gym.wrappers.RenderCollection,
    gym.wrappers.HumanRendering,
    "stable_baselines3.common.monitor.Monitor",
)
"""Wrappers that change nothing but record what passes."""
_MAPS: dict[Any, str] = {
    gym.ActionWrapper: "action",
    gym.ObservationWrapper: "observation",
    gym.RewardWrapper: "reward",
}


class Place(Protocol):
    """Where in a step noise enters."""

    @property
    def name(self) -> str:
        """The place in words."""
        ...

    @property
    def stage(self) -> str:
        """Of "action", "push" and "state"; a simulator leaves out noise on anything else."""
        ...

    @property
    def part(self) -> str:
        """The name of the force, or of the part of the state."""
        ...


class Noise(Protocol):
    """An iid disturbance, drawn anew."""

    def next(self, n: int) -> np.ndarray:
        """n rows for the coming step."""
        ...

    def memory(self) -> dict[str, Any]:
        """Where it is, as JSON can hold it."""
        ...

    def remember(self, memory: dict[str, Any]) -> None:
        """Goes on from there; the generator is then anywhere."""
        ...


def chain(env: gym.Env) -> Iterator[gym.Wrapper]:
    """The wrappers around an environment, the outermost first."""
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def _is(layer: gym.Wrapper, kinds: tuple[Any, ...]) -> bool:
    """Whether a layer is one of the kinds, or of a class made from one that steps alike."""
    name = f"{type(layer).__module__}.{type(layer).__name__}"
    return any(
        name == kind
        if isinstance(kind, str)
        else isinstance(layer, kind) and type(layer).step is kind.step
        for kind in kinds
    )


def maps(layer: gym.Wrapper) -> str:
    """What a layer maps: "action", "observation", "reward", or "" for nothing.

    Raises Unsupported for a layer that keeps a state of its own or changes how steps go.
    """
    kind = type(layer)
    if getattr(kind, "see_through", False) or _is(layer, PASSIVE) or _is(layer, _RECORDERS):
        return ""
    stateful = isinstance(layer, gym.wrappers.AddRenderObservation) or kind.__module__.startswith(
        "gymnasium.wrappers.stateful_"
    )
    for base, name in _MAPS.items():
        # A reset of its own says that a map has a state to reset.
        plain = kind.step is base.step and kind.reset is base.reset
        if isinstance(layer, base) and plain and not stateful:
            return name
    if kind.step is gym.Wrapper.step:
        return ""
    raise Unsupported(
        f"windward cannot see through the wrapper {kind.__name__}, which keeps a state of its own "
        "or has a step of its own: leave it outside, and use windward on the environment in it. "
        "If it leaves actions, observations, rewards and ends alone, say see_through = True on "
        "its class"
    )


def observe_through(layers: list[gym.Wrapper], observation: Any) -> Any:
    """An observation of the innermost environment as seen from outside, innermost layer first."""
    for layer in reversed(layers):
        if maps(layer) == "observation":
            observation = layer.observation(observation)
        elif hasattr(layer, "observe_again"):
            observation = layer.observe_again(observation)
    return observation


def act_through(layers: list[gym.Wrapper], action: Any) -> Any:
    """An action from outside as it reaches the innermost environment, outermost layer first."""
    for layer in layers:
        if maps(layer) == "action":
            action = layer.action(action)  # type: ignore[attr-defined]
        elif hasattr(layer, "act_now"):
            action = layer.act_now(action)
    return action


def fresh_noise(layer: gym.Wrapper, rng: np.random.Generator) -> Sequence[tuple[Place, Noise]]:
    """The iid disturbances of a layer, drawn from `rng`."""
    if not hasattr(type(layer), "fresh_noise"):
        return []
    return layer.fresh_noise(rng)  # type: ignore[attr-defined]


def nominal_parameters(layers: list[gym.Wrapper]) -> Parameters | None:
    """The parameters from before any disturbance; None where no layer disturbs them."""
    found = [getattr(layer, "nominal_parameters", None) for layer in reversed(layers)]
    return next((each for each in found if each is not None), None)


def check_inside(layers: list[gym.Wrapper]) -> None:
    """Refuses layers inside Disturbed that would record an observation or end it then changes."""
    for layer in layers:
        maps(layer)
        if _is(layer, _RECORDERS):
            raise Unsupported(
                f"{type(layer).__name__} inside Disturbed would record observations and ends that "
                "the disturbance of the state then changes: put it outside, around Disturbed"
            )


def within(value: Any, w: np.ndarray, space: gym.spaces.Box) -> np.ndarray:
    """value + w, with w cut where it would leave the space; a value outside already stays."""
    value = np.asarray(value)
    moved = np.clip(
        value + w, np.minimum(space.low, value), np.maximum(space.high, value), dtype=np.float64
    )
    if np.issubdtype(space.dtype, np.integer):
        return np.rint(moved).astype(space.dtype)
    return moved.astype(value.dtype if np.issubdtype(value.dtype, np.floating) else space.dtype)
