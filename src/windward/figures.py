"""Figures without a display."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windward.atomic import write_bytes

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


def save(figure: Any, out: Path, name: str) -> None:
    """The figure as NAME.png and NAME.pdf."""
    for kind in ("png", "pdf"):
        content = io.BytesIO()
        # Without a date the same curves give the same bytes.
        undated = {"CreationDate": None} if kind == "pdf" else None
        figure.savefig(content, dpi=150, format=kind, metadata=undated)
        figure.set_layout_engine("none")  # it is laid out now
        write_bytes(out / f"{name}.{kind}", content.getvalue())
