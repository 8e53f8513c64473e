"""Identification: from recorded steps to θ, the fewest changes, and where a wind pushes.

Explanations are tried from the simplest on, fitted on some blocks of steps, judged on others:
the usual parameters; the same with actions that come late; one change of any kind; a wind in one
place; all parameters. The first that leaves nothing is taken; where noise leaves something with
all of them, the simplest that does as well as any. Where sensors are noisy, another fit takes over.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from windward.diagnosis import changes
from windward.diagnosis.blocks import shifted, split
from windward.diagnosis.explanation import PAST, Explanation, Identified, Settings
from windward.diagnosis.fit import Whitening, energy, gauss_newton, quadratic
from windward.diagnosis.parameters import atoms_of
from windward.diagnosis.places import blown, lateness, possible, ranking
from windward.diagnosis.residuals import Residuals, Rows, along
from windward.diagnosis.selection import Data, Selection, left
from windward.diagnosis.sensor_fit import ThroughNoise
from windward.diagnosis.sensors import noisy

__all__ = ["Identified", "Settings", "identify", "shifted"]

FEW = 150
"""steps on which delays are compared at first"""


def identify(
    residuals: Residuals,
    rows: Rows,
    settings: Settings,
    say: Callable[[str], None] = lambda _: None,
) -> Identified:
    """See the module."""
    residuals.derive(True)
    return _Search(residuals, rows, settings, say).run()


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
        self.at_once = self._data(rows)
        self.data = self.at_once

    def _data(self, rows: Rows, nominal: float | None = None) -> Data:
        """Divides rows into blocks."""
        s = self.settings
        width = len(self.residuals.compared)
        size = int(max(s.fewest, s.equations * len(self.core) / width))
        fit, check = split(rows, size, s.block)
        if nominal is None:
            nominal = energy(self.residuals.at([self.zero], check)[0])
        return Data(rows, fit, check, nominal)

    def _late_data(self, delay: int) -> Data:
        """The rows with actions of some steps before; what they are measured against stays."""
        if not delay:
            return self.at_once
        return self._data(shifted(self.all, delay), self.at_once.nominal)

    def run(self) -> Identified:
        s = self.settings
        everywhere = energy(self.residuals.at([self.zero], self.all)[0])
        selection = Selection(self.residuals, self.at_once, s)
        if everywhere < s.nothing or not (self.every or s.delays):
            return selection.nothing(everywhere)
        found: list[Explanation] = []
        try:
            if self._noisy(self.zero, s.sensors.clear):
                return self._through_noise()
            self.say("usual parameters")
            found.append(self._fitted(self.core))
            theta = found[0].fitted.theta
            if not self._exact(found[0]) and self._noisy(theta, s.sensors.ratio):
                return self._through_noise()
            self._explain(found)
            best = self._simplest(found)
            self.say("fewest changes")
            self.residuals.derive(best.derived)
            selection = Selection(self.residuals, self._late_data(best.delay), s)
            return selection.reduced(best, everywhere)
        except KeyboardInterrupt:
            if not found:
                return selection.nothing(everywhere)._replace(left=1.0, complete=False)
            best = self._simplest(found)
            selection = Selection(self.residuals, self._late_data(best.delay), s)
            return selection.unfinished(best, everywhere)

    def _noisy(self, theta: np.ndarray, ratio: float) -> bool:
        """Whether sensors are noisy."""
        s = self.settings.sensors
        rows = self.all.take(slice(0, s.first))
        return noisy(self.residuals, theta, rows, s, ratio)

    def _through_noise(self) -> Identified:
        self.say("noise on sensors")
        return ThroughNoise(self.residuals, self.all, self.core, self.settings).identified()

    def _explain(self, found: list[Explanation]) -> None:
        """Adds explanations from the simplest on, until one leaves nothing."""
        s = self.settings
        late: list[Explanation] = []
        if found[-1].left > s.clear:
            self.say("late actions")
            late = self._late(found[0])
            found += [each for each in late if each.left < 0.5 * found[0].left]
        if not self._exact(found[-1]) and len(self.every) > len(self.core):
            self.say("one change of any kind")
            found.append(self._greedy())
            if not self._exact(found[-1]):
                found += self._underived(found[-1])
        if not self._exact(found[-1]):
            self.say("wind")
            found += self._windy()
        for each in (each for each in late if each.left < found[0].left):
            if self._exact(found[-1]):
                break
            self.say("wind and late actions")
            self.data = self._late_data(each.delay)
            found += [wind._replace(delay=each.delay) for wind in self._windy()]
            self.data = self.at_once
        # A push along a coordinate explains nearly anything of a robot with few of them.
        firm = [each for each in found if not each.wind.startswith("coordinate:")]
        best = min(firm, key=lambda each: each.left)
        if best.left > s.enough and len(self.every) > len(self.core):
            self.say("all parameters")
            starts = [each for each in self._starts(best) if self._promising(each, best)]
            found += [self._fitted(self.every, start=each) for each in starts]

    def _promising(self, start: Explanation, best: Explanation) -> bool:
        """Whether all parameters may explain as much as the best, by the quadratic model there."""
        data, theta = self.data, start.fitted.theta
        basis = self.residuals.unit(self.every)
        model = quadratic(self.residuals, data.fit, basis, theta, self.settings.fit, Whitening())
        drop = 0.5 * float(model.score @ np.linalg.solve(model.hessian, model.score)) / model.loss
        expected = (1 - drop) * self._left(theta, Whitening(), data.check)
        nearly = self.settings.nearly
        return drop > nearly and expected < best.left / nearly

    def _exact(self, each: Explanation) -> bool:
        return each.left < self.settings.exact

    def _simplest(self, found: list[Explanation]) -> Explanation:
        """The simplest that does as well as any; they are in order, but no wind is simpler."""
        calm = [each for each in found if self._exact(each) and not each.wind]
        if calm:
            return calm[0]
        best = found[0]
        for each in found[1:]:
            share = self.settings.simpler
            if each.wind and each.wind != PAST:
                # A projection takes its share of any noise.
                share *= 1 - len(each.axes) / len(self.residuals.compared)
            if (self._exact(each) and not self._exact(best)) or each.left < share * best.left:
                best = each
        return best

    def _left(self, theta: np.ndarray, how: Whitening, rows: Rows) -> float:
        return left(self.residuals, theta, how, rows, self.data.nominal)

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
        sizes = [energy(r) for r in self.residuals.at([self.zero, *trials], self.data.fit)]
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
        **about: Any,
    ) -> Explanation:
        how = how or Whitening()
        basis = self.residuals.unit(columns)
        fitted = gauss_newton(self.residuals, self.data.fit, basis, start, self.settings.fit, how)
        share = self._left(fitted.theta, how, self.data.check)
        return Explanation(fitted, share, tuple(columns), **about)

    def _underived(self, best: Explanation) -> list[Explanation]:
        """Masses that were written without what MuJoCo derives from them, if that is all."""
        named = {self.parameters[i].name: i for i in self.every}
        bodies = [
            name.partition(":")[2]
            for i in best.columns
            if (name := self.parameters[i].name).partition(":")[0] in ("mass", "inertia")
        ]
        if not bodies or best.left > self.settings.nearly:
            return []
        own = {named.get(f"{kind}:{body}") for kind in ("mass", "inertia") for body in bodies}
        columns = sorted({*best.columns, *(i for i in own if i is not None)})
        self.residuals.derive(False)
        try:
            each = self._gauss_newton(columns, best.fitted.theta, derived=False)
        finally:
            self.residuals.derive(True)
        return [each] if self._exact(each) else []

    def _late(self, first: Explanation) -> list[Explanation]:
        """Actions that come late, where that explains something."""
        found = []
        for delay in self._delays(first):
            self.data = self._late_data(delay)
            each = self._gauss_newton(self.core, self.zero, delay=delay)
            if each.left < first.left:
                each = self._fitted(self.core, start=each)._replace(delay=delay)
            self.data = self.at_once
            found.append(each)
            if self._exact(each):
                return [each]
        return found

    def _delays(self, first: Explanation, most: int = 2) -> list[int]:
        """The likeliest delays."""
        s = self.settings
        found: dict[int, float] = {}
        none = {0: self._late_energy(0)}
        for delay in range(1, s.delays + 1):
            size = self._late_energy(delay)
            if size < none[0]:
                found[delay] = size / none[0]
        for theta in (self.zero, first.fitted.theta):
            for each in lateness(self.residuals, theta, self.all, s.delays)[:1]:
                if each.left < s.late:
                    found[each.delay] = min(found.get(each.delay, 1.0), each.left)
        return sorted(found, key=lambda delay: found[delay])[:most]

    def _late_energy(self, delay: int) -> float:
        rows = shifted(self.all, delay)
        if rows.size < 16:
            return float("inf")
        few = np.unique(np.linspace(0, rows.size - 1, min(rows.size, FEW)).astype(int))
        return energy(self.residuals.at([self.zero], rows.take(few))[0])

    def _windy(self) -> list[Explanation]:
        """Wind whitened by its past, then projected out of the likeliest places."""
        past = Whitening(past=self.settings.fit.past)
        smooth = self._gauss_newton(self.core, self.zero, past, wind=PAST)
        found = [smooth]
        theta = smooth.fitted.theta
        r = self.residuals.at([theta], self.data.fit)[0]
        near = self.residuals.directions(theta, self.data.fit)
        # A push along every coordinate would explain anything.
        free = [each for each in ranking(r, near) if len(each[1]) < r.shape[1]]
        for place, axes in free[: self.settings.places]:
            each = self._blown(smooth, place, tuple(axes))
            if each is None:
                continue
            found.append(each)
            if each.left < self.settings.clear:
                break
        return found

    def _blown(self, start: Explanation, place: str, axes: tuple[int, ...]) -> Explanation | None:
        """The usual parameters with a wind in one place; where that fits, once more around it.

        None where no such wind is possible.
        """
        each = start._replace(wind=place, axes=axes)
        s, data = self.settings, self.data
        for turn in range(4):
            (fit, how), (check, judged) = (
                blown(self.residuals, each, rows, s, refine=turn > 0)
                for rows in (data.fit, data.check)
            )
            # From far, a sharp fit creeps along a curved valley: begin with a blunt one.
            how = how._replace(floor=how.floor * 10 ** max(0, 2 - turn))
            basis = self.residuals.unit(self.core)
            fitted = gauss_newton(self.residuals, fit, basis, each.fitted.theta, s.fit, how)
            share = self._left(fitted.theta, judged, check)
            each = each._replace(fitted=fitted, left=share)
            # How large a wind on the action was shows only once the rest is right.
            settled = self._exact(each) and (place != "action" or turn > 1)
            if settled or share > s.nearly:
                break
        if place == "action":
            amount = self._push(each, data.fit)
            if not possible(self.residuals, data.fit, place, amount):
                return None
        return each

    def _push(self, each: Explanation, rows: Rows) -> np.ndarray:
        """What must have been added to the action."""
        theta = each.fitted.theta
        (direction,) = self.residuals.directions(theta, rows, each.wind, list(each.axes))
        return along(self.residuals.at([theta], rows)[0], direction.effect)

    def _starts(self, best: Explanation) -> list[Explanation]:
        zero = best._replace(fitted=best.fitted._replace(theta=self.zero))
        return [zero] if best.left > 0.5 else [best, zero]

    def _greedy(self) -> Explanation:
        """One change after the other, of any kind, as long as each explains much."""
        s, data = self.settings, self.data
        atoms = atoms_of(self.parameters)
        A = changes.matrix(atoms, len(self.zero))
        chosen: list[int] = []
        best: Explanation | None = None
        theta = self.zero
        for _ in range(s.greedy):
            model = quadratic(
                self.residuals, data.fit, self.residuals.unit(self.every), theta, s.fit,
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
                fitted = gauss_newton(self.residuals, data.fit, basis, theta, s.fit)
                share = self._left(fitted.theta, Whitening(), data.check)
                trials.append((share, i, fitted))
                if share < s.exact:
                    break
            share, i, fitted = min(trials, key=lambda each: each[0])
            columns = tuple(np.flatnonzero(A[:, [*chosen, i]].any(axis=1)).tolist())
            if best is not None and not share < s.nearly * best.left:
                break
            best = Explanation(fitted, share, columns)
            chosen.append(i)
            theta = fitted.theta
            if self._exact(best) or share > 1 - s.nearly:
                break
        assert best is not None
        return best
