"""Models of Stable-Baselines3 and SBX, trained for a moment, run and learn in the layer."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest

import windward as ww

pytest.importorskip("stable_baselines3")
pytest.importorskip("sbx")
import sbx
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecMonitor, VecNormalize

from windward.adapt.sb3 import AtRolloutEnd, ExecutedReplayBuffer, RobustVecEnv

OFF = {"buffer_size": 500, "learning_starts": 20, "batch_size": 16, "train_freq": 4, "gamma": 0.9}
ON = {"n_steps": 32, "gamma": 0.9}
SMALL = {"device": "cpu", "seed": 0}
QUICK = {
    "h": 2, "eta": 1e-3, "sigma": 0.2, "seed": 1, "every_steps": 5, "learner": "mf-gpc",
    "guard": False,
}  # fmt: skip
CONTINUOUS = ["sb3.PPO", "sb3.SAC", "sb3.TD3", "sbx.TD3"]
DISCRETE = ["sb3.PPO", "sb3.A2C", "sb3.DQN"]


class Noted(gym.Wrapper):
    """Remembers what it was made to do."""

    see_through = True

    def __init__(self, env):
        super().__init__(env)
        self.executed = []

    def step(self, action):
        self.executed.append(np.array(action))
        return self.env.step(action)


def pendulum():
    windy = "windward/SinePendulum-v0"
    return Noted(gym.make(windy, pendulum="Pendulum", period=20.0, max_episode_steps=30))


def cart():
    return Noted(gym.make("windward/WindyCartPole-v0", max_episode_steps=30))


def make(name, env, **more):
    library, _, algorithm = name.partition(".")
    of = getattr({"sb3": sb3, "sbx": sbx}[library], algorithm)
    given = {**SMALL, **(ON if algorithm in ("PPO", "A2C") else OFF)}
    if algorithm == "PPO":
        given |= {"batch_size": 16, "n_epochs": 1}
    # A dictionary of its own: the models write into it.
    return of("MlpPolicy", env, policy_kwargs={"net_arch": [16, 16]}, **{**given, **more})


@pytest.fixture(scope="module")
def continuous():
    return {name: make(name, pendulum()).learn(120) for name in CONTINUOUS}


@pytest.fixture(scope="module")
def discrete():
    return {name: make(name, cart()).learn(120) for name in DISCRETE}


def assert_adapts(env, model, **more):
    """Runs some episodes; M must move and nothing go wrong."""
    mean, _ = evaluate_policy(model, env, n_eval_episodes=2, **more)
    assert np.isfinite(mean)
    of = partial(getattr, env) if isinstance(env, VecEnv) else env.get_wrapper_attr
    assert np.isfinite(of("M")).all()
    assert np.abs(of("M")).max() > 0
    assert of("faults") == {}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_models_run_in_the_wrapper(continuous, name):
    env = ww.RobustWrapper(pendulum(), signal="pd3", **QUICK)
    assert_adapts(Monitor(env), continuous[name])


def test_the_wrapper_may_be_outside_of_monitor(continuous):
    env = ww.RobustWrapper(Monitor(pendulum()), signal="pd3", **QUICK)
    assert_adapts(env, continuous["sb3.SAC"])


def test_models_run_in_the_vector_form(continuous):
    for make_one, outside in [(pendulum, VecMonitor), (lambda: Monitor(pendulum()), None)]:
        venv = RobustVecEnv(DummyVecEnv([make_one] * 2), "pd3", **QUICK)
        assert_adapts(outside(venv) if outside else venv, continuous["sb3.SAC"])


@pytest.mark.parametrize("name", ["sb3.SAC", "sb3.TD3", "sbx.TD3"])
def test_pd1_from_critics(continuous, name):
    env = ww.RobustWrapper(pendulum(), "pd1", model=continuous[name], **QUICK)
    assert_adapts(env, continuous[name], warn=False)
    assert env.signal == "pd1"


def test_pd2_from_fitted_values(continuous):
    model = continuous["sb3.PPO"]
    few = {"steps": 200, "updates": 500, "widths": (16,), "gamma": 0.9}
    values = ww.fit_values(pendulum(), model, **few)
    env = ww.RobustWrapper(pendulum(), "pd2", model=values, **QUICK)
    assert_adapts(env, model, warn=False)


@pytest.mark.parametrize("name", DISCRETE)
def test_logits_of_models(discrete, name):
    env = ww.RobustWrapper(
        cart(), "pd3", logits=discrete[name], h=2, eta=0.01, learner="mf-gpc", guard=False
    )
    assert_adapts(env, discrete[name], warn=False)


@pytest.mark.parametrize("name", ["sb3.PPO", "sb3.DQN"])
def test_a_model_gives_its_logits_itself(discrete, name):
    """In the wrapper and in a loop of one's own: the same actions as with logits= said."""
    model, options = discrete[name], {"learner": "mf-gpc", "guard": False, "h": 2, "seed": 4}
    runs = []
    for given in ({"model": model}, {"model": model, "logits": model}):
        env = ww.RobustWrapper(cart(), "pd3", eta=0.5, **given, **options)
        x, _ = env.reset(seed=0)
        for t in range(8):
            x = env.step(t % 2)[0]
        assert env.M.any()
        assert env.faults == {}
        runs.append(env.env.executed)
    np.testing.assert_array_equal(*runs)
    policy = ww.robustify(model, cart(), "pd3", eta=0.5, **options)
    world = cart()
    x, _ = world.reset(seed=0)
    for _ in range(8):
        action, _ = policy.predict(x)
        x, *outcome, _ = world.step(action)
        policy.observe(outcome[0], x, *outcome[1:])
    assert policy.M.any()
    assert policy.faults == {}


def test_pd1_from_a_table(discrete):
    model = discrete["sb3.DQN"]
    env = ww.RobustWrapper(
        cart(), "pd1", model=model, logits=model, h=2, eta=0.01, learner="mf-gpc", guard=False
    )
    assert_adapts(env, model, warn=False)


def learn_in(model, env, steps):
    model.set_env(env)
    model.get_env().seed(0)  # the model's own seed went to the environment before
    model.learn(steps)


def replayed(model, n):
    """The actions of a model's replay, in the environment's units."""
    stored = model.replay_buffer.actions[:n].reshape(n, -1)
    if isinstance(model.action_space, gym.spaces.Box):
        assert np.abs(stored).max() <= 1
        return model.policy.unscale_action(stored)
    return stored


NOISE = {"action_noise": NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))}


@pytest.mark.parametrize(
    ("name", "signal"),
    [
        ("sb3.TD3", "pd3"),
        ("sb3.SAC", "pd1"),
        ("sb3.DDPG", "pd3"),
        ("sbx.TD3", "pd1"),
    ],
)
def test_off_policy_models_learn_from_what_was_executed(name, signal):
    inner = pendulum()
    more = {} if name == "sb3.SAC" else NOISE
    model = make(name, inner, replay_buffer_class=ExecutedReplayBuffer, **more)
    env = ww.RobustWrapper(inner, signal, model=model, **QUICK)
    learn_in(model, env, 100)
    executed = np.array(inner.executed)
    assert len(executed) == 100
    np.testing.assert_allclose(replayed(model, 100), executed, atol=1e-5)
    assert np.abs(env.M).max() > 0
    assert np.isfinite(env.M).all()
    assert env.faults == {}
    assert np.isfinite(model.predict(np.zeros((1, 3), np.float32))[0]).all()


def test_a_table_learns_from_what_was_executed():
    inner = cart()
    model = make("sb3.DQN", inner, replay_buffer_class=ExecutedReplayBuffer)
    # ŵ = 1 and an M that pulls to the left.
    M0 = np.array([[[3.0], [-3.0]]])
    env = ww.RobustWrapper(
        inner,
        lambda *step: np.ones(1),
        logits=model,
        h=1,
        eta=1e-3,
        M0=M0,
        learner="mf-gpc",
        guard=False,
    )
    agent = Noted(env)
    learn_in(model, agent, 152)
    np.testing.assert_array_equal(replayed(model, 152)[:, 0], inner.executed)
    assert (np.array(inner.executed) < np.array(agent.executed)).any()
    assert np.abs(env.M - M0).max() > 0


def test_on_policy_models_keep_their_own_actions():
    inner = pendulum()
    env = ww.RobustWrapper(inner, "pd3", **{**QUICK, "every_steps": 1}, every_episodes="told")
    agent = Noted(env)
    model = make("sb3.PPO", agent)
    model.learn(96, callback=AtRolloutEnd())
    own = np.clip(model.rollout_buffer.actions.reshape(32, 1), -2, 2)
    np.testing.assert_array_equal(own, agent.executed[-32:])
    assert (own != inner.executed[-32:]).mean() > 0.5
    assert np.abs(env.M).max() > 0


def test_models_learn_in_the_vector_form_under_vec_normalize():
    inner = DummyVecEnv([pendulum, pendulum])
    layer = RobustVecEnv(inner, "pd3", **QUICK)
    venv = VecNormalize(VecMonitor(layer), gamma=0.9)
    model = make("sb3.TD3", venv, replay_buffer_class=ExecutedReplayBuffer, **NOISE)
    model.learn(120)
    executed = np.stack([np.array(env.executed) for env in inner.envs], axis=1)
    stored = model.replay_buffer.actions[:60] * 2
    np.testing.assert_allclose(stored, executed, atol=1e-5)
    # What is stored is the environment's own; scales are applied when it is sampled.
    seen = model.replay_buffer.observations[:60]
    np.testing.assert_allclose(np.hypot(seen[..., 0], seen[..., 1]), 1, rtol=1e-5)
    assert model.replay_buffer.rewards[:60].min() < -1
    sampled = model.replay_buffer.sample(16, env=venv).rewards.numpy()
    assert np.isin(sampled, venv.normalize_reward(model.replay_buffer.rewards[:60])).all()
    assert np.abs(layer.M).max() > 0


def test_pd1_has_the_statistics_of_vec_normalize():
    inside = DummyVecEnv([pendulum])
    model = make("sb3.SAC", VecNormalize(inside, gamma=0.9)).learn(150)
    trained = model.get_vec_normalize_env()
    env = ww.RobustWrapper(pendulum(), "pd1", model=model, **QUICK)
    venv = VecNormalize(DummyVecEnv([lambda: env]), gamma=0.9)
    venv.obs_rms, venv.ret_rms = trained.obs_rms, trained.ret_rms
    venv.training = False
    model.set_env(venv)
    x = venv.reset()

    def value(x, u):
        """The networks' own Q at scaled observations, in units of reward."""
        with torch.no_grad():
            both = model.critic(torch.tensor(x), torch.tensor(u / 2))
        return float(torch.cat(both, dim=1).min()) * np.sqrt(venv.ret_rms.var + venv.epsilon)

    for _ in range(10):
        base = model.predict(x, deterministic=True)[0]
        x_next, _, _, infos = venv.step(base)
        told = infos[0]["windward"]
        V = value(x_next, model.predict(x_next, deterministic=True)[0])
        td = -venv.get_original_reward()[0] - 0.9 * V + value(x, told["action"][None])
        np.testing.assert_allclose(told["w_hat"], td * told["noise"] / 0.04, rtol=1e-2, atol=1e-2)
        x = x_next
    assert abs(venv.obs_rms.mean[2]) > 1e-3
    with pytest.raises(ValueError, match="put the layer inside"):
        RobustVecEnv(venv, "pd1", model=model, learner="mf-gpc", guard=False)


def test_policies_that_adapt_are_evaluated_too(continuous):
    model = continuous["sb3.SAC"]
    env = Monitor(pendulum())
    policy = ww.robustify(model, env, "pd3", live=True, **QUICK)
    mean, _ = evaluate_policy(policy, env, n_eval_episodes=2)
    assert np.isfinite(mean)
    assert policy.last is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sbx.SAC", "sbx.DDPG", "sbx.TQC", "sbx.DQN"])
def test_all_of_sbx_learns_from_what_was_executed(name):
    table = name == "sbx.DQN"
    inner = cart() if table else pendulum()
    model = make(name, inner, replay_buffer_class=ExecutedReplayBuffer)
    logits = (
        {"logits": model, "h": 2, "eta": 1.0, "learner": "mf-gpc", "guard": False}
        if table
        else QUICK
    )
    env = ww.RobustWrapper(inner, "pd1", model=model, **logits)
    learn_in(model, env, 200)
    np.testing.assert_allclose(
        replayed(model, 200).ravel(), np.array(inner.executed).ravel(), atol=1e-5
    )
    assert np.abs(env.M).max() > 0
    assert env.faults == {}
