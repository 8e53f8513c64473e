"""`windward bench overhead`: what the adaptive layer adds to a step of Hopper-v5."""

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np

from windward.adapt import PD2, RobustVectorWrapper, RobustWrapper
from windward.envs import Changed
from windward.policies import load
from windward.studies.runs.origin import versions

ENV = "Hopper-v5"
ROWS = 16
SPAN = 64
"""steps whose mean is taken: M moves once in so many, and that step is the slow one"""


@dataclass(frozen=True)
class BenchOverhead:
    """The time that RobustWrapper adds to a step of Hopper-v5, over that of the step itself."""

    steps: int = 2_000
    """steps of each timing"""
    repeats: int = 5
    """timings of each; the median counts"""
    json: bool = False
    """print the JSON object alone"""


class _Timed(gym.Wrapper[Any, Any, Any, Any]):
    """Notes how long the environment itself took."""

    see_through = True
    took = 0.0

    def step(self, action: Any) -> Any:
        start = perf_counter()
        outcome = self.env.step(action)
        self.took = perf_counter() - start
        return outcome


class _Given:
    """Vector values that are there already: what is left is the layer's own work.

    They are small, as ŵ is in a light wind: M stays small with them, and Hopper on its foot.
    """

    gamma = 0.99

    def __init__(self, d_w: int, rows: int = 1) -> None:
        self.d_w = d_w
        rng = np.random.default_rng(0)
        self._c, self._v, self._q = 0.01 * rng.standard_normal((3, rows, d_w))

    def c(self, x: Any) -> np.ndarray:
        return self._c

    def V(self, x: Any) -> np.ndarray:
        return self._v

    def Q(self, x: Any, u: Any) -> np.ndarray:
        return self._q


PAPERS: dict[str, Any] = {"learner": "mf-gpc", "guard": False}
"""the paper's update; a guard would leave steps to the base policy, which count as quick ones"""


HEAVIER = 1.1
"""factor of the masses where matching acts"""


class _One:
    """Steps of one environment under the policy that comes with the package."""

    def __init__(self, env: gym.Env | None = None, **options: Any) -> None:
        self._timed = _Timed(env or gym.make(ENV))
        self._env = RobustWrapper(self._timed, **options)
        self._policy = load(ENV)
        self._x = self._env.reset(seed=0)[0]

    def step(self) -> tuple[float, float]:
        """(what was added, what the environment took), in seconds."""
        action = self._policy.predict(self._x)[0]
        start = perf_counter()
        self._x, _, terminated, truncated, _ = self._env.step(action)
        added = perf_counter() - start - self._timed.took
        if terminated or truncated:
            self._x = self._env.reset()[0]
        return added, self._timed.took


class _Many:
    """The same for a vector environment."""

    def __init__(self, rows: int, **options: Any) -> None:
        self._inner = gym.vector.SyncVectorEnv([lambda: gym.make(ENV)] * rows)
        self._took = 0.0
        plain = self._inner.step

        def timed(actions: Any) -> Any:
            start = perf_counter()
            outcome = plain(actions)
            self._took = perf_counter() - start
            return outcome

        self._inner.step = timed  # type: ignore[method-assign]
        self._env = RobustVectorWrapper(self._inner, **options)
        self._policy = load(ENV)
        self._x = self._env.reset(seed=0)[0]

    def step(self) -> tuple[float, float]:
        """(what was added, what the environments took), in seconds."""
        actions = self._policy.predict(self._x)[0]
        start = perf_counter()
        self._x = self._env.step(actions)[0]
        return perf_counter() - start - self._took, self._took


def _spans(times: np.ndarray) -> tuple[float, float]:
    """What was added and what the environment took, the median over spans of their mean."""
    span = min(SPAN, len(times))
    spans = times[: len(times) // span * span].reshape(-1, span, 2).mean(axis=1)
    added, own = np.median(spans, axis=0)
    return float(added), float(own)


def _percentiles(seconds: list[float]) -> dict[str, float]:
    """Microseconds at the middle and near the end."""
    return {name: float(np.percentile(seconds, at) * 1e6) for name, at in PERCENTILES.items()}


PERCENTILES = {"median_us": 50, "p99_us": 99}


def run(settings: BenchOverhead) -> dict[str, Any]:
    """All ratios, measured in turns; each the median of the repeats, with their range."""
    d_w = int(np.prod(gym.make(ENV).observation_space.shape or ()))
    heavier = Changed(gym.make(ENV), {"mass": HEAVIER})
    contenders: dict[str, Callable[[], tuple[float, float]]] = {
        "pd2_given": _One(signal=PD2(_Given(d_w)), **PAPERS).step,
        "pd2_networks": _One(signal="pd2", model=load(ENV), **PAPERS).step,
        "pd3": _One(signal="pd3", **PAPERS).step,
        "regression": _One(signal=PD2(_Given(d_w)), guard=False).step,
        "vector16": _Many(ROWS, signal=PD2(_Given(d_w, ROWS)), **PAPERS).step,
        "matching": _One(heavier, model=load(ENV), learner="matching").step,
        "auto_idle": _One(model=load(ENV)).step,
    }
    added: dict[str, list[float]] = {name: [] for name in contenders}
    ratios: dict[str, list[float]] = {name: [] for name in contenders}
    vector_over_one = []
    for step in contenders.values():
        for _ in range(min(100, settings.steps)):  # warm up
            step()
    for _ in range(settings.repeats):
        middle = {}
        for name, step in contenders.items():
            times = np.array([step() for _ in range(settings.steps)])
            added[name].extend(times[:, 0])
            middle[name], own = _spans(times)
            ratios[name].append(middle[name] / own)
        vector_over_one.append(middle["vector16"] / middle["pd2_given"])
    found = {
        "overhead_over_env_step": ratios["pd2_given"],
        "pd2_networks_over_env_step": ratios["pd2_networks"],
        "pd3_over_env_step": ratios["pd3"],
        "regression_over_env_step": ratios["regression"],
        "vector16_over_one": vector_over_one,
        "matching_over_env_step": ratios["matching"],
        "auto_idle_over_env_step": ratios["auto_idle"],
    }
    return {
        **{name: statistics.median(each) for name, each in found.items()},
        "range": {name: [min(each), max(each)] for name, each in found.items()},
        "latency": {name: _percentiles(each) for name, each in added.items()},
        "what": f"time that RobustWrapper adds to a step of {ENV} (act, observe, adapt, info) over "
        f"the time of the step itself, both the median over spans of {SPAN} steps of their mean: "
        "with PD2's values given, with those of the shipped networks, with PD3 and one noise-free "
        "prediction, all by the paper's update; with values given and what 'auto' takes without a "
        "model, a regression of the cost; and 16 vector environments with values given over one; "
        f"matching acts on a robot whose masses are x{HEAVIER:g}; 'auto' with nothing changed; "
        "latency is of single steps, which a diagnosis among them makes long",
        "cores": os.cpu_count(),
        "settings": {"steps": settings.steps, "repeats": settings.repeats},
        "versions": versions(),
    }
