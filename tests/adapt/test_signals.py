"""ŵ on real environments: the injected disturbance (PD3), and formulas recomputed by hand."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest

import windward as ww

from .worlds import Plant, ScalarValues, VectorValues, true_w, wind

CLOSE = {"rtol": 2e-4, "atol": 2e-5}


def steps_of(env, act, n, seed=0):
    """(x, told, reward, x_next, terminated, truncated, info) of steps through resets."""
    x, _ = env.reset(seed=seed)
    for _ in range(n):
        x_next, reward, terminated, truncated, info = env.step(act(x))
        yield x, info["windward"], reward, x_next, terminated, truncated, info
        x = env.reset()[0] if terminated or truncated else x_next


@pytest.mark.parametrize(
    ("env_id", "channel", "part"),
    [
        ("Pendulum-v1", "qvel", slice(1, 2)),
        ("Pendulum-v1", "qpos", slice(0, 1)),
        ("Hopper-v5", "qvel", slice(6, 12)),
        ("Hopper-v5", "qpos", slice(0, 6)),
    ],
)
def test_pd3_is_the_injected_disturbance(env_id, channel, part):
    inner = ww.envs.Disturbed(gym.make(env_id), ww.envs.Uniform(0.02), channel=channel)
    env = ww.RobustWrapper(inner, "pd3")
    model = ww.policies.load(env_id)
    for _, told, *_, info in steps_of(env, lambda x: model.predict(x)[0], 15):
        w = np.zeros(len(told["w_hat"]))
        w[part] = info["disturbance"][channel]
        np.testing.assert_allclose(told["w_hat"], w, atol=1e-7)
        assert w.any()


def test_pd3_without_a_disturbance_is_zero():
    env = ww.RobustWrapper(gym.make("Hopper-v5"), "pd3")
    for _, told, *_ in steps_of(env, lambda x: np.zeros(3, np.float32), 10):
        assert not told["w_hat"].any()


def test_pd3_in_observation_coordinates():
    inner = ww.envs.Disturbed(gym.make("Pendulum-v1"), ww.envs.Uniform(0.1), channel="qvel")
    inner.reset(seed=0)
    signal = ww.PD3(ww.simulator(inner, noisy=False), coordinates="observation")
    env = ww.RobustWrapper(inner, signal)
    for _, told, *_, info in steps_of(env, lambda x: np.zeros(1, np.float32), 10):
        w = np.array([0.0, 0.0, info["disturbance"]["qvel"][0]])
        np.testing.assert_allclose(told["w_hat"], w, atol=1e-6)


@pytest.fixture(scope="module")
def cart():
    """A policy whose episodes can end, and an agent that lets them."""
    model = ww.policies.load("InvertedPendulum-v5")
    return model, lambda x: np.array([3.0 * np.sign(x[1]) * -1], np.float32)


def test_pd2_by_hand(cart):
    """c(x) + γV(x_next) - Q(x, u): no V after a termination, u as executed."""
    model, act = cart
    values = model.vector
    env = ww.RobustWrapper(
        gym.make("InvertedPendulum-v5"),
        "pd2",
        model=model,
        sigma=0.4,
        guard=False,
        learner="mf-gpc",
    )
    ends, clips = 0, 0
    for x, told, _, x_next, terminated, _, _ in steps_of(env, act, 60):
        ahead = 0.0 if terminated else values.V(x_next[None])[0]
        w_hat = (
            values.c(x[None])[0] + values.gamma * ahead - values.Q(x[None], told["action"][None])[0]
        )
        np.testing.assert_allclose(told["w_hat"], w_hat, **CLOSE)
        ends, clips = ends + terminated, clips + told["clipped"]
    assert ends
    assert clips  # so that the executed action was not the wanted one


def test_pd1_by_hand(cart):
    """(c + γV(x_next) - Q(x, u)) n/σ², of costs: all signs turned once."""
    model, act = cart
    critic, sigma = model.critic, 0.4
    env = ww.RobustWrapper(
        gym.make("InvertedPendulum-v5"),
        "pd1",
        model=model,
        sigma=sigma,
        learner="mf-gpc",
        guard=False,
    )
    ends, clips = 0, 0
    for x, told, reward, x_next, terminated, _, _ in steps_of(env, act, 60):
        ahead = 0.0 if terminated else critic.V(x_next[None])[0]
        error = -reward - critic.gamma * ahead + critic.Q(x[None], told["action"][None])[0]
        w_hat = error * told["noise"] / sigma**2
        np.testing.assert_allclose(told["w_hat"], w_hat, rtol=2e-3, atol=2e-3)
        ends, clips = ends + terminated, clips + told["clipped"]
    assert ends
    assert clips


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_values_are_bootstrapped_on_truncation_alone(ends):
    scalar, vector = ScalarValues(), VectorValues()
    for signal in (ww.PD1(scalar), ww.PD2(vector)):
        plant = Plant(wind(20), length=3, ends=ends)
        env = ww.RobustWrapper(plant, signal, sigma=0.1, learner="mf-gpc", guard=False)
        for x, told, reward, x_next, terminated, truncated, _ in steps_of(env, plant.base, 9):
            u, goes_on = told["action"], 1.0 - terminated
            if env.signal == "pd2":
                w_hat = x + vector.gamma * goes_on * vector.V(x_next) - vector.Q(x, u)
            else:
                td = -reward - scalar.gamma * goes_on * scalar.V(x_next) + scalar.Q(x, u)
                w_hat = td * told["noise"] / 0.01
            np.testing.assert_allclose(told["w_hat"], w_hat, rtol=1e-4, atol=1e-4)
            assert not (terminated and truncated)


def test_users_function():
    calls = []

    def own(x, u, reward, x_next):
        calls.append((x, u, reward, x_next))
        return [reward, *u, 7.0]

    env = ww.RobustWrapper(gym.make("Pendulum-v1"), own)
    assert env.signal == "own"
    assert env.M.shape == (5, 1, 3)
    for x, told, reward, x_next, *_ in steps_of(env, lambda x: np.ones(1, np.float32), 5):
        seen = calls[-1]
        np.testing.assert_array_equal(seen[0], x)
        np.testing.assert_array_equal(seen[1], told["action"])
        assert seen[2] == reward
        np.testing.assert_array_equal(seen[3], x_next)
        np.testing.assert_allclose(told["w_hat"], [reward, told["action"][0], 7.0], rtol=1e-6)


class Unknown(Plant):
    """An environment whose physics nobody knows."""


def test_auto_takes_the_strongest():
    base = ww.policies.load("Pendulum-v1")

    class Both(VectorValues):
        critic = ScalarValues()

    def signal(env, model=None):
        return ww.RobustWrapper(env, "auto", model=model).signal

    assert signal(gym.make("Pendulum-v1"), base) == "pd3"
    assert signal(gym.make("Pendulum-v1")) == "pd3"
    assert signal(Unknown(wind(9)), Both()) == "pd2"
    assert signal(Unknown(wind(9)), ScalarValues()) == "pd1"
    with pytest.raises(ValueError, match=r"(?s)pd3.*step=.*pd2.*fit_values.*pd1") as told:
        signal(Unknown(wind(9)))
    assert "Unknown" in str(told.value)


def test_what_is_missing_and_what_would_work():
    with pytest.raises(ValueError, match=r"pd2.*values.*model=.*pd3 would work"):
        ww.RobustWrapper(gym.make("Pendulum-v1"), "pd2")
    with pytest.raises(ValueError, match=r"pd1.*model=.*pd3 would work"):
        ww.RobustWrapper(gym.make("Pendulum-v1"), "pd1")
    with pytest.raises(ValueError, match=r"pd3.*step=.*pd1 would work"):
        ww.RobustWrapper(Unknown(wind(9)), "pd3", model=ScalarValues())
    with pytest.raises(ValueError, match=r"pd2.*vector values.*ScalarValues.*pd1 would work"):
        ww.RobustWrapper(Unknown(wind(9)), "pd2", model=ScalarValues())
    with pytest.raises(ValueError, match=r"signal.*'pd1', 'pd2', 'pd3', 'auto'"):
        ww.RobustWrapper(gym.make("Pendulum-v1"), "pd4")
    with pytest.raises(ValueError, match=r"signal.*function"):
        ww.RobustWrapper(gym.make("Pendulum-v1"), 3)
    with pytest.raises(ValueError, match=r"PD3.*simulator"):
        ww.PD3("Pendulum-v1")


def test_pd3_of_another_environment_is_refused():
    here, there = gym.make("Pendulum-v1"), gym.make("Pendulum-v1")
    with pytest.raises(ValueError, match="another environment"):
        ww.RobustWrapper(here, ww.PD3(ww.simulator(there)))
    own = ww.RobustWrapper(here, ww.PD3(ww.simulator(here)))
    assert own.signal == "pd3"


def test_functions_that_are_no_signal():
    def fails(x, u, reward, x_next):
        raise RuntimeError("no sensor")

    with pytest.raises(ValueError, match="no sensor"):
        ww.RobustWrapper(Plant(wind(9)), fails)
    with pytest.raises(ValueError, match="function"):
        ww.RobustWrapper(Plant(wind(9)), lambda x: x)
    # With d_w given, nothing is tried before the first step.
    env = ww.RobustWrapper(Plant(wind(9)), ww.adapt.Own(true_w, 2))
    assert env.M.shape == (5, 1, 2)


def test_pd1_needs_noise():
    with pytest.raises(ValueError, match="sigma"):
        ww.RobustWrapper(
            Plant(wind(9)), ww.PD1(ScalarValues()), sigma=0.0, learner="mf-gpc", guard=False
        )


def test_names_in_any_case():
    base = ww.policies.load("Pendulum-v1")
    for name in ("PD3", "Pd2", "pd1", "AUTO"):
        env = ww.RobustWrapper(gym.make("Pendulum-v1"), name, model=base)
        assert env.signal == ("pd3" if name == "AUTO" else name.lower())


@pytest.fixture(scope="module")
def fitted():
    env = gym.make("Pendulum-v1")
    return ww.fit_values(env, lambda x: [0.0], steps=60, updates=4, widths=(4,), seed=0)


@pytest.mark.parametrize("learner", ["auto", "mf-gpc", "advantage"])
@pytest.mark.parametrize("signal", ["auto", "pd1", "pd2"])
def test_fitted_values_are_a_model(fitted, learner, signal):
    env = ww.RobustWrapper(gym.make("Pendulum-v1"), signal, model=fitted, learner=learner)
    told = [each for _, each, *_ in steps_of(env, lambda x: np.zeros(1, np.float32), 5)]
    assert env.faults == {}
    assert env.signal == ("pd3" if signal == "auto" else signal)
    assert not any(each["fault"] for each in told)


class Columns(ScalarValues):
    """V has too many numbers."""

    def V(self, x):
        return np.zeros((len(x), 4))


class Silent(VectorValues):
    def Q(self, x, u):
        raise RuntimeError("no network")


def test_values_that_fail_from_the_first_step():
    with pytest.raises(ValueError, match=r"'pd1' cannot be computed.*zeros.*reshape"):
        ww.RobustWrapper(Plant(wind(9)), ww.PD1(Columns()))
    for make in (ww.RobustWrapper, partial(ww.robustify, lambda x: np.zeros(1))):
        with pytest.raises(ValueError, match=r"'pd2' cannot be computed.*no network"):
            make(Plant(wind(9)), ww.PD2(Silent()))
    with pytest.raises(ValueError, match=r"'advantage' cannot be had: V of model= fails.*reshape"):
        ww.RobustWrapper(Plant(wind(9)), true_w, model=Columns(), learner="advantage")
