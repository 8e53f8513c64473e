"""Linear systems under LQR, winds by name, and the headroom of a method, for studies of them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import windward as ww
from windward.linear import disturbances
from windward.studies import plots, stats
from windward.studies.report import Chart
from windward.studies.spec import Result
from windward.studies.stats import Drawing

LQR, BEST = "LQR", "best fixed M"
REPORT_SEED = 1000
"""seeds from here on are for reporting, those below for tuning"""
CEILING = 10.0
"""times LQR's cost, up to which figures show costs: a run that diverges would flatten the others"""
RANDOM = (
    "Systems are random and stable (spectral radius 0.8 to 0.98), Q = R = I, the base policy is "
    "LQR. "
)


class Problem(NamedTuple):
    """A system with its base controller and costs."""

    system: ww.linear.System
    K: np.ndarray
    Q: np.ndarray
    R: np.ndarray

    @property
    def settings(self) -> dict[str, Any]:
        """Keyword arguments of `simulate` and `best_dac`."""
        return {"K": self.K, "Q": self.Q, "R": self.R}


def double_integrator() -> Problem:
    """A = [[1, 1], [0, 1]], B = [0; 1], Q = R = I, base policy LQR."""
    A, B, Q, R = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[0.0], [1.0]]), np.eye(2), np.eye(1)
    return Problem(ww.linear.System(A, B), ww.linear.lqr(A, B, Q, R).K, Q, R)


def problem(d_x: int, d_u: int, seed: int) -> Problem:
    """A random stable system, spectral radius in [0.8, 0.98]; Q = R = I, base policy LQR."""
    rng = np.random.default_rng(seed + 1000 * d_x)
    A = rng.normal(size=(d_x, d_x))
    A *= rng.uniform(0.8, 0.98) / np.abs(np.linalg.eigvals(A)).max()
    B = rng.normal(size=(d_x, d_u)) / np.sqrt(d_x)
    Q, R = np.eye(d_x), np.eye(d_u)
    return Problem(ww.linear.System(A, B), ww.linear.lqr(A, B, Q, R).K, Q, R)


def wind(name: str, T: int, d_x: int, seed: int) -> np.ndarray:
    """A wind by name, with amplitudes and phases, one for each coordinate, by seed."""
    rng = np.random.default_rng(seed + 7)
    kind, *numbers = name.split()
    if kind in ("sine", "tones") and numbers:
        tones = [
            disturbances.sinusoid(
                T, d_x, amplitude=rng.uniform(0.5, 1.0, d_x), period=float(period),
                phase=rng.uniform(0, 2 * np.pi, d_x),
            )
            for period in numbers
        ]  # fmt: skip
        total: np.ndarray = np.sum(tones, axis=0) / np.sqrt(len(tones))
        return total
    if kind == "walk":
        return disturbances.random_walk(T, d_x, seed=seed)
    if kind == "constant":
        return np.ones((T, 1)) * rng.uniform(-1, 1, d_x)
    raise ValueError(
        f"a wind must be 'sine PERIOD', 'tones PERIOD PERIOD', 'walk' or 'constant'; got {name!r}"
    )


def methods_of(done: Sequence[Result]) -> dict[str, Result]:
    """Finished runs by their method, where each has one."""
    return {each.run.settings["method"]: each for each in done}


def drawing(steps: np.ndarray, costs: np.ndarray, first_seed: int = 0) -> Drawing:
    """The costs (seeds, bins) of a method as the paper's appendix draws them, and as they are."""
    raw = [(first_seed + i, np.asarray(steps, float), each) for i, each in enumerate(costs)]
    return stats.drawing(raw, float(steps[-1]))


def cost_charts(drawn: Mapping[str, Drawing], where: str) -> list[Chart]:
    """Costs over time; `where` says on what they were measured."""
    usual = drawn.get(LQR, next(iter(drawn.values())))
    top = CEILING * float(np.median([y for *_, y in usual.raw]))
    return plots.three(
        drawn, "Cost over time", "step", "cost", (LQR, BEST), where, log_y=True, top=top
    )
