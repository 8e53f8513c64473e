"""thm:main_appendix: a pseudo-disturbance ŵ = Tw costs no more than the condition of T."""

import numpy as np
import pytest

import windward as ww

from . import reference

GAMMA = 0.9
A = np.array([[0.8, 0.2], [0.0, 0.7]])
B, K, Q, R = np.eye(2), np.zeros((2, 2)), np.eye(2), 0.1 * np.eye(2)
SYSTEM = ww.linear.System(A, B)
COSTS = {"K": K, "Q": Q, "R": R}


def cost_for_map(T):
    """The L that makes γL(I - γA)⁻¹ = T."""
    return T @ (np.eye(2) - GAMMA * A) / GAMMA


def map_of_condition(condition, scale=1.0):
    """A symmetric T, turned against the axes, with singular values 1 and 1/condition."""
    turn = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2)
    return scale * turn @ np.diag([1.0, 1 / condition]) @ turn.T


@pytest.mark.usefixtures("x64")
def test_the_same_controls_from_a_mapped_m():
    """M'_i = M_i T⁻¹ on ŵ = Tw acts as M on w."""
    rng = np.random.default_rng(0)
    T, M = rng.normal(size=(2, 2)), 0.5 * rng.normal(size=(3, 2, 2))
    w = rng.normal(size=(50, 2))
    still = {"h": 3, "eta": 0.0, "sigma": 0.0, "gamma": GAMMA}
    plain = reference.fixed(A, B, K, reference.quadratic(Q, R), w, M, x0=[1.0, 2.0])
    mapped = ww.linear.simulate(
        SYSTEM, ww.mf_gpc(2, 2, signal="pd2", M0=M @ np.linalg.inv(T), **still), w,
        x0=[1.0, 2.0], L=cost_for_map(T), **COSTS,
    )  # fmt: skip
    np.testing.assert_allclose(mapped.w_hat, w @ T.T, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(mapped.u, plain.u, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mapped.x, plain.x, rtol=1e-9, atol=1e-9)
    assert np.abs(plain.u).max() > 1


@pytest.mark.usefixtures("x64")
def test_the_scale_of_the_map_is_a_step_size():
    """With ŵ = aTw and η/a² Bandit GPC learns the same controls: only the condition can matter."""
    w = ww.linear.disturbances.sinusoid(300, 2, period=[40, 25], phase=[0, 1])
    T = map_of_condition(3)
    runs = [
        ww.linear.simulate(
            SYSTEM,
            ww.bandit_gpc(
                2, 2, h=2, eta=1e-3 / a**2, delta=0.5, signal="pd2", gamma=GAMMA, projection=None
            ),
            w, L=cost_for_map(a * T), **COSTS,
        )
        for a in (1.0, 20.0)
    ]  # fmt: skip
    np.testing.assert_allclose(runs[0].u, runs[1].u, rtol=1e-7, atol=1e-8)
    assert np.abs(runs[0].M).max() > 0.05


CONDITIONS = (1, 3, 10)
HORIZONS = (4000, 16_000)


@pytest.fixture(scope="module")
def tuned_regret():
    """Regret at the end, at the best of a grid of η and δ: {T: {condition: (mean, error)}}."""
    eta, delta = np.meshgrid([3e-5, 1e-4, 3e-4], [0.3, 0.6], indexing="ij")
    algorithm = ww.bandit_gpc(2, 2, h=2, eta=eta, delta=delta, signal="pd2", gamma=GAMMA)
    out = {}
    for T in HORIZONS:
        w = ww.linear.disturbances.sinusoid(T, 2, period=[40, 25], phase=[0, 1])
        best = ww.linear.best_dac(SYSTEM, w, h=2, **COSTS)
        out[T] = {}
        for condition in CONDITIONS:
            run = ww.linear.simulate(
                SYSTEM, algorithm, w, seed=range(8), keep=(),
                L=cost_for_map(map_of_condition(condition)), **COSTS,
            )  # fmt: skip
            regret = ww.linear.regret(run, best)[..., -1]  # (eta, delta, seed)
            regret = np.where(np.isfinite(regret), regret, np.inf).reshape(-1, 8)
            at = regret.mean(-1).argmin()
            out[T][condition] = regret[at].mean(), regret[at].std(ddof=1) / np.sqrt(8)
    return out


@pytest.mark.slow
def test_regret_grows_with_the_condition_of_the_map(tuned_regret):
    for T, row in tuned_regret.items():
        text = ", ".join(f"cond {c}: {m:.0f} ± {e:.0f}" for c, (m, e) in row.items())
        print(f"regret of Bandit GPC with PD2 at T = {T}: {text}")
        means = [row[condition][0] for condition in CONDITIONS]
        assert 0 < means[0] < means[1] < means[2]


@pytest.mark.slow
def test_regret_is_sublinear_for_every_condition(tuned_regret):
    """Four times the steps, clearly less than four times the regret."""
    for condition in CONDITIONS:
        (early, _), (late, error) = (tuned_regret[T][condition] for T in HORIZONS)
        assert late + 2 * error < 0.9 * (HORIZONS[1] / HORIZONS[0]) * early
