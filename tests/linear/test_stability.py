"""Strong stability: the decomposition proves what it claims, and the paper's formulas."""

import math

import numpy as np
import pytest

import windward as ww

RNG = np.random.default_rng(3)
RANDOM = RNG.normal(size=(5, 5))
MATRICES = {
    "scalar": np.array([[0.7]]),
    "diagonal": np.diag([0.9, -0.5, 0.1]),
    "zero": np.zeros((2, 2)),
    "rotation": 0.95 * np.array([[np.cos(1), -np.sin(1)], [np.sin(1), np.cos(1)]]),
    "random": 0.9 * RANDOM / np.abs(np.linalg.eigvals(RANDOM)).max(),
    "jordan": np.array([[0.9, 1.0], [0.0, 0.9]]),
    "jordan of size 3": 0.5 * np.eye(3) + np.diag([1.0, 1.0], 1),
    "nilpotent": np.diag([5.0, 5.0], 1),
    "far from normal": np.array([[0.5, 100.0], [0.0, 0.6]]),
    "slow": np.array([[0.9999]]),
}


def norm(A):
    return np.linalg.norm(A, 2)


def assert_proves(A, strong):
    inverse = np.linalg.inv(strong.Q)
    np.testing.assert_allclose(strong.Q @ strong.L @ inverse, A, atol=1e-8 * max(1, norm(A)))
    assert norm(strong.Q) <= strong.kappa * (1 + 1e-8)
    assert norm(inverse) <= strong.kappa * (1 + 1e-8)
    assert norm(strong.L) <= 1 - strong.alpha + 1e-8
    assert strong.kappa >= 1
    assert 0 < strong.alpha <= 1


@pytest.mark.parametrize("name", MATRICES)
def test_decomposition(name):
    A = MATRICES[name]
    strong = ww.linear.strong_stability(A)
    assert_proves(A, strong)
    for k in range(0, 200, 7):  # what strong stability is for: ‖A^k‖ ≤ κ²(1-α)^k
        bound = strong.kappa**2 * (1 - strong.alpha) ** k
        assert norm(np.linalg.matrix_power(A, k)) <= bound * (1 + 1e-7) + 1e-12


@pytest.mark.parametrize("name", ["jordan", "random", "diagonal"])
def test_larger_alpha_costs_larger_kappa(name):
    A = MATRICES[name]
    gap = 1 - np.abs(np.linalg.eigvals(A)).max()
    tried = [ww.linear.strong_stability(A, alpha=share * gap) for share in (0.1, 0.5, 0.9)]
    for share, strong in zip((0.1, 0.5, 0.9), tried, strict=True):
        assert strong.alpha == pytest.approx(share * gap)
        assert_proves(A, strong)
    assert tried[0].kappa <= tried[1].kappa <= tried[2].kappa


def test_a_normal_matrix_needs_no_kappa():
    strong = ww.linear.strong_stability(MATRICES["rotation"])
    assert strong.kappa == pytest.approx(1)
    assert strong.alpha == pytest.approx(0.05, rel=2e-3)


def test_kappa_covers_b():
    B = np.array([[0.0], [7.0]])
    assert ww.linear.strong_stability(MATRICES["jordan"] / 2, B).kappa >= 7
    assert ww.linear.strong_stability(0.1 * np.eye(2), B).kappa == pytest.approx(7)


def test_formulas_of_the_paper():
    strong = ww.linear.StrongStability(kappa=2.0, alpha=0.25, Q=np.eye(1), L=np.eye(1))
    assert strong.memory(1000) == math.ceil(4 * math.log(2 * 8 * 1000))  # 38.7... -> 39
    assert strong.memory(1000) == 39
    assert strong.state_bound(W=0.5, h=39) == pytest.approx(10 * 4 * 16 * 0.5 * (39 * 2 + 1))
    assert strong.state_bound(W=0.0, h=39) == 1
    np.testing.assert_allclose(strong.radii(3), [32 * 0.75, 32 * 0.75**2, 32 * 0.75**3])


def test_memory_forgets_the_start():
    """κ²(1-α)^h ≤ 1/T for h of `memory`, which is what the lemmas use it for."""
    strong = ww.linear.strong_stability(MATRICES["jordan"])
    for T in (10, 1000, 100_000):
        h = strong.memory(T)
        assert norm(np.linalg.matrix_power(MATRICES["jordan"], h)) <= 1 / T


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"A_K must be stable: its spectral radius is 1\.2"):
        ww.linear.strong_stability([[1.2]])
    with pytest.raises(ValueError, match="spectral radius is 1, expected less than 1"):
        ww.linear.strong_stability(np.eye(2))
    with pytest.raises(ValueError, match=r"alpha must be less than 1 - spectral radius = 0\.5"):
        ww.linear.strong_stability([[0.5]], alpha=0.6)
    with pytest.raises(ValueError, match="alpha must be greater than 0"):
        ww.linear.strong_stability([[0.5]], alpha=0.0)
    with pytest.raises(ValueError, match=r"A_K must have shape \(2, 2\) \(square\)"):
        ww.linear.strong_stability(np.ones((2, 3)))
    with pytest.raises(ValueError, match="A_K must be finite"):
        ww.linear.strong_stability([[np.nan]])
    with pytest.raises(ValueError, match="T must be an integer of at least 1"):
        ww.linear.strong_stability([[0.5]]).memory(0)
