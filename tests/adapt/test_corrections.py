"""Corrections: matching against closed forms and bounded least squares, residuals within reach."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from scipy.optimize import lsq_linear

import windward as ww
from windward.adapt.corrections import (
    Carry,
    Matching,
    Range,
    Residual,
    bounded_step,
    features,
)
from windward.adapt.twin import Twin

RNG = np.random.default_rng(0)
A = RNG.normal(size=(4, 4)) / 3
B = RNG.normal(size=(4, 3))
HEAVY = 0.6 * B + 0.1 * RNG.normal(size=(4, 3))
ROOT = RNG.normal(size=(4, 4))
UNIT = Range(np.array([-1.0, -2.0, 0.0]), np.array([1.0, 2.0, 6.0]))
WIDE = Range(np.full(3, -100.0), np.full(3, 100.0))
BLANK = Carry(np.zeros((1, 3)), np.zeros((1, 0, 0)), np.zeros((1, 0)), np.zeros((1, 0)))


class Linear:
    """As much of a twin as corrections ask for; a wind is added to the next state."""

    d_x = 4

    def __init__(self, spoilt: int | None = None) -> None:
        self.spoilt, self.calls = spoilt, 0

    def advance(self, changed: Any, x: Any, u: Any, wind: Any = None) -> np.ndarray:
        flags = np.asarray(changed)[:, None]
        moved = np.where(flags, rowwise(u, HEAVY), rowwise(u, B))
        x_next = rowwise(x, A) + moved + (0.0 if wind is None else wind)
        if self.spoilt is not None:
            x_next[self.spoilt] = np.nan
        self.calls += len(x)
        return np.asarray(x_next)

    def gap(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x - y


def rowwise(x: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Products of one row each: BLAS may round those of many rows otherwise."""
    return np.stack([matrix @ each for each in np.asarray(x, dtype=np.float64)])


def carry(n: int, d_u: int = 3, h: int = 0, d_w: int = 0, axes: int = 0) -> Carry:
    return Carry(np.zeros((n, d_u)), np.zeros((n, h, d_w)), np.zeros((n, axes)), np.zeros((n, 0)))


def matching(space: Range, damping: float = 0.05, iterations: int = 1) -> Matching:
    return Matching(space, ROOT, damping, 1e-3, iterations)


def system(space: Range, base: np.ndarray, damping: float, wind: Any = 0.0) -> tuple[Any, Any]:
    """(rows, right) of least squares in (u - base) in half ranges."""
    J = ROOT @ HEAVY * space.half
    left = ROOT @ ((HEAVY - B) @ base + wind)
    return np.vstack([J, np.sqrt(damping) * np.eye(3)]), np.concatenate([-left, np.zeros(3)])


@pytest.mark.parametrize("wind", [None, np.array([0.5, -0.2, 0.3, 0.1])])
def test_matching_is_the_ridge_solution_of_a_linear_system(wind: Any) -> None:
    rng = np.random.default_rng(1)
    x, base = rng.normal(size=(5, 4)), rng.normal(size=(5, 3))
    blown = None if wind is None else np.tile(wind, (5, 1))
    found, after = matching(WIDE).act(Linear(), x, x, base, blown, carry(5))  # type: ignore[arg-type]
    for i in range(5):
        M, y = system(WIDE, base[i], 0.05, 0.0 if wind is None else wind)
        delta = np.linalg.lstsq(M, y, rcond=None)[0]
        np.testing.assert_allclose(found[i], base[i] + delta * 100.0, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(after.delta[i], delta, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("damping", [0.5, 1e-3])
def test_matching_within_bounds_is_bounded_least_squares(damping: float) -> None:
    rng = np.random.default_rng(2)
    base = rng.uniform(UNIT.low, UNIT.high, (60, 3))
    x = rng.normal(size=(60, 4))
    found, _ = matching(UNIT, damping).act(Linear(), x, x, base, None, carry(60))  # type: ignore[arg-type]
    held = 0
    for i in range(60):
        M, y = system(UNIT, base[i], damping)
        low, high = (UNIT.low - base[i]) / UNIT.half, (UNIT.high - base[i]) / UNIT.half
        want = lsq_linear(M, y, (low - 1e-12, high + 1e-12), tol=1e-14).x
        np.testing.assert_allclose((found[i] - base[i]) / UNIT.half, want, atol=1e-6)
        held += bool(((found[i] == UNIT.low) | (found[i] == UNIT.high)).any())
    assert held > 5


@pytest.mark.parametrize("d", [1, 3, 6, 17])
def test_bounded_steps(d: int) -> None:
    """Against scipy, and the conditions of optimality where many bounds hold."""
    rng = np.random.default_rng(d)
    for share in (0.3, 3.0):
        half = rng.normal(size=(40, d, d))
        gram = np.swapaxes(half, 1, 2) @ half + 0.05 * np.eye(d)
        slope = share * rng.normal(size=(40, d))
        low, high = -rng.uniform(0, 1, (40, d)), rng.uniform(0, 1, (40, d))
        step = bounded_step(gram, slope, low, high)
        assert ((step >= low) & (step <= high)).all()
        for G, g, a, b, s in zip(gram, slope, low, high, step, strict=True):
            L = np.linalg.cholesky(G)
            want = lsq_linear(L.T, -np.linalg.solve(L, g), (a, b), tol=1e-13, method="bvls").x
            np.testing.assert_allclose(s, want, atol=1e-6)


def test_one_row_and_many_have_the_same_bits() -> None:
    env = gym.make("Hopper-v5")
    env.reset(seed=0)
    sim = ww.simulator(env, noisy=False)
    twin, rng = Twin(sim, sim.changed({"mass": 1.2}), threads=1), np.random.default_rng(0)
    space, n = Range.of(env.action_space), 7  # type: ignore[arg-type]
    x = sim.state() + rng.uniform(-0.1, 0.1, (n, sim.d_x))
    base = rng.uniform(-1.2, 1.2, (n, 3))
    seen = sim.observation(x)
    known = carry(n, 3, 2, 4)._replace(
        delta=rng.uniform(-0.3, 0.3, (n, 3)), window=rng.normal(size=(n, 2, 4))
    )
    root = rng.normal(size=(sim.d_x, sim.d_x))
    first = Matching(space, root, 0.01, 1e-3, 2)
    weights = 0.05 * rng.normal(size=(11 + 3 + 1 + 5, 3))
    second = Residual(space, weights, seen.mean(axis=0), seen.std(axis=0), np.zeros(0),
                      rng.normal(size=(5, 8)), 0.7, None)  # fmt: skip
    for each in (first, second, second._replace(under=first)):
        together, after = each.act(twin, x, seen, base, None, known)
        for i in range(n):
            own = Carry(*(part[[i]] for part in known))
            alone, left = each.act(twin, x[[i]], seen[[i]], base[[i]], None, own)
            np.testing.assert_array_equal(alone[0], together[i])
            np.testing.assert_array_equal(left.delta[0], after.delta[i])


def test_where_the_physics_breaks_down_the_base_action_stays() -> None:
    x = np.ones((1, 4))
    base = np.array([[0.2, 9.0, 1.0]])  # and within the space even then
    found, after = matching(UNIT).act(Linear(1), x, x, base, None, BLANK)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, [[0.2, 2.0, 1.0]])
    np.testing.assert_allclose(after.delta * UNIT.half, found - base)


def test_it_costs_d_u_plus_two_simulated_steps_a_row() -> None:
    twin, x = Linear(), np.ones((1, 4))
    matching(UNIT).act(twin, x, x, np.zeros((1, 3)), None, BLANK)  # type: ignore[arg-type]
    assert twin.calls == 3 + 2
    matching(UNIT, iterations=2).act(twin, x, x, np.zeros((1, 3)), None, BLANK)  # type: ignore[arg-type]
    assert twin.calls == 5 + 5 + 4


def test_nothing_changed_is_the_base_action() -> None:
    class Same(Linear):
        def advance(self, changed: Any, x: Any, u: Any, wind: Any = None) -> np.ndarray:
            return super().advance(np.zeros(len(x), bool), x, u, wind)

    base = np.random.default_rng(0).uniform(UNIT.low, UNIT.high, (8, 3))
    x = np.random.default_rng(1).normal(size=(8, 4))
    found, _ = matching(UNIT).act(Same(), x, x, base, None, carry(8))  # type: ignore[arg-type]
    np.testing.assert_allclose(found, base, atol=1e-12)


def residual(weights: np.ndarray, reach: float = 0.5, **others: Any) -> Residual:
    like = Residual(UNIT, weights, np.zeros(4), np.ones(4), np.zeros(0), np.zeros((0, 0)), reach,
                    None)  # fmt: skip
    return like._replace(**others)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_in_actions_are_in_the_space(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, scale = int(rng.integers(1, 9)), 10.0 ** rng.uniform(-3, 12)
    x, base = scale * rng.normal(size=(n, 4)), rng.uniform(UNIT.low, UNIT.high, (n, 3))
    known = carry(n)._replace(delta=rng.normal(size=(n, 3)) * rng.choice([0, 1, 1e6]))
    weights = scale * rng.normal(size=(8, 3))
    twin: Any = Linear(spoilt=0 if seed % 5 == 0 else None)
    under = matching(UNIT, 10.0 ** rng.uniform(-6, 1), int(rng.integers(1, 4)))
    for each in (under, residual(weights), residual(weights, under=under)):
        found, after = each.act(twin, x, x, base, None, known)
        assert np.isfinite(found).all()
        assert np.isfinite(after.delta).all()
        assert ((found >= UNIT.low) & (found <= UNIT.high)).all()


def test_a_residual_goes_no_further_than_its_reach() -> None:
    rng = np.random.default_rng(0)
    base = rng.uniform(UNIT.low, UNIT.high, (30, 3))
    x = rng.normal(size=(30, 4))
    found, _ = residual(100 * rng.normal(size=(8, 3)), 0.3).act(
        Linear(), x, x, base, None, carry(30)
    )  # type: ignore[arg-type]
    moved = np.abs(found - base) / UNIT.half
    assert moved.max() <= 0.3 + 1e-12
    want = np.minimum(0.3, np.where(found > base, UNIT.high - base, base - UNIT.low) / UNIT.half)
    np.testing.assert_allclose(moved, want, atol=1e-12)


def test_a_residual_of_rows_is_that_of_each() -> None:
    """With weights for each row, as a search plays its candidates."""
    rng = np.random.default_rng(0)
    x, base = rng.normal(size=(4, 4)), rng.uniform(UNIT.low, UNIT.high, (4, 3))
    weights = 0.1 * rng.normal(size=(4, 8, 3))
    together, _ = residual(weights).act(Linear(), x, x, base, None, carry(4))  # type: ignore[arg-type]
    for i in range(4):
        alone, _ = residual(weights[i]).act(Linear(), x[[i]], x[[i]], base[[i]], None, carry(1))  # type: ignore[arg-type]
        np.testing.assert_array_equal(alone[0], together[i])


def test_features() -> None:
    like = residual(
        np.zeros((0, 3)), mean=np.ones(4), spread=np.full(4, 2.0), wind=np.array([5.0]),
        parts=np.array([[1.0, 0.0, -1.0, 0.5]]),
    )  # fmt: skip
    known = carry(1, 3, 2, 2, 1)._replace(
        window=np.array([[[1.0, 9.0], [2.0, 4.0]]]), wind=np.array([[10.0]])
    )
    z = features(like, np.array([[1.0, 3.0, -1.0, 99.0]]), np.array([[1.0, -1.0, 6.0]]),
                 np.array([[5.0]]), known)  # fmt: skip
    part = 1.0 - 2.0 + 0.5 * 3.0  # of a window that is cut at 3
    np.testing.assert_allclose(z, [[0, 1, -1, 3, 1, -0.5, 1, 1, 1, -1, part]])
