"""Dynamics that a user gives as a function, for environments whose physics windward cannot read."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks
from windward.simulators.parameters import DictParameters, NoParameters, Parameters
from windward.simulators.shell import Unsupported

TRIED = 8
"""states at which it is looked up what observations show"""


class FunctionDynamics:
    """step(x, u, **parameters) -> (x_next, cost, terminated) on rows, and state(env) -> x.

    Where `observation` is left out and states are as wide as observations, they are taken for
    each other.
    """

    d_v = 0
    parts: Mapping[str, np.ndarray] = {}

    def __init__(
        self,
        env: Any,
        step: Callable[..., tuple[Any, Any, Any]],
        state: Callable[[Any], Any],
        parameters: Mapping[str, float] | None = None,
        observation: Callable[[np.ndarray], Any] | None = None,
    ) -> None:
        self.env, self._step, self._state, self._observation = env, step, state, observation
        self._own = DictParameters(parameters or {})
        self.parameters: Parameters = self._own if parameters else NoParameters()
        self._width: int | None = None
        self._shown: np.ndarray | None = None

    @property
    def first(self) -> Mapping[str, float]:
        """The parameters' nominal values."""
        return self._own.first

    @property
    def known_width(self) -> int | None:
        """`d_x`, if a state was seen already; an environment may have none before reset."""
        return self._width

    @property
    def d_x(self) -> int:
        """As many as the state has; where there is none yet a copy of the environment is reset."""
        if self._width is not None:
            return self._width
        try:
            return self.state().size
        except ValueError as error:
            try:
                other = copy.deepcopy(self.env)
                other.reset(seed=0)
            except Exception:  # a user's environment may fail in any way
                raise error from None
            return self.read(other).size

    def take_width(self, width: int) -> None:
        """Takes the width of states from rows of them, where no state was seen yet."""
        if self._width is None:
            self._width = width

    def state(self) -> np.ndarray:
        """See Dynamics."""
        return self.read(self.env)

    def read(self, env: Any) -> np.ndarray:
        """The state of an unwrapped environment, which need not be the simulator's own."""
        name = f"{_name(self._state, 'state')}(env)"
        try:
            given = self._state(env)
        except Exception as error:
            raise ValueError(
                f"{name} raised {_said(error)}. It gets the unwrapped environment, which may have "
                "a state only after reset(), and must return the state, one row of numbers"
            ) from error
        x = checks.finite_array(name, given, ndim=1)
        self.take_width(x.size)
        if x.size != self._width:
            raise ValueError(f"{name} must return {self._width} numbers; got {x.size}")
        return x

    def advance(self, x: np.ndarray | None, u: Any, forces: Mapping[str, np.ndarray]) -> np.ndarray:
        """See Dynamics."""
        start = np.tile(self.state(), (len(u), 1)) if x is None else x
        return self.step(start, u, forces)[0]

    def step(
        self, x: np.ndarray, u: Any, forces: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See Dynamics; checks what the function returns."""
        shape = x.shape
        try:
            # Copies: a function may change its arguments.
            given = self._step(np.array(x), np.array(u), **self._own.now)
        except Exception as error:
            raise self._wrong(shape, f"it raised {_said(error)}") from error
        if not isinstance(given, (tuple, list)) or len(given) != 3:
            got = f"{len(given)} values" if isinstance(given, (tuple, list)) else _kind(given)
            raise self._wrong(shape, f"got {got}")
        n = len(x)
        return (
            self._rows("x_next", given[0], shape, shape, np.float64),
            self._rows("cost", given[1], (n,), shape, np.float64),
            self._rows("terminated", given[2], (n,), shape, np.bool_),
        )

    def _rows(
        self, name: str, given: Any, expected: tuple[int, ...], shape: tuple[int, ...], kind: Any
    ) -> np.ndarray:
        """One of the three that step returns, as an array of its own."""
        try:
            array = np.array(given)
            if array.dtype.kind not in "biuf":
                raise TypeError
        except (TypeError, ValueError) as error:
            raise self._wrong(shape, f"{name} is {_kind(given)}, not numbers") from error
        if array.shape != expected:
            raise self._wrong(shape, f"{name} has shape {array.shape}")
        return array.astype(kind)

    def _wrong(self, shape: tuple[int, ...], what: str) -> ValueError:
        n, width = shape
        return ValueError(
            f"{self.called()} must return (x_next, cost, terminated) of shapes ({n}, {width}), "
            f"({n},) and ({n},) for {n} rows of states and actions; {what}"
        )

    def called(self) -> str:
        """How the function is called, with the values of its parameters."""
        values = "".join(f", {name}={value:.6g}" for name, value in self._own.now.items())
        return f"{_name(self._step, 'step')}(x, u{values})"

    def terminated(self, x: np.ndarray, u: Any) -> np.ndarray:
        """Whether a step from these states ends: all that the function tells of an end."""
        return self.step(x, np.asarray(u), {})[2]

    def observation(self, x: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        if self._observation is None:
            self._same("how a state is observed: give observation=, a function of rows of states")
            return x.copy()
        name = f"{_name(self._observation, 'observation')}(x)"
        expected = (len(x), *(self.env.observation_space.shape or ()))
        wanted = f"{name} must return observations, an array of shape {expected}"
        try:
            seen = np.array(self._observation(np.array(x)))
        except Exception as error:
            raise ValueError(f"{wanted}; it raised {_said(error)}") from error
        if seen.dtype.kind not in "biuf":
            raise ValueError(f"{wanted}; got {_kind(seen)}")
        if seen.shape != expected:
            raise ValueError(f"{wanted}; got shape {seen.shape}")
        return seen

    def state_of(self, observation: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        if self._observation is not None:
            return self._filled(observation)
        self.take_width(observation.shape[-1])
        self._same("the state that is observed so: record states")
        return observation.astype(np.float64)

    def _filled(self, observation: np.ndarray) -> np.ndarray:
        """States of observations that are some of their numbers; 0 for those that move nothing."""
        if self._shown is None:
            self._shown = self._looked_at()
        x = np.zeros((len(observation), self.d_x))
        x[:, self._shown] = observation.reshape(len(observation), -1)
        return x

    def _looked_at(self) -> np.ndarray:
        """Which number of the state each number of the observation is; refuses where it is none."""
        rng = np.random.default_rng(0)
        x = rng.uniform(0.1, 0.9, (TRIED, self.d_x))
        seen = self.observation(x).reshape(TRIED, -1).astype(np.float64)
        near = np.asarray(np.isclose(seen[:, :, None], x[:, None], rtol=1e-5).all(axis=0))
        if not near.any(axis=1).all():
            raise self._unknown("the state that is observed so: record states")
        shown = near.argmax(axis=1)
        hidden = np.setdiff1d(np.arange(self.d_x), shown)
        space = copy.deepcopy(self.env.action_space)  # whose generator is the environment's
        space.seed(0)
        u = np.array([space.sample() for _ in range(TRIED)])
        moved = x.copy()
        moved[:, hidden] += 1.0
        change = self.step(moved, u, {})[0] - self.step(x, u, {})[0]
        if not np.allclose(change, moved - x, rtol=0, atol=1e-9):
            raise self._unknown(
                f"number {int(hidden[0])} of the state, which observations leave out and on which "
                "the motion depends: record states"
            )
        return np.asarray(shown)

    def _same(self, otherwise: str) -> None:
        """Refuses where states cannot be observations."""
        space = self.env.observation_space
        if not isinstance(space, gym.spaces.Box) or space.shape != (self.d_x,):
            raise self._unknown(otherwise)

    def rest(self) -> np.ndarray:
        """See Dynamics."""
        raise self._unknown("a state at rest")

    def driven(self, x: np.ndarray, v: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        raise self._unknown("a continuous control")

    def gap(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        return x - y

    def _unknown(self, what: str) -> Unsupported:
        return Unsupported(f"a simulator from a function does not know {what}")


def _name(function: Any, usual: str) -> str:
    """A function's own name, or what it stands for."""
    name = getattr(function, "__name__", "")
    return name if name.isidentifier() else usual


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _kind(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, np.ndarray):
        return f"one array of {value.dtype}, shape {value.shape}"
    return "None" if value is None else f"a {type(value).__name__}"
