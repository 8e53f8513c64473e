"""`windward report DIR`: a page from any folder of results: its summary as tables, its figures.

It is summary.html, beside a report.html that the study may have written; a study without a page of
its own has this one as report.html.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console

from windward.atomic import prepare
from windward.studies import report, text
from windward.studies.compare import read
from windward.studies.report import Picture, Section, Table
from windward.studies.text import Cell

PAGE, OF_STUDY = "summary.html", "report.html"
FACTS = (
    "core_hours",
    "command",
    "settings",
    "versions",
    "commit",
    "commits_of_runs",
    "found",
    "x_label",
)
LONG = 120
"""characters of a cell at most"""


@dataclass(frozen=True)
class Report:
    """Write summary.html from a folder of results: tables of its summary, and its figures."""

    folder: tyro.conf.Positional[Path]
    """with summary.json, of `windward run`"""


def cell(value: Any) -> Cell:
    """A value of a summary as a table shows it.

    >>> cell([0.123456, 2]), cell({"eta": 0.001}), cell(3.0), cell(None)
    ('0.1235, 2', 'eta 0.001', 3.0, None)
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return value
    if isinstance(value, Mapping):
        text = ", ".join(f"{name} {cell_text(each)}" for name, each in value.items())
    else:
        text = ", ".join(cell_text(each) for each in value)
    return text if len(text) <= LONG else text[: LONG - 1] + "…"


def cell_text(value: Any) -> str:
    """A value inside a cell."""
    inner = cell(value)
    return f"{inner:.4g}" if isinstance(inner, float) else str(inner)


def tables(name: str, value: Any) -> Iterator[Table]:
    """A part of a summary as tables: one for rows alike, several for what is nested deeper."""
    if isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        yield _rows(name, [("", each) for each in value])
    elif isinstance(value, Mapping) and value:
        inner = [each for each in value.values() if isinstance(each, Mapping)]
        if len(inner) < len(value):
            pairs: list[list[Cell]] = [[key, cell(each)] for key, each in value.items()]
            yield Table(name, ("", ""), pairs)
        elif any(isinstance(x, Mapping) and _deep(x) for each in inner for x in each.values()):
            for key, each in value.items():
                yield from tables(f"{name}: {key}", each)
        else:
            yield _rows(name, list(value.items()))


def _deep(value: Mapping[str, Any]) -> bool:
    """Whether it is more than a few numbers by name."""
    return len(value) > 2 and any(isinstance(each, Mapping | list) for each in value.values())


def _rows(name: str, rows: list[tuple[str, Mapping[str, Any]]]) -> Table:
    columns = list(dict.fromkeys(key for _, each in rows for key in each))
    named = any(key for key, _ in rows)
    content: list[list[Cell]] = []
    for key, each in rows:
        first: list[Cell] = [key] if named else []
        content.append(first + [cell(each.get(column)) for column in columns])
    return Table(name, ([""] if named else []) + columns, content)


def write(folder: Path, title: str | None = None, about: str = "", file: str = OF_STUDY) -> Path:
    """Writes the page, and gives where it is."""
    summary = read(folder)
    sections: list[Section] = [
        Picture(path.stem, path) for path in sorted(folder.glob("*.png")) if path.is_file()
    ]
    parts = {name: value for name, value in summary.items() if name not in FACTS}
    made = {name: list(tables(name.replace("_", " "), value)) for name, value in parts.items()}
    sections += [table for each in made.values() for table in each]
    rest: list[list[Cell]] = [
        [name.replace("_", " "), cell(parts[name])]
        for name, each in made.items()
        if not each and parts[name] not in ({}, [], None)
    ]
    if rest:
        sections.append(Table("Other numbers", ("", "value"), rest))
    raw = "Raw results lie beside this page."
    lead = "\n".join(filter(None, (about, str(summary.get("found", "")) or raw)))
    page = prepare(folder) / file
    report.write(page, title or folder.resolve().name, lead, sections, text.facts(summary))
    return page


def run(settings: Report, console: Console) -> None:
    """Writes it and says where."""
    page = write(settings.folder, file=PAGE)
    console.print(f"page: {page}", highlight=False, soft_wrap=True)
