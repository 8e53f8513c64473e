"""Base policies and their values: adapters, critics, vector values for PD2, shipped policies."""

from windward.policies.critics import Critic, VectorCritic
from windward.policies.features import Features, hidden, linear, random_projection
from windward.policies.predictor import logits_of, predictor
from windward.policies.sb3 import critic_of
from windward.policies.shipped import BasePolicy, available, load, load_base, save_base
from windward.policies.values import Values

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
