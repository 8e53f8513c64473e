"""Tuning on a grid picks what separate runs would."""

import warnings

import numpy as np
import pytest

import windward as ww

Q, R, K = np.eye(2), np.eye(1), np.array([[0.42208244, 1.24392885]])
T = 400
W = ww.linear.disturbances.sinusoid(T, 2)
ETAS, DELTAS = [0.0, 1e-4, 1e4], [0.03, 0.1, 0.3]
SETTINGS = {"K": K, "Q": Q, "R": R, "seed": [0, 1]}


def make(**numbers):
    return ww.bandit_gpc(1, 2, h=2, projection=None, **numbers)


@pytest.fixture(scope="module")
def tuned(double_integrator):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return ww.linear.tune(
            double_integrator, make, W, grid={"eta": ETAS, "delta": DELTAS}, last=100, **SETTINGS
        )


def test_it_is_the_best_of_separate_runs(double_integrator, tuned):
    separate = np.full((3, 3), np.inf)
    for i, eta in enumerate(ETAS):
        for j, delta in enumerate(DELTAS):
            try:
                run = ww.linear.simulate(
                    double_integrator, make(eta=eta, delta=delta), W, keep=(), **SETTINGS
                )
            except ww.linear.Diverged:
                continue
            separate[i, j] = run.cost[:, -100:].astype(float).mean()
    np.testing.assert_allclose(tuned.cost, separate, rtol=1e-4)
    i, j = np.unravel_index(separate.argmin(), separate.shape)
    assert tuned.best == {"eta": ETAS[i], "delta": DELTAS[j]}
    assert tuned.on_edge == ()
    assert tuned.cost.min() < 0.99 * np.partition(tuned.cost.ravel(), 1)[1]  # no tie
    np.testing.assert_array_equal(tuned.grid["eta"], ETAS)


def test_diverging_points_cost_infinitely_much(tuned):
    """At a wild eta, and at one too large for a small delta."""
    np.testing.assert_array_equal(
        np.isinf(tuned.cost), [[False] * 3, [True, False, False], [True] * 3]
    )


def test_an_edge_is_reported(double_integrator):
    with pytest.warns(UserWarning, match="best delta lies on the grid's edge: widen the grid"):
        tuned = ww.linear.tune(
            double_integrator, lambda delta: make(eta=0.0, delta=delta), W,
            grid={"delta": DELTAS}, **SETTINGS,
        )  # fmt: skip
    assert tuned.on_edge == ("delta",)
    assert tuned.best == {"delta": 0.03}  # without learning the least noise is best
    assert tuned.cost.shape == (3,)


def test_a_single_seed_needs_no_axis(double_integrator):
    tuned = ww.linear.tune(
        double_integrator, lambda delta: make(eta=0.0, delta=delta), W,
        grid={"delta": [0.03, 0.3]}, **{**SETTINGS, "seed": 0},
    )  # fmt: skip
    assert tuned.cost.shape == (2,)
    assert tuned.on_edge == ()  # two values have no inside


def test_finalists_of_screening_are_judged_by_the_other_seeds(double_integrator):
    """Most points are screened by seed 0 alone, the best two judged by seeds 1 to 3 alone."""
    grid, seeds = {"eta": [0.0, 3e-5, 1e-4], "delta": DELTAS}, [0, 1, 2, 3]
    w = np.stack([(0.2 + 0.3 * k) * W for k in range(4)])  # each seed has a wind of its own
    settings = {"K": K, "Q": Q, "R": R}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the edge
        tuned = ww.linear.tune(
            double_integrator, make, w, grid=grid, screen=1, finalists=2, seed=seeds, **settings
        )
        one = ww.linear.tune(double_integrator, make, w[0], grid=grid, seed=0, **settings)
    np.testing.assert_allclose(tuned.cost, one.cost, rtol=1e-5)
    finalists = [np.unravel_index(k, (3, 3)) for k in np.argsort(one.cost, axis=None)[:2]]
    mean = {}
    for i, j in finalists:
        point = {"eta": grid["eta"][i], "delta": DELTAS[j]}
        try:
            run = ww.linear.simulate(
                double_integrator, make(**point), w[1:], seed=seeds[1:], keep=(), **settings
            )
        except ww.linear.Diverged:
            continue
        mean[tuple(point.items())] = run.cost.astype(float).mean()
    assert tuned.best == dict(min(mean, key=mean.__getitem__))
    assert tuned.best != one.best  # that one diverges in stronger wind


def test_a_point_that_diverged_in_screening_is_no_finalist(double_integrator):
    """Though there are fewer others than finalists; in a calm it would not have diverged."""
    w = np.stack([W, 0 * W])
    grid = {"eta": [0.0, 1e4]}
    settings = {"K": K, "Q": Q, "R": R, "seed": [0, 1]}
    tuned = ww.linear.tune(
        double_integrator, lambda eta: make(eta=eta, delta=0.3), w, grid=grid, screen=1, **settings
    )  # fmt: skip
    assert np.isinf(tuned.cost[1])
    assert tuned.best == {"eta": 0.0}
    with pytest.raises(ValueError, match="every point of the grid diverged"):
        ww.linear.tune(
            double_integrator, lambda eta: make(eta=eta, delta=0.3), w, grid={"eta": [1e4]},
            screen=1, **settings,
        )  # fmt: skip
    with pytest.raises(ValueError, match="all 1 finalists diverged"):
        ww.linear.tune(
            double_integrator, lambda eta: make(eta=eta, delta=0.3), w[::-1] * [[[1e30]]],
            grid={"eta": [0.0]}, screen=1, **settings,
        )  # fmt: skip


def test_screening_leaves_seeds_for_the_finalists(double_integrator):
    grid = {"eta": [0.0, 1e-5]}
    with pytest.raises(ValueError, match="screen must leave seeds for the finalists; got 2 of 2"):
        ww.linear.tune(double_integrator, make, W, grid=grid, screen=2, **SETTINGS)
    with pytest.raises(ValueError, match="w must have one sequence for each of 2 seeds; got 3"):
        ww.linear.tune(
            double_integrator, make, np.stack([W] * 3), grid=grid, screen=1, **SETTINGS
        )  # fmt: skip


def test_errors(double_integrator):
    with pytest.raises(ValueError, match="every point of the grid diverged; try smaller"):
        ww.linear.tune(double_integrator, make, W, grid={"eta": [1e4, 1e5]}, **SETTINGS)
    with pytest.raises(ValueError, match="grid must name at least one"):
        ww.linear.tune(double_integrator, make, W, grid={}, **SETTINGS)


def test_a_point_that_diverged_before_the_last_steps_counts_as_diverged(double_integrator):
    """Its cost overflows at step 11 and comes back; `cost` is inf where a seed diverged."""
    w = np.zeros((T, 2))
    w[10] = 1e20  # its square is no float32
    with pytest.raises(ValueError, match="every point of the grid diverged"):
        ww.linear.tune(
            double_integrator, make, w, grid={"eta": [0.0, 1e-30, 1e4]}, last=100, **SETTINGS
        )


@pytest.mark.parametrize("last", [0, -3])
def test_last_must_be_positive(double_integrator, last):
    with pytest.raises(ValueError, match="last must be an integer of at least 1"):
        ww.linear.tune(double_integrator, make, W, grid={"eta": [0.0, 1e-5]}, last=last, **SETTINGS)


def test_a_grid_needs_values(double_integrator):
    with pytest.raises(ValueError, match="eta"):
        ww.linear.tune(double_integrator, make, W, grid={"eta": []}, **SETTINGS)
