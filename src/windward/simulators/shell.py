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
    """`step` runs the environment's step on `data`; `look` runs it without the physics.

    Arrays, lists, dictionaries and sets that the environment holds are copied for each run, so that
    step code that changes them changes copies. Gymnasium's own classes change none.
    """

    def __init__(self, env: Any, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        self.env, self.model, self.data = env, model, data
        self._copies = not type(env).__module__.startswith("gymnasium.envs.mujoco.")
        if self._copies:
            _check(env)
        self._own = {
            "model": model,
            "data": data,
            "render_mode": None,
            "mujoco_renderer": None,
            # Noise of the environment's own is not to be foreseen.
            "_np_random": np.random.default_rng(0),
        }
        self._stepping = object.__new__(type(env))
        self._looking = object.__new__(type(env))

    def _borrowed(self, shell: Any) -> Any:
        """The shell with what the environment holds now: its settings, its goal, its counters."""
        held = self.env.__dict__
        if self._copies:
            held = {
                name: copy.deepcopy(value) if isinstance(value, _MUTABLE) else value
                for name, value in held.items()
            }
        shell.__dict__.update(held)
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


_MUTABLE = (np.ndarray, list, dict, set)


def _check(env: Any) -> None:
    """Refuses what would tie the shell to the environment's own data."""
    kind = type(env).__name__
    patched = [name for name in ("step", "do_simulation", "_get_obs") if name in env.__dict__]
    if patched:
        raise Unsupported(
            f"{kind}.{patched[0]} was replaced on the object itself, which ties it to this "
            "environment's data: override it in a class instead"
        )
    arrays = [getattr(env.data, name) for name in dir(env.data) if not name.startswith("_")]
    arrays = [each for each in arrays if isinstance(each, np.ndarray) and each.size]
    for name, value in env.__dict__.items():
        if isinstance(value, np.ndarray) and any(np.may_share_memory(value, a) for a in arrays):
            raise Unsupported(
                f"{kind}.{name} is a view of MuJoCo's data, which ties it to this environment: "
                f"read self.data where it is needed, or keep a copy"
            )
