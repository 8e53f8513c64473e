"""The bandit algorithms with no step size given: safe on systems that nothing was tuned on."""

import numpy as np
import pytest

import windward as ww
from windward.studies.paper.systems import problem, wind

T, SEEDS = 3000, 4


@pytest.mark.parametrize("recipe", [ww.bandit_gpc, ww.bpc])
@pytest.mark.parametrize(("d_x", "d_u", "seed"), [(10, 5, 900), (10, 5, 902), (2, 1, 901)])
def test_they_never_lose_much_and_gain(recipe, d_x: int, d_u: int, seed: int) -> None:
    """Shares of what the best M in hindsight saves over LQR, of the last third, by seed."""
    case, w = problem(d_x, d_u, seed), wind("sine 40", T, d_x, seed)
    given = {"K": case.K, "Q": case.Q, "R": case.R}
    best = ww.linear.best_dac(case.system, w, **given).cost[-T // 3 :].mean()

    def cost(algorithm: ww.Algorithm) -> np.ndarray:
        run = ww.linear.simulate(case.system, algorithm, w, seed=range(SEEDS), **given)
        return np.asarray(run.cost)[:, -T // 3 :].mean(axis=1)

    base = cost(ww.base_only(d_u, d_x))
    gained = (base - cost(recipe(d_u, d_x))) / (base - best)
    assert gained.min() > -0.1
    assert gained.mean() > 0.05
