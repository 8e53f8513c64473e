"""Base policies and their values: adapters, critics, vector values for PD2, shipped policies."""

from windward.bases.critics import Critic, VectorCritic
from windward.bases.features import Features, hidden, linear, random_projection
from windward.bases.policies import logits_of, predictor
from windward.bases.sb3 import critic_of
from windward.bases.shipped import BasePolicy, available, load, load_base, save_base
from windward.bases.values import Values

__all__ = [
    "BasePolicy",
    "Critic",
    "Features",
    "Values",
    "VectorCritic",
    "available",
    "critic_of",
    "hidden",
    "linear",
    "load",
    "load_base",
    "logits_of",
    "predictor",
    "random_projection",
    "save_base",
]
