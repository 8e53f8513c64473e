"""PD3 and replays with a simulator that was learned, and what becomes of one that is ill-fitted."""

import copy
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import windward as ww

from .worlds import assert_same, drive

BASE = ww.policies.load("Pendulum-v1")
SINE = ww.envs.Sinusoid(0.35, 63)
QUICK = ww.adapt.Search(
    every=10, horizon=40, starts=6, judges=6, at_most=20, margin=0.0, spread=0.0
)
SMALL = {"steps": 3_000, "updates": 2_500, "widths": (32, 32), "members": 2}


@pytest.fixture(scope="module")
def learned():
    return ww.fit_simulator("Pendulum-v1", BASE, **SMALL)


@pytest.fixture(scope="module")
def ill():
    with pytest.warns(UserWarning, match=r"ill-fitted: .* misses \d+ % of the motion"):
        return ww.fit_simulator("Pendulum-v1", data=noise(), steps=200, updates=250, widths=(4,))


def noise(n=200):
    """Steps that follow from nothing."""
    rng = np.random.default_rng(0)
    x, x_next = rng.standard_normal((2, n, 3))
    return x, rng.uniform(-2, 2, (n, 1)), rng.standard_normal(n), x_next, np.zeros(n, dtype=bool)


def world(disturbance=SINE, length=200):
    env = gym.make("Pendulum-v1", max_episode_steps=length)
    return env if disturbance is None else ww.envs.Disturbed(env, disturbance, channel="qvel")


def made(simulator, disturbance=SINE, **settings):
    options = {"signal": "pd3", "model": BASE, "simulator": simulator, "search": QUICK}
    return ww.RobustWrapper(world(disturbance), **{**options, **settings})


def policy(x):
    return BASE.predict(x)[0]


def ran(env, steps, seed=0):
    x, _ = env.reset(seed=seed)
    return drive(env, policy, steps, x)


def test_w_hat_is_the_disturbance(learned):
    env = made(learned)
    assert (env.signal, env.learner) == ("pd3", "replay")
    x, _ = env.reset(seed=0)
    w_hat = []
    for _ in range(100):
        x, _, _, _, info = env.step(policy(x))
        w_hat.append(info["windward"]["w_hat"][2])
    w = 0.35 * np.sin(2 * np.pi * np.arange(100) / 63)
    assert np.corrcoef(w_hat, w)[0, 1] > 0.9


def test_m_is_learned_where_the_push_is_alone(learned):
    env = made(learned)
    ran(env, 100)
    assert env.M[..., 2].any()
    assert not env.M[..., :2].any()  # cosine and sine: the simulator's own error


def test_its_own_error_is_no_disturbance(learned):
    env = made(learned, None, search=None)
    told = ran(env, 150)[0]
    assert all(each["w_hat"].any() and not each["correction"].any() for each in told)
    assert not env.M.any()
    assert not env.decisions


def test_when_nothing_pushes_any_more_M_goes(learned):
    """What is left of ŵ is the simulator's own error, and M would only amplify it."""
    env = made(learned)
    ran(env, 100)
    teacher = env._module.teacher
    assert env.M.any()
    teacher.record.squares = 1e-6 * teacher.record.squares  # as after a long calm
    assert teacher.update()
    assert not teacher.M.any()
    assert env.decisions[-1].endswith("stepped back to the base policy: nothing pushes any more")
    assert not teacher.update()


def test_an_ill_fitted_one_is_told_and_not_replayed(ill):
    assert ill.fit.ill
    env = made(ill, search=None)
    assert env.learner == "replay"
    missed = round(100 * ill.fit.missed)
    told = [f"no replays: the learned simulator misses {missed} % of the motion"]
    assert env.decisions == told
    ran(env, 120)
    assert not env.M.any()
    assert env.decisions == told
    env.reset_adaptation()
    assert env.decisions == told


def test_the_worse_it_is_the_more_it_must_promise(learned):
    margin = made(learned, search=None)._module.teacher.search.margin
    assert margin == max(0.01, learned.fit.missed)
    assert made(learned)._module.teacher.search == QUICK


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
    robust = ww.RobustWrapper(env, "pd3", logits=base, simulator=sim, search=QUICK)
    assert robust.learner == "replay"
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


@pytest.mark.slow
def test_a_sine_is_learned():
    sim = ww.fit_simulator("Pendulum-v1", BASE, seed=1)
    env = made(sim, search=None)
    totals = {}
    for name, each in (("base", world()), ("adapted", env)):
        sums = []
        for episode in range(12):
            x, _ = each.reset(seed=episode)
            over, total = False, 0.0
            while not over:
                x, reward, terminated, truncated, _ = each.step(policy(x))
                total, over = total + float(reward), terminated or truncated
            sums.append(total)
        totals[name] = np.mean(sums[4:])
    assert totals["adapted"] > 0.7 * totals["base"]  # both are negative
