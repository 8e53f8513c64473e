"""The input map B: what an action adds in the coordinates of ŵ, by least squares.

B is (d_w, d_u), for actions scaled to [-1, 1]. With a simulator, or with vector values, it is found
from differences around the executed action and so follows the state. Without either it is regressed
on executed actions, online.
"""

from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from windward import checks
from windward.adapt.peers.least_squares import LeastSquares
from windward.adapt.peers.responses import Observed, Respond, Simulated, Valued
from windward.adapt.sources import PD2, PD3, Happened, ObservedPD3, Source
from windward.policies.actions import ActionCode

DELTA = 0.1  # of the differences, in scaled actions: wide enough to see past a contact
LOCAL = 0.5  # what is left, a step later, of what differences told
SLOW = 0.999  # and of what executed actions told
LARGEST = 1e100  # a number whose square is still one


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


class Differences:
    """From what actions to either side of the executed one would have come to."""

    def __init__(self, respond: Respond, space: gym.spaces.Box, d_w: int) -> None:
        self._respond, self._space = respond, space
        self._half = ActionCode(space).half.astype(np.float64)
        self._low, self._high = space.low.ravel(), space.high.ravel()
        self._d_w = d_w
        self.forget()

    def forget(self) -> None:
        """Nothing is known: B is 0."""
        d_u = len(self._half)
        self.B, self._fit = np.zeros((self._d_w, d_u)), LeastSquares(d_u, self._d_w, LOCAL)

    def before(self) -> None:
        """Looks at the state."""
        self._x = self._respond.state()

    def after(self, step: Happened, w_hat: np.ndarray) -> None:
        """Two trials for each number of the action, inside the space."""
        d_u, dtype = len(self._half), self._space.dtype
        offsets = DELTA * self._half * np.concatenate([np.eye(d_u), -np.eye(d_u)])
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


class Regressed:
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
        self.B, self._fit = np.zeros((d_x, d_u)), LeastSquares(d_x + 1 + d_u, d_x, SLOW)

    def before(self) -> None:
        """Nothing."""

    def after(self, step: Happened, w_hat: np.ndarray) -> None:
        """One row more; B is 0 until there are twice as many as it has unknowns."""
        x, x_next = (each[0].ravel().astype(np.float64) for each in (step.x, step.x_next))
        z = np.concatenate([x, [1.0], self._code.encode(step.u)[0]])
        y = x_next - w_hat
        if max(np.abs(z).max(), np.abs(y).max()) < LARGEST:
            self._fit.add(z[None], y[None])
        if self._fit.count >= 2 * len(z):
            self.B = self._fit.theta[self._d_x + 1 :].T

    def doubt(self, weights: np.ndarray) -> np.ndarray:
        """From the residuals of the regression."""
        return self._fit.doubt(weights)[self._d_x + 1 :, self._d_x + 1 :]


def make_map(given: Any, source: Source, env: gym.Env) -> InputMap:
    """The map that a user means by a name or a matrix.

    "auto" is "simulator" for PD3, "values" for PD2, "online" elsewhere.
    """
    space, d_w = env.action_space, source.d_w
    assert isinstance(space, gym.spaces.Box)
    assert d_w is not None
    if not isinstance(given, str):
        return Given(given, d_w, ActionCode(space).size)
    checks.choice("input_map", given, ("auto", "simulator", "values", "online"))
    if isinstance(source, PD3) and given in ("auto", "simulator"):
        return Differences(Simulated(source), space, d_w)
    if isinstance(source, ObservedPD3) and given in ("auto", "simulator"):
        return Differences(Observed(source), space, d_w)
    if isinstance(source, PD2) and given in ("auto", "values"):
        return Differences(Valued(source), space, d_w)
    if given in ("simulator", "values"):
        needed = "pd3" if given == "simulator" else "pd2"
        raise ValueError(
            f"input_map {given!r} is for signal {needed!r}; the signal is {source.name!r}: say "
            "'online' or give the matrix"
        )
    d_x = int(np.prod(env.observation_space.shape or ()))
    if d_w != d_x:
        raise ValueError(
            f"input_map 'online' regresses observations, of {d_x} numbers, and ŵ has {d_w}: give "
            "the matrix, or a signal in the coordinates of the observation"
        )
    return Regressed(space, d_x)
