"""The best fixed M in hindsight: stationary, unbeaten, and against an exact linear program."""

import importlib

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import windward as ww

from . import reference

Q = np.array([[1.0, 0.2, 0.0], [0.2, 2.0, 0.0], [0.0, 0.0, 0.5]])
R = np.array([[0.7, 0.1], [0.1, 0.4]])
T, H = 80, 3
W = np.random.default_rng(0).normal(size=(T, 3)) + ww.linear.disturbances.sinusoid(T, 3, period=20)
X0 = np.array([1.0, -2.0, 0.5])


def l1(x, u):
    return jnp.sum(jnp.abs(x)) + jnp.sum(jnp.abs(u))


def numpy_l1(x, u, t):
    return np.abs(x).sum() + np.abs(u).sum()


def varying(plant):
    wave = np.sin(np.arange(T))[:, None, None]
    return ww.linear.System(plant.A + 0.1 * wave, plant.B * (1 + 0.2 * wave))


@pytest.fixture(scope="module", params=["constant", "time-varying"])
def quadratic(request, plant, plant_K):
    """System, total cost as a NumPy function of M, and the best M."""
    system = plant if request.param == "constant" else varying(plant)
    best = ww.linear.best_dac(system, W, K=plant_K, Q=Q, R=R, h=H, x0=X0)

    def total(M):
        cost = reference.quadratic(Q, R)
        return reference.fixed(system.A, system.B, plant_K, cost, W, M, x0=X0).cost.sum()

    return system, total, best


def test_gradient_is_zero_at_the_best(quadratic):
    """Central differences of a quadratic are exact but for rounding."""
    _, total, best = quadratic

    def gradient(M):
        out = np.zeros_like(M)
        for index in np.ndindex(*M.shape):
            e = np.zeros_like(M)
            e[index] = 0.5
            out[index] = total(M + e) - total(M - e)
        return out

    assert np.abs(gradient(best.M)).max() < 1e-9 * np.abs(gradient(np.zeros_like(best.M))).max()


def test_no_other_m_is_better(quadratic):
    _, total, best = quadratic
    rng = np.random.default_rng(1)
    least = total(best.M)
    assert least < total(np.zeros_like(best.M))  # the base policy is M = 0
    for size in (1e-3, 0.1, 1.0):
        for _ in range(5):
            assert total(best.M + size * rng.normal(size=best.M.shape)) > least


@pytest.mark.usefixtures("x64")
def test_its_run_is_that_of_simulate_with_m_fixed(quadratic, plant_K):
    system, total, best = quadratic
    run = ww.linear.simulate(
        system, ww.mf_gpc(2, 3, h=H, eta=0.0, sigma=0.0, signal="w", M0=best.M), W,
        K=plant_K, Q=Q, R=R, x0=X0,
    )  # fmt: skip
    for name in ("cost", "x", "u"):
        np.testing.assert_allclose(getattr(run, name), getattr(best, name), rtol=1e-9, atol=1e-9)
    assert best.cost.sum() == pytest.approx(total(best.M), rel=1e-12)
    assert best.cost.dtype == np.float64


def test_it_beats_lqr(double_integrator):
    """On a disturbance that can be foreseen, by far; K = LQR itself is M = 0."""
    A, B = double_integrator.A, double_integrator.B
    K = ww.linear.lqr(A, B, np.eye(2), np.eye(1)).K
    w = ww.linear.disturbances.sinusoid(400, 2)
    best = ww.linear.best_dac(double_integrator, w, K=K, Q=np.eye(2), R=np.eye(1))
    cost = reference.quadratic(np.eye(2), np.eye(1))
    lqr = reference.fixed(A, B, K, cost, w, np.zeros((1, 1, 2))).cost
    assert best.cost.sum() < 0.2 * lqr.sum()
    assert best.M.shape == (5, 1, 2)


def test_a_longer_memory_is_no_worse(plant, plant_K):
    totals = [ww.linear.best_dac(plant, W, K=plant_K, Q=Q, R=R, h=h).cost.sum() for h in (1, H)]
    assert totals[0] > totals[1]


def test_least_norm_where_there_are_many(plant, plant_K):
    """Columns of M that meet no disturbance stay 0, and M does not depend on the scale of w."""
    w = W * [1.0, 0.0, 1.0]
    best = ww.linear.best_dac(plant, w, K=plant_K, Q=Q, R=R, h=H)
    np.testing.assert_allclose(best.M[:, :, 1], 0, atol=1e-12)
    assert np.abs(best.M).max() > 0.1
    small = ww.linear.best_dac(plant, 1e-4 * w, K=plant_K, Q=Q, R=R, h=H)
    np.testing.assert_allclose(small.M, best.M, rtol=1e-6, atol=1e-9)
    none = ww.linear.best_dac(plant, 0 * w, K=plant_K, Q=Q, R=R, h=H)
    np.testing.assert_array_equal(none.M, 0)
    np.testing.assert_array_equal(none.cost, 0)


def test_chunks_change_nothing(plant, plant_K, monkeypatch):
    module = importlib.import_module("windward.linear.hindsight")
    settings = {"K": plant_K, "Q": Q, "R": R, "h": H, "x0": X0}
    whole = ww.linear.best_dac(plant, W, **settings)
    seven_steps = 7 * 5 * (H * 6 + 1)  # which do not divide 80
    monkeypatch.setattr(module, "CHUNK_NUMBERS", seven_steps)
    pieces = ww.linear.best_dac(plant, W, **settings)
    np.testing.assert_allclose(pieces.M, whole.M, rtol=1e-8, atol=1e-10)


def least_l1(system, K, h):
    """The exact minimum of Σ|x|₁ + |u|₁ over M by a linear program."""
    size = h * system.d_u * system.d_x

    def trajectory(flat):
        M = flat.reshape(h, system.d_u, system.d_x)
        run = reference.fixed(system.A, system.B, K, numpy_l1, W, M, x0=X0)
        return np.concatenate([run.x, run.u], axis=1).ravel()

    offset = trajectory(np.zeros(size))
    columns = np.stack([trajectory(e) - offset for e in np.eye(size)], axis=1)
    rows = len(offset)
    slack = scipy.sparse.eye_array(rows)
    result = scipy.optimize.linprog(
        np.concatenate([np.zeros(size), np.ones(rows)]),
        A_ub=scipy.sparse.block_array([[columns, -slack], [-columns, -slack]], format="csc"),
        b_ub=np.concatenate([-offset, offset]),
        bounds=[(None, None)] * size + [(0, None)] * rows,
        method="highs",
    )
    assert result.status == 0
    return result.fun


@pytest.mark.parametrize("time_varying", [False, True])
def test_l1_against_a_linear_program(plant, plant_K, time_varying):
    system = varying(plant) if time_varying else plant
    best = ww.linear.best_dac(system, W, K=plant_K, cost=l1, h=2, x0=X0)
    least = least_l1(system, plant_K, h=2)
    run = reference.fixed(system.A, system.B, plant_K, numpy_l1, W, best.M, x0=X0)
    assert best.cost.sum() == pytest.approx(run.cost.sum(), rel=1e-10)
    gap = best.cost.sum() / least - 1
    print(f"L1 gap to the linear program: {gap:.2e}")
    assert -1e-9 < gap < 1e-3


def test_a_smooth_cost_that_depends_on_time(plant, plant_K):
    """Stationary, by complex steps on x⁴ and u², twice as dear in the second half."""

    def cost(x, u, t):
        return jnp.where(t < T // 2, 1.0, 2.0) * (jnp.sum(x**4) + jnp.sum(u**2))

    def total(M):
        def numpy_cost(x, u, t):
            return (1 + (t >= T // 2)) * ((x**4).sum() + (u**2).sum())

        return reference.fixed(plant.A, plant.B, plant_K, numpy_cost, W, M, x0=X0).cost.sum()

    best = ww.linear.best_dac(plant, W, K=plant_K, cost=cost, h=2, x0=X0)
    assert best.cost.sum() == pytest.approx(total(best.M), rel=1e-10)
    at_best = reference.complex_step(total, best.M)
    at_zero = reference.complex_step(total, np.zeros_like(best.M))
    assert np.abs(at_best).max() < 1e-5 * np.abs(at_zero).max()


def test_a_quadratic_cost_function_gives_the_exact_best(plant, plant_K, quadratic):
    """The two ways to state one cost agree."""
    system, _, exact = quadratic
    best = ww.linear.best_dac(
        system, W, K=plant_K, cost=lambda x, u: x @ Q @ x + u @ R @ u, h=H, x0=X0
    )
    assert best.cost.sum() == pytest.approx(exact.cost.sum(), rel=1e-9)
    np.testing.assert_allclose(best.M, exact.M, atol=1e-4)


def test_regret_is_the_cumulative_difference():
    best = ww.linear.BestDAC(M=None, cost=np.array([1.0, 2.0, 3.0]), x=None, u=None)
    fields = dict.fromkeys(ww.linear.Run._fields)
    run = ww.linear.Run(**{**fields, "cost": np.array([[2.0, 2.0, 5.0], [0.0, 2.0, 3.0]])})
    np.testing.assert_array_equal(ww.linear.regret(run, best), [[1, 1, 3], [-1, -1, -1]])
    single = run._replace(cost=run.cost[0])
    np.testing.assert_array_equal(ww.linear.regret(single, best), [1, 1, 3])
    with pytest.raises(ValueError, match="as many steps; got 2 and 3"):
        ww.linear.regret(run._replace(cost=run.cost[:, :2]), best)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"w": W[:, :2]}, r"w must have shape \(80, 3\) \(\(T, d_x\)\)"),
        ({"w": W[0]}, "w must have 2 dimension"),
        ({"w": np.full((5, 3), np.nan)}, "w must be finite"),
        ({"w": np.zeros((0, 3))}, "w must have at least"),
        ({"h": 0}, "h must be an integer of at least 1"),
        ({"K": np.zeros((3, 2))}, r"K must have shape \(2, 3\)"),
        ({"K": np.zeros((2, 3))}, "K must stabilise the system"),
        ({"x0": [1.0]}, r"x0 must have shape \(3,\)"),
        ({"x0": [1.0, np.inf, 0.0]}, "x0 must be finite"),
        ({"Q": None}, "pass Q and R"),
        ({"R": np.eye(3)}, r"R must have shape \(2, 2\)"),
        ({"cost": lambda x, u: x @ x + u @ u}, "either Q and R, or cost="),
        ({"Q": None, "R": None, "cost": lambda x, u: jnp.inf * jnp.sum(x**2)}, "must be finite"),
    ],
)
def test_bad_arguments(plant, plant_K, arguments, message):
    call = {"w": W, "K": plant_K, "Q": Q, "R": R, **arguments}
    with pytest.raises(ValueError, match=message):
        ww.linear.best_dac(plant, call.pop("w"), **call)


def test_steps_must_be_those_of_a_time_varying_system(plant, plant_K):
    with pytest.raises(ValueError, match="w must have as many steps as A, 80; got 7"):
        ww.linear.best_dac(varying(plant), W[:7], K=plant_K, Q=Q, R=R)
