"""Without correction and noise the wrapper is not there: trajectories equal to the bit."""

import gymnasium as gym
import numpy as np
import pytest

import windward as ww

STEPS = 60


def agent(env_id, env):
    """Actions inside the space: of a trained policy, a bit off, or any."""
    rng = np.random.default_rng(3)
    if env_id == "Pendulum-v1":
        model = ww.policies.load(env_id)
        return lambda x: np.clip(
            model.predict(x)[0] + 0.2 * rng.normal(size=1), -2.0, 2.0
        ).astype(np.float32)  # fmt: skip
    if env_id == "CartPole-v1":
        return lambda x: int(rng.integers(2))
    low, high = env.action_space.low, env.action_space.high
    return lambda x: rng.uniform(low, high).astype(np.float32)


def trajectory(env, env_id):
    act = agent(env_id, env)
    x, _ = env.reset(seed=4)
    seen = [x]
    for _ in range(STEPS):
        x, reward, terminated, truncated, _ = env.step(act(x))
        seen += [x, np.array([reward, terminated, truncated], dtype=float)]
        if terminated or truncated:
            x, _ = env.reset()
            seen.append(x)
    return seen


def assert_same_bits(a, b):
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


def wrapped(env_id, **settings):
    logits = {"logits": ww.policies.load(env_id)} if env_id == "CartPole-v1" else {}
    settings = {"learner": "mf-gpc", "guard": False, **settings}
    return ww.RobustWrapper(gym.make(env_id), "pd3", **logits, **settings)


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Ant-v5", "Pendulum-v1", "CartPole-v1"])
def test_frozen_at_zero(env_id):
    noisy = {} if env_id == "CartPole-v1" else {"sigma": 0.2}
    env = wrapped(env_id, **noisy)
    env.freeze()
    bare = trajectory(gym.make(env_id), env_id)
    assert_same_bits(trajectory(env, env_id), bare)
    assert not env.M.any()
    assert not env.faults
    # And it is no accident: with noise, or with an M, the trajectory is another one.
    if env_id != "CartPole-v1":
        env.unfreeze()
        assert any((a != b).any() for a, b in zip(trajectory(env, env_id), bare, strict=False))


def test_sigma_and_eta_zero():
    """The same without freezing."""
    env = wrapped("Pendulum-v1", sigma=0.0, eta=0.0)
    bare = trajectory(gym.make("Pendulum-v1"), "Pendulum-v1")
    assert_same_bits(trajectory(env, "Pendulum-v1"), bare)


def test_the_agents_own_object_reaches_the_environment():
    """Also in its own type: an environment may look at it."""

    class Seeing(gym.Wrapper):
        def step(self, action):
            self.seen = action
            return super().step(action)

    inner = Seeing(gym.make("Pendulum-v1"))
    env = ww.RobustWrapper(inner, lambda x, u, reward, x_next: x)
    env.freeze()
    env.reset(seed=0)
    action = np.array([0.3], np.float32)
    env.step(action)
    assert np.asarray(inner.seen).tobytes() == action.tobytes()


def test_what_is_not_stepped_passes_through():
    env = wrapped("Pendulum-v1")
    bare = gym.make("Pendulum-v1")
    assert env.action_space == bare.action_space
    assert env.observation_space == bare.observation_space
    assert isinstance(env, gym.Wrapper)
    assert env.unwrapped is env.env.unwrapped
    assert env.get_wrapper_attr("max_torque") == bare.get_wrapper_attr("max_torque")
    assert env.get_wrapper_attr("M").shape == (5, 1, 2)
