"""Learning inside the adaptive layer: executed actions in the replay, an M fixed for rollouts."""

import subprocess
import sys
from functools import partial

import gymnasium as gym
import jax
import numpy as np
import pytest

import windward as ww

from .worlds import Plant, true_w, wind

pytest.importorskip("stable_baselines3")
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from windward.adapt.sb3 import AtRolloutEnd, ExecutedReplayBuffer, RobustVecEnv

QUICK = {"h": 2, "eta": 1e-2, "seed": 3, "learner": "mf-gpc", "guard": False}
TINY = {"device": "cpu", "seed": 0}


def plants(n):
    return [partial(Plant, wind(90, i), length=7 + 4 * i) for i in range(n)]


def test_the_buffer_holds_executed_actions():
    box = gym.spaces.Box(np.array([-1.0, 0.0]), np.array([3.0, 0.1]), dtype=np.float64)
    seen = gym.spaces.Box(-1.0, 1.0, (1,))
    buffer = ExecutedReplayBuffer(4, seen, box, device="cpu", n_envs=2)
    x, number = np.zeros((2, 1)), np.zeros(2)
    infos = [{"windward": {"action": np.array(u)}} for u in ([1.0, 0.1], [3.0, 0.025])]
    buffer.add(x, x, np.full((2, 2), 0.7), number, number, infos)
    np.testing.assert_allclose(buffer.actions[0], [[0.0, 1.0], [1.0, -0.5]], atol=1e-6)
    assert np.abs(buffer.actions[0]).max() == 1.0
    with pytest.raises(ValueError, match=r"no 'windward' entry.*RobustWrapper or RobustVecEnv"):
        buffer.add(x, x, np.zeros((2, 2)), number, number, [infos[0], {}])
    assert buffer.pos == 1


def test_the_buffer_holds_executed_numbers():
    seen = gym.spaces.Box(-1.0, 1.0, (1,))
    buffer = ExecutedReplayBuffer(4, seen, gym.spaces.Discrete(3), device="cpu")
    info = {"windward": {"action": np.int64(2)}}
    buffer.add(np.zeros((1, 1)), np.zeros((1, 1)), np.array([0]), np.zeros(1), np.zeros(1), [info])
    assert buffer.actions[0].tolist() == [[2]]


def run(env, steps):
    for _ in range(steps):
        env.step(np.zeros(1))


def test_M_waits_to_be_told():
    # One episode at M = 0: the update at its end is the one that was waited for.
    def made(**more):
        env = ww.RobustWrapper(Plant(wind(90), length=20), true_w, **QUICK, **more)
        env.reset()
        return env

    told, counting = made(every_episodes="told"), made(every_episodes=1)
    run(told, 20)
    run(counting, 20)
    assert not told.M.any()
    told.update_M()
    assert np.abs(told.M).max() > 0
    np.testing.assert_allclose(told.M, counting.M, rtol=1e-5)
    told.update_M()  # the sum is spent
    np.testing.assert_allclose(told.M, counting.M, rtol=1e-5)


@pytest.mark.parametrize("shared", [True, False])
def test_an_update_in_the_middle_of_an_episode_leaves_the_windows(shared):
    made = {"every_episodes": "told", "shared": shared, **QUICK}
    venv = RobustVecEnv(DummyVecEnv(plants(2)), true_w, **made)
    venv.reset()
    for _ in range(5):
        venv.step(np.zeros((2, 1)))
    engine = venv._runtime.learner.engine
    before, draw, t = engine.state, np.array(engine.draw), engine.t
    assert not engine.correction.any()
    venv.update_M()
    jax.tree.map(np.testing.assert_array_equal, before.local, engine.state.local)
    np.testing.assert_array_equal(engine.draw, draw)
    assert engine.t == t
    M = np.broadcast_to(venv.M, (2, 2, 1, 2))  # a row of its own, or the same for both
    window = before.local.w_hist.reshape(2, -1, 2)[:, :2]
    np.testing.assert_allclose(engine.correction, np.einsum("bhuw,bhw->bu", M, window), rtol=1e-5)
    assert engine.correction.any(axis=1).all()


def test_updates_of_those_who_do_not_wait():
    env = ww.RobustWrapper(Plant(wind(9)), true_w)
    assert not env.updates_when_told
    with pytest.raises(ValueError, match="every_episodes='told'"):
        env.update_M()
    env = ww.RobustWrapper(Plant(wind(9)), true_w, every_episodes="told", **QUICK)
    assert env.updates_when_told
    env.reset()
    run(env, 5)
    env.freeze()
    env.update_M()
    assert not env.M.any()
    env.unfreeze()
    env.update_M()
    assert env.M.any()


def test_discrete_actions_wait_too():
    env = gym.make("windward/WindyCartPole-v0")
    told = ww.RobustWrapper(
        env,
        "pd3",
        logits=lambda x: 0 * x[:, :2],
        every_episodes="told",
        learner="mf-gpc",
        guard=False,
    )
    told.reset(seed=0)
    for t in range(8):
        told.step(t % 2)
    assert not told.M.any()
    told.update_M()
    assert told.M.any()
    assert np.isfinite(told.step(0)[4]["windward"]["correction"]).all()


def test_a_file_of_one_that_counts_is_refused(tmp_path):
    counts = ww.RobustWrapper(
        Plant(wind(9)), true_w, every_episodes=3, learner="mf-gpc", guard=False
    )
    waits = ww.RobustWrapper(
        Plant(wind(9)), true_w, every_episodes="told", learner="mf-gpc", guard=False
    )
    counts.save(tmp_path / "counts.npz")
    with pytest.raises(ValueError, match="clock"):
        waits.load(tmp_path / "counts.npz")


class Watch(AtRolloutEnd):
    """Notes M at each step."""

    def _on_step(self):
        layer = self._layer()
        self.Ms = [*getattr(self, "Ms", []), layer.M if layer else self.training_env.get_attr("M")]
        return super()._on_step()


def robust(make, **more):
    return ww.RobustWrapper(make(), true_w, every_episodes="told", **QUICK, **more)


@pytest.mark.parametrize("inside", [True, False])
def test_M_is_fixed_during_a_rollout(inside):
    if inside:
        venv = DummyVecEnv([partial(robust, make) for make in plants(2)])
    else:
        venv = RobustVecEnv(DummyVecEnv(plants(2)), true_w, every_episodes="told", **QUICK)
    model = PPO("MlpPolicy", VecNormalize(venv), n_steps=16, batch_size=16, n_epochs=1, **TINY)
    watch = Watch()
    model.learn(96, callback=watch)
    Ms = np.array(watch.Ms).reshape(3, 16, -1)
    assert (Ms == Ms[:, :1]).all()
    assert not Ms[0].any()
    assert (np.abs(np.diff(Ms[:, 0], axis=0)).max(axis=1) > 0).all()
    assert np.isfinite(Ms).all()


def test_what_cannot_wait_is_refused_before_the_first_step():
    make = plants(1)
    for message, env in [
        ("none: train in", make[0]()),
        ("every_episodes='told'", ww.RobustWrapper(make[0](), true_w)),
        (
            "every_episodes='told'",
            RobustVecEnv(DummyVecEnv(make), true_w, learner="mf-gpc", guard=False),
        ),
    ]:
        model = PPO("MlpPolicy", env, n_steps=8, batch_size=8, **TINY)
        with pytest.raises(ValueError, match=message):
            model.learn(8, callback=AtRolloutEnd())
        assert model.num_timesteps == 0


def test_without_the_library():
    code = (
        "import sys, windward as ww; ww.RobustWrapper\n"
        "print('stable_baselines3' in sys.modules)\n"
        "sys.modules['stable_baselines3'] = None\n"
        "try:\n    import windward.adapt.sb3\n"
        "except ImportError as error:\n    print(error)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported, error = told.stdout.splitlines()
    assert imported == "False"
    assert "pip install 'windward[sb3]'" in error
