"""Steps that the host plans while M stays: the same as if the core had seen each of them."""

import numpy as np
import pytest

import windward as ww
from windward.adapt.engine import MOST, Engine
from windward.adapt.table import Step

pytestmark = pytest.mark.usefixtures("x64")

D_U, D_W, STEPS = 2, 3, 60
TIGHT = {"rtol": 1e-9, "atol": 1e-9}
HELD = {
    "every third step": {"every_steps": 3},
    "every 7th step, decayed": {"every_steps": 7, "weight_decay": 0.1},
    "longer than the host plans": {"every_steps": MOST + 9},
    "every other episode": {"every_episodes": 2},
}


def pair(rows, shared, signal, settings):
    """The engine, and one whose every step is the core's."""
    M0 = 0.1 * np.random.default_rng(1).normal(size=(4, D_U, D_W))
    algorithm = ww.mf_gpc(
        D_U, D_W, h=4, eta=1e-2, sigma=0.3, signal=signal, M0=M0, gamma=0.9, **settings
    )
    assert algorithm.held is not None
    by_steps = algorithm._replace(held=None)
    return Engine(algorithm, rows, shared, seed=3), Engine(by_steps, rows, shared, seed=3)


def steps(rows, signal, ends=0.05, bad=0.05, n=STEPS):
    """Random steps; some end episodes, some are phantoms, some hold what is not finite."""
    rng = np.random.default_rng(7)
    names = ("w",) if signal == "w" else ("c_vec", "v_vec_next", "q_vec")
    for _ in range(n):
        c, aux = rng.normal(size=rows), {name: rng.normal(size=(rows, D_W)) for name in names}
        if rng.random() < bad:
            aux[names[-1]][rng.integers(rows), 0] = rng.choice([np.nan, np.inf, 1e200])
        if rng.random() < bad:
            c[rng.integers(rows)] = np.nan
        terminated, truncated = rng.random((2, rows)) < ends
        valid = rng.random(rows) > ends
        usable = np.full(rows, rng.random() > bad)
        usual = bool((valid & usable).all() and not (terminated | truncated).any())
        yield Step(c, aux, terminated, truncated, valid, usable, usual=usual)


def assert_equal_plans(held, plain):
    for name in ("added", "correction", "draw"):
        np.testing.assert_allclose(getattr(held, name), getattr(plain, name), **TIGHT)


def assert_equal_states(held, plain):
    import jax

    for one, other in zip(*map(jax.tree.leaves, (held.state, plain.state)), strict=True):
        np.testing.assert_allclose(one, other, **TIGHT)


@pytest.mark.parametrize(
    ("rows", "shared", "signal", "settings"),
    [
        (1, True, "pd2", HELD["every third step"]),
        (3, True, "w", HELD["every third step"]),
        (3, False, "w", HELD["every 7th step, decayed"]),
        (1, True, "w", HELD["longer than the host plans"]),
        (3, False, "pd2", HELD["every other episode"]),
        (3, True, "pd2", HELD["every other episode"]),
    ],
)
def test_plans_and_states(rows, shared, signal, settings):
    held, plain = pair(rows, shared, signal, settings)
    first, alone = plain.M.copy(), 0
    for t, step in enumerate(
        steps(rows, signal, n=2 * STEPS if "every_steps" in settings else 400)
    ):
        learn = not 30 <= t < 40  # frozen for a while
        seen, wanted = held.observe(step, learn), plain.observe(step, learn)
        np.testing.assert_allclose(seen.w_hat, wanted.w_hat, **TIGHT)
        assert list(seen.accepted) == list(wanted.accepted)
        assert_equal_plans(held, plain)
        alone += held._waits
        if t % 9 == 0:
            assert_equal_states(held, plain)
    assert_equal_states(held, plain)
    assert np.abs(plain.M - first).max() > 1e-3  # M has moved
    assert alone > STEPS // 6  # and the host has planned


def test_looking_changes_nothing():
    """M may be read at any time without changing a float of what follows."""
    (watched, _), (left_alone, _) = (pair(1, True, "w", {"every_steps": 8}) for _ in range(2))
    for step in steps(1, "w"):
        watched.observe(step)
        left_alone.observe(step)
        assert np.isfinite(watched.M).all()
        assert watched.added == left_alone.added
    np.testing.assert_array_equal(watched.M, left_alone.M)


def test_settling_in_the_middle():
    """A state that is taken over between two moves of M goes on as the one it was taken from."""
    held, plain = pair(2, True, "pd2", {"every_steps": 8})
    other, _ = pair(2, True, "pd2", {"every_steps": 8})
    for t, step in enumerate(steps(2, "pd2", ends=0, bad=0)):
        held.observe(step)
        plain.observe(step)
        if t % 5 == 0:
            held.settle()
            other.restore(held.state, held.t, held.seed)
            assert other.added == held.added
            held, other = other, held
        assert_equal_plans(held, plain)
    assert_equal_states(held, plain)


def test_what_the_host_cannot_plan_is_left_to_the_core():
    for settings in (
        {"every_steps": 1},
        {"every_steps": 4, "delay": 2},
        {"every_steps": 4, "baseline": "mean"},
        {"every_steps": 4, "Sigma": np.eye(D_U)},
        {"every_steps": 4, "parametrisation": ww.mlp(4)},
    ):
        assert ww.mf_gpc(D_U, D_W, signal="w", **settings).held is None
    assert ww.mf_gpc(D_U, D_U, signal="pd1", every_steps=4).held is None


def test_both_clocks_are_refused():
    with pytest.raises(ValueError, match="give one of them"):
        ww.mf_gpc(1, 2, every_steps=4, every_episodes=2)
    with pytest.raises(ValueError, match="every_steps"):
        ww.mf_gpc(1, 2, every_steps=0)
