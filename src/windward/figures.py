"""Figures without a display."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def panels(
    columns: int, width: float = 4.5, height: float = 4.0, rows: int = 1
) -> tuple["Figure", Any]:
    """A figure without a display, and its axes row by row.

    matplotlib is imported here, so that those who draw nothing do not wait for it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in all_axes:
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, all_axes
