"""Whether ŵ can be told from its past: where it cannot be, M has nothing to act on.

No wind, and noise that is drawn anew at every step, leave nothing to gain, and exploring there only
costs. So nothing is explored before the past has told ŵ better than 0 does.
"""

from typing import Any

import numpy as np

from windward import checks

LEAST = 60
"""predictions without which nothing is said"""
SHARE = 0.1
"""of a coordinate's square that its past must tell"""
SURE = 5.0
"""standard errors by which it must tell something"""
EVERY = 10
"""steps between regressions"""
BOUND = 2.0
"""largest values of its past that a prediction may have: weights fitted to a calm are any size"""
STILL = 1e-9
"""share of a square that is as good as nothing"""
RIDGE = 1e-3
"""over the mean square of what is regressed on"""
NUMBERS = ("gram", "cross", "weights", "gain", "gain2", "squares", "sums", "window")
COUNTS = ("steps", "predicted")


class Predictable:
    """Each coordinate of ŵ is predicted from its own last h values, regressed on as they come.

    With p_t the prediction that was made before ŵ_t was seen, g_t = ŵ_t² - (ŵ_t - p_t)² is what it
    gains over 0. The past tells a coordinate if the mean of g is more than `SHARE` of that of ŵ²,
    and than `SURE` standard errors of its own.

    >>> rng, slow, noise = np.random.default_rng(0), Predictable(5, 2), Predictable(5, 2)
    >>> for t in range(200):
    ...     slow.see(np.array([np.sin(t / 10), rng.normal()]))
    ...     noise.see(rng.normal(size=2))
    >>> slow.told > 0.9, noise.told
    (True, 0.0)
    """

    def __init__(self, h: int, d_w: int) -> None:
        self.h, self.d_w = h, d_w
        self.gram: np.ndarray = np.zeros((d_w, h, h))
        self.cross: np.ndarray = np.zeros((d_w, h))
        self.weights: np.ndarray = np.zeros((d_w, h))
        self.gain, self.gain2, self.squares = np.zeros(d_w), np.zeros(d_w), np.zeros(d_w)
        self.sums = np.zeros(d_w)
        self.window: np.ndarray = np.zeros((d_w, h))
        """newest first"""
        self.steps = self.predicted = 0

    def cut(self) -> None:
        """What comes next does not follow on what was."""
        self.window, self.steps = np.zeros((self.d_w, self.h)), 0

    def see(self, w_hat: np.ndarray) -> None:
        """One more step; numbers too large to be squared are passed over."""
        w_hat = np.asarray(w_hat, dtype=np.float64)  # squares of less say that a constant moves
        with np.errstate(over="ignore"):
            square = np.square(w_hat)
        if not np.isfinite(square.sum()):
            self.cut()
            return
        if self.steps >= self.h:  # a beginning has a past of zeros
            bound = BOUND * np.abs(self.window).max(axis=1)
            guess = (self.weights * self.window).sum(axis=1)
            missed = w_hat - np.clip(guess, -bound, bound)
            gain = square - np.square(missed)
            self.gain, self.gain2 = self.gain + gain, self.gain2 + np.square(gain)
            self.squares, self.predicted = self.squares + square, self.predicted + 1
            self.sums = self.sums + w_hat
            self.gram = self.gram + self.window[:, :, None] * self.window[:, None]
            self.cross = self.cross + self.window * w_hat[:, None]
            if self.predicted % EVERY == 0:
                size = np.trace(self.gram, axis1=1, axis2=2)[:, None, None] / self.h
                ridge = np.where(size > 0, RIDGE * size, 1.0) * np.eye(self.h)
                self.weights = np.linalg.solve(self.gram + ridge, self.cross[..., None])[..., 0]
        self.window = np.concatenate([w_hat[:, None], self.window[:, :-1]], axis=1)
        self.steps += 1

    @property
    def told(self) -> float:
        """The share of ŵ² that the past tells, of the coordinate of which it tells most; or 0."""
        n = self.predicted
        if n < LEAST:
            return 0.0
        error = np.sqrt(np.maximum(self.gain2 - self.gain**2 / n, 0.0))  # of the sum
        sure = (self.gain > SHARE * self.squares) & (self.gain > SURE * error)
        return float((self.gain[sure] / self.squares[sure]).max(initial=0.0))

    @property
    def oddities(self) -> list[str]:
        """What makes regressions on ŵ singular, in words; nothing where nothing does."""
        said, still = [], self.squares <= STILL * self.squares.max(initial=0.0)
        if still.any():
            said.append(
                f"{int(still.sum())} of the {self.d_w} numbers of the disturbance do not move, and "
                "regressions learn nothing from them"
            )
        spread = self.squares - self.sums**2 / max(self.predicted, 1)
        if (spread <= STILL * self.squares)[~still].all():
            said.append("the disturbance is constant: its lags say one thing, and M is a bias")
        return said

    def memory(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        numbers = {name: getattr(self, name).tolist() for name in NUMBERS}
        return numbers | {name: getattr(self, name) for name in COUNTS}

    def restore(self, memory: Any) -> None:
        """Goes on from what `memory` gave; what does not fit changes nothing."""
        found: dict[str, Any] = {}
        for name in NUMBERS:
            found[name] = checks.finite_array(name, memory[name])
            checks.shape(name, found[name], getattr(self, name).shape, "as h and d_w say")
        found |= {name: checks.integer(name, memory[name], 0) for name in COUNTS}
        for name, value in found.items():
            setattr(self, name, value)
