"""What a learner of the adaptive layer is given at each step, and what it must bring."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from windward.adapt.actuation import Executed
from windward.adapt.sources import Happened

Arrays = dict[str, np.ndarray]


class Attempt(Protocol):
    """Runs what may fail; a failure is a fault of rows."""

    def __call__(
        self, work: Callable[[], Any], rows: np.ndarray, timed: bool = True
    ) -> tuple[bool, Any]:
        """(whether it went well, what it gave); with `timed` it must keep the deadline."""
        ...


class Planned(NamedTuple):
    """What is to be added to base actions, rows, in actions scaled to [-1, 1]."""

    correction: np.ndarray  # (B, d_u)
    noise: np.ndarray  # (B, d_u)
    added: list[float]  # both, row after row: a few floats are quicker to add than arrays
    rows: np.ndarray  # (B,) bool: those that it is meant for; others execute their base action
    chosen: np.ndarray | None = None  # (B,) discrete actions, from 0, in place of an addition


class Outcome(NamedTuple):
    """A step of rows of environments; arrays with a row for each."""

    happened: Happened
    truncated: np.ndarray
    ended: np.ndarray
    valid: np.ndarray  # it was a step, and not a reset
    good: np.ndarray  # a step with finite numbers, in which nothing went wrong before
    paid: bool  # whether rewards are known
    calm: bool  # whether all rows are good and none ended, as in most steps
    made: Executed


class Heard(NamedTuple):
    """What a learner made of a step."""

    w_hat: np.ndarray  # (B, d_w), 0 where nothing is known
    taught: np.ndarray  # (B,) bool: steps that could be used
    why: str = ""  # why others could not, where nobody has said so yet


class Learner(Protocol):
    """Proposes what to add to base actions, and learns from each step; rows of environments.

    The calls come in this order: `begin` and `look`, then `plan`, `acted`, `observe` and `look` for
    each step. What may fail or take long goes through the `Attempt` that a learner is made with.
    """

    name: str
    d_w: int
    sees_reward: bool
    """whether a step without a reward tells it nothing"""

    @property
    def decisions(self) -> list[str]:
        """What was decided, in sentences."""
        ...

    @property
    def phase(self) -> str:
        """observe, trial, active or rest."""
        ...

    def begin(self, rows: np.ndarray) -> None:
        """Episodes begin in rows, wherever the last ones were."""

    def look(self, x: np.ndarray, good: np.ndarray, begun: np.ndarray) -> None:
        """Observations to act on next; `good` ones are finite, in `begun` rows episodes begin."""

    def plan(self, x: np.ndarray, base: np.ndarray, ready: np.ndarray) -> Planned | None:
        """What to add; None for nothing. Rows that are not ready execute their base action."""

    def acted(self, action: Any, ready: np.ndarray) -> bool:
        """Actions are about to be executed; False where it cannot follow, so that nothing acts."""
        ...

    def observe(self, outcome: Outcome) -> Heard:
        """The step that followed."""
        ...

    def cut(self, rows: np.ndarray) -> None:
        """What comes next in rows does not follow on what was: a fault, or a loaded state."""

    def freeze(self, frozen: bool) -> None:
        """Learning stops, or goes on."""

    def reset(self) -> None:
        """All is as when it was made; episodes go on."""

    def identity(self) -> dict[str, Any]:
        """What must be the same for a saved state to fit."""
        ...

    def arrays(self) -> Arrays:
        """Its state, as arrays."""
        ...

    def header(self) -> dict[str, Any]:
        """The rest of it, as JSON can hold it."""
        ...

    def restore(self, arrays: Arrays, header: dict[str, Any]) -> None:
        """Goes on from both; what does not fit is a ValueError, and changes nothing."""
