"""Numbers of a diagnosis as text: the same for the terminal, the page and `str`."""

from math import floor, isfinite, log, log10
from typing import NamedTuple

DIGITS = 5
"""of a number, at most"""
LEAST = 1e-3
"""factors below this are not told apart"""
SHARE = 1e-4
"""nor are shares below this"""


class Texts(NamedTuple):
    """A changed parameter as text."""

    now: str
    """with sign and unit"""
    low: str
    """of the interval, without unit; empty where there is none"""
    high: str
    unit: str
    """of the interval"""


def number(value: float, error: float) -> str:
    """A number with as many digits as its error leaves it.

    >>> number(1.3000063, 0.00014), number(0.98, 0.1), number(2.0, 0.0), number(1.0, 1e-9)
    ('1.3000', '0.98', '2', '1.0000')
    """
    if not isfinite(value) or not isfinite(error) or error <= 0:
        return f"{value:.{DIGITS}g}"
    most = DIGITS - 1 - (floor(log10(abs(value))) if abs(value) > error else floor(log10(error)))
    return f"{value:.{max(0, min(1 - floor(log10(error)), most))}f}"


def percent(share: float) -> str:
    """A share in percent, with two digits.

    >>> percent(0.0), percent(2e-8), percent(0.0123), percent(0.4)
    ('0 %', 'below 0.01 %', '1.2 %', '40 %')
    """
    if 0 < share < SHARE:
        return f"below {100 * SHARE:g} %"
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def texts(
    value: float, low: float, high: float, unit: str, kind: str = "", times: str = "x"
) -> Texts:
    """A factor or an amount with its interval, as many digits as the interval has.

    Args:
        value: factor or amount.
        low, high: of the interval.
        unit: "x" for a factor.
        kind: of the parameter, where known: a motor without gain is dead.
        times: sign before a factor.

    >>> texts(1.29457, 1.29311, 1.29603, "x")
    Texts(now='x1.2946', low='1.2931', high='1.2960', unit='')
    >>> texts(5e-9, 4e-9, 6e-9, "x", "gain").now, texts(1.0, 1.0, 1.0, "steps").now
    ('dead (below x0.001)', '1 step')
    >>> texts(0.0105, 0.0095, 0.0115, "m")
    Texts(now='+0.0105 m', low='0.0095', high='0.0115', unit=' m')
    """
    if unit == "x" and 0 <= high < LEAST:
        least = f"below {times}{LEAST:g}"
        return Texts(f"dead ({least})" if kind == "gain" else least, "", "", "")
    if unit == "steps":  # counted
        return Texts(f"{value:g} step{'' if value == 1 else 's'}", "", "", "")
    error = (high - low) / 2
    if unit == "x" and 0 < low < high / 2 and isfinite(high):
        # So wide that the ends have digits of their own: the interval is one of the logarithm.
        relative = log(high / low) / 2
        now, least, most = (number(each, each * relative) for each in (value, low, high))
        return Texts(f"{times}{now}", least, most, "")
    now, least, most = (number(each, error) for each in (value, low, high))
    if unit == "x":
        return Texts(f"{times}{now}", least, most, "")
    after = f" {unit}" if unit else ""
    return Texts(f"{now if now.startswith('-') else '+' + now}{after}", least, most, after)
