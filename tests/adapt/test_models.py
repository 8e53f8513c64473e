"""Models of any make under robustify: with a memory, without options, discrete, by id."""

import gymnasium as gym
import numpy as np
import pytest

import windward as ww

from .worlds import K, Plant, ScalarValues, true_w, wind

SETTINGS = {
    "h": 3, "every_steps": 2, "eta": 1e-2, "sigma": 0.1, "learner": "mf-gpc", "guard": False,
}  # fmt: skip


class Recurrent:
    """A policy with a memory that notes what it is called with."""

    def __init__(self):
        self.calls = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.calls.append((state, episode_start, deterministic))
        return -K @ observation, 1 if state is None else state + 1


def test_recurrent_state_is_passed_through():
    plant, model = Plant(wind(50)), Recurrent()
    policy = ww.robustify(model, plant, true_w, **SETTINGS)
    model.calls.clear()  # it was tried once
    x, _ = plant.reset()
    start = np.array([True])
    _, state = policy.predict(x, None, start, True)
    assert state == 1
    _, state = policy.predict(x, state, np.array([False]), deterministic=True)
    assert state == 2
    assert model.calls[0][0] is None
    assert model.calls[0][1] is start
    assert model.calls[0][2] is True
    assert model.calls[1][0] == 1


def test_models_that_take_an_observation_alone():
    class Plain:
        def predict(self, observation):
            return -K @ observation, None

    plant = Plant(wind(50))
    policy = ww.robustify(Plain(), plant, true_w, **SETTINGS)
    x, _ = plant.reset()
    for _ in range(5):
        action, _ = policy.predict(x)
        x, reward, terminated, truncated, _ = plant.step(action)
        policy.observe(reward, x, terminated, truncated)
    assert policy.M.any()
    with pytest.raises(ValueError, match="predict"):
        ww.robustify(3, plant, true_w)


class Wide:
    """Gives two numbers where one is asked for."""

    def predict(self, observation, deterministic=False):
        return np.zeros(2), None


class Fails:
    def predict(self, observation):
        raise RuntimeError("no weights")


def in_the_wrapper(model, env, **options):
    return ww.RobustWrapper(env, model=model, **options)


@pytest.mark.parametrize("form", [in_the_wrapper, ww.robustify])
@pytest.mark.parametrize(
    ("model", "says"),
    [
        (lambda x: np.zeros(2), r"actions of shape \(1,\); got \(2,\)"),
        (Wide(), r"actions of shape \(1,\); got \(2,\)"),
        (Fails(), "fails at an observation of zeros.*no weights"),
        (ww.policies.load("Hopper-v5"), "of another environment"),
        ("model.zip", "not the path 'model.zip': load it first"),
    ],
    ids=["function", "predict", "fails", "of Hopper", "path"],
)
def test_models_that_do_not_fit(form, model, says):
    with pytest.raises(ValueError, match=says):
        form(model, gym.make("Pendulum-v1"), signal=lambda x, u, reward, x_next: x_next - x)


def test_a_model_is_tried_inside_the_space_and_values_are_not():
    seen = []

    def model(x):
        seen.append(x)
        return np.zeros(1)

    env = Plant(wind(9))
    env.observation_space = gym.spaces.Box(2.0, 3.0, (2,), np.float64)
    in_the_wrapper(model, env, signal=true_w)
    np.testing.assert_array_equal(seen, [[2.0, 2.0]])
    in_the_wrapper(ScalarValues(), Plant(wind(9)), signal=true_w)


class RowsAlone:
    """Made for rows of observations."""

    def predict(self, observation):
        assert observation.ndim == 2
        return -observation @ K.T, None


def test_models_for_rows_alone():
    policy = ww.robustify(RowsAlone(), Plant(wind(9)), true_w, num_envs=2, **SETTINGS)
    assert policy.predict(np.zeros((2, 2)))[0].shape == (2, 1)


def test_by_id_and_discrete():
    """Logits are the model's own where it has some."""
    model = ww.policies.load("CartPole-v1")
    policy = ww.robustify(model, "CartPole-v1", "pd3", h=2, eta=1e-3, learner="mf-gpc", guard=False)
    env = gym.make("CartPole-v1")
    x, _ = env.reset(seed=0)
    for _ in range(30):
        action, _ = policy.predict(x)
        assert env.action_space.contains(np.int64(action))
        x, reward, terminated, truncated, _ = env.step(int(action))
        policy.observe(reward, x, terminated, truncated)
    assert not policy.faults


def test_hidden_states_are_refused():
    """An observation that is cut, or of tips and targets: PD3 from observations says so at once."""
    hopper = gym.make("Hopper-v5")
    shown = gym.spaces.Box(-np.inf, np.inf, (9,))
    cut = gym.wrappers.TransformObservation(hopper, lambda x: x[:9], shown)
    for env, d_u in ((cut, 3), (gym.make("Reacher-v5"), 2)):
        with pytest.raises(ValueError, match=r"pd3.*live=True"):
            ww.robustify(lambda x, d_u=d_u: np.zeros(d_u), env, "pd3")


def test_a_position_on_which_no_motion_depends_may_be_hidden():
    """Hopper's observation leaves out how far it is: ŵ is 0 there, and tells the push elsewhere."""
    model, env = ww.policies.load("Hopper-v5"), gym.make("Hopper-v5")
    policy = ww.robustify(model, env, "pd3", learner="mf-gpc", eta=0.0, sigma=0.0)
    world = ww.envs.Disturbed(gym.make("Hopper-v5"), "bias:value=0.01", channel="qvel")
    x, _ = world.reset(seed=0)
    for _ in range(20):
        action, _ = policy.predict(x, deterministic=True)
        x, reward, terminated, truncated, _ = world.step(action)
        w_hat = policy.observe(reward, x, terminated, truncated).w_hat[0]
        np.testing.assert_allclose(w_hat[6:], 0.01, atol=1e-9)
        np.testing.assert_allclose(w_hat[:6], 0.0, atol=1e-9)
    assert not policy.faults
