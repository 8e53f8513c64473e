"""A report page: one HTML file with interactive charts that opens from disk and needs no network.

The same content gives the same bytes: there is no clock here; a date is a fact like any other.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor, isfinite, log10
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import ArrayLike
from rich.markup import escape
from rich.table import Table as Terminal

from windward.atomic import write_text
from windward.studies.text import Cell, is_number, written

POINTS = 2000  # that a curve keeps at most: more than a screen has columns
IMAGES = {b"\x89PNG\r\n\x1a\n": "png", b"GIF87a": "gif", b"GIF89a": "gif", b"\xff\xd8\xff": "jpeg"}


@dataclass(frozen=True, eq=False)
class Curve:
    """A line through (x, y), with a shaded band from low to high if both are given.

    Where a number is not finite the line has a gap.
    """

    name: str
    x: ArrayLike
    y: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    dashed: bool = False
    thin: bool = False
    """of single runs, which are many"""

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise ValueError(f"curve {self.name!r}: low and high make a band together; got one")
        _columns(self)


def joined(name: str, runs: Iterable[tuple[ArrayLike, ArrayLike]], *, dashed: bool) -> Curve:
    """The (x, y) of all runs as one curve, with a gap between two: one switch for all."""
    x, y = (
        np.concatenate([np.append(each, np.nan) for each in all_of])
        for all_of in zip(*runs, strict=True)
    )
    return Curve(name, x, y, dashed=dashed, thin=True)


@dataclass(frozen=True, eq=False)
class Points:
    """Dots at (x, y), such as one for each seed."""

    name: str
    x: ArrayLike
    y: ArrayLike

    def __post_init__(self) -> None:
        _columns(self)


@dataclass(frozen=True, eq=False)
class Chart:
    """Curves that a reader can point at and switch off.

    A logarithmic axis has no place for numbers that are not positive: they are gaps.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve | Points]
    note: str = ""
    log_x: bool = False
    log_y: bool = False
    top: float | None = None
    """where the figure ends above: a run that diverges would flatten the others"""


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of cells; a column that holds a number is aligned to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.title!r}: row {number} has {len(row)} cells for "
                    f"{len(self.columns)} columns"
                )


@dataclass(frozen=True)
class Text:
    """Paragraphs of prose."""

    title: str
    paragraphs: Sequence[str]


@dataclass(frozen=True)
class Picture:
    """A PNG, GIF or JPEG image, as bytes or a file; it becomes part of the page."""

    title: str
    image: bytes | Path
    note: str = ""


@dataclass(frozen=True, eq=False)
class Animation:
    """Episodes of several policies that play in step; `scene` as `animation.section` makes it."""

    title: str
    scene: Mapping[str, Any]
    note: str = ""


Section = Chart | Table | Text | Picture | Animation


def write(
    path: Path,
    title: str,
    lead: str,
    sections: Iterable[Section],
    facts: Mapping[str, str],
) -> None:
    """Writes the page: a title, a sentence that says what was found, sections, and facts.

    Facts tell how the page was made: the exact command, settings, versions. The one named
    `command`, and those of several lines, are set as code.
    """
    environment = Environment(
        loader=PackageLoader("windward.studies", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    page = environment.get_template("report.html.j2").render(
        title=title, lead=lead, sections=[_view(section) for section in sections], facts=facts
    )
    # In ASCII the file is the same whatever encoding the machine writes text in.
    write_text(path, page.encode("ascii", "xmlcharrefreplace").decode("ascii") + "\n")


def terminal(table: Table) -> Terminal:
    """The same table for a terminal."""
    shown = Terminal(title=escape(table.title), caption=escape(table.note) or None)
    for i, column in enumerate(table.columns):
        number = any(is_number(row[i]) for row in table.rows)
        shown.add_column(escape(column), justify="right" if number else "left")
    for row in table.rows:
        shown.add_row(*(escape(written(cell)) for cell in row))
    return shown


def _view(section: Section) -> dict[str, Any]:
    """What the template needs of a section."""
    view: dict[str, Any] = {
        "kind": type(section).__name__.lower(),
        "title": section.title,
        "note": "" if isinstance(section, Text) else section.note,
    }
    match section:
        case Chart():
            view["data"] = {
                "title": section.title,
                "x": {"label": section.x_label, "log": section.log_x},
                "y": {"label": section.y_label, "log": section.log_y},
                "curves": [_series(curve, section) for curve in section.curves],
            }
        case Table():
            columns = range(len(section.columns))
            view["numeric"] = [any(is_number(row[i]) for row in section.rows) for i in columns]
            view["columns"] = section.columns
            view["rows"] = [[written(cell) for cell in row] for row in section.rows]
        case Text():
            view["paragraphs"] = section.paragraphs
        case Picture():
            view["source"] = _data_uri(section)
        case Animation():
            view["data"] = section.scene
    return view


def _columns(curve: Curve | Points) -> dict[str, np.ndarray]:
    """The numbers of a curve by name; refuses columns that do not fit together."""
    given = {"x": curve.x, "y": curve.y}
    if isinstance(curve, Curve) and curve.low is not None and curve.high is not None:
        given |= {"low": curve.low, "high": curve.high}
    kind = type(curve).__name__.lower()
    columns = {}
    for name, values in given.items():
        try:
            columns[name] = np.array(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{kind} {curve.name!r}: {name} must be numbers; {error}") from error
    shapes = {name: array.shape for name, array in columns.items()}
    if len(set(shapes.values())) > 1 or columns["x"].ndim != 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(
            f"{kind} {curve.name!r}: lists of the same length are needed; got {listed}"
        )
    return columns


def _series(curve: Curve | Points, chart: Chart) -> dict[str, Any]:
    """A curve as JSON takes it: thinned, and None for a gap."""
    columns = _columns(curve)
    for name, log in (("x", chart.log_x), ("y", chart.log_y)):
        if log:
            columns[name] = np.where(columns[name] > 0, columns[name], np.nan)
    kept = _kept(columns)
    return {
        "name": curve.name,
        "points": isinstance(curve, Points),
        "dashed": isinstance(curve, Curve) and curve.dashed,
        **{
            name: _numbers(array[kept], chart.log_x if name == "x" else chart.log_y)
            for name, array in columns.items()
        },
    }


def _kept(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Indices of at most POINTS points: of each bucket the extremes and a gap, if it has one."""
    x, y = columns["x"], columns["y"]
    if len(x) <= POINTS:
        return np.arange(len(x))
    gap = ~(np.isfinite(x) & np.isfinite(y))
    lowest = [columns[name] for name in ("y", "low") if name in columns]
    highest = [columns[name] for name in ("y", "high") if name in columns]
    scores = [gap.astype(float), *(-array for array in lowest), *highest]
    scores = [np.where(np.isfinite(score), score, -np.inf) for score in scores]
    edges = np.linspace(0, len(x), (POINTS - 2) // len(scores) + 1).astype(int)
    kept = {0, len(x) - 1}
    for start, end in pairwise(edges):
        kept.update(start + int(score[start:end].argmax()) for score in scores)
    return np.array(sorted(kept))


def _numbers(values: np.ndarray, log: bool) -> list[float | None]:
    """Numbers in as few characters as a chart needs: 1/10 000 of their range is below a pixel."""
    finite = values[np.isfinite(values)]
    span = float(np.ptp(finite)) if len(finite) else 0.0
    places = 4 - floor(log10(span)) if span and not log else None
    return [_number(float(value), places) for value in values]


def _number(value: float, places: int | None) -> float | None:
    if not isfinite(value):
        return None
    short = float(f"{value:.6g}") if places is None else round(float(f"{value:.9g}"), places)
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _data_uri(picture: Picture) -> str:
    """The image itself as an address; its first bytes tell its kind."""
    image = picture.image if isinstance(picture.image, bytes) else picture.image.read_bytes()
    for start, kind in IMAGES.items():
        if image.startswith(start):
            return f"data:image/{kind};base64,{base64.b64encode(image).decode('ascii')}"
    raise ValueError(f"picture {picture.title!r} must be a PNG, GIF or JPEG image")
