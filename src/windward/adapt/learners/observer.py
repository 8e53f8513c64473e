"""A disturbance observer: what was pushed a step ago is pushed back now.

d_t = d_{t-1} + (1 - e^{-ω})(ŵ_t - d_{t-1}),    u_{t+1} = base - gain·B⁺ d_t

(Ohnishi 1987; Chen, Yang, Guo, Li 2016): a low-pass Q filter on ŵ, and the inverse of the input map
by least squares. What B does not reach is left to the base policy. Nothing is learned of costs.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from windward import checks
from windward.adapt.learners.base import Arrays
from windward.adapt.learners.input_maps import InputMap, Regressed, inverse
from windward.adapt.sources import Happened


@dataclass(frozen=True)
class CancellingSettings:
    """What observer and L1 augmentation share."""

    input_map: Any = "auto"
    """B, (d_w, d_u), for actions scaled to [-1, 1]; or "simulator" (differences of the simulator
    around each step), "values" (of PD2's Q), "online" (regressed on executed actions, for a ŵ in
    the coordinates of the observation), "auto" for the first that can be had"""
    weights: Any = None
    """how much each coordinate of ŵ matters where not all can be cancelled; 1 each if left out"""
    sigma: float | None = None
    """standard deviation of the noise that an online map learns from; `dither` if left out"""
    dither: float = 0.05
    """that noise, in actions scaled to [-1, 1]"""
    authority: float = 2.0
    """largest correction, in actions scaled to [-1, 1]: from one bound to the other"""


@dataclass(frozen=True)
class ObserverSettings(CancellingSettings):
    """How ŵ is filtered and how much of it is cancelled."""

    gain: float = 1.0
    """how much of ŵ is cancelled"""
    bandwidth: float = 1.0
    """ω of the Q filter, in radians per step"""

    def __post_init__(self) -> None:
        for name in ("gain", "bandwidth"):
            checks.positive(name, checks.finite_array(name, getattr(self, name), ndim=0))


class Filter(Protocol):
    """From ŵ_t to the action to take off at t+1."""

    def begin(self) -> None:
        """No wind is known."""

    def __call__(self, w_hat: np.ndarray, B_inverse: np.ndarray) -> np.ndarray:
        """(d_u,), in actions scaled to [-1, 1]."""
        ...

    def arrays(self) -> Arrays:
        """What it remembers."""
        ...

    def restore(self, arrays: Arrays) -> None:
        """Goes on from that."""


class QFilter:
    """gain·B⁺d, d the low-passed ŵ."""

    def __init__(self, settings: ObserverSettings) -> None:
        self._gain = float(settings.gain)
        self._share = 1.0 - np.exp(-float(settings.bandwidth))
        self.begin()

    def begin(self) -> None:
        """No wind is known."""
        self.d: Any = np.zeros(())

    def __call__(self, w_hat: np.ndarray, B_inverse: np.ndarray) -> np.ndarray:
        """See the module."""
        self.d = self.d + self._share * (w_hat - self.d)
        return np.asarray(self._gain * B_inverse @ self.d)

    def arrays(self) -> Arrays:
        """See Filter."""
        return {"d": self.d}

    def restore(self, arrays: Arrays) -> None:
        """See Filter."""
        self.d = arrays["d"]


class Cancelling:
    """u = base - filter(ŵ, B⁺): the law around a filter and an input map."""

    def __init__(
        self, take_off: Filter, input_map: InputMap, settings: CancellingSettings, seed: Any
    ) -> None:
        d_w, self._d_u = input_map.B.shape
        self.input_map, self._filter, self._settings = input_map, take_off, settings
        self._weights = np.ones(d_w)
        if settings.weights is not None:
            self._weights = checks.positive("weights", settings.weights, zero=True)
            checks.shape("weights", self._weights, (d_w,), "one for each number of ŵ")
        self._sigma = _dither(settings, input_map)
        self._seed = seed
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
        found, most = self.input_map, self._settings.authority
        if step.learn:
            found.after(step, w_hat)
        B_inverse = inverse(found.B, self._weights, found.doubt(self._weights))
        self._correction = -np.nan_to_num(np.clip(self._filter(w_hat, B_inverse), -most, most))

    def arrays(self) -> Arrays:
        """See Law."""
        own = {"correction": self._correction}
        own |= {f"filter/{name}": each for name, each in self._filter.arrays().items()}
        return own | {f"map/{name}": each for name, each in self.input_map.arrays().items()}

    def header(self) -> dict[str, Any]:
        """See Law."""
        return {"generator": self._rng.bit_generator.state}

    def restore(self, arrays: Arrays, header: dict[str, Any]) -> None:
        """See Law."""

        def under(part: str) -> Arrays:
            return {
                name.removeprefix(part): each
                for name, each in arrays.items()
                if name.startswith(part)
            }

        self._rng.bit_generator.state = header["generator"]
        self._correction = arrays["correction"]
        self._filter.restore(under("filter/"))
        self.input_map.restore(under("map/"))


def _dither(settings: CancellingSettings, input_map: InputMap) -> float:
    """The noise to add: for an online map alone."""
    online, sigma = isinstance(input_map, Regressed), settings.sigma
    if sigma is None:
        return settings.dither if online else 0.0
    value = float(checks.positive("sigma", checks.finite_array("sigma", sigma, ndim=0), zero=True))
    if value and not online:
        raise ValueError(f"sigma is for input_map='online', which learns from it; got {sigma!r}")
    return value
