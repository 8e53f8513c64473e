"""Search: a linear residual, found by CMA-ES over whole episodes in the diagnosed world.

It begins at zero and at what imitates matching best, and goes on from the better one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from windward.adapt import cma, winds
from windward.adapt.corrections import Carry, Choice, Correction, Matching, Residual, features
from windward.adapt.episodes import Starts, blank_carry, deviated, play
from windward.adapt.proposers.base import Situation
from windward.adapt.proposers.matching import matching_of


@dataclass(frozen=True)
class SearchSettings:
    """How a residual is searched for."""

    generations: int = 50
    """at most"""
    trial: int = 4
    """generations of each beginning before the better one goes on alone"""
    starts: int = 4
    """simulated episodes of each candidate in a generation, fresh ones each time"""
    step: float = 0.17
    """first size of a candidate's change of the action, in half ranges; a weight's is that over the
    root of the number of features"""
    wide: float = 0.4
    """the same for a search from zero that looks farther away"""
    parts: int = 8
    """principal parts of the window of deviations"""
    reach: float = 1.0
    """largest size of the residual, in half ranges of the action"""
    ridge: float = 1e-2
    """of the regression that imitates matching, as a share of the steps"""
    imitated: int = 400
    """steps of matching that are imitated, in each of its episodes"""
    patience: int = 16
    """generations without a new best mean after which it ends"""
    close: float = 0.02
    """share of the nominal return within which it ends"""
    checked: int = 8
    """simulated episodes on which the search's mean is checked"""
    short: int = 300
    """steps of a candidate's episodes where no episode of the check ends early: then a part of an
    episode tells as much as the whole"""


class SearchProposer:
    """Proposes a `Residual`."""

    name = "search"
    quick = False

    def __init__(self, settings: SearchSettings | None = None) -> None:
        self.settings = settings or SearchSettings()

    def propose(
        self,
        at: Situation,
        known: Correction | None,
        rng: np.random.Generator,
        say: Callable[[str], None],
    ) -> Correction | None:
        """See Proposer."""
        s = self.settings
        like = self._like(at)
        check = at.draw(s.checked, rng)
        goal = _returns(at, None, check._replace(wind=None), False).mean()
        lasts = all((_lengths(at, each, check) == at.horizon).all() for each in (None, known))
        near = at._replace(horizon=min(s.short, at.horizon)) if lasts else at
        root = np.sqrt(like.weights.shape[0])
        searches = [
            _Search(at, near, like, cma.start(mean.ravel(), step / root), s)
            for mean, step in self._beginnings(at, like, known, rng)
        ]
        for each in searches:
            for _ in range(s.trial if len(searches) > 1 else 0):
                each.generation(rng)
            each.check(check)
        best = max(searches, key=lambda each: each.best)
        enough = goal - s.close * abs(goal)
        while best.done < s.generations and best.waited < s.patience:
            # Of many checks on the same starts the best one is too good: confirm it on others.
            if best.best > enough and best.confirmed(at.draw(2 * s.checked, rng)) > enough:
                break
            best.generation(rng)
            if best.done % 2 == 0:
                best.check(at.draw(s.checked, rng))
            say(f"search: generation {best.done} of {s.generations}, return {best.best:.0f}")
        return best.found

    def _like(self, at: Situation) -> Residual:
        """A residual of zero, with the sizes of its features."""
        parts = _principal(at, self.settings.parts)
        sizes = np.zeros(0)
        if at.twin.wind is not None:
            sizes = np.array([max(axis.size, 1e-9) for axis in at.twin.wind.axes])
        seen = at.observations
        mean, spread = seen.mean(axis=0), seen.std(axis=0) + 1e-6
        outputs = at.range.outputs
        width = seen.shape[1] + outputs + 1 + 2 * len(sizes) + len(parts)
        return Residual(
            at.range,
            np.zeros((width, outputs)),
            mean,
            spread,
            sizes,
            parts,
            self.settings.reach,
            None,
        )

    def _beginnings(
        self, at: Situation, like: Residual, known: Correction | None, rng: np.random.Generator
    ) -> list[tuple[np.ndarray, float]]:
        """(mean, step size) of searches."""
        s = self.settings
        if isinstance(known, Residual) and known.weights.shape == like.weights.shape:
            return [(known.weights, s.step)]
        matching = known if isinstance(known, (Matching, Choice)) else matching_of(at)
        imitation = _imitation(at, like, matching, self.settings, rng)
        zero = np.zeros_like(like.weights)
        return [(zero, s.step), (zero, s.wide), (imitation, s.step)]


class _Search:
    """One run of CMA-ES."""

    def __init__(
        self,
        at: Situation,
        near: Situation,
        like: Residual,
        state: cma.State,
        settings: SearchSettings,
    ) -> None:
        self.at, self.near = at, near
        self.like, self.state, self.settings = like, state, settings
        self.done, self.waited, self.best = 0, 0, -np.inf
        self.found: Residual | None = None

    def generation(self, rng: np.random.Generator) -> None:
        """Candidates on common fresh starts and winds."""
        points = cma.ask(self.state, rng)
        starts = self.near.draw(self.settings.starts, rng)
        weights = points.reshape(len(points), *self.like.weights.shape)
        rows = self.like._replace(weights=np.repeat(weights, self.settings.starts, axis=0))
        returns = _returns(self.near, rows, starts.repeated(len(points)))
        mean = returns.reshape(len(points), -1).mean(axis=1)
        self.state = cma.tell(self.state, points, -mean)
        self.done += 1

    def confirmed(self, starts: Starts) -> float:
        """The best mean on other starts; that is its value from now on."""
        self.best = float(_returns(self.at, self.found, starts).mean())
        return self.best

    def check(self, starts: Starts) -> None:
        """The search's mean; the best one is kept."""
        now = self.like._replace(weights=self.state.mean.reshape(self.like.weights.shape))
        value = float(_returns(self.at, now, starts).mean())
        self.waited += 2
        if value > self.best:
            self.best, self.found, self.waited = value, now, 0


def _returns(
    at: Situation, correction: Correction | None, starts: Starts, changed: bool = True
) -> np.ndarray:
    return play(
        at.twin, at.policy, correction, starts, at.horizon, at.winds, at.window, changed, at.dtype
    )[0]


def _lengths(at: Situation, correction: Correction | None, starts: Starts) -> np.ndarray:
    """Steps that episodes last."""
    return play(
        at.twin, at.policy, correction, starts, at.horizon, at.winds, at.window, True, at.dtype
    )[1]


def _imitation(
    at: Situation,
    like: Residual,
    matching: Matching | Choice,
    settings: SearchSettings,
    rng: np.random.Generator,
) -> np.ndarray:
    """Weights by ridge regression of matching's corrections on the features."""
    starts = at.draw(settings.starts, rng)
    x, n = starts.x, len(starts.x)
    axes = at.twin.axes
    carry = blank_carry(n, at.range, at.twin, at.window)
    memory = winds.blank(n, axes, at.winds)
    index = np.arange(n)
    z: list[np.ndarray] = []
    y: list[np.ndarray] = []
    for t in range(min(settings.imitated, at.horizon)):
        observation = at.twin.observe(x)
        own = at.policy(observation)
        base = np.asarray(own, dtype=np.float64).reshape(len(x), -1)
        guess = None
        if at.twin.wind is not None and axes:
            guess = winds.predict(at.twin.wind, memory, at.winds)
        z.append(features(like, observation, base, guess, carry))
        u, carry = matching.act(at.twin, x, observation, base, guess, carry)
        y.append(carry.delta)
        if guess is not None:
            carry = carry._replace(wind=guess)
        blown = None if starts.wind is None else starts.wind[index, t]
        u = u.astype(at.dtype).reshape(own.shape)
        x_next, _, ended = at.twin.step(x, u, blown)
        carry = deviated(at.twin, at.window, x, u, x_next, carry)
        if blown is not None:
            memory = memory.after(blown)
        going = ~ended
        x, index = x_next[going], index[going]
        carry = Carry(*(each[going] for each in carry))
        memory = winds.Memory(memory.amount[going])
        if not len(index):
            break
    Z, Y = np.concatenate(z), np.concatenate(y)
    gram = Z.T @ Z + settings.ridge * len(Z) * np.eye(Z.shape[1])
    return np.asarray(np.linalg.solve(gram, Z.T @ Y))


def _principal(at: Situation, count: int) -> np.ndarray:
    """(p, h d_w): principal parts of windows of deviations along simulated base episodes."""
    starts = at.draw(4, np.random.default_rng(0))
    x, windows = starts.x, []
    carry = blank_carry(len(x), at.range, at.twin, at.window)
    index = np.arange(len(x))
    for t in range(min(300, at.horizon)):
        u = at.policy(at.twin.observe(x))
        blown = None if starts.wind is None else starts.wind[index, t]
        x_next, _, ended = at.twin.step(x, u, blown)
        carry = deviated(at.twin, at.window, x, u, x_next, carry)
        windows.append(carry.window.reshape(len(x), -1))
        going = ~ended
        x, index = x_next[going], index[going]
        carry = Carry(*(each[going] for each in carry))
        if not len(index):
            break
    flat = np.clip(np.concatenate(windows), -3, 3)
    _, size, parts = np.linalg.svd(flat, full_matrices=False)
    kept = size > 1e-6 * size[0] if size[0] > 0 else np.zeros(len(size), dtype=bool)
    kept[count:] = False
    return np.asarray(parts[kept] / (size[kept, None] / np.sqrt(len(flat))))
