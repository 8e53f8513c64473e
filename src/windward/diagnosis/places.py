"""Where a wind may push: places ranked, taken out of residuals, and told from late actions."""

from typing import NamedTuple

import numpy as np

from windward.diagnosis.explanation import PAST, Explanation, Settings
from windward.diagnosis.fit import MAD, ActionNoise, Whitening, predictable
from windward.diagnosis.residuals import Direction, Residuals, Rows, along

ALIKE = 0.999
"""cosine from which on two places act alike"""
BEYOND = 0.05
"""share of the steps in which a push on the action may seem to leave its bounds"""


def ranking(r: np.ndarray, directions: list[Direction]) -> list[tuple[str, list[int]]]:
    """Places by how little of the residual they leave for each number that is left.

    Of places that act alike the action is first: of a push there the size is fitted too.
    """
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
    ranked = [(place, axes) for _, place, axes in found]
    by_name = {each.place: each for each in directions}
    if ranked and "action" in by_name and by_name["action"].effect.shape[-1] == 1:
        place, axes = ranked[0]
        if place != "action" and _alike(by_name["action"], by_name[place], axes):
            ranked.sort(key=lambda each: each[0] != "action")
    return ranked


def _alike(a: Direction, b: Direction, axes: list[int]) -> bool:
    """Whether one axis of a place does just what the action does."""
    if len(axes) > 1:
        return False
    x, y = np.nan_to_num(a.effect[..., 0]), np.nan_to_num(b.effect[..., axes[0]])
    size = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    cosine = np.abs((x * y).sum(axis=1)) / np.maximum(size, 1e-300)
    return bool(np.median(cosine) > ALIKE)


def possible(residuals: Residuals, rows: Rows, place: str, amount: np.ndarray) -> bool:
    """Whether pushes (m, k) can have acted: the action stays within its bounds."""
    if place != "action":
        return True
    space = residuals.action_space
    u = np.asarray(rows.u, dtype=np.float64).reshape(rows.size, -1)
    room = 0.05 * (space.high - space.low).ravel() + 0.3 * np.median(np.abs(amount), axis=0)
    moved = u + amount
    beyond = (moved > space.high.ravel() + room) | (moved < space.low.ravel() - room)
    return bool(beyond.any(axis=1).mean() < BEYOND)


def blown(
    residuals: Residuals, each: Explanation, rows: Rows, settings: Settings, refine: bool = True
) -> tuple[Rows, Whitening]:
    """Rows pushed by the wind of an explanation, and what to take out of their residuals.

    Args:
        residuals: of the simulator.
        each: the explanation.
        rows: of recorded steps.
        settings: of the diagnosis.
        refine: go on from the force that explains them best, as a strong wind changes contacts.
    """
    if not each.wind:
        return rows, Whitening()
    if each.wind == PAST:
        return rows, Whitening(past=settings.fit.past)
    theta, axes = each.fitted.theta, list(each.axes)
    (direction,) = residuals.directions(theta, rows, each.wind, axes)
    amount = np.zeros((rows.size, len(axes)))
    calm = rows, direction.effect
    if refine and not each.wind.startswith("coordinate:"):
        # What a strong wind does is not in proportion to it.
        for _ in range(1 if each.wind == "action" else 2):
            amount = amount + along(residuals.at([theta], rows)[0], direction.effect)
            rows, amount = residuals.pushed(calm[0], direction, amount)
            (direction,) = residuals.directions(theta, rows, each.wind, axes)
    if each.wind != "action":
        return rows, Whitening(direction.effect)
    # Gains and dampings act where motors do: without the wind's own size they would not show.
    regular = np.mean([predictable(w, rows.run) for w in amount.T]) > settings.regular
    # Sharper, the search would creep along a valley.
    size = amount if refine else along(residuals.at([theta], rows)[0], direction.effect)
    done = np.median(np.abs(np.einsum("tck,tk->tc", direction.effect, size)))
    noise = ActionNoise(amount, residuals.inside(rows, amount), *calm)
    return rows, Whitening(
        direction.effect, settings.fit.past if regular else 0, noise,
        settings.sharpest * float(done),
    )  # fmt: skip


class Lateness(NamedTuple):
    """How well late actions explain what acts like a push on the action."""

    delay: int
    left: float
    """share of it that is left"""


def lateness(
    residuals: Residuals, theta: np.ndarray, rows: Rows, most: int, steps: int = 300
) -> list[Lateness]:
    """Delays by how much they leave, the best first.

    A delay of k steps acts like a push of u_{t-k} - u_t on the action, and a gain like one in
    proportion to u_t: pushes are regressed on both.
    """
    if rows.u.dtype.kind != "f" or rows.size <= most + 16:
        return []
    index = np.arange(most, rows.size)
    index = index[rows.run[index] == rows.run[index - most]]
    if len(index) < 16:
        return []
    index = index[np.unique(np.linspace(0, len(index) - 1, min(len(index), steps)).astype(int))]
    few = rows.take(index)
    (direction,) = residuals.directions(theta, few, "action")
    push = along(residuals.at([theta], few)[0], direction.effect)
    u = np.asarray(rows.u, dtype=np.float64).reshape(rows.size, -1)
    now = u[index]
    before = _left(push, [now])
    if not before > 0:
        return []
    found = [
        Lateness(k, _left(push, [now, u[index - k] - now]) / before) for k in range(1, most + 1)
    ]
    return sorted(found, key=lambda each: each.left)


def _left(push: np.ndarray, series: list[np.ndarray]) -> float:
    """What robust regressions on series of the same motor leave, summed over motors."""
    total = 0.0
    for motor in range(push.shape[1]):
        y = push[:, motor]
        x = np.stack([*(each[:, motor] for each in series), np.ones(len(y))], axis=1)
        weight, rest = np.ones(len(y)), y
        for _ in range(5):
            scaled = x * weight[:, None]
            damping = 1e-9 * np.trace(scaled.T @ x) * np.eye(x.shape[1]) + 1e-12 * np.eye(len(x.T))
            rest = y - x @ np.linalg.solve(scaled.T @ x + damping, scaled.T @ y)
            weight = 1 / np.maximum(1.0, np.abs(rest) / (2 * MAD * np.median(np.abs(rest)) + 1e-15))
        usual = np.median(np.abs(push[:, motor])) + 1e-12
        total += float(np.median(np.abs(rest)) / usual)
    return total
