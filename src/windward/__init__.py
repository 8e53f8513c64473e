"""windward keeps any reinforcement-learning policy on course when the world pushes back.

It implements "Online Nonstochastic Model-Free Reinforcement Learning" (MF-GPC, DMF-GPC, Bandit
GPC; pseudo-disturbances PD1, PD2, PD3). Start with `windward.linear` and the recipes below.
"""

from importlib.metadata import version

from windward import linear
from windward.core.algorithm import Algorithm
from windward.core.parametrisations import mlp
from windward.core.projections import dac_set, frobenius_ball
from windward.core.recipes import bandit_gpc, base_only, bpc, dmf_gpc, mf_gpc
from windward.core.signals import Signal
from windward.core.theorem import theorem_rates
from windward.linear.gpc import gpc
from windward.types import Info, Plan, State, Transition

__version__ = version("windward")

__all__ = [
    "Algorithm",
    "Info",
    "Plan",
    "Signal",
    "State",
    "Transition",
    "bandit_gpc",
    "base_only",
    "bpc",
    "dac_set",
    "dmf_gpc",
    "frobenius_ball",
    "gpc",
    "linear",
    "mf_gpc",
    "mlp",
    "theorem_rates",
]
