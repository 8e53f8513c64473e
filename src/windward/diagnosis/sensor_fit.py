"""The fit of θ through noise on sensors, with the states smoothed along.

    y_t = x_t + n_t,   x_{t+1} = f_θ(x_t, u_t) + w_t

Residuals y_{t+1} - f_θ(y_t, u_t) are biased: n_t is in f and in its Jacobian. Here f is linearised
along the smoothed states, and a Kalman filter turns what was measured into innovations that are
white, with their derivatives in θ; Gauss-Newton on those is maximum likelihood. Filter, smoother
and Gauss-Newton take turns. w is small and has heavy tails: it takes up what the linearisation
misses at contacts.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windward.diagnosis import changes
from windward.diagnosis.blocks import shifted
from windward.diagnosis.explanation import Explanation, Identified, Settings
from windward.diagnosis.fit import MAD, Fitted, energy, huber, interval_width
from windward.diagnosis.kalman import Linear, kalman
from windward.diagnosis.parameters import atoms_of
from windward.diagnosis.residuals import STEP, Residuals, Rows
from windward.diagnosis.selection import added, weakest
from windward.diagnosis.sensors import Noise, SensorSettings
from windward.diagnosis.track import Track

STEPS = 1e-4, 1e-3
"""of finite differences in positions and velocities"""


class Variances(NamedTuple):
    """Of the noise (c,), of w (c,), and how much larger w's is in a step (b, t, c)."""

    R: np.ndarray
    Q: np.ndarray
    tails: np.ndarray


class Quadratic(NamedTuple):
    """The loss around θ."""

    hessian: np.ndarray  # prior included
    score: np.ndarray
    scores: np.ndarray  # (blocks, p)
    bends: np.ndarray  # (blocks, p, p) Hessians of blocks
    loss: float

    def covariance(self) -> np.ndarray:
        """Of φ: what the innovations say, and how it moves if a block is left out (jackknife).

        What is known from a few steps at contacts alone hangs on how f is linearised there.
        """
        p, blocks = len(self.score), len(self.scores)
        inverse = np.linalg.inv(self.hessian)
        moved = np.array([
            np.linalg.solve(self.hessian - bend + 1e-9 * np.eye(p), score)
            for bend, score in zip(self.bends, self.scores, strict=True)
        ])  # fmt: skip
        moved = moved - moved.mean(axis=0)
        return np.asarray(inverse + (blocks - 1) / blocks * moved.T @ moved)


class SensorFit:
    """θ through noisy sensors, on the rows of a track."""

    def __init__(self, track: Track, settings: SensorSettings) -> None:
        self.track, self.settings = track, settings
        self.variances: Variances | None = None

    def fitted(
        self, basis: np.ndarray, theta: np.ndarray, rounds: int
    ) -> tuple[np.ndarray, Quadratic]:
        """(φ of θ = basis φ, the loss around it); smooths the track along."""
        s = self.settings
        phi = np.linalg.lstsq(basis, theta, rcond=None)[0]
        for turn in range(rounds):
            line = self.linear(basis @ phi, basis)
            self._update(line)
            model = self.quadratic(line, phi)
            step = -np.linalg.solve(model.hessian, model.score)
            error = np.sqrt(np.diag(np.linalg.inv(model.hessian)))
            largest = float(np.abs(step).max(initial=0.0))
            step *= min(1.0, s.longest / max(largest, 1e-300))
            phi = phi + step
            self._move(line.after(step), basis @ phi)
            if turn > 0 and (np.abs(step) < s.settled * error + 1e-4).all():
                break
        return phi, model

    def begin(self, basis: np.ndarray) -> np.ndarray:
        """A first φ, from some of the pieces; the sizes of noise and w stay for all."""
        s = self.settings
        if self.track.kept.sum() < 1.5 * s.first:
            return self.fitted(basis, np.zeros(len(basis)), s.rounds[0])[0]
        some = SensorFit(self.track.some(s.first), s)
        phi = some.fitted(basis, np.zeros(len(basis)), s.rounds[0])[0]
        assert some.variances is not None
        self.variances = some.variances._replace(
            tails=np.ones(self.track.kept.shape + some.variances.R.shape)
        )
        return phi

    def linear(self, theta: np.ndarray, basis: np.ndarray) -> Linear:
        """f along the track, with its derivatives by finite differences, in one batch."""
        track = self.track
        x, u = track.x[:, :-1][track.kept], track.u
        steps = np.where(track.position, *STEPS)
        # A bias of sensors does nothing to the states.
        physical = [i for i in range(len(theta)) if i not in track.residuals.sensed]
        acting = np.flatnonzero(basis[physical].any(axis=0))
        thetas = [theta] * (1 + len(steps)) + [theta + STEP * each for each in basis.T[acting]]
        starts = np.repeat(x[None], len(thetas), axis=0)
        for i, (column, step) in enumerate(zip(track.columns, steps, strict=True)):
            starts[1 + i, :, column] += step
        found = track.residuals.physics(thetas, starts, u)
        moved = track.gap(found[1:], found[:1])
        moved = np.where(np.isfinite(moved), moved, 0.0)
        c = len(steps)
        A = np.moveaxis(moved[:c] / steps[:, None, None], 0, -1)
        G = np.zeros((*A.shape[:2], basis.shape[1]))
        G[..., acting] = np.moveaxis(moved[c:] / STEP, 0, -1)
        after = track.x[:, 1:][track.kept]
        d = track.gap(after, np.where(np.isfinite(found[0]), found[0], after))
        bias = track.residuals.bias(theta)
        M = np.zeros((len(track.columns), basis.shape[1]))
        for k, column in enumerate(basis.T):
            M[:, k] = track.residuals.bias(column)[track.columns]
        o = track.gap(track.y - bias, track.x) * track.seen[..., None]
        return Linear(track.full(A), track.full(G), track.full(d), o, track.kept, M)

    def _update(self, line: Linear) -> None:
        """Sizes of noise and w that make what was measured likely."""
        s, kept, seen = self.settings, line.kept, self.track.seen
        if self.variances is None:
            size = MAD * np.median(np.abs(line.d[kept]), axis=0) + 1e-9
            noise = np.square(line.o[seen]).mean(axis=0)[self.track.position].mean()
            R = np.full(line.d.shape[-1], float(noise) + 1e-12)
            self.variances = Variances(R, np.square(size), np.ones(line.d.shape))
        still = line.after(np.zeros(line.G.shape[-1]))
        for _ in range(s.updates):
            R, Q, tails = self.variances
            found = kalman(still, R, Q * tails)
            tails = np.clip((s.tails + found.defects / Q) / (s.tails + 1), 0.5, 1e6)
            Q = np.maximum((found.defects / tails)[kept].mean(axis=0), 1e-16)
            each = (np.square(line.o - found.states) + found.variances)[seen]
            each = np.minimum(each, 9 * np.median(each, axis=0)).mean(axis=0)
            position = self.track.position
            R = np.where(position, np.median(each[position]), np.median(each[~position])) + 1e-16
            self.variances = Variances(R, Q, tails)
        # The size of w falls slowly by itself: jump, where that is as likely.
        R, Q, tails = self.variances
        before, after = (
            kalman(still, R, share * Q * tails, smooth=False).likelihood
            for share in (1.0, s.smaller)
        )
        if after > before:
            self.variances = Variances(R, s.smaller * Q, tails)

    def quadratic(self, line: Linear, phi: np.ndarray) -> Quadratic:
        """The loss of the innovations around φ, robust, with the prior."""
        assert self.variances is not None
        R, Q, tails = self.variances
        found = kalman(line, R, Q * tails, smooth=False)
        kept = line.kept
        z, slopes = found.z[kept], found.slopes[kept]
        size = np.maximum(MAD * np.median(np.abs(z), axis=0), 1.0)
        z, slopes = z / size, slopes / size[:, None]
        weight = 1 / np.maximum(1.0, np.abs(z) / self.settings.huber)
        hessian = np.einsum("tc,tcp,tcq->pq", weight, slopes, slopes) + np.eye(len(phi))
        each = np.einsum("tc,tcp->tp", weight * z, slopes)
        block = self._blocks(kept)
        count = int(block.max()) + 1
        scores, bends = np.zeros((count, len(phi))), np.zeros((count, len(phi), len(phi)))
        np.add.at(scores, block, each)
        for b in range(count):
            own = block == b
            bends[b] = np.einsum("tc,tcp,tcq->pq", weight[own], slopes[own], slopes[own])
        loss = float(huber(z, self.settings.huber).sum())
        return Quadratic(hessian, each.sum(axis=0) + phi, scores, bends, loss)

    def _blocks(self, kept: np.ndarray) -> np.ndarray:
        """Which block of consecutive steps each kept step is in."""
        size = max(1, min(self.settings.block, int(kept.sum()) // 10))
        inside = (np.cumsum(kept, axis=1) - 1) // size
        piece = np.broadcast_to(np.arange(len(kept))[:, None], kept.shape)
        return np.unique((piece * (kept.shape[1] + 1) + inside)[kept], return_inverse=True)[1]

    def _move(self, line: Linear, theta: np.ndarray) -> None:
        """Smooths the states; in pieces where the line was too short, by a share of the way."""
        assert self.variances is not None
        R, Q, tails = self.variances
        track = self.track
        way = kalman(line, R, Q * tails).states * track.seen[..., None]
        shift = track.residuals.bias(theta)

        def loss(share: np.ndarray) -> np.ndarray:
            x = track.x.copy()
            x[..., track.columns] += share[:, None, None] * way
            w = (x[:, 1:, track.columns] - track.predicted(x, theta)) * line.kept[..., None]
            n = track.gap(track.y - shift, x) * track.seen[..., None]
            s = self.settings.tails
            heavy = 0.5 * (s + 1) * np.log1p(np.square(w) / Q / s)
            return np.asarray(heavy.sum(axis=(1, 2)) + 0.5 * (np.square(n) / R).sum(axis=(1, 2)))

        share = np.ones(len(way))
        before, now = loss(0 * share), loss(share)
        for less in (0.4, 0.1, 0.0):
            if not (now > before).any():
                break
            share = np.where(now > before, less, share)
            now = loss(share) if less else before
        track.x[..., track.columns] += share[:, None, None] * way

    @property
    def noise(self) -> Noise:
        """What sensors add."""
        assert self.variances is not None
        position, R = self.track.position, self.variances.R
        return Noise(float(np.sqrt(R[position][0])), float(np.sqrt(R[~position][0])))

    @property
    def windless(self) -> bool:
        """Whether the states follow from each other but for the error of the linearisation."""
        assert self.variances is not None
        R, Q, _ = self.variances
        speed = ~self.track.position
        return bool(np.sqrt(np.median(Q[speed] / R[speed])) < self.settings.windless)


class ThroughNoise:
    """The fewest changes where sensors are noisy."""

    def __init__(
        self, residuals: Residuals, rows: Rows, core: Sequence[int], settings: Settings
    ) -> None:
        self.residuals, self.rows, self.settings = residuals, rows, settings
        self.core = sorted({*core, *residuals.sensed})
        self.atoms = atoms_of(self.residuals.parameters)
        self.A = changes.matrix(self.atoms, self.residuals.count)

    def identified(self) -> Identified:
        """What was found."""
        s = self.settings
        delay = self._delay()
        rows = shifted(self.rows, delay)
        track = Track(self.residuals, rows, s.sensors.piece)
        track.smooth_positions()
        fit = SensorFit(track.some(s.sensors.steps), s.sensors)
        core = self.residuals.unit(self.core)
        theta = core @ fit.begin(core)
        if fit.track.kept.sum() >= 1.5 * s.sensors.first:
            theta = core @ fit.fitted(core, theta, s.sensors.rounds[1])[0]
        chosen, whole = self._fewest(fit, theta)
        own = self.A[:, chosen]
        while True:
            phi, model = fit.fitted(own, theta, s.sensors.rounds[2])
            spread = self._covariance(model)
            weak = weakest(phi, spread, s)
            if weak is None:
                break
            chosen.pop(weak)
            own = self.A[:, chosen]
        theta = own @ phi
        smooth = fit.track.smoothed()
        hessian, (estimates, errors) = added(*whole)
        nominal = energy(self.residuals.at([np.zeros(len(theta))], smooth)[0])
        fitted = Fitted(theta, phi, model.hessian, model.score, model.scores, model.loss,
                        np.zeros(0), 0)  # fmt: skip
        explanation = Explanation(fitted, 0.0, tuple(range(len(theta))), delay)
        return Identified(
            theta, tuple(self.atoms[i] for i in chosen), spread, phi, len(model.scores),
            explanation, nominal, 0.0, estimates, s.sensors.doubt * errors, hessian, smooth,
            noise=fit.noise, windless=fit.windless, notes=self._notes(fit),
        )  # fmt: skip

    def _delay(self) -> int:
        """By how much actions come late: where the steps miss least."""
        s = self.settings
        track = Track(self.residuals, self.rows, s.sensors.piece)
        track.smooth_positions()
        smooth = track.smoothed()
        zero = np.zeros(self.residuals.count)
        sizes = []
        for delay in range(s.delays + 1):
            rows = shifted(smooth, delay)
            if rows.size < 16:
                break
            count = min(rows.size, s.sensors.few)
            few = rows.take(np.unique(np.linspace(0, rows.size - 1, count).astype(int)))
            r = self.residuals.at([zero], few)[0]
            sizes.append(float(np.nanmedian(np.abs(r), axis=0).mean()))
        if not sizes:
            return 0
        best = int(np.argmin(sizes))
        return best if sizes[best] < s.late * sizes[0] else 0

    def _fewest(
        self, fit: SensorFit, theta: np.ndarray
    ) -> tuple[list[int], tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(chosen atoms, (Hessian, score, θ) of all parameters)."""
        s = self.settings
        unit = self.residuals.unit(range(self.residuals.count))
        model = fit.quadratic(fit.linear(theta, unit), theta)
        at = theta - np.linalg.solve(model.hessian, model.score)
        spread = self._covariance(model)
        chosen = changes.fewest(at, spread, self.A, s.price, s.sensors.resolution)
        return list(chosen), (model.hessian, model.score, theta)

    def _covariance(self, model: Quadratic) -> np.ndarray:
        """Of fitted numbers, wider than they say: f is curved, and blocks are few."""
        few = interval_width(len(model.scores)) / interval_width(1000)
        return (self.settings.sensors.doubt * few) ** 2 * model.covariance()

    def _notes(self, fit: SensorFit) -> tuple[str, ...]:
        least = 100 * np.expm1(self.settings.sensors.resolution * self.settings.sizes.factor)
        return (
            f"{fit.noise}; the fit goes through it, but factors may be off by {least:.1g} %, those "
            "of light bodies by more, and a wind of the size of the noise does not show",
        )
