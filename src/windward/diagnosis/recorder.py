"""Recorder: a Gymnasium wrapper that writes down what passes, for a diagnosis later."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from windward import checks
from windward.diagnosis.log import Episode, Log, save_log
from windward.simulators.physics import physics_of
from windward.simulators.shell import Unsupported

ARRAYS = (
    gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary
)  # fmt: skip
"""spaces whose elements are arrays or numbers"""


class Recorder(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Records states where there are any, observations, executed actions, rewards and ends.

    Put it outermost, so that it sees what the policy sees and does. The file is written after each
    episode and at `close()`, whole or not at all. Observations with parts, of a Dict or a Tuple,
    are written as one flat array.

    Args:
        env: the environment, one.
        path: of the file; without it the log is in memory alone, `.log`.
        state: reads the state of the unwrapped environment, for a simulator of one's own:
            env -> x, one row of numbers. If left out, states are those of MuJoCo, Pendulum and
            CartPole; other environments have none.

    Raises:
        ValueError: there is no such folder, or `env` is not one environment.
        Unsupported: observations or actions that are no arrays.

    >>> import gymnasium as gym, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "flight.npz"
    >>> env = Recorder(gym.make("Pendulum-v1"), path)
    >>> _ = env.reset(seed=0)
    >>> for _ in range(20):
    ...     _ = env.step(env.action_space.sample())
    >>> env.close()
    >>> path.is_file(), env.log.steps
    (True, 20)
    """

    see_through = True

    def __init__(
        self,
        env: gym.Env,
        path: str | Path | None = None,
        state: Callable[[Any], Any] | None = None,
    ) -> None:
        check_single(env, "put a Recorder around each, before they are vectorised")
        # A reader may be a method of what must not be copied.
        RecordConstructorArgs.__init__(
            self, path=None if path is None else str(path), state=state, _disable_deepcopy=True
        )
        gym.Wrapper.__init__(self, env)
        self._reader = state
        self.path = None if path is None else Path(path)
        if self.path is not None and not self.path.parent.is_dir():
            raise ValueError(f"there is no folder {str(self.path.parent)!r} for the log")
        self._flat = _has_parts(env.observation_space)
        if not isinstance(env.action_space, ARRAYS):
            raise Unsupported(
                f"a log holds actions that are arrays or numbers; got {env.action_space}"
            )
        self._physics = physics_of(self.unwrapped)
        self._episodes: list[Episode] = []
        self._begin(None)

    def _begin(self, observation: Any) -> None:
        self._observations: list[Any] = [] if observation is None else [self._array(observation)]
        self._states: list[np.ndarray] = []
        self._actions: list[Any] = []
        self._rewards: list[float] = []
        if observation is not None:
            self._read_state()

    def _read_state(self) -> None:
        """Keeps the state as it is now, where there is one."""
        if self._reader is not None:
            self._states.append(checks.finite_array("state(env)", self._reader(self.unwrapped), 1))
        elif self._physics is not None:
            self._states.append(self._physics.state())

    def _array(self, observation: Any) -> np.ndarray:
        """A copy of an observation as one array."""
        if self._flat:
            return np.array(gym.spaces.flatten(self.observation_space, observation))
        return np.array(observation)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; one that was not ended counts as cut off."""
        self._end(terminated=False, truncated=True)
        observation, info = self.env.reset(seed=seed, options=options)
        self._begin(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step, written down; one beyond an end begins another episode."""
        if not self._observations:
            raise gym.error.ResetNeeded("call reset() before the first step()")
        executed = np.array(action)
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._observations.append(self._array(observation))
        self._actions.append(executed)
        self._rewards.append(float(reward))
        self._read_state()
        if terminated or truncated:
            self._end(bool(terminated), bool(truncated))
            self._begin(observation)
        return observation, reward, terminated, truncated, info

    def end_episode(self) -> None:
        """Ends the episode that is being recorded as one that was cut off; `reset` begins another.

        >>> env = Recorder(gym.make("Pendulum-v1"))
        >>> _ = env.reset(seed=0), env.step(env.action_space.sample())
        >>> env.end_episode()
        >>> env.log.steps
        1
        """
        self._end(terminated=False, truncated=True)

    def _end(self, terminated: bool, truncated: bool) -> None:
        """Ends an episode, and writes the file."""
        if self._actions:
            self._keep(terminated, truncated)
            if self.path is not None:
                save_log(self.log, self.path)

    def _keep(self, terminated: bool, truncated: bool) -> None:
        states = np.array(self._states) if self._states else None
        self._episodes.append(
            Episode(
                np.array(self._observations),
                np.array(self._actions),
                np.array(self._rewards),
                terminated,
                truncated,
                states,
            )
        )
        self._begin(None)

    @property
    def log(self) -> Log:
        """What was recorded so far, whole episodes."""
        env = None if self.spec is None else self.spec.id
        return Log(tuple(self._episodes), {"env": env})

    def close(self) -> None:
        """Writes what is left, and closes the environment."""
        self._end(terminated=False, truncated=True)
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.pop("_physics")
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._physics = physics_of(self.unwrapped)
        # MuJoCo environments come back without their state: the next episode begins at a reset.
        if self._actions:
            self._keep(terminated=False, truncated=True)
        self._begin(None)


def check_single(env: Any, what: str) -> None:
    """Refuses several environments in one."""
    if isinstance(env, gym.vector.VectorEnv) or (
        not isinstance(env, gym.Env) and hasattr(env, "num_envs")
    ):
        raise ValueError(f"one environment at a time, and this is a {type(env).__name__}: {what}")


def _has_parts(space: gym.Space) -> bool:
    """Whether observations must be flattened; refuses those that cannot be."""
    if isinstance(space, ARRAYS):
        return False
    if isinstance(space, (gym.spaces.Dict, gym.spaces.Tuple)) and space.is_np_flattenable:
        return True
    raise Unsupported(f"a log holds observations that are arrays; got {space}")
