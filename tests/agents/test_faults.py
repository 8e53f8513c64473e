"""What goes wrong around D4PG loses nothing that was saved."""

import errno
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.agents.test_d4pg import floats, pendulum, short
from windward.agents import D4PG


class Crash(gym.Wrapper):
    """An environment whose process dies, so to say, at a step of its life."""

    crash_at = 10**9

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.life = 0

    def step(self, action: Any) -> Any:
        self.life += 1
        if self.life >= self.crash_at:
            raise OSError("the simulator is gone")
        return super().step(action)


def test_a_crashing_environment_loses_nothing_that_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> gym.Env:
        return Crash(short())

    whole = pendulum(env=make).learn(600, eval_every=100, out=tmp_path / "whole")
    monkeypatch.setattr(Crash, "crash_at", 150)  # two environments: in the second segment
    with pytest.raises(OSError, match="the simulator is gone"):
        pendulum(env=make).learn(600, eval_every=100, out=tmp_path / "parts")
    monkeypatch.undo()
    resumed = pendulum(env=make).learn(600, eval_every=100, out=tmp_path / "parts")
    assert floats(resumed) == floats(whole)


def test_a_full_disk_keeps_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pendulum().learn(200, eval_every=10**9, out=tmp_path)
    kept = (tmp_path / "last.npz").read_bytes()

    def full(file: Any, **arrays: Any) -> None:
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(ValueError, match=r"could not write .*last\.npz.*No space left"):
        pendulum().learn(600, eval_every=10**9, out=tmp_path)
    monkeypatch.undo()
    assert (tmp_path / "last.npz").read_bytes() == kept
    assert not list(tmp_path.glob("*.partial"))
    assert pendulum().learn(600, eval_every=10**9, out=tmp_path).num_timesteps == 600


def test_sb3_evaluates_it() -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    agent = pendulum(env="Pendulum-v1")
    returns, lengths = evaluate_policy(
        agent, Monitor(gym.make("Pendulum-v1")), n_eval_episodes=2, return_episode_rewards=True
    )
    assert lengths == [200, 200]
    assert all(-2_000 < each < 0 for each in returns)


def test_the_same_episode_gives_the_same_return_by_hand() -> None:
    agent = D4PG("Pendulum-v1", widths=(8,))
    env = gym.make("Pendulum-v1")
    got = agent.evaluate(3, seed=5)
    seeds = [
        int(np.random.SeedSequence(5, spawn_key=(3, i)).generate_state(1)[0]) for i in range(3)
    ]
    for total, seed in zip(got, seeds, strict=True):
        x, _ = env.reset(seed=seed)
        by_hand, over = 0.0, False
        while not over:
            x, reward, terminated, truncated, _ = env.step(agent.predict(x)[0])
            by_hand, over = by_hand + float(reward), terminated or truncated
        assert by_hand == total
