"""Simulators of environments: f(x, u) without the wind, for PD3 and for replays.

`simulator` reads an environment's own physics; `Unsupported` says where it cannot. Simulators that
are learned from steps are `windward.fit_simulator`'s; they need JAX and are not loaded from here.
"""

from windward.simulators.base import Unstable
from windward.simulators.shell import Unsupported
from windward.simulators.simulator import Simulator, simulator

__all__ = ["Simulator", "Unstable", "Unsupported", "simulator"]
