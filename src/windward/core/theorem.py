"""Step sizes and exploration radii of `thm:34`."""

from typing import NamedTuple

from windward import checks


class Rates(NamedTuple):
    """Learning rate and exploration radius for a horizon, and the regret's exponent in T."""

    eta: float
    delta: float
    exponent: float


def theorem_rates(T: int, d_u: int, d_x: int, *, smooth: bool = False) -> Rates:
    """η and δ of `thm:34`, with d_min = min(d_x, d_u).

    Convex costs: η = √(d_min/d_u) T^{-3/4}, δ = √(d_u d_min) T^{-1/4}, regret O(T^{3/4}).
    Smooth costs: η = d_min^{1/3} d_u^{-2/3} T^{-2/3}, δ = (d_u d_min)^{1/3} T^{-1/6},
    regret O(T^{2/3}).

    >>> theorem_rates(10_000, d_u=1, d_x=2).delta
    0.1
    """
    T = checks.integer("T", T, 1)
    d_u, d_min = checks.integer("d_u", d_u, 1), min(d_u, checks.integer("d_x", d_x, 1))
    if smooth:
        return Rates(
            d_min ** (1 / 3) / (d_u ** (2 / 3) * T ** (2 / 3)),
            (d_u * d_min) ** (1 / 3) * T ** (-1 / 6),
            2 / 3,
        )
    return Rates((d_min / d_u) ** 0.5 * T**-0.75, (d_u * d_min) ** 0.5 * T**-0.25, 3 / 4)
