"""Trained policies that come with the package: NumPy alone, with values, no training needed."""

from importlib.resources import as_file
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks, files
from windward.policies.actions import ActionCode
from windward.policies.critics import Critic, NetworkCritic, VectorCritic, rows_in
from windward.policies.features import flattened
from windward.policies.networks import plain_numpy, policy_numpy
from windward.policies.storing import fit_header, network_arrays, values_from
from windward.policies.values import Values

KIND = "windward.base"
SHIPPED = {
    "Pendulum-v1": "pendulum",
    "InvertedPendulum-v5": "inverted_pendulum",
    "Hopper-v5": "hopper",
    "HalfCheetah-v5": "half_cheetah",
    "CartPole-v1": "cartpole",
}
"""environment -> name of the file in policies/data"""


def group(arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """The arrays under a name, without it."""
    prefix = name + "/"
    return {key[len(prefix) :]: each for key, each in arrays.items() if key.startswith(prefix)}


class BasePolicy:
    """A policy from a file, with its values: `predict` as in SB3, `critic`, `vector`, `about`.

    For discrete actions `logits` gives the base policy's logits, for DMF-GPC, and `state_value` the
    value that it was trained with, of the policy that draws from them.
    """

    def __init__(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        self.about = {name: each for name, each in header.items() if name != "kind"}
        """what made it, and how well it does"""
        shape = tuple(header["observation"])
        kind: Any = np.dtype(header["dtype"]).type
        bounds: Any = (0, 255) if kind is np.uint8 else (-np.inf, np.inf)
        self.observation_space = gym.spaces.Box(bounds[0], bounds[1], shape, kind)
        if header["actions"] is None:
            low, high = (np.array(header[name], np.float32) for name in ("low", "high"))
            self.action_space: gym.Space = gym.spaces.Box(low, high)
        else:
            self.action_space = gym.spaces.Discrete(header["actions"], start=header["start"])
        full = {name: each.astype(np.float32) for name, each in arrays.items()}
        self._policy, self._state_value = group(full, "policy"), group(full, "state_value")
        self._code = ActionCode(self.action_space)
        self.values = values_from(
            group(full, "values"), header, self, self.observation_space, self.action_space
        )
        """fitted values of reward and observation"""
        self.vector: VectorCritic = self.values.vector
        self.critic: Critic = self.values.critic
        self.trained_critic: NetworkCritic | None = None
        """the critic that it was trained with: larger errors, as training needs only slopes"""
        critic = group(full, "critic")
        if critic:
            self.trained_critic = NetworkCritic(
                self._policy, critic, full["atoms"], self.action_space, self.values.gamma
            )

    def _rows(self, observation: Any) -> np.ndarray:
        return flattened(rows_in(self.observation_space, observation))

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Any, Any]:
        """(action, state) for one observation or rows of them, always without noise."""
        x = self._rows(observation)
        coded = (
            plain_numpy(self._policy, x) if self._code.discrete else policy_numpy(self._policy, x)
        )
        actions = self._code.decode(coded)
        single = np.shape(observation) == self.observation_space.shape
        return (actions[0] if single else actions), state

    def logits(self, observation: Any) -> np.ndarray:
        """The base policy's logits, rows; refused for continuous actions."""
        if not self._code.discrete:
            raise ValueError("a policy with continuous actions has no logits")
        return plain_numpy(self._policy, self._rows(observation))

    def state_value(self, observation: Any) -> np.ndarray:
        """V as the policy was trained with, rows."""
        if not self._state_value:
            raise ValueError("this policy came without a state value of its own: take critic.V")
        return plain_numpy(self._state_value, self._rows(observation))[:, 0]


def available() -> dict[str, str]:
    """Environment -> what is known of the policy for it."""
    return {env: _describe(load(env)) for env in SHIPPED}


def _describe(policy: BasePolicy) -> str:
    about = policy.about
    return f"{about['algorithm']}: return {about['return']:.0f} over {about['episodes']} episodes"


def load(env_id: str) -> BasePolicy:
    """The policy for an environment that comes with the package.

    >>> load("Pendulum-v1").predict(np.array([1.0, 0.0, 0.0]))[0].shape
    (1,)
    """
    checks.choice("env_id", env_id, SHIPPED)
    with as_file(resources("windward.policies") / "data" / f"{SHIPPED[env_id]}.npz") as path:
        return load_base(path)


def load_base(path: str | Path) -> BasePolicy:
    """A policy from a file that `save_base` wrote."""
    return BasePolicy(*files.read(path, KIND))


def save_base(
    path: str | Path,
    networks: dict[str, dict[str, np.ndarray]],
    values: Values,
    env: gym.Env,
    about: dict[str, Any],
    atoms: np.ndarray | None = None,
) -> None:
    """Writes networks ("policy", and "critic" or "state_value") and values, in half precision."""
    space, shape = env.action_space, env.observation_space.shape
    arrays = {
        f"{part}/{name}": each for part, net in networks.items() for name, each in net.items()
    }
    arrays |= {f"values/{name}": each for name, each in network_arrays(values.network).items()}
    # Half precision halves the file. Scales stay as they are: they may be large.
    stored = {
        name: each.astype(np.float16) if each.ndim == 2 else each.astype(np.float32)
        for name, each in arrays.items()
    }
    if atoms is not None:
        stored["atoms"] = atoms
    header = {
        "kind": KIND,
        "observation": list(shape or ()),
        "dtype": str(env.observation_space.dtype),
        "start": int(space.start) if isinstance(space, gym.spaces.Discrete) else None,
        "actions": int(space.n) if isinstance(space, gym.spaces.Discrete) else None,
        "low": space.low.tolist() if isinstance(space, gym.spaces.Box) else None,
        "high": space.high.tolist() if isinstance(space, gym.spaces.Box) else None,
    }
    files.write(path, stored, header | fit_header(values) | about)
