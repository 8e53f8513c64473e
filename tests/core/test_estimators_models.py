"""Slopes from fitted models against the true ones, and the chain rule by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import windward as ww
from windward.core import credit, estimators, models, parametrisations
from windward.types import Local

from .drive import step
from .test_credit import linear_world, transition


def test_chain_rule_by_hand():
    # h = 2, two lags, d_u = d_w = 1: Σ_i λ_i ŵ_{t-i-j} for j = 1, 2.
    estimator = estimators.chain_rule(parametrisations.linear(2, 1, 1), 2, 2)
    local = Local(jnp.array([[1.0], [2.0], [5.0]]), (), jnp.zeros(1), jnp.zeros((), jnp.int32))
    lam = jnp.array([[10.0], [1.0]])
    gradient = estimator.gradient(jnp.zeros((2, 1, 1)), lam, local, step([0.0]), {})
    np.testing.assert_allclose(gradient[:, 0, 0], [10 * 1 + 1 * 2, 10 * 2 + 1 * 5])


def test_exponential_trace():
    assert estimators.exponential(0.5, 3) == (1.0, 0.5, 0.25)


def slopes(gradient, x, v, **settings):
    """λ of a fitted model, over its λ_1, at a state and past v of one's choice; no draws."""
    algorithm = ww.mf_gpc(1, 1, h=2, signal="w", gradient=gradient, **settings)
    state, _ = linear_world(algorithm)
    lags = models.lags_of(2)
    part = (
        models.response(2, 1, 1, 1, cost=settings.get("cost"))
        if gradient == "response"
        else models.quadratic_cost(2, 1, 1)
    )

    @jax.jit
    def at(v):
        records = {"v": v.reshape(1, lags, 1), "n": jnp.zeros((1, lags, 1))}
        aux = {"x": jnp.full((1, 1), x), "x_next": (0.5 * x + v[0]).reshape(1, 1)}
        tr = transition(x**2 + 0.5 * v[:1] ** 2, {name: aux[name] for name in part.needs})
        local = state.local._replace(records=records)
        look = credit.Look(tr, local, jnp.zeros((1, 1)), np.ones(1, bool))
        return part.update(state.learner.credit, look, state.learner.hyper)[1]

    return [np.asarray(at(np.float32(each)))[0, :, 0] for each in v]


def known_cost(x, v):
    return x[0] ** 2 + 0.5 * v[0] ** 2


def test_response_with_a_known_cost_gives_its_slopes():
    # As below, with the cost's own slopes: what is left of an error is that of the fitted motion.
    lags = models.lags_of(2)
    known, fitted = (
        slopes("response", 0.8, [np.full(lags, 0.4)], **given)[0]
        for given in ({"cost": known_cost}, {})
    )
    true = np.array([0.4, *(2 * 0.8 * 0.5 ** np.arange(lags - 1))])
    np.testing.assert_allclose(known[0] / known[1], true[0] / true[1], atol=0.005)
    np.testing.assert_allclose(known / known[1], true / true[1], atol=0.03)
    assert known[1] > 0
    assert not np.array_equal(known, fitted)


def test_a_cost_that_is_not_that_of_the_world_is_believed():
    def turned(x, v):
        return -known_cost(x, v)

    _, told = linear_world(ww.mf_gpc(1, 1, h=2, signal="w", gradient="response", cost=known_cost))
    assert told[-200:].mean() < 0.75 * told[:70].mean()
    # A cost that is concave has no curvature to divide by: nothing is learned from it.
    state, _ = linear_world(ww.mf_gpc(1, 1, h=2, signal="w", gradient="response", cost=turned))
    assert not np.any(state.learner.M)


def test_a_cost_is_for_the_response_alone():
    with pytest.raises(ValueError, match="cost= is for gradient 'response'"):
        ww.mf_gpc(1, 1, cost=known_cost)


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (3.0, "must be a function"),
        (lambda x, v: x, "to one real number"),
        (lambda x, v: 1, "must be a function|to one real number"),
        (lambda x, v: np.float64(x[0]) ** 2, "function of jax.numpy"),
    ],
)
def test_what_is_no_cost_is_refused_at_once(cost, message):
    with pytest.raises(ValueError, match=message):
        ww.mf_gpc(1, 1, gradient="response", cost=cost)


def test_response_gives_the_true_slopes():
    # x' = 0.5x + v + w, c = x² + v²/2: ∂c_t/∂v_t = v_t and ∂c_t/∂v_{t-i} = 2x_t 0.5^{i-1}.
    lags = models.lags_of(2)
    (lam,) = slopes("response", 0.8, [np.full(lags, 0.4)])
    true = np.array([0.4, *(2 * 0.8 * 0.5 ** np.arange(lags - 1))])
    np.testing.assert_allclose(lam / lam[1], true / true[1], atol=0.03)
    assert lam[1] > 0


def test_slopes_of_the_cost_grow_with_the_correction():
    # The cost is convex in v. A fit of all of it needs noise that goes on, as large as these v are.
    past = np.full(models.lags_of(2), 2.0)
    up, down = slopes("quadratic", 0.0, [past, -past], sigma=1.0, sigma_end=1.0)
    assert up.sum() > 0 > down.sum()
