"""The adaptive layer on Gymnasium: `RobustWrapper` for environments, `robustify` for policies."""

from windward.adapt.config import logits_from, register
from windward.adapt.faults import Fault
from windward.adapt.judges import JudgeSettings
from windward.adapt.learners.base import Heard, Planned
from windward.adapt.learners.l1 import L1Settings
from windward.adapt.learners.observer import ObserverSettings
from windward.adapt.metric import MetricSettings
from windward.adapt.policy import RobustPolicy, robustify
from windward.adapt.proposers.base import SimulationSettings
from windward.adapt.proposers.matching import MatchingSettings
from windward.adapt.proposers.search import SearchSettings
from windward.adapt.sources import PD1, PD2, PD3, Own
from windward.adapt.supervisor import SupervisorSettings
from windward.adapt.trials import TrialSettings
from windward.adapt.vector import RobustVectorWrapper
from windward.adapt.winds import WindSettings
from windward.adapt.wrapper import RobustWrapper

__all__ = [
    "PD1",
    "PD2",
    "PD3",
    "Fault",
    "Heard",
    "JudgeSettings",
    "L1Settings",
    "MatchingSettings",
    "MetricSettings",
    "ObserverSettings",
    "Own",
    "Planned",
    "RobustPolicy",
    "RobustVectorWrapper",
    "RobustWrapper",
    "SearchSettings",
    "SimulationSettings",
    "SupervisorSettings",
    "TrialSettings",
    "WindSettings",
    "logits_from",
    "register",
    "robustify",
]
