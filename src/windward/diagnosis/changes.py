"""The fewest changes that explain a fit: sparse regression in its quadratic model.

    min_S min_φ (θ̂ - A_S φ)ᵀ (Σ + τ²)⁻¹ (θ̂ - A_S φ) + price·|S|

The columns of A are atoms: one parameter alone, or all of a kind alike. Σ is the posterior of θ̂, so
directions that the data does not show cost next to nothing, and of several explanations that do
equally well the one with the fewest and smallest changes is taken.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from windward.diagnosis.parameters import Atom

PAIRS_UP_TO = 48
"""atoms up to which all pairs are tried; more are searched one after the other"""
ROUNDING = 1e-14
"""smallest variance that is told from 0, as a share of the largest"""


def matrix(atoms: Sequence[Atom], count: int) -> np.ndarray:
    """A, (parameters, atoms): which parameters an atom moves."""
    found = np.zeros((count, len(atoms)))
    for i, atom in enumerate(atoms):
        found[list(atom.columns), i] = 1.0
    return found


def fewest(
    theta: np.ndarray, covariance: np.ndarray, A: np.ndarray, price: float, resolution: float
) -> tuple[int, ...]:
    """Indices of the chosen atoms."""
    sizes, vectors = np.linalg.eigh(covariance + resolution**2 * np.eye(len(theta)))
    root = (vectors / np.sqrt(np.maximum(sizes, ROUNDING * sizes.max(initial=0.0)))).T
    target, atoms = root @ theta, root @ A
    gram, along, whole = atoms.T @ atoms, atoms.T @ target, float(target @ target)

    def cost(chosen: tuple[int, ...]) -> float:
        if not chosen:
            return whole
        rows = list(chosen)
        # Of changes that do the same the smallest: a little of the prior.
        small = gram[np.ix_(rows, rows)] + np.eye(len(rows))
        solved = np.linalg.solve(small, along[rows])
        return whole - float(along[rows] @ solved) + price * len(rows)

    best: tuple[int, ...] = ()
    now = cost(best)
    starts: list[tuple[int, ...]] = [(i,) for i in range(A.shape[1])]
    if A.shape[1] <= PAIRS_UP_TO:
        starts += list(combinations(range(A.shape[1]), 2))
    for chosen in starts:
        value = cost(chosen)
        if value < now:
            best, now = chosen, value
    improved = True
    while improved:
        improved = False
        outside = [i for i in range(A.shape[1]) if i not in best]
        trials = [tuple(sorted((*best, i))) for i in outside]
        trials += [tuple(j for j in best if j != i) for i in best]
        trials += [tuple(sorted((*(j for j in best if j != i), k))) for i in best for k in outside]
        for trial in trials:
            value = cost(trial)
            if value < now - 1e-9:
                best, now, improved = trial, value, True
    return _independent(best, A)


def alternatives(
    theta: np.ndarray,
    covariance: np.ndarray,
    A: np.ndarray,
    chosen: Sequence[int],
    resolution: float,
    within: float = 4.0,
) -> list[tuple[int, int]]:
    """(one of the chosen, another that does as well in its place): noise does not tell them apart.

    As well: the misfit, a sum of squares in standard deviations, grows by less than `within`.
    """
    precision = np.linalg.inv(covariance + resolution**2 * np.eye(len(theta)))

    def misfit(rows: list[int]) -> float:
        own = A[:, rows]
        solved = np.linalg.lstsq(own.T @ precision @ own, own.T @ precision @ theta, rcond=None)[0]
        rest = theta - own @ solved
        return float(rest @ precision @ rest)

    now = misfit(list(chosen))
    return [
        (i, j)
        for i in chosen
        for j in range(A.shape[1])
        if j not in chosen and misfit([k for k in chosen if k != i] + [j]) < now + within
    ]


def _independent(chosen: tuple[int, ...], A: np.ndarray) -> tuple[int, ...]:
    """Drops atoms that the others make up."""
    kept: list[int] = []
    for i in sorted(chosen, key=lambda i: -A[:, i].sum()):
        if np.linalg.matrix_rank(A[:, [*kept, i]]) > len(kept):
            kept.append(i)
    return tuple(sorted(kept))
