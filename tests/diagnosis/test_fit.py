"""The fit: derivatives, Gauss-Newton, what is taken out as wind, intervals, and fewest changes."""

from itertools import combinations
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from windward.diagnosis import changes
from windward.diagnosis.fit import (
    Diverged,
    FitSettings,
    Fitted,
    Whitening,
    autoregression,
    covariance,
    energy,
    gauss_newton,
    huber,
    interval_width,
    posterior,
    quadratic,
    solved,
    spread,
    whitened,
)
from windward.diagnosis.parameters import Atom, Parameter, Sizes, atoms_of, parameters_of
from windward.diagnosis.residuals import Residuals, Rows
from windward.envs import Changed
from windward.simulators import simulator

SETTINGS = FitSettings()


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MuJoCo writes a log into the working directory when it warns."""
    monkeypatch.chdir(tmp_path)


def rows_of(env: gym.Env, steps: int, seed: int = 0) -> Rows:
    """A random walk in a world, as rows."""
    sim = simulator(env, noisy=False)
    env.reset(seed=seed)
    env.action_space.seed(seed)
    x, u, x_next, run = [], [], [], [0]
    for _ in range(steps):
        action = env.action_space.sample()
        x.append(sim.state())
        _, _, terminated, truncated, _ = env.step(action)
        u.append(np.asarray(action, dtype=np.float64))
        x_next.append(sim.state())
        run.append(run[-1] + int(terminated or truncated))
        if terminated or truncated:
            env.reset()
    count = np.arange(steps)
    own = np.array(run[:-1])
    return Rows(np.array(x), np.array(u), np.array(x_next), own, count, own)


def residuals_of(env: gym.Env, rows: Rows, wanted: Any = None) -> Residuals:
    sim = simulator(env, noisy=False)
    scale = np.std(rows.x_next - rows.x, axis=0) + 1e-3
    return Residuals(
        sim.dynamics, parameters_of(sim.dynamics, wanted, Sizes()), threads=1, scale=scale
    )


def rows_like(m: int, run: np.ndarray | None = None) -> Rows:
    """Rows without content, for functions that look at runs alone."""
    none = np.zeros((m, 1))
    own = np.zeros(m, dtype=int) if run is None else run
    return Rows(none, none, none, own, np.arange(m), own)


# --- residuals and their derivatives -----------------------------------------------------------


def test_the_jacobian_is_that_of_central_differences_of_other_simulators() -> None:
    env = Changed(gym.make("Hopper-v5"), {"mass": 1.2})
    rows = rows_of(env, 30)
    wanted = ["mass", "gain", "damping", "gravity", "slope:x", "com:torso.x", "inertia:leg"]
    residuals = residuals_of(env, rows, wanted)
    theta = np.zeros(residuals.count)
    r, jacobian = residuals.jacobian(theta, rows, np.eye(residuals.count), central=True)
    scale = (np.std(rows.x_next - rows.x, axis=0) + 1e-3)[6:]
    nominal = simulator(env, noisy=False)
    assert np.abs(r).max() > 0.01
    np.testing.assert_allclose(
        r, (rows.x_next - nominal.step(rows.x, rows.u)[0])[:, 6:] / scale, atol=1e-5
    )
    h = 1e-3
    for i, each in enumerate(residuals.parameters):
        sides = []
        for sign in (1, -1):
            amount = sign * h * each.size
            value = float(np.exp(amount)) if each.is_factor else amount
            there = nominal.scaled({each.name: value}).step(rows.x, rows.u)[0]
            sides.append((rows.x_next - there)[:, 6:] / scale)
        own = (sides[0] - sides[1]) / (2 * h)
        assert np.abs(own).max() > 1e-3, each.name
        np.testing.assert_allclose(jacobian[..., i], own, atol=1e-3 * np.abs(own).max())


def pendulum_parts(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """What gravity and the motor do to the speed in a step of Pendulum, where it is not clipped."""
    return 0.05 * 15.0 * np.sin(rows.x[:, 0]), 0.05 * 3.0 * rows.u[:, 0]


@pytest.fixture(scope="module")
def pendulum() -> tuple[Rows, Residuals]:
    world = Changed(gym.make("Pendulum-v1"), {"mass": 1.3, "gravity": 0.8})
    rows = rows_of(world, 120)
    still = (np.abs(rows.x_next[:, 1]) < 7.5) & (np.abs(rows.x[:, 1]) < 7.5)
    rows = rows.take(still)
    return rows, residuals_of(world, rows, ["mass", "gravity"])


@pytest.mark.parametrize("central", [False, True])
def test_the_jacobian_of_pendulum_is_its_equations_derivative(pendulum: Any, central: bool) -> None:
    rows, residuals = pendulum
    assert [each.name for each in residuals.parameters] == ["mass", "gravity"]
    pull, push = pendulum_parts(rows)
    scale = np.std(rows.x_next - rows.x, axis=0)[1] + 1e-3
    theta = np.array([0.4, -0.3])  # of factors exp(0.5·θ)
    r, jacobian = residuals.jacobian(theta, rows, np.eye(2), central)
    speed = rows.x[:, 1] + pull * np.exp(-0.15) + push / np.exp(0.2)
    np.testing.assert_allclose(r[:, 0], (rows.x_next[:, 1] - speed) / scale, atol=1e-9)
    expected = np.stack([0.5 * push / np.exp(0.2), -0.5 * pull * np.exp(-0.15)], axis=1) / scale
    np.testing.assert_allclose(jacobian[:, 0], expected, rtol=1e-6 if central else 1e-3, atol=1e-9)
    _, along = residuals.jacobian(theta, rows, np.array([[1.0], [2.0]]), central)
    np.testing.assert_allclose(along[:, 0, 0], expected @ [1.0, 2.0], rtol=2e-3, atol=1e-3)


def test_residuals_of_several_thetas_are_those_of_each(pendulum: Any) -> None:
    rows, residuals = pendulum
    thetas = [np.zeros(2), np.array([0.5, 0.0]), np.array([-0.2, 0.7])]
    before = residuals.simulated
    together = residuals.at(thetas, rows)
    assert residuals.simulated - before == 3 * rows.size
    for each, r in zip(thetas, together, strict=True):
        np.testing.assert_array_equal(residuals.at([each], rows)[0], r)


def test_a_whole_turn_of_an_angle_is_no_residual() -> None:
    env = gym.make("Pendulum-v1")
    rows = rows_of(env, 20)
    turned = rows._replace(x_next=rows.x_next + np.array([2 * np.pi, 0.0]))
    sim = simulator(env, noisy=False)
    gap = sim.dynamics.gap(turned.x_next, sim.step(rows.x, rows.u)[0])
    np.testing.assert_allclose(gap, 0.0, atol=1e-6)


# --- Gauss-Newton ------------------------------------------------------------------------------


def test_gauss_newton_finds_the_factors_of_a_pendulum(pendulum: Any) -> None:
    rows, residuals = pendulum
    for start in (np.zeros(2), np.array([1.0, -1.0])):
        found = gauss_newton(residuals, rows, np.eye(2), start, SETTINGS)
        np.testing.assert_allclose(np.exp(0.5 * found.theta), [1.3, 0.8], rtol=1e-4)
        np.testing.assert_array_equal(found.theta, found.phi)
        assert found.iterations < 10


def test_one_number_may_move_several_parameters(pendulum: Any) -> None:
    rows, residuals = pendulum
    both = np.array([[1.0], [2.0]])
    found = gauss_newton(residuals, rows, both, np.zeros(2), SETTINGS)
    assert found.phi.shape == (1,)
    np.testing.assert_allclose(found.theta, both @ found.phi)


def test_a_few_wrong_steps_do_not_move_the_fit(pendulum: Any) -> None:
    rows, residuals = pendulum
    rng = np.random.default_rng(0)
    wrong = rng.choice(rows.size, rows.size // 10, replace=False)
    x_next = rows.x_next + 0.001 * rng.standard_normal(rows.x_next.shape)
    x_next[wrong, 1] += rng.choice([-1.0, 1.0], len(wrong)) * 2.0
    found = gauss_newton(residuals, rows._replace(x_next=x_next), np.eye(2), np.zeros(2), SETTINGS)
    np.testing.assert_allclose(np.exp(0.5 * found.theta), [1.3, 0.8], rtol=0.01)


def test_rows_that_cannot_be_computed_are_left_out_and_if_all_are_the_fit_says_so(
    pendulum: Any,
) -> None:
    rows, residuals = pendulum
    x = rows.x.copy()
    x[::7] = np.nan
    found = gauss_newton(residuals, rows._replace(x=x), np.eye(2), np.zeros(2), SETTINGS)
    np.testing.assert_allclose(np.exp(0.5 * found.theta), [1.3, 0.8], rtol=1e-4)
    with pytest.raises(Diverged, match="could not compute any"):
        gauss_newton(residuals, rows._replace(x=np.nan * x), np.eye(2), np.zeros(2), SETTINGS)


class Line:
    """Residuals y - Xθ: what a simulator that is linear in θ would give."""

    def __init__(self, X: np.ndarray, y: np.ndarray) -> None:
        self.X, self.y = X, y  # (m, c, p), (m, c)

    def at(self, thetas: Any, rows: Rows) -> np.ndarray:
        return np.array([self.y - self.X @ theta for theta in thetas])

    def jacobian(
        self, theta: np.ndarray, rows: Rows, basis: np.ndarray, central: Any = False
    ) -> Any:
        return self.y - self.X @ theta, -self.X @ basis


def test_small_noise_gives_least_squares_weighted_by_each_coordinates_noise() -> None:
    rng = np.random.default_rng(1)
    X, true = rng.standard_normal((300, 2, 3)), np.array([0.5, -1.0, 0.2])
    noise = np.array([0.001, 0.1])
    line: Any = Line(X, X @ true + noise * rng.standard_normal((300, 2)))
    found = gauss_newton(line, rows_like(300), np.eye(3), np.zeros(3), FitSettings(huber=50.0))
    weighted = (X / noise[:, None]).reshape(-1, 3)
    expected = np.linalg.lstsq(weighted, (line.y / noise).ravel(), rcond=None)[0]
    np.testing.assert_allclose(found.theta, expected, atol=2e-5)
    np.testing.assert_allclose(found.sigma, noise, rtol=0.15)


def test_where_the_data_shows_nothing_the_prior_keeps_a_parameter_at_nothing() -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((100, 1, 2))
    X[..., 1] = 0.0
    line: Any = Line(X, X @ [0.7, 0.0] + 0.01 * rng.standard_normal((100, 1)))
    found = gauss_newton(line, rows_like(100), np.eye(2), np.array([0.0, 3.0]), SETTINGS)
    np.testing.assert_allclose(found.theta, [0.7, 0.0], atol=0.01)
    np.testing.assert_allclose(posterior(found)[1], [0.0, 1.0], atol=1e-9)


def test_a_hessian_of_very_different_scales_is_solved() -> None:
    size = np.array([1e12, 1.0, 1e6])
    alike = np.array([[2.0, 1.0, 0.5], [1.0, 3.0, 1.0], [0.5, 1.0, 2.0]])
    step = np.array([1e-6, 2.0, -3e-3])
    hessian = alike * np.outer(size, size)
    np.testing.assert_allclose(solved(hessian, hessian @ step), step, rtol=1e-7)
    twice = np.ones((2, 2)) * 1e20  # two parameters that do the same, sharper than the prior
    found = solved(twice, np.array([1e20, 1e20]))
    assert found.sum() == pytest.approx(1.0)


def test_hubers_loss() -> None:
    z = np.array([0.0, 1.0, -1.5, 2.0, 3.0, -12.0])
    np.testing.assert_allclose(huber(z, 2.0), [0.0, 0.5, 1.125, 2.0, 4.0, 22.0])
    fine = np.linspace(-5, 5, 2001)
    slope = np.gradient(huber(fine, 1.5), fine)
    np.testing.assert_allclose(slope[1:-1], np.clip(fine, -1.5, 1.5)[1:-1], atol=0.01)


def test_the_spread_is_a_standard_deviation_that_outliers_do_not_move() -> None:
    rng = np.random.default_rng(0)
    r = rng.standard_normal((4000, 2)) * [0.5, 3.0]
    np.testing.assert_allclose(spread(r, 0.0), [0.5, 3.0], rtol=0.05)
    r[:200] = 1e6
    np.testing.assert_allclose(spread(r, 0.0), [0.5, 3.0], rtol=0.12)
    np.testing.assert_allclose(spread(np.zeros((5, 1)), 1e-7), [1e-7])


def test_the_energy_is_the_mean_square_of_what_could_be_computed() -> None:
    assert energy(np.array([[3.0, 4.0], [np.nan, 1.0], [0.0, 1.0]])) == pytest.approx(26 / 4)
    assert energy(np.full((2, 2), np.nan)) == np.inf


# --- wind taken out ----------------------------------------------------------------------------


def taken_out(r: np.ndarray, effect: np.ndarray) -> np.ndarray:
    """What is left of each step's residual after least squares on the effects there."""
    left = []
    for each, E in zip(r, effect, strict=True):
        left.append(each - E @ np.linalg.lstsq(E, each, rcond=None)[0])
    return np.array(left)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_a_projection_takes_out_what_its_directions_span_and_nothing_else(k: int) -> None:
    rng = np.random.default_rng(k)
    m, c, p = 50, 5, 3
    effect = rng.standard_normal((m, c, k)) * np.exp(rng.standard_normal((m, 1, 1)))
    r, jacobian = rng.standard_normal((m, c)), rng.standard_normal((m, c, p))
    blown = r + np.einsum("tck,tk->tc", effect, 1e3 * rng.standard_normal((m, k)))
    for each in (r, blown):
        fresh, slopes, kept = whitened(each, jacobian, rows_like(m), Whitening(effect))
        assert kept.all()
        np.testing.assert_allclose(fresh, taken_out(r, effect), atol=1e-9)
        np.testing.assert_allclose(np.einsum("tck,tc->tk", effect, fresh), 0.0, atol=1e-8)
    for i in range(p):
        np.testing.assert_allclose(slopes[..., i], taken_out(jacobian[..., i], effect), atol=1e-9)
    again = whitened(fresh, slopes, rows_like(m), Whitening(effect))
    np.testing.assert_allclose(again[0], fresh, atol=1e-9)
    np.testing.assert_allclose(again[1], slopes, atol=1e-9)


def test_what_acts_as_the_wind_does_shows_nothing_but_errors_at_contacts() -> None:
    rng = np.random.default_rng(3)
    effect = rng.normal(size=(200, 5, 2))
    gain = np.einsum("tck,k->tc", effect, [0.5, -0.2])
    gain[:8] += rng.normal(size=(8, 5))  # where contacts begin, differences are no derivatives
    mass = rng.normal(size=(200, 5))
    jacobian = np.stack([gain, mass], axis=-1)
    r = rng.normal(size=(200, 5))
    _, slopes, _ = whitened(r, jacobian, rows_like(200), Whitening(effect))
    assert not slopes[..., 0].any()
    assert np.median(np.linalg.norm(slopes[..., 1], axis=1)) > 1


def test_a_direction_without_an_effect_takes_nothing_out() -> None:
    rng = np.random.default_rng(0)
    effect = rng.standard_normal((30, 4, 2))
    effect[..., 1] = 2.0 * effect[..., 0]  # the same direction twice
    effect[10:20] = 0.0
    effect[25, :, :] = np.nan
    r = rng.standard_normal((30, 4))
    fresh, _, _ = whitened(r, np.zeros((30, 4, 1)), rows_like(30), Whitening(effect))
    np.testing.assert_allclose(fresh, taken_out(r, np.nan_to_num(effect)), atol=1e-9)
    np.testing.assert_array_equal(fresh[10:20], r[10:20])


def test_steps_that_could_not_be_computed_are_not_kept() -> None:
    rng = np.random.default_rng(0)
    r, jacobian = rng.standard_normal((20, 2)), rng.standard_normal((20, 2, 1))
    r[3, 1], jacobian[7, 0, 0] = np.nan, np.inf
    for how in (Whitening(), Whitening(rng.standard_normal((20, 2, 1)))):
        fresh, slopes, kept = whitened(r, jacobian, rows_like(20), how)
        assert np.flatnonzero(~kept).tolist() == [3, 7]
        assert np.isfinite(fresh).all()
        assert np.isfinite(slopes).all()


def series(m: int, a: tuple[float, ...], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """An autoregressive series and its innovations."""
    fresh = rng.standard_normal(m)
    y = np.zeros(m)
    for t in range(m):
        y[t] = fresh[t] + sum(a[k] * y[t - 1 - k] for k in range(len(a)) if t > k)
    return y, fresh


def test_an_autoregression_finds_its_coefficients_and_outliers_do_not_hide_them() -> None:
    rng = np.random.default_rng(0)
    y, _ = series(3000, (1.2, -0.5), rng)
    past = np.stack([y[1:-1], y[:-2]], axis=1)
    np.testing.assert_allclose(autoregression(y[2:], past), [1.2, -0.5], atol=0.04)
    spoiled = y[2:].copy()
    spoiled[rng.integers(0, len(spoiled), 100)] += 100.0
    np.testing.assert_allclose(autoregression(spoiled, past), [1.2, -0.5], atol=0.08)
    tiny = 1e-9
    np.testing.assert_allclose(autoregression(tiny * y[2:], tiny * past), [1.2, -0.5], atol=0.04)


def test_an_autoregression_on_a_past_that_hardly_varies_is_finite() -> None:
    still, huge = np.zeros(60), np.full((60, 8), 1e9)
    assert (autoregression(still, huge) == 0).all()
    assert (autoregression(still, 0 * huge) == 0).all()


def test_whitening_by_the_past_leaves_innovations_and_treats_derivatives_alike() -> None:
    rng = np.random.default_rng(1)
    pairs = [series(600, a, rng) for a in ((0.95,), (1.5, -0.7))]
    r = np.stack([y for y, _ in pairs], axis=1)
    fresh_true = np.stack([e for _, e in pairs], axis=1)
    jacobian = rng.standard_normal((600, 2, 3))
    run = np.repeat([0, 1], 300)
    fresh, slopes, kept = whitened(r, jacobian, rows_like(600, run), Whitening(past=4))
    assert np.flatnonzero(~kept).tolist() == [0, 1, 2, 3, 300, 301, 302, 303]
    for c in range(2):
        assert np.corrcoef(fresh[kept, c], fresh_true[kept, c])[0, 1] > 0.98
        assert np.var(fresh[kept, c]) < 1.15
        # The same filter on r and on its derivatives.
        index = np.flatnonzero(kept)
        past = np.stack([r[index - k, c] for k in (1, 2, 3, 4)], axis=1)
        a = np.linalg.lstsq(past, r[index, c] - fresh[index, c], rcond=None)[0]
        expected = jacobian[index, c] - sum(a[k - 1] * jacobian[index - k, c] for k in (1, 2, 3, 4))
        np.testing.assert_allclose(slopes[index, c], expected, atol=1e-6)


def test_a_step_that_could_not_be_computed_is_no_past_either() -> None:
    rng = np.random.default_rng(2)
    r = np.stack([series(100, (0.9,), rng)[0]], axis=1)
    r[50] = np.nan
    _, _, kept = whitened(r, np.zeros((100, 1, 1)), rows_like(100), Whitening(past=3))
    assert np.flatnonzero(~kept).tolist() == [0, 1, 2, 50, 51, 52, 53]


def test_a_wind_in_a_known_direction_does_not_disturb_the_fit() -> None:
    rng = np.random.default_rng(0)
    X, true = rng.standard_normal((150, 4, 2)), np.array([0.6, -0.4])
    effect = rng.standard_normal((150, 4, 1))
    gusts = 50.0 * np.sin(np.arange(150) / 7)[:, None] + 20.0
    line: Any = Line(X, X @ true + np.einsum("tck,tk->tc", effect, gusts))
    found = gauss_newton(line, rows_like(150), np.eye(2), np.zeros(2), SETTINGS, Whitening(effect))
    np.testing.assert_allclose(found.theta, true, atol=1e-6)


def test_a_smooth_wind_in_no_known_direction_is_whitened_by_its_past() -> None:
    rng = np.random.default_rng(0)
    X, true = rng.standard_normal((400, 2, 2)), np.array([0.6, -0.4])
    wind = np.stack([np.sin(np.arange(400) / 9), np.cos(np.arange(400) / 13)], axis=1)
    line: Any = Line(X, X @ true + 3.0 * wind)
    plain = gauss_newton(line, rows_like(400), np.eye(2), np.zeros(2), SETTINGS)
    fine = gauss_newton(line, rows_like(400), np.eye(2), np.zeros(2), SETTINGS, Whitening(past=8))
    assert np.abs(plain.theta - true).max() > 0.01
    np.testing.assert_allclose(fine.theta, true, atol=0.001)


# --- intervals ---------------------------------------------------------------------------------


def fits(
    noise: Any, count: int = 150, m: int = 400
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Errors of fits to fresh data, the model's and the sandwich's deviations, and the quantile."""
    rng = np.random.default_rng(0)
    true = np.array([0.3, -0.2])
    errors, plain, deviations = [], [], []
    width = 0.0
    for _ in range(count):
        X = np.stack([rng.standard_normal((m, 1)), np.ones((m, 1))], axis=-1)
        line: Any = Line(X, X @ true + 0.2 * noise(rng, m)[:, None])
        found = gauss_newton(line, rows_like(m), np.eye(2), np.zeros(2), SETTINGS)
        errors.append(found.theta - true)
        plain.append(np.sqrt(np.diag(np.linalg.inv(found.hessian))))
        deviations.append(np.sqrt(np.diag(covariance(found, 1e-6))))
        width = interval_width(len(found.scores))
    return np.array(errors), np.array(plain), np.array(deviations), width


def white(rng: np.random.Generator, m: int) -> np.ndarray:
    return rng.standard_normal(m)


def heavy(rng: np.random.Generator, m: int) -> np.ndarray:
    return rng.standard_t(3, m)


def slow(rng: np.random.Generator, m: int) -> np.ndarray:
    return series(m, (0.8,), rng)[0]


@pytest.mark.parametrize("noise", [white, heavy])
def test_intervals_hold_the_truth_as_often_as_they_say(noise: Any) -> None:
    errors, _, deviations, width = fits(noise)
    z = errors / deviations
    # A standard deviation of 150 z-scores is known to 6 %, a share of 95 % to 1.8 %.
    assert (z.std(axis=0) > 0.82).all()
    assert (z.std(axis=0) < 1.18).all()
    assert np.abs(z.mean(axis=0)).max() < 0.25
    covered = (np.abs(z) < width).mean(axis=0)
    assert (covered > 0.91).all()


def test_noise_that_is_correlated_in_time_widens_the_interval_of_what_it_shakes() -> None:
    errors, plain, deviations, width = fits(slow)
    # The constant is known worse than as many independent steps would tell; the other is not.
    assert errors[:, 1].std() > 2.0 * plain[:, 1].mean()
    covered = (np.abs(errors) < width * deviations).mean(axis=0)
    assert (covered > 0.85).all()
    assert deviations[:, 1].mean() > 1.7 * plain[:, 1].mean()


def test_the_interval_is_students() -> None:
    assert interval_width(10) == pytest.approx(2.262, abs=1e-3)
    assert interval_width(1) == interval_width(2) == pytest.approx(12.706, abs=1e-3)
    assert interval_width(100_000) == pytest.approx(1.960, abs=1e-3)


def test_the_covariance_is_never_below_the_models_and_has_its_floor() -> None:
    # Two blocks, alike but for a trace: the sandwich alone would be next to nothing.
    scores = 1e-6 * np.array([[1.0, 2.0], [-1.0, 2.5]])
    found = Fitted(
        np.zeros(2), np.zeros(2), np.diag([100.0, 25.0]), np.zeros(2), scores, 0.0, np.ones(1), 0
    )  # fmt: skip
    np.testing.assert_allclose(np.diag(covariance(found, 0.0)), [0.01, 0.04])
    floored = np.diag(covariance(found, 0.5) - covariance(found, 0.0))
    np.testing.assert_allclose(floored, 0.25)


def test_the_quadratic_model_is_the_losses_own() -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((80, 2, 2))
    line: Any = Line(X, X @ [0.5, 0.1] + 0.3 * rng.standard_t(2, (80, 2)))
    phi = np.array([0.4, 0.2])
    found = quadratic(line, rows_like(80), np.eye(2), phi, SETTINGS, Whitening())

    def loss(at: np.ndarray) -> float:
        z = (line.y - X @ at) / found.sigma
        size = np.abs(z)
        each = np.where(size <= 2.0, 0.5 * z**2, 2.0 * size - 2.0)
        return float(each.sum() + 0.5 * at @ at)

    assert found.loss == pytest.approx(loss(phi) - 0.5 * phi @ phi)
    step = 1e-5 * np.eye(2)
    slope = [(loss(phi + h) - loss(phi - h)) / 2e-5 for h in step]
    np.testing.assert_allclose(found.score, slope, rtol=1e-5)
    np.testing.assert_allclose(found.scores.sum(axis=0) + phi, found.score)
    assert (np.linalg.eigvalsh(found.hessian) >= 1.0).all()


# --- fewest changes ----------------------------------------------------------------------------

PRICE, RESOLUTION = 25.0, 0.01


def alike(count: int, size: float = 0.02) -> np.ndarray:
    return size**2 * np.eye(count)


def grouped(*groups: int) -> list[Parameter]:
    """Masses, gains, ...: so many of each."""
    kinds = ("mass", "gain", "damping", "armature")
    return [
        Parameter(f"{kind}:{i}", kind, (i,), 0.5, "x", True)
        for kind, count in zip(kinds, groups, strict=False)
        for i in range(count)
    ]


def test_atoms_are_single_parameters_and_kinds_that_change_alike() -> None:
    atoms = atoms_of([*grouped(2, 1), Parameter("com:0.x", "com", (0,), 0.05, "m", False)])
    assert atoms == [
        Atom("mass:0", (0,)),
        Atom("mass:1", (1,)),
        Atom("gain:0", (2,)),
        Atom("com:0.x", (3,)),
        Atom("mass", (0, 1)),
    ]
    A = changes.matrix(atoms, 4)
    np.testing.assert_array_equal(A[:, 4], [1, 1, 0, 0])
    np.testing.assert_array_equal(A[:, :4], np.eye(4))


@pytest.mark.parametrize("seed", range(5))
def test_one_change_is_found_among_many(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parameters = grouped(8, 8, 8, 8)
    atoms = atoms_of(parameters)
    A = changes.matrix(atoms, 32)
    theta = 0.02 * rng.standard_normal(32)
    place = int(rng.integers(32))
    theta[place] += 0.4
    assert changes.fewest(theta, alike(32), A, PRICE, RESOLUTION) == (place,)


def test_nothing_is_found_where_nothing_changed() -> None:
    theta = 0.02 * np.random.default_rng(0).standard_normal(32)
    A = changes.matrix(atoms_of(grouped(8, 8, 8, 8)), 32)
    assert changes.fewest(theta, alike(32), A, PRICE, RESOLUTION) == ()


def test_a_kind_that_changed_as_a_whole_is_one_change_and_not_its_members() -> None:
    rng = np.random.default_rng(0)
    atoms = atoms_of(grouped(8, 8))
    theta = 0.02 * rng.standard_normal(16)
    theta[:8] += 0.3
    chosen = changes.fewest(theta, alike(16), changes.matrix(atoms, 16), PRICE, RESOLUTION)
    assert [atoms[i].name for i in chosen] == ["mass"]
    theta[3] += 0.5
    chosen = changes.fewest(theta, alike(16), changes.matrix(atoms, 16), PRICE, RESOLUTION)
    assert {atoms[i].name for i in chosen} == {"mass:3", "mass"}


def test_a_member_that_changed_alone_is_not_its_kind() -> None:
    atoms = atoms_of(grouped(4, 4))
    theta = np.zeros(8)
    theta[5] = -0.4
    chosen = changes.fewest(theta, alike(8), changes.matrix(atoms, 8), PRICE, RESOLUTION)
    assert [atoms[i].name for i in chosen] == ["gain:1"]


@pytest.mark.parametrize("shift", [0.0, 0.4, -0.7])
@pytest.mark.parametrize("place", [1, 6])
def test_along_a_direction_that_the_data_does_not_show_the_fewest_are_taken(
    shift: float, place: int
) -> None:
    # All masses, gains and dampings times one number: no step tells.
    atoms = atoms_of(grouped(4, 3, 3))
    n = np.ones(10) / np.sqrt(10)
    spread_out = alike(10) + np.outer(n, n)
    theta = shift * np.sqrt(10) * n
    theta[place] += 0.5
    chosen = changes.fewest(theta, spread_out, changes.matrix(atoms, 10), PRICE, RESOLUTION)
    assert [atoms[i].name for i in chosen] == [atoms[place].name]


def test_of_explanations_that_do_equally_well_the_smaller_one_is_taken() -> None:
    # All masses up, or all else down: the same to the data.
    atoms = atoms_of(grouped(4, 3, 3))
    n = np.ones(10) / np.sqrt(10)
    theta = np.repeat([0.3, 0.0, 0.0], [4, 3, 3])
    A = changes.matrix(atoms, 10)
    chosen = changes.fewest(theta, alike(10) + np.outer(n, n), A, PRICE, RESOLUTION)
    assert [atoms[i].name for i in chosen] == ["mass"]
    chosen = changes.fewest(theta - 0.3, alike(10) + np.outer(n, n), A, PRICE, RESOLUTION)
    assert [atoms[i].name for i in chosen] == ["mass"]


def test_more_atoms_than_pairs_are_tried_for_are_searched_one_after_the_other() -> None:
    rng = np.random.default_rng(0)
    theta = 0.02 * rng.standard_normal(60)
    theta[[3, 17, 44]] += [0.3, -0.5, 0.2]
    assert len(theta) > changes.PAIRS_UP_TO
    chosen = changes.fewest(theta, alike(60), np.eye(60), PRICE, RESOLUTION)
    assert chosen == (3, 17, 44)


def test_a_change_must_pay_its_price() -> None:
    theta = np.array([0.0, 0.1, 0.3, 0.0])
    counts = [
        len(changes.fewest(theta, alike(4), np.eye(4), price, RESOLUTION))
        for price in (1.0, 30.0, 1000.0)
    ]
    assert counts == [2, 1, 0]
    # What is smaller than the resolution is not looked for, however sharp the data is.
    assert changes.fewest(theta / 1e3, alike(4, 1e-6), np.eye(4), PRICE, RESOLUTION) == ()


def test_changes_that_others_make_up_are_dropped() -> None:
    A = changes.matrix(atoms_of(grouped(2)), 2)
    chosen = changes.fewest(np.array([0.3, 0.9]), alike(2, 1e-3), A, 1e-6, 1e-4)
    assert len(chosen) == np.linalg.matrix_rank(A[:, list(chosen)]) == 2


@pytest.mark.parametrize("seed", range(12))
def test_the_search_finds_what_trying_every_set_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    atoms = atoms_of(grouped(3, 3, 2))
    A = changes.matrix(atoms, 8)
    root = rng.standard_normal((8, 8))
    shown = root @ np.diag(np.logspace(-3, 0, 8)) @ root.T
    theta = A[:, rng.choice(len(atoms), 2, replace=False)] @ rng.choice([-0.5, 0.4, 0.8], 2)
    theta = theta + rng.multivariate_normal(np.zeros(8), shown)
    weight = np.linalg.inv(shown + RESOLUTION**2 * np.eye(8))

    def cost(chosen: tuple[int, ...]) -> float:
        own = A[:, list(chosen)]
        normal = own.T @ weight @ own + np.eye(len(chosen))
        phi = np.linalg.solve(normal, own.T @ weight @ theta)
        rest = theta - own @ phi
        return float(rest @ weight @ rest + phi @ phi + PRICE * len(chosen))

    best = min(cost(each) for size in range(4) for each in combinations(range(len(atoms)), size))
    chosen = changes.fewest(theta, shown, A, PRICE, RESOLUTION)
    assert cost(chosen) == pytest.approx(best, rel=1e-6, abs=1e-6)
