"""A picture of costs and regret on a linear system."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from windward.linear.hindsight import BestDAC, regret
from windward.linear.runs import Run


def _smooth(costs: np.ndarray, window: int) -> np.ndarray:
    """Mean of the last `window` steps, of as many as there are at first."""
    total = np.cumsum(costs, axis=-1)
    total[..., window:] = total[..., window:] - total[..., :-window].copy()
    return total / np.minimum(np.arange(1, costs.shape[-1] + 1), window)


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
) -> Figure:
    """Running mean of the cost and, with `best`, cumulative regret, for each named run.

    Bands are 95 % intervals of the mean over seeds. Writes to `path` (PNG, PDF, SVG) if given.
    """
    figure = Figure(figsize=(11 if best else 6.5, 4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2 if best else 1, squeeze=False)[0]
    for index, (label, run) in enumerate(runs.items()):
        costs = np.asarray(run.cost, np.float64)
        style = {"lw": 1.6 if index else 3.0, "color": f"C{index}"}  # the first lies below all
        _band(panels[0], label, _smooth(costs, min(window, costs.shape[-1] - 1)), style)
        if best is not None:
            _band(panels[1], label, regret(run, best), style)
    if best is not None:
        smooth = _smooth(np.asarray(best.cost), min(window, len(best.cost) - 1))
        _band(panels[0], "best fixed M", smooth, {"lw": 1.6, "color": "black", "ls": "--"})
        panels[1].set(xlabel="step", ylabel="regret against the best fixed M")
        panels[1].axhline(0, color="black", ls="--", lw=0.8)
    panels[0].set(xlabel="step", ylabel=f"cost, mean of the last {window} steps")
    if all(np.min(run.cost[..., window:], initial=np.inf) > 0 for run in runs.values()):
        panels[0].set_yscale("log")
    for axes in panels:
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(fontsize=8, frameon=False)
    if title:
        figure.suptitle(title)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure
