"""Critics read from models of Stable-Baselines3 and SBX: what PD1 asks of the base policy.

Models are known by the module of their class, and torch is imported when a model of
Stable-Baselines3 is asked for values, so that windward runs without either library.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
import numpy as np

from windward.policies.actions import ActionCode

if TYPE_CHECKING:
    from windward.policies.critics import Critic

SB3, SBX = "stable_baselines3", "sbx"
_READABLE = {SB3: ("DDPG", "TD3", "SAC", "DQN"), SBX: ("DDPG", "TD3", "SAC", "TQC", "DQN")}


def library_of(model: Any) -> tuple[str, str] | None:
    """(library, class) of a model of Stable-Baselines3 or SBX, or of a subclass; else None.

    >>> library_of(len) is None
    True
    """
    for cls in type(model).__mro__:
        library = cls.__module__.partition(".")[0]
        if library in (SB3, SBX):
            return library, cls.__name__
    return None


class Inputs:
    """The way from the environment's observations to what a model takes, and back for gradients.

    A model that was trained under VecNormalize takes scaled observations and has learned values of
    scaled rewards. Here observations are the environment's own, before VecNormalize, and rewards
    too. The statistics are those that the model's environment has at the time of the call.
    """

    def __init__(self, model: Any) -> None:
        self.space = model.observation_space
        if not isinstance(self.space, gym.spaces.Box):
            raise ValueError(
                f"observations must be in a Box; {type(model).__name__} takes {self.space}"
            )
        self._model = model

    def _statistics(self, what: str) -> Any:
        """The VecNormalize that scales observations ("norm_obs") or rewards, or None."""
        found = getattr(self._model, "get_vec_normalize_env", lambda: None)()
        return found if found is not None and getattr(found, what) else None

    def _shaped(self, x: Any) -> tuple[np.ndarray, bool]:
        """Rows in the model's shape, and whether channels were moved first, as it wants images."""
        rows, shape = np.asarray(x), self.space.shape
        if rows.shape[1:] == shape:
            return rows, False
        if rows.ndim == 4 and (rows.shape[3], *rows.shape[1:3]) == shape:
            return np.moveaxis(rows, 3, 1), True
        if rows.shape == shape or rows.shape[1:] == (int(np.prod(shape)),):
            return rows.reshape(-1, *shape), False
        raise ValueError(
            f"the model takes observations of shape {shape}, rows of them {('n', *shape)}; got "
            f"{rows.shape} (stacked frames must be stacked by the environment)"
        )

    def rows(self, x: Any) -> np.ndarray:
        """Observations as the model takes them."""
        rows, _ = self._shaped(x)
        scaling = self._statistics("norm_obs")
        if scaling is None:
            return rows
        scaled = (rows - scaling.obs_rms.mean) / np.sqrt(scaling.obs_rms.var + scaling.epsilon)
        return np.clip(scaled, -scaling.clip_obs, scaling.clip_obs).astype(np.float32)

    def slope(self, x: Any, gradient: np.ndarray) -> np.ndarray:
        """A gradient in the model's observations as one in the environment's, flat rows."""
        rows, moved = self._shaped(x)
        scaling = self._statistics("norm_obs")
        if scaling is not None:
            spread = np.sqrt(scaling.obs_rms.var + scaling.epsilon)
            inside = np.abs(rows - scaling.obs_rms.mean) <= scaling.clip_obs * spread
            gradient = gradient * (inside / spread).astype(np.float32)
        if moved:
            gradient = np.moveaxis(gradient, 1, 3)
        return gradient.reshape(len(rows), -1)

    @property
    def reward_scale(self) -> float:
        """What the model's values are multiplied by to be in units of reward."""
        scaling = self._statistics("norm_reward")
        return 1.0 if scaling is None else float(np.sqrt(scaling.ret_rms.var + scaling.epsilon))


class RawValues(NamedTuple):
    """A model's values as its networks have them: float32 rows, coded actions, scaled rewards."""

    V: Callable[[np.ndarray], np.ndarray]
    Q: Callable[[np.ndarray, np.ndarray], np.ndarray]
    slope_x: Callable[[np.ndarray], np.ndarray]
    slope_u: Callable[[np.ndarray, np.ndarray], np.ndarray] | None
    """None when actions are discrete"""


class ModelCritic:
    """The critic of a model, as it is at the time of each call, in the environment's units."""

    def __init__(self, model: Any, values: RawValues) -> None:
        self._values, self._inputs = values, Inputs(model)
        self._code = ActionCode(model.action_space)
        self.gamma = float(model.gamma)

    def _rows(self, x: Any) -> np.ndarray:
        return self._inputs.rows(x).astype(np.float32)

    def _pairs(self, x: Any, u: Any) -> tuple[np.ndarray, np.ndarray]:
        rows = self._rows(x)
        actions = self._index(u) if self._code.discrete else self._code.encode(u)
        if len(rows) != len(actions):
            raise ValueError(
                f"there must be an action for each observation; got {len(actions)} for {len(rows)}"
            )
        return rows, actions

    def _index(self, u: Any) -> np.ndarray:
        index = np.asarray(u).reshape(-1)
        if index.dtype.kind not in "iu" or ((index < 0) | (index >= self._code.size)).any():
            raise ValueError(f"actions must be integers from 0 to {self._code.size - 1}; got {u!r}")
        return index.astype(np.int64)

    def V(self, x: Any) -> np.ndarray:
        """V(x) = Q(x, π(x))."""
        return self._inputs.reward_scale * self._values.V(self._rows(x))

    def Q(self, x: Any, u: Any) -> np.ndarray:
        """Q(x, u)."""
        return self._inputs.reward_scale * self._values.Q(*self._pairs(x, u))

    def grad_V(self, x: Any) -> np.ndarray:
        """Gradient of V in x, through π."""
        slope = self._inputs.slope(x, self._values.slope_x(self._rows(x)))
        return self._inputs.reward_scale * slope

    def grad_Q(self, x: Any, u: Any) -> np.ndarray:
        """Gradient of Q in the action, in the environment's units."""
        if self._values.slope_u is None:
            raise ValueError("Q has no gradient in the action: actions are discrete")
        slope = self._values.slope_u(*self._pairs(x, u))
        return self._inputs.reward_scale * self._code.slope(slope)


def critic_of(model: Any) -> "Critic":
    """V, Q and their gradients from a model's own critic, in units of reward.

    Stable-Baselines3: DDPG, TD3, SAC, DQN. SBX: DDPG, TD3, SAC, TQC, DQN. Anything else with a
    `critic` that has V, Q, grad_V and grad_Q (windward's D4PG): that critic.

    Q is the smallest of several critics, as in the targets of TD3 and SAC; for TQC the mean of all
    quantiles, as in its policy's objective; for DQN the output at the action, and V the largest.
    V(x) = Q(x, π(x)) with π(x) what `predict` gives with `deterministic=True` (deviation 9).
    SAC's and TQC's are soft values: they count the entropy of later steps as reward, so that
    r + γV(x') - Q(x, u) is not centred at 0 even for a critic without error.

    The critic has the model's `gamma`, follows a model of SB3 or SBX as it learns on (D4PG's is a
    snapshot), and takes observations and gives values in the environment's own units also for a
    model under VecNormalize; rewards that VecNormalize has clipped are lost to it.
    """
    own = getattr(model, "critic", None)
    if all(callable(getattr(own, name, None)) for name in ("V", "Q", "grad_V", "grad_Q")):
        return own  # type: ignore[return-value]
    library, name = library_of(model) or ("", "")
    if name in ("PPO", "A2C"):
        raise ValueError(
            f"{type(model).__name__} has learned V but no Q: learn values of its policy with "
            "windward.fit_values"
        )
    if name not in _READABLE.get(library, ()):
        raise ValueError(
            f"no critic can be read from {type(model).__name__}; it can from Stable-Baselines3's "
            f"{', '.join(_READABLE[SB3])}, SBX's {', '.join(_READABLE[SBX])}, and objects with a "
            "`critic` that has V, Q, grad_V, grad_Q; for others learn one with windward.fit_values"
        )
    if library == SBX:
        from windward.policies import sbx

        return ModelCritic(model, sbx.values(model, name))
    return ModelCritic(model, _torch_values(model, name))


def _torch_values(model: Any, name: str) -> RawValues:
    import torch

    discrete = name == "DQN"

    def evaluated() -> Any:
        # As `predict` does; learning turns it on again by itself.
        if model.policy.training:
            model.policy.set_training_mode(False)
        return model.policy

    def tensor(rows: np.ndarray) -> Any:
        return torch.tensor(rows, device=model.device)

    def Q(x: Any, u: Any) -> Any:
        policy = evaluated()
        if discrete:
            return policy.q_net(x).gather(1, u[:, None])[:, 0]
        critic = policy.critic
        # Not critic(x, u): when features are shared with the actor that stops the gradient in x.
        both = torch.cat([critic.extract_features(x, critic.features_extractor), u], dim=1)
        return torch.cat([net(both) for net in critic.q_networks], dim=1).min(dim=1).values

    def V(x: Any) -> Any:
        if discrete:
            return evaluated().q_net(x).max(dim=1).values
        return Q(x, evaluated().actor._predict(x, deterministic=True))

    def value(of: Callable[..., Any]) -> Callable[..., np.ndarray]:
        def run(*arrays: np.ndarray) -> np.ndarray:
            with torch.no_grad():
                return of(*map(tensor, arrays)).cpu().numpy()

        return run

    def gradient(of: Callable[..., Any]) -> Callable[..., np.ndarray]:
        def run(*arrays: np.ndarray) -> np.ndarray:
            *fixed, free = map(tensor, arrays)
            with torch.enable_grad():
                total = of(*fixed, free.requires_grad_()).sum()
                return torch.autograd.grad(total, free)[0].cpu().numpy()

        return run

    return RawValues(value(V), value(Q), gradient(V), None if discrete else gradient(Q))
