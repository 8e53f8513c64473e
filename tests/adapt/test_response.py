"""`learner="response"` on environments: the states that it sees, faults, files, refusals."""

import warnings

import gymnasium as gym
import jax
import numpy as np
import pytest

import windward as ww
from windward.adapt.beside import Observing
from windward.adapt.sources import Happened, Own

from .worlds import A, B, K, Plant, assert_same, drive, true_w, wind

SETTINGS = {"learner": "response", "guard": False, "h": 2, "seed": 3, "sigma": 0.1}


def models(env):
    """The state of the fitted models."""
    return env._runtime.learner.engine.state.learner.credit


def test_observations_of_both_ends_of_a_step_as_flat_rows():
    source = Observing(Own(lambda x, u, reward, x_next: [reward], 1))
    x, x_next = np.arange(8.0).reshape(2, 2, 2), np.arange(8, dtype=np.float32).reshape(2, 2, 2) + 9
    u, reward, no = np.zeros((2, 1)), np.array([5.0, 6.0]), np.zeros(2, bool)
    aux = source.after(Happened(x, u, reward, x_next, no, no))
    np.testing.assert_array_equal(aux["x"], [[0, 1, 2, 3], [4, 5, 6, 7]])
    np.testing.assert_array_equal(aux["x_next"], [[9, 10, 11, 12], [13, 14, 15, 16]])
    assert aux["x_next"].dtype == np.float64
    np.testing.assert_array_equal(aux["w"], [[5], [6]])


@pytest.mark.parametrize("length", [None, 5])
def test_the_closed_loop_is_learned_whatever_episodes_do(length):
    """x' = (A - BK)x + Bv + w: a step into the first state of the next episode would spoil it."""
    still = np.zeros((400, 2))
    plant = Plant(still, length=length, x0=np.array([0.3, -0.2]))
    env = ww.RobustWrapper(plant, true_w, **{**SETTINGS, "sigma": 0.3})
    x, _ = env.reset(seed=0)
    for _ in range(400):
        x, _, terminated, truncated, _ = env.step(plant.base(x))
        if terminated or truncated:
            x, _ = env.reset()
    state = models(env)
    rms = np.sqrt(np.asarray(state.sizes.square))[:3]
    found = np.asarray(state.dynamics.theta)[:, :3] / rms
    np.testing.assert_allclose(found, np.hstack([A - B @ K, B]), atol=0.02)


class Once(Plant):
    """One observation is not what it should be."""

    def __init__(self, value):
        super().__init__(wind(400))
        self.value = value

    def step(self, action):
        x, *rest = super().step(action)
        return (np.array([self.value, x[1]]) if self.t == 60 else x), *rest


@pytest.mark.parametrize("fit_every", [1, 4])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e25, 1e308])
def test_a_fault_does_not_poison_the_models(value, fit_every):
    env = ww.RobustWrapper(Once(value), true_w, **SETTINGS, fit_every=fit_every)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ww.Fault)
        env.reset(seed=0)
        before = None
        for t in range(400):
            env.step(np.full(1, 0.05 * np.sin(t)))  # what it does, whatever it sees
            if t == 100:
                before = env.M.copy()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(models(env)))
    assert (before != env.M).any()  # it goes on to learn


def test_a_bad_observation_changes_nothing_in_the_models():
    env = ww.RobustWrapper(Once(np.nan), true_w, **SETTINGS)
    env.reset(seed=0)
    for _ in range(59):
        env.step(np.zeros(1))
    before = models(env)
    with pytest.warns(ww.Fault, match="observation"):
        env.step(np.zeros(1))
    env.step(np.zeros(1))  # from a state that is not known
    np.testing.assert_array_equal(before.dynamics.P, models(env).dynamics.P)
    np.testing.assert_array_equal(before.sizes.square, models(env).sizes.square)
    env.step(np.zeros(1))
    assert (before.dynamics.P != models(env).dynamics.P).any()


@pytest.mark.parametrize("fit_every", [1, 4])
def test_goes_on_from_a_file(tmp_path, fit_every):
    def make():
        plant = Plant(wind(200), length=40)
        return plant, ww.RobustWrapper(plant, true_w, **SETTINGS, fit_every=fit_every)

    plant, env = make()
    drive(env, plant.base, 70, env.reset(seed=0)[0])
    env.save(tmp_path / "M.npz")
    other_plant, other = make()
    other.reset(seed=0)
    other.load(tmp_path / "M.npz")
    plant.t = other_plant.t  # both begin an episode in the same wind
    told, _ = drive(env, plant.base, 60, env.reset()[0])
    again, _ = drive(other, other_plant.base, 60, other.reset()[0])
    assert_same(told, again)
    np.testing.assert_array_equal(env.M, other.M)
    elsewhere = ww.RobustWrapper(Plant(wind(9)), true_w, **SETTINGS, fit_every=9)
    with pytest.raises(ValueError, match="saved with other settings"):
        elsewhere.load(tmp_path / "M.npz")


def test_rows_of_a_vector_environment_share_the_models():
    """Observations of ended episodes are their last ones, not those of the resets after them."""
    for mode in (gym.vector.AutoresetMode.SAME_STEP, gym.vector.AutoresetMode.NEXT_STEP):
        rows = gym.vector.SyncVectorEnv(
            [lambda: Plant(np.zeros((300, 2)), length=9)] * 2, autoreset_mode=mode
        )
        env = ww.RobustVectorWrapper(rows, true_w, **{**SETTINGS, "sigma": 0.3})
        env.reset(seed=0)
        for _ in range(150):
            env.step(np.zeros((2, 1)))
        state = models(env)
        rms = np.sqrt(np.asarray(state.sizes.square))[:2]
        found = np.asarray(state.dynamics.theta)[:, :2] / rms
        np.testing.assert_allclose(found, A, atol=0.02)


class Wide(gym.Env):
    """Many numbers to look at."""

    def __init__(self, shape):
        self.observation_space = gym.spaces.Box(-1, 1, shape)
        self.action_space = gym.spaces.Box(-1, 1, (1,))


def own(x, u, reward, x_next):
    return [reward]


def test_the_size_of_states_is_not_asked_for():
    with pytest.raises(ValueError, match="d_x is the size of what is observed"):
        ww.RobustWrapper(Plant(wind(9)), true_w, **SETTINGS, d_x=7)


def test_what_is_too_large_is_refused_by_name():
    with pytest.raises(ValueError, match=r"65 numbers are too many.*64.*ObservationWrapper"):
        ww.RobustWrapper(Wide((5, 13)), own, learner="response")
    assert ww.RobustWrapper(Wide((8, 8)), own, learner="response").learner == "response"


def test_discrete_actions_are_refused():
    model = ww.policies.load("CartPole-v1")
    with pytest.raises(ValueError, match="'response' is for continuous actions"):
        ww.RobustWrapper(gym.make("CartPole-v1"), "pd3", logits=model, learner="response")


def test_with_a_simulator_observations_stand_for_states():
    """Pendulum has two numbers of state, which PD3 is in, and shows three."""
    model = ww.policies.load("Pendulum-v1")
    env = ww.RobustWrapper(gym.make("Pendulum-v1"), "pd3", model=model, learner="response")
    x, _ = env.reset(seed=0)
    for _ in range(3):
        x, *_ = env.step(model.predict(x)[0])
    assert env._runtime.learner.engine.algorithm.d_x == 3
    assert env._runtime.learner.engine.algorithm.d_w == 2
    assert not env.faults


def waiting(env, steps=3):
    """The buffer of the cost's regression, and how many steps wait in it after some."""
    env.reset(seed=0)
    for _ in range(steps):
        env.step(np.zeros(env.action_space.shape))
    fit = models(env).fit
    return fit.features.shape, int(fit.seen)


def test_large_regressions_learn_at_every_few_steps():
    """In wrappers, unless somebody says otherwise."""
    hopper = {"signal": "pd3", "learner": "quadratic", "guard": False}
    assert waiting(ww.RobustWrapper(gym.make("Hopper-v5"), **hopper)) == ((9, 441), 3)
    env = ww.RobustWrapper(gym.make("Hopper-v5"), **hopper, fit_every=2)
    assert waiting(env) == ((2, 441), 1)
    pendulum = ww.RobustWrapper(gym.make("Pendulum-v1"), **hopper)
    assert models(pendulum).fit._fields == ("theta", "P")


@pytest.mark.parametrize("given", [0, 2.5, "often"])
def test_fit_every_is_checked(given):
    with pytest.raises(ValueError, match="fit_every, unless it is 'auto'"):
        ww.RobustWrapper(Plant(wind(9)), true_w, **SETTINGS, fit_every=given)
