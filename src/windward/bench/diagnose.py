"""`windward bench diagnose`: a diagnosis against raw simulated steps and other optimisers.

All is one thread's work, timed in seconds of the processor: what else runs does not count.
"""

import os
import statistics
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import process_time
from typing import Any, NamedTuple

import gymnasium as gym
import mujoco
import numpy as np
from mujoco import minimize, rollout

from windward.adapt import cma
from windward.diagnosis import Log, Recorder, diagnose_log
from windward.diagnosis.blocks import split
from windward.diagnosis.fit import Whitening, whitened
from windward.diagnosis.parameters import Parameter, Sizes, parameters_of
from windward.diagnosis.residuals import Residuals, Rows
from windward.envs import Changed, Disturbed
from windward.policies import load
from windward.policies.shipped import SHIPPED
from windward.simulators import simulator
from windward.simulators.mujoco import FULL
from windward.simulators.parameters import arrays_of
from windward.studies.runs.origin import versions


@dataclass(frozen=True)
class BenchDiagnose:
    """Diagnoses against the raw simulated steps that they need, mujoco.minimize and CMA-ES."""

    steps: int = 1_000
    """recorded steps, at most; one episode where a policy comes with the package"""
    repeats: int = 5
    """timings of a diagnosis and of raw steps, taken in turns; the median counts"""
    seeds: int = 3
    """episodes of each case for accuracy; the median counts"""
    limit: float = 10.0
    """peers are stopped after so many times the seconds of the diagnosis ..."""
    least: float = 20.0
    """... or after so many seconds, if that is more"""
    json: bool = False
    """print the JSON object alone"""


class World(NamedTuple):
    """A changed world."""

    env: str
    changes: Mapping[str, float]
    wind: str = ""
    channel: str = ""


SPEED: Mapping[str, World] = {
    "hopper": World("Hopper-v5", {"mass:torso": 1.3}),
    "half-cheetah": World("HalfCheetah-v5", {"gain": 0.7}),
    "ant": World("Ant-v5", {"mass:torso": 1.3}),
}
SINE = "sine:amp=5/0/0,period=150,phase=random"
ACCURACY: Mapping[str, World] = {
    "hopper-mass": World("Hopper-v5", {"mass": 1.1}),
    "half-cheetah-mass": World("HalfCheetah-v5", {"mass": 1.3}),
    "hopper-wind": World("Hopper-v5", {"mass:torso": 1.3}, SINE, "force:torso"),
    "hopper-friction": World("Hopper-v5", {"friction": 0.14}),
    "half-cheetah-noise": World("HalfCheetah-v5", {"gain": 0.7}, "uniform:bound=0.05", "action"),
}
KINDS = ("mass", "friction", "gain", "damping")
FACTOR = 10.0
"""bounds of the peers: each parameter between its nominal value over this and times this"""
FEW = 128
"""steps that the peers try first where there is no wind: as many tell as much, and are quicker"""
PAST = 8
"""order of the autoregression that whitens the peers' residuals"""
EXACT = 1e-3
"""error below which a peer needs no other attempt"""
DIVERGED = 1e3
"""residual of a step that could not be simulated"""


def _recorded(world: World, steps: int, seed: int) -> Log:
    """An episode of the shipped policy; without one smooth random actions, episode by episode."""
    env: gym.Env = Changed(gym.make(world.env), world.changes)
    if world.wind:
        env = Disturbed(env, world.wind, world.channel, seed=seed)
    recorder, space = Recorder(env), env.action_space
    assert isinstance(space, gym.spaces.Box)
    policy = load(world.env) if world.env in SHIPPED else None
    rng, action = np.random.default_rng(seed), np.zeros(space.shape, space.dtype)
    observation, _ = recorder.reset(seed=seed)
    for _ in range(steps):
        if policy is not None:
            action = policy.predict(observation)[0]
        else:
            moved = 0.8 * action + 0.3 * rng.standard_normal(action.shape)
            action = np.clip(moved, space.low, space.high).astype(space.dtype)
        observation, _, terminated, truncated, _ = recorder.step(action)
        if terminated or truncated:
            if policy is not None:
                break
            observation, _ = recorder.reset()
    recorder.close()
    return recorder.log


class _Raw:
    """Plain `mujoco.rollout` of single steps from the recorded states, on one thread."""

    def __init__(self, env: Any, log: Log) -> None:
        self._model, frames = env.model, env.frame_skip
        x, u, _ = _transitions(log)
        size = mujoco.mj_stateSize(self._model, FULL)
        self._start = np.concatenate([np.zeros((len(x), 1)), x], axis=1)
        self._control = np.repeat(u[:, None], frames, axis=1)
        self._states = np.empty((len(x), frames, size))
        self._sensors = np.empty((len(x), frames, self._model.nsensordata))
        self._data, self._pool = [mujoco.MjData(self._model)], rollout.Rollout(nthread=0)

    def seconds(self, rows: int) -> float:
        """The time of so many steps; those recorded are taken again and again."""
        begin = process_time()
        for done in range(0, rows, len(self._start)):
            n = min(len(self._start), rows - done)
            self._pool.rollout(
                [self._model] * n, self._data, self._start[:n], self._control[:n],
                nstep=self._control.shape[1], state=self._states[:n],
                sensordata=self._sensors[:n], skip_checks=True,
            )  # fmt: skip
        return process_time() - begin


def _transitions(log: Log) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x, u, next x) of all recorded steps."""
    states = [each.states for each in log.episodes if each.states is not None]
    u = np.concatenate([each.actions for each in log.episodes]).astype(np.float64)
    return np.concatenate([x[:-1] for x in states]), u, np.concatenate([x[1:] for x in states])


def _speed(world: World, settings: BenchDiagnose) -> dict[str, Any]:
    """The time of a whole `diagnose_log` over that of as many raw steps."""
    log, nominal = _recorded(world, settings.steps, 0), gym.make(world.env)
    raw = _Raw(nominal.unwrapped, log)
    found = diagnose_log(log, nominal, threads=1)  # warm up
    raw.seconds(min(found.simulated, 1000))
    ours, theirs = [], []
    for _ in range(settings.repeats):
        begin = process_time()
        diagnose_log(log, nominal, threads=1)
        ours.append(process_time() - begin)
        theirs.append(raw.seconds(found.simulated))
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    size = found.steps / 1000 * len(found.factors)
    return {
        "fit_over_raw": statistics.median(ratios),
        "range": [min(ratios), max(ratios)],
        "fit_seconds": statistics.median(ours) / size,
        "raw_seconds": statistics.median(theirs) / size,
        "steps": found.steps,
        "parameters": len(found.factors),
        "simulated": found.simulated,
    }


class _TimeUp(Exception):
    """A peer that has had its time."""


class _Problem:
    """Residuals as a vectorised function of columns of θ; keeps the best column, and the time."""

    def __init__(self, residuals: Residuals, rows: Rows, past: int, seconds: float) -> None:
        self._residuals, self._rows, self._how = residuals, rows, Whitening(past=past)
        self.reach = np.array([each.theta(FACTOR) for each in residuals.parameters])
        self.best, self._least = np.zeros(residuals.count), float("inf")
        self._end = process_time() + seconds

    def __call__(self, columns: np.ndarray) -> np.ndarray:
        """(numbers, k) residuals of (parameters, k)."""
        if process_time() > self._end:
            raise _TimeUp
        thetas = columns.reshape(len(self.best), -1).T
        none = np.zeros((self._rows.size, len(self._residuals.compared), 0))
        r = np.stack([
            whitened(each, none, self._rows, self._how)[0] if self._how.past else each
            for each in self._residuals.at(list(thetas), self._rows)
        ])  # fmt: skip
        r = np.nan_to_num(r, nan=DIVERGED).reshape(len(thetas), -1)
        costs = np.square(r).sum(axis=1)
        if costs.min() < self._least:
            self.best, self._least = thetas[costs.argmin()].copy(), float(costs.min())
        return r.T


def _mujoco(problem: _Problem, seed: int) -> None:
    """As `mujoco.sysid.optimize` calls it; differences wide enough for the solver's tolerance."""
    start = np.zeros_like(problem.best)
    minimize.least_squares(
        start, problem, (-problem.reach, problem.reach), eps=1e-5, x_scale="jac", max_iter=1000,
        verbose=minimize.Verbosity.SILENT,
    )  # fmt: skip


def _cma(problem: _Problem, seed: int) -> None:
    """From half a prior standard deviation around nothing changed, until the steps are tiny."""
    state, rng = cma.start(np.zeros_like(problem.best), 0.5), np.random.default_rng(seed)
    while float(state.step) * np.sqrt(np.diag(state.C).max()) > 1e-6:
        points = np.concatenate([cma.ask(state, rng), state.mean[None]])
        inside = np.clip(points, -problem.reach, problem.reach)
        costs = np.square(problem(inside.T)).sum(axis=0)
        costs *= 1 + np.square(points - inside).sum(axis=1)
        state = cma.tell(state, points[:-1], costs[:-1])


PEERS: Mapping[str, Callable[[_Problem, int], None]] = {"mujoco": _mujoco, "cma": _cma}


class _Outcome(NamedTuple):
    error: float  # largest relative one of a parameter
    seconds: float
    simulated: int  # steps
    converged: bool = True  # not stopped by the limit


def _outcomes(world: World, settings: BenchDiagnose, seed: int) -> dict[str, _Outcome]:
    """What the diagnosis and each peer make of the same recorded steps."""
    log, nominal = _recorded(world, settings.steps, seed), gym.make(world.env)
    dynamics: Any = simulator(nominal, noisy=False).dynamics
    parameters = parameters_of(dynamics, KINDS, Sizes())

    def theta(changes: Mapping[str, float]) -> np.ndarray:
        known = {key: value for key, value in changes.items() if key.partition(":")[0] in KINDS}
        values = arrays_of(dynamics.parameters.elements, {**dict.fromkeys(KINDS, 1.0), **known})
        return np.array([each.theta(values[each.kind][each.elements[0]]) for each in parameters])

    true = theta(world.changes)
    begin = process_time()
    found = diagnose_log(log, nominal, parameters=KINDS, threads=1)
    seconds = process_time() - begin
    ours = _Outcome(_error(theta(found.values), true, parameters), seconds, found.simulated)
    outcomes = {"windward": ours}

    x, u, x_next = _transitions(log)
    episode = np.repeat(np.arange(len(log.episodes)), [each.steps for each in log.episodes])
    rows = Rows(x, u, x_next, episode, np.arange(len(x)), episode)
    residuals = Residuals(dynamics, parameters, 1, np.std(x_next - x, axis=0) + 1e-9)
    few = split(rows, FEW, 32)[0]
    attempts = [(rows, 0), (rows, PAST)] if world.wind else [(few, 0), (rows, 0)]
    for name, optimise in PEERS.items():
        tried: list[_Outcome] = []
        for own, past in attempts:
            before, begin = residuals.simulated, process_time()
            problem = _Problem(residuals, own, past, max(settings.least, settings.limit * seconds))
            converged = False
            with suppress(_TimeUp):
                optimise(problem, seed)
                converged = True
            spent, simulated = process_time() - begin, residuals.simulated - before
            error = _error(problem.best, true, parameters)
            tried.append(_Outcome(error, spent, simulated, converged))
            if tried[-1].error < EXACT:
                break
        outcomes[name] = min(tried)
    return outcomes


def _error(theta: np.ndarray, true: np.ndarray, parameters: list[Parameter]) -> float:
    """The largest relative error of a factor."""
    ratios = [each.value(float(t)) for each, t in zip(parameters, theta - true, strict=True)]
    return float(np.abs(np.array(ratios) - 1).max())


def _accuracy(world: World, settings: BenchDiagnose) -> dict[str, Any]:
    """The medians over seeds."""
    rows = [_outcomes(world, settings, seed) for seed in range(settings.seeds)]
    found: dict[str, Any] = {}
    for name in rows[0]:
        own = [row[name] for row in rows]
        found[name] = {
            key: statistics.median(getattr(each, key) for each in own)
            for key in ("error", "seconds", "simulated")
        }
        found[name]["errors"] = [each.error for each in own]
        found[name]["converged"] = sum(each.converged for each in own)
        found[name]["seconds_over_windward"] = statistics.median(
            row[name].seconds / row["windward"].seconds for row in rows
        )
    return found


def run(settings: BenchDiagnose) -> dict[str, Any]:
    """Speed against raw steps; accuracy and time against the peers."""
    speed = {name: _speed(world, settings) for name, world in SPEED.items()}
    accuracy = {name: _accuracy(world, settings) for name, world in ACCURACY.items()}
    return {
        "fit_over_raw": max(each["fit_over_raw"] for each in speed.values()),
        "speed": speed,
        "accuracy": accuracy,
        "what": "seconds are of the processor. speed: time of a whole diagnose_log on one thread, "
        "for each 1,000 recorded steps and parameter, over that of plain mujoco.rollout for as "
        "many simulated steps from the recorded states on one thread; fit_over_raw is the largest "
        "of the ratios. accuracy: largest relative error over the factors of each mass, friction, "
        "gain and damping, seconds and simulated steps of diagnose_log (its wind and fewest "
        "changes included), of mujoco.minimize.least_squares, which "
        "mujoco.sysid.optimize(optimizer='mujoco') calls (used directly: mujoco.sysid needs an "
        "extra), and of CMA-ES on the same residuals of the same recorded steps, factors "
        f"{1 / FACTOR:g} to {FACTOR:g}, one start. The peers' better attempt, judged by the truth: "
        "all steps with the residual plain or whitened by its past where there is wind; else "
        f"{FEW} steps, and all if those do not do; until converged, or for {settings.limit:g} "
        f"times the seconds of the diagnosis, {settings.least:g} s at least; converged counts the "
        "seeds that were not stopped",
        "cases": {name: world._asdict() for name, world in {**SPEED, **ACCURACY}.items()},
        "cores": os.cpu_count(),
        "settings": {
            name: getattr(settings, name)
            for name in ("steps", "repeats", "seeds", "limit", "least")
        },
        "versions": versions(),
    }  # fmt: skip
