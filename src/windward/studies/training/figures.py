"""The figures of a study of trainings, as PNG and PDF: the paper's, and what lies behind them."""

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from windward.figures import panels, save
from windward.studies.pages.drawing import Drawing, Raw
from windward.studies.training.groups import Group
from windward.studies.training.trainings import BASELINE

BESIDE = 4
"""groups up to which a legend stands inside the axes"""
Drawn = Mapping[str, Drawing]
"""the curves of groups, by name"""
CHOOSING = "{} (choosing runs)"
"""what curves of a group are called that only served to choose"""


class Said(NamedTuple):
    """What figures say beside the curves."""

    title: str
    x_label: str
    dropped: int
    """lowest runs that the bands leave out"""


def remove(out: Path, name: str) -> None:
    """Deletes NAME.png and NAME.pdf, if they are there."""
    for kind in ("png", "pdf"):
        (out / f"{name}.{kind}").unlink(missing_ok=True)


def _looks(groups: Sequence[Group]) -> dict[str, dict[str, Any]]:
    """Colours by method, shades by group: baselines blue and dashed, ours from orange on."""
    families = {BASELINE: "Blues"}
    for group in groups:
        families.setdefault(group.method, ("Oranges", "Greens", "Purples")[(len(families) - 1) % 3])
    from matplotlib import colormaps

    looks = {}
    for group in groups:
        rivals = [each.name for each in groups if each.method == group.method]
        shade = 0.75 if len(rivals) == 1 else 0.45 + 0.5 * rivals.index(group.name) / len(rivals)
        looks[group.name] = {
            "color": colormaps[families[group.method]](shade),
            "ls": "--" if group.method == BASELINE else "-",
        }
    return looks


def _label(group: Group, drawing: Drawing, dropped: int) -> str:
    runs = len(drawing.raw)
    return f"{group.name} ({runs} seed{'s' * (runs > 1)}" + (
        f", {min(dropped, runs - 1)} worst not drawn)" if dropped else ")"
    )


def _bands(axes: Any, groups: Sequence[Group], drawn: Drawn, kind: str, said: Said) -> None:
    looks = _looks(groups)
    for group in groups:
        if group.name not in drawn:
            continue
        band, look = getattr(drawn[group.name], kind), looks[group.name]
        label = _label(group, drawn[group.name], said.dropped)
        axes.plot(band.x, band.y, **look, label=label)
        axes.fill_between(band.x, band.low, band.high, color=look["color"], alpha=0.2, lw=0)
    axes.set(xlabel=said.x_label, ylabel="return")
    _legend(axes, len(groups))


def _legend(axes: Any, groups: int) -> None:
    """Inside if it is short, else beside the axes; none if nothing is drawn yet."""
    if not axes.get_legend_handles_labels()[0]:
        return
    look: dict[str, Any] = {"frameon": False, "fontsize": "small"}
    if groups > BESIDE:
        look |= {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    axes.legend(**look)


def best(groups: Sequence[Group], drawn: Drawn, out: Path, said: Said) -> None:
    """best.png, .pdf: mean and σ/√N as in the paper; interquartile mean; every run as it is."""
    figure, (mean, iqm, raw) = panels(3, width=4.8, height=3.8)
    _bands(mean, groups, drawn, "mean", said)
    mean.set_title("smoothed, mean ± σ/√N", fontsize="medium")
    _bands(iqm, groups, drawn, "iqm", said)
    iqm.set_title("smoothed, interquartile mean, 95 % bootstrap", fontsize="medium")
    looks = _looks(groups)
    for group in groups:
        if group.name in drawn:
            for i, (_, x, y) in enumerate(drawn[group.name].raw):
                label = None if i else group.name
                raw.plot(x, y, **looks[group.name], lw=0.7, alpha=0.7, label=label)
    raw.set_title("every run, not smoothed", fontsize="medium")
    raw.set(xlabel=said.x_label, ylabel="return")
    _legend(raw, len(groups))
    if len(groups) > BESIDE:  # once is enough
        for axes in (mean, iqm):
            if axes.get_legend() is not None:
                axes.get_legend().remove()
    figure.suptitle(said.title)
    save(figure, out, "best")


def every(groups: Sequence[Group], drawn: Drawn, out: Path, said: Said) -> None:
    """all.png, .pdf: all groups, drawn as in the paper."""
    figure, (axes,) = panels(1, width=7.0, height=4.6)
    _bands(axes, groups, drawn, "mean", said)
    axes.set_title(f"{said.title}: smoothed, mean ± σ/√N", fontsize="medium")
    save(figure, out, "all")


def raw(
    groups: Sequence[Group], drawn: Drawn, judged: Mapping[str, Raw], out: Path, said: Said
) -> None:
    """raw.png, .pdf: a panel for each group with all its runs (`fig:HopperRawPD1`).

    `judged` are the runs of groups that were not chosen, and have no others: panels at the end.
    """
    from matplotlib.ticker import EngFormatter, MaxNLocator

    there = {group.name: drawn[group.name].raw for group in groups if group.name in drawn}
    there |= {CHOOSING.format(name): runs for name, runs in judged.items()}
    columns = min(4, len(there))
    figure, all_axes = panels(columns, width=3.4, height=2.8, rows=ceil(len(there) / columns))
    for axes in all_axes[len(there) :]:
        axes.set_visible(False)
    values = [y for runs in there.values() for *_, y in runs]
    low, high = min(y.min() for y in values), max(y.max() for y in values)
    room = 0.05 * (high - low) or 1.0
    far = max(x.max() for runs in there.values() for _, x, _ in runs)
    for axes, (title, runs) in zip(all_axes, there.items(), strict=False):
        for _, x, y in runs:
            axes.plot(x, y, lw=0.8)
        axes.set(ylim=(low - room, high + room), xlabel=said.x_label, ylabel="return")
        axes.xaxis.set_major_locator(MaxNLocator(4))  # panels are narrow: 100k, not 100000
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_title(title, fontsize="small")
        if judged:  # which may be shorter
            axes.set_xlim(0, far)
    figure.suptitle(f"{said.title}: every run, not smoothed", fontsize="medium")
    save(figure, out, "raw")
