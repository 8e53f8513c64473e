"""What sensors add to states: noise, how it shows, and a constant bias."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from windward.diagnosis.fit import MAD
from windward.diagnosis.log import Log
from windward.diagnosis.parameters import BIAS, observed_numbers
from windward.diagnosis.residuals import Residuals, Rows

SEVERAL = 3
"""positions beyond which one alone does not show noise"""


@dataclass(frozen=True)
class SensorSettings:
    """How noise on sensors is found, and a fit through it goes."""

    ratio: float = 1.5
    """positions that miss by so many times what the velocities' misses explain may be noisy"""
    clear: float = 4.0
    """the same before anything is fitted"""
    far: float = 6.0
    """positions that miss by so many times more are noisy, if they alternate at all ..."""
    large: float = 0.02
    """... and miss by so much of their usual change in a step"""
    rounding: float = 1e-3
    """misses of a smaller share of a position's usual change in a step are no noise"""
    alternating: float = -0.28
    """correlation of a miss with the next one, from which on it is noise; -0.5 for noise alone"""
    piece: int = 100
    """steps that are filtered in one go"""
    few: int = 300
    """steps on which delays are compared"""
    first: int = 200
    """steps that the first rounds look at"""
    steps: int = 400
    """steps that are looked at, at most"""
    rounds: tuple[int, int, int] = (6, 2, 3)
    """at most: at first, on all steps, and for the changes that are chosen"""
    settled: float = 0.3
    """largest change of θ, in its standard deviations, that ends the rounds"""
    tails: float = 2.0
    """degrees of freedom of w"""
    huber: float = 2.0
    """innovations beyond so many standard deviations count linearly"""
    longest: float = 1.0
    """largest change of a θ in one round"""
    updates: int = 3
    """of the sizes of noise and w, in each round"""
    smaller: float = 0.1
    """share of w that is tried in each round: its size falls slowly otherwise"""
    resolution: float = 0.03
    """smallest θ that counts: the bias that the linearisation leaves"""
    doubt: float = 2.0
    """how much wider intervals are than the innovations say, for the same reason"""
    block: int = 20
    """consecutive steps that are left out together, to see what estimates hang on"""
    windless: float = 4.0
    """w of so many times the velocities' noise is no error of the linearisation but a wind"""


class Noise(NamedTuple):
    """Standard deviations of what sensors add."""

    positions: float
    velocities: float

    def __str__(self) -> str:
        return (
            f"sensors: noise of {self.positions:.2g} in positions, {self.velocities:.2g} in "
            "velocities"
        )


class Bias(NamedTuple):
    """A constant error of one number of the observation."""

    name: str
    amount: float
    error: float
    """standard deviation"""


def bias_beside(log: Log, nominal: Any, most: int = 200) -> tuple[Bias, ...]:
    """Constant differences of observations from what the recorded states show."""
    numbers = observed_numbers(nominal.dynamics)
    if not numbers:
        return ()
    gaps: list[np.ndarray] = []
    for episode in log.episodes:
        if episode.states is None or sum(len(each) for each in gaps) >= most:
            break
        count = min(len(episode.states), most)
        few = np.unique(np.linspace(0, len(episode.states) - 1, count).astype(int))
        shown = nominal.observation(np.asarray(episode.states, dtype=np.float64)[few])
        seen = np.asarray(episode.observations, dtype=np.float64)[few]
        if shown.shape != seen.shape:
            return ()
        gaps.append(seen - shown)
    if not gaps:
        return ()
    gap = np.concatenate(gaps)
    found = []
    for number in numbers:
        middle = float(np.median(gap[:, number]))
        spread = MAD * float(np.median(np.abs(gap[:, number] - middle)))
        error = spread / np.sqrt(len(gap)) + 1e-6
        if abs(middle) > 5 * error and abs(middle) > 1e-4:
            found.append(Bias(f"{BIAS}:{number}", middle, error))
    return tuple(found)


def noisy(
    residuals: Residuals,
    theta: np.ndarray,
    rows: Rows,
    settings: SensorSettings,
    ratio: float | None = None,
) -> bool:
    """Whether sensors are noisy: positions miss, and miss the other way in the next step.

    A force or a changed parameter moves positions by what it does to velocities; noise moves them
    by itself, and is in two misses with opposite signs.
    """
    pairs = pairs_of(residuals.dynamics, rows)
    if not len(pairs):
        return False
    gap = residuals.dynamics.gap(rows.x_next, residuals.advance([theta], rows.x, rows.u)[0])
    follows = rows.run[1:] == rows.run[:-1]
    usual = np.std(rows.x_next - rows.x, axis=0)
    ratios, correlations, sizes = [], [], []
    for q, v in pairs:
        miss, other = (np.nan_to_num(gap[:, i]) for i in (q, v))
        slope, rest, size = regression(miss, other)
        speed = abs(slope) * MAD * float(np.median(np.abs(other)))
        cut = np.clip(rest, -3 * size, 3 * size)
        power = float(np.square(cut[:-1])[follows].sum())
        sizes.append(size / max(float(usual[q]), 1e-300))
        ratios.append(size / max(speed, 1e-300))
        correlations.append(float((cut[1:] * cut[:-1])[follows].sum()) / max(power, 1e-300))
    relative, size = float(np.median(ratios)), float(np.median(sizes))
    least = settings.ratio if ratio is None else ratio
    if size < settings.rounding or relative < least:
        return False
    # The second lowest of many, in case one alternates by chance.
    lowest = float(np.sort(correlations)[1 if len(correlations) > SEVERAL else 0])
    if lowest < settings.alternating:
        return True
    # Stiff joints forget where they were: their misses alternate little.
    large = relative > settings.far and size > settings.large
    return bool(large and np.mean(correlations) < -0.05)


def regression(y: np.ndarray, x: np.ndarray) -> tuple[float, np.ndarray, float]:
    """(slope, what is left, its size) of a robust regression through the origin."""
    weight, slope, size, rest = np.ones(len(y)), 0.0, 0.0, y
    for _ in range(5):
        slope = float((weight * y * x).sum() / max(float((weight * x * x).sum()), 1e-300))
        rest = y - slope * x
        size = MAD * float(np.median(np.abs(rest))) + 1e-300
        weight = 1 / np.maximum(1.0, np.abs(rest) / size / 2)
    return slope, rest, size


def pairs_of(dynamics: Any, rows: Rows) -> np.ndarray:
    """(n, 2) positions that were measured and their velocities; none where they do not pair."""
    parts = dynamics.parts
    if "qvel" not in parts or len(parts["qpos"]) != len(parts["qvel"]):
        return np.zeros((0, 2), dtype=int)
    moves = np.ptp(rows.x, axis=0) > 0
    pairs = [(q, v) for q, v in zip(parts["qpos"], parts["qvel"], strict=True) if moves[q]]
    return np.array(pairs, dtype=int).reshape(len(pairs), 2)
