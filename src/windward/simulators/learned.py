"""A simulator that was learned from steps, in coordinates of the observation.

    x_{t+1} = x_t + linear(x_t, u_t) + the mean of some small networks

What least squares explain is left to them; the networks learn the rest. It has the methods of
`Simulator` that PD3 and replays ask for; states are observations, flattened.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from windward import checks
from windward.policies.actions import ActionCode
from windward.policies.networks import Params
from windward.simulators.ensembles import forward_numpy
from windward.simulators.parameters import arrays_of
from windward.simulators.transitions import rows_of

ILL_FITTED = 0.3
"""share of the motion from which on a learned simulator is not relied on"""
FLOOR = 3.0
"""one-step errors that a pseudo-disturbance must be larger than to count as one"""
NEXT_TO = 0.25
"""and this much of the largest share of the motion that one has"""
REACH = 1.0
"""how far beyond what was seen states may go, in ranges of what was seen"""

RewardFunction = Callable[[np.ndarray, np.ndarray, np.ndarray], Any]
EndFunction = Callable[[np.ndarray], Any]


class Fit(NamedTuple):
    """How well a learned simulator does one step ahead, on steps that it has not learned from."""

    steps: int
    """how many those are"""
    error: np.ndarray
    """(d_x,) root mean square error of x_{t+1}"""
    motion: np.ndarray
    """(d_x,) standard deviation of x_{t+1} - x_t"""
    reward_error: float
    reward_spread: float
    """root mean square error of the reward, and its standard deviation"""
    ends: int
    """steps that ended an episode"""
    ends_missed: int
    ends_made_up: int
    """ends that it did not see, and ends that it saw where there was none"""
    own: np.ndarray
    """(d_x,) root mean square error of x_{t+1} on steps of the policy without noise; on steps that
    said when to stop where there were none"""

    @property
    def relative(self) -> np.ndarray:
        """Error over motion for each coordinate; 0 for those that never move."""
        moves = self.motion > 0
        return np.where(moves, self.error / np.where(moves, self.motion, 1.0), 0.0)

    @property
    def missed(self) -> float:
        """The share of the motion that is missed: root mean square of `relative`."""
        moves = self.motion > 0
        return float(np.sqrt(np.square(self.relative[moves]).mean())) if moves.any() else 0.0

    @property
    def ill(self) -> bool:
        """Whether it is too wrong to be relied on."""
        return not self.missed <= ILL_FITTED

    def __str__(self) -> str:
        worst = int(self.relative.argmax())
        said = (
            f"one step ahead the learned simulator misses {percent(self.missed)} of the motion on "
            f"{self.steps} held-out steps (most in coordinate {worst}: "
            f"{percent(self.relative[worst])})"
        )
        if self.reward_spread > 0:
            said += f", and {percent(self.reward_error / self.reward_spread)} of the reward"
        if self.ends or self.ends_made_up:
            said += f"; of {self.ends} ends it missed {self.ends_missed}"
            said += f" and made up {self.ends_made_up}"
        return said


def percent(share: float) -> str:
    """A share in words that are short."""
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


class Networks(NamedTuple):
    """What was learned: arrays alone."""

    mean: np.ndarray  # (d_x,) of x
    spread: np.ndarray
    low: np.ndarray  # (d_x,) least and greatest x that were seen
    high: np.ndarray
    linear: np.ndarray  # (d_x + d_u + 1, d_x + 1): change of x, and reward, from [x, u, 1]
    size: np.ndarray  # (d_x + 1,) of what the networks add to that
    circles: np.ndarray  # (d_x, k) 1 for the coordinates of each point on a circle or a sphere
    params: Params
    ends: Params | None  # logit of the end from x_next; None where none was seen
    added: np.ndarray | None = None
    """(2 d_x + d_u + 1, d_x): what a ridge correction adds to the change, from its `features`"""

    def settled(self, x: np.ndarray) -> np.ndarray:
        """States as they can be: back on their circles, and not far beyond what was seen.

        A sine and a cosine that leave the circle step by step are of no angle, and replays would
        find an M that does well there.
        """
        room = REACH * (self.high - self.low)
        inside = np.clip(x, self.low - room, self.high + room)
        if not self.circles.shape[1]:
            return inside
        radius = np.maximum(np.sqrt(np.square(x) @ self.circles), 1e-9)
        on = self.circles.any(axis=1)
        return np.where(on, x / np.where(on, radius @ self.circles.T, 1.0), inside)

    def inputs(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """[x, u, 1], with x at unit spread."""
        return np.concatenate([(x - self.mean) / self.spread, u, np.ones((len(x), 1))], axis=1)

    def change(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """x_{t+1} - x_t, and in the last column the reward."""
        z = self.inputs(x, u)
        found = z @ self.linear + self.size * forward_numpy(self.params, z[:, :-1]).mean(axis=0)
        if self.added is not None:
            found[:, :-1] += np.concatenate([z, found[:, :-1]], axis=1) @ self.added
        return np.asarray(found)

    def ended(self, x_next: np.ndarray) -> np.ndarray:
        """Whether these are ends."""
        if self.ends is None:
            return np.zeros(len(x_next), dtype=bool)
        z = (x_next - self.mean) / self.spread
        return np.asarray(forward_numpy(self.ends, z).mean(axis=0)[:, 0] > 0)


class LearnedSimulator:
    """What `fit_simulator` gives: f(x, u) from observations alone, and how good it is, `.fit`.

    Use it as `RobustWrapper(env, "pd3", model=model, simulator=it)`.
    """

    noisy = False
    parts: Mapping[str, np.ndarray] = {}

    def __init__(
        self,
        networks: Networks,
        observation_space: gym.spaces.Box,
        action_space: gym.Space,
        fit: Fit,
        reward: RewardFunction | None = None,
        terminated: EndFunction | None = None,
    ) -> None:
        self.networks, self.fit = networks, fit
        self.observation_space, self.action_space = observation_space, action_space
        self.reward_function, self.end_function = reward, terminated
        self._code = ActionCode(action_space)

    @property
    def dynamics(self) -> "LearnedSimulator":
        """f on states and `inner` actions: itself."""
        return self

    @property
    def d_x(self) -> int:
        """How many numbers a state, an observation, has."""
        return len(self.networks.mean)

    def pushes(self, size: np.ndarray) -> np.ndarray:
        """In which coordinates a ŵ of this size is a disturbance, and not the simulator's error.

        The error is known for calm steps alone, and grows where a disturbance leads. Next to a
        large share of the motion a small one is therefore taken for error: M would learn to read
        it like a clock, as replays repeat it whatever M does.
        """
        share = np.where(self.fit.motion > 0, size / np.maximum(self.fit.motion, 1e-12), 0.0)
        return np.asarray((size > FLOOR * self.fit.error) & (share > NEXT_TO * share.max()))

    def inner(self, u: np.ndarray) -> np.ndarray:
        """Rows of actions as the networks see them."""
        return self._code.encode(u)

    def advance(
        self, x: np.ndarray, u: np.ndarray, forces: Mapping[str, np.ndarray] | None = None
    ) -> np.ndarray:
        """x_next for rows of states and `inner` actions; NaN where a state is not finite."""
        settled = self.networks.settled(x)
        return self.networks.settled(settled + self.networks.change(settled, u)[:, :-1])

    def corrected(self, added: np.ndarray) -> "LearnedSimulator":
        """Another one, to whose changes a linear map of `features` is added; see `refit`."""
        return self._with(self.networks._replace(added=np.asarray(added, dtype=np.float64)))

    def features(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """(n, 2 d_x + d_u + 1): [x, u, 1] as the networks see them, and the predicted change."""
        plain = self.networks._replace(added=None)
        change = plain.change(x, u)[:, :-1]
        return np.concatenate([plain.inputs(x, u), change], axis=1)

    def step(self, x: Any, u: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(x_next, cost, terminated) for rows of states and actions; c = -reward."""
        x = self.networks.settled(self._states("x", x))
        change = self.networks.change(x, self._code.encode(u))
        x_next = self.networks.settled(x + change[:, :-1])
        return x_next, -self._reward(x, u, x_next, change[:, -1]), self.terminated(x_next, u)

    def _reward(self, x: np.ndarray, u: Any, x_next: np.ndarray, learned: np.ndarray) -> np.ndarray:
        if self.reward_function is None:
            return learned
        given = self.reward_function(self.observation(x), np.asarray(u), self.observation(x_next))
        return _column("reward(x, u, x_next)", given, len(x))

    def terminated(self, x: np.ndarray, u: Any) -> np.ndarray:
        """Whether the episode ends in each of these states; the action is not looked at."""
        if self.end_function is None:
            return self.networks.ended(x)
        return _column("terminated(x)", self.end_function(self.observation(x)), len(x)) != 0

    def observation(self, x: Any) -> np.ndarray:
        """States as observations: of the space's shape and type."""
        x = checks.finite_array("x", x, ndim=(1, 2))
        shape = (*x.shape[:-1], *self.observation_space.shape)
        return self.networks.settled(x).reshape(shape).astype(self.observation_space.dtype)

    def state_of(self, observation: Any) -> np.ndarray:
        """Observations, rows, as states."""
        return self._states("observation", rows_of(observation))

    def gap(self, x_next: np.ndarray, x_pred: np.ndarray) -> np.ndarray:
        """x_next - x_pred of rows."""
        return x_next - x_pred

    def changed(self, scale: Mapping[str, float]) -> "LearnedSimulator":
        """Another one, whose coordinates answer otherwise: {"response:3": 0.8, "offset:0": 0.1}.

        `response` multiplies a coordinate's change in a step, `offset` adds to it, in its usual
        changes.
        """
        names = [str(i) for i in range(self.d_x)]
        found = arrays_of({"response": names, "offset": names}, scale, "scale")
        response = np.append(found.get("response", np.ones(self.d_x)), 1.0)
        offset = np.append(found.get("offset", np.zeros(self.d_x)) * self.fit.motion, 0.0)
        linear = self.networks.linear * response
        linear[-1] += offset
        return self._with(self.networks._replace(linear=linear, size=self.networks.size * response))

    def _with(self, networks: Networks) -> "LearnedSimulator":
        return LearnedSimulator(
            networks, self.observation_space, self.action_space, self.fit, self.reward_function,
            self.end_function,
        )  # fmt: skip

    def states_seen(self, observation: Any) -> tuple[np.ndarray, np.ndarray]:
        """(states, which of them are known): all."""
        x = rows_of(observation)
        return x, np.ones(len(x), dtype=bool)

    def memory(self) -> Any:
        """Nothing: it draws no noise."""
        return None

    def remember(self, memory: Any) -> None:
        """Nothing."""

    def report(self) -> str:
        """How good it is, in a sentence and a table of coordinates."""
        lines = [f"{self.fit}.", "coordinate  error  motion  missed"]
        columns = (self.fit.error, self.fit.motion, self.fit.relative)
        for i, (error, motion, missed) in enumerate(zip(*columns, strict=True)):
            lines.append(f"{i:10d}  {error:.3g}  {motion:.3g}  {percent(missed)}")
        return "\n".join(lines)

    def _states(self, name: str, x: Any) -> np.ndarray:
        x = checks.finite_array(name, x, ndim=2)
        if x.shape[1] != self.d_x:
            raise ValueError(f"{name} must be rows of {self.d_x} numbers; got shape {x.shape}")
        return x


def _column(name: str, given: Any, n: int) -> np.ndarray:
    """One number for each row, from a user's function."""
    array = np.asarray(given, dtype=np.float64)
    checks.shape(name, array, (n,), "one for each row")
    return array
