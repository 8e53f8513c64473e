"""LQR and H-infinity against closed forms, Riccati iteration and the frequency response."""

import numpy as np
import pytest

import windward as ww


def radius(A):
    return np.abs(np.linalg.eigvals(A)).max()


def scalar_riccati(a, b, q, r):
    """The positive root of b²P² + (r - a²r - qb²)P - qr = 0."""
    middle = r - a**2 * r - q * b**2
    return (-middle + np.sqrt(middle**2 + 4 * b**2 * q * r)) / (2 * b**2)


@pytest.mark.parametrize(
    ("a", "b", "q", "r"), [(1, 1, 1, 1), (3, 0.5, 2, 0.1), (-1.7, 2, 0.3, 5), (0.2, 1, 4, 1)]
)
def test_lqr_scalar_closed_form(a, b, q, r):
    K, P = ww.linear.lqr([[a]], [[b]], [[q]], [[r]])
    p = scalar_riccati(a, b, q, r)
    assert P[0, 0] == pytest.approx(p, rel=1e-10)
    assert K[0, 0] == pytest.approx(a * b * p / (r + b**2 * p), rel=1e-10)
    assert abs(a - b * K[0, 0]) < 1


def test_lqr_golden_ratio():
    """A = B = Q = R = 1: P² = P + 1."""
    assert ww.linear.lqr([[1]], [[1]], [[1]], [[1]]).P[0, 0] == pytest.approx((1 + 5**0.5) / 2)


def test_lqr_equals_riccati_iteration():
    rng = np.random.default_rng(1)
    A, B = rng.normal(size=(4, 4)), rng.normal(size=(4, 2))
    half = rng.normal(size=(4, 4))
    Q, R = half @ half.T, np.array([[2.0, 0.5], [0.5, 1.0]])
    P = Q
    for _ in range(2000):
        gain = np.linalg.inv(R + B.T @ P @ B) @ B.T @ P @ A
        P = Q + A.T @ P @ A - A.T @ P @ B @ gain
    got = ww.linear.lqr(A, B, Q, R)
    np.testing.assert_allclose(got.P, P, rtol=1e-9)
    np.testing.assert_allclose(got.K, gain, rtol=1e-9)


def test_lqr_stabilises_an_unstable_system(plant):
    assert radius(plant.A) > 1
    K = ww.linear.lqr(plant.A, plant.B, np.eye(3), np.eye(2)).K
    assert radius(plant.A - plant.B @ K) < 1


def test_lqr_is_no_worse_than_its_neighbours(double_integrator):
    """The cost of a noise-free run from each axis, summed for 500 steps."""
    A, B = double_integrator.A, double_integrator.B
    best = ww.linear.lqr(A, B, np.eye(2), np.eye(1)).K

    def total(K):
        X, cost = np.eye(2), 0.0
        for _ in range(500):
            U = -K @ X
            cost += (X**2).sum() + (U**2).sum()
            X = A @ X + B @ U
        return cost

    rng = np.random.default_rng(0)
    for _ in range(20):
        assert total(best + 0.05 * rng.normal(size=(1, 2))) > total(best)


def test_a_stable_mode_that_b_cannot_move_is_fine():
    K = ww.linear.lqr(np.diag([0.9, 2.0]), [[0.0], [1.0]], np.eye(2), np.eye(1)).K
    assert K[0, 0] == pytest.approx(0, abs=1e-12)
    assert abs(2 - K[0, 1]) < 1


SCALARS = [(1.0, 1.0, 1.0, 1.0), (1.5, 1.0, 1.0, 0.5), (0.9, 0.3, 2.0, 1.0)]


@pytest.mark.parametrize(("a", "b", "q", "r"), SCALARS)
def test_h_infinity_level_is_the_smallest_of_all_gains(a, b, q, r):
    """For one state the peak gain of u = -kx is √(q + rk²)/(1 - |a - bk|): search all k."""
    k = (a + np.linspace(-0.9999, 0.9999, 200_001)) / b
    smallest = (np.sqrt(q + r * k**2) / (1 - np.abs(a - b * k))).min()
    found = ww.linear.h_infinity([[a]], [[b]], [[q]], [[r]])
    assert smallest * (1 - 1e-6) <= found.level <= smallest * (1 + 2e-3)
    with pytest.raises(ValueError, match=r"level must be larger.*no controller attenuates"):
        ww.linear.h_infinity([[a]], [[b]], [[q]], [[r]], level=smallest * (1 - 2e-3))


Q3 = np.diag([1.0, 2.0, 0.5])
R2 = np.array([[0.5, 0.1], [0.1, 1.0]])


@pytest.fixture(scope="module")
def robust(plant):
    return ww.linear.h_infinity(plant.A, plant.B, Q3, R2)


def gain_from_disturbance(plant, K, T):
    """The matrix from w_0..w_{T-1} to (Q^½x, R^½u) at steps 0..T-1, from a zero state."""
    C = np.vstack([np.linalg.cholesky(Q3).T, -np.linalg.cholesky(R2).T @ K])
    blocks, power = [np.zeros_like(C)], np.eye(3)
    for _ in range(T - 1):
        blocks.append(C @ power)
        power = (plant.A - plant.B @ K) @ power
    zero = np.zeros_like(C)
    return np.block([[blocks[t - s] if t >= s else zero for s in range(T)] for t in range(T)])


def test_h_infinity_attenuates_the_worst_disturbance(plant, robust):
    """Σ cost ≤ level² Σ‖w‖² for the worst w of 150 steps and for random ones, and nearly =."""
    assert radius(plant.A - plant.B @ robust.K) < 1
    T = 150
    _, gains, directions = np.linalg.svd(gain_from_disturbance(plant, robust.K, T))
    assert gains[0] <= robust.level
    assert gains[0] >= 0.98 * robust.level  # the level is not slack either
    rng = np.random.default_rng(0)
    worst = directions[0].reshape(T, 3)
    for w in (worst, rng.normal(size=(T, 3)), np.ones((T, 3)), rng.uniform(-1, 1, (T, 3))):
        x, total = np.zeros(3), 0.0
        for step in w:
            u = -robust.K @ x
            total += x @ Q3 @ x + u @ R2 @ u
            x = plant.A @ x + plant.B @ u + step
        assert total <= robust.level**2 * (w**2).sum() * (1 + 1e-9)


def test_h_infinity_beats_lqr_in_the_worst_case(plant, robust):
    optimal = ww.linear.lqr(plant.A, plant.B, Q3, R2).K
    worst = [np.linalg.norm(gain_from_disturbance(plant, K, 150), 2) for K in (robust.K, optimal)]
    assert worst[0] < worst[1]


def test_h_infinity_just_below_its_smallest_level_is_refused(plant, robust):
    at = ww.linear.h_infinity(plant.A, plant.B, Q3, R2, level=robust.level)
    np.testing.assert_allclose(at.K, robust.K)
    with pytest.raises(ValueError, match="level must be larger"):
        ww.linear.h_infinity(plant.A, plant.B, Q3, R2, level=robust.level * (1 - 2e-3))


def test_h_infinity_solves_its_riccati_equation(plant, robust):
    """P = Q + AᵀP(I + (BR⁻¹Bᵀ - level⁻²I)P)⁻¹A, and level²I ≻ P."""
    A, B, P = plant.A, plant.B, robust.P
    inner = np.eye(3) + (B @ np.linalg.inv(R2) @ B.T - np.eye(3) / robust.level**2) @ P
    np.testing.assert_allclose(P, Q3 + A.T @ P @ np.linalg.inv(inner) @ A, rtol=1e-6)
    assert np.linalg.eigvalsh(robust.level**2 * np.eye(3) - P).min() > 0


def test_h_infinity_tends_to_lqr(plant):
    optimal = ww.linear.lqr(plant.A, plant.B, Q3, R2)
    errors = []
    for level in (1e2, 1e3, 1e4):
        robust = ww.linear.h_infinity(plant.A, plant.B, Q3, R2, level=level)
        errors.append(np.abs(robust.K - optimal.K).max())
        assert robust.level == level
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-6


BOTH = pytest.mark.parametrize("design", [ww.linear.lqr, ww.linear.h_infinity])


@BOTH
def test_unstabilisable_pair(design):
    with pytest.raises(ValueError, match=r"\(A, B\) must be stabilisable; the eigenvalue 2"):
        design(np.diag([2.0, 0.5]), [[0.0], [1.0]], np.eye(2), np.eye(1))


@BOTH
@pytest.mark.parametrize(
    ("Q", "R", "message"),
    [
        (np.diag([1.0, -1.0]), [[1.0]], "Q must be positive semidefinite"),
        ([[1.0, 1.0], [0.0, 1.0]], [[1.0]], "Q must be symmetric"),
        (np.eye(3), [[1.0]], r"Q must have shape \(2, 2\)"),
        (np.eye(2), [[0.0]], "R must be positive definite"),
        (np.eye(2), [[-1.0]], "R must be positive"),
        (np.eye(2), np.eye(2), r"R must have shape \(1, 1\)"),
        (np.eye(2), [[np.nan]], "R must be finite"),
    ],
)
def test_bad_costs(double_integrator, design, Q, R, message):
    with pytest.raises(ValueError, match=message):
        design(double_integrator.A, double_integrator.B, Q, R)


@BOTH
def test_time_varying_systems_are_refused(design):
    with pytest.raises(ValueError, match="A and B must be constant"):
        design(np.ones((5, 1, 1)), [[1.0]], [[1.0]], [[1.0]])


def test_a_free_mode_on_the_unit_circle_has_no_regulator():
    with pytest.raises(ValueError, match="add weight to Q"):
        ww.linear.lqr([[1.0]], [[1.0]], [[0.0]], [[1.0]])


@pytest.mark.parametrize("level", [0.0, -1.0, np.inf])
def test_bad_level(double_integrator, level):
    with pytest.raises(ValueError, match="level must be"):
        ww.linear.h_infinity(
            double_integrator.A, double_integrator.B, np.eye(2), np.eye(1), level=level
        )
