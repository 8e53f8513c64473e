"""The page of a diagnosis: one HTML file that opens from disk and needs no network."""

from collections.abc import Iterable, Mapping, Sequence
from math import floor, isfinite, log, log10
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from windward.atomic import write_text
from windward.diagnosis import charts, robot
from windward.diagnosis.diagnosis import MUCH, Change, Diagnosis
from windward.diagnosis.text import percent
from windward.diagnosis.wind import Coordinate

SAID = 8
"""lines of changes that the headline has at most; the table has all"""
ALL_SHOWN = 40
"""parameters up to which unseen ones are drawn too; of more they are listed by name"""
ROWS = 14
"""rows of a kind that are shown at once; a click opens the others"""
KINDS: Mapping[str, str] = {
    "mass": "mass of a body, its inertia with it",
    "inertia": "inertia of a body, beyond what its mass brings",
    "com": "centre of mass of a body, along an axis of it",
    "gain": "strength of a motor",
    "friction": "friction of contacts",
    "damping": "damping of a joint",
    "armature": "inertia of a joint's motor",
    "frictionloss": "dry friction of a joint",
    "gravity": "gravity",
    "slope": "slope of the floor along an axis",
    "length": "length",
    "delay": "actions that come late",
    "bias": "constant error of a sensor",
    "response": "how strongly a number of the observation answers",
    "offset": "constant added to a number of the observation in a step, in its usual changes",
}
TICKS = (1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 5.0, 10.0)
"""factors, the largest of which that fits is the tick of an axis, and its inverse"""


class Tick(NamedTuple):
    """A place on an axis, in percent of its width."""

    at: float
    text: str


class Row(NamedTuple):
    """A parameter with its interval, in percent of the axis' width."""

    name: str
    state: str
    """changed, doubtful, seen or unseen"""
    low: float
    at: float
    high: float
    text: str
    """the number"""
    interval: str
    differs: bool
    """whether the interval leaves out the nominal value"""


class Panel(NamedTuple):
    """All parameters of one kind, on one axis."""

    kind: str
    meaning: str
    unit: str
    ticks: tuple[Tick, ...]
    rows: tuple[Row, ...]
    rest: tuple[Row, ...]
    """shown on a click"""


def write_report(diagnosis: Diagnosis, path: Path) -> Path:
    """Writes the page; the same diagnosis gives the same bytes.

    Args:
        diagnosis: with its environment and simulator where it has just been made: the robot is
            drawn from them.
        path: of the HTML file; its folder is made if it is not there.

    Returns:
        The path.
    """
    environment = Environment(
        loader=PackageLoader("windward.diagnosis", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("report.html.j2").render(**_view(diagnosis))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # In ASCII the file is the same whatever encoding the machine writes text in.
        write_text(path, page.encode("ascii", "xmlcharrefreplace").decode("ascii") + "\n")
    except OSError as error:
        raise ValueError(f"could not write the page {path}: {error}") from error
    return path


def _view(diagnosis: Diagnosis) -> dict[str, Any]:
    """What the template needs."""
    shown = diagnosis.changes or diagnosis.suspects
    doubtful = not diagnosis.changes and bool(diagnosis.suspects)
    wind, trace = diagnosis.wind, diagnosis.trace
    series = wind is not None and bool(wind.axes) and bool(wind.series)
    long = series and wind is not None and len(wind.series[0]) >= 8
    drawn = robot.draw(diagnosis, shown)
    unseen = [name for name, each in diagnosis.factors.items() if not each.seen]
    many = len(diagnosis.factors) > ALL_SHOWN
    return {
        "title": f"Diagnosis of {diagnosis.env_id or 'an environment without an id'}",
        "headline": headline(diagnosis),
        "lead": lead(diagnosis),
        "warning": diagnosis.unexplained > MUCH or not diagnosis.complete,
        "doubtful": doubtful,
        "why_doubtful": "too much is unexplained to be sure"
        if diagnosis.complete
        else "the fit was interrupted",
        "how_doubtful": "unreliable" if diagnosis.complete else "unfinished",
        "changes": [_described(name, each) for name, each in shown.items()],
        "together": list(dict.fromkeys(", ".join(group) for group in diagnosis.together)),
        "panels": panels_of(diagnosis.factors, shown, doubtful, hide=many),
        "unseen": unseen,
        "unseen_listed": many,
        "robot": _robot_view(drawn, shown),
        "residual": None
        if trace is None or not len(trace.before)
        else Markup(charts.residual(trace, bool(shown))),
        "wind": None if wind is None else str(wind),
        "explained": None if wind is None or not wind.axes else percent(wind.explained),
        "left_over": Markup(charts.left_over(wind)) if series and wind is not None else None,
        "spectrum": Markup(charts.spectrum(wind)) if long and wind is not None else None,
        "coordinates": []
        if wind is None
        else [_coordinate(each, wind.seconds) for each in wind.coordinates],
        "facts": _facts(diagnosis),
    }


def headline(diagnosis: Diagnosis) -> str:
    """What was found, in one sentence."""
    env = diagnosis.env_id or "The environment"
    if not diagnosis.complete:
        return f"{env}: interrupted before the diagnosis was finished"
    if diagnosis.unexplained > MUCH:
        return f"{env}: {percent(diagnosis.unexplained)} of the deviation is not explained"
    count = len(diagnosis.changes)
    parts = []
    if count == 1:
        (name,) = diagnosis.changes
        parts.append(f"{name} changed")
    elif count:
        parts.append(f"{count} parameters changed")
    if diagnosis.wind is not None:
        parts.append("there is a wind" if diagnosis.wind.axes else "something is left over")
    return f"{env}: {' and '.join(parts)}" if parts else f"{env}: nothing changed"


def lead(diagnosis: Diagnosis) -> list[str]:
    """The first lines of what a diagnosis says, without those that the page shows elsewhere."""
    lines, said = [], 0
    for kind, text in diagnosis.lines():
        said += kind == "change"
        if kind != "unseen" and (kind != "change" or said <= SAID):
            lines.append(text)
    if said > SAID:
        lines.append(f"{said - SAID} more changes are in the table")
    return list(dict.fromkeys(lines))


def _described(name: str, change: Change) -> dict[str, str]:
    """A row of the table of changes."""
    kind = name.partition(":")[0]
    now, interval = _numbers(change, kind)
    against = _minus(f"{100 * (change.factor - 1):+.3g} %") if change.unit == "x" else "–"
    return {
        "name": name,
        "now": now,
        "interval": interval,
        "against": against,
        "meaning": KINDS.get(kind, ""),
    }


def _numbers(change: Change, kind: str = "") -> tuple[str, str]:
    """The value and the interval of a change as text."""
    now, low, high, unit = change.texts(kind, times="× ")
    return _minus(now), _minus(f"{low} to {high}{unit}") if low else "–"


def _minus(text: str) -> str:
    """The text with minus signs instead of hyphens."""
    return text.replace("-", "−")


def panels_of(
    factors: Mapping[str, Change],
    changes: Mapping[str, Change],
    doubtful: bool = False,
    hide: bool = False,
) -> list[Panel]:
    """Parameters by kind, those with changes first.

    Args:
        factors: every parameter that was tried.
        changes: what changed; the name of a kind stands for all its parameters.
        doubtful: whether the changes are unreliable or unfinished.
        hide: leave out what the steps do not show.
    """
    kinds: dict[str, dict[str, Change]] = {}
    for name, each in factors.items():
        kinds.setdefault(name.partition(":")[0], {})[name] = each
    factor_reach = _factor_reach([each for each in factors.values() if each.unit == "x"])
    found = []
    for kind, own in kinds.items():
        if kind in changes and kind not in own:  # all of them alike
            own = {f"{kind}, all {len(own)} alike": changes[kind]}
        unit = next(iter(own.values())).unit
        reach = factor_reach if unit == "x" else _amount_reach(own.values())
        rows = [
            _row(name, each, _state(name, each, changes, doubtful), reach)
            for name, each in own.items()
            if _plottable(each) and (each.seen or not hide or name in changes)
        ]
        if not rows:
            continue
        first = {"changed": 0, "doubtful": 0, "seen": 1, "unseen": 2}
        rows.sort(key=lambda row: first[row.state])
        split = ROWS if len(rows) > ROWS + 2 else len(rows)
        ticks = _factor_ticks(reach) if unit == "x" else _amount_ticks(reach)
        found.append(
            Panel(kind, KINDS.get(kind, ""), "factor" if unit == "x" else unit, ticks,
                  tuple(rows[:split]), tuple(rows[split:]))
        )  # fmt: skip
    found.sort(key=lambda panel: panel.rows[0].state not in ("changed", "doubtful"))
    return found


def _plottable(change: Change) -> bool:
    numbers = (change.factor, change.low, change.high)
    return all(isfinite(each) and (change.unit != "x" or each > 0) for each in numbers)


def _state(name: str, change: Change, changes: Mapping[str, Change], doubtful: bool) -> str:
    kind, _, rest = name.partition(", all ")
    if name in changes or (rest and kind in changes):
        return "doubtful" if doubtful else "changed"
    return "seen" if change.seen else "unseen"


def _factor_reach(factors: Sequence[Change]) -> float:
    """Half the width of the axis of factors, as a logarithm."""
    ends = [
        abs(log(each))
        for change in factors
        if change.seen and _plottable(change)
        for each in (change.low, change.high)
    ]
    return min(max([0.06, *ends]) * 1.1, 3.0)


def _amount_reach(amounts: Iterable[Change]) -> float:
    """Half the width of an axis of amounts."""
    given = [each for each in amounts if _plottable(each)]
    seen = [each for each in given if each.seen] or given
    return max([1e-9, *(abs(end) for each in seen for end in (each.low, each.high))]) * 1.1


def _factor_ticks(reach: float) -> tuple[Tick, ...]:
    end = max(tick for tick in TICKS if log(tick) < 0.9 * reach)
    places = {f"× {1 / end:.2g}": 1 / end, "× 1": 1.0, f"× {end:.3g}": end}
    return tuple(Tick(_percent_of(log(each), reach), text) for text, each in places.items())


def _amount_ticks(reach: float) -> tuple[Tick, ...]:
    power = 10.0 ** floor(log10(0.9 * reach))
    end = power * max(each for each in (1, 2, 5) if each * power <= 0.9 * reach)
    return tuple(
        Tick(_percent_of(each, reach), _minus(f"{each:+g}" if each else "0"))
        for each in (-end, 0.0, end)
    )


def _percent_of(value: float, reach: float) -> float:
    return round(min(max(50 + 50 * value / reach, 0.0), 100.0), 2)


def _row(name: str, change: Change, state: str, reach: float) -> Row:
    numbers = (change.low, change.factor, change.high)
    places = [log(each) if change.unit == "x" else each for each in numbers]
    low, at, high = (_percent_of(each, reach) for each in places)
    if state == "unseen" and high - low < 1:  # beyond the axis
        low, high = 0.0, 100.0
    now, interval = _numbers(change, name.partition(":")[0])
    now = now.removesuffix(f" {change.unit}")  # the panel says it
    nominal = 1.0 if change.unit == "x" else 0.0
    differs = not change.low <= nominal <= change.high
    shown = name.partition(":")[2] or name
    return Row(shown, state, low, at, high, now, interval, differs)


def _robot_view(drawn: robot.Drawing | None, changes: Mapping[str, Change]) -> Any:
    if drawn is None:
        return None

    def said(names: Iterable[str]) -> str:
        return "; ".join(
            f"{name} {_numbers(changes[name], name.partition(':')[0])[0]}" for name in names
        )

    scale = None
    if drawn.full is not None:
        full = drawn.full
        each = [robot.colour(full ** (i / 4), full) for i in range(-4, 5)]
        scale = {
            "colours": [f"rgb({' '.join(str(round(255 * part)) for part in rgb)})" for rgb in each],
            "ends": [f"× {1 / full:.2g}", "× 1", f"× {full:.3g}"],
        }
    return {
        "views": [(title, Markup(each)) for title, each in drawn.views],
        "marks": [(mark.number, said(mark.names)) for mark in drawn.marks],
        "everywhere": said(drawn.everywhere),
        "scale": scale,
        "moved": drawn.moved,
        "push": drawn.push,
    }


def _coordinate(each: Coordinate, seconds: float | None) -> dict[str, str]:
    period = "–"
    if each.period is not None:
        own = "" if seconds is None else f" ({each.period * seconds:.2f} s)"
        period = f"{each.period:.1f} steps{own}"
    return {
        "name": each.name,
        "size": f"{each.size:.3g}",
        "predictable": f"{100 * each.predictable:.0f} %",
        "period": period,
    }


def _facts(diagnosis: Diagnosis) -> dict[str, str]:
    options = ", ".join(f"{name}={each!r}" for name, each in diagnosis.env_options.items())
    facts = {
        "environment": diagnosis.env_id or "without an id",
        "its options": options,
        "steps": f"{diagnosis.steps:,} of {diagnosis.episodes} episode"
        + ("s" if diagnosis.episodes != 1 else ""),
        "parameters tried": str(len(diagnosis.factors)),
        "deviation of a step": f"{diagnosis.deviation:.3g} (root mean square, in usual changes of "
        "a coordinate in a step: standard deviations of its change from step to step)",
        "of it unexplained": percent(diagnosis.unexplained),
        "simulated steps": f"{diagnosis.simulated:,}",
        "time of the fit": f"{diagnosis.seconds:.1f} s",
        "complete": "yes" if diagnosis.complete else "no: interrupted",
    }
    return {name: text for name, text in facts.items() if text}
