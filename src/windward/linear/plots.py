"""A picture of costs and regret on a linear system."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from windward import checks
from windward.figures import panels
from windward.linear.hindsight import BestDAC, regret
from windward.linear.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _smooth(costs: np.ndarray, window: int) -> np.ndarray:
    """Mean of the last `window` steps, of as many as there are at first."""
    total = np.cumsum(costs, axis=-1)
    before = np.zeros_like(total)
    before[..., window:] = total[..., :-window]
    return (total - before) / np.minimum(np.arange(1, costs.shape[-1] + 1), window)


def _band(axes: Any, label: str, values: np.ndarray, style: dict[str, Any]) -> None:
    """Mean over seeds with its 95 % interval."""
    steps = np.linspace(0, values.shape[-1] - 1, min(values.shape[-1], 1000)).astype(int)
    values = np.atleast_2d(values)[:, steps]
    mean = values.mean(0)
    (line,) = axes.plot(steps, mean, label=label, **style)
    if len(values) > 1:
        half = 1.96 * values.std(0, ddof=1) / np.sqrt(len(values))
        low = np.maximum(mean - half, values.min(0))  # a mean is never below the least
        axes.fill_between(steps, low, mean + half, color=line.get_color(), alpha=0.2, lw=0)


def plot(
    runs: Mapping[str, Run],
    best: BestDAC | None = None,
    *,
    path: str | Path | None = None,
    window: int = 500,
    title: str = "",
) -> "Figure":
    """Running mean of the cost and, with `best`, cumulative regret, for each named run.

    Bands are 95 % intervals of the mean over seeds. Writes to `path` (PNG, PDF, SVG) if given.
    """
    window = checks.integer("window", window, 1)
    if not isinstance(runs, Mapping) or not runs:
        raise ValueError('runs must map names to runs, such as {"LQR": run}')
    figure, row = panels(2 if best else 1, width=5.5)
    for index, (label, run) in enumerate(runs.items()):
        costs = np.asarray(run.cost, np.float64)
        if costs.ndim > 2:
            raise ValueError(
                f"runs[{label!r}] must be one run or several seeds; its cost has shape "
                f"{costs.shape}: pick a point of the grid"
            )
        style = {"lw": 1.6 if index else 3.0, "color": f"C{index}"}  # the first lies below all
        _band(row[0], label, _smooth(costs, window), style)
        if best is not None:
            _band(row[1], label, regret(run, best), style)
    if best is not None:
        smooth = _smooth(np.asarray(best.cost), window)
        _band(row[0], "best fixed M", smooth, {"lw": 1.6, "color": "black", "ls": "--"})
        row[1].set(xlabel="step", ylabel="regret against the best fixed M")
        row[1].axhline(0, color="black", ls="--", lw=0.8)
    row[0].set(xlabel="step", ylabel=f"cost, mean of the last {window} steps")
    # The first states may cost nothing at all; they must not set the scale.
    settled = [_smooth(np.asarray(run.cost, np.float64), window) for run in runs.values()]
    lowest = min(np.min(curve[..., curve.shape[-1] // 10 :]) for curve in settled)
    if lowest > 0:
        row[0].set(yscale="log", ylim=(lowest / 2, None))
    row[0].legend(fontsize=8, frameon=False)
    if title:
        figure.suptitle(title)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure
