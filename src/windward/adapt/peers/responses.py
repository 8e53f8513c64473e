"""What other actions would have come to, for the differences that an input map is made of."""

from typing import Any, NamedTuple, Protocol

import numpy as np

from windward.adapt.sources import PD2, PD3, ObservedPD3


class Respond(Protocol):
    """What actions would have come to, in the coordinates of ŵ."""

    def state(self) -> Any:
        """What must be known of the environment before it is stepped."""

    def __call__(self, state: Any, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Rows of observations and actions to rows of d_w numbers."""


class Simulated(NamedTuple):
    """x_{t+1} of PD3's simulator."""

    source: PD3

    def state(self) -> np.ndarray:
        """See Respond."""
        return self.source.simulators[0].state()

    def __call__(self, state: Any, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """See Respond."""
        simulator = self.source.simulators[0]
        x_next = simulator.step(state[None], u)[0]
        if self.source.coordinates == "state":
            return x_next
        return simulator.observation(x_next).reshape(len(x_next), -1)


class Observed(NamedTuple):
    """The same for a simulator whose states are told by observations."""

    source: ObservedPD3

    def state(self) -> None:
        """See Respond."""

    def __call__(self, state: Any, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """See Respond."""
        simulator = self.source.simulator
        return simulator.step(simulator.state_of(x), u)[0]


class Valued(NamedTuple):
    """PD2's Q: ŵ is γ V(x_{t+1}) less what Q, which has the action in it, expects of it."""

    source: PD2

    def state(self) -> None:
        """See Respond."""

    def __call__(self, state: Any, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """See Respond."""
        return np.asarray(self.source.values.Q(x, u), dtype=np.float64)
