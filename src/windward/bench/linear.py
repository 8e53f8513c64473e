"""`windward bench linear`: Bandit GPC here against a plain NumPy loop of the same algorithm."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import windward as ww
from windward.linear import disturbances
from windward.studies.paper.systems import double_integrator
from windward.studies.runs.origin import versions


@dataclass(frozen=True)
class BenchLinear:
    """Bandit GPC against a plain NumPy loop, in environment steps per second."""

    seeds: int = 256
    """runs side by side"""
    T: int = 10_000
    """steps of each run"""
    numpy_steps: int = 5_000
    """steps of the NumPy loop, one run"""
    repeats: int = 5
    """timings of each, taken in turns; the fastest counts"""
    json: bool = False
    """print the JSON object alone"""


ETA, DELTA, RADIUS, H = 1e-5, 0.2, 10.0, 5


def numpy_bandit_gpc(
    A: np.ndarray, B: np.ndarray, K: np.ndarray, Q: np.ndarray, R: np.ndarray, w: np.ndarray,
    unit: np.ndarray, h: int, eta: float, delta: float, radius: float,
) -> np.ndarray:  # fmt: skip
    """Bandit GPC (`algo:banditgpc`) as one would write it first; unit draws (T, d_u) come in."""
    T, d_x = w.shape
    d_u = B.shape[1]
    x, M = np.zeros(d_x), np.zeros((h, d_u, d_x))
    w_hist, n_hist = np.zeros((2 * h - 1, d_x)), np.zeros((h, d_u))
    waiting = np.zeros((h, h, d_u, d_x))
    cost = np.empty(T)
    for t in range(T):
        n = unit[t] / np.linalg.norm(unit[t])
        u = -K @ x + np.einsum("iab,ib->a", M, w_hist[:h]) + delta * n
        cost[t] = x @ Q @ x + u @ R @ u
        x = A @ x + B @ u + w[t]
        n_hist[1:] = n_hist[:-1]
        n_hist[0] = n
        gradient = np.zeros_like(M)
        for i in range(h):
            gradient += n_hist[i][None, :, None] * w_hist[i : i + h][:, None, :]
        gradient *= d_u * cost[t] / delta
        M = M - eta * waiting[-1]
        norm = np.linalg.norm(M)
        if norm > radius:
            M = M * (radius / norm)
        waiting[1:] = waiting[:-1]
        waiting[0] = gradient
        w_hist[1:] = w_hist[:-1]
        w_hist[0] = w[t]
    return cost


def _fastest(jobs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The fastest time of each job, the jobs taken in turns so that all see the same machine."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            times[name].append(time.perf_counter() - start)
    return {name: min(each) for name, each in times.items()}


def run(settings: BenchLinear) -> dict[str, Any]:
    """Times both in the same run, and ten times the steps; the ratio is steps per second."""
    problem = double_integrator()
    system, T = problem.system, settings.T
    w = disturbances.sinusoid(10 * T, system.d_x)
    algorithm = ww.bandit_gpc(
        system.d_u, system.d_x, h=H, eta=ETA, delta=DELTA, projection=ww.frobenius_ball(RADIUS)
    )
    unit = np.random.default_rng(0).normal(size=(settings.numpy_steps, system.d_u))

    def ours(steps: int, seeds: int) -> None:
        ww.linear.simulate(
            system, algorithm, w[:steps], seed=range(seeds), keep=(), **problem.settings
        )

    def peer() -> None:
        numpy_bandit_gpc(
            system.A, system.B, problem.K, problem.Q, problem.R, w[: settings.numpy_steps],
            unit, H, ETA, DELTA, RADIUS,
        )  # fmt: skip

    jobs: dict[str, Callable[[], Any]] = {
        "ours": lambda: ours(T, settings.seeds),
        "longer": lambda: ours(10 * T, settings.seeds),
        "numpy": peer,
    }
    for job in jobs.values():
        job()  # compile and warm up
    seconds = _fastest(jobs, settings.repeats)
    ours_rate = settings.seeds * T / seconds["ours"]
    peer_rate = settings.numpy_steps / seconds["numpy"]
    return {
        "what": f"Bandit GPC, d_x={system.d_x}, d_u={system.d_u}, h={H}, {settings.seeds} seeds: "
        "environment steps per second after compiling",
        "ours": ours_rate,
        "peer": peer_rate,
        "peer_is": "plain NumPy loop of the same algorithm, one seed",
        "ratio": ours_rate / peer_rate,
        "time_for_ten_times_the_steps": seconds["longer"] / seconds["ours"],
        "cores": os.cpu_count(),
        "settings": {"T": T, "seeds": settings.seeds, "repeats": settings.repeats},
        "versions": versions(),
    }
