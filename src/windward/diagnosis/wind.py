"""What is left over once the changed parameters are known: where it pushes, and a model of it."""

from typing import NamedTuple

import numpy as np

from windward.diagnosis.explanation import Identified
from windward.diagnosis.fit import MAD, autoregression, predictable
from windward.diagnosis.places import possible, ranking
from windward.diagnosis.residuals import Direction, Residuals, Rows, along

MOST = 48
"""steps that an autoregression needs at least"""
SINES = 2
"""sinusoids in a model, at most"""
PERIODS = (4.0, 2000.0)
"""steps: shortest and longest period that is looked for"""
WORTH = 0.7
"""a part of a model must leave less than this share of what was there without it"""
NAMED = 0.5
"""a place must leave less than this share of the motion left over to be named"""


class Sine(NamedTuple):
    """A sinusoid with a phase of its own in each episode."""

    amplitude: float
    period: float
    """steps"""


class Model(NamedTuple):
    """w_t = mean + step·[t ≥ at] + Σ sines + an autoregression driven by white noise."""

    mean: float
    step: float
    at: int
    sines: tuple[Sine, ...]
    past: tuple[float, ...]
    noise: float
    """standard deviation of what drives the autoregression"""

    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        """A fresh wind of the same kind: random phases, fresh noise."""
        t = np.arange(steps)
        w = self.mean + self.step * (t >= self.at)
        for sine in self.sines:
            w = w + sine.amplitude * np.sin(2 * np.pi * (t / sine.period + rng.random()))
        order, warm = len(self.past), 50 if self.past else 0
        noise = self.noise * rng.standard_normal(steps + warm)
        for i in range(len(noise)):
            for k in range(min(order, i)):
                noise[i] += self.past[k] * noise[i - 1 - k]
        return np.asarray(w + noise[warm:])


class Coordinate(NamedTuple):
    """What is left over in one coordinate of the state."""

    name: str
    size: float
    """root mean square, in the coordinate's unit"""
    predictable: float
    """share of it that its own past tells"""
    period: float | None
    """steps, of its main sinusoid, where there is one"""


class Axis(NamedTuple):
    """A wind along one axis of a place."""

    name: str
    size: float
    """amplitude of a sinusoid, a constant's or step's size, else the root mean square"""
    predictable: float
    model: Model


class Wind(NamedTuple):
    """What is left over."""

    place: str
    """"force:BODY", "action", "coordinate:NAME"; "" where no single place explains it"""
    unit: str
    axes: tuple[Axis, ...]
    series: tuple[np.ndarray, ...]
    """(steps, axes) for each episode"""
    explained: float
    """share of what is left over that a push at this place explains"""
    coordinates: tuple[Coordinate, ...]
    seconds: float | None
    """of a step, where known"""

    @property
    def period(self) -> float | None:
        """Steps, of the strongest sinusoid along any axis."""
        sines = [sine for axis in self.axes for sine in axis.model.sines[:1]]
        return max(sines).period if sines else None

    @property
    def size(self) -> float:
        """Of the strongest axis."""
        return max((axis.size for axis in self.axes), default=0.0)

    def nowhere(self) -> "Wind":
        """The same without a place: what is left over in each coordinate."""
        return Wind("", "", (), (), 0.0, self.coordinates, self.seconds)

    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        """A fresh wind of the same kind, (steps, axes)."""
        if not self.axes:
            return np.zeros((steps, 0))
        return np.stack([axis.model.draw(rng, steps) for axis in self.axes], axis=1)

    def __str__(self) -> str:
        if not self.axes:
            worst = max(self.coordinates, key=lambda each: each.size)
            return f"wind in no single place, most in {worst.name} ({worst.size:.3g} a step)"
        lines = [_said(axis, self) for axis in self.axes]
        return "; ".join(lines)


def _said(axis: Axis, wind: Wind) -> str:
    """One axis in words."""
    kind, _, body = wind.place.partition(":")
    where = {"force": f"force on {body} along {axis.name}", "action": f"on action {axis.name}"}
    place = where.get(kind, f"on {body}")
    size = f"{axis.size:.3g} {wind.unit}".strip()
    model = axis.model
    if model.sines:
        period = model.sines[0].period
        seconds = "" if wind.seconds is None else f" ({period * wind.seconds:.2f} s)"
        return f"wind {place}, {size}, period {period:.0f} steps{seconds}"
    if model.step:
        return f"wind {place}, {size} from step {model.at} on"
    if abs(model.mean) > model.noise:
        return f"wind {place}, constant {size}"
    kind = "white noise" if axis.predictable < 0.3 else "irregular"
    return f"wind {place}, {kind}, {size} rms"


def wind_of(
    residuals: Residuals, found: Identified, rows: Rows, smallest: float, seconds: float | None
) -> Wind | None:
    """The wind that parameters do not explain; None where they leave next to nothing.

    Args:
        rows: consecutive steps of all episodes.
        smallest: mean square below which nothing is left, in usual changes.
        seconds: of a step.
    """
    if found.windless:
        return None
    r = residuals.at([found.theta], rows)[0]
    ok = np.isfinite(r).all(axis=1)
    if not ok.any() or np.square(r[ok]).mean() < smallest:
        return None
    r = np.where(ok[:, None], r, 0.0)
    coordinates = tuple(
        _coordinate(name, r[:, i] * residuals.scale[i], rows)
        for i, name in enumerate(residuals.names)
    )
    place, axes, explained = _place(residuals, found, rows, r)
    if explained < 1 - NAMED:
        return Wind("", "", (), (), 0.0, coordinates, seconds)
    (direction,) = residuals.directions(found.theta, rows, place, axes)
    amount = along(r, direction.effect)
    if not place.startswith("coordinate:"):
        # What a strong push does is not in proportion to it.
        pushed, amount = residuals.pushed(rows, direction, amount)
        amount = amount + along(residuals.at([found.theta], pushed)[0], direction.effect)
    size = np.sqrt(np.median(np.square(amount), axis=0))
    strong = size > 0.05 * size.max()
    found_axes = tuple(
        _axis(direction.axes[i] or place.partition(":")[2], amount[:, i], rows)
        for i in np.flatnonzero(strong)
    )
    amount = amount[:, strong]
    series = tuple(amount[rows.episode == e] for e in np.unique(rows.episode))
    return Wind(place, direction.unit, found_axes, series, explained, coordinates, seconds)


def _place(
    residuals: Residuals, found: Identified, rows: Rows, r: np.ndarray
) -> tuple[str, list[int], float]:
    """Where it pushes, along which axes, and how much of it that explains."""
    few = np.unique(np.linspace(0, rows.size - 1, min(rows.size, 150)).astype(int))
    some = rows.take(few)
    near = {each.place: each for each in residuals.directions(found.theta, some)}
    own = found.explanation.wind
    if own in near:
        ranked = [(own, list(found.explanation.axes))]
    else:
        ranked = ranking(r[few], list(near.values()))
    for place, axes in ranked:
        push = along(r[few], near[place].effect[..., axes])
        if possible(residuals, some, place, push):
            break
    else:
        place, axes = ranked[0]
    return place, axes, _explained(r[few], near[place], axes)


def _explained(r: np.ndarray, direction: Direction, axes: list[int]) -> float:
    """Share that a push there explains beyond what it would of noise in all coordinates."""
    effect = direction.effect[..., axes]
    rest = r - np.einsum("tck,tk->tc", np.nan_to_num(effect), along(r, effect))
    size, left = np.square(r).sum(axis=1), np.square(rest).sum(axis=1)
    # Steps that show something, each with the same say: contacts make a few of them huge.
    shows = size > 1e-6 * np.median(size[size > 0]) if (size > 0).any() else size > 0
    if not shows.any():
        return 0.0
    c = r.shape[1]
    free = c / max(0.5, c - len(axes))
    return max(0.0, 1 - free * float(np.median(left[shows] / size[shows])))


def _coordinate(name: str, w: np.ndarray, rows: Rows) -> Coordinate:
    model = fit_model(w, rows)
    period = model.sines[0].period if model.sines else None
    return Coordinate(name, float(np.sqrt(np.square(w).mean())), predictable(w, rows.run), period)


def _axis(name: str, w: np.ndarray, rows: Rows) -> Axis:
    model = fit_model(w, rows)
    if model.sines:
        size = model.sines[0].amplitude
    elif model.step:
        size = abs(model.step)
    elif abs(model.mean) > model.noise:
        size = abs(model.mean)
    else:
        size = float(np.sqrt(np.square(_winsorised(w)).mean()))
    return Axis(name, size, predictable(w, rows.run), model)


def _winsorised(w: np.ndarray) -> np.ndarray:
    """A series with its outliers cut: at contacts a force is badly known."""
    middle = np.median(w)
    reach = 5 * MAD * np.median(np.abs(w - middle)) + 1e-12
    return np.clip(w, middle - reach, middle + reach)


def fit_model(w: np.ndarray, rows: Rows) -> Model:
    """The simplest model that leaves little: constant, step, sinusoids, autoregression."""
    w = _winsorised(w)
    time, episode = rows.time, rows.episode
    mean = float(np.median(w))
    rest = w - mean
    sines: list[Sine] = []
    step, at = 0.0, 0
    size = _size(rest)
    jump, moment, left = _step(w, time)
    if len(w) > 20 and left < 0.3 * size:
        step, at, mean = jump, moment, float(np.median(w[time < moment]))
        rest = w - mean - step * (time >= at)
    else:
        for _ in range(SINES):
            if len(w) < 20 or _size(rest) < 1e-9 * (abs(mean) + size):
                break
            sine, after = _sine(rest, time, episode)
            if not sines and mean:
                # Less than a period does not tell its mean: try without one.
                other = _sine(w, time, episode)
                if _size(other[1]) < _size(after):
                    mean, rest, (sine, after) = 0.0, w, other
            if not _size(after) < WORTH * _size(rest):
                break
            sines.append(sine)
            middle = float(after.mean())
            mean, rest = mean + middle, after - middle
    past: tuple[float, ...] = ()
    rate = predictable(rest, rows.run)
    if rate > 0.2 and len(rest) > MOST:
        lags = np.stack([rest[2 - k : len(rest) - k] for k in (1, 2)], axis=1)
        a = autoregression(rest[2:], lags)
        roots = np.abs(np.roots([1.0, -a[0], -a[1]]))
        if roots.max(initial=0.0) < 0.999:
            past = tuple(a.tolist())
            rest = rest[2:] - lags @ a
    if abs(mean) < 0.5 * _size(w) and (sines or step == 0.0) and abs(mean) < 3 * _size(rest):
        mean = 0.0
    sines.sort(reverse=True)
    return Model(mean, step, at, tuple(sines), past, float(np.sqrt(np.square(rest).mean())))


def _size(w: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(w))))


def _step(w: np.ndarray, time: np.ndarray) -> tuple[float, int, float]:
    """(size, step, root mean square left) of the best single step."""
    last = int(time.max(initial=0))
    if last <= 12:
        return 0.0, 0, float("inf")

    def at(moment: int) -> tuple[float, int, float]:
        late = time >= moment
        if late.sum() < 5 or (~late).sum() < 5:
            return 0.0, 0, float("inf")
        low, high = float(np.median(w[~late])), float(np.median(w[late]))
        return high - low, moment, _size(w - np.where(late, high, low))

    coarse = [at(int(t)) for t in np.unique(np.linspace(5, last - 5, 60).astype(int))]
    best = min(coarse, key=lambda each: each[2])
    reach = last // 60 + 1
    near = [at(t) for t in range(max(5, best[1] - reach), best[1] + reach + 1)]
    return min([best, *near], key=lambda each: each[2])


def _waves(w: np.ndarray, time: np.ndarray, first: np.ndarray, period: float) -> np.ndarray:
    """Least squares of sine and cosine in each episode: (episodes, 2)."""
    angle = 2 * np.pi * time / period
    sine, cosine = np.sin(angle), np.cos(angle)
    sums = [
        np.add.reduceat(each, first)
        for each in (sine * sine, sine * cosine, cosine * cosine, sine * w, cosine * w)
    ]
    damping = 1e-9 * (sums[0] + sums[2])
    a, b, c = sums[0] + damping, sums[1], sums[2] + damping
    determinant = a * c - b * b
    return np.stack(
        [(c * sums[3] - b * sums[4]) / determinant, (a * sums[4] - b * sums[3]) / determinant], 1
    )


def _sine(w: np.ndarray, time: np.ndarray, episode: np.ndarray) -> tuple[Sine, np.ndarray]:
    """(sinusoid, what it leaves): the period is searched, the rest is least squares."""
    from scipy.optimize import minimize_scalar

    first = np.flatnonzero(np.r_[True, episode[1:] != episode[:-1]])
    counts = np.diff(np.r_[first, len(w)])
    own = np.repeat(np.arange(len(first)), counts)

    def left(period: float) -> np.ndarray:
        waves = _waves(w, time, first, period)[own]
        angle = 2 * np.pi * time / period
        return np.asarray(w - waves[:, 0] * np.sin(angle) - waves[:, 1] * np.cos(angle))

    longest = float(time.max() + 1)
    low, high = 1 / min(PERIODS[1], 2 * longest), 1 / PERIODS[0]
    # Frequencies closer than a quarter of a cycle an episode look alike.
    length = 4 * int(longest)
    frequencies = np.fft.rfftfreq(length)
    power = np.zeros(len(frequencies))
    for start, count in zip(first, counts, strict=True):
        series = np.zeros(int(longest))
        series[time[start : start + count]] = w[start : start + count]
        power += np.square(np.abs(np.fft.rfft(series, length))) / count
    looked = (frequencies >= low) & (frequencies <= high)
    frequencies, power = frequencies[looked], power[looked]
    tries = [
        minimize_scalar(
            lambda f: _size(left(1 / f)),
            bounds=(max(low / 2, f - 0.5 / longest), f + 0.5 / longest),
            method="bounded",
        )
        for f in frequencies[np.argsort(power)[-3:]]
    ]
    period = float(1 / min(tries, key=lambda each: each.fun).x)
    amplitude = np.hypot(*_waves(w, time, first, period).T)
    # Pieces much shorter than a period tell its size badly.
    size = float(np.average(amplitude, weights=np.square(counts)))
    return Sine(size, period), left(period)
