"""Changed: a Gymnasium wrapper that makes an environment another world, for good."""

import copy
from collections import deque
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from windward import checks
from windward.envs.disturbed import Disturbed
from windward.simulators import wrappers
from windward.simulators.parameters import Parameters, arrays_of
from windward.simulators.physics import physics_of
from windward.simulators.shell import Unsupported

DELAY, BIAS = "delay", "bias"


class Changed(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """An environment with other parameters: a heavier body, a worn motor, a slope, late actions.

    A simulator of a changed environment is that of the unchanged one. For changes over time use
    `Disturbed`.

    Args:
        env: the environment, one.
        changes: values by name, the names of a diagnosis: factors ("mass", "mass:torso", "gain",
            "friction", "damping", "armature", "inertia", "gravity") and amounts ("com:torso.x" in
            metres, "frictionloss:JOINT" in newton metres, "slope:x" in radians, "delay" in steps,
            "bias:0" for a constant error of a number in the observation).
            `windward list --env ID` names the elements of an environment.

    Raises:
        ValueError: a name that the environment does not have, or a value that does not fit.
        Unsupported: parameters of an environment whose physics windward does not know.

    >>> import gymnasium as gym
    >>> env = Changed(gym.make("Pendulum-v1"), {"mass": 1.3, "delay": 1})
    >>> round(env.unwrapped.m, 3)
    1.3
    """

    see_through = True

    def __init__(self, env: gym.Env, changes: Mapping[str, float]) -> None:
        if isinstance(env, gym.vector.VectorEnv):
            raise ValueError("Changed takes one environment: wrap each before they are vectorised")
        if not isinstance(env, gym.Env):
            raise ValueError(f"env must be an environment; got {env!r}: use gym.make for an id")
        if not isinstance(changes, Mapping):
            raise ValueError(f'changes must be a mapping such as {{"mass": 1.2}}; got {changes!r}')
        # As Python's own numbers they go to JSON and back with env.spec.
        self.changes = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in changes.items()
        }
        RecordConstructorArgs.__init__(self, changes=dict(self.changes))
        gym.Wrapper.__init__(self, env)
        self._bind()

    def _bind(self, first: Mapping[str, Any] | None = None) -> None:
        """Writes the parameters into the environment; `first` is what they were before."""
        for layer in wrappers.chain(self.env):
            if isinstance(layer, Disturbed) and layer.nominal_parameters is not None:
                raise ValueError(
                    "a Disturbed inside would write over what changed: wrap Changed first, and "
                    "Disturbed around it"
                )
        own = {name: value for name, value in self.changes.items() if not _is_interface(name)}
        for name in self.changes:
            if _kind(name) == DELAY and name != DELAY:
                raise ValueError(f"all actions come late together: {DELAY!r}; got {name!r}")
        self._delay = checks.integer("changes['delay']", self.changes.get(DELAY, 0), 0)
        self._bias = self._offsets()
        self._begin()
        physics = physics_of(self.unwrapped)
        self._parameters: Parameters | None = None
        if not own:
            return
        if physics is None:
            raise Unsupported(
                f"windward has no physics of {type(self.unwrapped).__name__} (it knows MuJoCo, "
                f"Pendulum and CartPole), so {next(iter(own))!r} cannot be changed there"
            )
        self._parameters = physics.parameters
        if first is not None:  # a copied environment may come with what was written
            physics.parameters.first.update(first)  # type: ignore[attr-defined]
            physics.parameters.restore()
        for kind, value in arrays_of(physics.parameters.elements, own).items():
            self._parameters.write(kind, value)

    def _offsets(self) -> np.ndarray | None:
        """What sensors add to an observation."""
        given = {name: value for name, value in self.changes.items() if _kind(name) == BIAS}
        if not given:
            return None
        space = self.observation_space
        if not isinstance(space, gym.spaces.Box):
            raise Unsupported(f"sensors have a bias in a Box of observations; got {space}")
        flat = np.zeros(int(np.prod(space.shape)))
        names = [str(i) for i in range(len(flat))]
        flat[:] = arrays_of({BIAS: names}, given)[BIAS]
        return flat.reshape(space.shape)

    def _begin(self) -> None:
        """What is executed until the first action arrives."""
        self._late: deque[Any] = deque(_idle(self.action_space) for _ in range(self._delay))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; late actions are zeros, or the first of discrete ones, until then."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._begin()
        return self._seen(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step in the changed world."""
        if self._delay:
            self._late.append(copy.copy(action))
            action = self._late.popleft()
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._seen(observation), reward, terminated, truncated, info

    def _seen(self, observation: Any) -> Any:
        if self._bias is None or not self._bias.any():
            return observation
        return wrappers.within(observation, self._bias, self.observation_space)  # type: ignore[arg-type]

    @property
    def nominal_parameters(self) -> Parameters | None:
        """The parameters from before the change."""
        return self._parameters

    def act_now(self, action: Any) -> Any:
        """The action that a step with `action` executes, for a wrapper outside that must know."""
        return self._late[0] if self._delay else action

    def observe_again(self, observation: Any) -> Any:
        """An observation as these sensors show it, for a wrapper outside that looks again."""
        return self._seen(observation)

    def close(self) -> None:
        """Sets the parameters back and closes the environment."""
        if self._parameters is not None:
            self._parameters.restore()
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state["_first"] = getattr(state.pop("_parameters"), "first", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        first, late = state.pop("_first"), state.pop("_late")
        self.__dict__.update(state)
        self._bind(first)
        self._late = late


def _kind(name: str) -> str:
    return str(name).partition(":")[0]


def _is_interface(name: str) -> bool:
    """Whether a change is between the policy and the physics, and not in the physics."""
    return _kind(name) in (DELAY, BIAS)


def _idle(space: gym.Space) -> Any:
    if isinstance(space, gym.spaces.Box):
        return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    if isinstance(space, gym.spaces.Discrete):
        return int(space.start)
    raise Unsupported(f"late actions are of a Box or Discrete; got {space}")
