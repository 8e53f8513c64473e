"""The adaptive layer on Gymnasium: `RobustWrapper` for environments, `robustify` for policies."""

from windward.adapt import peers
from windward.adapt.building import logits_from
from windward.adapt.faults import Fault
from windward.adapt.judges import JudgeSettings
from windward.adapt.learners.base import SimulationSettings
from windward.adapt.learners.matching import MatchingSettings
from windward.adapt.learners.search import SearchSettings
from windward.adapt.metric import MetricSettings
from windward.adapt.policy import RobustPolicy, robustify
from windward.adapt.search import Search
from windward.adapt.sources import PD1, PD2, PD3, Own
from windward.adapt.supervisor import SupervisorSettings
from windward.adapt.vector import RobustVectorWrapper
from windward.adapt.winds import WindSettings
from windward.adapt.wrapper import RobustWrapper

__all__ = [
    "PD1",
    "PD2",
    "PD3",
    "Fault",
    "JudgeSettings",
    "MatchingSettings",
    "MetricSettings",
    "Own",
    "RobustPolicy",
    "RobustVectorWrapper",
    "RobustWrapper",
    "Search",
    "SearchSettings",
    "SimulationSettings",
    "SupervisorSettings",
    "WindSettings",
    "logits_from",
    "peers",
    "robustify",
]
