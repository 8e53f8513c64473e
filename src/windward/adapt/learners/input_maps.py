"""The input map B: what an action adds in the coordinates of ŵ, by least squares.

B is (d_w, d_u), for actions scaled to [-1, 1]. With a simulator, or with vector values, it is found
from differences around the executed action and so follows the state. Without either it is regressed
on executed actions, online.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from windward import checks
from windward.adapt.learners.base import Arrays
from windward.adapt.sources import PD2, PD3, Happened, ObservedPD3, Source
from windward.policies.actions import ActionCode

NAMES = ("auto", "simulator", "values", "online")


@dataclass(frozen=True)
class InputMapSettings:
    """How an input map is found."""

    delta: float = 0.1
    """of differences, in actions scaled to [-1, 1]: wide enough to see past a contact"""
    local: float = 0.5
    """weight, a step later, of what differences told"""
    slow: float = 0.999
    """weight, a step later, of what executed actions told"""
    largest: float = 1e100
    """a number whose square is still one: larger ones are not regressed on"""
    ridge: float = 1e-8
    """of the regression, over the square of each column"""
    damping: float = 1e-3
    """of the inverse, over the mean square of B's columns"""


SETTINGS = InputMapSettings()
TINY = 1e-12


class LeastSquares:
    """Θ of y ≈ Θᵀz: S = λS + Σzzᵀ, Θ = (S + ρ diag S)⁻¹ Σzyᵀ, faded by λ = `forget`.

    >>> fit = LeastSquares(1, 1, forget=1.0)
    >>> fit.add(np.array([[1.0], [2.0]]), np.array([[3.0], [6.0]]))
    >>> fit.theta.round(6)
    array([[3.]])
    """

    def __init__(self, d_z: int, d_y: int, forget: float) -> None:
        self._forget = forget
        self._S, self._Y, self._squares = np.zeros((d_z, d_z)), np.zeros((d_z, d_y)), np.zeros(d_y)
        self.count = 0.0
        """rows that count"""

    def add(self, z: np.ndarray, y: np.ndarray) -> None:
        """Rows of one step."""
        fade = self._forget
        self._S, self._Y = fade * self._S + z.T @ z, fade * self._Y + z.T @ y
        self._squares = fade * self._squares + (y**2).sum(axis=0)
        self.count = fade * self.count + len(z)

    @property
    def _ridged(self) -> np.ndarray:
        return self._S + np.diag(SETTINGS.ridge * np.diag(self._S) + TINY)

    @property
    def theta(self) -> np.ndarray:
        """(d_z, d_y)."""
        return np.linalg.solve(self._ridged, self._Y)

    def doubt(self, weights: np.ndarray) -> np.ndarray:
        """Σ_k weights_k Cov(θ_k), (d_z, d_z): how far Θ may be off, judged by its residuals."""
        left = np.maximum(self._squares - (self.theta * self._Y).sum(axis=0), 0.0)
        freedom = max(self.count - len(self._S), 1.0)
        return float(weights @ left) / freedom * np.linalg.inv(self._ridged)

    def arrays(self) -> Arrays:
        """What it sums up."""
        return {
            "S": self._S, "Y": self._Y, "squares": self._squares, "count": np.array(self.count)
        }  # fmt: skip

    def restore(self, arrays: Arrays) -> None:
        """Goes on from that."""
        self._S, self._Y, self._squares = (arrays[name] for name in ("S", "Y", "squares"))
        self.count = float(arrays["count"])


def inverse(B: np.ndarray, weights: np.ndarray, doubt: np.ndarray) -> np.ndarray:
    """B⁺ = (BᵀWB + doubt + ρI)⁻¹BᵀW, (d_u, d_w), with W = diag(weights).

    B⁺ŵ is the action whose effect is nearest to ŵ, and less of it where B is not known well.

    >>> inverse(np.array([[0.0], [0.5]]), np.ones(2), np.zeros((1, 1))).round(2)
    array([[0., 2.]])
    """
    weighted = B.T * weights
    gram = weighted @ B
    n = len(gram)
    damping = SETTINGS.damping * np.trace(gram) / n + TINY
    return np.linalg.solve(gram + doubt + damping * np.eye(n), weighted)


class InputMap(Protocol):
    """B, and how it follows what is seen."""

    B: np.ndarray

    def before(self) -> None:
        """Called before the environment is stepped."""

    def after(self, step: Happened, w_hat: np.ndarray) -> None:
        """One step to learn from."""

    def forget(self) -> None:
        """As when it was made."""

    def doubt(self, weights: np.ndarray) -> np.ndarray:
        """What B's error would add to BᵀWB on average, (d_u, d_u)."""
        ...

    def arrays(self) -> Arrays:
        """What it has learned."""
        ...

    def restore(self, arrays: Arrays) -> None:
        """Goes on from that."""


class Given:
    """A map that the user knows."""

    def __init__(self, B: Any, d_w: int, d_u: int) -> None:
        self.B = checks.finite_array("input_map", B, ndim=2)
        checks.shape("input_map", self.B, (d_w, d_u), "d_w by d_u")

    def before(self) -> None:
        """Nothing."""

    def after(self, step: Happened, w_hat: np.ndarray) -> None:
        """Nothing."""

    def forget(self) -> None:
        """Nothing."""

    def doubt(self, weights: np.ndarray) -> np.ndarray:
        """None."""
        return np.zeros((self.B.shape[1],) * 2)

    def arrays(self) -> Arrays:
        """Nothing."""
        return {}

    def restore(self, arrays: Arrays) -> None:
        """Nothing."""


class _Learned:
    """A map from a regression."""

    B: np.ndarray
    _fit: LeastSquares

    def arrays(self) -> Arrays:
        """See InputMap."""
        return {"B": self.B, **self._fit.arrays()}

    def restore(self, arrays: Arrays) -> None:
        """See InputMap."""
        self.B = arrays["B"]
        self._fit.restore(arrays)


Look = Callable[[], Any]
"""what must be known of an environment before it is stepped"""
Respond = Callable[[Any, np.ndarray, np.ndarray], np.ndarray]
"""that, rows of observations and of actions -> what they would have come to, as ŵ is measured"""


class Differences(_Learned):
    """From what actions to either side of the executed one would have come to."""

    def __init__(self, look: Look, respond: Respond, space: gym.spaces.Box, d_w: int) -> None:
        self._look, self._respond, self._space, self._d_w = look, respond, space, d_w
        self._half = ActionCode(space).half.astype(np.float64)
        self._low, self._high = space.low.ravel(), space.high.ravel()
        self.forget()

    def forget(self) -> None:
        """Nothing is known: B is 0."""
        d_u = len(self._half)
        self.B = np.zeros((self._d_w, d_u))
        self._fit = LeastSquares(d_u, self._d_w, SETTINGS.local)

    def before(self) -> None:
        """Looks at the state."""
        self._x = self._look()

    def after(self, step: Happened, w_hat: np.ndarray) -> None:
        """Two trials for each number of the action, inside the space."""
        d_u, dtype = len(self._half), self._space.dtype
        offsets = SETTINGS.delta * self._half * np.concatenate([np.eye(d_u), -np.eye(d_u)])
        trials = np.clip(step.u[0].ravel() + offsets, self._low, self._high).astype(dtype)
        seen = np.repeat(step.x[:1], 2 * d_u, axis=0)
        came_to = self._respond(self._x, seen, trials.reshape(-1, *self._space.shape))
        y = came_to[:d_u] - came_to[d_u:]
        z = (trials[:d_u].astype(np.float64) - trials[d_u:]) / self._half
        known = np.isfinite(y).all(axis=1)  # the physics may have broken down
        self._fit.add(z[known], y[known])
        self.B = self._fit.theta.T

    def doubt(self, weights: np.ndarray) -> np.ndarray:
        """None: what changes from step to step is no error."""
        return np.zeros((len(self._half),) * 2)


class Regressed(_Learned):
    """From executed actions: x_{t+1} - ŵ_t regressed on x_t, 1 and u_t.

    Without taking off ŵ_t, the correction, which follows the wind, would pass for a part of it.
    ŵ is in the coordinates of the observation, and the action needs some noise.
    """

    def __init__(self, space: gym.spaces.Box, d_x: int) -> None:
        self._code, self._d_x = ActionCode(space), d_x
        self.forget()

    def forget(self) -> None:
        """Nothing is known: B is 0."""
        d_x, d_u = self._d_x, self._code.size
        self.B, self._fit = np.zeros((d_x, d_u)), LeastSquares(d_x + 1 + d_u, d_x, SETTINGS.slow)

    def before(self) -> None:
        """Nothing."""

    def after(self, step: Happened, w_hat: np.ndarray) -> None:
        """One row more; B is 0 until there are twice as many as it has unknowns."""
        x, x_next = (each[0].ravel().astype(np.float64) for each in (step.x, step.x_next))
        z = np.concatenate([x, [1.0], self._code.encode(step.u)[0]])
        y = x_next - w_hat
        if max(np.abs(z).max(), np.abs(y).max()) < SETTINGS.largest:
            self._fit.add(z[None], y[None])
        if self._fit.count >= 2 * len(z):
            self.B = self._fit.theta[self._d_x + 1 :].T

    def doubt(self, weights: np.ndarray) -> np.ndarray:
        """From the residuals of the regression."""
        return self._fit.doubt(weights)[self._d_x + 1 :, self._d_x + 1 :]


def make_map(
    given: Any, source: Source, spaces: tuple[gym.Space, gym.Space], row: int = 0
) -> InputMap:
    """The map of a row that a user means by a name or a matrix.

    "auto" is "simulator" for PD3, "values" for PD2, "online" elsewhere.
    """
    space, d_w = spaces[1], source.d_w
    assert isinstance(space, gym.spaces.Box)
    assert d_w is not None
    if not isinstance(given, str):
        return Given(given, d_w, ActionCode(space).size)
    checks.choice("input_map", given, NAMES)
    if isinstance(source, PD3 | ObservedPD3) and given in ("auto", "simulator"):
        return Differences(*_simulated(source, row), space, d_w)
    if isinstance(source, PD2) and given in ("auto", "values"):
        values = source.values

        def respond(_: Any, x: np.ndarray, u: np.ndarray) -> np.ndarray:
            # ŵ is γV(x_{t+1}) less what Q, which has the action in it, expects of it.
            return np.asarray(values.Q(x, u), dtype=np.float64)

        return Differences(lambda: None, respond, space, d_w)
    if given in ("simulator", "values"):
        needed = "pd3" if given == "simulator" else "pd2"
        raise ValueError(
            f"input_map {given!r} is for signal {needed!r}; the signal is {source.name!r}: say "
            "'online' or give the matrix"
        )
    d_x = int(np.prod(spaces[0].shape or ()))
    if d_w != d_x:
        raise ValueError(
            f"input_map 'online' regresses observations, of {d_x} numbers, and ŵ has {d_w}: give "
            "the matrix, or a signal in the coordinates of the observation"
        )
    return Regressed(space, d_x)


def _simulated(source: PD3 | ObservedPD3, row: int) -> tuple[Look, Respond]:
    """x_{t+1} of PD3's simulator, as ŵ is measured."""
    if isinstance(source, ObservedPD3):
        learned = source.simulator
        return lambda: None, lambda _, x, u: learned.step(learned.state_of(x), u)[0]
    simulator = source.simulators[row]

    def respond(state: Any, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        x_next = simulator.step(state[None], u)[0]
        if source.coordinates == "state":
            return x_next
        return simulator.observation(x_next).reshape(len(x_next), -1)

    return simulator.state, respond
