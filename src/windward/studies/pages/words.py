"""Numbers and settings in words, as tables, verdicts and pages have them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from windward.studies.pages.statistics import Interval


def span(each: Interval) -> str:
    """A number with its interval, if it has one.

    >>> span(Interval(2.0, 1.0, 3.0)), span(Interval(2.0, -np.inf, np.inf))
    ('2.0 [1.0, 3.0]', '2.0')
    """
    if not np.isfinite([each.low, each.high]).all():
        return f"{each.value:.1f}"
    return f"{each.value:.1f} [{each.low:.1f}, {each.high:.1f}]"


def counted(count: int, what: str) -> str:
    """A number of things: 1 seed, 3 seeds."""
    return f"{count:,} {what}{'s' * (count != 1)}"


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
