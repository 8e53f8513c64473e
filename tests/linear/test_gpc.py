"""GPC learns, with quadratic and other costs, on constant and time-varying systems.

Its steps are checked against a NumPy loop in `test_equivalence`, its gradient in
`test_idealised`.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import windward as ww

T, LAST = 3000, 1000
Q, R = np.eye(2), np.eye(1)
K = np.array([[0.42208244, 1.24392885]])  # LQR of the double integrator
W = ww.linear.disturbances.sinusoid(T, 2)


def l1(x, u):
    return jnp.sum(jnp.abs(x)) + jnp.sum(jnp.abs(u))


def varying(system):
    wave = np.sin(2 * np.pi * np.arange(T) / 500)[:, None, None]
    return ww.linear.System(system.A + wave * np.array([[0.0, 0.2], [0.1, 0.0]]), system.B)


@pytest.mark.parametrize(
    ("time_varying", "costs", "eta", "within"),
    [
        (False, {"Q": Q, "R": R}, 1e-3, 1.03),
        (True, {"Q": Q, "R": R}, 1e-3, 1.03),
        (False, {"cost": l1}, 2e-3, 1.06),
    ],
    ids=["quadratic", "time-varying", "l1"],
)
def test_it_learns_the_best_controller(double_integrator, time_varying, costs, eta, within):
    """The last 1000 steps cost within a few percent of the best fixed M's."""
    system = varying(double_integrator) if time_varying else double_integrator
    settings = {"K": K, **costs}
    run = ww.linear.simulate(system, ww.gpc(system, eta=eta, **settings), W, keep=(), **settings)
    # A periodic disturbance: with a general cost, a shorter stretch gives the same best.
    w = W[:400] if "cost" in costs else W
    best = ww.linear.best_dac(system, w, **settings).cost[-len(w) // 3 :].mean()
    last = run.cost[-LAST:].mean()
    print(f"GPC {run.cost[:100].mean():.4f} at first, {last:.4f} at last; best {best:.4f}")
    assert last < within * best
    assert run.cost[:100].mean() > 2 * best


def test_it_does_not_explore(double_integrator):
    """Runs of all seeds are the same."""
    algorithm = ww.gpc(double_integrator, K=K, Q=Q, R=R, h=2)
    run = ww.linear.simulate(double_integrator, algorithm, W[:50], K=K, Q=Q, R=R, seed=[0, 1])
    np.testing.assert_array_equal(run.u[0], run.u[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"K": np.zeros((1, 2))}, "K must stabilise the system"),
        ({"K": np.zeros((2, 2))}, r"K must have shape \(1, 2\)"),
        ({"Q": None}, "pass Q and R"),
        ({"Q": np.eye(3)}, r"Q must have shape \(2, 2\)"),
        ({"cost": l1}, "either Q and R, or cost="),
        ({"h": 0}, "h must be an integer"),
        ({"eta": -1.0}, "eta must be at least 0"),
        ({"M0": np.zeros((5, 2, 2))}, r"M0 must have shape \(5, 1, 2\)"),
    ],
)
def test_bad_arguments(double_integrator, arguments, message):
    with pytest.raises(ValueError, match=message):
        ww.gpc(double_integrator, **{"K": K, "Q": Q, "R": R, **arguments})
