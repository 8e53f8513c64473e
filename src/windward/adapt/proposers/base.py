"""What a proposer of corrections in the diagnosed world is given, and what it must bring."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from windward.adapt.corrections import Correction, Space
from windward.adapt.episodes import Policy, Starts, Window, draw_starts
from windward.adapt.twin import Twin
from windward.adapt.winds import WindSettings
from windward.diagnosis.diagnosis import Diagnosis


@dataclass(frozen=True)
class SimulationSettings:
    """Episodes that are simulated in the diagnosed world."""

    steps: int = 1000
    """of an episode, where the environment does not say how long one may last"""
    jitter: float = 5e-3
    """by which a start differs from a recorded one, in units of the state"""
    h: int = 3
    """steps in the window of deviations"""


class Situation(NamedTuple):
    """What is known when a correction is proposed."""

    diagnosis: Diagnosis
    twin: Twin
    policy: Policy
    """base actions of observations, rows"""
    range: Space
    dtype: type
    """of actions"""
    root: np.ndarray
    """of the metric of the nominal closed loop"""
    scale: np.ndarray
    """(d_x,) usual change of a coordinate in a step"""
    starts: np.ndarray
    """(n, d_x) recorded first states of episodes"""
    recent: np.ndarray
    """(n, d_x) states of the last steps"""
    observations: np.ndarray
    """(n, d) recorded ones, flattened"""
    window: Window
    horizon: int
    """steps of an episode"""
    simulation: SimulationSettings
    winds: WindSettings
    noise: float = 0.0
    """mean square error of a step in the nominal simulator, in the metric, for each coordinate: 0
    where it is exact, and not one that was learned"""

    def draw(self, count: int, rng: np.random.Generator, recent: bool = False) -> Starts:
        """Fresh starts with fresh winds; `recent`: half of them near the last states."""
        s = self.simulation
        if not recent:
            return draw_starts(self.twin, self.starts, count, self.horizon, rng, s.jitter)
        first = draw_starts(self.twin, self.recent, count - count // 2, self.horizon, rng, 0.0)
        other = draw_starts(self.twin, self.starts, count // 2, self.horizon, rng, s.jitter)
        wind = None
        if first.wind is not None and other.wind is not None:
            wind = np.concatenate([first.wind, other.wind])
        return Starts(np.concatenate([first.x, other.x]), wind)


class Proposer(Protocol):
    """Proposes corrections in a diagnosed world; what acts is the supervisor's decision."""

    name: str
    quick: bool
    """whether it proposes at once; others are asked between episodes, or beside the loop"""

    def propose(
        self,
        at: Situation,
        known: Correction | None,
        rng: np.random.Generator,
        say: Callable[[str], None],
    ) -> Correction | None:
        """A correction, or None where it has none; `known` is what acts by now."""
        ...
