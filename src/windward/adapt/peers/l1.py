"""L1 adaptive augmentation with the piecewise-constant law (Hovakimyan and Cao 2010, chapter 3.3).

A predictor x̂ of the state runs beside the environment. With its error e = x̂ - x,

    x̂_{t+1} = f(x_t, u_t) + A_s e_t + Φ σ̂_t,    A_s = e^{-a} I,  Φ = (1 - e^{-a})/a · I
    e_{t+1} = A_s e_t + Φ σ̂_t - ŵ_t

as ŵ_t = x_{t+1} - f(x_t, u_t): it needs ŵ alone, not the state. The law takes off what is left,

    σ̂_{t+1} = -Φ⁻¹ A_s e_{t+1},    η_{t+1} = η_t + (1 - e^{-ω})(B⁺σ̂_{t+1} - η_t),    u = base - η

and the low-pass filter, on the matched part B⁺σ̂, parts fast adaptation from what the actuator is
asked for. The unmatched part (I - BB⁺)σ̂ is left to the base policy.
"""

from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks
from windward.adapt.peers.cancelling import CancellingSlot
from windward.adapt.peers.laws import AUTHORITY


class PiecewiseConstant:
    """η, the low-passed matched part of σ̂; `a` is the rate of the predictor's error, per step."""

    def __init__(self, a: float, bandwidth: float) -> None:
        for name, value in (("a", a), ("bandwidth", bandwidth)):
            checks.positive(name, checks.finite_array(name, value, ndim=0))
        self._A_s, self._Phi = np.exp(-float(a)), -np.expm1(-float(a)) / float(a)
        self._share = 1.0 - np.exp(-float(bandwidth))
        self.begin()

    def begin(self) -> None:
        """The predictor starts where the environment does, and no wind is known."""
        self.e: Any = 0.0
        self.sigma_hat: Any = 0.0
        self.eta: Any = 0.0

    def __call__(self, w_hat: np.ndarray, B_inverse: np.ndarray) -> np.ndarray:
        """See the module."""
        self.e = self._A_s * self.e + self._Phi * self.sigma_hat - w_hat
        self.sigma_hat = -self._A_s / self._Phi * self.e
        matched = np.clip(B_inverse @ self.sigma_hat, -AUTHORITY, AUTHORITY)
        self.eta = self.eta + self._share * (matched - self.eta)
        return np.asarray(self.eta)


class L1Augmentation(CancellingSlot):
    """L1 adaptive control on top of a policy, after Cheng et al. 2022, by the law of this module.

    Arguments are those of `DisturbanceObserver`, but for: `a`, the rate of the predictor's error,
    per step (σ̂ is ŵ times a/(e^a - 1), near 1 for small a), and `bandwidth`, ω of the filter on the
    matched part.
    """

    def __init__(
        self,
        env: gym.Env,
        signal: Any = "pd3",
        *,
        model: Any = None,
        simulator: dict[str, Any] | None = None,
        input_map: Any = "auto",
        a: float = 0.01,
        bandwidth: float = 1.0,
        weights: Any = None,
        sigma: float | None = None,
        seed: int = 0,
    ) -> None:
        given = {
            "signal": signal, "model": model, "simulator": simulator, "input_map": input_map,
            "a": a, "bandwidth": bandwidth, "weights": weights, "sigma": sigma, "seed": seed,
        }  # fmt: skip
        super().__init__(env, PiecewiseConstant(a, bandwidth), given)
