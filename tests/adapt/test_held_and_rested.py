"""Corners of steps that the host plans, and of episodes that trials leave to the base policy."""

import copy
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import windward as ww


class Counting(gym.Env):
    """Observes (episode, step); a step costs its number, step 7 also `huge`."""

    observation_space = gym.spaces.Box(-1e9, 1e9, (2,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float64)

    def __init__(self, length=5, huge=0.0):
        self.length, self.huge, self.episode, self.t = length, huge, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.episode = 0, self.episode + 1
        return self._seen(), {}

    def _seen(self):
        return np.array([self.episode, self.t], float)

    def step(self, action):
        self.t += 1
        reward = -float(self.t) + (self.huge if self.t == 7 else 0.0)
        return self._seen(), reward, False, self.t >= self.length, {}


def waves(x, u, reward, x_next):
    return np.array([np.sin(x_next[1]), np.cos(x_next[1])])


def episode_and_step(x, u, reward, x_next):
    return x_next


M0 = 0.1 * np.ones((3, 1, 2))
SETTINGS = {"learner": "mf-gpc", "h": 3, "seed": 0, "sigma": 0.1, "M0": M0}
STILL = np.zeros(1)


def rest(env, rests):
    """Whether episodes are the base policy's, this one and the next."""
    trials = env._runtime.learner.trials
    trials.resting, trials.turn[:] = rests, not rests


def over(env):
    """Plays an episode to its end; what was told of its last step."""
    ended = False
    while not ended:
        *_, ended, info = env.step(STILL)
    return info["windward"]


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_after_a_rested_episode_the_new_one_is_seen(mode):
    made = SyncVectorEnv([lambda: Counting(2)], autoreset_mode=mode)
    env = ww.RobustVectorWrapper(made, waves, **SETTINGS)
    x, _ = env.reset(seed=0)
    rested = 0
    for _ in range(40):
        x, *_, info = env.step(np.zeros((1, 1)))
        rested += bool(info["windward"]["resting"][0])
        np.testing.assert_array_equal(env._runtime.x, x)
    assert rested > 2
    assert not env.faults


def test_what_is_told_is_the_users_own():
    def corrections(meddle):
        env = ww.RobustWrapper(Counting(1000), episode_and_step, **SETTINGS)
        env.reset(seed=0)
        told = []
        for _ in range(10):
            *_, info = env.step(STILL)
            told.append(info["windward"]["correction"].copy())
            if meddle:
                for name in ("w_hat", "correction", "noise"):
                    info["windward"][name][:] = 9.0
        return told

    np.testing.assert_array_equal(corrections(True), corrections(False))


def test_freezing_in_a_rested_episode_leaves_no_window():
    env = ww.RobustWrapper(Counting(6), episode_and_step, **SETTINGS)
    env.reset(seed=0)
    rest(env, True)
    env.step(STILL)
    env.freeze()
    assert env.step(STILL)[4]["windward"]["w_hat"].any()
    env.unfreeze()
    over(env)
    rest(env, False)
    env.reset()
    assert not env._runtime.learner.engine.state.local.w_hist.any()
    assert not env.step(STILL)[4]["windward"]["correction"].any()


@pytest.mark.parametrize("signs", [(1, -1), (1, 0)], ids=["that cancel", "of one"])
def test_huge_rewards_are_refused_and_the_rest_is_learned(signs):
    rows = [lambda sign=sign: Counting(1000, sign * 1e39) for sign in signs]
    env = ww.RobustVectorWrapper(SyncVectorEnv(rows), waves, **{**SETTINGS, "eta": 1e-3})
    env.reset(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ww.Fault)
        for _ in range(70):
            env.step(np.zeros((2, 1)))
    assert sum(env.faults.values()) == sum(sign != 0 for sign in signs)
    assert np.abs(env.M - M0).max() > 1e-3


def test_a_large_cost_does_not_spoil_the_steps_around_it():
    env = ww.RobustWrapper(Counting(1000, -5e36), waves, **{**SETTINGS, "sigma": 0.01})
    env.reset(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ww.Fault)
        for _ in range(60):
            env.step(STILL)
    state = env._runtime.learner.engine.state
    assert state.learner.optimiser.counted >= 58


def test_rested_episodes_that_are_left_are_not_counted():
    env = ww.RobustWrapper(Counting(6), waves, **SETTINGS, every_episodes=2)
    env.reset(seed=0)
    over(env)
    assert env._runtime.learner.engine.state.learner.optimiser.counted == 1
    rest(env, True)
    env.reset()
    env.step(STILL)
    env.reset()  # left
    assert env._runtime.learner.engine.state.learner.optimiser.counted == 1


def test_the_return_of_an_episode_that_was_left_is_not_told():
    env = ww.RobustWrapper(Counting(4), waves, **SETTINGS)
    for steps in (2, 4):  # the first is left
        env.reset(seed=0)
        for _ in range(steps):
            env.step(STILL)
    assert env._runtime.learner.trials.adapted == [-(1.0 + 2 + 3 + 4)]


@pytest.mark.parametrize("every_steps", [1, 8])
def test_copies_of_all_forms_go_on_alike(every_steps):
    settings = {**SETTINGS, "eta": 1e-2, "every_steps": every_steps}
    env = ww.RobustVectorWrapper(SyncVectorEnv([Counting, Counting]), waves, **settings)
    env.reset(seed=0)
    policy = ww.robustify(lambda x: STILL, Counting(), waves, **settings)

    def steps_of_env(env, n):
        return [env.step(np.zeros((2, 1)))[4]["windward"]["correction"] for _ in range(n)]

    def steps_of_policy(policy, n):
        actions = []
        for t in range(n):
            actions.append(policy.predict(np.array([0.0, t]))[0])
            policy.observe(-float(t), np.array([0.0, t + 1.0]), False, False)
        return actions

    for form, steps in ((env, steps_of_env), (policy, steps_of_policy)):
        steps(form, 11)  # in the middle of a block
        twin = copy.deepcopy(form)
        np.testing.assert_array_equal(steps(twin, 20), steps(form, 20))
        np.testing.assert_array_equal(twin.M, form.M)
        assert np.abs(form.M - M0).max() > 1e-6
