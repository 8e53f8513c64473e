"""Residual-policy learning: what it remembers, that it learns, and bad input."""

import gymnasium as gym
import numpy as np
import pytest

from windward.agents import ResidualPolicy
from windward.agents.residual_learning import Moments

from ..adapt.slots import BAD, Broken, assert_alone, broken_signal, faulty
from ..adapt.test_hostile import BOX, Garbage, One, inside, own
from ..adapt.worlds import Plant, ScalarValues, assert_same, drive, true_w, wind

SMALL = {"widths": (16,), "batch_size": 16, "burn_in": 20, "n_step": 1}
NUMBERS = [np.nan, np.inf, -np.inf]


def law_of(env):
    """What learns."""
    return env._runtime.learner.laws[0]


class Target(gym.Env):
    """Pays -(u - 0.5·x)², x drawn anew at each step; the base action of 0 could be better."""

    def __init__(self):
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float64)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1, 1, 1)
        return self.x, {}

    def step(self, action):
        reward = -float((action[0] - 0.5 * self.x[0]) ** 2)
        self.x = self.np_random.uniform(-1, 1, 1)
        return self.x, reward, False, False, {}


def test_it_learns_what_the_base_policy_misses():
    env = ResidualPolicy(
        Target(), scale=0.8, sigma=0.4, gamma=0.01, n_step=1, burn_in=200, widths=(32,),
        batch_size=64, target_period=20, learning_rate=3e-3, seed=0,
    )  # fmt: skip
    env.reset(seed=0)
    base, first = np.zeros(1), []
    for _ in range(1200):
        first.append(env.step(base)[1])
    env.freeze()
    paid = [env.step(base)[1] for _ in range(200)]
    assert np.mean(first[:100]) < -0.05  # 0.25/3, and noise
    assert np.mean(paid) > -0.02


def test_it_begins_near_the_base_policy_and_the_critic_learns_alone():
    env = ResidualPolicy(Plant(wind(50)), scale=0.5, **SMALL)
    x, _ = env.reset(seed=0)
    told, x = drive(env, env.unwrapped.base, 15, x)
    assert max(np.abs(each["correction"]).max() for each in told) < 0.05
    before = {name: each.copy() for name, each in law_of(env)._policy.items()}
    critic = np.asarray(law_of(env)._learner.critic["w0"]).copy()
    told, x = drive(env, env.unwrapped.base, 3, x)
    assert (np.asarray(law_of(env)._learner.critic["w0"]) != critic).any()
    assert all((law_of(env)._policy[name] == before[name]).all() for name in before)
    drive(env, env.unwrapped.base, 10, x)
    assert any((law_of(env)._policy[name] != before[name]).any() for name in before)


def test_corrections_stay_inside_the_scale():
    env = ResidualPolicy(Plant(wind(200)), scale=0.1, sigma=5.0, **SMALL)
    x, _ = env.reset(seed=0)
    told, _ = drive(env, env.unwrapped.base, 60, x)
    added = [each["correction"] + each["noise"] for each in told]
    assert np.abs(added).max() == pytest.approx(0.1)


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_what_it_remembers(ends):
    """z = (x, base action, two ŵ); rewards and ends are those of the step."""
    env = ResidualPolicy(Plant(wind(9), length=4, ends=ends), true_w, h=2, scale=0.5, **SMALL)
    x, _ = env.reset(seed=0)
    seen, told = [], []
    for _ in range(4):
        base = env.unwrapped.base(x)
        seen.append((x, base))
        x, reward, *_, info = env.step(base)
        told.append({**info["windward"], "reward": reward})
    replay = law_of(env)._replay
    kept = 4 if ends == "terminated" else 3  # where a truncated episode goes on is not known
    assert len(replay) == kept
    nothing = np.zeros(2)
    for t in range(kept):
        w = [told[t - i]["w_hat"] if t >= i else nothing for i in (1, 2)]
        np.testing.assert_allclose(replay.x[t], np.concatenate([*seen[t], *w]), rtol=1e-5)
        done = (told[t]["correction"] + told[t]["noise"]) / 0.5
        np.testing.assert_allclose(replay.u[t], done, rtol=1e-5)
        assert replay.reward[t] == pytest.approx(told[t]["reward"], rel=1e-5)
        assert replay.discount[t] == pytest.approx(0.0 if t == 3 else 0.99)
        if t < 3:
            np.testing.assert_allclose(replay.x_next[t][:3], np.concatenate(seen[t + 1]), rtol=1e-5)


def test_a_step_that_was_lost_breaks_the_chain():
    """With three steps in a transition none spans the fault."""
    env = ResidualPolicy(Broken("reward", np.nan), scale=0.5, **{**SMALL, "n_step": 3})
    told = faulty(env, "reward")
    rewards = [-c for c in env.unwrapped.costs]
    sums = [rewards[t] + 0.99 * rewards[t + 1] + 0.99**2 * rewards[t + 2] for t in range(10)]
    replay = law_of(env)._replay
    starts = [0, 1, 2, 7, 8]  # steps 5 and 6 taught nothing, and the last waits for what follows
    assert [each["fault"] for each in told] == [t in (5, 6) for t in range(12)]
    np.testing.assert_allclose(replay.reward[: len(replay)], [sums[t] for t in starts], rtol=1e-5)


def test_moments_are_those_of_numpy():
    z = np.random.default_rng(0).normal(3.0, [1.0, 5.0, 0.0], (50, 3))
    moments = Moments(3)
    for row in z:
        moments.add(row, 2.0)
    expected = (z - z.mean(0)) / np.where(z.std(0) > 0, z.std(0), np.inf)
    np.testing.assert_allclose(moments.scaled(z), expected, atol=1e-5)
    assert moments.reward_size == pytest.approx(2.0)
    assert np.abs(moments.scaled(np.full((1, 3), 1e9))).max() == 10.0


def test_the_same_seed_gives_the_same_floats():
    def played(seed, again=False):
        env = ResidualPolicy(Plant(wind(80), length=30), true_w, scale=0.5, seed=seed, **SMALL)
        x, _ = env.reset(seed=0)
        told, _ = drive(env, env.unwrapped.base, 60, x)
        if not again:
            return told
        env.reset_adaptation()
        env.unwrapped.t = 0
        x, _ = env.reset(seed=0)
        return drive(env, env.unwrapped.base, 60, x)[0]

    assert_same(played(1), played(1))
    assert_same(played(1), played(1, again=True))
    assert any((a["noise"] != b["noise"]).any() for a, b in zip(played(1), played(2), strict=True))


def test_frozen_it_acts_without_noise_and_learns_nothing():
    env = ResidualPolicy(Plant(wind(80)), scale=0.5, **SMALL)
    x, _ = env.reset(seed=0)
    _, x = drive(env, env.unwrapped.base, 40, x)
    env.freeze()
    before, kept = law_of(env)._policy, len(law_of(env)._replay)
    told, _ = drive(env, env.unwrapped.base, 20, x)
    assert law_of(env)._policy is before
    assert len(law_of(env)._replay) <= kept + 1  # the step before it was frozen
    assert not any(each["noise"].any() for each in told)
    assert told[-1]["correction"].any()


@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize("what", ["observation", "reward"])
def test_bad_observations_and_rewards(what, value):
    told = faulty(ResidualPolicy(Broken(what, value), true_w, **SMALL), what)
    assert_alone(told, BAD + 1)


@pytest.mark.parametrize("raises", [True, False])
def test_a_bad_signal(raises):
    told = faulty(ResidualPolicy(Broken(), broken_signal(raises), **SMALL), "signal")
    assert_alone(told, BAD + 1)


def test_a_bad_action():
    told = faulty(ResidualPolicy(Broken(), **SMALL), "action", bad_action=np.nan)
    assert_alone(told, BAD, base=0.0)


@pytest.mark.filterwarnings("ignore::windward.Fault", "ignore::RuntimeWarning")
def test_a_thousand_hostile_steps():
    garbage = Garbage(0)
    env = ResidualPolicy(One(garbage, BOX), own(garbage), h=2, **SMALL)
    env.reset()
    for t in range(1000):
        _, _, terminated, truncated, info = env.step(garbage(2))
        told = info["windward"]
        assert inside(BOX, told["action"])
        assert all(np.isfinite(told[name]).all() for name in ("correction", "noise", "w_hat"))
        if terminated or truncated or t % 211 == 0:
            env.reset()
    assert env.faults["signal"] > 10
    assert all(np.isfinite(each).all() for each in law_of(env)._policy.values())
    garbage.evil = 0.0
    before = law_of(env)._policy
    env.reset()
    for _ in range(20):
        env.step([0.0, 4.0])
    assert law_of(env)._policy is not before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"signal": "pd1", "model": ScalarValues()}, "gradient in the action"),
        ({"scales": 0.1}, "scales= means nothing to learner 'residual', which takes scale, sigma"),
        ({"scale": 0.0}, "scale must be greater than 0"),
        ({"gamma": 1.5}, "gamma must lie in"),
        ({"h": 0}, "h must be an integer"),
    ],
)
def test_what_cannot_work_is_refused(options, says):
    with pytest.raises(ValueError, match=says):
        ResidualPolicy(Plant(wind(5)), **options)
