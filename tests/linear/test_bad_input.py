"""Bad arguments of `System` and `simulate`: a ValueError that names the argument and the remedy."""

import jax.numpy as jnp
import numpy as np
import pytest

import windward as ww

A, B = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[0.0], [1.0]])
K, Q, R = np.array([[0.42208244, 1.24392885]]), np.eye(2), np.eye(1)
SYSTEM = ww.linear.System(A, B)
VARYING = ww.linear.System(np.stack([A] * 8), B)
W = np.zeros((8, 2))


def absolute(x, u):
    return jnp.sum(jnp.abs(x)) + jnp.sum(jnp.abs(u))


@pytest.mark.parametrize(
    ("A", "B", "message"),
    [
        (np.ones((2, 3)), B, r"A must be square.*\(2, 3\)"),
        (np.ones(2), B, r"A must have 2 or 3 dimension\(s\); got an array of shape \(2,\)"),
        ([[1.0, np.nan], [0.0, 1.0]], B, r"A must be finite; A\[0, 1\] is nan"),
        ([["a", "b"], ["c", "d"]], B, "A must be an array of numbers"),
        ([[1.0, 2.0], [3.0]], B, "A must be an array of numbers"),
        (A, np.ones((3, 1)), "B must have d_x = 2 rows"),
        (A, np.ones(2), r"B must have 2 or 3 dimension\(s\)"),
        (A, [[0.0], [np.inf]], "B must be finite"),
        (np.ones((5, 2, 2)), np.ones((6, 2, 1)), "as many time steps; got 5 and 6"),
    ],
)
def test_systems(A, B, message):
    with pytest.raises(ValueError, match=message):
        ww.linear.System(A, B)


def test_a_system_of_either_kind():
    assert (SYSTEM.d_x, SYSTEM.d_u, SYSTEM.varies, SYSTEM.steps) == (2, 1, False, None)
    assert (VARYING.d_x, VARYING.d_u, VARYING.varies, VARYING.steps) == (2, 1, True, 8)
    only_b = ww.linear.System(A, np.stack([B] * 5))
    assert (only_b.varies, only_b.steps, only_b.A.shape) == (True, 5, (5, 2, 2))
    np.testing.assert_allclose(VARYING.closed_loop(K), np.stack([A - B @ K] * 8))


CASES = {
    "w of one dimension": ({"w": np.zeros(8)}, r"w must have 2 or 3 dimension\(s\)"),
    "w too wide": ({"w": np.zeros((8, 3))}, "w must have d_x = 2 columns"),
    "w with a nan": ({"w": np.full((8, 2), np.nan)}, r"w must be finite; w\[0, 0\] is nan"),
    "w of text": ({"w": "wind"}, "w must be an array of numbers|w must have"),
    "w without steps": ({"w": np.zeros((0, 2))}, "w must have at least"),
    "w of too few seeds": (
        {"w": np.zeros((2, 8, 2)), "seed": [0, 1, 2]},
        r"w with a leading axis must have one sequence for each seed.*3 seed",
    ),
    "w of seeds for a single seed": ({"w": np.zeros((2, 8, 2))}, "for each seed.*a single"),
    "w shorter than A": (
        {"system": VARYING, "w": W[:5]}, "w must have as many steps as A, 8; got 5",
    ),
    "adversary longer than A": (
        {"system": VARYING, "w": ww.linear.disturbances.adversarial(5)}, "constant|steps",
    ),
    "K of a wrong shape": ({"K": K.T}, r"K must have shape \(1, 2\) \(\(d_u, d_x\)\)"),
    "K with a nan": ({"K": [[np.nan, 1.0]]}, "K must be finite"),
    "K that does not stabilise": (
        {"K": np.zeros((1, 2))}, r"K must stabilise the system.*spectral radius 1.*lqr gives",
    ),
    "x0 of a wrong size": ({"x0": [1.0, 2.0, 3.0]}, r"x0 must have shape \(2,\)"),
    "x0 that is infinite": ({"x0": [np.inf, 0.0]}, "x0 must be finite"),
    "Q of a wrong shape": ({"Q": np.eye(3)}, r"Q must have shape \(2, 2\)"),
    "Q not semidefinite": ({"Q": -np.eye(2)}, "Q must be positive semidefinite"),
    "Q not symmetric": ({"Q": [[1.0, 1.0], [0.0, 1.0]]}, "Q must be symmetric"),
    "R not semidefinite": ({"R": -np.eye(1)}, "R must be positive semidefinite"),
    "R with a nan": ({"R": [[np.nan]]}, "R must be finite"),
    "neither costs nor cost": ({"Q": None, "R": None}, "pass Q and R .* or cost="),
    "Q without R": ({"R": None}, "pass Q and R .* or cost="),
    "both costs and cost": ({"cost": absolute}, "either Q and R, or cost=, not both"),
    "seed negative": ({"seed": -1}, "seed must be an integer of at least 0; got -1"),
    "seed empty": ({"seed": []}, "seed must be an int or a non-empty sequence"),
    "seed among others negative": ({"seed": [0, -2]}, "seed must be an integer"),
    "seed a fraction": ({"seed": 1.5}, "seed must be"),
    "seed a bool": ({"seed": True}, "seed must be an integer"),
    "keep unknown": ({"keep": ("state",)}, "keep must be one of 'x'.*got 'state'"),
    "M_every 0": ({"M_every": 0}, "M_every must be an integer of at least 1"),
    "d_u of another system": (
        {"algorithm": ww.bandit_gpc(2, 2)}, "d_u of the algorithm must be the system's 1; got 2",
    ),
    "d_w for w": ({"algorithm": ww.bandit_gpc(1, 3)}, "d_w must be 2 for signal 'w'.*got 3"),
    "d_w for pd3": (
        {"algorithm": ww.mf_gpc(1, 1, signal="pd3")}, "d_w must be 2 for signal 'pd3'.*got 1",
    ),
    "d_w for pd2": (
        {"algorithm": ww.mf_gpc(1, 2, signal="pd2"), "L": np.ones((3, 2))},
        "d_w must be 3 for signal 'pd2'.*got 2",
    ),
    "L of a wrong width": (
        {"algorithm": ww.mf_gpc(1, 3, signal="pd2"), "L": np.eye(3)}, "L must have d_x = 2 columns",
    ),
    "L with a nan": (
        {"algorithm": ww.mf_gpc(1, 2, signal="pd2"), "L": np.full((2, 2), np.nan)},
        "L must be finite",
    ),
    "pd1 with a cost function": (
        {"algorithm": ww.mf_gpc(1, 1, signal="pd1"), "Q": None, "R": None, "cost": absolute},
        "signal 'pd1' needs quadratic values and so Q and R, not cost=",
    ),
    "adversary with a cost function": (
        {"w": ww.linear.disturbances.adversarial(8), "Q": None, "R": None, "cost": absolute},
        "adversarial w needs Q and R",
    ),
    "simulator of another size": (
        {
            "algorithm": ww.mf_gpc(1, 2, signal="pd3"),
            "simulator": ww.linear.System(np.eye(3), np.ones((3, 1))),
        },
        "simulator must have d_x = 2 and d_u = 1; got 3 and 1",
    ),
    "simulator for other steps": (
        {
            "algorithm": ww.mf_gpc(1, 2, signal="pd3"),
            "simulator": ww.linear.System(np.stack([A] * 5), B),
        },
        "simulator must have as many steps",
    ),
    "cost that is no number": (
        {"Q": None, "R": None, "cost": lambda x, u: jnp.abs(x)}, "cost must",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_simulate(case):
    arguments, message = CASES[case]
    call = {"system": SYSTEM, "algorithm": ww.bandit_gpc(1, 2), "w": W,
            "K": K, "Q": Q, "R": R, **arguments}  # fmt: skip
    with pytest.raises(ValueError, match=message):
        ww.linear.simulate(call.pop("system"), call.pop("algorithm"), call.pop("w"), **call)


def test_a_time_varying_system_may_be_unstable_for_a_while():
    """Stability of a constant K is checked for constant systems only."""
    A = np.full((8, 1, 1), 0.5)
    A[3] = 2.0
    system = ww.linear.System(A, np.ones((1, 1)))
    run = ww.linear.simulate(
        system, ww.base_only(1, 1), np.ones((8, 1)), K=[[0.0]], Q=[[1.0]], R=[[1.0]]
    )
    x = [0.0]
    for a in A[:-1, 0, 0]:
        x.append(a * x[-1] + 1)
    np.testing.assert_allclose(run.x[:, 0], x, rtol=1e-6)
