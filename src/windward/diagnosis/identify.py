"""Identification: from recorded steps to θ, the fewest changes, and where a wind pushes.

Explanations are tried from the simplest on, fitted on some blocks of steps, judged on others:
the usual parameters; the same with actions that come late; with a wind in one place; all
parameters. The first that leaves nothing is taken; where noise leaves something with all of them,
the simplest that does as well as any.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from windward.diagnosis import changes
from windward.diagnosis.fit import (
    FitSettings,
    Fitted,
    Whitening,
    covariance,
    energy,
    gauss_newton,
    predictable,
    posterior,
    quadratic,
    whitened,
)
from windward.diagnosis.parameters import Atom, Sizes, atoms_of
from windward.diagnosis.residuals import Direction, Residuals, Rows, along


@dataclass(frozen=True)
class Settings:
    """How a diagnosis is made."""

    fit: FitSettings = field(default_factory=FitSettings)
    sizes: Sizes = field(default_factory=Sizes)
    steps: int = 1000
    """steps that are looked at, at most"""
    block: int = 32
    """consecutive steps that are fitted, or held out, together"""
    equations: float = 10.0
    """numbers to fit from, for each parameter"""
    fewest: int = 96
    """steps to fit from at least, where there are as many"""
    exact: float = 1e-5
    """share of the deviation that may be left where an explanation is taken for the whole one"""
    enough: float = 1e-2
    """share that may be left where it is not worth trying all parameters at once"""
    nothing: float = 1e-9
    """share of the deviation that does not count; and the mean square of a step's deviation, in
    usual changes of a coordinate, below which nothing has changed"""
    price: float = 25.0
    """what a change must explain to be reported: the square of 5 standard deviations"""
    resolution: float = 0.005
    """smallest θ that counts; in factors, 0.25 %"""
    finer: tuple[float, ...] = (1.0, 4.0, 16.0, 64.0)
    """shares of price and resolution that are tried until the fewest changes do as well as all"""
    alike: float = 1.1
    """the fewest changes may leave so much more than all of them together"""
    smallest: float = 0.02
    """changes of a smaller θ are not reported; in factors, 1 %"""
    delays: int = 3
    """steps by which actions may come late, at most"""
    friction: tuple[float, ...] = (0.1, 0.25, 0.5, 2.0, 4.0, 8.0, 16.0)
    """factors from which friction is searched again: it has local minima"""
    sharpest: float = 1e-3
    """accuracy of finite differences, as a share of the deviation"""
    simpler: float = 0.9
    """an explanation with more in it must leave less than this share of what a simpler one does"""
    nearly: float = 0.3
    """a share of the deviation that is worth going on from"""
    greedy: int = 3
    """changes that are added one after the other, at most"""
    beam: int = 4
    """changes that are fitted at each turn, the likeliest"""
    regular: float = 0.3
    """share of a wind on the action that its past tells, from which on it is not white noise"""
    places: int = 2
    """places of a wind that are fitted, the likeliest"""


class Explanation(NamedTuple):
    """A fit, with what is taken out as wind and how late actions come."""

    fitted: Fitted
    left: float
    """share of the deviation from the nominal simulator that it leaves, on held-out steps"""
    columns: tuple[int, ...]
    delay: int = 0
    wind: str = ""
    """the place of a wind that is projected out; "past" for an autoregression"""
    axes: tuple[int, ...] = ()


class Identified(NamedTuple):
    """What was found."""

    theta: np.ndarray
    chosen: tuple[Atom, ...]
    covariance: np.ndarray  # of the chosen atoms' amounts
    amounts: np.ndarray  # (chosen,)
    scores: int  # blocks that the covariance is from
    explanation: Explanation
    nominal: float  # mean square deviation from the nominal simulator, in usual changes
    left: float  # share of it that parameters and wind leave
    estimates: np.ndarray  # θ of every parameter, were it added to those chosen
    errors: np.ndarray  # its standard deviation
    hessian: np.ndarray  # of all parameters at the solution
    rows: Rows  # with the delay found
    complete: bool = True  # False where it was interrupted


def identify(
    residuals: Residuals,
    rows: Rows,
    settings: Settings,
    say: Callable[[str], None] = lambda _: None,
) -> Identified:
    """See the module."""
    return _Search(residuals, rows, settings, say).run()


def shifted(rows: Rows, delay: int) -> Rows:
    """Rows with the actions of `delay` steps before; those without such a step are left out."""
    if not delay:
        return rows
    index = np.arange(delay, rows.size)
    index = index[rows.run[index] == rows.run[index - delay]]
    return rows.take(index)._replace(u=rows.u[index - delay])


def split(rows: Rows, size: int, block: int) -> tuple[Rows, Rows]:
    """(to fit from, to judge by): blocks of consecutive steps in turns, spread evenly."""
    n = rows.size
    block = max(6, min(block, n // 8))
    starts = np.flatnonzero(np.r_[True, rows.run[1:] != rows.run[:-1]])
    ends = np.r_[starts[1:], n]
    pieces = [
        np.arange(a, min(a + block, end))
        for start, end in zip(starts, ends, strict=True)
        for a in range(start, end, block)
    ]
    if len(pieces) < 2:
        return rows, rows
    parts = []
    for turn in (0, 1):
        own = pieces[turn::2]
        count = min(len(own), max(2, -(-size // block)))
        picked = [own[i] for i in np.unique(np.linspace(0, len(own) - 1, count).astype(int))]
        index = np.concatenate(picked)
        run = np.repeat(np.arange(len(picked)), [len(each) for each in picked])
        parts.append(rows.take(index)._replace(run=run))
    return parts[0], parts[1]


def joined(a: Rows, b: Rows) -> Rows:
    """Both, with runs of their own."""
    if a is b:
        return a
    b = b._replace(run=b.run + a.run.max() + 1)
    parts: Any = (None if x is None else np.concatenate([x, y]) for x, y in zip(a, b, strict=True))
    return Rows(*parts)


class _Search:
    def __init__(
        self, residuals: Residuals, rows: Rows, settings: Settings, say: Callable[[str], None]
    ) -> None:
        self.residuals, self.settings, self.say = residuals, settings, say
        self.all = rows
        self.zero = np.zeros(residuals.count)
        self.parameters = residuals.parameters
        self.core = tuple(i for i, each in enumerate(self.parameters) if each.core)
        self.every = tuple(range(residuals.count))
        self._prepare(rows)

    def _prepare(self, rows: Rows) -> None:
        """Divides the rows: a few to begin with, more to fit from, others to judge by."""
        s = self.settings
        width = len(self.residuals.compared)
        size = int(max(s.fewest, s.equations * len(self.core) / width))
        self.rows = rows
        self.fit, self.check = split(rows, size, s.block)
        self.nominal = energy(self.residuals.at([self.zero], self.check)[0])

    def run(self) -> Identified:
        s = self.settings
        everywhere = energy(self.residuals.at([self.zero], self.all)[0])
        if everywhere < s.nothing or not self.every:
            return self._nothing(everywhere)
        found: list[Explanation] = []
        try:
            self._explain(found)
            return self._reduced(self._simplest(found), everywhere)
        except KeyboardInterrupt:
            if not found:
                return self._nothing(everywhere)._replace(left=1.0, complete=False)
            return self._as_it_is(self._simplest(found), everywhere)

    def _explain(self, found: list[Explanation]) -> None:
        """Adds explanations from the simplest on, until one leaves nothing."""
        s = self.settings
        self.say("usual parameters")
        found.append(self._fitted(self.core))
        if not self._exact(found[0]):
            self.say("late actions")
            found += self._late(found[0])
        if not self._exact(found[-1]) and len(self.every) > len(self.core):
            self.say("one change of any kind")
            found.append(self._greedy())
        if not self._exact(found[-1]):
            self.say("wind")
            found += self._windy(found[0])
        best = min(found, key=lambda each: each.left)
        if best.left > s.enough and len(self.every) > len(self.core):
            self.say("all parameters")
            found += [self._fitted(self.every, start=each) for each in self._starts(best)]

    def _as_it_is(self, best: Explanation, nominal: float) -> Identified:
        """What an interrupted search has: each parameter on its own, with the fit's interval."""
        theta, atoms = best.fitted.theta, atoms_of(self.parameters)[: len(self.zero)]
        spread = np.eye(len(theta))
        if best.fitted.hessian.shape == (len(best.columns),) * 2:
            own = np.ix_(best.columns, best.columns)
            spread[own] = posterior(best.fitted)
        kept = [i for i in best.columns if abs(theta[i]) > 5 * np.sqrt(spread[i, i])]
        kept = [i for i in kept if abs(theta[i]) > self.settings.smallest]
        return Identified(
            theta, tuple(atoms[i] for i in kept), spread[np.ix_(kept, kept)], theta[kept], 10, best,
            nominal, best.left, theta, np.sqrt(np.diag(spread)), np.eye(len(theta)), self.rows,
            False,
        )  # fmt: skip

    def _exact(self, each: Explanation) -> bool:
        return each.left < self.settings.exact

    def _simplest(self, found: list[Explanation]) -> Explanation:
        """The simplest that does as well as any; they are in order."""
        best = found[0]
        for each in found[1:]:
            share = self.settings.simpler
            if each.wind and each.wind != "past":
                # A projection takes its share of any noise.
                share *= 1 - len(each.axes) / len(self.residuals.compared)
            if self._exact(each) or each.left < share * best.left:
                best = each
        return best

    def _left(self, theta: np.ndarray, how: Whitening, rows: Rows, nominal: float) -> float:
        r = self.residuals.at([theta], rows)[0]
        how = how._replace(amount=None, calm=None, past=how.past if how.effect is None else 0)
        fresh, _, kept = whitened(r, np.zeros((*r.shape, 0)), rows, how)
        return energy(fresh[kept]) / nominal if kept.any() else float("inf")

    def _fitted(self, columns: Sequence[int], start: Explanation | None = None) -> Explanation:
        """The parameters alone, friction from several beginnings if it must be."""
        theta = self.zero if start is None else start.fitted.theta
        best = self._gauss_newton(columns, theta)
        slippery = [i for i in columns if self.parameters[i].kind == "friction"]
        if self._exact(best) or not slippery:
            return best
        trials = []
        for factor in self.settings.friction:
            trial = self.zero.copy()
            for i in slippery:
                trial[i] = self.parameters[i].theta(factor)
            trials.append(trial)
        sizes = [energy(r) for r in self.residuals.at([self.zero, *trials], self.fit)]
        for i in np.argsort(sizes[1:])[:2]:
            if not sizes[i + 1] < sizes[0]:
                break
            other = self._gauss_newton(columns, trials[i])
            best = min(best, other, key=lambda each: each.left)
            if self._exact(best):
                break
        return best

    def _gauss_newton(
        self,
        columns: Sequence[int],
        start: np.ndarray,
        how: Whitening | None = None,
        check: Whitening | None = None,
        **about: Any,
    ) -> Explanation:
        how = how or Whitening()
        basis = self.residuals.unit(columns)
        fitted = gauss_newton(self.residuals, self.fit, basis, start, self.settings.fit, how)
        left = self._left(fitted.theta, check or how, self.check, self.nominal)
        return Explanation(fitted, left, tuple(columns), **about)

    def _late(self, first: Explanation) -> list[Explanation]:
        """Actions that come late, where that alone does better than nothing."""
        found = []
        at_once = self.rows, self.fit, self.check, self.nominal
        for delay in range(1, self.settings.delays + 1):
            rows = shifted(self.all, delay)
            if rows.size < 16:
                break
            nominal = at_once[3]
            late = energy(self.residuals.at([self.zero], rows)[0])
            if not late < nominal:
                continue
            self._prepare(rows)
            self.nominal = nominal
            each = self._fitted(self.core)._replace(delay=delay)
            found.append(each)
            if self._exact(each):
                break
        self.rows, self.fit, self.check, self.nominal = at_once
        return [each for each in found if each.left < 0.5 * first.left]

    def _windy(self, first: Explanation) -> list[Explanation]:
        """Wind whitened by its past, then projected out of the likeliest places."""
        past = Whitening(past=self.settings.fit.past)
        smooth = self._gauss_newton(self.core, self.zero, past, wind="past")
        found = [smooth]
        theta = smooth.fitted.theta
        r = self.residuals.at([theta], self.fit)[0]
        near = self.residuals.directions(theta, self.fit)
        # A push along every coordinate would explain anything.
        free = [each for each in ranking(r, near) if len(each[1]) < r.shape[1]]
        for place, axes in free[: self.settings.places]:
            each = self._blown(smooth, place, tuple(axes))
            found.append(each)
            if self._exact(each):
                break
        return found

    def _blown(self, start: Explanation, place: str, axes: tuple[int, ...]) -> Explanation:
        """The usual parameters with a wind in one place; where that fits, once more around it."""
        each = start._replace(wind=place, axes=axes)
        for turn in range(4):
            (fit, how), (check, judged) = (self._around(each, rows, refine=turn > 0)
                                           for rows in (self.fit, self.check))  # fmt: skip
            # From far, a sharp fit creeps along a curved valley: begin with a blunt one.
            how = how._replace(floor=how.floor * 10 ** max(0, 2 - turn))
            basis = self.residuals.unit(self.core)
            fitted = gauss_newton(
                self.residuals, fit, basis, each.fitted.theta, self.settings.fit, how
            )
            left = self._left(fitted.theta, judged, check, self.nominal)
            each = each._replace(fitted=fitted, left=left)
            # How large a wind on the action was shows only once the rest is right.
            settled = self._exact(each) and (place != "action" or turn > 2)
            if settled or left > self.settings.nearly:
                break
        return each

    def _around(self, each: Explanation, rows: Rows, refine: bool = True) -> tuple[Rows, Whitening]:
        """Rows and what is taken out of them as wind; `refine` goes on from the force found."""
        if not each.wind:
            return rows, Whitening()
        if each.wind == "past":
            return rows, Whitening(past=self.settings.fit.past)
        theta, axes = each.fitted.theta, list(each.axes)
        (direction,) = self.residuals.directions(theta, rows, each.wind, axes)
        amount = np.zeros((rows.size, len(axes)))
        calm = rows, direction.effect
        if refine and not each.wind.startswith("coordinate:"):
            for _ in range(2):
                # A strong wind changes contacts: what it does is not in proportion to it.
                amount = amount + along(self.residuals.at([theta], rows)[0], direction.effect)
                rows, amount = self.residuals.pushed(calm[0], direction, amount)
                (direction,) = self.residuals.directions(theta, rows, each.wind, axes)
        if each.wind != "action":
            return rows, Whitening(direction.effect)
        # Gains and dampings act where motors do: without the wind's own size they would not show.
        told = self.residuals.inside(rows, amount)
        regular = np.mean([predictable(w, rows.run) for w in amount.T]) > self.settings.regular
        past = self.settings.fit.past if regular else 0
        # Sharper, the search would creep along a valley.
        size = amount if refine else along(self.residuals.at([theta], rows)[0], direction.effect)
        done = np.median(np.abs(np.einsum("tck,tk->tc", direction.effect, size)))
        return rows, Whitening(
            direction.effect, past, amount, self.settings.sharpest * float(done), told, calm
        )

    def _starts(self, best: Explanation) -> list[Explanation]:
        zero = best._replace(fitted=best.fitted._replace(theta=self.zero))
        return [zero] if best.left > 0.5 else [best, zero]

    def _greedy(self) -> Explanation:
        """One change after the other, of any kind, as long as each explains much."""
        s = self.settings
        atoms = atoms_of(self.parameters)
        A = changes.matrix(atoms, len(self.zero))
        chosen: list[int] = []
        best: Explanation | None = None
        theta = self.zero
        for _ in range(s.greedy):
            model = quadratic(
                self.residuals, self.fit, self.residuals.unit(self.every), theta, s.fit,
                Whitening(),
            )  # fmt: skip
            slope, bend = A.T @ model.score, np.einsum("pa,pq,qa->a", A, model.hessian, A)
            gain = np.square(slope) / bend
            gain[chosen] = 0.0
            trials = []
            for i in np.argsort(-gain)[: s.beam]:
                basis = A[:, [*chosen, i]]
                if np.linalg.matrix_rank(basis) < basis.shape[1]:
                    continue
                fitted = gauss_newton(self.residuals, self.fit, basis, theta, s.fit)
                left = self._left(fitted.theta, Whitening(), self.check, self.nominal)
                trials.append((left, i, fitted))
                if left < s.exact:
                    break
            left, i, fitted = min(trials, key=lambda each: each[0])
            columns = tuple(np.flatnonzero(A[:, [*chosen, i]].any(axis=1)).tolist())
            if best is not None and not left < s.nearly * best.left:
                break
            best = Explanation(fitted, left, columns)
            chosen.append(i)
            theta = fitted.theta
            if self._exact(best) or left > 1 - s.nearly:
                break
        assert best is not None
        return best

    def _nothing(self, nominal: float) -> Identified:
        n = len(self.every)
        fitted = Fitted(self.zero, np.zeros(0), np.zeros((0, 0)), np.zeros(0), np.zeros((1, 0)),
                        0.0, np.zeros(0), 0)  # fmt: skip
        explanation = Explanation(fitted, 0.0, ())
        hessian, errors = self._everything(self.zero, self.fit, Whitening())
        return Identified(
            self.zero, (), np.zeros((0, 0)), np.zeros(0), 1, explanation, nominal, 0.0,
            np.zeros(n), errors[1], hessian, self.rows,
        )  # fmt: skip

    def _reduced(self, best: Explanation, nominal: float) -> Identified:
        """The fewest changes that do as well, fitted again on all steps."""
        s = self.settings
        if best.delay:
            self._prepare(shifted(self.all, best.delay))
        self.say("fewest changes")
        atoms = [
            each for each in atoms_of(self.parameters) if set(each.columns) <= set(best.columns)
        ]
        A = changes.matrix(atoms, len(self.zero))
        own = list(best.columns)
        (fit, how), (check, judged) = (self._around(best, rows) for rows in (self.fit, self.check))
        # Sharper than finite differences are, a combination without effect would seem to have one.
        floor = s.sharpest * np.sqrt(self.nominal)
        model = quadratic(
            self.residuals, fit, self.residuals.unit(own), best.fitted.theta[own], s.fit, how,
            central=True, floor=floor,
        )  # fmt: skip
        spread = posterior(model)
        # One more step, with the sharper derivatives: what is exact should look so.
        phi = model.phi - np.linalg.solve(model.hessian, model.score)
        whole = self._left(best.fitted.theta, judged, check, self.nominal)
        polished = self._left(self.residuals.unit(own) @ phi, judged, check, self.nominal)
        if not polished < whole:
            phi = model.phi
        whole = min(whole, polished)
        chosen: tuple[int, ...] = ()
        for finer in s.finer:
            chosen = changes.fewest(phi, spread, A[own], s.price / finer, s.resolution / finer)
            solved = self._refit(best, A[:, list(chosen)], fit, how)
            left = self._left(solved.theta, judged, check, self.nominal)
            if left <= s.alike * whole + (s.exact if best.wind else s.nothing):
                break
        if best.wind:
            # A wind that the changes themselves make unnecessary was none.
            calm = self._refit(best, A[:, list(chosen)], self.fit, Whitening())
            left = self._left(calm.theta, Whitening(), self.check, self.nominal)
            if left < s.exact or left <= whole:
                best = best._replace(
                    fitted=best.fitted._replace(theta=calm.theta), wind="", axes=()
                )
        return self._final(best, atoms, A, list(chosen), nominal)

    def _refit(self, best: Explanation, A: np.ndarray, rows: Rows, how: Whitening) -> Fitted:
        return gauss_newton(self.residuals, rows, A, best.fitted.theta, self.settings.fit, how)

    def _final(
        self,
        best: Explanation,
        atoms: list[Atom],
        A: np.ndarray,
        chosen: list[int],
        nominal: float,
    ) -> Identified:
        """Fits the chosen changes on all steps; drops those that are then too small to report."""
        # What is exact needs no more steps than it was found from.
        enough = self._exact(best) and best.wind != "action"
        every = joined(self.fit, self.check) if enough else self.rows
        rows, how = self._around(best, every)
        while True:
            solved = self._refit(best, A[:, chosen], rows, how)
            amounts = solved.phi
            spread = covariance(solved, 1e-4)
            sure = np.abs(amounts) / np.sqrt(np.diag(spread)) if chosen else np.zeros(0)
            weak = [
                i
                for i in range(len(chosen))
                if abs(amounts[i]) < self.settings.smallest or sure[i] ** 2 < self.settings.price
            ]
            if not weak:
                break
            chosen.pop(min(weak, key=lambda i: sure[i]))
        left = self._left(solved.theta, how, rows, 1.0) / max(nominal, 1e-300)
        near, how = self._around(best, self.fit)
        hessian, (estimates, errors) = self._everything(solved.theta, near, how)
        own = tuple(atoms[i] for i in chosen)
        return Identified(
            solved.theta, own, spread, amounts, len(solved.scores), best, nominal, left,
            estimates, errors, hessian, self.rows,
        )  # fmt: skip

    def _everything(
        self, theta: np.ndarray, rows: Rows, how: Whitening
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Hessian of all parameters, and what each would be if it were added to the others."""
        basis = self.residuals.unit(self.every)
        found = quadratic(
            self.residuals, rows, basis, theta, self.settings.fit, how, floor=self.settings.sharpest
        )
        alone = np.diag(found.hessian)
        step = (found.score - theta) / alone
        return found.hessian - np.eye(len(theta)), (theta - step, 1 / np.sqrt(alone))


def ranking(r: np.ndarray, directions: list[Direction]) -> list[tuple[str, list[int]]]:
    """Places by how little of the residual they leave for each number that is left."""
    found = []
    c = r.shape[1]
    ok = np.isfinite(r).all(axis=1)
    for each in directions:
        k = each.effect.shape[-1]
        options = [[axis] for axis in range(k)] if each.place != "action" or k == 1 else []
        if k > 1 and k < c:
            options.append(list(range(k)))
        for axes in options:
            good = ok & np.isfinite(each.effect).all(axis=(1, 2))
            basis = np.linalg.qr(each.effect[good][..., axes])[0]
            rest = r[good] - np.einsum("tck,tdk,td->tc", basis, basis, r[good])
            before = np.median(np.square(r[good]).sum(axis=1)) + 1e-300
            left = np.median(np.square(rest).sum(axis=1)) / before * c / max(0.5, c - len(axes))
            found.append((left, each.place, axes))
    found.sort(key=lambda each: (each[0], len(each[2])))
    return [(place, axes) for _, place, axes in found]
