"""Learning: the last part of a run costs less than the base alone, on seeds not used to tune."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import windward as ww

from .drive import step

HELD_OUT = list(range(100, 108))  # η and σ were chosen on seeds 0 to 15


def lower_bound(gains):
    """Of a two-sided 99% t interval for the mean gain over seeds."""
    gains = np.asarray(gains, float)
    return scipy.stats.t.interval(0.99, len(gains) - 1, gains.mean(), scipy.stats.sem(gains))[0]


@pytest.fixture(scope="module")
def scene():
    """A system with two states and one control, its LQR, and a sinusoid of period 20."""
    A, B = [[0.9, 0.4], [0.0, 0.8]], [[0.0], [1.0]]
    Q, R = np.eye(2), np.eye(1)
    T = 5000
    w = 0.5 * np.sin(2 * np.pi * np.arange(T) / 20)[:, None] * np.ones(2)
    K = ww.linear.lqr(A, B, Q, R).K

    def tail(algorithm):
        run = ww.linear.simulate(
            ww.linear.System(A, B), algorithm, w, K=K, Q=Q, R=R, seed=HELD_OUT, keep=()
        )
        return np.asarray(run.cost)[:, -1000:].mean(axis=1)

    return tail, tail(ww.base_only(1, 2))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            lambda: ww.mf_gpc(
                1, 2, h=5, eta=1e-4, sigma=0.3, signal="pd3", parametrisation=ww.mlp(16)
            ),
            id="mlp",
        ),
        pytest.param(lambda: ww.bandit_gpc(1, 2, h=5, eta=1e-4, delta=0.3), id="bandit_gpc"),
    ],
)
def test_beats_the_base_under_a_sinusoid(scene, make):
    tail, base = scene
    gains = base - tail(make())
    print("base", base.mean(), "gain", gains.mean(), "from", lower_bound(gains))
    assert lower_bound(gains) > 0.2 * base.mean()


def test_discrete_actions_learn_to_answer_the_disturbance():
    # The cost is 0 for the action that answers the sign of the last disturbance, else 1; without
    # M the base policy tosses a coin, whatever it does.
    algorithm = ww.dmf_gpc(2, 1, h=2, eta=0.05, signal="w")

    @jax.jit
    @jax.vmap
    def run(key):
        signs = jax.random.rademacher(jax.random.fold_in(key, 0), (1501,), dtype=float)
        units = jax.vmap(lambda k: algorithm.unit(k, 1))(jax.random.split(key, 1501))

        def advance(carry, now):
            state, plan, last = carry
            w, unit = now
            u = algorithm.apply(plan, jnp.zeros((1, 2)))
            c = jnp.where((u == 1) == (last > 0), 0.0, 1.0)
            tr = step(c, u=u, w=w[None, None], logits=jnp.zeros((1, 2)))
            state, plan, _ = algorithm.observe(state, tr, unit)
            return (state, plan, w), c[0]

        state, plan = algorithm.init(algorithm.hyper, units[0])
        _, costs = jax.lax.scan(advance, (state, plan, signs[0]), (signs[1:], units[1:]))
        return costs[-500:].mean()

    gains = 0.5 - run(jnp.stack([jax.random.key(seed) for seed in HELD_OUT]))
    print("gain", gains, "from", lower_bound(gains))
    assert lower_bound(gains) > 0.25
