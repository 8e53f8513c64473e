"""The values that pass between the parts of windward: one step, one plan, one state.

Names follow the paper: x state, u action, c cost, w_hat pseudo-disturbance, M the parameters
of the disturbance-action policy. ``x_next`` is x_{t+1}. Every array of a `Transition` and of a
`Plan` has a leading axis B, one entry for each environment that shares M.
"""

from typing import Any, NamedTuple

import jax

Array = jax.Array
PyTree = Any
Hyper = dict[str, Array]


class Transition(NamedTuple):
    """What one environment step shows the algorithm.

    ``aux`` holds what the signal asked for in `Algorithm.needs` (values of critics, the
    simulator's prediction, the true disturbance), made where the environment lives.
    ``terminated`` stops bootstrapping, either flag ends the windows, and ``valid=False``
    (hostile input, the phantom step of an autoreset) changes nothing; a step that is valid and not
    ``usable`` ends its episode where the flags say so, and changes nothing else.
    """

    x: Array  # (B, d_x)
    u: Array  # (B, d_u) executed action, or (B,) its index when actions are discrete
    c: Array  # (B,)
    x_next: Array  # (B, d_x)
    aux: dict[str, Array]
    terminated: Array  # (B,) bool
    truncated: Array  # (B,) bool
    valid: Array  # (B,) bool
    usable: Array | None = None  # (B,) bool; all if left out


class Plan(NamedTuple):
    """What is added to the base action (or to the base logits) at the next step."""

    correction: Array  # (B, d_u): the policy's output on the window of w_hat
    draw: Array  # (B, d_u): the exploration noise n_t, or Gumbel noise for logits


class Local(NamedTuple):
    """One environment's memory; ``w_hist`` and ``records`` are zeroed when its episode ends."""

    w_hist: Array  # (h + lags - 1, d_w), newest first
    records: PyTree  # leading axis lags, newest first: what the score of each past step needs
    unit: Array  # the raw draw behind the pending plan
    t: Array  # () int32, steps seen


class Learner(NamedTuple):
    """What environments share."""

    M: PyTree
    optimiser: PyTree
    credit: PyTree
    hyper: Hyper


class State(NamedTuple):
    """The whole state of an algorithm: B local memories, one learner."""

    local: Local
    learner: Learner


class Info(NamedTuple):
    """What the last `observe` computed, for logs; it does not feed back."""

    w_hat: Array  # (B, d_w)
    gradient: PyTree  # like M: the estimate handed to the update
    accepted: Array  # (B,) bool: False where the step itself was invalid or non-finite
