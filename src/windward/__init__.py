"""windward keeps any reinforcement-learning policy on course when the world pushes back.

It implements "Online Nonstochastic Model-Free Reinforcement Learning" (MF-GPC, DMF-GPC, Bandit
GPC; pseudo-disturbances PD1, PD2, PD3). Start with `windward.linear` and the recipes below, or with
`windward.envs` to push a Gymnasium environment around.

Names are imported when first used, so that a process which only steps environments never loads JAX.
"""

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from windward import envs, simulators
from windward.simulators import simulator

if TYPE_CHECKING:
    from windward import adapt, agents, diagnosis, linear, policies
    from windward.adapt.faults import Fault
    from windward.adapt.policy import RobustPolicy, robustify
    from windward.adapt.sources import PD1, PD2, PD3, Own
    from windward.adapt.vector import RobustVectorWrapper
    from windward.adapt.wrapper import RobustWrapper
    from windward.core.algorithm import Algorithm
    from windward.core.parametrisations import mlp
    from windward.core.projections import dac_set, frobenius_ball
    from windward.core.recipes import bandit_gpc, base_only, bpc, dmf_gpc, mf_gpc
    from windward.core.signals import Signal
    from windward.core.theorem import theorem_rates
    from windward.diagnosis.diagnosis import Change, Diagnosis
    from windward.diagnosis.entry import diagnose, diagnose_log
    from windward.diagnosis.recorder import Recorder
    from windward.linear.gpc import gpc
    from windward.policies.fitted import fit_values
    from windward.policies.storing import load_values, save_values
    from windward.simulators.fitting import fit_simulator
    from windward.simulators.learned_files import load_simulator, save_simulator
    from windward.types import Info, Plan, State, Transition

__version__ = version("windward")

__all__ = [
    "PD1",
    "PD2",
    "PD3",
    "Algorithm",
    "Change",
    "Diagnosis",
    "Fault",
    "Info",
    "Own",
    "Plan",
    "Recorder",
    "RobustPolicy",
    "RobustVectorWrapper",
    "RobustWrapper",
    "Signal",
    "State",
    "Transition",
    "adapt",
    "agents",
    "bandit_gpc",
    "base_only",
    "bpc",
    "dac_set",
    "diagnose",
    "diagnose_log",
    "diagnosis",
    "dmf_gpc",
    "envs",
    "fit_simulator",
    "fit_values",
    "frobenius_ball",
    "gpc",
    "linear",
    "load_simulator",
    "load_values",
    "mf_gpc",
    "mlp",
    "policies",
    "robustify",
    "save_simulator",
    "save_values",
    "simulator",
    "simulators",
    "theorem_rates",
]

_HOMES = {
    "windward": ["adapt", "agents", "policies", "diagnosis", "linear"],
    "windward.adapt.faults": ["Fault"],
    "windward.adapt.policy": ["RobustPolicy", "robustify"],
    "windward.adapt.sources": ["PD1", "PD2", "PD3", "Own"],
    "windward.adapt.vector": ["RobustVectorWrapper"],
    "windward.adapt.wrapper": ["RobustWrapper"],
    "windward.policies.fitted": ["fit_values"],
    "windward.policies.storing": ["load_values", "save_values"],
    "windward.core.algorithm": ["Algorithm"],
    "windward.core.parametrisations": ["mlp"],
    "windward.core.projections": ["dac_set", "frobenius_ball"],
    "windward.core.recipes": ["bandit_gpc", "base_only", "bpc", "dmf_gpc", "mf_gpc"],
    "windward.core.signals": ["Signal"],
    "windward.core.theorem": ["theorem_rates"],
    "windward.diagnosis.entry": ["diagnose", "diagnose_log"],
    "windward.diagnosis.diagnosis": ["Change", "Diagnosis"],
    "windward.diagnosis.recorder": ["Recorder"],
    "windward.linear.gpc": ["gpc"],
    "windward.simulators.fitting": ["fit_simulator"],
    "windward.simulators.learned_files": ["load_simulator", "save_simulator"],
    "windward.types": ["Info", "Plan", "State", "Transition"],
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'windward' has no attribute {name!r}")
    if _HOME[name] == "windward":
        return importlib.import_module(f"windward.{name}")
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
