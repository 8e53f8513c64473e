"""The adaptive layer among Stable-Baselines3 and SBX: vector environments, replay, rollouts.

A model runs in `RobustWrapper` as in any environment. To learn inside it takes one thing more: an
off-policy model replays what was executed (`ExecutedReplayBuffer`), and an on-policy one, which
learns from its own actions, wants an M that stays during a rollout (`AtRolloutEnd`).
"""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from windward.adapt.actuation import action_array
from windward.adapt.config import make_runtime, named
from windward.adapt.shell import Shell
from windward.adapt.signals import find_source
from windward.adapt.sources import Source
from windward.adapt.vector import final_rows
from windward.adapt.wrapper import RobustWrapper
from windward.policies.actions import ActionCode
from windward.policies.sb3 import library_of

try:
    from stable_baselines3.common.buffers import ReplayBuffer
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import (
        DummyVecEnv,
        VecEnv,
        VecEnvWrapper,
        unwrap_vec_normalize,
        unwrap_vec_wrapper,
    )
except ImportError as error:
    raise ImportError(
        "windward.adapt.sb3 needs Stable-Baselines3: pip install 'windward[sb3]'"
    ) from error

__all__ = ["AtRolloutEnd", "ExecutedReplayBuffer", "RobustVecEnv"]


class RobustVecEnv(Shell, VecEnvWrapper):
    """The adaptive layer for vector environments of Stable-Baselines3.

    Arguments are those of `RobustVectorWrapper`: with `shared=True` all rows learn one M, with
    `shared=False` each has its own. `infos[i]["windward"]` has w_hat, correction, noise, action (as
    executed), clipped, decided, fault and resting of row i. PD3 by name needs the environments
    within reach, a `DummyVecEnv`. Put it inside VecNormalize; VecMonitor may be on either side.

    >>> venv = RobustVecEnv(DummyVecEnv([lambda: gym.make("Pendulum-v1")] * 2), "pd3")
    >>> _ = venv.reset()
    >>> _, _, _, infos = venv.step(np.zeros((2, 1), np.float32))
    >>> sorted(infos[1]["windward"])
    ['action', 'clipped', 'correction', 'decided', 'fault', 'noise', 'resting', 'w_hat']
    """

    def __init__(
        self,
        venv: VecEnv,
        signal: Any = "auto",
        *,
        shared: bool = True,
        model: Any = None,
        logits: Any = None,
        simulator: Any = None,
        h: int | None = None,
        learner: str = "auto",
        gradient: str | None = None,
        sigma: float | None = None,
        eta: float | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        if not isinstance(venv, VecEnv):
            raise ValueError(
                "RobustVecEnv takes a vector environment of Stable-Baselines3, such as a "
                f"DummyVecEnv; got {type(venv).__name__}: use RobustWrapper for one environment, "
                "RobustVectorWrapper for those of Gymnasium"
            )
        VecEnvWrapper.__init__(self, venv)
        spaces = venv.observation_space, venv.action_space
        reach = _within_reach(venv)
        source = find_source(signal, model, reach, spaces, simulator)
        _refuse_scaled(venv, source, logits)
        self._runtime = make_runtime(
            spaces, source, logits, self.num_envs, shared, seed,
            {"h": h, "learner": named(learner, gradient), "sigma": sigma, "eta": eta, **options},
            model=model,
        )  # fmt: skip
        self._shape = (self.num_envs, *(venv.action_space.shape or ()))

    def reset(self) -> Any:
        """Begins episodes in all rows; M is kept, the windows are emptied."""
        x = self.venv.reset()
        self._runtime.begin(np.array(x))
        return x

    def step_async(self, actions: np.ndarray) -> None:
        """Begins a step; `actions` are the base policy's, rows."""
        runtime = self._runtime
        if runtime.x is None:
            raise gym.error.ResetNeeded("call reset() before the first step()")
        self.venv.step_async(runtime.act(action_array(actions, self._shape)))

    def step_wait(self) -> Any:
        """Ends a step: observations, rewards, dones, infos."""
        x_next, reward, done, infos = self.venv.step_wait()
        ended = np.asarray(done, dtype=bool)
        cut = np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos])
        seen, shown = np.array(x_next), None
        if ended.any():
            shown, seen = seen, final_rows(seen, _last_seen(infos, ended), ended)
        report = self._runtime.observe(reward, seen, ended & ~cut, ended & cut, shown=shown)
        told = [{**info, "windward": report.row(i)} for i, info in enumerate(infos)]
        return x_next, reward, done, told


def _last_seen(infos: Sequence[dict[str, Any]], ended: np.ndarray) -> list[Any]:
    """The last observations of episodes that ended, by row."""
    last = [info.get("terminal_observation") for info in infos]
    if any(last[i] is None for i in np.flatnonzero(ended)):
        raise ValueError(
            "an episode ended and its info has no 'terminal_observation', as vector environments "
            "of Stable-Baselines3 have it: the last step cannot be told from the reset after it"
        )
    return last


def _within_reach(venv: VecEnv) -> list[gym.Env] | None:
    """The environments of a DummyVecEnv, seen through wrappers."""
    while isinstance(venv, VecEnvWrapper):
        venv = venv.venv
    return list(venv.envs) if isinstance(venv, DummyVecEnv) else None


def _refuse_scaled(venv: VecEnv, source: Source, logits: Any) -> None:
    """Refuses what reads the base policy's networks, in raw units, outside of a VecNormalize."""
    scaling = unwrap_vec_normalize(venv)
    if scaling is None:
        return
    if source.name in ("pd1", "pd2") and (scaling.norm_obs or scaling.norm_reward):
        what = f"the values behind {source.name} are"
    elif library_of(logits) is not None and scaling.norm_obs:
        what = f"the logits of {type(logits).__name__} are"
    else:
        return
    raise ValueError(
        f"{what} of observations and rewards as the environment has them, and outside of a "
        "VecNormalize they are scaled: put the layer inside, VecNormalize(RobustVecEnv(venv, ...))"
    )


class ExecutedReplayBuffer(ReplayBuffer):
    """A replay buffer for models that learn inside the adaptive layer: it holds what was executed.

    The critic then learns the value of what was done, not of what the agent asked for (deviation
    9). For off-policy models of Stable-Baselines3 and SBX, in a `RobustWrapper` or `RobustVecEnv`:
    `TD3("MlpPolicy", env, replay_buffer_class=ExecutedReplayBuffer)`.
    """

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._code = ActionCode(self.action_space)

    def add(
        self,
        obs: np.ndarray,
        next_obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """As the library's, with executed actions for `action`, those of a box in [-1, 1]."""
        if not all("windward" in info for info in infos):
            raise ValueError(
                "ExecutedReplayBuffer stores executed actions, and infos have no 'windward' entry "
                "to tell them: train in a RobustWrapper or RobustVecEnv, or use the model's own "
                "replay buffer"
            )
        executed = np.stack([np.asarray(info["windward"]["action"]) for info in infos])
        if not self._code.discrete:
            # It was inside the bounds; scaled it must be too, to the last bit.
            executed = np.clip(self._code.encode(executed), -1.0, 1.0)
        super().add(obs, next_obs, executed, reward, done, infos)


class AtRolloutEnd(BaseCallback):
    """Updates M once at the end of each rollout, for on-policy models (PPO, A2C).

    Such a model learns from its own actions in an environment that stays as it is for a rollout,
    and M is part of that. Make the layer with `every_episodes="told"`: it sums gradients, and this
    callback has them applied. `model.learn(10_000, callback=AtRolloutEnd())`.
    """

    def _layer(self) -> RobustVecEnv | None:
        return unwrap_vec_wrapper(self.training_env, RobustVecEnv)

    def _on_training_start(self) -> None:
        layer, venv = self._layer(), self.training_env
        if layer is None and not all(venv.env_is_wrapped(RobustWrapper)):
            raise ValueError(
                "AtRolloutEnd updates M of the adaptive layer, and the model's environment has "
                "none: train in a RobustWrapper or RobustVecEnv"
            )
        told = [layer.updates_when_told] if layer else venv.get_attr("updates_when_told")
        if not all(told):
            raise ValueError(
                "M would move during a rollout: make the layer with every_episodes='told', so that "
                "gradients are summed until AtRolloutEnd has them applied"
            )

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        layer = self._layer()
        if layer is None:
            self.training_env.env_method("update_M")
        else:
            layer.update_M()
