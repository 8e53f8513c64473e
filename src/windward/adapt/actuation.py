"""From a plan and a base action to what is executed, for boxes and for discrete actions.

σ and M act on actions scaled to [-1, 1] (deviation 8). What comes out is finite and inside the
space, whatever goes in; a row that is on fallback executes its base action alone.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np

from windward.adapt.faults import every, finite, finite_rows, flags, some
from windward.policies.actions import ActionCode

Rows = np.ndarray


class Executed(NamedTuple):
    """What rows of environments are to execute, and how it came about; arrays with a row each."""

    action: Any  # in the space; the base action itself, to the bit, where nothing was added
    clipped: np.ndarray  # (B,) bool: a correction that reached the bounds
    lost: np.ndarray  # (B,) bool: the base action was not usable and the middle is executed
    number: np.ndarray | None = None  # (B,) discrete: the action's number from 0
    logits: np.ndarray | None = None  # (B, d_u)


class Addition(Protocol):
    """What is added to base actions; see `learners.base.Planned`."""

    @property
    def correction(self) -> np.ndarray:
        """(B, d_u)."""
        ...

    @property
    def noise(self) -> np.ndarray:
        """(B, d_u)."""
        ...

    @property
    def added(self) -> list[float]:
        """Both, row after row."""
        ...

    @property
    def rows(self) -> np.ndarray:
        """(B,) bool: those that it is meant for."""
        ...

    @property
    def chosen(self) -> np.ndarray | None:
        """(B,) discrete actions, from 0, in place of an addition."""
        ...


class Actuation(Protocol):
    """How corrections act on a space."""

    d_u: int
    discrete: bool

    def read(self, base: Any) -> tuple[Rows, Rows]:
        """(base actions as rows of numbers, which of them are lost)."""
        ...

    def __call__(
        self, x: Any, base: Any, rows: Rows, lost: Rows, plan: Addition | None
    ) -> Executed:
        """The action of each row; `rows` and `lost` are what `read` gave."""
        ...

    def square(self, rows: Rows) -> float:
        """The mean square of base actions, in shares of their range; 1 for discrete ones."""
        ...


def refuse(space: gym.Space, observations: gym.Space) -> None:
    """Refuses spaces that windward has no actions for, with the wrapper that would help."""
    if isinstance(observations, gym.spaces.Dict | gym.spaces.Tuple):
        raise ValueError(
            f"observations must be in a Box; this environment has a {type(observations).__name__} "
            "space: flatten it with gymnasium.wrappers.FlattenObservation"
        )
    if isinstance(space, gym.spaces.Discrete):
        return
    if not isinstance(space, gym.spaces.Box):
        help_with = {
            gym.spaces.MultiDiscrete: "number its combinations in a gymnasium.ActionWrapper with a "
            "Discrete space",
            gym.spaces.MultiBinary: "number its combinations in a gymnasium.ActionWrapper with a "
            "Discrete space",
        }.get(type(space), "map it to a Box in a gymnasium.ActionWrapper")
        raise ValueError(
            f"actions must be in a Box or a Discrete space; this is {type(space).__name__}: "
            f"{help_with}"
        )
    if not np.issubdtype(space.dtype, np.floating):
        raise ValueError(
            f"actions in a Box must be floats, and these are {space.dtype}: a correction would be "
            "rounded away; wrap the environment in a gymnasium.ActionWrapper with a Box of floats"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        bounded = np.isfinite(low) & np.isfinite(high - low)
    if not bounded.all():
        raise ValueError(
            f"corrections are scaled by the action space, and this one is unbounded: {space}; "
            "bound it with gymnasium.wrappers.TransformAction or RescaleAction"
        )


def action_array(action: Any, shape: Any) -> np.ndarray:
    """What an agent gave as an array of numbers of a shape, or an error before anything is done."""
    try:
        array = np.asarray(action)
    except ValueError as error:
        raise ValueError(f"an action must be an array of shape {shape}; got {action!r}") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"an action must be of numbers; got {action!r}")
    if array.shape != shape:
        raise ValueError(f"an action must have shape {shape}; got {array.shape}")
    return array


class Continuous:
    """u = clip(base + half·(correction + n)), half the space's half width."""

    discrete = False

    def __init__(self, space: gym.spaces.Box) -> None:
        code = ActionCode(space)
        self._shape, self._dtype, self._space = space.shape, space.dtype, space
        self.d_u = code.size
        # Lists: a few floats are added and compared quicker one by one than as arrays.
        self._half = code.half.astype(np.float64).tolist()
        self._low, self._high = (
            each.ravel().astype(np.float64).tolist() for each in (space.low, space.high)
        )
        self._middle = code.decode(np.zeros((1, code.size), np.float32)).ravel().astype(np.float64)
        self._code = code

    def read(self, base: Any) -> tuple[Rows, Rows]:
        """See Actuation."""
        rows = np.asarray(base, dtype=np.float64).reshape(-1, self.d_u)
        return rows, flags(len(rows), False) if finite(rows) else ~finite_rows(rows)

    def __call__(
        self, x: Any, base: Any, rows: Rows, lost: Rows, plan: Addition | None
    ) -> Executed:
        """See the class."""
        whole = base.dtype == self._dtype and not some(lost)
        if whole and (plan is None or every(plan.rows)):
            made = self._quick(base, len(rows), None if plan is None else plan.added)
            if made is not None:
                return made
        added = np.zeros_like(rows)
        if plan is not None:
            added = np.reshape(plan.added, rows.shape) * np.array(self._half)
            added = np.where((plan.rows & ~lost)[:, None], added, 0.0)
        wanted = np.where(lost[:, None], self._middle, rows) + added
        inside = np.clip(wanted, self._low, self._high)
        cut = (inside != wanted).any(axis=1)
        if not (added.any() or some(lost) or some(cut)):
            return Executed(base, cut, lost)  # of whatever type: the agent's own
        clipped = cut & added.any(axis=1)
        return Executed(inside.astype(self._dtype).reshape(-1, *self._shape), clipped, lost)

    def _quick(self, base: Any, times: int, added: list[float] | None) -> Executed | None:
        """The same for usual rows; None where a number is not finite."""
        own = base.ravel().tolist()
        wanted = own
        if added is not None:
            parts = zip(own, self._half * times, added, strict=True)
            wanted = [each + half * more for each, half, more in parts]
        bounds = zip(wanted, self._low * times, self._high * times, strict=True)
        inside = [
            each if low <= each <= high else low if each < low else high
            for each, low, high in bounds
        ]
        # Equal, so inside and finite; what is not a number is not equal to a bound.
        whole = inside == wanted
        if whole and added is None:
            return Executed(base, flags(times, False), flags(times, False))
        if not whole and not math.isfinite(sum(wanted)):
            return None
        action = np.array(inside, self._dtype).reshape(base.shape)
        cuts = added is not None and not whole
        clipped = self._cut(inside, wanted) if cuts else flags(times, False)
        return Executed(action, clipped, flags(times, False))

    def _cut(self, inside: list[float], wanted: list[float]) -> np.ndarray:
        """Rows of which something was cut off."""
        return np.array(
            [
                inside[i : i + self.d_u] != wanted[i : i + self.d_u]
                for i in range(0, len(wanted), self.d_u)
            ]
        )

    def square(self, rows: Rows) -> float:
        """See Actuation."""
        with np.errstate(over="ignore", invalid="ignore"):  # an agent may give anything
            scaled = self._code.encode(rows.reshape(-1, *self._shape))
            return float(np.square(np.clip(scaled, -1.0, 1.0)).mean())


class Softmax:
    """u = argmax(logits + correction + g), Gumbel noise g conditioned on the agent's own action.

    Given the agent's u ~ softmax(logits), g is drawn from its law given that argmax(logits + g) is
    u. So without a correction the action is the agent's own, to the bit, and with one it is an
    exact draw from softmax(logits + correction). A learner that chooses actions itself needs no
    logits.
    """

    discrete = True

    def __init__(
        self, space: gym.spaces.Discrete, logits: Callable[[Any], np.ndarray] | None = None
    ) -> None:
        self.d_u, self._start, self.logits = int(space.n), int(space.start), logits
        self._dtype = space.dtype

    def read(self, base: Any) -> tuple[Rows, Rows]:
        """See Actuation: actions by their numbers from 0, the middle one for what is no action."""
        number = np.asarray(base, dtype=np.float64).reshape(-1) - self._start
        lost = ~((number >= 0) & (number < self.d_u) & (number == np.floor(number)))
        return np.where(lost, self.d_u // 2, number).astype(np.int64), lost

    def __call__(
        self, x: Any, base: Any, rows: Rows, lost: Rows, plan: Addition | None
    ) -> Executed:
        """See the class."""
        acted, logits = rows.copy(), None
        if plan is not None and plan.chosen is not None:
            acted = np.where(plan.rows & ~lost, plan.chosen, rows)
        elif plan is not None:
            logits = self._logits(x, len(rows))
            # A masked action's logit is -inf; NaN, +inf or nothing but masks is no softmax.
            usable = (logits < np.inf).all(axis=1) & (logits > -np.inf).any(axis=1)
            moved = usable & ~lost & plan.rows & plan.correction.any(axis=1)
            for i in np.flatnonzero(moved):
                draw = plan.noise[i].astype(np.float64)
                noisy = gumbel_given(logits[i], int(rows[i]), draw)
                acted[i] = int((noisy + plan.correction[i]).argmax())
        same = not lost.any() and (acted == rows).all()
        action = base if same else (acted + self._start).astype(self._dtype)
        return Executed(action, np.zeros_like(lost), lost, acted, logits)

    def _logits(self, x: Any, rows: int) -> np.ndarray:
        assert self.logits is not None
        logits = np.asarray(self.logits(x), dtype=np.float64)
        if logits.shape != (rows, self.d_u):
            raise ValueError(
                f"logits must have shape {(rows, self.d_u)}, one for each action of each "
                f"observation; got {logits.shape}"
            )
        return logits

    def square(self, rows: Rows) -> float:
        """See Actuation."""
        return 1.0


def gumbel_given(logits: np.ndarray, index: int, gumbel: np.ndarray) -> np.ndarray:
    """logits + g for Gumbel noise g given that its argmax is `index`, from plain Gumbel draws.

    The largest is Z = logsumexp(logits) + Gumbel, at `index`; the others are Gumbel numbers cut off
    at Z: -log(exp(-Z) + exp(-(logits + Gumbel))).

    >>> noisy = gumbel_given(np.zeros(3), 2, np.array([0.5, 9.0, -0.5]))
    >>> int(noisy.argmax())
    2
    """
    top = logits.max()
    largest = top + np.log(np.exp(logits - top).sum()) + gumbel[index]
    with np.errstate(over="ignore"):
        noisy: np.ndarray = -np.logaddexp(-largest, -(logits + gumbel))
    noisy[index] = largest
    return noisy
