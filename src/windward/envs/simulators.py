"""Simulators of an environment, for PD3 and for replay: f(x, u) without the wind.

`eqn:pd3`: ŵ_t = x_{t+1} - f_sim(x_t, u_t).
"""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks
from windward.envs import layers
from windward.envs.channels import within
from windward.envs.disturbed import Disturbed, Push, nominal_parameters
from windward.envs.physics import Dynamics, Unsupported, dynamics_of
from windward.envs.physics.function import FunctionDynamics
from windward.envs.streams import Redraw

StepFunction = Callable[[np.ndarray, np.ndarray], tuple[Any, Any, Any]]


class Simulator:
    """The undisturbed environment on batches of states; made by `simulator`.

    Actions are those of the outermost wrapper, states are those of the physics. The environment
    itself is read, never changed.
    """

    def __init__(
        self,
        env: gym.Env,
        dynamics: Dynamics,
        wrappers: list[gym.Wrapper],
        copies: int,
        noisy: bool,
        seed: int,
    ) -> None:
        self.env, self.copies, self.noisy = env, copies, noisy
        self.d_x = dynamics.d_x
        self._dynamics = dynamics
        self._layers = [layer for layer in wrappers if type(layer) not in layers.PASSIVE]
        self._rewards = [layer for layer in reversed(wrappers) if layers.maps(layer) == "reward"]
        self._rng = np.random.default_rng(seed)
        noise = self._noise() if noisy else []
        self._action_noise = {id(push): fresh for push, fresh in noise if _at(push, "action")}
        self._push_noise = [
            (push.channel.part, fresh) for push, fresh in noise if _at(push, "push")
        ]
        parts = dynamics.parts
        self._state_noise = [
            (parts[push.channel.part], fresh) for push, fresh in noise if _at(push, "state")
        ]

    def _noise(self) -> list[tuple[Push, Redraw]]:
        """The iid disturbances of the environment's dynamics, which copies draw anew."""
        return [
            (push, Redraw(push.stream, self._rng))
            for layer in self._layers
            if isinstance(layer, Disturbed)
            for push in layer._pushes
            if push.stream.disturbance.iid
        ]

    def state(self) -> np.ndarray:
        """The environment's true state x_t, in float64."""
        return self._dynamics.state()

    def predict(self, action: Any) -> np.ndarray:
        """E[x_{t+1}] from the environment's state now, under `action` (deviation 15).

        With `noisy`, the mean over `copies` steps with noise of their own; noise that enters
        after the physics leaves the physics of all copies the same, so that runs once.
        """
        if not self._action_noise and not self._push_noise:
            x_next = self._dynamics.advance(None, self._actions(np.asarray(action)[None]), {})[0]
            for part, fresh in self._state_noise:
                x_next[part] += fresh.next(self.copies).sum(axis=0) / self.copies
            return x_next
        u = self._actions(np.repeat(np.asarray(action)[None], self.copies, axis=0))
        x_next = self._dynamics.advance(None, u, self._forces(self.copies))
        return self._shifted(x_next).mean(axis=0)

    def step(self, x: Any, u: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(x_next, cost, terminated) for rows of states and actions; c = -reward.

        One state with a batch of actions, or one action with a batch of states, is repeated. A row
        that the physics could not compute is NaN. With `noisy`, each row has noise of its own; as
        in Disturbed, termination is that of the disturbed state and the cost stays.
        """
        x, u = self._rows(x, u)
        inner = self._actions(u)
        x_next, cost, terminated = self._dynamics.step(x, inner, self._forces(len(x)))
        if self._rewards:
            cost = np.array([-self._reward(-each) for each in cost])
        if self._state_noise:
            x_next = self._shifted(x_next)
            terminated = self._dynamics.terminated(x_next, inner)
        return x_next, cost, terminated | ~np.isfinite(x_next).all(axis=1)

    def observation(self, x: Any) -> np.ndarray:
        """Observations of states, as the outermost wrapper shows them, undisturbed."""
        x = checks.finite_array("x", x, ndim=(1, 2))
        rows = np.atleast_2d(x)
        checks.shape("x", rows, (len(rows), self.d_x), "states")
        seen = self._dynamics.observation(rows)
        maps = [layer for layer in self._layers if layers.maps(layer) == "observation"]
        if maps:
            seen = np.array([layers.observe_through(maps, each) for each in seen])
        return seen[0] if x.ndim == 1 else seen

    def state_of(self, observation: Any) -> np.ndarray:
        """States of observations; refuses where the observation dropped or clipped something."""
        for layer in self._layers:
            if layers.maps(layer) == "observation":
                raise Unsupported(
                    f"{type(layer).__name__} changes observations: there is no way back to states"
                )
        observation = checks.finite_array("observation", observation, ndim=(1, 2))
        rows = np.atleast_2d(observation)
        states = self._dynamics.state_of(rows)
        return states[0] if observation.ndim == 1 else states

    def _rows(self, x: Any, u: Any) -> tuple[np.ndarray, np.ndarray]:
        """States and actions as rows of one batch."""
        x = checks.finite_array("x", x, ndim=2)
        space = self.env.action_space
        u = np.asarray(u)
        width = space.shape or ()
        if u.ndim != len(width) + 1 or u.shape[1:] != width:
            raise ValueError(f"u must be a batch of actions (n, *{width}); got shape {u.shape}")
        checks.finite_array("u", u)
        checks.shape("x", x, (len(x), self.d_x), "states")
        n = max(len(x), len(u))
        if len(x) not in (1, n) or len(u) not in (1, n):
            raise ValueError(f"x has {len(x)} rows and u has {len(u)}")
        repeat = [np.repeat(each, n if len(each) == 1 else 1, axis=0) for each in (x, u)]
        return repeat[0], repeat[1]

    def _actions(self, u: np.ndarray) -> np.ndarray:
        """Actions as they reach the physics: through wrappers, with fresh noise on the way."""
        for layer in self._layers:
            if isinstance(layer, Disturbed):
                for push in layer._on_action:
                    if id(push) in self._action_noise:
                        w = self._action_noise[id(push)].next(len(u))
                        u = within(u, w, layer.env.action_space)  # type: ignore[arg-type]
            elif layers.maps(layer) == "action":
                u = np.stack([np.asarray(layer.action(each)) for each in u])  # type: ignore[attr-defined]
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


def _at(push: Push, stage: str) -> bool:
    return push.channel.stage == stage


def simulator(
    env: gym.Env,
    copies: int = 4,
    noisy: bool = True,
    *,
    seed: int = 0,
    scale: Mapping[str, float] | None = None,
    step: StepFunction | None = None,
    state: Callable[[Any], Any] | None = None,
) -> Simulator:
    """A simulator of an environment without its disturbances.

    Args:
        env: the environment, wrapped or not; `Disturbed` wrappers in it are left out.
        copies: how many noisy steps `predict` averages.
        noisy: redraw iid noise on states, actions and forces from the simulator's own generator;
            otherwise there is none. Noise on parameters is never simulated.
        seed: of that generator.
        scale: makes it wrong on purpose: {"mass": 1.2, "friction": 0.8} multiplies parameters;
            {"mass:torso": 2.0} those of one element.
        step: for other environments, f(x, u) -> (x_next, cost, terminated) on rows.
        state: with `step`, env -> x, the state now.

    Raises:
        Unsupported: a wrapper that cannot be seen through, or an environment without a known
            physics and no `step`.
    """
    if isinstance(env, gym.vector.VectorEnv):
        raise Unsupported("a simulator is of one environment: make one for each of the vector")
    checks.integer("copies", copies, 1)
    wrappers = list(layers.chain(env))
    for layer in wrappers:
        layers.maps(layer)  # raises for a layer that cannot be seen through
    dynamics: Dynamics | None
    if step is not None or state is not None:
        if step is None or state is None:
            raise ValueError("a user's simulator needs both step= and state=")
        dynamics = FunctionDynamics(env.unwrapped, step, state)
    else:
        dynamics = dynamics_of(env.unwrapped, nominal_parameters(wrappers))
    if dynamics is None:
        raise Unsupported(
            f"windward has no physics of {type(env.unwrapped).__name__} (it knows MuJoCo, Pendulum "
            "and CartPole): give step=f(x, u) -> (x_next, cost, terminated) and state=env -> x"
        )
    for name, factor in (scale or {}).items():
        _scale(dynamics, name, factor)
    return Simulator(env, dynamics, wrappers, copies, noisy, checks.integer("seed", seed, 0))


def _scale(dynamics: Dynamics, name: str, factor: Any) -> None:
    kind, _, element = name.partition(":")
    elements = dynamics.parameters.elements
    if kind not in elements or (element and element not in elements[kind]):
        known = ", ".join(elements.get(kind, elements))
        raise ValueError(f"scale knows no {name!r} here; there are {known or 'no parameters'}")
    number = float(
        checks.positive(f"scale[{name!r}]", checks.finite_array("scale", factor, ndim=0))
    )
    factors = np.array([1.0 if element and element != each else number for each in elements[kind]])
    dynamics.parameters.write(kind, factors)
