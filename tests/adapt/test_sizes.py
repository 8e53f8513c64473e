"""A signal of the user's own is divided by its size: units are the user's, learning is the same."""

import numpy as np
import pytest

import windward as ww
from windward.adapt.sizes import Size, SizeSettings

from .worlds import Plant, drive, true_w, wind

FREE = {"h": 2, "sigma": 0.1, "seed": 3, "guard": False, "learner": "mf-gpc", "every_steps": 4}


def played(factor, steps=60, **options):
    """What an agent is told whose sensor counts in units of its own."""

    def sensor(x, u, reward, x_next):
        return factor * true_w(x, u, reward, x_next)

    plant = Plant(wind(200))
    env = ww.RobustWrapper(plant, sensor, **{**FREE, **options})
    x, _ = env.reset(seed=0)
    return env, drive(env, plant.base, steps, x)[0]


@pytest.mark.parametrize("factor", [2.0**-20, 2.0**10])
def test_units_do_not_matter(factor):
    env, told = played(1.0)
    other, again = played(factor)
    for one, two in zip(told, again, strict=True):
        np.testing.assert_array_equal(one["action"], two["action"])
        np.testing.assert_array_equal(factor * one["w_hat"], two["w_hat"])
    assert env.M.any()
    np.testing.assert_array_equal(env.M, factor * other.M)


@pytest.mark.parametrize(
    "options", [{"preset": "paper"}, {"eta": 0.01}, {"M0": np.full((2, 1, 2), 0.1)}]
)
def test_numbers_given_are_in_the_signals_own_units(options):
    if "preset" in options:
        options = {**options, "every_steps": None, "sigma": None, "guard": None}
    env, _ = played(64.0, **options)
    assert env._runtime.learner.size is None
    assert played(64.0)[0]._runtime.learner.size is not None


def test_an_M_that_was_set_stays_what_it_is():
    env, _ = played(64.0, steps=30, every_steps=1000)  # nothing is learned meanwhile
    M = np.full((2, 1, 2), 0.001)
    env.M = M
    np.testing.assert_array_equal(env.M, M.astype(np.float32))
    size, plant = env._runtime.learner.size.value, env.unwrapped
    plant.w = 1e3 * plant.w
    x, _ = env.reset(seed=0)
    told, _ = drive(env, plant.base, 3, x)
    assert env._runtime.learner.size.value == size
    expected = 0.001 * (told[1]["w_hat"].sum() + told[0]["w_hat"].sum())
    np.testing.assert_allclose(told[2]["correction"], [expected], rtol=1e-4)


def test_goes_on_from_a_file(tmp_path):
    env, _ = played(64.0, steps=30)
    env.save(tmp_path / "state")
    other, _ = played(64.0, steps=3)
    other.load(tmp_path / "state")
    np.testing.assert_array_equal(other.M, env.M)
    other.unwrapped.t = env.unwrapped.t
    told = [drive(each, each.unwrapped.base, 40, each.reset(seed=0)[0])[0] for each in (env, other)]
    for one, two in zip(*told, strict=True):
        np.testing.assert_array_equal(one["action"], two["action"])
    env.reset_adaptation()
    assert env._runtime.learner.size.value == 1.0
    apart, _ = played(64.0, eta=0.01)
    with pytest.raises(ValueError, match="sized"):
        apart.load(tmp_path / "state")


def test_the_size_follows_and_is_not_misled():
    size = Size(SizeSettings(span=50))
    for w in (np.zeros(2), np.full(2, np.inf), np.full(2, 1e200)):
        size.see(w)
        assert size.value == 1.0
    size.see(np.full(2, 0.3))
    assert size.value == 0.25
    for _ in range(30):
        size.see(np.full(2, 0.4))  # within the slack
    size.see(np.full(2, 1e25))  # a glitch
    assert size.value == 0.25
    for _ in range(200):
        size.see(np.full(2, 128.0))
    assert size.value >= 64.0
    for _ in range(600):
        size.see(np.full(2, 0.01))
    assert size.value < 1.0
    with pytest.raises(ValueError, match="'size' is"):
        size.remember([0.0, False, 1.0, 1])
