"""Copies of a wrapper: by pickle, by deepcopy and from its spec."""

import copy
import pickle
import warnings

import gymnasium as gym
import numpy as np
import optax
import pytest

import windward as ww

from .worlds import Plant, assert_same, drive, true_w, wind

BASE = ww.policies.load("Pendulum-v1")
ADAM = optax.scale_by_adam()
SETTINGS = {
    "learner": "mf-gpc", "guard": False, "h": 3, "every_steps": 2, "eta": 1e-3, "sigma": 0.1,
}  # fmt: skip


def made(**settings):
    inner = gym.make("Pendulum-v1", max_episode_steps=17)
    inner = ww.envs.Disturbed(inner, ww.envs.Uniform(0.1), channel="qvel")
    return ww.RobustWrapper(inner, "pd3", seed=3, **{**SETTINGS, **settings})


def policy(x):
    return BASE.predict(x)[0]


def pickled(env):
    return pickle.loads(pickle.dumps(env))


@pytest.mark.parametrize("copy_of", [pickled, copy.deepcopy], ids=["pickle", "deepcopy"])
def test_copies_go_on_with_the_same_numbers(copy_of):
    plant = Plant(wind(200), length=9)
    env = ww.RobustWrapper(plant, true_w, seed=2, **SETTINGS)
    x, _ = env.reset()
    _, x = drive(env, plant.base, 23, x)
    other = copy_of(env)
    assert other.env is not env.env
    assert_same(drive(env, plant.base, 30, x)[0], drive(other, plant.base, 30, x)[0])
    np.testing.assert_array_equal(env.M, other.M)
    assert other._saved_kwargs.keys() == env._saved_kwargs.keys()


@pytest.mark.parametrize("copy_of", [pickled, copy.deepcopy], ids=["pickle", "deepcopy"])
@pytest.mark.parametrize("noisy", [False, True], ids=["plain", "noisy"])
@pytest.mark.parametrize("by_name", [True, False], ids=["name", "object"])
def test_copies_of_pd3(copy_of, by_name, noisy):
    """Disturbed environments come back without their state, so from a reset on."""
    env = made(simulator={"noisy": noisy, "copies": 4})
    if not by_name:
        signal = ww.PD3(ww.simulator(env.env, noisy=noisy))
        env = ww.RobustWrapper(env.env, signal, seed=3, **SETTINGS)
    x, _ = env.reset(seed=0)
    drive(env, policy, 20, x)
    other = copy_of(env)
    x, _ = env.reset(seed=1)
    told, _ = drive(env, policy, 20, x)
    x, _ = other.reset(seed=1)
    assert_same(drive(other, policy, 20, x)[0], told)


def test_deepcopy_with_an_optimiser():
    env = made(scale_by=ADAM)
    x, _ = env.reset(seed=0)
    drive(env, policy, 20, x)
    other = copy.deepcopy(env)
    x, _ = env.reset(seed=1)
    told, _ = drive(env, policy, 20, x)
    x, _ = other.reset(seed=1)
    assert_same(drive(other, policy, 20, x)[0], told)


def test_made_from_its_spec():
    env = made(M0=np.full((3, 1, 2), 0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = gym.make(env.spec)
    assert isinstance(again, ww.RobustWrapper)
    assert again.signal == "pd3"
    told = []
    for each in (env, again):
        x, _ = each.reset(seed=0)
        told.append(drive(each, policy, 30, x)[0])
    assert_same(*told)
