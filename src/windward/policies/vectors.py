"""Vector costs and values for PD2, in two forms (deviation 14)."""

from typing import Any

import gymnasium as gym
import numpy as np

from windward.policies import networks
from windward.policies.actions import ActionCode
from windward.policies.critics import NetworkCritic, flat
from windward.policies.features import Features
from windward.policies.networks import Params


def horizon(gamma: float) -> float:
    """1/(1 - γ), at most 1000: networks learn Q over it, which is as large as the costs are."""
    return 1.0 / max(1.0 - gamma, 1e-3)


class VectorHead:
    """Values of c(x) = φ(x) that a network of its own has learned by TD beside the critic."""

    def __init__(
        self,
        policy: Params,
        head: Params,
        features: Features,
        gamma: float,
        action_space: gym.Space,
    ) -> None:
        self._policy, self._head, self._features = policy, head, features
        self._horizon, self._code = horizon(gamma), ActionCode(action_space)
        self.gamma = gamma
        self._d_x, self.d_w = policy["w0"].shape[0], features.d_w

    def _values(self, x: np.ndarray, coded: np.ndarray) -> np.ndarray:
        both = np.concatenate([x, coded], axis=-1)
        return self._horizon * networks.forward_numpy(self._head, both)

    def c(self, x: Any) -> np.ndarray:
        """φ(x)."""
        return self._features(x)

    def V(self, x: Any) -> np.ndarray:
        """Q(x, π(x))."""
        rows = flat(x, self._d_x)
        return self._values(rows, networks.policy_numpy(self._policy, rows))

    def Q(self, x: Any, u: Any) -> np.ndarray:
        """Q(x, u)."""
        return self._values(flat(x, self._d_x), self._code.encode(u))


class CriticUnits:
    """PD2's values as the paper's code has them: the critic's first d_x logits (deviation 14).

    "We pick V and Q to be the first d_x units of the last layer of the critic network"; all of them
    when d_x is larger. They are no values of c(x) = x: nothing trains them to be.
    """

    def __init__(self, critic: NetworkCritic, d_x: int, atoms: int) -> None:
        self._critic, self._d_x, self.d_w = critic, d_x, min(d_x, atoms)
        self.gamma = critic.gamma

    def c(self, x: Any) -> np.ndarray:
        """The first coordinates of x."""
        return flat(x, self._d_x)[:, : self.d_w]

    def V(self, x: Any) -> np.ndarray:
        """Logits at (x, π(x))."""
        return self._critic.logits_V(x)[:, : self.d_w]

    def Q(self, x: Any, u: Any) -> np.ndarray:
        """Logits at (x, u)."""
        return self._critic.logits_Q(x, u)[:, : self.d_w]
