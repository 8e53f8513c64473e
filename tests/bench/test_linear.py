"""The benchmark compares like with like."""

import jax
import numpy as np

import windward as ww
from windward.bench.linear import BenchLinear, numpy_bandit_gpc, run
from windward.linear import disturbances
from windward.studies.paper.systems import double_integrator


def test_the_numpy_loop_is_the_same_algorithm() -> None:
    problem, T = double_integrator(), 60
    w = disturbances.gaussian(T, 2, scale=0.5, seed=3)
    with jax.enable_x64(True):
        algorithm = ww.bandit_gpc(1, 2, h=3, eta=1e-3, delta=0.3, projection=ww.frobenius_ball(0.5))
        ours = ww.linear.simulate(problem.system, algorithm, w, seed=7, **problem.settings)
        key = jax.random.key(7)
        unit = [algorithm.unit(jax.random.fold_in(key, t), 1)[0] for t in range(T)]
    peer = numpy_bandit_gpc(
        problem.system.A, problem.system.B, problem.K, problem.Q, problem.R, w,
        np.array(unit), 3, 1e-3, 0.3, 0.5,
    )  # fmt: skip
    np.testing.assert_allclose(ours.cost, peer, rtol=1e-9)


def test_the_report_says_what_was_timed() -> None:
    report = run(BenchLinear(seeds=2, T=50, numpy_steps=20, repeats=1))
    assert report["ratio"] == report["ours"] / report["peer"]
    assert report["time_for_ten_times_the_steps"] > 0
    assert {"what", "ours", "peer", "ratio", "versions"} <= set(report)
