"""A disturbance observer: what was pushed a step ago is pushed back now.

d_t = d_{t-1} + (1 - e^{-ω})(ŵ_t - d_{t-1}),    u_{t+1} = base - gain·B⁺ d_t

(Ohnishi 1987; Chen, Yang, Guo, Li 2016): a low-pass Q filter on ŵ, and the inverse of the input map
by least squares. What B does not reach is left to the base policy.
"""

from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks
from windward.adapt.peers.cancelling import CancellingSlot


class QFilter:
    """gain·B⁺d, d the low-passed ŵ."""

    def __init__(self, gain: float, bandwidth: float) -> None:
        for name, value in (("gain", gain), ("bandwidth", bandwidth)):
            checks.positive(name, checks.finite_array(name, value, ndim=0))
        self._gain, self._share = float(gain), 1.0 - np.exp(-float(bandwidth))
        self.begin()

    def begin(self) -> None:
        """No wind is known."""
        self.d: Any = 0.0

    def __call__(self, w_hat: np.ndarray, B_inverse: np.ndarray) -> np.ndarray:
        """See the module."""
        self.d = self.d + self._share * (w_hat - self.d)
        return np.asarray(self._gain * B_inverse @ self.d)


class DisturbanceObserver(CancellingSlot):
    """Subtracts the last ŵ, smoothed, through the inverse of the input map B.

    The action given to `step` is the base action, and `info["windward"]` and faults are as in
    `RobustWrapper`. Nothing is learned of costs: it cancels, whether that pays or not.

    Args:
      env: an environment with bounded Box actions and Box observations.
      signal, model, simulator: as in `RobustWrapper`; PD1 has no input map.
      input_map: B, (d_w, d_u), for actions scaled to [-1, 1]; or "simulator" (differences of the
        simulator around each step), "values" (of PD2's Q), "online" (regressed on executed actions,
        for a ŵ in the coordinates of the observation), "auto" for the first that can be had.
      gain: how much of ŵ is cancelled. bandwidth: ω of the Q filter, in radians per step.
      weights: how much each coordinate of ŵ matters where not all can be cancelled.
      sigma: standard deviation of the noise that an online map learns from. seed: of that noise.

    >>> env = DisturbanceObserver(gym.make("Pendulum-v1"))
    >>> _ = env.reset(seed=0)
    >>> _ = env.step(np.zeros(1, np.float32))
    >>> env.B.round(2)  # a torque of 2 adds 0.3 to the velocity
    array([[0.02],
           [0.3 ]])
    """

    def __init__(
        self,
        env: gym.Env,
        signal: Any = "pd3",
        *,
        model: Any = None,
        simulator: dict[str, Any] | None = None,
        input_map: Any = "auto",
        gain: float = 1.0,
        bandwidth: float = 1.0,
        weights: Any = None,
        sigma: float | None = None,
        seed: int = 0,
    ) -> None:
        given = {
            "signal": signal, "model": model, "simulator": simulator, "input_map": input_map,
            "gain": gain, "bandwidth": bandwidth, "weights": weights, "sigma": sigma, "seed": seed,
        }  # fmt: skip
        super().__init__(env, QFilter(gain, bandwidth), given)
