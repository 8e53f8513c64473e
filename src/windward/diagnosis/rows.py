"""Rows of states, actions and next states from a log, and checks of what no fit can explain."""

import numpy as np

from windward.diagnosis.log import Episode, Log
from windward.diagnosis.residuals import Rows
from windward.simulators.function import FunctionDynamics
from windward.simulators.learned import LearnedSimulator
from windward.simulators.simulator import Simulator

Nominal = Simulator | LearnedSimulator
JUMP = 3.0
"""a position that moves by so much more than its velocities allow has not been reached in a step"""
FAST = 0.99
"""quantile of a velocity that is its fastest: single steps may be outliers"""
STANDS_OUT = 100.0
"""a residual so many times those of the others may be that of a lost step"""
HUGE = 0.1
"""and is at least so large, in usual changes of a coordinate in a step"""
ISOLATED = 0.02
"""share of the steps of which so much can be said"""
SOME = 3
"""and as many as this in a short log"""


def rows_of(log: Log, nominal: Nominal, observed: bool, most: int) -> tuple[Rows, tuple[str, ...]]:
    """Steps as rows of states; whole stretches of the first `most`."""
    parts, notes = [], []
    run = 0
    for number, episode in enumerate(log.episodes):
        x, kept = _states(episode, nominal, observed)
        u = _inner(nominal, episode.actions)
        _refuse_jumps(x, nominal, number)
        T = episode.steps
        good = kept[:-1] & kept[1:]
        # Runs end where a step is left out.
        breaks = np.r_[True, ~good[1:] | ~good[:-1]] if T > 1 else np.array([True])
        own = run + np.cumsum(breaks)
        run = int(own[-1]) + 1
        t = np.arange(T)
        rows = Rows(x[:-1], u, x[1:], own, t, np.full(T, number)).take(good)
        if rows.size < good.size:
            notes.append(
                f"{good.size - rows.size} steps of episode {number} were left out: their "
                "observations are clipped, and hide the state"
            )
        parts.append(rows)
        if sum(each.size for each in parts) >= most:
            break
    joined = Rows(
        *(np.concatenate(each) for each in zip(*(part[:6] for part in parts), strict=True))
    )
    if joined.size < 10:
        raise ValueError(
            f"only {joined.size} steps of the log can be used: record at least 10, better 100"
        )
    return joined.take(slice(0, most)), tuple(notes)


def _states(episode: Episode, nominal: Nominal, observed: bool) -> tuple[np.ndarray, np.ndarray]:
    """(states, which of them are known) of an episode."""
    if isinstance(nominal, LearnedSimulator):
        x = np.asarray(episode.observations, dtype=np.float64)
        x = x.reshape(len(x), -1)
        return x, np.ones(len(x), dtype=bool)
    if episode.states is not None and not observed:
        x = np.asarray(episode.states, dtype=np.float64)
        return x, np.ones(len(x), dtype=bool)
    return nominal.states_seen(np.asarray(episode.observations, dtype=np.float64))


def _inner(nominal: Nominal, actions: np.ndarray) -> np.ndarray:
    """Actions as the physics takes them."""
    if isinstance(nominal, LearnedSimulator):
        return np.asarray(actions)
    u = nominal.inner(np.asarray(actions))
    return np.asarray(u, dtype=np.float64) if u.dtype.kind == "f" else np.asarray(u)


def _refuse_jumps(x: np.ndarray, nominal: Nominal, number: int) -> None:
    """Positions that no velocity leads to: steps are missing, or an end is not marked."""
    if isinstance(nominal, LearnedSimulator):
        return
    parts = nominal.dynamics.parts
    if "qvel" not in parts or len(parts["qpos"]) != len(parts["qvel"]) or len(x) < 3:
        return
    q, v = x[:, parts["qpos"]], np.abs(x[:, parts["qvel"]])
    gap = np.abs(nominal.dynamics.gap(x[1:], x[:-1])[:, parts["qpos"]])
    dt = nominal.seconds
    if dt is None or not np.isfinite(q).all():
        return
    usual = np.median(v, axis=0) + 0.1
    speed = (x[1:] + x[:-1])[:, parts["qvel"]] / 2
    noise = np.median(np.abs(x[1:] - x[:-1])[:, parts["qpos"]] - dt * np.abs(speed), axis=0)
    allowed = JUMP * dt * (v[1:] + v[:-1] + usual) + 20 * np.abs(noise)
    # Between two slow moments a strong motor can be fast, but not faster than it ever is.
    fastest = JUMP * dt * np.quantile(v, FAST, axis=0)
    bad = (gap > np.maximum(allowed, fastest)).any(axis=1)
    # Where most steps jump the velocities are in another unit: that is for the fit to show.
    if bad.any() and bad.mean() < 0.2:
        step = int(bad.argmax())
        raise ValueError(
            f"step {step} of episode {number} jumps: its position changes by "
            f"{gap[step].max():.3g}, more than its velocities allow. Steps are missing there, or "
            "an episode ended: mark an end"
        )


def scale_of(rows: Rows) -> np.ndarray:
    """The usual change of each coordinate in a step."""
    size = np.std(rows.x_next - rows.x, axis=0)
    # What hardly moves is measured against the others, not against itself.
    return np.maximum(size, 1e-3 * float(size.max(initial=0.0)) + 1e-9)


def check_function(dynamics: FunctionDynamics, rows: Rows) -> None:
    """Refuses a user's function that cannot compute the recorded steps."""
    x_next = dynamics.advance(rows.x, rows.u, {})
    lost = ~np.isfinite(x_next).all(axis=1)
    if lost.mean() > 0.5:
        raise ValueError(
            f"{dynamics.called()} must return finite x_next; it is not finite for "
            f"{int(lost.sum())} of {rows.size} recorded steps, the first with x = "
            f"{rows.x[int(lost.argmax())].tolist()}"
        )


def lost_steps(r: np.ndarray, rows: Rows) -> tuple[np.ndarray, tuple[str, ...]]:
    """(which rows do not follow from the ones before, notes that name them).

    A few residuals that stand out by orders of magnitude, while all others are explained.
    """
    size = np.sqrt(np.mean(np.square(np.where(np.isfinite(r), r, 0.0)), axis=1))
    usual = float(np.quantile(size, 0.9))
    lost = (size > STANDS_OUT * usual) & (size > HUGE)
    # Late actions spoil a few steps after one that was lost.
    first = lost & ~np.r_[False, lost[:-1] & (rows.run[1:] == rows.run[:-1])]
    if not lost.any() or first.sum() > max(SOME, ISOLATED * rows.size):
        return np.zeros(rows.size, dtype=bool), ()
    notes = []
    for episode in np.unique(rows.episode[first]):
        steps = [str(int(t) + 1) for t in rows.time[first & (rows.episode == episode)]]
        one = len(steps) == 1
        said = steps[0] if one else f"{', '.join(steps[:-1])} and {steps[-1]}"
        notes.append(
            f"step{'' if one else 's'} {said} of episode {int(episode)} "
            f"do{'es' if one else ''} not follow from the {'one' if one else 'ones'} before: "
            f"{'was one' if one else 'were some'} lost? {'It is' if one else 'They are'} left out"
        )
    return lost, tuple(notes)


def without(rows: Rows, lost: np.ndarray) -> Rows:
    """Rows without some; runs end where they were."""
    return rows._replace(run=rows.run + np.cumsum(lost)).take(~lost)
