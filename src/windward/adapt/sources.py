"""Pseudo-disturbances of real environments: where the values behind ŵ come from.

The formulas are the core's (`core/signals.py`), which gets the values of PD1 and PD2. PD3 and a
user's own signal are made here, on the host and in float64 (a small ŵ between large states would
drown in float32), and handed to the core as they are.
Rewards become costs here and nowhere else: c = -reward, V and Q are negated with it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from windward import checks
from windward.core import signals
from windward.core.signals import Signal
from windward.policies.critics import Critic, VectorCritic
from windward.policies.sb3 import critic_of
from windward.policies.values import Values
from windward.simulators import Simulator
from windward.simulators.learned import LearnedSimulator

Aux = dict[str, np.ndarray]


class Happened(NamedTuple):
    """One step of rows of environments, in the environment's own units."""

    x: np.ndarray  # (B, observation)
    u: np.ndarray  # (B, action), executed
    reward: np.ndarray  # (B,)
    x_next: np.ndarray  # (B, observation): of the step, not of a reset after it
    terminated: np.ndarray  # (B,) bool
    gone: np.ndarray  # (B,) bool: the environment has been reset already
    learn: bool = True  # whether rewards are known and adaptation goes on

    def row(self, i: int) -> "Happened":
        """The step of one row."""
        arrays = {name: getattr(self, name)[i : i + 1] for name in self._fields[:-1]}
        return self._replace(**arrays)

    def mended(self, good: np.ndarray) -> "Happened":
        """Zeros in place of the observations and rewards of rows that are not good."""
        x, x_next, reward = (np.array(each) for each in (self.x, self.x_next, self.reward))
        x[~good], x_next[~good], reward[~good] = 0, 0, 0
        return self._replace(x=x, x_next=x_next, reward=reward)


class Source(Protocol):
    """What makes the aux values of a signal."""

    @property
    def name(self) -> str:
        """What users call it."""

    @property
    def d_w(self) -> int | None:
        """How many numbers ŵ has; None for as many as the action has."""

    @property
    def gamma(self) -> float:
        """The discount of its values."""

    @property
    def signal(self) -> Signal:
        """How the core takes it."""

    @property
    def needs_steps(self) -> bool:
        """Whether it must be asked before the environment is stepped."""

    @property
    def sees_reward(self) -> bool:
        """Whether it cannot do without rewards."""

    def before(self, u: np.ndarray) -> None:
        """Called with executed actions, rows, before the environments are stepped."""

    def after(self, step: Happened) -> Aux:
        """The aux values of a step, rows."""

    def memory(self) -> Any:
        """What a file must hold for it to go on exactly, as JSON; None for nothing."""

    def remember(self, memory: Any) -> None:
        """Goes on from what `memory` gave."""


class _Plain:
    """A source without a memory that looks at steps when they are over."""

    needs_steps = sees_reward = False

    def before(self, u: np.ndarray) -> None:
        """Nothing."""

    def memory(self) -> Any:
        """Nothing."""
        return None

    def remember(self, memory: Any) -> None:
        """Nothing."""


def _learn_on(values: Values | None, step: Happened) -> None:
    """Keeps fitted values true to what is seen."""
    if values is None or not step.learn:
        return
    for i in np.flatnonzero(np.isfinite(step.reward)):
        reward, ended = float(step.reward[i]), bool(step.terminated[i])
        values.observe(step.x[i], step.u[i], reward, step.x_next[i], ended)


def _online(values: Any) -> Values | None:
    return values if isinstance(values, Values) and values.online else None


class PD1(_Plain):
    """ŵ_t = (c_t + γV(x_{t+1}) - Q(x_t, u_t)) Σ⁻¹n_t (`eq:efficient1`), from scalar values.

    `critic` has V and Q in units of reward: a critic of `policies`, fitted values, or a model that
    has one (D4PG; off-policy models of Stable-Baselines3 and SBX).
    """

    name, d_w, signal, sees_reward = "pd1", None, signals.SIGNALS["pd1"], True

    def __init__(self, critic: Any) -> None:
        self.critic = scalar_of(critic)
        self.gamma = float(self.critic.gamma)
        self._values = _online(critic)

    def after(self, step: Happened) -> Aux:
        """V(x_{t+1}) and Q(x_t, u_t), of costs."""
        aux = {
            signals.V_NEXT: -np.asarray(self.critic.V(step.x_next), dtype=float),
            signals.Q_NOW: -np.asarray(self.critic.Q(step.x, step.u), dtype=float),
        }
        _learn_on(self._values, step)
        return aux


def scalar_of(values: Any) -> Critic:
    """Scalar values from whatever has them, or an error that says what would have."""
    if isinstance(values, Values):  # whose own V and Q are of all costs at once
        return values.critic
    own = all(callable(getattr(values, name, None)) for name in ("V", "Q"))
    found: Critic = values if own and hasattr(values, "gamma") else critic_of(values)
    return found


class PD2(_Plain):
    """ŵ_t = c(x_t) + γV(x_{t+1}) - Q(x_t, u_t) for vector costs c(x) = φ(x) (`eqn:pd2`).

    `values` has c, V and Q, rows of d_w numbers: vector values of `policies`, fitted values, a
    policy that came with the package, or D4PG with a vector head.
    """

    name, signal = "pd2", signals.SIGNALS["pd2"]

    def __init__(self, values: Any) -> None:
        self.values = vector_of(values)
        self.gamma, self.d_w = float(self.values.gamma), int(self.values.d_w)
        self._values = _online(values)

    def after(self, step: Happened) -> Aux:
        """c(x_t), V(x_{t+1}) and Q(x_t, u_t)."""
        aux = {
            signals.C_VEC: self.values.c(step.x),
            signals.V_VEC_NEXT: self.values.V(step.x_next),
            signals.Q_VEC: self.values.Q(step.x, step.u),
        }
        _learn_on(self._values, step)
        return aux


def vector_of(values: Any) -> VectorCritic:
    """Vector values from whatever has them, or an error that says what would have."""
    for found in (values, getattr(values, "vector", None)):
        if all(callable(getattr(found, name, None)) for name in ("c", "V", "Q")):
            return found  # type: ignore[return-value]
    if callable(getattr(values, "vector_values", None)):
        found_values: VectorCritic = values.vector_values()
        return found_values
    raise ValueError(
        f"PD2 needs vector values c(x), V(x), Q(x, u), and {type(values).__name__} has none: learn "
        "them with windward.fit_values(env, model), or train D4PG with features='identity'"
    )


COORDINATES = ("state", "observation")


class PD3:
    """ŵ_t = x_{t+1} - f_sim(x_t, u_t) (`eqn:pd3`), from simulators of the environments as they run.

    `simulator` is one, or a list with one for each row of a vector environment. With
    `coordinates="observation"` states are compared as they are observed, as in the paper's studies.
    """

    name, signal, gamma = "pd3", signals.SIGNALS["w"], 1.0
    needs_steps, sees_reward = True, False

    def __init__(
        self, simulator: Simulator | Sequence[Simulator], coordinates: str = "state"
    ) -> None:
        checks.choice("coordinates", coordinates, COORDINATES)
        if isinstance(simulator, LearnedSimulator):
            raise ValueError(
                "a learned simulator reads observations, not the environment's state: say "
                "signal='pd3' and simulator=it"
            )
        self.simulators = [simulator] if isinstance(simulator, Simulator) else list(simulator)
        if not self.simulators or not all(isinstance(each, Simulator) for each in self.simulators):
            raise ValueError(
                "PD3 needs a simulator made by windward.simulator(env), or a list of them; "
                f"got {simulator!r}"
            )
        self.coordinates = coordinates
        first = self.simulators[0]
        self.d_w = first.d_x
        if coordinates == "observation":
            self.d_w = int(np.prod(first.env.observation_space.shape or ()))

    def before(self, u: np.ndarray) -> None:
        """Predicts, from the state that the environments are in."""
        self._predicted = [each.predict(a) for each, a in zip(self.simulators, u, strict=True)]

    def after(self, step: Happened) -> Aux:
        """ŵ itself; 0 where the environment has moved on, as an ended window needs none."""
        rows = [self._gap(i, step.x_next[i]) for i in range(len(self.simulators))]
        w_hat = np.array(rows)
        w_hat[step.gone] = 0.0
        return {signals.W: w_hat}

    def _gap(self, i: int, x_next: np.ndarray) -> np.ndarray:
        simulator, predicted = self.simulators[i], self._predicted[i]
        if self.coordinates == "state":
            return simulator.state() - predicted
        return np.ravel(x_next - simulator.observation(predicted))

    def memory(self) -> Any:
        """The generators of simulators that redraw noise."""
        return [each.memory() for each in self.simulators]

    def remember(self, memory: Any) -> None:
        """Sets the generators, all or none."""
        if not isinstance(memory, list) or len(memory) != len(self.simulators):
            raise ValueError(f"it is not of {len(self.simulators)} simulators")
        before = self.memory()
        try:
            for each, own in zip(self.simulators, memory, strict=True):
                each.remember(own)
        except ValueError:
            for each, own in zip(self.simulators, before, strict=True):
                each.remember(own)
            raise


class ObservedPD3(_Plain):
    """PD3 for somebody who has observations alone, not the environment: a robot, a server.

    States are those that the observations tell, so the simulator must know the way back; a position
    on which no motion depends may be left out. For one that was learned, states are observations.
    """

    name, signal, gamma = "pd3", signals.SIGNALS["w"], 1.0

    def __init__(self, simulator: Simulator | LearnedSimulator) -> None:
        self.simulator, self.d_w = simulator, simulator.d_x
        self._hidden: np.ndarray | None = None

    def after(self, step: Happened) -> Aux:
        """ŵ itself; 0 in coordinates that no observation shows."""
        x, known = self._states(step.x)
        x_next, next_known = self._states(step.x_next)
        if self._hidden is None:
            # Such a coordinate is 0 whatever is seen.
            self._hidden = (self._states(np.ones_like(step.x[:1], dtype=np.float64))[0] == 0)[0]
        w_hat = self.simulator.gap(x_next, self.simulator.step(x, step.u)[0])
        w_hat[:, self._hidden] = 0.0
        w_hat[~(known & next_known)] = np.nan
        return {signals.W: w_hat}

    def _states(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(states, which are known)."""
        if isinstance(self.simulator, LearnedSimulator):
            return self.simulator.state_of(x), np.ones(len(x), dtype=bool)
        return self.simulator.states_seen(np.asarray(x, dtype=np.float64))

    def memory(self) -> Any:
        """The generator of a simulator that redraws noise."""
        return self.simulator.memory()

    def remember(self, memory: Any) -> None:
        """Sets the generator."""
        self.simulator.remember(memory)


class Own(_Plain):
    """A signal of the user's: ŵ = function(x, u, reward, x_next), d_w numbers, for one step."""

    name, signal, gamma, sees_reward = "own", signals.SIGNALS["w"], 1.0, True

    def __init__(self, function: Callable[..., Any], d_w: int) -> None:
        if not callable(function):
            raise ValueError(f"a signal must be a function (x, u, reward, x_next); got {function}")
        self.function, self.d_w = function, checks.integer("d_w", d_w, 1)

    def after(self, step: Happened) -> Aux:
        """ŵ itself."""
        rows = [
            np.asarray(self.function(*each), dtype=float).reshape(self.d_w)
            for each in zip(step.x, step.u, step.reward, step.x_next, strict=True)
        ]
        return {signals.W: np.stack(rows)}
