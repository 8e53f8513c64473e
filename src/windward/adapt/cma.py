"""Covariance matrix adaptation: a search that needs nothing but costs, for a few dozen numbers.

After Hansen's tutorial (arXiv:1604.00772): weighted recombination, cumulative step size, and rank
one and rank μ updates of the covariance. A search is a state of numbers, so that one that was
stopped goes on as it would have.
"""

from typing import NamedTuple

import numpy as np

from windward import checks


class State(NamedTuple):
    """Where a search is."""

    mean: np.ndarray  # (n,)
    C: np.ndarray  # (n, n)
    spread_path: np.ndarray  # (n,)
    step_path: np.ndarray  # (n,)
    step: np.ndarray  # ()
    generation: np.ndarray  # ()


class Rates(NamedTuple):
    """What follows from how many numbers are searched for."""

    points: int
    weights: np.ndarray  # of the better half, best first
    mu: float  # how many points the weights are worth
    c_step: float
    d_step: float
    c_spread: float
    c_1: float
    c_mu: float


def rates(n: int) -> Rates:
    """The tutorial's defaults, with at least 12 points for costs that are noisy."""
    count = max(12, 4 + int(3 * np.log(n)))
    raw = np.log(count / 2 + 0.5) - np.log(np.arange(1, count // 2 + 1))
    weights = raw / raw.sum()
    mu = float(1.0 / np.square(weights).sum())
    c_step = (mu + 2) / (n + mu + 5)
    d_step = 1 + 2 * max(0.0, float(np.sqrt((mu - 1) / (n + 1))) - 1) + c_step
    c_spread = (4 + mu / n) / (n + 4 + 2 * mu / n)
    c_1 = 2 / ((n + 1.3) ** 2 + mu)
    c_mu = min(1 - c_1, 2 * (mu - 2 + 1 / mu) / ((n + 2) ** 2 + mu))
    return Rates(count, weights, mu, c_step, d_step, c_spread, c_1, c_mu)


def start(mean: np.ndarray, step: float) -> State:
    """Around a point, evenly in all directions."""
    zeros = np.zeros_like(mean)
    return State(mean, np.eye(len(mean)), zeros, zeros, np.array(step), np.array(0))


def ask(state: State, rng: np.random.Generator) -> np.ndarray:
    """The points of this generation, (count, n)."""
    n = len(state.mean)
    values, axes = np.linalg.eigh(state.C)
    root = axes * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(state.mean + state.step * rng.standard_normal((rates(n).points, n)) @ root.T)


def tell(state: State, points: np.ndarray, costs: np.ndarray) -> State:
    """The next state, from the costs of the points."""
    n, r = len(state.mean), rates(len(state.mean))
    best = points[np.argsort(costs, kind="stable")[: len(r.weights)]]
    y = (best - state.mean) / state.step
    move = r.weights @ y
    values, axes = np.linalg.eigh(state.C)
    whitened = axes @ ((axes.T @ move) / np.sqrt(np.maximum(values, 1e-20)))
    step_path = (1 - r.c_step) * state.step_path + np.sqrt(
        r.c_step * (2 - r.c_step) * r.mu
    ) * whitened
    usual = np.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))  # length of a normal vector
    length = float(np.linalg.norm(step_path))
    age = 1 - (1 - r.c_step) ** (2 * (int(state.generation) + 1))
    settled = length / np.sqrt(age) < (1.4 + 2 / (n + 1)) * usual
    spread_path = (1 - r.c_spread) * state.spread_path
    if settled:  # else the step is about to grow, and the path would stretch C as well
        spread_path = spread_path + np.sqrt(r.c_spread * (2 - r.c_spread) * r.mu) * move
    lost = 0.0 if settled else r.c_1 * r.c_spread * (2 - r.c_spread)
    C = (
        (1 - r.c_1 - r.c_mu + lost) * state.C
        + r.c_1 * np.outer(spread_path, spread_path)
        + r.c_mu * (y.T * r.weights) @ y
    )
    step = state.step * np.exp(min(1.0, r.c_step / r.d_step * (length / usual - 1)))
    return State(
        state.mean + state.step * move, (C + C.T) / 2, spread_path, step_path, np.asarray(step),
        state.generation + 1,
    )  # fmt: skip


def restored(arrays: dict[str, np.ndarray], prefix: str, n: int) -> State:
    """The search for n numbers that lies in `arrays`; refuses what is none."""
    found, shapes = {}, {"mean": (n,), "C": (n, n), "spread_path": (n,), "step_path": (n,)}
    for name in State._fields:
        each = found[name] = arrays[f"{prefix}{name}"]
        checks.finite_array(name, each)
        checks.shape(name, each, shapes.get(name, ()), "of a search for so many numbers")
    spread = np.linalg.eigvalsh(found["C"]) if n else np.zeros(1)
    if found["step"] <= 0 or found["generation"] < 0 or spread.min() < -1e-9 * spread.max():
        raise ValueError("the search is damaged in its step, generation or covariance")
    return State(**found)
