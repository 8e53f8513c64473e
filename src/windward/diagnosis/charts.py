"""Charts of a diagnosis as SVG: the residual over time, what is left over, and its spectrum."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from windward.diagnosis.diagnosis import Trace
from windward.diagnosis.wind import Wind
from windward.figures import panels

INK, MUTED, RULE = "#010101", "#020202", "#030303"
SERIES = ("#040404", "#050505", "#060606", "#070707", "#080808", "#090909")
VARIABLES: Mapping[str, str] = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    RULE: "var(--rule)",
    **{colour: f"var(--c{i})" for i, colour in enumerate(SERIES)},
}
"""colour in a figure -> the page's own colour, which follows its theme"""
LEAST = 1e-12
"""residuals below this are drawn here: a log axis has no place for 0"""
WIDTH, HEIGHT = 5.0, 2.9
"""inches; narrow, so that text stays legible on a telephone"""
LONGEST = 24
"""letters of a name beside a chart"""
OUTLIER = 5.0
"""robust standard deviations from the median, beyond which a chart is cut off"""
MAD = 1.4826
"""standard deviation over median absolute deviation, of a normal distribution"""


@contextmanager
def drawing(name: str) -> Iterator[None]:
    """Settings of a figure that is to become SVG, and to look the same each time."""
    import matplotlib

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "text.parse_math": False,  # names are no formulas
        "text.color": INK,
        "axes.labelcolor": MUTED,
        "axes.edgecolor": MUTED,
        "axes.formatter.use_mathtext": False,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "grid.color": RULE,
        "font.size": 10.0,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
        "legend.frameon": False,
        "lines.linewidth": 1.3,
    }
    with matplotlib.rc_context(settings):
        yield


def svg(figure: Any) -> str:
    """A figure as an SVG element in the colours of the page; the same bytes each time."""
    content = io.BytesIO()
    nothing: dict[str, Any] = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(content, format="svg", metadata=nothing)
    text = content.getvalue().decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Several figures are in one page: ids that nothing refers to go, the others are hashes.
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    return text.strip()


def residual(trace: Trace, parameters: bool) -> str:
    """The residual of each step, with the nominal simulator and with the changes in it."""
    with drawing("residual"):
        figure, (axes,) = panels(1, WIDTH, HEIGHT)
        t = np.arange(len(trace.before))
        lines = [("nominal simulator", trace.before, SERIES[1])]
        if parameters:
            lines.append(("with the changes", trace.after, SERIES[0]))
        for name, y, colour in lines:
            axes.plot(t, np.where(np.isfinite(y), np.maximum(y, LEAST), np.nan), color=colour,
                      label=name)  # fmt: skip
        for end in np.flatnonzero(np.diff(trace.episode)):
            axes.axvline(end + 0.5, color=MUTED, linewidth=0.8, linestyle=":")
        axes.set_yscale("log")
        _plain_ticks(axes.yaxis)
        axes.set(xlabel="step", ylabel="deviation of a step")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0)
        return svg(figure)


def left_over(wind: Wind) -> str:
    """The wind along each axis in the first episode."""
    with drawing("left over"):
        figure, (axes,) = panels(1, WIDTH, HEIGHT)
        w = wind.series[0]
        for i, (name, colour) in enumerate(_axes(wind)):
            axes.plot(w[:, i], color=colour, label=name, linewidth=_width(i))
        low, high = _shown(w)
        margin = 0.08 * (high - low) or 1.0
        axes.set_ylim(low - margin, high + margin)
        unit = f" in {wind.unit}" if wind.unit else ""
        axes.set(xlabel="step of the first episode", ylabel=f"wind{unit}")
        _legend(axes, wind)
        return svg(figure)


def spectrum(wind: Wind) -> str:
    """Amplitude over period of the wind in the first episode, by a window of Hann's."""
    with drawing("spectrum"):
        figure, (axes,) = panels(1, WIDTH, HEIGHT)
        w = wind.series[0]
        # Small periods are next to each other: zeros behind the series draw the curve smoothly.
        length = 4 * len(w)
        window = np.hanning(len(w))
        frequencies = np.fft.rfftfreq(length)
        kept = (frequencies >= 1 / len(w)) & (frequencies > 0)
        for i, (name, colour) in enumerate(_axes(wind)):
            steady = _steady(w[:, i])
            waves = np.fft.rfft(window * (steady - steady.mean()), length)
            amplitude = 2 * np.abs(waves) / max(window.sum(), 1e-300)
            axes.plot(1 / frequencies[kept], amplitude[kept], color=colour, label=name,
                      linewidth=_width(i))  # fmt: skip
            for sine in wind.axes[i].model.sines:
                axes.axvline(sine.period, color=colour, linewidth=0.9, linestyle="--", alpha=0.7)
        axes.set_xscale("log")
        axes.set_xlim(2, len(w))
        _plain_ticks(axes.xaxis)
        axes.set_ylim(bottom=0)
        unit = f" in {wind.unit}" if wind.unit else ""
        axes.set(xlabel="period in steps", ylabel=f"amplitude{unit}")
        _legend(axes, wind)
        return svg(figure)


def _axes(wind: Wind) -> list[tuple[str, str]]:
    """Name and colour of each axis."""
    kind, _, where = wind.place.partition(":")
    names = [f"{kind} {axis.name}" if axis.name != where else where for axis in wind.axes]
    return [(_short(name), SERIES[i % len(SERIES)]) for i, name in enumerate(names)]


def _short(name: str) -> str:
    """A name that leaves room for the chart."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _width(i: int) -> float:
    """Of the i-th line: those drawn later are thinner, so that equal ones are both seen."""
    return 3.0 if i == 0 else 1.3


def _legend(axes: Any, wind: Wind) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=min(len(wind.axes), 3),
                borderaxespad=0)  # fmt: skip


def _plain_ticks(axis: Any) -> None:
    """Numbers of a log axis as they are written: 0.001, not a power of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    few = high / low < 1e3
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _steady(w: np.ndarray) -> np.ndarray:
    """A series with its outliers cut: at contacts a force is badly known."""
    middle = np.median(w)
    reach = OUTLIER * MAD * np.median(np.abs(w - middle))
    return np.clip(w, middle - reach, middle + reach) if reach > 0 else w


def _shown(w: np.ndarray) -> tuple[float, float]:
    """Limits of a chart in which the outliers leave room for the rest."""
    each: Sequence[np.ndarray] = [_steady(column) for column in w.T]
    return float(np.min(each)), float(np.max(each))
