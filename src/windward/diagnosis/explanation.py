"""Explanations of recorded steps: the settings, one explanation, and what is found in the end."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from windward.diagnosis.fit import FitSettings, Fitted
from windward.diagnosis.parameters import Atom, Sizes
from windward.diagnosis.residuals import Rows
from windward.diagnosis.sensors import Noise, SensorSettings

PAST = "past"
"""the place of a wind that is whitened by its own past"""


@dataclass(frozen=True)
class Settings:
    """How a diagnosis is made."""

    fit: FitSettings = field(default_factory=FitSettings)
    sensors: SensorSettings = field(default_factory=SensorSettings)
    sizes: Sizes = field(default_factory=Sizes)
    steps: int = 1000
    """steps that are looked at, at most"""
    block: int = 32
    """consecutive steps that are fitted, or held out, together"""
    equations: float = 10.0
    """numbers to fit from, for each parameter"""
    fewest: int = 96
    """steps to fit from at least, where there are as many"""
    many: int = 500
    """steps to fit from where something is left, noise for instance ..."""
    columns: int = 32_000
    """... or more, as long as their Jacobian takes no more simulated steps than this"""
    exact: float = 1e-5
    """share of the deviation that may be left where an explanation is taken for the whole one"""
    enough: float = 1e-2
    """share that may be left where it is not worth trying all parameters at once"""
    nothing: float = 1e-9
    """share of the deviation that does not count; and the mean square of a step's deviation, in
    usual changes of a coordinate, below which nothing has changed"""
    price: float = 25.0
    """what a change must explain to be reported: the square of 5 standard deviations"""
    resolution: float = 0.005
    """smallest θ that counts; in factors, 0.25 %"""
    finer: tuple[float, ...] = (1.0, 4.0, 16.0, 64.0)
    """shares of price and resolution that are tried until the fewest changes do as well as all"""
    alike: float = 1.1
    """the fewest changes may leave so much more than all of them together ..."""
    rounding: float = 1e-11
    """... and this share of the deviation besides: what rounding and the solver leave"""
    accurate: tuple[float, float] = (1e-4, 4e-4)
    """smallest standard deviation of a θ: the solver's tolerance; beside a wind, which is taken out
    as if what it does were in proportion to it"""
    smallest: float = 0.02
    """changes of a smaller θ are not reported; in factors, 1 %"""
    delays: int = 8
    """steps by which actions may come late, at most"""
    late: float = 0.8
    """a delay must leave less than this share of what acts like a push on the action"""
    friction: tuple[float, ...] = (0.1, 0.25, 0.5, 2.0, 4.0, 8.0, 16.0)
    """factors from which friction is searched again: it has local minima"""
    sharpest: float = 1e-3
    """accuracy of finite differences, as a share of the deviation"""
    simpler: float = 0.9
    """an explanation with more in it must leave less than this share of what a simpler one does"""
    nearly: float = 0.3
    """a share of the deviation that is worth going on from"""
    greedy: int = 3
    """changes that are added one after the other, at most"""
    beam: int = 4
    """changes that are fitted at each turn, the likeliest"""
    regular: float = 0.3
    """share of a wind on the action that its past tells, from which on it is not white noise"""
    clear: float = 1e-3
    """share that a wind may leave without another place being tried"""
    places: int = 2
    """places of a wind that are fitted, the likeliest"""


class Explanation(NamedTuple):
    """A fit, with what is taken out as wind and how late actions come."""

    fitted: Fitted
    left: float
    """share of the deviation from the nominal simulator that it leaves, on held-out steps"""
    columns: tuple[int, ...]
    delay: int = 0
    wind: str = ""
    """the place of a wind that is projected out, or PAST"""
    axes: tuple[int, ...] = ()
    derived: bool = True
    """whether the model's derived constants follow its masses"""


class Identified(NamedTuple):
    """What was found."""

    theta: np.ndarray
    chosen: tuple[Atom, ...]
    covariance: np.ndarray  # of the chosen atoms' amounts
    amounts: np.ndarray  # (chosen,)
    scores: int  # blocks that the covariance is from
    explanation: Explanation
    nominal: float  # mean square deviation from the nominal simulator, in usual changes
    left: float  # share of it that parameters and wind leave
    estimates: np.ndarray  # θ of every parameter, were it added to those chosen
    errors: np.ndarray  # its standard deviation
    hessian: np.ndarray  # of all parameters at the solution
    rows: Rows  # with the delay found; with smoothed states where sensors are noisy
    complete: bool = True  # False where it was interrupted
    noise: Noise | None = None  # of sensors
    windless: bool = False  # nothing is left over but that noise
    notes: tuple[str, ...] = ()


def nothing_fitted(count: int) -> Fitted:
    """θ = 0, without a fit."""
    return Fitted(
        np.zeros(count), np.zeros(0), np.zeros((0, 0)), np.zeros(0), np.zeros((1, 0)), 0.0,
        np.zeros(0), 0,
    )  # fmt: skip
