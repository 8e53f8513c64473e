"""Simulators of an environment, for PD3 and for replay: f(x, u) without the wind.

`eqn:pd3`: ŵ_t = x_{t+1} - f_sim(x_t, u_t).
"""

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks
from windward.simulators import wrappers
from windward.simulators.base import Dynamics
from windward.simulators.function import FunctionDynamics
from windward.simulators.mujoco import MujocoDynamics
from windward.simulators.parameters import OFFSETS, arrays_of
from windward.simulators.physics import dynamics_of
from windward.simulators.shell import Unsupported
from windward.simulators.wrappers import Noise

Map = Callable[[np.ndarray], np.ndarray]
StepFunction = Callable[..., tuple[Any, Any, Any]]


class Simulator:
    """The undisturbed environment on batches of states; made by `simulator`.

    Actions are those of the outermost wrapper, states are those of the physics. The environment
    itself is read, never changed. Its model is read once: make a new simulator after changing it.
    """

    def __init__(
        self,
        env: gym.Env,
        dynamics: Dynamics,
        layers: list[gym.Wrapper],
        copies: int,
        noisy: bool,
        seed: int,
        made_with: dict[str, Any],
        nominal: Any = None,
    ) -> None:
        self._nominal = nominal
        self.env, self.copies, self.noisy, self._made_with = env, copies, noisy, made_with
        self._dynamics = dynamics
        space = env.action_space
        self._shape: tuple[int, ...] = space.shape or ()
        self._choices = (
            range(int(space.start), int(space.start + space.n))
            if isinstance(space, gym.spaces.Discrete)
            else None
        )
        self._rng = np.random.default_rng(seed)
        self._rewards = [layer for layer in reversed(layers) if wrappers.maps(layer) == "reward"]
        self._observations = [layer for layer in layers if wrappers.maps(layer) == "observation"]
        self._actions: list[Map] = []
        self._push_noise: list[tuple[str, Noise]] = []
        self._state_noise: list[tuple[np.ndarray, Noise]] = []
        self._noise_before = False
        self._fresh: list[Noise] = []
        for layer in layers:
            if wrappers.maps(layer) == "action":
                self._actions.append(_rowwise(layer))
            elif noisy:
                self._redraw(layer)

    def _redraw(self, layer: gym.Wrapper) -> None:
        """Takes up the iid disturbances of a wrapper; copies draw them anew."""
        for place, fresh in wrappers.fresh_noise(layer, self._rng):
            self._fresh.append(fresh)
            if place.stage == "action":
                self._actions.append(_noise(fresh, layer.env.action_space))
                self._noise_before = True
            elif place.stage in ("push", "state") and isinstance(self._dynamics, FunctionDynamics):
                raise Unsupported(
                    f"a simulator from a function does not know where {place.name!r} is in its "
                    "states, so it cannot redraw the noise there: pass noisy=False"
                )
            elif place.stage == "push":
                self._push_noise.append((place.part, fresh))
                self._noise_before = True
            elif place.stage == "state":
                self._state_noise.append((self._dynamics.parts[place.part], fresh))

    @property
    def dynamics(self) -> Dynamics:
        """f on states and inner actions, with its parameters."""
        return self._dynamics

    def inner(self, u: np.ndarray) -> np.ndarray:
        """Rows of actions as they reach the physics, through action wrappers."""
        return self._act(u)

    @property
    def seconds(self) -> float | None:
        """Of a step, where the environment tells."""
        for name in ("dt", "tau"):
            value = getattr(self.env.unwrapped, name, None)
            if isinstance(value, (int, float, np.floating)):
                return float(value)
        return None

    def scaled(self, scale: Mapping[str, float]) -> "Simulator":
        """Another simulator of the environment, with other parameters; see `simulator`."""
        # The environment may have changed since this one was made: what it was then is nominal.
        return simulator(self.env, **{**self._made_with, "scale": scale}, nominal=self._nominal)

    @property
    def scale(self) -> Mapping[str, float]:
        """What it was made with."""
        return dict(self._made_with["scale"] or {})

    def changed(self, changes: Mapping[str, float]) -> "Simulator":
        """Another one with these changes on top of its own scale."""
        return self.scaled(merged(self.scale, changes))

    def quiet(self) -> "Simulator":
        """The same simulator without noise; itself if it draws none."""
        return simulator(self.env, **{**self._made_with, "noisy": False}) if self.noisy else self

    @property
    def d_x(self) -> int:
        """How many numbers a state has."""
        return self._dynamics.d_x

    def state(self) -> np.ndarray:
        """The environment's true state x_t, in float64."""
        return self._dynamics.state()

    def predict(self, action: Any) -> np.ndarray:
        """E[x_{t+1}] from the environment's state now, under `action` (deviation 15).

        With `noisy`, the mean over `copies` steps with noise of their own; noise that enters
        after the physics leaves the physics of all copies the same, so that runs once.
        """
        u = self._checked("action", np.asarray(action)[None])
        if not self._noise_before:
            x_next = self._dynamics.advance(None, self._act(u), {})[0]
            for part, fresh in self._state_noise:
                x_next[part] += fresh.next(self.copies).sum(axis=0) / self.copies
            return x_next
        u = np.repeat(u, self.copies, axis=0)
        x_next = self._dynamics.advance(None, self._act(u), self._forces(self.copies))
        return self._shifted(x_next).mean(axis=0)

    def step(self, x: Any, u: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(x_next, cost, terminated) for rows of states and actions; c = -reward.

        One state with a batch of actions, or one action with a batch of states, is repeated. A row
        that the physics could not compute has NaN for state and cost, and ends. With `noisy`, each
        row has noise of its own; as in Disturbed, the end is that of the disturbed state and the
        cost stays.
        """
        x, u = self._rows(x, u)
        inner = self._act(u)
        with np.errstate(all="ignore"):
            x_next, cost, terminated = self._dynamics.step(x, inner, self._forces(len(x)))
            lost = ~np.isfinite(x_next).all(axis=1) | ~np.isfinite(cost)
        if self._rewards:
            cost = np.array([-self._reward(-each) for each in cost])
        if self._state_noise:
            x_next = self._shifted(x_next)
            terminated = self._dynamics.terminated(np.where(lost[:, None], x, x_next), inner)
        x_next[lost], cost[lost] = np.nan, np.nan
        return x_next, cost, terminated | lost

    def observation(self, x: Any) -> np.ndarray:
        """Observations of states, as the outermost wrapper shows them, undisturbed."""
        x = checks.finite_array("x", x, ndim=(1, 2))
        self._check_width(x)
        rows = np.atleast_2d(x)
        shape = self.env.unwrapped.observation_space.shape or ()
        seen = self._dynamics.observation(rows).reshape(len(rows), *shape)
        if self._observations:
            seen = np.array([wrappers.observe_through(self._observations, each) for each in seen])
        return seen[0] if x.ndim == 1 else seen

    def state_of(self, observation: Any) -> np.ndarray:
        """States of observations; refuses where the observation dropped or clipped something."""
        for layer in self._observations:
            raise Unsupported(
                f"{type(layer).__name__} changes observations: there is no way back to states"
            )
        observation = checks.finite_array("observation", observation, ndim=(1, 2))
        _width("observation", observation, self.env.observation_space.shape[0], "observations")  # type: ignore[index]
        states = self._dynamics.state_of(np.atleast_2d(observation))
        return states[0] if observation.ndim == 1 else states

    def states_seen(self, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(states, which of them are known) of rows of observations, as far as motion needs them.

        A position on which no motion depends may be left out, and is 0; where a velocity is clipped
        the state is not known.
        """
        if not self._observations and isinstance(self._dynamics, MujocoDynamics):
            return self._dynamics.states_seen(observation)
        return self.state_of(observation), np.ones(len(observation), dtype=bool)

    def terminated(self, x: np.ndarray, u: Any) -> np.ndarray:
        """Whether the episode ends in each of these states, reached by u."""
        return self._dynamics.terminated(x, self._act(np.asarray(u)))

    def gap(self, x_next: np.ndarray, x_pred: np.ndarray) -> np.ndarray:
        """x_next - x_pred of rows, angles the short way round where observations wrap them."""
        return self._dynamics.gap(x_next, x_pred)

    def memory(self) -> Any:
        """Where its noise is, as JSON can hold it."""
        return {
            "generator": self._rng.bit_generator.state,
            "streams": [each.memory() for each in self._fresh],
        }

    def remember(self, memory: Any) -> None:
        """Goes on with noise from where `memory` was; what is no such thing changes nothing."""
        before = self.memory()
        try:
            self._recall(memory)
        except (KeyError, TypeError, ValueError) as error:
            self._recall(before)
            raise ValueError(f"this is no memory of a simulator's noise: {error!r}") from error

    def _recall(self, memory: Any) -> None:
        for each, own in zip(self._fresh, memory["streams"], strict=True):
            each.remember(own)
        self._rng.bit_generator.state = memory["generator"]

    def __reduce__(self) -> tuple[Any, ...]:
        # MuJoCo's data is no object for a pickle: the copy is made anew of the copied environment.
        return _again, (self.env, self._made_with, self.memory())

    def _rows(self, x: Any, u: Any) -> tuple[np.ndarray, np.ndarray]:
        """States and actions as rows of one batch."""
        x = checks.finite_array("x", x, ndim=2)
        self._check_width(x)
        try:
            u = np.asarray(u)
        except ValueError as error:
            raise ValueError("u must be a batch of actions, all of one shape") from error
        u = self._checked("u", u)
        n = len(u) if len(x) == 1 else len(x)
        if len(u) not in (1, n):
            raise ValueError(f"x has {n} rows and u has {len(u)}: as many, or one of either")
        repeat = [np.repeat(each, n if len(each) == 1 else 1, axis=0) for each in (x, u)]
        return repeat[0], repeat[1]

    def _check_width(self, x: np.ndarray) -> None:
        """Refuses states of another width; a user's may be known from them alone."""
        if isinstance(self._dynamics, FunctionDynamics):
            self._dynamics.take_width(x.shape[-1])
        _width("x", x, self.d_x, "states")

    def _checked(self, name: str, u: np.ndarray) -> np.ndarray:
        """Rows of actions that the action space allows in shape, kind and number."""
        if u.shape[1:] != self._shape or u.ndim != len(self._shape) + 1:
            raise ValueError(
                f"{name} must hold actions of shape {self._shape}; "
                f"got {u.shape[1:] if name == 'action' else u.shape}"
            )
        if u.dtype.kind not in "biuf":
            raise ValueError(f"{name} must be of numbers; got {u.dtype}")
        if not math.isfinite(np.vdot(u, u)) and not np.isfinite(u).all():
            raise ValueError(f"{name} must be finite; got {u[~np.isfinite(u)][0]}")
        if self._choices is not None:
            odd = [each for each in u if each not in self._choices]
            if odd:
                raise ValueError(f"{name} must be in {self.env.action_space}; got {odd[0]}")
        return u

    def _act(self, u: np.ndarray) -> np.ndarray:
        """Actions as they reach the physics: through wrappers, with fresh noise on the way."""
        for each in self._actions:
            u = each(u)
        return u

    def _reward(self, reward: float) -> float:
        for layer in self._rewards:
            reward = float(layer.reward(reward))
        return reward

    def _forces(self, n: int) -> Mapping[str, np.ndarray]:
        """Fresh iid forces by name."""
        forces: dict[str, np.ndarray] = {}
        for name, fresh in self._push_noise:
            w = fresh.next(n)
            forces[name] = forces[name] + w if name in forces else w
        return forces

    def _shifted(self, x_next: np.ndarray) -> np.ndarray:
        """States with fresh iid noise."""
        for part, fresh in self._state_noise:
            x_next[:, part] += fresh.next(len(x_next))
        return x_next


def _rowwise(layer: Any) -> Map:
    """An action wrapper's map on rows; its function knows single actions."""
    shape = layer.env.action_space.shape

    def rows(u: np.ndarray) -> np.ndarray:
        return np.array([layer.action(each) for each in u]).reshape(len(u), *shape)

    return rows


def _noise(fresh: Noise, space: Any) -> Map:
    """Fresh noise on actions."""
    return lambda u: wrappers.within(u, fresh.next(len(u)), space)


def _width(name: str, array: np.ndarray, width: int, what: str) -> None:
    if array.shape[-1] != width:
        raise ValueError(f"{name} must be {what} of {width} numbers; got shape {array.shape}")


def simulator(
    env: gym.Env,
    copies: int = 4,
    noisy: bool = True,
    *,
    seed: int = 0,
    scale: Mapping[str, float] | None = None,
    step: StepFunction | None = None,
    state: Callable[[Any], Any] | None = None,
    parameters: Mapping[str, float] | None = None,
    observation: Callable[[np.ndarray], Any] | None = None,
    nominal: Any = None,
) -> Simulator:
    """Makes a simulator of an environment without its disturbances.

    Args:
        env: the environment, wrapped or not; `envs.Disturbed` wrappers in it are left out.
        copies: how many noisy steps `predict` averages.
        noisy: redraw iid noise on states, actions and forces from the simulator's own generator;
            otherwise there is none. Noise on parameters is never simulated.
        seed: of that generator.
        scale: changes its parameters: {"mass": 1.2, "friction": 0.8} multiplies them,
            {"mass:torso": 2.0} those of one element; amounts such as {"slope:x": 0.1} are added.
            Those of several entries multiply, or add up.
        step: for other environments, f(x, u, **parameters) -> (x_next, cost, terminated) on rows,
            u as the unwrapped environment gets it.
        state: with `step`, env -> x, the state now, of the unwrapped environment; it is called
            after reset only.
        parameters: with `step`, what may change in it by name, with nominal values greater than 0.
        observation: with `step`, x -> observations of the unwrapped environment, rows. If left out,
            states that are as wide as observations are taken for observations.
        nominal: parameters of another simulator of the environment, whose first values count
            where the environment has been changed since.

    Returns:
        The simulator.

    Raises:
        ValueError: an option that does not fit.
        Unsupported: a wrapper that cannot be seen through, or an environment without a known
            physics and no `step`.

    >>> import gymnasium as gym
    >>> sim = simulator(gym.make("Pendulum-v1"), scale={"mass": 1.3})
    >>> x_next, cost, terminated = sim.step(np.zeros((5, 2)), np.ones((5, 1)))
    >>> x_next.shape, cost.shape
    ((5, 2), (5,))
    """
    if not isinstance(env, (gym.Env, gym.vector.VectorEnv)):
        raise ValueError(f"env must be an environment; got {env!r}: use gym.make for an id")
    if isinstance(env, gym.vector.VectorEnv):
        raise Unsupported("a simulator is of one environment: make one for each of the vector")
    checks.integer("copies", copies, 1)
    layers = list(wrappers.chain(env))
    for layer in layers:
        wrappers.maps(layer)  # raises for a layer that cannot be seen through
    dynamics: Dynamics | None
    if step is not None or state is not None or observation is not None:
        if step is None or state is None:
            raise ValueError("a user's simulator needs both step= and state=")
        for name, value in (parameters or {}).items():
            checks.positive(f"parameters[{name!r}]", value)
            if name in OFFSETS or ":" in name:
                raise ValueError(
                    f"a parameter of one's own cannot be called {name!r}: amounts "
                    f"({', '.join(OFFSETS)}) and names with ':' mean something else in scale="
                )
        dynamics = FunctionDynamics(env.unwrapped, step, state, parameters, observation)
    elif parameters is not None:
        raise ValueError("parameters= are those of step=, and there is none")
    else:
        before = wrappers.nominal_parameters(layers)
        dynamics = dynamics_of(env.unwrapped, nominal if before is None else before)
    if dynamics is None:
        raise Unsupported(
            f"windward has no physics of {type(env.unwrapped).__name__} (it knows MuJoCo, Pendulum "
            "and CartPole): give step=f(x, u) -> (x_next, cost, terminated) and state=env -> x"
        )
    # Parameters as they are before any scale: `settle` gives the others new first values.
    first = copy.copy(dynamics.parameters)
    if scale is not None:
        for kind, array in arrays_of(dynamics.parameters.elements, scale, "scale").items():
            dynamics.parameters.write(kind, array)
        dynamics.parameters.settle()
    checks.integer("seed", seed, 0)
    options = {
        "copies": copies, "noisy": noisy, "seed": seed, "scale": scale, "step": step,
        "state": state, "parameters": parameters, "observation": observation,
    }  # fmt: skip
    return Simulator(env, dynamics, layers, copies, noisy, seed, options, first)


def merged(first: Mapping[str, float], then: Mapping[str, float]) -> dict[str, float]:
    """Changes by name one after the other: factors multiply, amounts add up.

    >>> merged({"mass": 2.0, "slope:x": 0.1}, {"mass": 1.5, "slope:x": 0.1, "gain": 0.5})
    {'mass': 3.0, 'slope:x': 0.2, 'gain': 0.5}
    """
    found = dict(first)
    for name, value in then.items():
        amount = name.partition(":")[0] in OFFSETS
        if name in found:
            value = found[name] + value if amount else found[name] * value
        found[name] = value
    return found


def _again(env: gym.Env, options: dict[str, Any], memory: Any) -> Simulator:
    """A simulator from a pickle."""
    made = simulator(env, **options)
    made.remember(memory)
    return made
