"""Returns of few episodes compared: their means, how sure these are, and their ranks."""

from collections.abc import Sequence

from scipy.stats import mannwhitneyu

CHANCE = 0.05
"""that ranks are as they are for nothing, at most"""


def mean(returns: Sequence[float]) -> float:
    """Of a few returns, at least one."""
    return sum(returns) / len(returns)


def below(some: Sequence[float], others: Sequence[float]) -> bool:
    """Whether some lie below others by their ranks, of which a few that are far off have few.

    A pole that stands or falls: one that stood among the others makes any mean uncertain.
    """
    return bool(mannwhitneyu(some, others, alternative="less").pvalue < CHANCE)


def error2(returns: Sequence[float]) -> float:
    """The square of the mean's standard error."""
    middle, n = mean(returns), len(returns)
    # Products, not powers: those of huge returns overflow to infinity without raising.
    return sum((each - middle) * (each - middle) for each in returns) / max(n - 1, 1) / n
