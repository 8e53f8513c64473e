"""L1 adaptive augmentation with the piecewise-constant law (Hovakimyan and Cao 2010, chapter 3.3).

A predictor x̂ of the state runs beside the environment. With its error e = x̂ - x,

    x̂_{t+1} = f(x_t, u_t) + A_s e_t + Φ σ̂_t,    A_s = e^{-a} I,  Φ = (1 - e^{-a})/a · I
    e_{t+1} = A_s e_t + Φ σ̂_t - ŵ_t

as ŵ_t = x_{t+1} - f(x_t, u_t): it needs ŵ alone, not the state. The law takes off what is left,

    σ̂_{t+1} = -Φ⁻¹ A_s e_{t+1},    η_{t+1} = η_t + (1 - e^{-ω})(B⁺σ̂_{t+1} - η_t),    u = base - η

and the low-pass filter, on the matched part B⁺σ̂, parts fast adaptation from what the actuator is
asked for. The unmatched part (I - BB⁺)σ̂ is left to the base policy.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from windward import checks
from windward.adapt.learners.base import Arrays
from windward.adapt.learners.observer import CancellingSettings


@dataclass(frozen=True)
class L1Settings(CancellingSettings):
    """The predictor's rate and the filter."""

    a: float = 0.01
    """rate of the predictor's error, per step: σ̂ is ŵ times a/(e^a - 1), near 1 for small a"""
    bandwidth: float = 1.0
    """ω of the filter on the matched part, in radians per step"""

    def __post_init__(self) -> None:
        for name in ("a", "bandwidth"):
            checks.positive(name, checks.finite_array(name, getattr(self, name), ndim=0))


class PiecewiseConstant:
    """η, the low-passed matched part of σ̂."""

    def __init__(self, settings: L1Settings) -> None:
        a = float(settings.a)
        self._A_s, self._Phi = np.exp(-a), -np.expm1(-a) / a
        self._share, self._most = 1.0 - np.exp(-float(settings.bandwidth)), settings.authority
        self.begin()

    def begin(self) -> None:
        """The predictor starts where the environment does, and no wind is known."""
        self.e: Any = np.zeros(())
        self.sigma_hat: Any = np.zeros(())
        self.eta: Any = np.zeros(())

    def __call__(self, w_hat: np.ndarray, B_inverse: np.ndarray) -> np.ndarray:
        """See the module."""
        self.e = self._A_s * self.e + self._Phi * self.sigma_hat - w_hat
        self.sigma_hat = -self._A_s / self._Phi * self.e
        matched = np.clip(B_inverse @ self.sigma_hat, -self._most, self._most)
        self.eta = self.eta + self._share * (matched - self.eta)
        return np.asarray(self.eta)

    def arrays(self) -> Arrays:
        """See Filter."""
        return {"e": self.e, "sigma_hat": self.sigma_hat, "eta": self.eta}

    def restore(self, arrays: Arrays) -> None:
        """See Filter."""
        self.e, self.sigma_hat, self.eta = (arrays[name] for name in ("e", "sigma_hat", "eta"))
