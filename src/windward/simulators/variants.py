"""One step of a simulator under many parameter values at once: the columns of a Jacobian."""

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import gymnasium as gym
import mujoco
import numpy as np
from mujoco import rollout

from windward.simulators.base import Dynamics
from windward.simulators.mujoco import FULL, MujocoDynamics

Values = Mapping[str, np.ndarray]
"""kinds of parameters -> a value for each element; kinds left out are as at first"""
_INPUT = int(mujoco.mjtState.mjSTATE_CTRL) | int(mujoco.mjtState.mjSTATE_XFRC_APPLIED)
_COMPARED = 8
"""rows on which an environment's own step is compared with plain physics steps"""
_BESIDE = 1e-9
_ALIKE = 1e-9
"""how near an environment's own step must be to plain physics steps to be taken for them"""


class Variants(Protocol):
    """f(x, u; values) for several values, each on rows of its own."""

    def advance(
        self, values: Sequence[Values], x: np.ndarray, u: np.ndarray, force: Any = None
    ) -> np.ndarray:
        """Next states (k, m, d_x) of states x (k, m, d_x) and actions u (m, ...).

        `force` pushes through the step, an array (k, m, pushes) where the physics has forces. Rows
        that the physics could not compute are NaN.
        """
        ...


def variants_of(dynamics: Dynamics, threads: int | None = None) -> Variants:
    """The quickest way for this physics."""
    if isinstance(dynamics, MujocoDynamics):
        return MujocoVariants(dynamics, threads)
    return WrittenVariants(dynamics)


class WrittenVariants:
    """Writes one variant's parameters after the other; for physics that are arrays themselves."""

    def __init__(self, dynamics: Any) -> None:
        self.dynamics = dynamics

    def advance(
        self, values: Sequence[Values], x: np.ndarray, u: np.ndarray, force: Any = None
    ) -> np.ndarray:
        """See Variants."""
        parameters = self.dynamics.parameters
        found = np.full(x.shape, np.nan)
        bodies = parameters.elements["mass"] if force is not None else ()
        try:
            for row, each in enumerate(values):
                parameters.restore()
                for kind, value in each.items():
                    parameters.write(kind, value)
                pushes = {
                    f"force:{body}": force[row].reshape(len(u), -1, 3)[:, i]
                    for i, body in enumerate(bodies)
                }
                with np.errstate(all="ignore"):
                    found[row] = self.dynamics.advance(x[row], u, pushes)
        finally:
            parameters.restore()
        return found


class MujocoVariants:
    """A copy of the model for each variant, and all rows of all variants in one rollout."""

    def __init__(self, dynamics: MujocoDynamics, threads: int | None = None) -> None:
        self.dynamics, self._models = dynamics, [copy.copy(dynamics.model)]
        self._now: list[Any] = [None]
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        workers = max(1, threads or cores)
        self._pool = rollout.Rollout(nthread=workers if workers > 1 else 0)
        self._data = [mujoco.MjData(dynamics.model) for _ in range(workers)]
        self._written = WrittenVariants(dynamics)
        self.derive = True
        """whether what MuJoCo derives from masses follows them; not in a model edited by hand"""
        self._alike: bool | None = True if dynamics._plain else None

    def advance(
        self, values: Sequence[Values], x: np.ndarray, u: np.ndarray, force: Any = None
    ) -> np.ndarray:
        """See Variants; forces are (body, axis) of all bodies but the world, newtons."""
        if self._alike is None:
            self._alike = self._compare(x[0], u)
        if not self._alike:
            return self._written.advance(values, x, u, force)
        return self._rollout(values, x, u, force)

    def _compare(self, x: np.ndarray, u: np.ndarray) -> bool:
        """Whether the environment's own step does just what the physics does with the action."""
        space = self.dynamics.env.action_space
        if u.shape[1:] != (self.dynamics.model.nu,) or not isinstance(space, gym.spaces.Box):
            return False
        few = np.linspace(0, len(x) - 1, min(len(x), _COMPARED)).astype(int)
        # Actions that are zero or small do not show what a step makes of larger ones.
        low, high = np.maximum(space.low, -1e3), np.minimum(space.high, 1e3)
        drawn = np.random.default_rng(0).uniform(low, high, (len(few), *u.shape[1:]))
        actions = np.concatenate([u[few], drawn])
        # From the environment's present state its own step would begin with a warm solver.
        start = np.tile(x[few], (2, 1)) + _BESIDE
        own = self.dynamics.step(start, actions, {})[0]
        plain = self._rollout([{}], start[None], actions, None)[0]
        return bool(np.allclose(own, plain, rtol=_ALIKE, atol=_ALIKE, equal_nan=True))

    def _rollout(
        self, values: Sequence[Values], x: np.ndarray, u: np.ndarray, force: Any
    ) -> np.ndarray:
        dynamics, model = self.dynamics, self.dynamics.model
        self._write(values)
        k, m, d_x = x.shape
        frames = dynamics.env.frame_skip
        start = np.zeros((k * m, mujoco.mj_stateSize(model, FULL)))
        # MuJoCo resets a state that it cannot go on from, its time with it: begin late, to see it.
        start[:, 0] = 1.0
        start[:, 1 : 1 + d_x] = x.reshape(k * m, d_x)
        width = model.nu if force is None else model.nu + 6 * model.nbody
        control = np.zeros((k, m, frames, width))
        control[..., : model.nu] = np.asarray(u, dtype=np.float64)[None, :, None]
        if force is not None:
            bodies = np.zeros((k, m, model.nbody, 6))
            bodies[:, :, 1:, :3] = force.reshape(k, m, model.nbody - 1, 3)
            control[..., model.nu :] = bodies.reshape(k, m, 1, -1)
        states = np.empty((k * m, frames, start.shape[1]))
        self._pool.rollout(
            [self._models[row] for row in range(k) for _ in range(m)],
            self._data,
            start,
            control.reshape(k * m, frames, width),
            control_spec=_INPUT if force is not None else int(mujoco.mjtState.mjSTATE_CTRL),
            nstep=frames,
            initial_warmstart=np.zeros((k * m, model.nv)),
            state=states,
            sensordata=np.empty((k * m, frames, model.nsensordata)),
            skip_checks=True,
        )
        last = states[:, -1]
        ok = last[:, :1] > 1.0
        return np.where(ok, last[:, 1 : 1 + d_x], np.nan).reshape(k, m, d_x)

    def _write(self, values: Sequence[Values]) -> None:
        """Puts the parameters into the models, where they are not in already."""
        while len(self._models) < len(values):
            self._models.append(copy.copy(self.dynamics.model))
            self._now.append(None)
        for row, each in enumerate(values):
            key = (self.derive, {kind: value.tobytes() for kind, value in each.items()})
            if self._now[row] != key:
                self.dynamics.parameters.write_in(self._models[row], each, self.derive)
                self._now[row] = key
