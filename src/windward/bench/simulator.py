"""`windward bench simulator`: what predictions and disturbances cost, in steps of Hopper-v5."""

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from mujoco import rollout

from windward.envs import Disturbed
from windward.simulators import simulator
from windward.studies.runs.origin import versions

ENV = "Hopper-v5"
NOISE = "uniform:bound=0.1"


@dataclass(frozen=True)
class BenchSimulator:
    """Simulators and disturbances against plain steps of Hopper-v5 and against mujoco.rollout."""

    steps: int = 2_000
    """steps of each timing, both sides from the same states"""
    repeats: int = 5
    """timings of each; the median counts"""
    batch: int = 64
    """states in a batched step"""
    json: bool = False
    """print the JSON object alone"""


def _hopper() -> gym.Env:
    return gym.make(ENV)


def _over_step(env: gym.Env, job: Callable[[Any], Any], steps: int, moves: bool) -> float:
    """The time of `job(action)` over that of a plain step from the same state.

    With `moves`, the job itself is the step that goes on to the next state. Both are timed at every
    state of random episodes, taking turns to go first, so both see the same contacts and caches.
    """
    plain = _hopper()
    plain.reset(seed=0)
    env.reset(seed=0)
    env.action_space.seed(0)
    here, there = env.unwrapped, plain.unwrapped
    spent = [0.0, 0.0]
    outcome: list[Any] = [None, None]
    for i in range(steps):
        action = env.action_space.sample()
        mujoco.mj_copyData(there.data, there.model, here.data)  # type: ignore[attr-defined]
        for side in (0, 1) if i % 2 else (1, 0):
            call = (job, plain.step)[side]
            start = perf_counter()
            outcome[side] = call(action)
            spent[side] += perf_counter() - start
        ours = outcome[0] if moves else env.step(action)
        if outcome[1][2] or outcome[1][3]:
            plain.reset()
        if ours[2] or ours[3]:
            env.reset()
    return spent[0] / spent[1]


def _noise_free(steps: int) -> float:
    env = _hopper()
    return _over_step(env, simulator(env, noisy=False).predict, steps, moves=False)


def _four_copies(channel: str) -> Callable[[int], float]:
    def measure(steps: int) -> float:
        env = Disturbed(_hopper(), NOISE, channel)
        return _over_step(env, simulator(env, copies=4).predict, steps, moves=False)

    return measure


def _disturbed(steps: int) -> float:
    env = Disturbed(_hopper(), NOISE, "qpos")
    return _over_step(env, env.step, steps, moves=True)


def _batched(batch: int) -> Callable[[int], float]:
    """Rows a second of `Simulator.step`, cost and termination included, over raw mujoco.rollout."""
    env = _hopper()
    env.reset(seed=0)
    ours = simulator(env, noisy=False)
    base: Any = env.unwrapped
    model, frames = base.model, base.frame_skip
    rng = np.random.default_rng(0)
    x = ours.state() + rng.uniform(-0.05, 0.05, (batch, ours.d_x))
    u = rng.uniform(-1, 1, (batch, model.nu)).astype(np.float32)
    size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS.value)
    start = np.zeros((batch, size))
    start[:, 1 : 1 + ours.d_x] = x
    controls = np.repeat(u[:, None].astype(np.float64), frames, axis=1)
    states = np.empty((batch, frames, size))
    sensors = np.empty((batch, frames, model.nsensordata))
    cores = len(os.sched_getaffinity(0))
    pool = rollout.Rollout(nthread=cores if cores > 1 else 0)
    data = [mujoco.MjData(model) for _ in range(cores)]

    def peer() -> None:
        pool.rollout(
            [model] * batch, data, start, controls, nstep=frames, state=states,
            sensordata=sensors, skip_checks=True,
        )  # fmt: skip

    def measure(steps: int) -> float:
        spent = [0.0, 0.0]
        for _ in range(max(1, steps // batch)):
            for side, job in enumerate((lambda: ours.step(x, u), peer)):
                begin = perf_counter()
                job()
                spent[side] += perf_counter() - begin
        return spent[1] / spent[0]

    return measure


def run(settings: BenchSimulator) -> dict[str, Any]:
    """All ratios, measured in turns; each the median of the repeats, with their range."""
    measures: dict[str, Callable[[int], float]] = {
        "four_copies_over_env_step": _four_copies("action"),
        "four_copies_of_qpos_noise_over_env_step": _four_copies("qpos"),
        "noise_free_over_env_step": _noise_free,
        "disturbed_over_env_step": _disturbed,
        "batched_over_rollout": _batched(settings.batch),
    }
    for measure in measures.values():
        measure(min(50, settings.steps))  # warm up
    ratios: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(settings.repeats):
        for name, measure in measures.items():
            ratios[name].append(measure(settings.steps))
    return {
        **{name: statistics.median(each) for name, each in ratios.items()},
        "range": {name: [min(each), max(each)] for name, each in ratios.items()},
        "what": f"time over that of a plain {ENV} step from the same state: predictions with four "
        "physics runs (iid action noise), with noise after one run (iid qpos noise) and without "
        "noise; a step of Disturbed with qpos noise; and rows a second of a batched step, cost and "
        f"termination included, over raw mujoco.rollout, batch {settings.batch}",
        "cores": os.cpu_count(),
        "settings": {
            "steps": settings.steps,
            "repeats": settings.repeats,
            "batch": settings.batch,
        },
        "versions": versions(),
    }
