"""The adaptive layer around vector environments of Stable-Baselines3."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import windward as ww

from .worlds import Plant, ScalarValues, true_w, wind

pytest.importorskip("stable_baselines3")
from stable_baselines3 import A2C
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecMonitor,
    VecNormalize,
)

from windward.adapt.sb3 import RobustVecEnv

NAMES = ["action", "clipped", "correction", "decided", "fault", "noise", "resting", "w_hat"]
QUICK = {"h": 2, "eta": 1e-2, "seed": 3, "every_steps": 5, "learner": "mf-gpc", "guard": False}


class Short(gym.Env):
    """Episodes of two steps; observations say which episode and step it is."""

    def __init__(self, ends="terminated"):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float64)
        self.ends, self.episode = ends, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return np.array([self.episode, 0.0]), {}

    def step(self, action):
        self.t += 1
        over = self.t == 2
        ended = (over, False) if self.ends == "terminated" else (False, over)
        return np.array([self.episode, self.t], float), 0.25 * self.t, *ended, {}


class Recorder:
    """V(x) = 10 episode + t, Q = 1; it remembers what it was asked."""

    gamma = 0.5

    def __init__(self):
        self.V_saw, self.Q_saw = [], []

    def V(self, x):
        self.V_saw.append(x.tolist())
        return 10 * x[:, 0] + x[:, 1]

    def Q(self, x, u):
        self.Q_saw.append(x.tolist())
        return np.ones(len(x))


def test_the_last_observation_is_what_V_sees():
    critic = Recorder()
    inner = DummyVecEnv([lambda: Short("terminated"), lambda: Short("truncated")])
    venv = RobustVecEnv(inner, ww.PD1(critic), sigma=0.5, h=1, learner="mf-gpc", guard=False)
    critic.V_saw, critic.Q_saw = [], []  # without the first try
    venv.reset()
    infos = [[row["windward"] for row in venv.step(np.zeros((2, 1)))[3]] for _ in range(3)]
    assert critic.V_saw == [[[1, 1]] * 2, [[1, 2]] * 2, [[2, 1]] * 2]
    assert critic.Q_saw == [[[1, 0]] * 2, [[1, 1]] * 2, [[2, 0]] * 2]
    # ŵ = (c + γV(x') - Q) n/σ² with c = -reward and values of costs, V = -(10 episode + t), Q = -1.
    # At the end of the first episode V counts where it was cut off, and not where it terminated.
    tds = [[-0.25 - 5.5 + 1] * 2, [-0.5 + 1, -0.5 - 6 + 1], [-0.25 - 10.5 + 1] * 2]
    for row, td in zip(infos, tds, strict=True):
        for told, each in zip(row, td, strict=True):
            np.testing.assert_allclose(told["w_hat"], each * told["noise"] / 0.25, rtol=1e-5)


def plants(n=3, **more):
    """Environments that are the same each time they are made, and differ among each other."""
    ends = ["terminated", "truncated", "terminated"]
    return [
        partial(Plant, wind(90, i), length=7 + 4 * i, ends=ends[i], **more) for i in range(n)
    ]  # fmt: skip


class Rounded(gym.RewardWrapper):
    """Rewards that float32 holds exactly, as DummyVecEnv stores them."""

    def reward(self, reward):
        return float(np.float32(reward))


@pytest.mark.parametrize("shared", [True, False])
def test_it_is_the_vector_wrapper_for_another_library(shared):
    made = [lambda make=make: Rounded(make()) for make in plants()]
    theirs = ww.RobustVectorWrapper(
        SyncVectorEnv(made, autoreset_mode=AutoresetMode.SAME_STEP), true_w, shared=shared, **QUICK
    )
    ours = RobustVecEnv(DummyVecEnv(made), true_w, shared=shared, **QUICK)
    x, _ = theirs.reset()
    np.testing.assert_array_equal(ours.reset(), x)
    for _ in range(40):
        base = -0.3 * x[:, :1]
        x, _, terminated, truncated, info = theirs.step(base)
        seen, _, done, infos = ours.step(base)
        np.testing.assert_array_equal(seen, x)
        np.testing.assert_array_equal(done, terminated | truncated)
        for name in NAMES:
            rows = np.stack([each["windward"][name] for each in infos])
            np.testing.assert_array_equal(rows, info["windward"][name], err_msg=name)
    np.testing.assert_array_equal(ours.M, theirs.M)
    assert ours.M.shape == ((2, 1, 2) if shared else (3, 2, 1, 2))
    assert np.abs(ours.M).max() > 0


def test_wrappers_outside_see_and_pass_what_they_should():
    layer = RobustVecEnv(DummyVecEnv(plants(2)), true_w, **QUICK)
    venv = VecNormalize(VecMonitor(layer))
    venv.reset()
    lengths = []
    for _ in range(12):
        _, _, _, infos = venv.step(np.zeros((2, 1)))
        lengths += [info["episode"]["l"] for info in infos if "episode" in info]
        for env, info in zip(layer.venv.envs, infos, strict=True):
            assert sorted(info["windward"]) == NAMES
            np.testing.assert_array_equal(info["windward"]["action"], env.executed[-1])
            assert type(info["windward"]["clipped"]) is type(info["windward"]["fault"]) is bool
    assert lengths == [7, 11]
    np.testing.assert_array_equal(venv.M, layer.M)  # found through the wrappers
    assert np.abs(layer.M).max() > 0
    assert venv.signal == "own"


def test_shell_methods_work_on_it(tmp_path):
    def made():
        return RobustVecEnv(DummyVecEnv(plants(2)), true_w, **QUICK)

    one, two = made(), made()
    for venv in (one, two):
        venv.reset()
    one.step(np.zeros((2, 1)))
    one.save(tmp_path / "state.npz")
    two.load(tmp_path / "state.npz")
    np.testing.assert_array_equal(two.M, one.M)
    one.freeze()
    _, _, _, infos = one.step(np.zeros((2, 1)))
    assert not infos[0]["windward"]["noise"].any()


def test_pd3_reaches_through_a_dummy_vec_env():
    make = partial(gym.make, "windward/SinePendulum-v0", max_episode_steps=5)
    venv = RobustVecEnv(VecMonitor(DummyVecEnv([make] * 2)), "pd3", sigma=1e-3, **QUICK)
    alone = ww.RobustWrapper(make(), "pd3", sigma=1e-3, **QUICK)
    venv.seed(0)
    venv.reset()
    alone.reset(seed=0)
    for t in range(5):
        _, _, done, infos = venv.step(np.zeros((2, 1), np.float32))
        w_hat, told = infos[0]["windward"]["w_hat"], alone.step(np.zeros(1, np.float32))[4]
        assert done.all() == (t == 4)
        if t < 4:  # the noise is another one, and small
            np.testing.assert_allclose(w_hat, told["windward"]["w_hat"], rtol=0.01, atol=1e-6)
            assert w_hat.any() == (t > 0)  # the wind is a sine and begins at 0
    # An environment that has been reset tells nothing of the step before.
    assert told["windward"]["w_hat"].any()
    assert not w_hat.any()
    assert venv.faults == {}


def test_processes_of_their_own():
    venv = SubprocVecEnv([partial(gym.make, "Pendulum-v1", max_episode_steps=3)])
    try:
        with pytest.raises(ValueError, match=r"pd3.*out of reach.*use a DummyVecEnv"):
            RobustVecEnv(venv, "pd3", learner="mf-gpc", guard=False)
        layer = RobustVecEnv(venv, lambda x, u, reward, x_next: x_next - x, **QUICK)
        layer.reset()
        ended = []
        for _ in range(4):
            _, _, done, infos = layer.step(np.zeros((1, 1), np.float32))
            ended.append(bool(done[0]))
            assert infos[0]["windward"]["w_hat"].any()
        assert ended == [False, False, True, False]
    finally:
        venv.close()


def test_values_outside_of_vec_normalize_are_refused():
    venv = VecNormalize(DummyVecEnv(plants(1)))
    for signal, more in [(ww.PD1(ScalarValues()), {}), ("pd1", {"model": ScalarValues()})]:
        with pytest.raises(ValueError, match=r"pd1 are.*put the layer inside, VecNormalize\(Rob"):
            RobustVecEnv(VecMonitor(venv), signal, **more)
    assert RobustVecEnv(venv, true_w, learner="mf-gpc", guard=False).signal == "own"
    scales_nothing = VecNormalize(DummyVecEnv(plants(1)), norm_obs=False, norm_reward=False)
    assert (
        RobustVecEnv(
            scales_nothing, "pd1", model=ScalarValues(), learner="mf-gpc", guard=False
        ).signal
        == "pd1"
    )
    assert (
        RobustVecEnv(venv.venv, "pd1", model=ScalarValues(), learner="mf-gpc", guard=False).signal
        == "pd1"
    )


def test_logits_outside_of_vec_normalize_are_refused():
    venv = VecNormalize(DummyVecEnv([partial(gym.make, "CartPole-v1")]))
    model = A2C("MlpPolicy", venv, device="cpu", seed=0)
    with pytest.raises(ValueError, match=r"logits of A2C are.*put the layer inside"):
        RobustVecEnv(venv, "pd3", logits=model, learner="mf-gpc", guard=False)
    assert (
        RobustVecEnv(venv.venv, "pd3", logits=model, learner="mf-gpc", guard=False).signal == "pd3"
    )


def test_bad_input():
    with pytest.raises(ValueError, match=r"of Stable-Baselines3.*got Plant: use RobustWrapper"):
        RobustVecEnv(Plant(wind(9)), true_w, learner="mf-gpc", guard=False)
    venv = RobustVecEnv(DummyVecEnv(plants(2)), true_w, learner="mf-gpc", guard=False)
    with pytest.raises(gym.error.ResetNeeded):
        venv.step(np.zeros((2, 1)))
    venv.reset()
    with pytest.raises(ValueError, match=r"shape \(2, 1\); got \(1, 1\)"):
        venv.step(np.zeros((1, 1)))


def test_an_end_without_a_last_observation(monkeypatch):
    inner = DummyVecEnv([Short])
    venv = RobustVecEnv(inner, lambda x, u, r, x_next: x, learner="mf-gpc", guard=False)
    venv.reset()
    venv.step(np.zeros((1, 1)))
    step_wait = inner.step_wait

    def without():
        x, reward, done, infos = step_wait()
        return x, reward, done, [{} for _ in infos]

    monkeypatch.setattr(inner, "step_wait", without)
    with pytest.raises(ValueError, match="no 'terminal_observation'"):
        venv.step(np.zeros((1, 1)))
