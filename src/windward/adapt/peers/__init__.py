"""Peers for comparison, in the slot of `RobustWrapper`: they cancel ŵ, and learn nothing of costs.

Residual-policy learning is in `windward.agents`, where its learner is.
"""

from windward.adapt.peers.l1 import L1Augmentation
from windward.adapt.peers.observer import DisturbanceObserver

__all__ = ["DisturbanceObserver", "L1Augmentation"]
