"""What was recorded: steps in pieces of episodes, and the wind that replays meet.

Beyond the record, where an episode ended or has not gone on yet, ŵ is forecast from its own last h
values by least squares on the record.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from windward.adapt.predictable import Predictable
from windward.adapt.replayed import Luck, nothing

RIDGE = 1e-5  # of the forecast, over the mean square of what it is made from
PIECE = 200  # steps
LEAST = 1e-4  # of the sum of the components' squares: what is smaller is noise
BEGINNINGS = 0.05  # what windows of an episode's first steps weigh beside all others
FORECAST_BOUND = 4.0  # in sizes of ŵ
MOST = 0.8  # of the steps, by which what is usual is told
ODD = 0.5  # of what ŵ usually is: a larger error of its prediction at an end is no wind

Pushes = Callable[[np.ndarray], np.ndarray]


class Visit(NamedTuple):
    """One recorded step."""

    x: np.ndarray  # (d_x,) the state before it
    window: np.ndarray  # (h, d_w) newest first, before it
    w_hat: np.ndarray  # (d_w,) without the simulator's own error, as far as that is known
    phi: np.ndarray  # (p,) what that error is told from
    phi_window: np.ndarray  # (h, p) of the steps of the window


class Start(NamedTuple):
    """Where a replay begins, and the wind that it meets."""

    x: np.ndarray
    window: np.ndarray
    wind: np.ndarray  # (horizon, d_w)
    luck: np.ndarray  # (horizon, k) what the base policy draws; k = 0 if it draws nothing


class Record:
    """Steps in pieces of episodes, and the sizes of ŵ over all steps seen.

    The beginnings of the last `kept` episodes stay, and half as many later pieces: a long episode
    that goes well must not wash out what went wrong before it.
    """

    def __init__(self, h: int, d_w: int, p: int, kept: int, pushes: Pushes | None = None) -> None:
        self.h, self.d_w, self.p, self.kept = h, d_w, p, kept
        self._pushes = pushes  # which sizes of ŵ are more than a learned simulator's own error
        self.pieces: list[list[Visit]] = []
        self.squares, self.steps = np.zeros(d_w), 0
        self.wind = np.ones(d_w)
        """1 for coordinates of ŵ that are more than what is left of the simulator's own error"""
        self._window, self._phi_window = np.zeros((h, d_w)), np.zeros((h, p))
        self._open, self._new = False, 0  # pieces since they were looked at

    @property
    def per_size(self) -> np.ndarray:
        """1 over the root mean square of each coordinate of ŵ; 0 for those that do not move."""
        size = np.sqrt(self.squares / max(self.steps, 1))
        moves = size > 1e-6 * max(size.max(), 1e-12)
        moves &= self.wind > 0
        if self._pushes is not None:
            moves &= self._pushes(size)
        return np.where(moves, 1.0 / np.where(moves, size, 1.0), 0.0)

    def cut(self) -> None:
        """What comes next does not follow on what was."""
        self._window, self._open = np.zeros((self.h, self.d_w)), False
        self._phi_window = np.zeros((self.h, self.p))

    def add(self, x: np.ndarray, w_hat: np.ndarray, phi: np.ndarray) -> None:
        """One more step; the oldest pieces are dropped when there are too many."""
        if not self._open or len(self.pieces[-1]) >= PIECE:
            self.pieces.append([])
            self._open, self._new = True, self._new + 1
        self.pieces[-1].append(Visit(x, self._window, w_hat, phi, self._phi_window))
        self._window = np.concatenate([w_hat[None], self._window[:-1]])
        self._phi_window = np.concatenate([phi[None], self._phi_window[:-1]])
        self.squares = self.squares + w_hat**2
        self.steps += 1
        first = [i for i, piece in enumerate(self.pieces) if begins(piece)]
        later = [i for i in range(len(self.pieces)) if i not in first]
        dropped = {*first[: -self.kept], *later[: -max(1, self.kept // 2)]}
        if dropped:
            self.pieces = [piece for i, piece in enumerate(self.pieces) if i not in dropped]

    def pairs(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """ŵ and φ of each piece, rows."""
        w_hat = [np.array([visit.w_hat for visit in piece]) for piece in self.pieces]
        return w_hat, [np.array([visit.phi for visit in piece]) for piece in self.pieces]

    def amend(self, more: np.ndarray) -> None:
        """Takes `more` φ out of ŵ, wherever it is."""
        self.pieces = [
            [
                visit._replace(
                    w_hat=visit.w_hat - more @ visit.phi,
                    window=visit.window - visit.phi_window @ more.T,
                )
                for visit in piece
            ]
            for piece in self.pieces
        ]
        self._window = self._window - self._phi_window @ more.T

    def look(self, wind: np.ndarray, a: np.ndarray) -> None:
        """Takes over which coordinates are wind, and forgets how new pieces ended if not by it.

        Where Θ does not hold, as where a cart meets the end of its rail, ŵ is none; what the wind
        was then, and will be, is told by what it was before, with a.
        """
        self.wind = wind.astype(float)
        usual = self._usual()
        limit = np.where(wind & a.any(axis=1), ODD * usual, np.inf)
        for piece in self.pieces[len(self.pieces) - min(self._new, len(self.pieces)) :]:
            late = range(max(len(piece) - 2 * self.h, self.h), len(piece))
            odd = (t for t in late if _news(piece[t], a, limit))
            del piece[next(odd, len(piece)) :]
        self._new = 0
        self.squares = self.steps * np.square(np.concatenate(self.pairs()[0])).mean(axis=0)

    def _usual(self) -> np.ndarray:
        return np.asarray(np.quantile(np.abs(np.concatenate(self.pairs()[0])), MOST, axis=0))

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a file."""
        visits = [visit for piece in self.pieces for visit in piece]
        kept = {
            name: np.array([getattr(visit, name) for visit in visits]) for name in Visit._fields
        }
        lengths = np.array([len(piece) for piece in self.pieces], dtype=np.int64)
        counts = np.array([self.steps, self._open, self._new], dtype=np.int64)
        return kept | {
            "lengths": lengths, "squares": self.squares, "wind": self.wind, "now": self._window,
            "phi_now": self._phi_window, "counts": counts,
        }  # fmt: skip

    def restore(self, arrays: dict[str, np.ndarray], d_x: int) -> None:
        """Goes on from what `arrays` gave; refuses what is no record."""
        lengths, (steps, is_open, new) = arrays["lengths"], arrays["counts"].tolist()
        n, window, size = int(lengths.sum()), (self.h, self.d_w), (self.d_w,)
        phi_window = (self.h, self.p)
        shapes = {"x": (n, d_x), "window": (n, *window), "w_hat": (n, self.d_w)}
        shapes |= {"phi": (n, self.p), "phi_window": (n, *phi_window)}
        rest = {"squares": size, "wind": size, "now": window, "phi_now": phi_window}
        if not n:  # nothing recorded: an empty array has no shape to tell
            shapes = dict.fromkeys(shapes, (0,))
        for name, shape in (shapes | rest).items():
            each = arrays[name]
            if each.shape != shape or each.dtype.kind != "f" or not np.isfinite(each).all():
                raise ValueError(f"the record of steps is damaged in {name!r}")
        if (lengths < 1).any() or (arrays["squares"] < 0).any() or steps < n or new < 0:
            raise ValueError("the record of steps is damaged in its counts")
        columns = (arrays[name] for name in Visit._fields)
        visits = [Visit(*each) for each in zip(*columns, strict=True)]
        ends = [0, *np.cumsum(lengths).tolist()]
        self.pieces = [visits[a:b] for a, b in pairwise(ends)]
        self.squares, self._window = arrays["squares"], arrays["now"]
        self.wind, self._phi_window = arrays["wind"], arrays["phi_now"]
        self.steps, self._open, self._new = steps, bool(is_open), new

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    @property
    def visits(self) -> list[Visit]:
        """Steps whose windows are full, if there are any: a beginning has a past of zeros."""
        full = [visit for piece in self.pieces for visit in piece[self.h * begins(piece) :]]
        return full or [visit for piece in self.pieces for visit in piece]

    def features(self, count: int) -> np.ndarray:
        """Leading components of the windows, of size 1 over the record: (components, h·d_w).

        The lags of a slow wind say nearly the same thing; what tells its phase is in their small
        differences. In these coordinates both weigh alike. An episode's first windows, which begin
        with zeros, count for little and are not left out: what M answers to them is the push with
        which a correction sets in.
        """
        early = [visit for piece in self.pieces if begins(piece) for visit in piece[1 : self.h]]
        squares = self._covariance(self.visits) + BEGINNINGS * self._covariance(early)
        sizes, axes = np.linalg.eigh(squares)
        leading = np.argsort(sizes)[::-1][:count]
        leading = leading[sizes[leading] > LEAST * max(sizes.sum(), 1e-24)]
        moves = np.tile(self.per_size > 0, self.h)  # what does not is 0 to the bit
        return np.asarray((axes[:, leading] / np.sqrt(sizes[leading])).T * moves)

    def _covariance(self, visits: list[Visit]) -> np.ndarray:
        """Of their windows in sizes of ŵ, with the size that windows full of ŵ would have."""
        windows = np.array([visit.window for visit in visits]).reshape(-1, self.h, self.d_w)
        rows = (windows * self.per_size).reshape(-1, self.h * self.d_w)
        total = np.square(rows).sum()
        usual = self.h * np.count_nonzero(self.per_size)
        return np.asarray(rows.T @ rows * (usual / total if total else 0.0))

    def tells(self, least: int) -> bool:
        """Whether the past tells ŵ; taken for granted with fewer than `least` predictions."""
        past = Predictable(self.h, self.d_w)
        for piece in self.pieces:
            past.cut()
            for visit in piece:
                past.see(visit.w_hat)
        return past.predicted < least or past.told > 0

    def forecast(self) -> Callable[[np.ndarray], np.ndarray]:
        """ŵ_t from its window, rows: ridge regression over the record, in sizes of ŵ."""
        scale = self.per_size
        visits = self.visits
        z = np.array([np.append((visit.window * scale).ravel(), 1.0) for visit in visits])
        target = np.array([visit.w_hat * scale for visit in visits])
        gram = z.T @ z
        ridge = RIDGE * (1.0 + np.trace(gram) / len(gram))
        weights = np.linalg.solve(gram + ridge * np.eye(len(gram)), z.T @ target)
        back = np.where(scale > 0, 1.0 / np.where(scale > 0, scale, 1.0), 0.0)

        def ahead(windows: np.ndarray) -> np.ndarray:
            rows = (windows * scale).reshape(len(windows), -1)
            guess = np.column_stack([rows, np.ones(len(rows))]) @ weights
            return np.asarray(np.clip(guess, -FORECAST_BOUND, FORECAST_BOUND) * back)

        return ahead

    def starts(
        self,
        count: int,
        horizon: int,
        rng: np.random.Generator,
        luck: Luck = nothing,
        spread: int = 0,
    ) -> list[Start]:
        """Recorded steps to begin from, the wind from there on, and the base policy's draws.

        Of four replays three start where an episode did, two of these in the wind of some other
        moment: the next episode may begin at any, and moments are spread over the record, so that
        few replays meet the wind in all its phases. The fourth starts at any step of any piece.

        Where episodes last so much longer that what M is worth is decided later, one of four
        starts where an episode did, and the others are `spread` over so many steps of it.
        """
        first = [piece for piece in self.pieces if begins(piece)] or self.pieces
        later = [piece for piece in self.pieces if not begins(piece)] or self.pieces
        others = [i for i in range(count) if i % 4 in (1, 2) and not spread]
        # Each anywhere in its own part: at even distances a period may be met in two phases alone.
        parts = np.arange(len(others)) + rng.random(len(others))
        evenly = parts / max(len(others), 1) * len(self)
        moments = dict(zip(others, rng.permutation(evenly.astype(int)).tolist(), strict=True))
        places, visits = [], []
        for i in range(count):
            begun = first[rng.integers(0, len(first))]
            piece, step = begun, 0
            if i in moments:
                piece, step = _place(self.pieces, moments[i])
            elif i % 4 and spread:
                among = first if rng.random() < PIECE / spread else later
                piece, step = _place(among, int(rng.integers(0, sum(map(len, among)))))
            elif i % 4 == 3:
                piece = self.pieces[rng.integers(0, len(self.pieces))]
                step = int(rng.integers(0, len(piece)))
            places.append((piece, step))
            visits.append(begun[0] if i in moments else piece[step])
        winds = self.winds(places, horizon)
        return [
            Start(at.x, at.window, wind, luck(rng, horizon))
            for at, wind in zip(visits, winds, strict=True)
        ]

    def _onward(self, piece: list[Visit], step: int, horizon: int) -> list[Visit]:
        """At most so many visits from a step of a piece on, into pieces that follow on it."""
        at = next(i for i, each in enumerate(self.pieces) if each is piece)
        visits = piece[step:]
        for before, after in pairwise(self.pieces[at:]):
            last = before[-1].w_hat  # what was amended is the same up to rounding
            off, size = np.abs(after[0].window[0] - last).max(), np.abs(last).max()
            follows = off <= 1e-9 * size and size > 0
            if len(visits) >= horizon or not follows:
                break
            visits = visits + after
        return visits[:horizon]

    def winds(self, moments: list[tuple[list[Visit], int]], horizon: int) -> np.ndarray:
        """ŵ from steps of pieces on, (n, horizon, d_w): as recorded, and forecast from there on."""
        found = np.zeros((len(moments), horizon, self.d_w))
        window, known = np.zeros((len(moments), self.h, self.d_w)), np.zeros(len(moments), int)
        for row, (piece, step) in enumerate(moments):
            visits = self._onward(piece, step, horizon)
            own = [visit.w_hat for visit in visits]
            found[row, : len(own)], known[row] = own, len(own)
            window[row] = np.concatenate([visits[-1].w_hat[None], visits[-1].window[:-1]])
        ahead = self.forecast()
        for t in range(int(known.min(initial=horizon)), horizon):
            rows = np.flatnonzero(known <= t)
            found[rows, t] = ahead(window[rows])
            window[rows] = np.concatenate([found[rows, t][:, None], window[rows, :-1]], axis=1)
        return found


def _place(pieces: list[list[Visit]], moment: int) -> tuple[list[Visit], int]:
    """The piece that a step of all of them lies in, and which it is there."""
    ends = np.cumsum([len(piece) for piece in pieces])
    at = int(np.searchsorted(ends, moment, side="right"))
    return pieces[at], moment - int(ends[at]) + len(pieces[at])


def _news(visit: Visit, a: np.ndarray, limit: np.ndarray) -> bool:
    """Whether ŵ is far from what its past tells."""
    told = np.einsum("dh,hd->d", a, visit.window)
    return bool((np.abs(visit.w_hat - told) > limit).any())


def begins(piece: list[Visit]) -> bool:
    """Whether a piece is the beginning of an episode: nothing was seen before it."""
    return not piece[0].window.any()
