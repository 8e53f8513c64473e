"""The adversary of the paper's pendulum experiment: w = ε·sign(∇_x V(x)) (FGSM)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import solve_discrete_are

from windward import checks
from windward.envs.disturbances import Ask, Numbers, Rows, freeze, not_negative
from windward.simulators.base import Dynamics
from windward.simulators.shell import Unsupported

Gradient = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class GradientSign:
    """w_t = ε·sign(∇V) at the state that the physics step reached: V, a cost, grows that way.

    On "state", "qpos" and "qvel", V is a function of the state, by default the LQR's value of the
    system linearised at rest (deviation 16); on "observation", a function of the observation, for
    instance a critic's. `value` may be any function of one vector: JAX differentiates it where it
    can, central differences do otherwise; `gradient` gives ∇V directly. A critic of rewards wants
    a minus sign.
    """

    epsilon: Numbers = 0.01
    value: Callable[[Any], Any] | None = field(default=None, metadata={"text": False})
    gradient: Gradient | None = field(default=None, metadata={"text": False})
    iid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        freeze(self, epsilon=not_negative)
        if self.value is not None and self.gradient is not None:
            raise ValueError("give value or gradient, not both")
        for name in ("value", "gradient"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise ValueError(f"{name} must be a function of a vector; got {function!r}")

    def block(self, ask: Ask) -> Rows:
        """The sizes ε; the sign is the environment's answer at each step."""
        return ask.rows(ask.spread(epsilon=self.epsilon)), None

    def gradient_for(self, dynamics: Dynamics | None, example: np.ndarray) -> Gradient:
        """∇V, ready to call; `example` is a vector to try it on."""
        if self.gradient is not None:
            gradient = self.gradient
        elif self.value is not None:
            gradient = differentiate(self.value, example)
        elif dynamics is not None:
            gradient = quadratic_gradient(dynamics)
        else:
            raise Unsupported(
                "gradient-sign needs value=V or gradient=∇V here: there is no system to linearise"
            )
        checks.shape("the gradient of V", np.asarray(gradient(example)), example.shape)
        return _finite(gradient)


def _finite(gradient: Gradient) -> Gradient:
    def checked(x: np.ndarray) -> np.ndarray:
        return checks.finite_array("the gradient of V", gradient(x))

    return checked


def differentiate(value: Callable[[Any], Any], example: np.ndarray) -> Gradient:
    """∇V by JAX where it can trace V, by central differences where it cannot."""
    import jax  # only adversaries with a function of their own need it

    try:
        traced = jax.jit(jax.grad(lambda x: value(x).sum()))
        traced(example.astype(np.float32))
    except Exception:
        return _differences(value)
    return lambda x: np.asarray(traced(np.asarray(x, dtype=np.float32)))


def _differences(value: Callable[[Any], Any]) -> Gradient:
    def gradient(x: np.ndarray) -> np.ndarray:
        slope = np.empty(x.size)
        for i in range(x.size):
            # A float32 critic needs a step well above its rounding.
            step = 1e-3 * max(1.0, abs(float(x.flat[i])))
            sides = []
            for side in (step, -step):
                moved = np.array(x)
                moved.flat[i] += side
                sides.append(float(np.asarray(value(moved)).sum()))
            slope[i] = (sides[0] - sides[1]) / (2 * step)
        return slope.reshape(x.shape)

    return gradient


def linearise(dynamics: Dynamics, step: float = 1e-5) -> tuple[np.ndarray, np.ndarray]:
    """A = ∂f/∂x and B = ∂f/∂v at rest, by central differences."""
    x, v = dynamics.rest(), np.zeros(dynamics.d_v)

    def slopes(count: int, of_state: bool) -> np.ndarray:
        moves = step * np.concatenate([np.eye(count), -np.eye(count)])
        xs = x + moves if of_state else np.tile(x, (2 * count, 1))
        vs = np.tile(v, (2 * count, 1)) if of_state else v + moves
        after = dynamics.driven(xs, vs)
        return ((after[:count] - after[count:]) / (2 * step)).T

    return slopes(x.size, True), slopes(v.size, False)


def quadratic_gradient(dynamics: Dynamics) -> Gradient:
    """∇V = 2P(x - rest), P of the LQR with Q = R = I for the system linearised at rest."""
    A, B = linearise(dynamics)
    try:
        P = solve_discrete_are(A, B, np.eye(len(A)), np.eye(B.shape[1]))
    except (np.linalg.LinAlgError, ValueError) as error:
        raise Unsupported(
            "the system linearised at rest has no stabilising LQR, so there is no default V: give "
            "gradient-sign a value=V or gradient=∇V"
        ) from error
    rest = dynamics.rest()
    return lambda x: 2.0 * P @ dynamics.gap(x, rest)
