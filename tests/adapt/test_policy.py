"""robustify: predict and observe in a loop of one's own, in any order that makes sense."""

import inspect

import gymnasium as gym
import numpy as np
import pytest

import windward as ww

from .worlds import K, Plant, ScalarValues, VectorValues, assert_same, drive, true_w, wind

SETTINGS = {
    "h": 3, "every_steps": 2, "eta": 1e-2, "sigma": 0.1, "learner": "mf-gpc", "guard": False,
}  # fmt: skip


def robust(signal=true_w, plant=None, **settings):
    plant = plant or Plant(wind(200))
    return plant, ww.robustify(plant.base, plant, signal, **{**SETTINGS, **settings})


def loop(plant, policy, steps, x):
    """Predict, act, observe."""
    for _ in range(steps):
        action, _ = policy.predict(x)
        x, *outcome, _ = plant.step(action)
        policy.observe(outcome[0], x, *outcome[1:])
    return x


def test_equals_the_wrapper():
    inner = Plant(wind(100), length=7)
    env = ww.RobustWrapper(inner, true_w, **SETTINGS)
    x, _ = env.reset()
    told, _ = drive(env, inner.base, 40, x)

    plant, policy = robust(plant=Plant(wind(100), length=7))
    x, _ = plant.reset()
    again = []
    for _ in range(40):
        action, _ = policy.predict(x)
        x, reward, terminated, truncated, _ = plant.step(action)
        report = policy.observe(reward, x, terminated, truncated)
        one = {name: each[0] for name, each in report._asdict().items()}
        again.append({**one, "x": x, "reward": reward})
        if terminated or truncated:
            x, _ = plant.reset()
    assert_same(again, told)
    np.testing.assert_array_equal(policy.M, env.M)


def test_signature_is_that_of_stable_baselines():
    _, policy = robust()
    names = list(inspect.signature(policy.predict).parameters)
    assert names == ["observation", "state", "episode_start", "deterministic"]


def test_the_environment_is_not_stepped():
    env = gym.make("Pendulum-v1")
    policy = ww.robustify(lambda x: [0.0], env, "pd3", **SETTINGS)
    policy.predict(np.array([1.0, 0.0, 0.0], np.float32))
    policy.observe(-1.0, np.array([1.0, 0.1, 0.3], np.float32), False, False)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.zeros(1, np.float32))


@pytest.mark.parametrize("signal", ["pd2", "pd3"])
def test_predict_without_observe(signal):
    """ŵ and the correction stay current, M stays as it is."""
    model = ww.policies.load("Pendulum-v1")
    policies = [
        ww.robustify(model, gym.make("Pendulum-v1"), signal, M0=np.full((3, 1, d_w), 0.2),
                     **{**SETTINGS, "eta": eta})
        for d_w in [3 if signal == "pd2" else 2] for eta in (1e-2, 0.0)
    ]  # fmt: skip
    quiet, told = policies
    M = quiet.M.copy()
    inner = ww.envs.Disturbed(gym.make("Pendulum-v1"), ww.envs.Uniform(0.2), channel="qvel")
    x, _ = inner.reset(seed=0)
    moved = 0.0
    for _ in range(15):
        action, _ = quiet.predict(x)
        other, _ = told.predict(x)
        np.testing.assert_allclose(action, other, rtol=1e-6)  # with all told, and eta = 0
        x, reward, terminated, truncated, _ = inner.step(action)
        report = told.observe(reward, x, terminated, truncated)
        moved = max(moved, np.abs(report.correction).max())
        np.testing.assert_array_equal(quiet.M, M)
        if quiet.last is not None:
            assert quiet.last.w_hat.any()
    assert moved > 1e-3


def test_predict_without_observe_when_the_signal_needs_rewards():
    """PD1 cannot: nothing is made up, and nothing breaks."""
    plant, policy = robust(ww.PD1(ScalarValues()), M0=np.full((3, 1, 1), 0.2))
    x, _ = plant.reset()
    M = policy.M.copy()
    for _ in range(5):
        action, _ = policy.predict(x)
        x, *_ = plant.step(action)
    np.testing.assert_array_equal(policy.M, M)
    assert not policy.faults
    assert not policy.last.w_hat.any()
    loop(plant, policy, 5, x)
    assert (policy.M != M).any()


def test_returns_with_unknown_rewards_are_not_judged():
    M0 = np.full((3, 1, 2), 0.1)
    plant, policy = robust(ww.PD2(VectorValues()), Plant(wind(200), length=6), guard=True, M0=M0)
    returns = []
    for untold in ((), (2,), ()):
        x, _ = plant.reset()
        total = 0.0
        for t in range(6):
            action, _ = policy.predict(x)
            x, reward, *flags, _ = plant.step(action)
            total += reward
            if t not in untold:
                policy.observe(reward, x, *flags)
        returns.append(total)
    np.testing.assert_allclose(policy._runtime.learner.trials.adapted, [returns[0], returns[2]])


def test_online_values_do_not_learn_from_unknown_rewards():
    env = gym.make("Pendulum-v1")
    values = ww.fit_values(
        env, lambda x: [0.0], steps=50, updates=2, widths=(4,), online=True, seed=0
    )
    learned = []
    values.observe = lambda x, u, reward, x_next, ended: learned.append(reward)
    policy = ww.robustify(lambda x: [0.0], env, "pd2", values=values, **SETTINGS)
    x, _ = env.reset(seed=0)
    for _ in range(4):
        action, _ = policy.predict(x)
        x, reward, *_ = env.step(action)
    assert reward != 0
    assert 0.0 not in learned
    policy.observe(reward, x, False, False)
    assert learned == [reward]


def test_out_of_order():
    plant, policy = robust()
    x, _ = plant.reset()
    with pytest.raises(ValueError, match="predict first"):
        policy.observe(0.0, x, False, False)
    policy.predict(x)
    policy.observe(0.0, x, False, False)
    with pytest.raises(ValueError, match=r"predict first"):
        policy.observe(0.0, x, False, False)
    policy.predict(x)  # and it goes on
    policy.observe(0.0, x, False, False)


def test_an_outcome_that_does_not_fit_can_be_told_again():
    plant, policy = robust()
    x, _ = plant.reset()
    policy.predict(x)
    with pytest.raises(ValueError, match="shape"):
        policy.observe(0.0, np.zeros(5), False, False)
    with pytest.raises(ValueError, match="reward"):
        policy.observe([0.0, 1.0], x, False, False)
    with pytest.raises(ValueError, match="terminated"):
        policy.observe(0.0, x, [False, True], False)
    policy.observe(0.0, x, False, False)


def test_observations_that_do_not_fit():
    _, policy = robust()
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        policy.predict(np.zeros(3))


def test_one_array_reused_for_all_observations():
    """A robot's driver may hand out the same array each time."""
    plant, policy = robust(plant=Plant(wind(50), reuse=True))
    x, _ = plant.reset()
    for t in range(6):
        action, _ = policy.predict(x)
        x, reward, terminated, truncated, _ = plant.step(action)
        report = policy.observe(reward, x, terminated, truncated)
        np.testing.assert_allclose(report.w_hat[0], wind(50)[t], atol=1e-6)


def test_rows():
    """Two environments that share M, as one would with a vector environment of SB3."""
    plants = [Plant(wind(100, seed)) for seed in range(2)]

    class Model:
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            return -observation @ K.T, state

    policy = ww.robustify(Model(), plants[0], true_w, num_envs=2, **SETTINGS)
    x = np.stack([plant.reset()[0] for plant in plants])
    for t in range(10):
        action, _ = policy.predict(x)
        assert action.shape == (2, 1)
        out = [plant.step(u) for plant, u in zip(plants, action, strict=True)]
        x, reward, terminated, truncated = (np.array([each[i] for each in out]) for i in range(4))
        report = policy.observe(reward, x, terminated, truncated)
        np.testing.assert_allclose(
            report.w_hat, [wind(100, 0)[t], wind(100, 1)[t]], atol=1e-6
        )  # fmt: skip
    assert policy.M.any()
    with pytest.raises(ValueError, match="shape"):
        policy.predict(x[0])


def test_rows_of_one():
    """A batch of one gives a batch of one back."""
    plant, policy = robust()
    x, _ = plant.reset()
    action, _ = policy.predict(x[None])
    assert action.shape == (1, 1)


def test_episode_start_cuts_the_window():
    plant, policy = robust(M0=np.full((3, 1, 2), 0.5))
    x, _ = plant.reset()
    x = loop(plant, policy, 5, x)
    policy.predict(x)
    assert policy.observe(0.0, x, False, False).correction.any()
    x, _ = plant.reset()
    policy.predict(x, episode_start=np.array([True]))
    assert not policy.observe(0.0, x, False, False).correction.any()


def test_episode_start_after_an_open_step():
    """The step from an old episode into a new one is none: no ŵ comes of it."""
    plant, policy = robust(ww.PD2(VectorValues()), M0=np.full((3, 1, 2), 0.5))
    x, _ = plant.reset()
    x = loop(plant, policy, 5, x)
    policy.predict(x)
    policy.predict(x + 100.0, episode_start=np.array([True]))
    report = policy.observe(0.0, x + 100.0, False, False)
    assert not report.correction.any()


def test_saved_between_steps(tmp_path):
    plant, policy = robust()
    x, _ = plant.reset()
    x = loop(plant, policy, 10, x)
    policy.save(tmp_path / "state")
    at = plant.x.copy(), plant.t
    loop(plant, policy, 10, x)
    plant.x, plant.t = at
    _, other = robust(seed=9)
    other.load(tmp_path / "state")
    loop(plant, other, 10, x)
    np.testing.assert_array_equal(policy.M, other.M)
    policy.predict(x)
    with pytest.raises(ValueError, match="observe"):
        policy.save(tmp_path / "open")
