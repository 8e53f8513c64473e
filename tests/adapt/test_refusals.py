"""Spaces, actions and options that are refused, before anything is executed."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import windward as ww

from .worlds import Plant, true_w, wind

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


class Shaped(gym.Env):
    """Any spaces; nothing of it is ever stepped."""

    def __init__(self, observations, actions):
        self.observation_space, self.action_space = observations, actions


def own(x, u, reward, x_next):
    return [0.0]


@pytest.mark.parametrize(
    ("actions", "match"),
    [
        (spaces.Dict({"a": BOX}), r"Dict.*ActionWrapper"),
        (spaces.Tuple([BOX]), r"Tuple.*ActionWrapper"),
        (spaces.MultiDiscrete([2, 3]), r"MultiDiscrete.*Discrete.*"),
        (spaces.MultiBinary(2), r"MultiBinary.*Discrete"),
        (spaces.Box(-np.inf, np.inf, (2,)), r"unbounded.*RescaleAction"),
        (
            spaces.Box(np.zeros(2), np.array([1.0, np.inf]), dtype=np.float64),
            r"unbounded.*RescaleAction",
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_action_spaces(actions, match):
    for make in (ww.RobustWrapper, lambda env, signal: ww.robustify(lambda x: None, env, signal)):
        with pytest.raises(ValueError, match=match):
            make(Shaped(BOX, actions), ww.adapt.Own(own, 1))


@pytest.mark.parametrize("kind", [spaces.Dict({"a": BOX}), spaces.Tuple([BOX])], ids=["dict", "tu"])
def test_observation_spaces(kind):
    with pytest.raises(ValueError, match=r"FlattenObservation"):
        ww.RobustWrapper(Shaped(kind, BOX), ww.adapt.Own(own, 1))
    with pytest.raises(ValueError, match=r"FlattenObservation"):
        ww.RobustWrapper(Shaped(kind, BOX), own)
    with pytest.raises(ValueError, match=r"FlattenObservation"):
        ww.robustify(lambda x: None, Shaped(kind, BOX), own)


@pytest.fixture
def stepped():
    """A wrapper, and how many steps its environment has made."""
    plant = Plant(wind(50))
    env = ww.RobustWrapper(plant, true_w, h=3)
    env.reset()
    env.step(np.zeros(1))
    return env, plant


@pytest.mark.parametrize(
    "action",
    [
        np.zeros(2), np.zeros((1, 1)), 0.0, [], None, "left", ["a"], [None], np.array([1j]),
        np.array(["0.5"]), [[0.0], [1.0, 2.0]], {"a": 1},
    ],
    ids=repr,
)  # fmt: skip
def test_actions_that_are_none(stepped, action):
    """A clear error, no step, no fault; and then it goes on."""
    env, plant = stepped
    with pytest.raises(ValueError, match="action"):
        env.step(action)
    assert plant.t == 1
    assert not env.faults
    *_, info = env.step(np.zeros(1))
    assert not info["windward"]["fault"]


@pytest.mark.parametrize("action", [np.zeros(1), [0], "left", None, 1j], ids=repr)
def test_discrete_actions_that_are_none(action):
    model = ww.policies.load("CartPole-v1")
    env = ww.RobustWrapper(gym.make("CartPole-v1"), "pd3", logits=model, h=3, learner="mf-gpc")
    env.reset(seed=0)
    state = np.array(env.unwrapped.state)
    with pytest.raises(ValueError, match="action"):
        env.step(action)
    np.testing.assert_array_equal(state, env.unwrapped.state)
    assert not env.faults


@pytest.mark.parametrize("action", [[0.1], (0.1,), np.array([0.1], np.float32)], ids=repr)
def test_actions_in_other_clothes(stepped, action):
    env, plant = stepped
    env.freeze()
    env.step(action)
    np.testing.assert_allclose(plant.executed[-1], [0.1], rtol=1e-6)


def test_options():
    plant = Plant(wind(9))
    with pytest.raises(ValueError, match="momentum"):
        ww.RobustWrapper(plant, true_w, momentum=0.9)
    for name, value in {"h": 0, "eta": -1.0, "sigma": -0.1, "M0": np.zeros((1, 1, 1))}.items():
        with pytest.raises(ValueError, match=name):
            ww.RobustWrapper(plant, true_w, **{name: value})
    with pytest.raises(ValueError, match="copys"):
        ww.RobustWrapper(gym.make("Pendulum-v1"), "pd3", simulator={"copys": 4})
    with pytest.raises(ValueError, match=r"gym\.make"):
        ww.RobustWrapper("Pendulum-v1", "pd3")


def test_a_failed_step_of_the_environment():
    """Its error comes through, and the wrapper can be reset and used."""

    class Failing(Plant):
        def step(self, action):
            if self.t == 3:
                self.t += 1
                raise RuntimeError("motor")
            return super().step(action)

    env = ww.RobustWrapper(Failing(wind(50)), true_w, h=3, eta=1e-2, learner="mf-gpc", guard=False)
    env.reset()
    for _ in range(3):
        env.step(np.zeros(1))
    with pytest.raises(RuntimeError, match="motor"):
        env.step(np.zeros(1))
    env.reset()
    for _ in range(5):
        *_, info = env.step(np.zeros(1))
    assert not env.faults
    assert info["windward"]["w_hat"].any()
