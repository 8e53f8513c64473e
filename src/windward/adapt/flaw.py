"""What is wrong with a simulator: the part of ŵ that the step tells, and its own past does not.

In a simulator whose masses are wrong, ŵ is the wind and f(x, u) - f_sim(x, u). To regress ŵ on the
step would take the policy's answer to the wind for the simulator's fault. But a wind that M can
meet is told by its own past, so both are sought at once: Θ such that what is left is as well told
by its last h values as can be,

    ŵ_t = Θφ_t + w_t,   w_t = Σ_k a_k w_{t-k} + e_t,   φ_t = (f_sim(x_t, u_t) - x_t, u_t),

least squares for Θ and a in turn (Cochrane and Orcutt), steps with a large e left out: a joint at
its limit, a speed that is cut off. φ has the simulator's own motion, of which wrong masses make too
much or too little, and the action, of which they make another push. In quick motion the two say
nearly the same, in slow motion they do not, and there a is free to explain anything: so the action
is blamed first, and the motion for what that leaves.
"""

from typing import NamedTuple

import numpy as np

LEAST = 40
"""steps without which nothing is said, beside two for each number of φ"""
TURNS = 25
RIDGE = 1e-4
"""of Θ, over the mean square of φ"""
MOTION = 0.1
"""of the size of actions, to which motion is scaled: a smaller one is blamed later"""
OUTLIER = 4.0
"""standard deviations, by the median, from which on a step is left out"""
FLAW = 0.01
"""of the size of ŵ: an error of its prediction that is smaller is no flaw"""
BETTER = 0.5
"""of that error, which Θ must do away with on steps that it was not fitted to"""
PART = 0.1
"""of the size of ŵ that Θφ must have"""
REMNANT = 0.05
"""of an error that was taken out of ŵ: what is left of it is no wind"""
MOST = 0.8
"""of the steps, by which that is told: not by a fall, where both are large"""
SHOWN = 0.7
"""of the steps, the first ones, that Θ is fitted to when it is tried"""


class Steps(NamedTuple):
    """Steps of pieces, each with the h before it."""

    now: np.ndarray  # (n, k)
    past: np.ndarray  # (n, h, k)


class Flaw(NamedTuple):
    """What is wrong; rows of 0 where nothing is."""

    Theta: np.ndarray  # (d_w, p)
    a: np.ndarray  # (d_w, h)
    wind: np.ndarray  # (d_w,) bool: more is left of ŵ than what Θ may have missed


def flaw(w_hat: list[np.ndarray], phi: list[np.ndarray], h: int, known: np.ndarray) -> Flaw | None:
    """What is wrong, from pieces of ŵ and φ; None where there is too little to say anything.

    The first d_w numbers of φ are the motion, the others the action. Coordinates of ŵ that are
    `known` to be wrong are not asked again whether they are.

    >>> rng, t, known = np.random.default_rng(0), np.arange(300), np.zeros(1, dtype=bool)
    >>> phi, wind = rng.normal(size=(300, 2)), np.sin(t / 10)[:, None]
    >>> flaw([wind + phi @ [[0.0], [0.5]]], [phi], 3, known).Theta.round(2)
    array([[0. , 0.5]])
    >>> flaw([wind], [phi], 3, known).Theta
    array([[0., 0.]])
    """
    d_w, p = w_hat[0].shape[1], phi[0].shape[1]
    long = [i for i, piece in enumerate(w_hat) if len(piece) > h]
    if sum(len(w_hat[i]) - h for i in long) < LEAST + 2 * p:
        return None
    steps = _with_past([phi[i] for i in long], h)
    size = np.sqrt(np.square(steps.now).mean(axis=0))
    moves = size > 1e-9 * size.max()
    per_size = np.where(moves, 1.0 / np.where(moves, size, 1.0), 0.0)
    per_size[:d_w] *= MOTION
    steps = Steps(steps.now * per_size, steps.past * per_size)
    shown = int(SHOWN * len(steps.now))
    found = Flaw(np.zeros((d_w, p)), np.zeros((d_w, h)), np.zeros(d_w, dtype=bool))
    for i in range(d_w):
        w = _with_past([w_hat[j][:, i : i + 1] for j in long], h)
        if known[i] or _is_flawed(w, steps, shown):
            theta, found.a[i] = _fit(w, steps)
            found.Theta[i] = theta * per_size
    every, told = np.concatenate(w_hat), np.concatenate(phi) @ found.Theta.T
    left, error = (np.quantile(np.abs(each), MOST, axis=0) for each in (every - told, told))
    found.wind[:] = left > REMNANT * error
    return found


def _with_past(pieces: list[np.ndarray], h: int) -> Steps:
    """Steps from the h-th on of each piece."""
    now = [piece[h:] for piece in pieces]
    past = [
        np.stack([piece[h - k : len(piece) - k] for k in range(1, h + 1)], 1) for piece in pieces
    ]
    return Steps(np.concatenate(now), np.concatenate(past))


def _is_flawed(w: Steps, phi: Steps, shown: int) -> bool:
    """Whether Θ, fitted to the first steps, tells much of the others that their past does not."""
    size = float(np.sqrt(np.square(w.now).mean()))
    if not size:
        return False
    first, last = slice(shown), slice(shown, None)
    w_first, w_last = _part(w, first), _part(w, last)
    none = Steps(phi.now[:, :0], phi.past[:, :, :0])
    by_past = _fit(w_first, _part(none, first))
    without = _typical(_errors(w_last, _part(none, last), *by_past))
    if without < FLAW * size:
        return False
    theta, a = _fit(w_first, _part(phi, first))
    if _typical(phi.now[last] @ theta) < PART * size:
        return False
    return _typical(_errors(w_last, _part(phi, last), theta, a)) < (1 - BETTER) * without


def _part(steps: Steps, which: slice) -> Steps:
    return Steps(steps.now[which], steps.past[which])


def _typical(errors: np.ndarray) -> float:
    """Standard deviation by the median: as a few steps are quite otherwise."""
    return 1.4826 * float(np.median(np.abs(errors)))


def _errors(w: Steps, phi: Steps, theta: np.ndarray, a: np.ndarray) -> np.ndarray:
    """e_t of each step."""
    return np.asarray(w.now[:, 0] - phi.now @ theta - (w.past[:, :, 0] - phi.past @ theta) @ a)


def _past_of(w: Steps, phi: Steps, theta: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """How the past tells what Θ leaves."""
    past = w.past[:, :, 0] - phi.past @ theta
    return _solve(past, w.now[:, 0] - phi.now @ theta, 1e-2 * RIDGE, weight)


def _fit(w: Steps, phi: Steps) -> tuple[np.ndarray, np.ndarray]:
    """Θ of one coordinate, for φ in its sizes, and a."""
    theta, weight = np.zeros(phi.now.shape[1]), np.ones(len(w.now))
    for _ in range(TURNS):
        a, before = _past_of(w, phi, theta, weight), (theta, weight)
        # What is left of ŵ and φ when the past has told what it can.
        rows = phi.now - np.einsum("nhp,h->np", phi.past, a)
        target = w.now[:, 0] - w.past[:, :, 0] @ a
        theta = _solve(rows, target, RIDGE, weight)
        errors = np.abs(target - rows @ theta)
        weight = (errors <= OUTLIER * max(_typical(errors), 1e-12)).astype(float)
        if np.array_equal(weight, before[1]) and np.allclose(theta, before[0], rtol=1e-6, atol=0):
            break
    return theta, _past_of(w, phi, theta, weight)


def _solve(rows: np.ndarray, target: np.ndarray, ridge: float, weight: np.ndarray) -> np.ndarray:
    """Ridge regression with weights."""
    heavy = rows * weight[:, None]
    gram = heavy.T @ rows
    size = np.trace(gram) / max(len(gram), 1)
    return np.linalg.solve(gram + max(ridge * size, 1e-300) * np.eye(len(gram)), heavy.T @ target)
