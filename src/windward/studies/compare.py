"""`windward compare DIR DIR`: two results side by side, whatever study they are of.

Settings that differ, then numbers: of groups of runs final returns with their difference, of other
results all numbers that both have. Curves that both have are drawn in one chart each.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isclose, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from rich.console import Console
from rich.markup import escape

from windward.atomic import prepare
from windward.studies import report, stats, text
from windward.studies.report import Chart, Curve, Section, Table, Text
from windward.studies.runs.origin import versions
from windward.studies.runs.study_folder import read_rows
from windward.studies.stats import counted, difference, span

WELCH = (
    "Of groups: mean final return; the difference with Welch's 95 % interval, and higher or lower "
    "where that leaves out 0."
)
MOST = 60
"""rows of a table in the terminal"""
OF = ("env", "cost", "rates", "method", "d_x", "T", "seed")
"""columns that say what a row of a summary is of"""
HIGHER, LOWER = ", higher", ", lower"
APART = ("settings", "versions", "size", "command", "commit", "found", "groups", "failed",
         "commits_of_runs", "core_hours", "M", "seeds", "decisions")  # fmt: skip
"""parts of a summary that are no numbers to be held against each other"""


@dataclass(frozen=True)
class Compare:
    """Set two results side by side: settings that differ, numbers, and curves on a page."""

    first: tyro.conf.Positional[Path]
    """a folder with summary.json, of `windward run` or `windward evaluate`"""
    second: tyro.conf.Positional[Path]
    """another one"""
    out: Path | None = None
    """folder for the page; out/compare/FIRST-SECOND if left out"""


class Line(NamedTuple):
    """A number in both results, and the second's less the first's; as text."""

    name: str
    first: str
    second: str
    difference: str


def read(folder: Path) -> dict[str, Any]:
    """The summary of a folder."""
    path = folder / "summary.json"
    if not path.is_file():
        raise ValueError(f"there is no summary.json in {folder}: it holds no result")
    try:
        summary = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(summary, dict):
        raise ValueError(f"{path} is no summary of windward's")
    return summary


def leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of everything in a summary; rows of a table by what they are of.

    >>> list(leaves({"a": {"b": 1}, "c": [2, 3]}))
    [('a.b', 1), ('c.0', 2), ('c.1', 3)]
    >>> list(leaves([{"T": 9, "method": "BPC", "mean": 0.5}], "headroom."))[-1]
    ('headroom.BPC 9.mean', 0.5)
    """
    parts = tree.items() if isinstance(tree, Mapping) else zip(_names(tree), tree, strict=True)
    for name, value in parts:
        if isinstance(value, Mapping | list) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _names(rows: list[Any]) -> list[str]:
    """What rows are called: by what they are of, where that tells them apart, else by number."""
    names = [
        " ".join(str(row[key]) for key in OF if key in row) if isinstance(row, Mapping) else ""
        for row in rows
    ]
    told = all(names) and len(set(names)) == len(names)
    return names if told else [str(number) for number in range(len(rows))]


def changes(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Settings, versions and commits that differ: (name, first's, second's)."""
    found = []
    for part in ("command", "commit", "size", "settings", "versions"):
        one, two = (dict(leaves({part: each.get(part)})) for each in (first, second))
        for name in {**one, **two}:
            if one.get(name) != two.get(name):
                found.append((name, str(one.get(name, "–")), str(two.get(name, "–"))))
    return found


def numbers(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Line]:
    """What both came to; groups are matched by their names."""
    if "groups" in first and "groups" in second:
        return list(_groups(first["groups"], second["groups"]))
    one, two = (dict(_values(each)) for each in (first, second))
    return [
        Line(name, f"{one[name]:.6g}", f"{two[name]:.6g}", f"{two[name] - one[name]:+.3g}")
        for name in one
        if name in two and not isclose(one[name], two[name], rel_tol=1e-9)
    ]


def _values(summary: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """All numbers that a summary came to."""
    for name, value in leaves({k: v for k, v in summary.items() if k not in APART}):
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value


def _groups(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> Iterator[Line]:
    one, two = ({each["group"]: each for each in groups} for groups in (first, second))
    shared = [name for name in one if name in two]
    for name in dict.fromkeys((*shared, *one, *two)):
        finals = [
            np.array(
                [r["final_return"] for r in each[name]["runs"] if r["final_return"] is not None]
            )
            if name in each
            else np.array([])
            for each in (one, two)
        ]
        texts = [
            f"{final.mean():.1f} ({counted(len(final), 'seed')})" if len(final) else "–"
            for final in finals
        ]
        far = [
            {r.get("steps") for r in each[name]["runs"] if r["final_return"] is not None}
            for each in (one, two)
            if name in each
        ]
        if len(far) == 2 and len(set.union(*far)) > 1:
            yield Line(name, texts[0], texts[1], "not to be compared: unequally many steps")
        else:
            yield Line(name, texts[0], texts[1], _gap(finals[0], finals[1]))


def _gap(first: np.ndarray, second: np.ndarray) -> str:
    """The second's mean less the first's, and which is higher if that can be told."""
    if not (len(first) and len(second)):
        return "–"
    gap = difference(second, first)
    if min(len(first), len(second)) < 2:
        return f"{span(gap)}, too few seeds to tell"
    return span(gap) + ("" if gap.low <= 0 <= gap.high else HIGHER if gap.low > 0 else LOWER)


def curves(folder: Path) -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    """(x, y) of the runs of each group, from curves.csv; {} where there is none."""
    rows = read_rows(folder / "curves.csv")
    if not rows or not {"group", "seed", "steps", "eval_return"} <= set(rows[0]):
        return {}
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for row in rows:
        point = row["steps"], row["eval_return"]
        if all(map(isfinite, point)):
            found.setdefault((row["group"], row["seed"]), []).append(point)
    groups: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for (group, _), points in found.items():
        x, y = np.array(points).T
        groups.setdefault(group, []).append((x, y))
    return groups


def _short(first: Path, second: Path) -> tuple[str, str]:
    """Names for columns and legends: those of the folders, if they differ."""
    names = first.resolve().name, second.resolve().name
    return names if names[0] != names[1] else (str(first), str(second))


def _charts(first: Path, second: Path, x_label: str) -> list[Section]:
    one, two = curves(first), curves(second)
    charts: list[Section] = []
    for name in (each for each in one if each in two):
        runs = dict(zip(_short(first, second), (one[name], two[name]), strict=True))
        domain = max(x[-1] for each in runs.values() for x, _ in each)
        bands = []
        for i, (folder, each) in enumerate(runs.items()):
            band = stats.bare(stats.mean_band(*stats.on_grid(each, domain)))
            bands.append(Curve(folder, band.x, band.y, band.low, band.high, dashed=bool(i)))
        note = "Smoothed; mean over seeds and one standard error σ/√N."
        charts.append(Chart(name, x_label, "return", bands, note))
    return charts


def _verdict(first: Mapping[str, Any], second: Mapping[str, Any], lines: list[Line]) -> str:
    """What a reader should see at once."""
    if not lines:
        shared = dict(_values(first)).keys() & dict(_values(second)).keys()
        return (
            "No number differs." if shared else
            "They have no number in common: these are results of different kinds."
        )  # fmt: skip
    if not ("groups" in first and "groups" in second):
        return f"{counted(len(lines), 'number')} that both have differ."
    both = [line for line in lines if line.difference != "–"]
    higher, lower = (sum(line.difference.endswith(end) for line in both) for end in (HIGHER, LOWER))
    return (
        f"Of {counted(len(lines), 'group')} both have {len(both)}. The second's final return is "
        f"higher in {higher} of these, lower in {lower}, and no difference can be told in "
        f"{len(both) - higher - lower}."
    )


def run(settings: Compare, console: Console) -> None:
    """Prints both side by side, and writes a page."""
    first, second = read(settings.first), read(settings.second)
    changed, lines = changes(first, second), numbers(first, second)
    names = str(settings.first), str(settings.second)
    heads = _short(settings.first, settings.second)
    _show(console, "What differs in how they were made", ("", *heads), changed)
    _show(console, "What they came to", ("", *heads, "second - first"), lines)
    found = _verdict(first, second, lines)
    console.print(escape(found), highlight=False)
    short = re.sub(r"[^\w.-]+", "-", "-".join(Path(name).resolve().name for name in names))
    out = prepare(settings.out or Path("out/compare") / short)
    x_label = str(first.get("x_label", second.get("x_label", "steps")))
    sections: list[Section] = [
        *([Table("What they came to", ("", *heads, "second - first"), lines, WELCH)]
          if lines else []),
        *_charts(settings.first, settings.second, x_label),
        *([Table("What differs in how they were made", ("", *heads), changed)] if changed else []),
        *(Text(f"Found in {name}", [str(each["found"])]) for name, each in
          zip(heads, (first, second), strict=True) if each.get("found")),
    ]  # fmt: skip
    lead = f"{names[0]} (first) beside {names[1]} (second).\n{found}"
    command = shlex.join(("windward", "compare", *names))
    command += f" --out {shlex.quote(str(settings.out))}" if settings.out else ""
    facts = text.facts({"command": command, "versions": versions()})
    del facts["commit"]  # of two results there is none
    report.write(out / "report.html", "Two results side by side", lead, sections, facts)
    console.print(f"page: {out / 'report.html'}", highlight=False, soft_wrap=True)


def _show(console: Console, title: str, columns: tuple[str, ...], rows: list[Any]) -> None:
    if rows:
        console.print(report.terminal(Table(title, columns, rows[:MOST])))
    if len(rows) > MOST:
        console.print(f"and {len(rows) - MOST} more, on the page")
