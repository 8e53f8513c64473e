"""RobustVectorWrapper: RobustWrapper for Gymnasium's vector environments."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper

from windward.adapt.actuation import action_array
from windward.adapt.config import make_runtime, named
from windward.adapt.shell import Shell
from windward.adapt.signals import find_source


class RobustVectorWrapper(Shell, VectorWrapper):
    """The adaptive layer for a vector environment; arguments as in `RobustWrapper`.

    With `shared=True` all rows learn one M from the mean of their gradients, each with windows of
    its own; with `shared=False` each row has an M of its own. `info["windward"]` has arrays with a
    row for each environment. PD3 by name needs the environments within reach, a `SyncVectorEnv`.

    Rows that are reset within or after a step are told apart: the step that a row spends on its
    reset teaches nothing, and the last step of an episode ends at its own observation.
    """

    def __init__(
        self,
        env: VectorEnv,
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
        if not isinstance(env, VectorEnv):
            raise ValueError("RobustVectorWrapper takes a vector environment; use RobustWrapper")
        super().__init__(env)
        spaces = env.single_observation_space, env.single_action_space
        source = find_source(signal, model, within_reach(env), spaces, simulator)
        self._runtime = make_runtime(
            spaces, source, logits, self.num_envs, shared, seed,
            {"h": h, "learner": named(learner, gradient), "sigma": sigma, "eta": eta, **options},
            model=model,
        )  # fmt: skip
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Begins episodes, in rows of `options["reset_mask"]` alone where it is given."""
        mask = None if options is None else options.get("reset_mask")
        begun = None if mask is None else np.array(mask, dtype=bool)
        x, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        self._runtime.begin(np.array(x), begun)
        return x, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of all rows; `actions` are the base policy's."""
        runtime = self._runtime
        if runtime.x is None:
            raise gym.error.ResetNeeded("call reset() before the first step()")
        base = action_array(actions, self.action_space.shape)
        x_next, reward, terminated, truncated, info = self.env.step(runtime.act(base))
        # Vector environments may write the next step into the same array.
        seen, ended = np.array(x_next), terminated | truncated
        phantom = shown = None
        if self._mode == AutoresetMode.NEXT_STEP and runtime.ended.any():
            phantom = runtime.ended
        elif self._mode == AutoresetMode.SAME_STEP and ended.any():
            shown, seen = seen, final_rows(seen, info["final_obs"], ended)
        report = runtime.observe(
            reward, seen,
            *((terminated, truncated) if ended.any() else ()), phantom=phantom, shown=shown,
        )  # fmt: skip
        return x_next, reward, terminated, truncated, {**info, "windward": report._asdict()}


def final_rows(shown: np.ndarray, last: Any, ended: np.ndarray) -> np.ndarray:
    """Observations of a step: the last ones of episodes that ended, what is shown elsewhere."""
    rows = shown.copy()
    for i in np.flatnonzero(ended):
        rows[i] = last[i]
    return rows


def within_reach(env: VectorEnv) -> list[gym.Env] | None:
    """The environments of a SyncVectorEnv, seen through wrappers that leave steps alone."""
    while isinstance(env, VectorWrapper):
        env = env.env
    return list(env.envs) if isinstance(env, SyncVectorEnv) else None
