"""MuJoCo under Gymnasium: the environment's own physics, and undisturbed copies of it.

The state is x = (qpos, qvel), and act where a model has activations.
"""

import copy
import os
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
from mujoco import rollout

from windward.simulators.base import Unstable
from windward.simulators.parameters import MujocoParameters
from windward.simulators.shell import Shell, Unsupported
from windward.simulators.tasks import TASKS

FULL = int(mujoco.mjtState.mjSTATE_FULLPHYSICS)
APPLIED = int(mujoco.mjtState.mjSTATE_QFRC_APPLIED) | int(mujoco.mjtState.mjSTATE_XFRC_APPLIED)
ALL = int(mujoco.mjtState.mjSTATE_INTEGRATION) & ~APPLIED
"""All that the next step follows from, but for forces that somebody applied: disturbances."""
BAD = slice(int(mujoco.mjtWarning.mjWARN_BADQPOS), int(mujoco.mjtWarning.mjWARN_BADQACC) + 1)
"""Warnings that MuJoCo met a state it cannot go on from, and reset itself."""
LARGEST = 1e10
"""MuJoCo resets itself beyond this (mjMAXVAL)."""
ROLLOUT_FROM = 16
"""Batches from this size on go to mujoco.rollout's threads; smaller ones are quicker without."""


def _layout(model: mujoco.MjModel) -> dict[str, np.ndarray]:
    """Where qpos and qvel are in x."""
    size = model.nq + model.nv + model.na
    return {
        "qpos": np.arange(model.nq),
        "qvel": np.arange(model.nq, model.nq + model.nv),
        "state": np.arange(size),
    }


def _state(data: mujoco.MjData) -> np.ndarray:
    return np.concatenate([data.qpos, data.qvel, data.act])


def _set_state(model: mujoco.MjModel, data: mujoco.MjData, x: np.ndarray) -> None:
    data.qpos[:] = x[: model.nq]
    data.qvel[:] = x[model.nq : model.nq + model.nv]
    data.act[:] = x[model.nq + model.nv :]


def _refresh(model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """Everything that follows from the state, contact forces too, as after a step."""
    mujoco.mj_forward(model, data)
    mujoco.mj_rnePostConstraint(model, data)


class MujocoPhysics:
    """The physics of a Gymnasium MuJoCo environment, in place."""

    steered = False

    def __init__(self, env: Any) -> None:
        self.env = env
        self.parts = _layout(env.model)
        self.parameters = MujocoParameters(env.model)
        bodies = self.parameters.elements["mass"]
        self._bodies = {name: i + 1 for i, name in enumerate(bodies)}
        self.pushes = {f"{kind}:{body}": 3 for kind in ("force", "torque") for body in bodies}
        self._task = TASKS.get(type(env))
        self._shell: Shell | None = None
        self._warnings = env.data.warning.number[BAD]
        self._calm = bytes(self._warnings.nbytes)
        self._held: list[tuple[np.ndarray, np.ndarray]] = []

    def state(self) -> np.ndarray:
        """See Physics."""
        return _state(self.env.data)

    def add(self, part: str, w: np.ndarray) -> None:
        """See Physics; quaternions are shifted as they are and left to MuJoCo to normalise."""
        data = self.env.data
        if part == "qpos":
            data.qpos += w
        elif part == "qvel":
            data.qvel += w
        else:
            _set_state(self.env.model, data, _state(data) + w)

    def refresh(self, action: Any) -> tuple[np.ndarray, bool]:
        """See Physics."""
        env = self.env
        x = self.state()
        if not x @ x < LARGEST**2:  # so that NaN is caught too
            self._blew_up()
        if self._task is not None:
            # These observe positions and velocities alone. Where bodies are is brought up to date
            # for others who look, cameras among them; the coming step works out the rest.
            mujoco.mj_kinematics(env.model, env.data)
            if env.render_mode is not None:
                mujoco.mj_comPos(env.model, env.data)
            return self._task.observation(env, x), self._task.terminated(env, x.tolist())
        _refresh(env.model, env.data)
        if self._shell is None or self._shell.model is not env.model:
            self._shell = Shell(env, env.model, mujoco.MjData(env.model))
        mujoco.mj_copyData(self._shell.data, env.model, env.data)
        return self._shell.look(action)

    def push(self, name: str, action: Any, w: np.ndarray) -> None:
        """See Physics; in world coordinates, at the body's centre of mass."""
        kind, body = name.split(":", 1)
        first = 0 if kind == "force" else 3
        applied = self.env.data.xfrc_applied[self._bodies[body], first : first + 3]
        self._held.append((applied, applied.copy()))
        applied += w

    def release(self) -> None:
        """See Physics; what others had applied stays."""
        while self._held:
            applied, before = self._held.pop()
            applied[:] = before

    def check(self) -> None:
        """See Physics; MuJoCo itself resets the state and only warns."""
        if self._warnings.tobytes() != self._calm:  # quicker than any()
            self._blew_up()

    def _blew_up(self) -> None:
        raise Unstable(
            "the state is not finite or too large for MuJoCo to go on from: the disturbance is too "
            "strong for this model. Make it smaller, or reset and go on"
        )


class MujocoDynamics:
    """f(x, u) of a MuJoCo environment by its nominal model, on data of our own."""

    def __init__(self, env: Any, nominal: MujocoParameters | None = None) -> None:
        self.env = env
        self.model = copy.copy(env.model)
        if nominal is not None:
            nominal.restore_in(self.model)
        self.parameters = MujocoParameters(self.model)
        self.d_x = self.model.nq + self.model.nv + self.model.na
        self.d_v = self.model.nu
        self.parts = _layout(self.model)
        self._bodies = {name: i + 1 for i, name in enumerate(self.parameters.elements["mass"])}
        self._data = mujoco.MjData(self.model)
        self._warnings = self._data.warning.number[BAD.start :]  # NaN controls too
        self._calm = bytes(self._warnings.nbytes)
        data = self._data  # views of it, for the quick path of a prediction
        self._views = (data.qpos, data.qvel, data.act)
        self._ctrl, self._forces, self._joint_forces = (
            data.ctrl,
            data.xfrc_applied,
            data.qfrc_applied,
        )
        self._buffer = np.empty(mujoco.mj_stateSize(self.model, ALL))
        self._shell = Shell(env, self.model, self._data)
        self._task = TASKS.get(type(env))
        # Gymnasium's own classes hand the action to the motors as it is; others may not.
        self._plain = type(env).__module__.startswith("gymnasium.envs.mujoco.")
        self._pool: rollout.Rollout | None = None
        self._pushed = False

    def state(self) -> np.ndarray:
        """See Dynamics."""
        return _state(self.env.data)

    def _place(
        self, x: np.ndarray | None, forces: Mapping[str, np.ndarray], row: int, whole: bool = False
    ) -> None:
        """Our data at the environment's own state, warm start and all, or with x in its place.

        `whole` takes over what follows from the environment's state too, for code that reads it.
        """
        data = self._data
        if whole:
            mujoco.mj_copyData(data, self.model, self.env.data)
            self._forces[:], self._joint_forces[:], self._warnings[:] = 0.0, 0.0, 0
        else:
            mujoco.mj_getState(self.env.model, self.env.data, self._buffer, ALL)
            mujoco.mj_setState(self.model, data, self._buffer, ALL)
        if x is not None:
            _set_state(self.model, data, x)
            data.qacc_warmstart[:] = 0.0
        if forces or self._pushed:
            self._forces[:] = 0.0
            self._pushed = bool(forces)
        for name, each in forces.items():
            kind, body = name.split(":", 1)
            first = 0 if kind == "force" else 3
            self._forces[self._bodies[body], first : first + 3] += each[row]

    def _next(self) -> np.ndarray:
        """The state after a step; NaN if MuJoCo could not go on and reset itself."""
        if self._warnings.tobytes() != self._calm:
            self._warnings[:] = 0
            return np.full(self.d_x, np.nan)
        return np.concatenate(self._views)

    def advance(self, x: np.ndarray | None, u: Any, forces: Mapping[str, np.ndarray]) -> np.ndarray:
        """See Dynamics."""
        if not self._plain:
            start = np.tile(self.state(), (len(u), 1)) if x is None else x
            return self.step(start, u, forces)[0]
        here = None if x is None else (x == self.state()).all(axis=1)
        if len(u) >= ROLLOUT_FROM and not forces and not self.model.nmocap:
            return self._rollout(x, u, here)
        x_next = np.empty((len(u), self.d_x))
        for row, each in enumerate(u):
            self._place(None if x is None or here[row] else x[row], forces, row)  # type: ignore[index]
            self._ctrl[:] = each
            mujoco.mj_step(self.model, self._data, self.env.frame_skip)
            x_next[row] = self._next()
        return x_next

    def step(
        self, x: np.ndarray, u: Any, forces: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See Dynamics.

        A row that equals the environment's present state starts from it whole, with what x leaves
        out: the solver's warm start, and body positions that Ant's and Humanoid's rewards read.
        """
        if self._task is not None:
            x_next = self.advance(x, u, forces)
            cost = self._task.cost(self.env, x.T, u, x_next.T)
            return x_next, cost, self._task.terminated(self.env, x_next.T)
        here = (x == self.state()).all(axis=1)
        x_next, cost, terminated = np.empty_like(x), np.empty(len(x)), np.empty(len(x), dtype=bool)
        for row in range(len(x)):
            self._put(x[row], here[row], forces, row)
            _, reward, terminated[row] = self._shell.step(u[row])
            cost[row] = -reward
            x_next[row] = self._next()
        return x_next, cost, terminated

    def _put(
        self, x: np.ndarray, here: bool, forces: Mapping[str, np.ndarray], row: int = 0
    ) -> None:
        """Our data at x with all that follows from it, for code that reads more than x."""
        self._place(None if here else x, forces, row, whole=here)
        if not here:
            _refresh(self.model, self._data)

    def _rollout(self, x: np.ndarray | None, u: np.ndarray, here: np.ndarray | None) -> np.ndarray:
        """mujoco.rollout over the frames of one step, on all cores."""
        batch, frames, model = len(u), self.env.frame_skip, self.model
        size = mujoco.mj_stateSize(model, FULL)
        if self._pool is None:
            workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
            self._pool = rollout.Rollout(nthread=workers if workers > 1 else 0)
            self._pool_data = [mujoco.MjData(model) for _ in range(workers)]
        start = np.zeros((batch, size))
        # MuJoCo resets a state that it cannot go on from, its time with it: begin late, to see it.
        start[:, 0] = 1.0
        start[:, 1 : 1 + self.d_x] = self.state() if x is None else x
        warm = np.tile(self.env.data.qacc_warmstart, (batch, 1))
        if here is not None:
            warm[~here] = 0.0
        controls = np.repeat(np.asarray(u, dtype=np.float64)[:, None], frames, axis=1)
        states = np.empty((batch, frames, size))
        self._pool.rollout(
            [model] * batch, self._pool_data, start, controls, nstep=frames,
            initial_warmstart=warm, state=states,
            sensordata=np.empty((batch, frames, model.nsensordata)), skip_checks=True,
        )  # fmt: skip
        last = states[:, -1]
        return np.where(last[:, :1] > 1.0, last[:, 1 : 1 + self.d_x], np.nan)

    def terminated(self, x: np.ndarray, u: Any) -> np.ndarray:
        """See Dynamics."""
        if self._task is not None:
            return self._task.terminated(self.env, x.T)
        flags = np.empty(len(x), dtype=bool)
        for row in range(len(x)):
            self._put(x[row], False, {})
            flags[row] = self._shell.look(u[row])[1]
        return flags

    def observation(self, x: np.ndarray) -> np.ndarray:
        """See Dynamics.

        Exact for what follows from qpos and qvel, and for the environment's present state. What
        else Ant, Humanoid, Reacher and Pusher observe is that of x itself, as after a disturbance;
        undisturbed steps of theirs show it as it was one physics frame before.
        """
        if self._task is not None:
            return self._task.observation(self.env, x)
        here = (x == self.state()).all(axis=1)
        still = np.zeros(self.env.action_space.shape)
        observations = []
        for row in range(len(x)):
            self._put(x[row], here[row], {})
            observations.append(self._shell.look(still)[0])
        return np.array(observations)

    def state_of(self, observation: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        name = type(self.env).__name__
        if self._task is None:
            raise Unsupported(f"windward does not know the way back from {name}'s observations")
        skipped = self.d_x - observation.shape[1]
        if skipped:
            raise Unsupported(
                f"{name}'s observation leaves out the first {skipped} of qpos; make the "
                "environment with exclude_current_positions_from_observation=False"
            )
        speeds = np.abs(observation[:, self.model.nq :])
        if (speeds >= self._task.clip).any():
            raise Unsupported(
                f"{name}'s observation clips velocities at {self._task.clip}, and one is there"
            )
        return np.array(observation, dtype=np.float64)

    def states_seen(self, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(states, which are known): what an observation leaves out of qpos is 0.

        Gymnasium's robots leave out where they are in the plane, on which no motion depends.
        """
        structure = getattr(self.env, "observation_structure", {})
        nq, nv = structure.get("qpos", 0), structure.get("qvel", 0)
        name = type(self.env).__name__
        if not self._plain or nv != self.model.nv or self.model.na:
            raise Unsupported(
                f"windward does not know the way back from {name}'s observations: record the "
                "states, as windward.Recorder does where it can read them"
            )
        x = np.zeros((len(observation), self.d_x))
        skipped = self.model.nq - nq
        x[:, skipped : self.model.nq] = observation[:, :nq]
        speeds = observation[:, nq : nq + nv]
        x[:, self.model.nq :] = speeds
        clip = np.inf if self._task is None else self._task.clip
        return x, (np.abs(speeds) < clip).all(axis=1)

    def observed(self) -> dict[int, int]:
        """Numbers of an observation that are numbers of the state: {in the one: in the other}."""
        structure = getattr(self.env, "observation_structure", {})
        nq, nv = structure.get("qpos", 0), structure.get("qvel", 0)
        if not self._plain or nv != self.model.nv:
            return {}
        first = self.model.nq - nq
        return {i: first + i for i in range(nq + nv)}

    def rest(self) -> np.ndarray:
        """See Dynamics: the model's first configuration, still."""
        return np.concatenate([self.env.init_qpos, np.zeros(self.model.nv + self.model.na)])

    def driven(self, x: np.ndarray, v: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        return self.advance(x, v, {})

    def gap(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """See Dynamics."""
        return x - y
