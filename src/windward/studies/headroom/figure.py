"""The figure of `headroom`: what each method captures of each case, and what it loses."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from windward.figures import panels, save
from windward.studies.headroom import numbers as stats
from windward.studies.headroom.cases import EVERY
from windward.studies.headroom.methods import BASE, BEST, METHODS

Found = Mapping[str, Mapping[str, stats.Outcome]]
LOWEST = -1.0
"""share of the headroom below which bars are cut off"""


def draw(found: Found, out: Path) -> None:
    """headroom.png, .pdf: mean, interval and every seed of each method, a panel for each case."""
    shown = {
        name: {method: each for method, each in by.items() if method not in (BASE, BEST)}
        for name, by in found.items()
    }
    shown = {name: by for name, by in shown.items() if by}
    if not shown:
        return
    methods = [each for each in METHODS if any(each in by for by in shown.values())]
    columns = min(4, len(shown))
    rows = -(-len(shown) // columns)
    figure, axes = panels(columns, width=3.6, height=1.3 + 0.28 * len(methods), rows=rows)
    for each in axes[len(shown) :]:
        each.set_visible(False)
    for one, (name, by) in zip(axes, shown.items(), strict=False):
        gains = EVERY[name].gains
        for y, method in enumerate(reversed(methods)):
            if method not in by or not np.isfinite(by[method].mean.value):
                continue
            factor = 1.0 if gains else 100.0
            mean, low, high = (factor * value for value in by[method].mean)
            one.plot([low, high], [y, y], color="tab:blue", lw=2)
            one.plot(factor * by[method].each, np.full(len(by[method].each), y), "|", color="0.4")
            one.plot(mean, y, "o", color="tab:blue", ms=5)
        one.axvline(0, color="0.5", lw=1)
        if gains:
            one.axvline(1, color="tab:green", lw=1, ls="--")
            one.set_xlim(left=max(LOWEST, one.get_xlim()[0]))
        one.set_yticks(range(len(methods)), list(reversed(methods)), fontsize="small")
        one.set_title(name, fontsize="small")
        one.set_xlabel("share of the headroom" if gains else "% of the base's return",
                       fontsize="small")  # fmt: skip
    figure.suptitle("Mean, 95 % bootstrap interval and every seed; 0: base, 1: best fixed M",
                    fontsize="medium")  # fmt: skip
    save(figure, out, "headroom")
