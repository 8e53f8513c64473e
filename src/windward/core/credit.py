"""What a draw is credited with, before it meets its score.

The paper credits every draw with the plain cost of each of the next h steps. A credit may keep
state in the learner (a baseline, a regression); it sees all B environments at once.
"""

from collections.abc import Callable
from typing import NamedTuple

from windward.types import Array, Local, PyTree, Transition


class Credit(NamedTuple):
    """``init()`` gives the state; ``update(state, transition, local)`` gives state and (B,)."""

    init: Callable[[], PyTree]
    update: Callable[[PyTree, Transition, Local], tuple[PyTree, Array]]


def cost() -> Credit:
    """The cost c_t(x_t, u_t) itself, as in `algo:generic`, `algo:discrete`, `algo:banditgpc`."""
    return Credit(lambda: (), lambda state, tr, local: (state, tr.c))
