"""Vector environments: M and windows as by hand, through every kind of autoreset."""

import copy
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import windward as ww

from .worlds import (
    HandMade,
    K,
    Plant,
    ScalarValues,
    VectorValues,
    true_w,
    wind,
)

H, ETA, SIGMA = 2, 0.2, 0.2
M0 = 0.2 * np.random.default_rng(0).normal(size=(H, 1, 2))
SETTINGS = {
    "h": H, "eta": ETA, "sigma": SIGMA, "M0": M0, "projection": None, "every_steps": 1,
    "learner": "mf-gpc", "guard": False,
}  # fmt: skip
TIGHT = {"rtol": 1e-9, "atol": 1e-9}
LENGTHS = (2, 3)


def plants(mode, lengths=LENGTHS, ends="terminated"):
    makers = [
        partial(Plant, wind(60, seed), length=length, ends=ends)
        for seed, length in enumerate(lengths)
    ]
    return SyncVectorEnv(makers, autoreset_mode=mode)


def base(x):
    return -x @ K.T


def rows_of(env, steps):
    """Steps of a vector environment with what really happened in each row, told by hand.

    Yields (x, u, reward, x_next, ended, real, told); x_next is the last observation of an episode
    that ended, and rows that only reset are not real.
    """
    x, _ = env.reset(seed=0)
    over = np.zeros(env.num_envs, bool)
    mode = env.metadata["autoreset_mode"]
    for _ in range(steps):
        shown, reward, terminated, truncated, info = env.step(base(x))
        ended = terminated | truncated
        x_next = shown.copy()
        if mode == AutoresetMode.SAME_STEP and ended.any():
            for row in np.flatnonzero(ended):
                x_next[row] = info["final_obs"][row]
        real = ~over if mode == AutoresetMode.NEXT_STEP else np.ones_like(over)
        yield x, info["windward"], reward, x_next, ended, real
        over, x = ended, shown.copy()


MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


@pytest.mark.parametrize("mode", MODES)
def test_shared_M_as_by_hand(mode, x64):
    """One M from the mean over rows that made a step; windows end with each row's episode."""
    env = ww.RobustVectorWrapper(plants(mode), true_w, **SETTINGS)
    hand = HandMade(2, H, ETA, SIGMA, M0)
    resets = 0
    for x, told, reward, x_next, ended, real in rows_of(env, 25):
        w_hat = np.array([true_w(*each) for each in zip(x, told["action"], reward, x_next)])  # noqa: B905
        for row in np.flatnonzero(real):
            np.testing.assert_allclose(told["correction"][row], hand.correction(row), **TIGHT)
            np.testing.assert_allclose(told["w_hat"][row], w_hat[row], **TIGHT)
        hand.observe(told["noise"], -reward, w_hat, ended, real)
        np.testing.assert_allclose(env.M, hand.M, **TIGHT)
        resets += ended.sum()
    assert resets > 10
    assert np.abs(env.M - M0).max() > 1e-3
    assert not env.faults


@pytest.mark.parametrize("mode", MODES)
def test_an_M_for_each_row_as_by_hand(mode, x64):
    env = ww.RobustVectorWrapper(plants(mode), true_w, shared=False, **SETTINGS)
    assert env.M.shape == (2, H, 1, 2)
    hands = [HandMade(1, H, ETA, SIGMA, M0) for _ in range(2)]
    for x, told, reward, x_next, ended, real in rows_of(env, 25):
        for row, hand in enumerate(hands):
            if real[row]:
                np.testing.assert_allclose(told["correction"][row], hand.correction(0), **TIGHT)
            w_hat = true_w(x[row], told["action"][row], reward[row], x_next[row])
            one = slice(row, row + 1)
            hand.observe(told["noise"][one], -reward[one], w_hat[None], ended[one], real[one])
        np.testing.assert_allclose(env.M, np.stack([hand.M for hand in hands]), **TIGHT)
    assert np.abs(env.M[0] - env.M[1]).max() > 1e-3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_values_at_the_last_observation(mode, ends, x64):
    """V(x_next) is of the episode's own last observation, and 0 after a termination."""
    scalar, vector = ScalarValues(), VectorValues()
    alive = float(ends == "truncated")
    for signal, settings in (
        (ww.PD1(scalar), {**SETTINGS, "M0": M0[:, :, :1]}), (ww.PD2(vector), SETTINGS)
    ):  # fmt: skip
        env = ww.RobustVectorWrapper(plants(mode, ends=ends), signal, **settings)
        for x, told, reward, x_next, ended, real in rows_of(env, 12):
            keep, u = np.where(ended, alive, 1.0), told["action"]
            if env.signal == "pd2":
                w_hat = x + vector.gamma * keep[:, None] * vector.V(x_next) - vector.Q(x, u)
            else:
                td = -reward - scalar.gamma * keep * scalar.V(x_next) + scalar.Q(x, u)
                w_hat = td[:, None] * told["noise"] / SIGMA**2
            np.testing.assert_allclose(told["w_hat"][real], w_hat[real], **TIGHT)


@pytest.mark.parametrize("mode", MODES)
def test_pd3_of_a_sync_vector(mode):
    """ŵ is the disturbance of each row, through episodes of three steps."""

    def make():
        inner = gym.make("Pendulum-v1", max_episode_steps=3)
        return ww.envs.Disturbed(inner, ww.envs.Uniform(0.1), channel="qvel")

    inner = SyncVectorEnv([make, make], autoreset_mode=mode)
    env = ww.RobustVectorWrapper(inner, "pd3", h=H, every_steps=5, learner="mf-gpc", guard=False)
    env.reset(seed=0)
    over = np.zeros(2, bool)
    for _ in range(14):
        *_, terminated, truncated, info = env.step(np.zeros((2, 1), np.float32))
        ended = terminated | truncated
        # In the same step a row's environment is gone when it ended, and its window with it.
        look = ~over if mode == AutoresetMode.NEXT_STEP else ~ended
        if look.any():
            w_hat = info["windward"]["w_hat"][look]
            np.testing.assert_allclose(
                w_hat[:, 1], info["disturbance"]["qvel"][look][:, 0], atol=1e-6
            )
            assert not w_hat[:, 0].any()
        over = ended
    assert env.M.any()
    assert not env.faults


def test_frozen_at_zero_it_is_not_there():
    bare, inner = (gym.make_vec("Pendulum-v1", 3, vectorization_mode="sync") for _ in range(2))
    env = ww.RobustVectorWrapper(inner, "pd3", learner="mf-gpc", guard=False)
    env.freeze()
    x, _ = env.reset(seed=1)
    y, _ = bare.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(20):
        np.testing.assert_array_equal(x, y)
        u = rng.uniform(-2, 2, size=(3, 1)).astype(np.float32)
        (x, *rest, _), (y, *other, _) = env.step(u), bare.step(u)
        for a, b in zip(rest, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_reset_mask(x64):
    """Rows of the mask begin anew, windows and all; the others go on."""
    env = ww.RobustVectorWrapper(plants(AutoresetMode.DISABLED, (99, 99)), true_w, **SETTINGS)
    hand = HandMade(2, H, ETA, SIGMA, M0)
    x, _ = env.reset(seed=0)
    real = np.ones(2, bool)
    for t in range(12):
        if t % 4 == 3:
            mask = np.array([t % 8 == 3, t % 8 != 3])
            x, _ = env.reset(options={"reset_mask": mask})
            hand.w[mask], hand.n[mask] = 0.0, 0.0
        x_next, reward, _, _, info = env.step(base(x))
        told = info["windward"]
        for row in range(2):
            np.testing.assert_allclose(told["correction"][row], hand.correction(row), **TIGHT)
        hand.observe(told["noise"], -reward, told["w_hat"], ~real, real)
        np.testing.assert_allclose(env.M, hand.M, **TIGHT)
        x = x_next.copy()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shared", [True, False])
def test_loaded_it_goes_on_exactly(mode, shared, tmp_path):
    """Wherever it was saved: also between the end of a row's episode and its reset."""
    env = ww.RobustVectorWrapper(plants(mode), true_w, shared=shared, **SETTINGS)
    x, _ = env.reset(seed=0)
    for t in range(6):
        path = tmp_path / f"{t}"
        env.save(path)
        inner = copy.deepcopy(env.env)
        other = ww.RobustVectorWrapper(inner, true_w, shared=shared, seed=9, **SETTINGS)
        other.load(path)
        y = x.copy()
        for _ in range(5):
            y, *_ = other.step(base(y))
            y = y.copy()
        copied, y = copy.deepcopy(env.env), x.copy()
        kept, env.env = env.env, copied
        for _ in range(5):
            y, *_ = env.step(base(y))
            y = y.copy()
        np.testing.assert_array_equal(env.M, other.M)
        env.env = kept
        env.load(path)
        x, *_ = env.step(base(x))
        x = x.copy()


def test_reset_of_all_in_the_middle():
    env = ww.RobustVectorWrapper(plants(AutoresetMode.NEXT_STEP, (99, 99)), true_w, **SETTINGS)
    x, _ = env.reset(seed=0)
    for _ in range(5):
        x, *_, info = env.step(base(x))
    assert info["windward"]["correction"].all()
    x, _ = env.reset()
    *_, info = env.step(base(x))
    assert not info["windward"]["correction"].any()


def test_one_bad_row_does_not_touch_the_others(x64):
    env = ww.RobustVectorWrapper(plants(AutoresetMode.NEXT_STEP, (99, 99)), true_w, **SETTINGS)
    alone = HandMade(2, H, ETA, SIGMA, M0)
    x, _ = env.reset(seed=0)
    for t in range(8):
        u = base(x)
        if t == 4:
            u[0] = np.nan
            with pytest.warns(ww.Fault):
                x_next, reward, *_, info = env.step(u)
        else:
            x_next, reward, *_, info = env.step(u)
        told, x = info["windward"], x_next.copy()
        np.testing.assert_allclose(told["correction"][1], alone.correction(1), **TIGHT)
        assert told["fault"].tolist() == [t == 4, False]
        real = np.array([t != 4, True])
        alone.observe(told["noise"], -reward, told["w_hat"], ~np.ones(2, bool), real)
        np.testing.assert_allclose(env.M, alone.M, **TIGHT)
    assert env.faults == {"action": 1}


def test_vectorised_cartpole():
    """An environment that is a vector of itself, with discrete actions."""
    model = ww.policies.load("CartPole-v1")
    inner = gym.make_vec("CartPole-v1", 3, vectorization_mode="vector_entry_point")
    env = ww.RobustVectorWrapper(
        inner, "auto", model=model, logits=model, h=H, eta=1e-3, learner="mf-gpc", guard=False
    )
    assert env.signal == "pd2"
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(40):
        *_, info = env.step(rng.integers(2, size=3))
        assert set(info["windward"]["action"].tolist()) <= {0, 1}
    assert env.M.any()
    assert not env.faults
    with pytest.raises(ValueError, match=r"pd3.*reach.*SyncVectorEnv.*pd2"):
        ww.RobustVectorWrapper(
            inner, "pd3", model=model, logits=model, learner="mf-gpc", guard=False
        )


def test_processes_of_their_own():
    """A user's function and PD2 need no environment; PD3 does, and says so."""
    makers = [partial(gym.make, "Pendulum-v1", max_episode_steps=4)] * 2
    model = ww.policies.load("Pendulum-v1")
    inner = AsyncVectorEnv(makers, context="forkserver", shared_memory=False)
    try:
        for signal in ("pd2", lambda x, u, reward, x_next: x_next - x):
            env = ww.RobustVectorWrapper(
                inner, signal, model=model, h=H, every_steps=5, learner="mf-gpc", guard=False
            )
            x, _ = env.reset(seed=0)
            for _ in range(12):
                x, *_ = env.step(model.predict(x)[0])
            assert env.M.any()
            assert not env.faults
        with pytest.raises(ValueError, match=r"pd3.*SyncVectorEnv.*pd2 and pd1 would work"):
            ww.RobustVectorWrapper(inner, "pd3", model=model, learner="mf-gpc", guard=False)
    finally:
        inner.close()


def test_wrong_forms():
    single = gym.make("Pendulum-v1")
    vector = gym.make_vec("Pendulum-v1", 2, vectorization_mode="sync")
    with pytest.raises(ValueError, match="RobustVectorWrapper"):
        ww.RobustWrapper(vector, "pd3")
    with pytest.raises(ValueError, match="RobustWrapper"):
        ww.RobustVectorWrapper(single, "pd3", learner="mf-gpc", guard=False)
    env = ww.RobustVectorWrapper(vector, "pd3", learner="mf-gpc", guard=False)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.zeros((2, 1), np.float32))
    env.reset(seed=0)
    with pytest.raises(ValueError, match="shape"):
        env.step(np.zeros((3, 1), np.float32))
    with pytest.raises(ValueError, match="shape"):
        env.step(np.zeros(2, np.float32))
