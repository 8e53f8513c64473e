"""Runs a MuJoCo environment's own step code on data of ours, whatever the environment is.

The shell is an object of the environment's class that borrows its attributes but not its model,
data, renderer or generator. So observation, reward and termination of any `MujocoEnv` are computed
by the environment's own code, without a deep copy and without touching it.
"""

import copy
from typing import Any

import mujoco
import numpy as np


class Unsupported(ValueError):
    """An environment or wrapper that cannot be seen through, with what is possible instead."""


class Shell:
    """`step` runs the environment's step on `data`; `look` runs it without the physics."""

    def __init__(self, env: Any, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        self.env, self.model, self.data = env, model, data
        self._own = {
            "model": model,
            "data": data,
            "render_mode": None,
            "mujoco_renderer": None,
            "_np_random": copy.deepcopy(env._np_random),
        }
        self._stepping = object.__new__(type(env))
        self._looking = object.__new__(type(env))

    def _borrowed(self, shell: Any) -> Any:
        """The shell with what the environment holds now: its settings, its goal, its counters."""
        shell.__dict__.update(self.env.__dict__)
        shell.__dict__.update(self._own)
        return shell

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """(observation, reward, terminated) of one step of the environment on our data."""
        observation, reward, terminated, _, _ = self._borrowed(self._stepping).step(action)
        return observation, float(reward), bool(terminated)

    def look(self, action: np.ndarray) -> tuple[np.ndarray, bool]:
        """(observation, terminated) of our data as it is."""
        shell = self._borrowed(self._looking)
        shell.__dict__["do_simulation"] = lambda *_: None
        before = self.data.time
        observation, _, terminated, _, _ = shell.step(action)
        if self.data.time != before:
            raise Unsupported(
                f"{type(self.env).__name__}.step does not go through do_simulation, so what it "
                "would observe after a disturbance of its state cannot be worked out; disturb "
                "'action', 'force:BODY', 'observation' or 'reward' instead"
            )
        return observation, bool(terminated)

    def observe(self) -> np.ndarray:
        """The observation of our data as it is."""
        return self._borrowed(self._looking)._get_obs()
