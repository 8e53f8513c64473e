"""Cells, settings and facts as text, for pages and terminals."""

from collections.abc import Mapping
from math import floor, isfinite, log10
from numbers import Integral, Real
from typing import Any

import numpy as np

Cell = str | float | np.number | None
"""What a table holds: text, a number, or nothing."""


def is_number(cell: Cell) -> bool:
    """Whether a cell is to be aligned as a number."""
    return isinstance(cell, Real) and not isinstance(cell, bool)


def written(cell: Cell) -> str:
    """The text of a cell: of a float four digits, and all those before the point.

    >>> [written(each) for each in (12345.678, 0.012345, -2.0, 3000, 1e-9, None, "text")]
    ['12,346', '0.01235', '-2.000', '3,000', '1.000e-09', '–', 'text']
    """
    if cell is None:
        return "–"
    if not isinstance(cell, Real) or isinstance(cell, bool):
        return str(cell)
    if isinstance(cell, Integral):
        return f"{int(cell):,}"
    value = float(cell)
    if not isfinite(value) or value == 0:
        return f"{value:g}"
    if not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3e}"
    return f"{value:,.{max(0, 3 - floor(log10(abs(value))))}f}"


def facts(summary: Mapping[str, Any], **more: str) -> dict[str, str]:
    """How a result was made, for the end of its page."""
    runs, hours = summary.get("commits_of_runs"), summary.get("core_hours")
    return {
        "command": str(summary.get("command", "unknown")),
        **more,
        **{name: "\n".join(lines(summary[name])) for name in ("settings", "versions")
           if summary.get(name)},
        "commit": str(summary.get("commit") or "unknown"),
        **({"commits of runs": "\n".join(runs)} if runs else {}),
        **({"time": f"{hours:g} core-hours"} if hours else {}),
    }  # fmt: skip


def lines(settings: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Settings, one a line, those inside others by their path.

    >>> lines({"h": 5, "agent": {"sigma": 0.1}, "out": None})
    ['h: 5', 'agent.sigma: 0.1']
    """
    found = []
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            found += lines(value, f"{prefix}{name}.")
        elif value is not None:
            found.append(f"{prefix}{name}: {value}")
    return found
