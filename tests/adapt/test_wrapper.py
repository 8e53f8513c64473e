"""RobustWrapper: what it executes, what it tells, and how it is frozen, reset and seeded."""

import gymnasium as gym
import numpy as np
import pytest

import windward as ww

from .worlds import Plant, ScalarValues, assert_same, drive, true_w, wind

BASE = ww.policies.load("Pendulum-v1")
SETTINGS = {
    "learner": "mf-gpc", "guard": False, "h": 3, "every_steps": 2, "eta": 1e-3, "sigma": 0.1,
}  # fmt: skip


def pendulum(**settings):
    env = ww.envs.Disturbed(gym.make("Pendulum-v1"), ww.envs.Uniform(0.2), channel="qvel")
    return ww.RobustWrapper(env, "pd3", **{**SETTINGS, **settings})


def policy(x):
    return BASE.predict(x)[0]


def ran(env, steps=20, seed=0):
    x, _ = env.reset(seed=seed)
    return drive(env, policy, steps, x)[0]


def test_executes_base_plus_correction_plus_noise():
    env = pendulum(M0=np.full((3, 1, 2), 0.3))
    x, _ = env.reset(seed=0)
    moved = False
    for _ in range(30):
        base = policy(x)
        x, *_, info = env.step(base)
        told = info["windward"]
        added = 2.0 * (told["correction"] + told["noise"])  # half the width of [-2, 2]
        np.testing.assert_allclose(told["action"], np.clip(base + added, -2, 2), rtol=1e-6)
        np.testing.assert_allclose(env.unwrapped.last_u, told["action"][0], rtol=1e-6)
        assert told["clipped"] == (np.abs(base + added) > 2).any()
        moved |= bool(np.abs(told["correction"]).max() > 0.01)
    assert moved


def test_info_has_arrays_and_bools_only():
    env = pendulum()
    env.reset(seed=0)
    *_, info = env.step(np.zeros(1, np.float32))
    told = info["windward"]
    flags = {"clipped", "decided", "fault", "resting"}
    assert set(told) == {"w_hat", "correction", "noise", "action"} | flags
    shapes = {"w_hat": (2,), "correction": (1,), "noise": (1,), "action": (1,)}
    for name, shape in shapes.items():
        assert isinstance(told[name], np.ndarray)
        assert told[name].shape == shape
    assert told["clipped"] is False
    assert told["fault"] is False
    assert "disturbance" in info  # what was in info stays
    assert env.action_space.contains(told["action"])


def test_info_stays_what_it_was():
    """Replay buffers keep infos: later steps and the agent's own arrays do not reach into them."""
    env = pendulum()
    env.freeze()
    env.reset(seed=0)
    action = np.array([0.5], np.float32)
    *_, info = env.step(action)
    told = info["windward"]
    before = {name: np.array(each) for name, each in told.items()}
    action[:] = -1.0
    for _ in range(3):
        env.step(action)
    for name in before:
        np.testing.assert_array_equal(told[name], before[name], err_msg=name)


def test_clipped_actions_are_inside_and_counted():
    env = pendulum(sigma=3.0)
    told = ran(env, 50)
    assert all(env.action_space.contains(step["action"]) for step in told)
    assert 0 < env.clipped == sum(step["clipped"] for step in told) < 50


def test_it_learns():
    env = pendulum()
    assert not env.M.any()
    ran(env, 20)
    assert env.M.any()
    assert not env.frozen


def test_freeze_stops_adaptation_and_noise_at_once():
    env = pendulum()
    x, _ = env.reset(seed=0)
    _, x = drive(env, policy, 20, x)
    M = env.M.copy()
    env.freeze()
    assert env.frozen
    told, x = drive(env, policy, 20, x)
    np.testing.assert_array_equal(env.M, M)
    assert not any(step["noise"].any() for step in told)
    assert all(step["w_hat"].any() for step in told)  # ŵ stays current
    assert any(step["correction"].any() for step in told)
    env.unfreeze()
    told, x = drive(env, policy, 20, x)
    assert (env.M != M).any()
    assert told[-1]["noise"].any()


def test_frozen_pd1_keeps_its_noise_and_says_so():
    plant = Plant(wind(100))
    env = ww.RobustWrapper(plant, ww.PD1(ScalarValues()), **SETTINGS)
    with pytest.warns(UserWarning, match="noise"):
        env.freeze()
    x, _ = env.reset()
    told, _ = drive(env, plant.base, 10, x)
    assert all(step["noise"].any() for step in told)
    assert not env.M.any()


def test_reset_adaptation_is_as_new():
    env = pendulum(M0=np.full((3, 1, 2), 0.1))
    first = ran(env)
    env.reset_adaptation()
    np.testing.assert_array_equal(env.M, np.full((3, 1, 2), 0.1, np.float32))
    assert_same(ran(env), first)


def test_reset_adaptation_restarts_a_noisy_simulator():
    def noisy():
        env = ww.envs.Disturbed(gym.make("Pendulum-v1"), ww.envs.Uniform(0.1), channel="qvel")
        return ww.RobustWrapper(env, "pd3", simulator={"noisy": True}, **SETTINGS)

    env = noisy()
    first = ran(env)
    env.reset_adaptation()
    assert_same(ran(env), first)


def test_reset_adaptation_in_an_episode():
    env = pendulum()
    x, _ = env.reset(seed=0)
    drive(env, policy, 10, x)
    env.reset_adaptation()
    *_, info = env.step(policy(x))
    assert not info["windward"]["correction"].any()
    assert info["windward"]["noise"].any()


def test_same_seed_same_floats():
    first = ran(pendulum(seed=7), 40)
    assert_same(first, ran(pendulum(seed=7), 40))
    other = ran(pendulum(seed=8), 40)
    assert all((a["noise"] != b["noise"]).all() for a, b in zip(first, other, strict=True))


def test_global_generator_is_left_alone():
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()  # noqa: NPY002
    first = ran(pendulum(), 20)
    after = np.random.get_state()  # noqa: NPY002
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    np.random.seed(2)  # noqa: NPY002
    assert_same(first, ran(pendulum(), 20))


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, None, "a"])
def test_seeds_that_are_none(seed):
    with pytest.raises(ValueError, match="seed"):
        pendulum(seed=seed)


def test_reset_in_the_middle_cuts_the_windows():
    """The correction after it knows nothing of before, and M is kept."""
    env = pendulum(M0=np.full((3, 1, 2), 0.3))
    x, _ = env.reset(seed=0)
    told, _ = drive(env, policy, 10, x)
    assert told[-1]["correction"].any()
    M = env.M.copy()
    x, _ = env.reset()
    np.testing.assert_array_equal(env.M, M)
    x, *_, info = env.step(policy(x))
    assert not info["windward"]["correction"].any()
    w_hat = info["windward"]["w_hat"]
    _, *_, info = env.step(policy(x))
    np.testing.assert_allclose(info["windward"]["correction"], M[0] @ w_hat, rtol=0.05)


def test_reset_after_reset_changes_nothing():
    env, other = pendulum(), pendulum()
    env.reset(seed=3)
    env.reset(seed=4)
    assert_same(ran(env), ran(other))


def test_environments_that_reuse_their_array():
    """Some write every observation into one array; x_t must still be x_t."""
    plain, reused = (Plant(wind(50), reuse=reuse) for reuse in (False, True))
    told = []
    for plant in (plain, reused):
        env = ww.RobustWrapper(plant, true_w, **SETTINGS)
        x, _ = env.reset()
        told.append(drive(env, lambda x: np.zeros(1), 20, x)[0])
    for a, b in zip(*told, strict=True):
        np.testing.assert_array_equal(a["w_hat"], b["w_hat"])


def test_agents_that_write_into_observations():
    """A normalising agent may; what the wrapper saw stays what it was."""
    env = ww.RobustWrapper(Plant(wind(50)), true_w, **SETTINGS)
    x, _ = env.reset()
    for t in range(5):
        x *= 100.0
        x, *_, info = env.step(np.zeros(1))
        np.testing.assert_allclose(info["windward"]["w_hat"], wind(50)[t], atol=1e-6)


def test_step_before_reset():
    with pytest.raises(gym.error.ResetNeeded):
        pendulum().step(np.zeros(1, np.float32))


@pytest.mark.parametrize(
    "reward", [1, True, np.float32(1), np.bool_(True), np.uint8(1), np.array(1.0)], ids=repr
)
def test_rewards_of_any_number_type(reward):
    """Gymnasium asks for something that float() takes."""

    class Paying(Plant):
        def step(self, action):
            x, _, *rest = super().step(action)
            return x, reward, *rest

    moved = []
    for make in (Paying, Plant):
        env = ww.RobustWrapper(make(wind(50)), true_w, **SETTINGS)
        if make is Plant:  # the same reward as a plain float
            env = ww.RobustWrapper(
                gym.wrappers.TransformReward(Plant(wind(50)), lambda r: 1.0), true_w, **SETTINGS
            )
        x, _ = env.reset()
        drive(env, lambda x: np.zeros(1), 6, x)
        assert not env.faults
        moved.append(env.M)
    assert moved[0].any()
    np.testing.assert_allclose(moved[0], moved[1], rtol=1e-6)
