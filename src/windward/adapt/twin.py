"""The nominal world and the diagnosed one, simulated side by side on batches of states."""

import os
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from mujoco import rollout

from windward.diagnosis.coordinate_wind import PLACE, direction
from windward.diagnosis.rows import Nominal
from windward.diagnosis.wind import Wind
from windward.simulators.learned import LearnedSimulator
from windward.simulators.mujoco import FULL, MujocoDynamics
from windward.simulators.simulator import Simulator

CONTROL = int(mujoco.mjtState.mjSTATE_CTRL)
FORCE = int(mujoco.mjtState.mjSTATE_XFRC_APPLIED)
FEW = 6
"""rows that one thread simulates sooner than several"""


class Twin:
    """f(x, u, w) of the nominal world and of the diagnosed one, with cost, ends and observations.

    A wind has one number for each of its axes: newtons on a body, an amount added to the action or
    to a coordinate of the next state. Rows that cannot be computed are NaN.
    """

    def __init__(
        self,
        nominal: Nominal,
        changed: Nominal,
        wind: Wind | None = None,
        threads: int | None = None,
    ) -> None:
        self.nominal, self.changed, self.wind = nominal, changed, wind
        self.d_x = nominal.d_x
        self._place = _Place(nominal, wind)
        both: list[Any] = [nominal.dynamics, changed.dynamics]
        self._rollout = None
        if all(isinstance(each, MujocoDynamics) and each._plain for each in both):
            assert isinstance(nominal, Simulator)
            self._rollout = _Rollout([each.model for each in both], nominal, threads)

    @property
    def axes(self) -> int:
        """Numbers in the wind."""
        return self._place.axes

    def advance(
        self, changed: np.ndarray, x: np.ndarray, u: np.ndarray, wind: np.ndarray | None = None
    ) -> np.ndarray:
        """Next states of rows, each in the world that `changed` says; wind blows in both."""
        inner = self.nominal.inner(u)
        inner, force, shift = self._place.apply(inner, wind)
        if self._rollout is not None:
            x_next = self._rollout.advance(changed.astype(int), x, inner, force)
        else:
            x_next = np.empty_like(x)
            for flag, simulator in ((False, self.nominal), (True, self.changed)):
                own = changed == flag
                if own.any():
                    forces = {name: each[own] for name, each in self._place.named(force).items()}
                    x_next[own] = simulator.dynamics.advance(x[own], inner[own], forces)
        return x_next if shift is None else x_next + shift

    def step(
        self, x: np.ndarray, u: np.ndarray, wind: np.ndarray | None = None, changed: bool = True
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(x_next, reward, ended) of rows in one of the worlds; a row that is lost has ended."""
        simulator = self.changed if changed else self.nominal
        inner, force, shift = self._place.apply(simulator.inner(u), wind)
        with np.errstate(all="ignore"):
            if isinstance(simulator, LearnedSimulator):
                x_next, cost, ended = simulator.step(x, u)
                reward = -cost
            else:
                x_next, reward, ended = self._stepped(simulator, changed, x, inner, force)
            lost = ~np.isfinite(x_next).all(axis=1) | ~np.isfinite(reward)
            if shift is not None:
                # As in Disturbed: the end is that of the shifted state, the reward stays.
                x_next = x_next + shift
                ended = simulator.dynamics.terminated(np.where(lost[:, None], x, x_next), inner)
        return x_next, np.where(lost, 0.0, reward), ended | lost

    def _stepped(
        self,
        simulator: Simulator,
        changed: bool,
        x: np.ndarray,
        u: np.ndarray,
        force: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(x_next, reward, ended) by a simulator's physics."""
        dynamics: Any = simulator.dynamics
        task = getattr(dynamics, "_task", None)
        if self._rollout is not None and task is not None:
            x_next = self._rollout.advance(np.full(len(x), int(changed)), x, u, force)
            cost = task.cost(dynamics.env, x.T, u, x_next.T)
            ended = np.asarray(task.terminated(dynamics.env, x_next.T), dtype=bool)
        else:
            x_next, cost, ended = dynamics.step(x, u, self._place.named(force))
        return x_next, np.array([simulator._reward(float(-each)) for each in cost]), ended

    def observe(self, x: np.ndarray) -> np.ndarray:
        """Observations of states."""
        return self.nominal.observation(x)

    def gap(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """x - y, angles the short way round."""
        return self.nominal.gap(x, y)


class _Place:
    """Where a wind pushes: what its numbers add to actions, forces and next states."""

    def __init__(self, simulator: Nominal, wind: Wind | None) -> None:
        kind, _, name = ("", "", "") if wind is None else wind.place.partition(":")
        self._kind, self._d_x = kind, simulator.d_x
        names = [] if wind is None else [axis.name for axis in wind.axes]
        dynamics: Any = simulator.dynamics
        space = getattr(dynamics, "action_space", None) or dynamics.env.action_space
        self._space = space
        self._index: list[int] = []
        self._body = name
        if kind == "force":
            bodies = list(dynamics.parameters.elements["mass"])
            self._bodies = len(bodies)
            self._index = [3 * bodies.index(name) + "xyz".index(each) for each in names]
        elif kind == "action":
            self._index = [int(each) for each in names]
        elif kind == "coordinate":
            self._index = [coordinate_index(dynamics, name)]
        self._directions = np.eye(self._d_x)[self._index] if kind == "coordinate" else np.zeros(0)
        if kind == PLACE:
            self._directions = np.array([direction(each, self._d_x) for each in names])
        self.axes = len(names) if kind == PLACE else len(self._index)

    def apply(
        self, u: np.ndarray, wind: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        """(actions, forces (n, 3 bodies) or None, shift of next states or None)."""
        if wind is None or not self.axes:
            return u, None, None
        if self._kind == "action":
            flat = np.array(u, dtype=np.float64).reshape(len(u), -1)
            flat[:, self._index] += wind
            if isinstance(self._space, gym.spaces.Box):
                flat = np.clip(flat, self._space.low.ravel(), self._space.high.ravel())
            return flat.reshape(u.shape), None, None
        if self._kind == "force":
            force = np.zeros((len(u), 3 * self._bodies))
            force[:, self._index] = wind
            return u, force, None
        return u, None, np.asarray(wind) @ self._directions

    def named(self, force: np.ndarray | None) -> Mapping[str, np.ndarray]:
        """Forces by name, as dynamics take them."""
        if force is None:
            return {}
        first = 3 * (self._index[0] // 3)
        return {f"force:{self._body}": force[:, first : first + 3]}


def coordinate_index(dynamics: Any, name: str) -> int:
    """Index in the state of a coordinate that a diagnosis names."""
    from windward.diagnosis.residuals import compared, coordinates

    names = coordinates(dynamics)
    return next(int(i) for i in compared(dynamics) if names[i] == name)


class _Rollout:
    """One environment step of rows with models of their own, by mujoco.rollout."""

    def __init__(self, models: list[Any], simulator: Simulator, threads: int | None) -> None:
        self._models, self._frames = models, simulator.env.unwrapped.frame_skip  # type: ignore[attr-defined]
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        workers = max(1, threads or cores)
        self._pool = rollout.Rollout(nthread=workers if workers > 1 else 0)
        self._alone = rollout.Rollout(nthread=0)
        self._data = [mujoco.MjData(models[0]) for _ in range(workers)]
        self._d_x = simulator.d_x
        self._size = mujoco.mj_stateSize(models[0], FULL)
        self._kept: dict[int, tuple[np.ndarray, ...]] = {}

    def _arrays(self, n: int) -> tuple[np.ndarray, ...]:
        if n not in self._kept:
            model, frames = self._models[0], self._frames
            start = np.zeros((n, self._size))
            # MuJoCo resets a state that it cannot go on from, its time with it: begin late.
            start[:, 0] = 1.0
            self._kept[n] = (
                start, np.zeros((n, frames, model.nu)),
                np.zeros((n, frames, model.nu + 6 * model.nbody)),
                np.empty((n, frames, self._size)),
                np.empty((n, frames, model.nsensordata)), np.zeros((n, model.nv)),
            )  # fmt: skip
        return self._kept[n]

    def advance(
        self, which: np.ndarray, x: np.ndarray, u: np.ndarray, force: np.ndarray | None
    ) -> np.ndarray:
        model, n = self._models[0], len(x)
        start, control, forced, states, sensors, warm = self._arrays(n)
        start[:, 1 : 1 + self._d_x] = x
        spec = CONTROL
        if force is not None:
            spec, control = CONTROL | FORCE, forced
            pushes = np.zeros((n, model.nbody, 6))
            pushes[:, 1:, :3] = force.reshape(n, model.nbody - 1, 3)
            control[..., model.nu :] = pushes.reshape(n, 1, -1)
        control[..., : model.nu] = np.asarray(u, dtype=np.float64).reshape(n, 1, -1)
        # Waking threads for a few rows takes longer than the rows.
        pool, data = (self._alone, self._data[:1]) if n <= FEW else (self._pool, self._data)
        pool.rollout(
            [self._models[i] for i in which], data, start, control, control_spec=spec,
            nstep=self._frames, initial_warmstart=warm, state=states, sensordata=sensors,
            skip_checks=True,
        )  # fmt: skip
        last = states[:, -1]
        return np.where(last[:, :1] > 1.0, last[:, 1 : 1 + self._d_x], np.nan)
