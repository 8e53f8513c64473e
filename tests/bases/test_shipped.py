"""The policies that come with the package do what their files say."""

import subprocess
import sys
from importlib.resources import files

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.bases.shipped import SHIPPED


@pytest.mark.parametrize("env_id", SHIPPED)
def test_it_is_as_good_as_it_says(env_id: str) -> None:
    policy, env = ww.bases.load(env_id), gym.make(env_id)
    assert policy.observation_space.shape == env.observation_space.shape
    returns = []
    for seed in range(3):
        x, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            x, reward, terminated, truncated, _ = env.step(policy.predict(x)[0])
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    assert np.mean(returns) >= policy.about["worst"] - 0.1 * abs(policy.about["worst"])
    assert policy.about["env"] == env_id
    assert policy.about["trained"]


@pytest.mark.parametrize("env_id", SHIPPED)
def test_its_values_fit(env_id: str) -> None:
    policy, env = ww.bases.load(env_id), gym.make(env_id)
    x, _ = env.reset(seed=0)
    error, size = [], []
    for _ in range(100):
        u = policy.predict(x)[0]
        x_next, reward, terminated, truncated, _ = env.step(u)
        pairs = [
            (policy.vector.c(x[None])[0], policy.vector),
            (np.array([float(reward)]), policy.critic),
        ]
        gap = []
        for cost, values in pairs:
            ahead = 0.0 if terminated else policy.values.gamma * values.V(x_next[None])[0]
            gap.append(cost + ahead - values.Q(x[None], u[None] if np.ndim(u) else [u])[0])
        error.append(np.concatenate([np.atleast_1d(each) for each in gap]))
        size.append(np.concatenate([pairs[0][0], pairs[1][0]]))
        x = x_next
        if terminated or truncated:
            x, _ = env.reset()
    rms = np.sqrt(np.square(error).mean(axis=0)).mean()
    assert rms < 0.5 * np.sqrt(np.square(size).mean(axis=0)).mean()


def test_they_are_small_and_need_no_torch() -> None:
    folder = files("windward.bases") / "data"
    for name in SHIPPED.values():
        assert len((folder / f"{name}.npz").read_bytes()) < 1_000_000
    code = (
        "import sys, numpy, windward as ww\n"
        "policy = ww.bases.load('CartPole-v1')\n"
        "policy.predict(numpy.zeros(4)), policy.logits(numpy.zeros(4))\n"
        "assert not {'torch', 'stable_baselines3'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_one_is_named() -> None:
    with pytest.raises(ValueError, match=r"env_id must be one of 'Pendulum-v1'.*got 'Ant-v5'"):
        ww.bases.load("Ant-v5")
    assert set(ww.bases.available()) == set(SHIPPED)
