"""PD3 with a simulator that was learned."""

import copy
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import windward as ww

from .worlds import assert_same, drive

BASE = ww.policies.load("Pendulum-v1")
SINE = ww.envs.Sinusoid(0.35, 63)
SMALL = {"steps": 3_000, "updates": 2_500, "widths": (32, 32), "members": 2}


@pytest.fixture(scope="module")
def learned():
    return ww.fit_simulator("Pendulum-v1", BASE, **SMALL)


def world(disturbance=SINE, length=200):
    env = gym.make("Pendulum-v1", max_episode_steps=length)
    return env if disturbance is None else ww.envs.Disturbed(env, disturbance, channel="qvel")


def made(simulator, disturbance=SINE, **settings):
    options = {"learner": "mf-gpc", "guard": False, "every_steps": 8, **settings}
    return ww.RobustWrapper(world(disturbance), "pd3", simulator=simulator, **options)


def policy(x):
    return BASE.predict(x)[0]


def ran(env, steps, seed=0):
    x, _ = env.reset(seed=seed)
    return drive(env, policy, steps, x)


def test_w_hat_is_the_disturbance(learned):
    env = made(learned)
    assert env.signal == "pd3"
    x, _ = env.reset(seed=0)
    w_hat = []
    for _ in range(100):
        x, _, _, _, info = env.step(policy(x))
        w_hat.append(info["windward"]["w_hat"][2])
    w = 0.35 * np.sin(2 * np.pi * np.arange(100) / 63)
    assert np.corrcoef(w_hat, w)[0, 1] > 0.9


def test_same_seed_same_numbers(learned):
    one, two = made(learned, seed=1), made(learned, seed=1)
    told = ran(one, 60)[0]
    assert_same(told, ran(two, 60)[0])
    assert any(step["correction"].any() for step in told)
    np.testing.assert_array_equal(one.M, two.M)


def test_it_goes_on_from_a_file_and_from_a_copy(learned, tmp_path: Path):
    env, twin = made(learned), made(learned)
    ran(env, 45)
    env.save(tmp_path / "state.npz")
    twin.load(tmp_path / "state.npz")
    np.testing.assert_array_equal(env.M, twin.M)
    assert env.decisions == twin.decisions
    third = copy.deepcopy(env)
    np.testing.assert_array_equal(env.M, third.M)


def test_other_forms_take_it_too(learned):
    vector = gym.vector.SyncVectorEnv([world, world])
    robust = ww.RobustVectorWrapper(
        vector, signal="pd3", simulator=learned, learner="mf-gpc", guard=False
    )
    x, _ = robust.reset(seed=0)
    *_, info = robust.step(policy(x))
    assert np.shape(info["windward"]["w_hat"]) == (2, 3)
    mine = ww.robustify(policy, "Pendulum-v1", "pd3", simulator=learned)
    x, _ = world().reset(seed=0)
    mine.predict(x)
    mine.observe(0.0, x, False, False)
    assert mine.last.w_hat.shape == (1, 3)
    assert ww.RobustWrapper(world(), simulator=learned).signal == "pd3"


@pytest.mark.slow
def test_discrete_actions():
    base = ww.policies.load("CartPole-v1")
    sim = ww.fit_simulator("CartPole-v1", base, **SMALL)
    env = ww.envs.Disturbed(gym.make("CartPole-v1"), "sine:amp=8,period=80", "force:cart")
    robust = ww.RobustWrapper(
        env, "pd3", logits=base, simulator=sim, learner="mf-gpc", guard=False, eta=0.1
    )
    x, _ = robust.reset(seed=0)
    rng = np.random.default_rng(0)
    told = drive(
        robust, lambda x: int((base.logits(x[None])[0] + rng.gumbel(size=2)).argmax()), 150, x
    )[0]
    assert np.abs(told[0]["w_hat"]).max() < 0.2
    assert told[0]["w_hat"].shape == (4,)
    assert robust.M.any()
    assert not robust.faults


def test_what_does_not_fit_is_refused(learned):
    with pytest.raises(ValueError, match="say signal='pd3' and simulator=it"):
        ww.PD3(learned)
    with pytest.raises(ValueError, match="the simulator was learned for"):
        ww.RobustWrapper(gym.make("InvertedPendulum-v5"), "pd3", simulator=learned)
    with pytest.raises(ValueError, match=r"what windward\.fit_simulator gives; got 'mine'"):
        ww.RobustWrapper(world(), "pd3", simulator="mine")
