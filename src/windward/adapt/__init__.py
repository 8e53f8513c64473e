"""The adaptive layer on Gymnasium: `RobustWrapper` for environments, `robustify` for policies."""

from windward.adapt import peers
from windward.adapt.building import logits_from
from windward.adapt.faults import Fault
from windward.adapt.policy import RobustPolicy, robustify
from windward.adapt.search import Search
from windward.adapt.sources import PD1, PD2, PD3, Own
from windward.adapt.vector import RobustVectorWrapper
from windward.adapt.wrapper import RobustWrapper

__all__ = [
    "PD1",
    "PD2",
    "PD3",
    "Fault",
    "Own",
    "RobustPolicy",
    "RobustVectorWrapper",
    "RobustWrapper",
    "Search",
    "logits_from",
    "peers",
    "robustify",
]
