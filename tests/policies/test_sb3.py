"""Critics read from Stable-Baselines3 and SBX are the library's own, in the environment's units."""

import gymnasium as gym
import numpy as np
import pytest

from tests.policies.test_predictor import BOX, DISCRETE, Tiny, X
from windward.agents import D4PG
from windward.policies.critics import NetworkCritic
from windward.policies.predictor import predictor
from windward.policies.sb3 import critic_of, library_of

torch = pytest.importorskip("torch")
sb3 = pytest.importorskip("stable_baselines3")
sbx = pytest.importorskip("sbx")
jax = pytest.importorskip("jax")
jnp = jax.numpy

CONTINUOUS = ["sb3.DDPG", "sb3.TD3", "sb3.SAC", "sbx.DDPG", "sbx.TD3", "sbx.SAC", "sbx.TQC"]
TABLES = ["sb3.DQN", "sbx.DQN"]
U = np.random.default_rng(1).uniform(BOX.low, BOX.high, (6, 2)).astype(np.float32)
CODED = 2 * (U - BOX.low) / (BOX.high - BOX.low) - 1
INDEX = np.array([0, 1, 2, 2, 1, 0])
SMALL = {"buffer_size": 200, "learning_starts": 20, "batch_size": 16, "seed": 0, "gamma": 0.9}


def make(name, env=None, **policy_kwargs):
    """A small model with smooth networks, so that finite differences are fair."""
    library, _, algorithm = name.partition(".")
    smooth = torch.nn.Tanh if library == "sb3" else jnp.tanh
    chosen = {"net_arch": [16, 16], "activation_fn": smooth} | policy_kwargs
    env = env or Tiny(DISCRETE if algorithm == "DQN" else BOX)
    module = {"sb3": sb3, "sbx": sbx}[library]
    return getattr(module, algorithm)("MlpPolicy", env, policy_kwargs=chosen, device="cpu", **SMALL)


@pytest.fixture(scope="module")
def models():
    return {name: make(name) for name in CONTINUOUS + TABLES}


def by_hand(model, name, x, u):
    """Q as the library's own training computes it; u scaled to [-1, 1], or an index."""
    policy = model.policy
    if name == "sb3.DQN":
        with torch.no_grad():
            return policy.q_net(torch.tensor(x)).numpy()[np.arange(len(x)), u]
    if name == "sbx.DQN":
        state = policy.qf_state
        return np.asarray(state.apply_fn(state.params, x))[np.arange(len(x)), u]
    if name.startswith("sb3"):
        with torch.no_grad():
            both = model.critic(torch.tensor(x), torch.tensor(u))
        return torch.cat(both, dim=1).numpy().min(axis=1)
    if name == "sbx.TQC":
        each = [s.apply_fn(s.params, x, u) for s in (policy.qf1_state, policy.qf2_state)]
        return np.concatenate(each, axis=1).mean(axis=1)
    state = policy.qf_state
    return np.asarray(state.apply_fn(state.params, x, u)).min(axis=0)[:, 0]


def differences(f, at, step=1e-2):
    """Central differences of a function of rows, one coordinate at a time."""
    columns = []
    for j in range(at.shape[1]):
        push = np.zeros_like(at)
        push[:, j] = step
        columns.append((f(at + push) - f(at - push)) / (2 * step))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("name", CONTINUOUS + TABLES)
def test_values_are_the_librarys(models, name):
    model, discrete = models[name], name in TABLES
    critic = critic_of(model)
    Q = critic.Q(X, INDEX if discrete else U)
    assert Q.shape == (6,)
    np.testing.assert_allclose(
        Q, by_hand(model, name, X, INDEX if discrete else CODED), rtol=1e-4, atol=1e-5
    )
    assert np.ptp(Q) > 1e-3
    acted = model.predict(X, deterministic=True)[0]
    np.testing.assert_allclose(critic.V(X), critic.Q(X, acted), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(predictor(model, model.action_space)(X), acted)
    assert critic.gamma == 0.9


@pytest.mark.parametrize("name", CONTINUOUS)
def test_gradients_are_those_of_the_values(models, name):
    critic = critic_of(models[name])
    near = {"rtol": 0.02, "atol": 2e-4}
    slope = critic.grad_Q(X, U)
    np.testing.assert_allclose(slope, differences(lambda u: critic.Q(X, u), U), **near)
    np.testing.assert_allclose(critic.grad_V(X), differences(critic.V, X), **near)
    assert slope.shape == (6, 2)
    assert np.abs(slope).max() > 0.02


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_a_gradient_in_x_alone(models, name):
    critic = critic_of(models[name])
    np.testing.assert_allclose(critic.grad_V(X), differences(critic.V, X), rtol=0.02, atol=2e-4)
    np.testing.assert_allclose(
        critic.V(X), np.max([critic.Q(X, np.full(6, a)) for a in range(3)], axis=0)
    )
    with pytest.raises(ValueError, match="actions are discrete"):
        critic.grad_Q(X, INDEX)
    with pytest.raises(ValueError, match="integers from 0 to 2"):
        critic.Q(X, INDEX + 1)
    with pytest.raises(ValueError, match="integers from 0 to 2"):
        critic.Q(X, INDEX + 0.5)


@pytest.mark.parametrize("name", ["sb3.TD3", "sb3.DQN"])
def test_a_critic_follows_its_model(name):
    model = make(name)
    critic = critic_of(model)
    before = critic.V(X)
    model.learn(40)
    acted = model.predict(X, deterministic=True)[0]
    coded = acted if name in TABLES else 2 * (acted - BOX.low) / (BOX.high - BOX.low) - 1
    assert np.abs(critic.V(X) - before).max() > 1e-3
    np.testing.assert_allclose(critic.V(X), by_hand(model, name, X, coded), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["sbx.TD3", "sbx.TQC", "sbx.DQN"])
def test_a_critic_follows_new_parameters(models, monkeypatch, name):
    # SBX learns by putting a new state in the policy's place; to compile its learning takes long.
    policy, critic = models[name].policy, critic_of(models[name])
    before = critic.V(X)
    for state in ("actor_state", "qf_state", "qf1_state", "qf2_state"):
        if hasattr(policy, state):
            old = getattr(policy, state)
            scaled = jax.tree.map(lambda leaf: 1.5 * leaf, old.params)
            monkeypatch.setattr(policy, state, old.replace(params=scaled))
    acted = models[name].predict(X, deterministic=True)[0]
    assert np.abs(critic.V(X) - before).max() > 1e-3
    np.testing.assert_allclose(critic.V(X), critic.Q(X, acted), rtol=1e-4, atol=1e-5)


def test_gradients_pass_through_shared_features():
    # A column, so that features are another tensor than the observation.
    env = Tiny()
    env.observation_space = gym.spaces.Box(-np.inf, np.inf, (3, 1), np.float32)
    critic = critic_of(make("sb3.SAC", env, share_features_extractor=True))
    np.testing.assert_allclose(critic.grad_V(X), differences(critic.V, X), rtol=0.02, atol=2e-4)
    with torch.no_grad():
        again = critic.grad_V(X)
    np.testing.assert_array_equal(again, critic.grad_V(X))


def test_dropout_is_left_out():
    critic = critic_of(make("sbx.SAC", dropout_rate=0.5, layer_norm=True))
    np.testing.assert_array_equal(critic.Q(X, U), critic.Q(X, U))
    np.testing.assert_allclose(critic.grad_V(X), differences(critic.V, X), rtol=0.02, atol=2e-4)


@pytest.mark.parametrize("name", ["sb3.TD3", "sbx.SAC"])
def test_the_environments_units_under_vec_normalize(name):
    vec = sb3.common.vec_env.VecNormalize(
        sb3.common.vec_env.DummyVecEnv([Tiny]), clip_obs=2.0, gamma=0.9
    )
    model = make(name, vec)
    vec.obs_rms.mean, vec.obs_rms.var = np.array([0.5, 0.0, -1.0]), np.array([4.0, 0.25, 1.0])
    vec.ret_rms.var = 2500.0
    critic = critic_of(model)
    x = np.concatenate([X, [[0.0, 5.0, 0.0]]]).astype(np.float32)  # the last one is clipped
    seen = vec.normalize_obs(x)
    acted = predictor(model, BOX)(x)
    np.testing.assert_array_equal(acted, model.predict(seen, deterministic=True)[0])
    coded = 2 * (acted - BOX.low) / (BOX.high - BOX.low) - 1
    np.testing.assert_allclose(
        critic.V(x), 50.0 * by_hand(model, name, seen, coded), rtol=1e-3, atol=1e-3
    )
    clear = np.concatenate([X[np.abs(seen[:6]).max(axis=1) < 1.9], x[-1:]])
    assert len(clear) > 2
    np.testing.assert_allclose(
        critic.grad_V(clear), differences(critic.V, clear), rtol=0.03, atol=0.02
    )
    assert critic.grad_V(clear)[-1, 1] == 0.0
    slope = differences(lambda u: critic.Q(X, u), U)
    np.testing.assert_allclose(critic.grad_Q(X, U), slope, rtol=0.03, atol=0.02)


def test_observations_in_other_shapes(models):
    critic = critic_of(models["sb3.TD3"])
    np.testing.assert_allclose(critic.V(X[0]), critic.V(X[:1]))
    with pytest.raises(ValueError, match=r"shape \(3,\).*got \(6, 12\).*stacked"):
        critic.V(np.zeros((6, 12)))
    with pytest.raises(ValueError, match="got 4 for 6"):
        critic.Q(X, U[:4])


class Picture(Tiny):
    """Channels last, as cameras give them."""

    def __init__(self):
        super().__init__(DISCRETE)
        self.observation_space = gym.spaces.Box(0, 255, (36, 36, 2), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}


def test_gradients_of_pictures_are_in_the_order_of_their_pixels():
    model = sb3.DQN("CnnPolicy", Picture(), device="cpu", **SMALL)
    critic = critic_of(model)
    x = np.random.default_rng(0).integers(0, 256, (2, 36, 36, 2), dtype=np.uint8)
    acted = predictor(model, DISCRETE)(x)
    np.testing.assert_array_equal(acted, model.predict(x, deterministic=True)[0])
    np.testing.assert_allclose(critic.V(x), critic.Q(x, acted), rtol=1e-5)
    slope = critic.grad_V(x)
    assert slope.shape == (2, 36 * 36 * 2)
    # Along the gradient V grows with its square; along another order of pixels it would not.
    step = 2.0 / np.abs(slope).max(axis=1, keepdims=True)
    up, down = (x + (sign * step * slope).reshape(x.shape) for sign in (1, -1))
    np.testing.assert_allclose(
        critic.V(up) - critic.V(down), 2 * step[:, 0] * (slope**2).sum(axis=1), rtol=0.1
    )


def test_a_subclass_is_known_by_what_it_comes_from(models):
    class Mine(sb3.TD3):
        pass

    model = Mine("MlpPolicy", Tiny(), **SMALL)
    assert library_of(model) == ("stable_baselines3", "TD3")
    assert critic_of(model).V(X).shape == (6,)
    assert library_of(models["sbx.DDPG"]) == ("sbx", "DDPG")


def test_our_own_agent_brings_its_critic():
    agent = D4PG(Tiny, widths=(8,), seed=0)
    critic = critic_of(agent)
    assert isinstance(critic, NetworkCritic)
    np.testing.assert_array_equal(critic.V(X), agent.critic.V(X))


class DictTiny(Tiny):
    def __init__(self):
        super().__init__()
        self.observation_space = gym.spaces.Dict({"a": self.observation_space})


@pytest.mark.parametrize(
    ("algorithm", "named"),
    [
        (sb3.PPO, "PPO has learned V but no Q.*fit_values"),
        (sb3.A2C, "A2C has learned V but no Q.*fit_values"),
        (sbx.PPO, "PPO has learned V but no Q.*fit_values"),
        (sbx.CrossQ, "from CrossQ.*fit_values"),
    ],
)
def test_algorithms_without_a_readable_critic(algorithm, named):
    model = algorithm("MlpPolicy", Tiny(), device="cpu", _init_setup_model=False)
    with pytest.raises(ValueError, match=named):
        critic_of(model)


@pytest.mark.parametrize("other", [len, None, Tiny()])
def test_what_has_no_critic_is_refused(other):
    with pytest.raises(ValueError, match=f"from {type(other).__name__}.*fit_values"):
        critic_of(other)


def test_dictionaries_of_observations_are_refused():
    model = sb3.TD3("MultiInputPolicy", DictTiny(), device="cpu", **SMALL)
    with pytest.raises(ValueError, match="in a Box; TD3 takes Dict"):
        critic_of(model)
    with pytest.raises(ValueError, match="in a Box; TD3 takes Dict"):
        predictor(model, BOX)
