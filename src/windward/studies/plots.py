"""Charts as a figure (PNG, PDF), and the three charts of curves that the paper's figures become."""

from collections.abc import Collection, Mapping, Sequence
from io import BytesIO
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from windward import figures
from windward.atomic import write_bytes
from windward.studies import report
from windward.studies.report import Chart, Curve, Points
from windward.studies.stats import Band, Drawing

FEW_POINTS = 12
"""points up to which a curve has markers and error bars in place of a band"""
FEW_NAMES = 4
"""names up to which a legend stands inside of the axes"""
MANY = 40
"""dots of one x from which on they are drawn faintly"""
POINTS = 200
"""of the grid that are drawn"""
SHADES = 128
"""colours of a PNG"""
COLOURS = 10
"""colours of matplotlib's own cycle, the longest that can be told apart"""


def draw(charts: Sequence[Chart], title: str = "", columns: int = 3, *, alike: bool = False) -> Any:
    """A figure with a panel for each chart; a name has one colour and one place in the legend.

    With `alike` panels are small, reach equally far, and have no legend.
    """
    columns = min(columns, len(charts))
    rows = ceil(len(charts) / columns)
    figure, every = figures.panels(columns, *((3.4, 2.8) if alike else (4.8, 3.8)), rows=rows)
    names = list(dict.fromkeys(_owner(each.name) for chart in charts for each in chart.curves))
    for axes, chart in zip(every, charts, strict=False):
        _panel(axes, chart, names)
    shown = list(every[: len(charts)])
    if alike:
        for axis in ("xlim", "ylim"):
            ends = [getattr(axes, f"get_{axis}")() for axes in shown]
            for axes in shown:
                axes.set(**{axis: (min(low for low, _ in ends), max(high for _, high in ends))})
    elif len(names) > 1:  # one legend for all panels that show the same
        kinds = [tuple(axes.get_legend_handles_labels()[1]) for axes in shown]
        for kind in set(kinds):
            if kind:
                where = [axes for axes, each in zip(shown, kinds, strict=True) if each == kind]
                _legend(where[-1] if len(kind) > FEW_NAMES else where[0], len(kind))
    for axes in every[len(charts) :]:
        axes.set_visible(False)
    if title:
        figure.suptitle(title, fontsize="medium")
    return figure


def save(figure: Any, out: Path, name: str) -> None:
    """The figure as NAME.png, of few colours as it takes a third of the space, and NAME.pdf."""
    figures.save(figure, out, name)
    content = BytesIO()
    with Image.open(out / f"{name}.png") as image:
        image.convert("RGB").quantize(SHADES).save(content, "png", optimize=True)
    write_bytes(out / f"{name}.png", content.getvalue())


def _owner(name: str) -> str:
    """Whose dots these are: those of "BPC, each seed" have the colour of "BPC"."""
    return name.partition(", each ")[0]


def _legend(axes: Any, count: int) -> None:
    look: dict[str, Any] = {"frameon": False, "fontsize": "small"}
    if count > FEW_NAMES:
        look |= {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    axes.legend(**look)


def _look(name: str, names: Sequence[str], dashed: bool) -> dict[str, Any]:
    from matplotlib import colormaps

    at = names.index(_owner(name))
    colour = f"C{at}" if len(names) <= COLOURS else colormaps["tab20"](at % 20)
    return {"color": colour, "ls": "--" if dashed else "-", "zorder": 3 if dashed else 2}


def _panel(axes: Any, chart: Chart, names: Sequence[str]) -> None:
    """One chart."""
    axes.set(xlabel=chart.x_label, ylabel=chart.y_label)
    axes.set_xscale("log" if chart.log_x else "linear")
    axes.set_yscale("log" if chart.log_y else "linear")
    lines = {each.name for each in chart.curves if isinstance(each, Curve)}
    for each in chart.curves:
        x, y = np.asarray(each.x, float), np.asarray(each.y, float)
        if isinstance(each, Points):
            look = _look(each.name, names, False) | {"ls": "", "marker": "."}
            look["label"] = None if _owner(each.name) in lines else each.name
            axes.plot(x, y, **look, alpha=0.25 if len(y) > MANY else 0.6)
            continue
        look = _look(each.name, names, each.dashed)
        if each.thin:
            look |= {"lw": 0.7, "alpha": 0.7}
        if len(x) <= FEW_POINTS and not each.dashed and not each.thin:
            look["marker"] = "o"
        axes.plot(x, y, **look, label=each.name)
        if each.low is not None and each.high is not None:
            low, high = np.asarray(each.low, float), np.asarray(each.high, float)
            axes.fill_between(x, low, high, color=look["color"], alpha=0.2, lw=0)
            if len(x) <= FEW_POINTS:
                axes.vlines(x, low, high, color=look["color"], lw=1)
    higher = 0
    if chart.top is not None:
        higher = sum(bool((np.asarray(each.y, float) > chart.top).any()) for each in chart.curves)
        axes.set_ylim(top=chart.top if higher else None)
    from matplotlib.ticker import EngFormatter

    short = EngFormatter(sep="")  # 100k, not 100000
    if chart.log_x:
        ticks = sorted({float(x) for each in chart.curves for x in np.ravel(each.x)})
        if len(ticks) <= FEW_POINTS:
            axes.set_xticks(ticks, [short(tick) for tick in ticks])
            axes.minorticks_off()
    else:
        axes.xaxis.get_major_locator().set_params(nbins=5)
        axes.xaxis.set_major_formatter(short)
    more = f"; {higher} go{'es' * (higher == 1)} higher" if higher else ""
    axes.set_title(chart.title + more, fontsize="medium")


MEAN = (
    "Drawn as the paper's appendix says: each run smoothed (0.1 of the whole) and put on a fine "
    "grid, then the mean over seeds and one standard error σ/√N."
)
IQM = (
    "Of the same curves the mean of the middle half, with 95 % bootstrap intervals over whole runs."
)


def bands(drawn: Mapping[str, Drawing], kind: str, dashed: Collection[str]) -> list[Curve]:
    """The "mean" or "iqm" of groups of runs, with their bands, at some points of the grid."""
    curves = []
    for name, each in drawn.items():
        band: Band = getattr(each, kind)
        at = np.unique(np.linspace(0, len(band.x) - 1, POINTS).astype(int))
        x, y, low, high = (part[at] for part in (band.x, band.y, band.low, band.high))
        curves.append(Curve(name, x, y, low, high, dashed=name in dashed))
    return curves


def every_run(drawn: Mapping[str, Drawing], dashed: Collection[str]) -> list[Curve]:
    """All runs of groups as they are, those of a group as one curve."""
    return [
        report.joined(name, [run[1:] for run in each.raw], dashed=name in dashed)
        for name, each in drawn.items()
    ]


def three(
    drawn: Mapping[str, Drawing],
    title: str,
    x_label: str,
    y_label: str,
    dashed: Collection[str],
    where: str = "",
    **more: Any,
) -> list[Chart]:
    """Mean and σ/√N as in the paper, interquartile mean, and every run as it is."""
    first = f"{where}. {MEAN}" if where else MEAN
    return [
        Chart(title, x_label, y_label, bands(drawn, "mean", dashed), first, **more),
        Chart(f"{title}, interquartile mean", x_label, y_label, bands(drawn, "iqm", dashed), IQM,
              **more),
        Chart(f"{title}, every run, not smoothed", x_label, y_label, every_run(drawn, dashed),
              "All seeds; none is left out.", **more),
    ]  # fmt: skip
