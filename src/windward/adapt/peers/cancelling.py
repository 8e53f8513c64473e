"""What observer and L1 augmentation share: the input map, and when it is asked."""

from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from windward import checks
from windward.adapt.peers.hearing import signal_source
from windward.adapt.peers.input_maps import InputMap, Regressed, make_map
from windward.adapt.peers.laws import AUTHORITY
from windward.adapt.peers.least_squares import inverse
from windward.adapt.peers.slot import Slot
from windward.adapt.sources import Happened

DITHER = 0.05
"""standard deviation of the noise that an online map is learned from"""


class Filter(Protocol):
    """From ŵ_t to the action to take off at t+1."""

    def begin(self) -> None:
        """No wind is known."""

    def __call__(self, w_hat: np.ndarray, B_inverse: np.ndarray) -> np.ndarray:
        """(d_u,), in actions scaled to [-1, 1]."""


class Cancelling:
    """u = base - filter(ŵ, B⁺): the law around a filter and an input map."""

    def __init__(
        self, take_off: Filter, input_map: InputMap, weights: Any, sigma: Any, seed: Any
    ) -> None:
        d_w, self._d_u = input_map.B.shape
        self.input_map, self._filter = input_map, take_off
        self._weights = np.ones(d_w)
        if weights is not None:
            self._weights = checks.positive("weights", weights, zero=True)
            checks.shape("weights", self._weights, (d_w,), "one for each number of ŵ")
        self._sigma = _dither(sigma, input_map)
        self._seed = checks.integer("seed", seed, 0)
        self.forget()

    def begin(self) -> None:
        """An episode begins: no wind is known."""
        self._filter.begin()
        self._correction = np.zeros(self._d_u)

    def forget(self) -> None:
        """Nor a map."""
        self.begin()
        self.input_map.forget()
        self._rng = np.random.default_rng(self._seed)

    def plan(self, x: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See Law."""
        self.input_map.before()
        return self._correction, self._sigma * self._rng.standard_normal((self._d_u,))

    def observe(self, step: Happened, w_hat: np.ndarray) -> None:
        """See Law."""
        found = self.input_map
        if step.learn:
            found.after(step, w_hat)
        B_inverse = inverse(found.B, self._weights, found.doubt(self._weights))
        taken = np.clip(self._filter(w_hat, B_inverse), -AUTHORITY, AUTHORITY)
        self._correction = -np.nan_to_num(taken)


def _dither(sigma: Any, input_map: InputMap) -> float:
    """The noise to add: for an online map alone."""
    online = isinstance(input_map, Regressed)
    if sigma is None:
        return DITHER if online else 0.0
    value = float(checks.positive("sigma", checks.finite_array("sigma", sigma, ndim=0), zero=True))
    if value and not online:
        raise ValueError(f"sigma is for input_map='online', which learns from it; got {sigma!r}")
    return value


class CancellingSlot(Slot):
    """The wrapper around such a law; `given` are the arguments that it was made with."""

    def __init__(self, env: gym.Env, take_off: Filter, given: dict[str, Any]) -> None:
        super().__init__(env, given)
        source = signal_source(env, *(given[name] for name in ("signal", "model", "simulator")))
        self._map = make_map(given["input_map"], source, env)
        settings = (given[name] for name in ("weights", "sigma", "seed"))
        self._fill(Cancelling(take_off, self._map, *settings), source)

    @property
    def B(self) -> np.ndarray:
        """The input map, as it is now."""
        return self._map.B.copy()
