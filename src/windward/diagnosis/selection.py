"""From an explanation to the fewest changes that do as well, fitted again on all steps."""

from typing import NamedTuple

import numpy as np

from windward.diagnosis import changes
from windward.diagnosis.blocks import joined, split
from windward.diagnosis.explanation import Explanation, Identified, Settings, nothing_fitted
from windward.diagnosis.fit import (
    Fitted,
    Whitening,
    covariance,
    energy,
    gauss_newton,
    posterior,
    quadratic,
    whitened,
)
from windward.diagnosis.parameters import Atom, atoms_of
from windward.diagnosis.places import blown
from windward.diagnosis.residuals import Residuals, Rows


class Data(NamedTuple):
    """Recorded steps with the delay of an explanation, and what they are measured against."""

    rows: Rows
    fit: Rows
    """blocks to fit from"""
    check: Rows
    """others, to judge by"""
    nominal: float
    """mean square deviation from the nominal simulator without a delay"""

    def many(self, settings: Settings, parameters: int) -> Rows:
        """Rows enough for fits through noise: all of them where a Jacobian is cheap."""
        most = max(settings.many, settings.columns // max(parameters, 1))
        if self.rows.size <= 1.2 * most:
            return self.rows
        return joined(*split(self.rows, most // 2, settings.block))


def left(
    residuals: Residuals, theta: np.ndarray, how: Whitening, rows: Rows, nominal: float
) -> float:
    """Share of the deviation that is left on rows."""
    r = residuals.at([theta], rows)[0]
    how = how._replace(past=how.past if how.effect is None else 0)
    fresh, _, kept = whitened(r, np.zeros((*r.shape, 0)), rows, how, noise=False)
    return energy(fresh[kept]) / max(nominal, 1e-300) if kept.any() else float("inf")


class Selection:
    """The fewest changes."""

    def __init__(self, residuals: Residuals, data: Data, settings: Settings) -> None:
        self.residuals, self.data, self.settings = residuals, data, settings
        self.count = residuals.count

    def reduced(self, best: Explanation, nominal: float) -> Identified:
        """The fewest changes that do as well as an explanation."""
        s, data = self.settings, self.data
        atoms = [
            each
            for each in atoms_of(self.residuals.parameters)
            if set(each.columns) <= set(best.columns)
        ]
        A = changes.matrix(atoms, self.count)
        own = list(best.columns)
        # Under noise every step counts; what is exact shows in a few.
        noise = not self._enough(best)
        (fit, how), (check, judged) = (
            blown(self.residuals, best, rows, s)
            for rows in (data.many(s, self.count) if noise else data.fit, data.check)
        )
        blowing = (fit, how) if noise else None

        def around(finer: float) -> tuple[Fitted, np.ndarray]:
            """The loss at the fit, and how well it tells the parameters."""
            # Sharper than finite differences are, what has no effect would seem to have one.
            model = quadratic(
                self.residuals, fit, self.residuals.unit(own), best.fitted.theta[own], s.fit, how,
                central=not noise, floor=s.sharpest / finer * np.sqrt(data.nominal),
                steps=2 if noise else 0,
            )  # fmt: skip
            return model, posterior(model)

        model, spread = around(1.0)
        # One more step, with the sharper derivatives: what is exact should look so.
        phi = model.phi - np.linalg.solve(model.hessian, model.score)
        whole = self._left(best.fitted.theta, judged, check)
        polished = self._left(self.residuals.unit(own) @ phi, judged, check)
        if not polished < whole and not noise:
            phi = model.phi
        whole = min(whole, polished)
        start = self.residuals.unit(own) @ phi
        chosen: tuple[int, ...] = ()
        for finer in s.finer:
            if finer > 1 and not noise:
                spread = around(finer)[1]
            chosen = changes.fewest(phi, spread, A[own], s.price / finer, s.resolution / finer)
            solved = self._refit(start, A[:, list(chosen)], fit, how)
            share = self._left(solved.theta, judged, check)
            if share <= s.alike * whole + (s.exact if best.wind else s.rounding):
                break
        if best.wind:
            # A wind that the changes themselves make unnecessary was none.
            calm = self._refit(solved.theta, A[:, list(chosen)], data.fit, Whitening())
            share = self._left(calm.theta, Whitening(), data.check)
            if share < s.exact or share <= whole:
                best = best._replace(
                    fitted=best.fitted._replace(theta=calm.theta), wind="", axes=()
                )
                blowing = None
        if blowing is None:
            few = joined(data.fit, data.check)
            rows = few if self._enough(best) else data.many(s, self.count)
            blowing = blown(self.residuals, best, rows, s)
        found = self._final(best, atoms, A, list(chosen), solved.theta, nominal, *blowing)
        notes = []
        if not best.derived:
            notes.append("masses are not those that the model's constants were derived from: "
                         "they were written without mj_setConst")  # fmt: skip
        if noise and set(found.chosen) == {atoms[i] for i in chosen}:
            swaps = changes.alternatives(phi, spread, A[own], chosen, s.resolution)
            notes += [f"noise does not tell {atoms[i].name} from {atoms[j].name}: one or the other"
                      for i, j in swaps[:2]]  # fmt: skip
        return found._replace(notes=tuple(notes))

    def _enough(self, best: Explanation) -> bool:
        """Whether no more steps are needed than an explanation was found from."""
        return best.left < self.settings.exact and best.wind != "action"

    def _left(self, theta: np.ndarray, how: Whitening, rows: Rows) -> float:
        return left(self.residuals, theta, how, rows, self.data.nominal)

    def _refit(self, start: np.ndarray, A: np.ndarray, rows: Rows, how: Whitening) -> Fitted:
        return gauss_newton(self.residuals, rows, A, start, self.settings.fit, how)

    def _final(
        self,
        best: Explanation,
        atoms: list[Atom],
        A: np.ndarray,
        chosen: list[int],
        theta: np.ndarray,
        nominal: float,
        rows: Rows,
        how: Whitening,
    ) -> Identified:
        """Fits the chosen changes on all steps; drops those that are then too small to report."""
        s, data = self.settings, self.data
        while True:
            solved = self._refit(theta, A[:, chosen], rows, how)
            spread = covariance(solved, s.accurate[bool(best.wind)])
            weak = weakest(solved.phi, spread, s)
            if weak is None:
                break
            chosen.pop(weak)
        share = left(self.residuals, solved.theta, how, rows, max(nominal, 1e-300))
        near, how = blown(self.residuals, best, data.fit, s)
        hessian, (estimates, errors) = self.everything(solved.theta, near, how)
        return Identified(
            solved.theta, tuple(atoms[i] for i in chosen), spread, solved.phi, len(solved.scores),
            best, nominal, share, estimates, errors, hessian, data.rows,
        )  # fmt: skip

    def everything(
        self, theta: np.ndarray, rows: Rows, how: Whitening
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Hessian of all parameters, and what each would be if it were added to the others."""
        basis = self.residuals.unit(range(self.count))
        found = quadratic(
            self.residuals, rows, basis, theta, self.settings.fit, how, floor=self.settings.sharpest
        )
        return added(found.hessian, found.score, theta)

    def nothing(self, nominal: float) -> Identified:
        """What there is to say where nothing changed."""
        zero = np.zeros(self.count)
        explanation = Explanation(nothing_fitted(self.count), 0.0, ())
        hessian, errors = self.everything(zero, self.data.fit, Whitening())
        return Identified(
            zero, (), np.zeros((0, 0)), np.zeros(0), 1, explanation, nominal, 0.0, zero, errors[1],
            hessian, self.data.rows,
        )  # fmt: skip

    def unfinished(self, best: Explanation, nominal: float) -> Identified:
        """What an interrupted search has: each parameter on its own, with the fit's interval."""
        theta, atoms = best.fitted.theta, atoms_of(self.residuals.parameters)[: self.count]
        spread = np.eye(len(theta))
        if best.fitted.hessian.shape == (len(best.columns),) * 2:
            own = np.ix_(best.columns, best.columns)
            spread[own] = posterior(best.fitted)
        kept = [i for i in best.columns if abs(theta[i]) > 5 * np.sqrt(spread[i, i])]
        kept = [i for i in kept if abs(theta[i]) > self.settings.smallest]
        return Identified(
            theta, tuple(atoms[i] for i in kept), spread[np.ix_(kept, kept)], theta[kept], 10, best,
            nominal, best.left, theta, np.sqrt(np.diag(spread)), np.eye(len(theta)),
            self.data.rows, False,
        )  # fmt: skip


def weakest(amounts: np.ndarray, spread: np.ndarray, settings: Settings) -> int | None:
    """The change that is least sure of those too small or not sure enough to report."""
    sure = np.abs(amounts) / np.sqrt(np.diag(spread))
    weak = [
        i
        for i in range(len(amounts))
        if abs(amounts[i]) < settings.smallest or sure[i] ** 2 < settings.price
    ]
    return min(weak, key=lambda i: sure[i]) if weak else None


def added(
    hessian: np.ndarray, score: np.ndarray, theta: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """(Hessian without the prior, (each parameter if it were added to θ, its error))."""
    alone = np.diag(hessian)
    step = (score - theta) / alone
    return hessian - np.eye(len(theta)), (theta - step, 1 / np.sqrt(alone))
