"""Which gradients and baselines there are, and the steps and noise that suit each."""

from typing import NamedTuple

from windward import checks

GRADIENTS = ("reinforce", "residual", "advantage", "quadratic", "response")
BASELINES = ("none", "mean", "regression")


class Usual(NamedTuple):
    """Defaults: η, σ at the start, and what part of σ is left in the end (None: σ stays)."""

    eta: float
    sigma: float
    falls: float | None


USUAL = {
    "paper": Usual(1e-5, 0.2, None),
    "residual": Usual(0.01, 0.15, 1.0),
    "advantage": Usual(0.03, 0.15, 0.4),
    "mean": Usual(0.01, 0.15, 1.0),
    "regression": Usual(0.03, 0.2, 0.4),
    "quadratic": Usual(0.2, 0.2, 0.2),
    "response": Usual(0.2, 0.2, 0.1),
}
"""one set for all systems: but for the paper's update, η has no unit"""


def usual(gradient: str, baseline: str) -> Usual:
    """The defaults of a gradient with a baseline; refuses what does not fit together.

    >>> usual("reinforce", "none")
    Usual(eta=1e-05, sigma=0.2, falls=None)
    """
    checks.choice("gradient", gradient, GRADIENTS)
    checks.choice("baseline", baseline, BASELINES)
    if baseline == "none":
        return USUAL["paper" if gradient == "reinforce" else gradient]
    if gradient in ("quadratic", "response"):
        raise ValueError(
            f"gradient {gradient!r} has no score whose credit a baseline could be taken from; "
            f"drop baseline={baseline!r}"
        )
    if gradient == "residual":
        raise ValueError(
            "gradient 'residual' has its own baseline, the last cost before the draw; use "
            f"gradient='reinforce' with baseline={baseline!r}"
        )
    return USUAL[baseline]
