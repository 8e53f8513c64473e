"""From the agent's networks and environments to values, and to sources of ŵ."""

from collections.abc import Sequence
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from windward import checks, simulators
from windward.adapt.sources import PD1, PD2, PD3, Source
from windward.agents.robust import Robust
from windward.policies.critics import NetworkCritic, VectorCritic
from windward.policies.features import Features
from windward.policies.networks import Params
from windward.policies.vectors import CriticUnits, VectorHead


class Valuing(NamedTuple):
    """What, beside networks, values are made of; networks are NumPy's."""

    action_space: gym.Space
    gamma: float
    atoms: np.ndarray
    d_x: int
    features: Features | None

    def critic(self, policy: Params, critic: Params) -> NetworkCritic:
        """V and Q of the reward."""
        return NetworkCritic(policy, critic, self.atoms, self.action_space, self.gamma)

    def vector(
        self, form: str, policy: Params, critic: Params, head: Params | None
    ) -> VectorCritic:
        """V and Q of c(x) = φ(x), in one of two forms (deviation 14)."""
        checks.choice("form", form, ("vector_head", "critic_units"))
        if form == "critic_units":
            return CriticUnits(self.critic(policy, critic), self.d_x, len(self.atoms))
        if self.features is None or head is None:
            raise ValueError(
                "this agent has no vector head: make it with features='identity', take "
                "form='critic_units', or learn values afterwards with windward.fit_values"
            )
        return VectorHead(policy, head, self.features, self.gamma, self.action_space)

    def source(self, robust: Robust, policy: Params, critic: Params, head: Params | None) -> Source:
        """PD1 or PD2 from these networks."""
        if robust.signal == "pd1":
            return PD1(self.critic(policy, critic))
        return PD2(self.vector(robust.form, policy, critic, head))


def simulated(robust: Robust, environments: Sequence[gym.Env], seeds: Sequence[int]) -> PD3:
    """PD3 of environments, each with its simulator: 4 noisy copies as in the paper, if unsaid."""
    made = [
        simulators.simulator(env, **{**robust.simulator, "seed": seed})  # type: ignore[arg-type]
        for env, seed in zip(environments, seeds, strict=True)
    ]
    return PD3(made, robust.coordinates)
