"""Looks through the wrappers around an environment, and says so where it cannot.

Actions pass through `ActionWrapper`s, observations and rewards through their stateless kinds; time
limits, checkers and recorders leave all three alone. A wrapper class of one's own that leaves the
dynamics alone says `see_through = True`.
"""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
from gymnasium import wrappers

from windward.envs.physics import Unsupported

PASSIVE = (wrappers.PassiveEnvChecker, wrappers.OrderEnforcing, wrappers.TimeLimit)
"""Wrappers that neither change what passes nor draw conclusions from it."""
_RECORDERS = (
    wrappers.RecordEpisodeStatistics,
    wrappers.RecordVideo,
    wrappers.RenderCollection,
    wrappers.HumanRendering,
    "stable_baselines3.common.monitor.Monitor",
)
"""Wrappers that change nothing but record what passes."""
_MAPS: dict[Any, str] = {
    gym.ActionWrapper: "action",
    gym.ObservationWrapper: "observation",
    gym.RewardWrapper: "reward",
}


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
    stateful = isinstance(layer, wrappers.AddRenderObservation) or kind.__module__.startswith(
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
    return action


def check_inside(layers: list[gym.Wrapper]) -> None:
    """Refuses layers inside Disturbed that would record an observation or end it then changes."""
    for layer in layers:
        maps(layer)
        if _is(layer, _RECORDERS):
            raise Unsupported(
                f"{type(layer).__name__} inside Disturbed would record observations and ends that "
                "the disturbance of the state then changes: put it outside, around Disturbed"
            )
