"""From a plan and a base action to what is executed, for boxes and for discrete actions.

σ and M act on actions scaled to [-1, 1] (deviation 8). What comes out is finite and inside the
space, whatever goes in; a row that is on fallback executes its base action alone.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np

from windward.adapt.engine import Engine
from windward.policies.actions import ActionCode

Rows = np.ndarray


class Executed(NamedTuple):
    """What rows of environments are to execute, and how it came about; arrays with a row each."""

    action: Any  # in the space; the base action itself, to the bit, where nothing was added
    clipped: np.ndarray  # (B,) bool
    lost: np.ndarray  # (B,) bool: the base action was not usable and the middle is executed
    number: np.ndarray | None = None  # (B,) discrete: the action's number from 0
    logits: np.ndarray | None = None  # (B, d_u)
    odd: bool = True  # whether a row may be lost, or be the agent's own object


class Actuation(Protocol):
    """How corrections act on a space."""

    d_u: int
    discrete: bool

    def __call__(
        self, x: Any, base: Any, plan: Engine, fallback: np.ndarray | None = None
    ) -> Executed:
        """The action of each row; `fallback` rows (None for none) take none of the plan."""

    def alone(self, base: Any) -> Executed:
        """Base actions where they can be executed, the middle of the space elsewhere."""

    def square(self, base: Any) -> float:
        """The mean square of base actions, scaled as corrections are; 1 for discrete ones."""


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


@lru_cache(maxsize=64)
def none(rows: int) -> np.ndarray:
    """False for each row, not to be written to."""
    flags = np.zeros(rows, dtype=bool)
    flags.flags.writeable = False
    return flags


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
        self._shape, self._dtype = space.shape, space.dtype
        self.d_u = code.size
        # Lists: a few floats are added and compared quicker one by one than as arrays.
        self._half = code.half.astype(np.float64).tolist()
        self._low, self._high = (
            each.ravel().astype(np.float64).tolist() for each in (space.low, space.high)
        )
        self._middle = code.decode(np.zeros((1, code.size), np.float32)).ravel().astype(np.float64)
        self._code = code

    def __call__(
        self, x: Any, base: Any, plan: Engine, fallback: np.ndarray | None = None
    ) -> Executed:
        """See the class."""
        times = base.size // self.d_u
        if fallback is None and base.dtype == self._dtype:
            parts = zip(base.ravel().tolist(), self._half * times, plan.added, strict=True)
            wanted = [own + half * added for own, half, added in parts]
            bounds = zip(wanted, self._low * times, self._high * times, strict=True)
            inside = [
                each if low <= each <= high else low if each < low else high
                for each, low, high in bounds
            ]
            # Equal, so inside and finite; what is not a number is not equal to a bound.
            whole = inside == wanted
            if whole or math.isfinite(sum(wanted)):
                action = np.array(inside, self._dtype).reshape(base.shape)
                clipped = none(times) if whole else self._cut(inside, wanted)
                return Executed(action, clipped, none(times), odd=False)
        added = np.reshape(plan.added, (times, self.d_u)) * np.array(self._half)
        return self._with_care(base, base.reshape(times, self.d_u).astype(float), added, fallback)

    def _cut(self, inside: list[float], wanted: list[float]) -> np.ndarray:
        """Rows of which something was cut off."""
        return np.array(
            [
                inside[i : i + self.d_u] != wanted[i : i + self.d_u]
                for i in range(0, len(wanted), self.d_u)
            ]
        )

    def _with_care(
        self, base: Any, rows: Rows, added: Rows, fallback: np.ndarray | None
    ) -> Executed:
        """Actions where something is lost or left alone."""
        lost = np.logical_not(np.isfinite(rows).all(axis=1))
        alone = lost if fallback is None else fallback | lost
        rows = np.where(lost[:, None], self._middle, rows)
        added = np.where(alone[:, None], 0.0, added)
        wanted = rows + added
        inside = np.clip(wanted, self._low, self._high)
        clipped = (inside != wanted).any(axis=1)
        if not added.any() and not (lost | clipped).any():
            return Executed(base, clipped, lost)
        return Executed(inside.astype(self._dtype).reshape(-1, *self._shape), clipped, lost)

    def square(self, base: Any) -> float:
        """See Actuation."""
        with np.errstate(over="ignore", invalid="ignore"):  # an agent may give anything
            return float(np.square(np.clip(self._code.encode(base), -1.0, 1.0)).mean())

    def alone(self, base: Any) -> Executed:
        """See Actuation."""
        if base.dtype == self._dtype:
            times = base.size // self.d_u
            bounds = zip(self._low * times, base.ravel().tolist(), self._high * times, strict=True)
            if all(low <= each <= high for low, each, high in bounds):
                return Executed(base, none(times), none(times))
        rows = np.asarray(base, dtype=np.float64).reshape(-1, self.d_u)
        return self._with_care(base, rows, np.zeros_like(rows), None)


class Softmax:
    """u = argmax(logits + correction + g), Gumbel noise g conditioned on the agent's own action.

    Given the agent's u ~ softmax(logits), g is drawn from its law given that argmax(logits + g) is
    u. So without a correction the action is the agent's own, to the bit, and with one it is an
    exact draw from softmax(logits + correction).
    """

    discrete = True

    def __init__(self, space: gym.spaces.Discrete, logits: Callable[[Any], np.ndarray]) -> None:
        self.d_u, self._start, self.logits = int(space.n), int(space.start), logits
        self._dtype = space.dtype

    def __call__(
        self, x: Any, base: Any, plan: Engine, fallback: np.ndarray | None = None
    ) -> Executed:
        """See the class."""
        correction, draw = plan.correction, plan.draw
        index, lost = self._index(base)
        logits = np.asarray(self.logits(x), dtype=np.float64)
        if logits.shape != (len(index), self.d_u):
            raise ValueError(
                f"logits must have shape {(len(index), self.d_u)}, one for each action of each "
                f"observation; got {logits.shape}"
            )
        acted = index.copy()
        # A masked action's logit is -inf; NaN, +inf or nothing but masks is no softmax.
        usable = (logits < np.inf).all(axis=1) & (logits > -np.inf).any(axis=1)
        moved = usable & ~lost & correction.any(axis=1)
        for i in np.flatnonzero(moved if fallback is None else moved & ~fallback):
            noisy = gumbel_given(logits[i], int(index[i]), draw[i].astype(np.float64))
            acted[i] = int((noisy + correction[i]).argmax())
        same = not lost.any() and (acted == index).all()
        action = base if same else self._action(acted)
        return Executed(action, np.zeros_like(lost), lost, acted, logits)

    def square(self, base: Any) -> float:
        """See Actuation."""
        return 1.0

    def _index(self, base: Any) -> tuple[np.ndarray, np.ndarray]:
        """Actions by their numbers from 0, the middle one for what is no action."""
        number = np.asarray(base, dtype=np.float64).reshape(-1) - self._start
        lost = ~((number >= 0) & (number < self.d_u) & (number == np.floor(number)))
        return np.where(lost, self.d_u // 2, number).astype(np.int64), lost

    def _action(self, index: np.ndarray) -> np.ndarray:
        return (index + self._start).astype(self._dtype)

    def alone(self, base: Any) -> Executed:
        """See Actuation."""
        index, lost = self._index(base)
        action = self._action(index) if lost.any() else base
        return Executed(action, np.zeros_like(lost), lost, index, np.zeros((len(index), self.d_u)))


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
