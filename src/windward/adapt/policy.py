"""RobustPolicy: the adaptive layer for people who own their loop, a robot or a server."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks
from windward.adapt.config import make_runtime, named
from windward.adapt.deadline import Deadline
from windward.adapt.reports import Report
from windward.adapt.shell import Shell
from windward.adapt.signals import check_model, find_source, options_of
from windward.adapt.vector import within_reach
from windward.policies.sb3 import Inputs, library_of


class RobustPolicy(Shell):
    """A policy that adapts: `predict` as in Stable-Baselines3, then `observe` what came of it.

    Made by `robustify`. `predict` gives the base policy's action with correction and noise;
    `observe(reward, next_obs, terminated, truncated)` tells what happened and lets M learn. Without
    `observe`, the next `predict` takes its observation for the outcome: ŵ and the correction stay
    current and M stays as it is.
    """

    def __init__(
        self,
        model: Any,
        env: Any,
        signal: Any = "auto",
        *,
        values: Any = None,
        logits: Any = None,
        simulator: Any = None,
        num_envs: int | None = None,
        live: bool = False,
        deadline: float | None = None,
        h: int | None = None,
        learner: str = "auto",
        gradient: str | None = None,
        sigma: float | None = None,
        eta: float | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        env = gym.make(env) if isinstance(env, str) else env
        if isinstance(env, gym.vector.VectorEnv):
            spaces = env.single_observation_space, env.single_action_space
        else:
            spaces = env.observation_space, env.action_space
        self.observation_space, self.action_space = spaces
        check_model(model, spaces)
        self._predict = getattr(model, "predict", None)
        if not callable(self._predict) and not callable(model):
            raise ValueError(
                "model must have predict(observation, deterministic=...) or be a function of one "
                f"observation; got {type(model).__name__}"
            )
        self._model = model
        self._takes = options_of(self._predict) if callable(self._predict) else set()
        # Observations are the environment's own; a model from under VecNormalize takes scaled ones.
        self._inputs = Inputs(model) if library_of(model) is not None else None
        if num_envs is None:
            num_envs = env.num_envs if isinstance(env, gym.vector.VectorEnv) else 1
        rows = checks.integer("num_envs", num_envs, 1)
        reach = within_reach(env) if isinstance(env, gym.vector.VectorEnv) else [env]
        source = find_source(
            signal, model if values is None else values, reach, spaces, simulator,
            observed=not live,
        )  # fmt: skip
        self._runtime = make_runtime(
            spaces, source, logits, rows, True, seed,
            {"h": h, "learner": named(learner, gradient), "sigma": sigma, "eta": eta, **options},
            None if deadline is None else Deadline(deadline), model,
        )  # fmt: skip
        self._waiting = False
        self.last: Report | None = None
        """what the last step came to: w_hat, correction, noise, action, clipped, fault ..."""

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, Any]:
        """(action, state): the base policy's action, corrected.

        `deterministic` is the base policy's; exploration is part of adapting, from when the guard
        lets it begin until `freeze`.
        `episode_start` begins new episodes in its rows.
        """
        x, single = self._rows(observation)
        runtime = self._runtime
        begun = np.zeros(runtime.rows, dtype=bool)
        if runtime.x is None:
            begun |= True
        elif episode_start is not None:
            begun |= np.asarray(episode_start, dtype=bool)
        if self._waiting:
            self._pass_by(x, begun)
        if begun.any():
            runtime.begin(x, begun)
        elif not np.array_equal(x, runtime.x, equal_nan=x.dtype.kind == "f"):
            runtime.look(x)
        base, state = self._base(observation, x, single, state, episode_start, deterministic)
        action = np.asarray(runtime.act(base))
        self._waiting = True
        return (action[0] if single else action), state

    def _base(
        self, observation: Any, x: np.ndarray, single: bool, state: Any, start: Any, still: bool
    ) -> tuple[np.ndarray, Any]:
        """Base actions, rows."""
        shape = self.action_space.shape or ()
        if self._predict is None:
            base: Any = np.stack([np.asarray(self._model(each)) for each in x])
        else:
            given = {"state": state, "episode_start": start, "deterministic": still}
            known = {name: each for name, each in given.items() if name in self._takes}
            if self._inputs is not None:
                rows = self._inputs.rows(x)
                observation = rows[0] if single else rows
            base, state = self._predict(observation, **known)
            base = np.asarray(base)[None] if single else np.asarray(base)
        if base.shape != (len(x), *shape):
            raise ValueError(f"the model must give actions of shape {shape}; got {base.shape[1:]}")
        return base, state

    def _pass_by(self, x: np.ndarray, begun: np.ndarray) -> None:
        """A step whose outcome nobody told: what can be seen of it enters the windows."""
        runtime = self._runtime
        blind = np.ones_like(begun) if runtime.sees_reward else begun
        self.last = runtime.observe(None, x, phantom=blind if blind.any() else None, paid=False)
        self._waiting = False

    def observe(self, reward: Any, next_obs: Any, terminated: Any, truncated: Any) -> Report:
        """What came of the last `predict`; M learns from it."""
        if not self._waiting:
            raise ValueError(
                "observe tells the outcome of an action, and none is open: call predict first, and "
                "observe once after it"
            )
        x_next, _ = self._rows(next_obs)
        rows = self._runtime.rows
        flags = [np.asarray(each, dtype=bool).reshape(-1) for each in (terminated, truncated)]
        for name, given in zip(
            ("reward", "terminated", "truncated"), (np.ravel(reward), *flags), strict=True
        ):
            if len(given) != rows:
                raise ValueError(f"{name} must have an entry for each of {rows} rows; got {given}")
        self.last = self._runtime.observe(reward, x_next, *flags)
        self._waiting = False
        return self.last

    def _rows(self, observation: Any) -> tuple[np.ndarray, bool]:
        """Observations as rows, and whether it was a single one."""
        x, rows = np.array(observation), self._runtime.rows
        shape = self.observation_space.shape or ()
        if rows == 1 and x.shape == shape:
            return x[None], True
        if x.shape == (rows, *shape):
            return x, False
        one = f" or {shape}" if rows == 1 else ""
        raise ValueError(f"observations must have shape {(rows, *shape)}{one}; got {x.shape}")

    def save(self, path: str | Path) -> None:
        """As `Shell.save`; refused while the outcome of an action is open."""
        if self._waiting:
            raise ValueError("an action waits for its outcome: save after observe")
        super().save(path)

    def load(self, path: str | Path) -> None:
        """As `Shell.load`; an action whose outcome is open is forgotten."""
        super().load(path)
        self._waiting = False


def robustify(model: Any, env: Any, signal: Any = "auto", **options: Any) -> RobustPolicy:
    """A policy that adapts, for a loop of one's own: `predict`, act, `observe`, again.

    Args:
      model: a model of Stable-Baselines3 or SBX, D4PG, anything with `predict`, or a function of
        one observation.
      env: an environment (or its id) that has the spaces and, for "pd3", the physics. It is not
        stepped. With `live=True` it is the one that you step, and PD3 reads its state; otherwise
        states are those that observations tell.
      signal: as in `RobustWrapper`; `values`, for "pd1" and "pd2", where the model has none.
      deadline: seconds that a simulator or critic may take; if it is late the base action is
        executed alone, and counted in `faults`.
      num_envs: rows of observations that `predict` takes at once; they share M.
      options: h, sigma, eta, seed, logits, simulator and others, as in `RobustWrapper`.

    >>> policy = robustify(lambda x: [-x[2]], "Pendulum-v1", "pd3", seed=1)
    >>> env = gym.make("Pendulum-v1")
    >>> x, _ = env.reset(seed=0)
    >>> action, _ = policy.predict(x)
    >>> x, reward, terminated, truncated, _ = env.step(action)
    >>> _ = policy.observe(reward, x, terminated, truncated)
    """
    return RobustPolicy(model, env, signal, **options)
