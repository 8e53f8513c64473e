"""Critics as the signals need them: V, Q and their gradients, for rows, in units of reward.

V(x) = Q(x, π(x)) with π the noise-free base policy (deviation 9). Actions are as the environment
takes them, executed ones. Costs are c = -reward, and V, Q are negated with them, once, in adapt/.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from windward.policies import networks
from windward.policies.actions import ActionCode
from windward.policies.networks import Params


class Critic(Protocol):
    """Scalar values of a base policy; observations and actions are rows."""

    gamma: float
    """discount that they are of"""

    def V(self, x: Any) -> np.ndarray:
        """V(x) = Q(x, π(x)), shape (n,)."""

    def Q(self, x: Any, u: Any) -> np.ndarray:
        """Q(x, u), shape (n,)."""

    def grad_V(self, x: Any) -> np.ndarray:
        """Gradient of V in x, shape (n, d_x)."""

    def grad_Q(self, x: Any, u: Any) -> np.ndarray:
        """Gradient of Q in u, shape (n, d_u)."""


class VectorCritic(Protocol):
    """Vector cost and values of a base policy, for PD2; rows, each of d_w numbers."""

    d_w: int
    gamma: float

    def c(self, x: Any) -> np.ndarray:
        """The vector cost φ(x)."""

    def V(self, x: Any) -> np.ndarray:
        """Its value under the base policy."""

    def Q(self, x: Any, u: Any) -> np.ndarray:
        """Its value after u, then the base policy."""


def flat(x: Any, d_x: int) -> np.ndarray:
    """One observation or several as rows of d_x numbers."""
    array = np.asarray(x, dtype=np.float32)
    rows = array.ndim > 1 and int(np.prod(array.shape[1:])) == d_x
    if not rows and array.size != d_x:
        raise ValueError(
            f"observations must be rows of {d_x} numbers; got an array of shape {array.shape}"
        )
    return array.reshape(-1, d_x)


def rows_in(space: gym.Space, x: Any) -> np.ndarray:
    """One observation of a space or several, as rows."""
    array, shape = np.asarray(x), space.shape or ()
    if array.shape == shape:
        return array[None]
    if array.ndim != len(shape) + 1 or array.shape[1:] != shape:
        raise ValueError(f"an observation must have shape {shape}; got {array.shape}")
    return array


def value_of(logits: Any, atoms: Any) -> Any:
    """Q from a critic's output: the mean of the distribution, or the output itself."""
    if atoms.shape[0] == 1:
        return logits[..., 0]
    return jax.nn.softmax(logits) @ atoms


def _value_numpy(logits: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    if len(atoms) == 1:
        return logits[:, 0]
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    # Not p @ atoms: BLAS reads beyond short rows, and what lies there may raise float warnings.
    return np.einsum("...i,i->...", p, atoms) / p.sum(axis=-1)


class NetworkCritic:
    """The critic of D4PG, as it was when taken: π(x) and the distribution of returns."""

    def __init__(
        self,
        policy: Params,
        critic: Params,
        atoms: np.ndarray,
        action_space: gym.Space,
        gamma: float,
    ) -> None:
        self.gamma = gamma
        self._policy, self._critic, self._atoms = policy, critic, np.asarray(atoms)
        self._code = ActionCode(action_space)
        self._d_x = policy["w0"].shape[0]
        self.hidden_units = int(critic[f"w{networks.depth(critic) - 1}"].shape[0])

    def _base(self, x: np.ndarray) -> np.ndarray:
        return networks.policy_numpy(self._policy, x)

    def _logits(self, x: np.ndarray, coded: np.ndarray) -> np.ndarray:
        return networks.forward_numpy(self._critic, np.concatenate([x, coded], axis=-1))

    def logits_V(self, x: Any) -> np.ndarray:
        """The critic's output at (x, π(x))."""
        rows = flat(x, self._d_x)
        return self._logits(rows, self._base(rows))

    def logits_Q(self, x: Any, u: Any) -> np.ndarray:
        """The critic's output at (x, u)."""
        return self._logits(flat(x, self._d_x), self._code.encode(u))

    def V(self, x: Any) -> np.ndarray:
        """V(x) = Q(x, π(x))."""
        return _value_numpy(self.logits_V(x), self._atoms)

    def Q(self, x: Any, u: Any) -> np.ndarray:
        """Q(x, u), the mean of the distribution."""
        return _value_numpy(self.logits_Q(x, u), self._atoms)

    def hidden(self, x: Any) -> np.ndarray:
        """The last hidden layer at (x, π(x))."""
        rows = flat(x, self._d_x)
        both = np.concatenate([rows, self._base(rows)], axis=-1)
        return networks.hidden_numpy(self._critic, both)

    @cached_property
    def _slopes(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        atoms = jnp.asarray(self._atoms)

        def total_Q(u: Any, x: Any) -> Any:
            return value_of(networks.critic(self._critic, x, u), atoms).sum()

        def total_V(x: Any) -> Any:
            return total_Q(networks.policy(self._policy, x), x)

        return jax.jit(jax.grad(total_V)), jax.jit(jax.grad(total_Q))

    def grad_V(self, x: Any) -> np.ndarray:
        """Gradient of V in x, through π."""
        return np.asarray(self._slopes[0](flat(x, self._d_x)))

    def grad_Q(self, x: Any, u: Any) -> np.ndarray:
        """Gradient of Q in the action, in the environment's units."""
        slope = self._slopes[1](self._code.encode(u), flat(x, self._d_x))
        return self._code.slope(np.asarray(slope))
