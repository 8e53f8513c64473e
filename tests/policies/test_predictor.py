"""Base policies of any make give the same rows of actions."""

import pickle
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from windward.agents import D4PG
from windward.policies.predictor import logits_of, predictor

BOX = gym.spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([3.0, 2.0], np.float32))
K = np.array([[0.5, -0.2], [0.1, 0.3], [0.0, 1.0]])
X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
WANTED = np.clip(X @ K, BOX.low, BOX.high)  # as it is executed


class Tiny(gym.Env):
    """Three numbers seen, two acted with, or one of three actions."""

    def __init__(self, action_space=BOX):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.normal(size=3).astype(np.float32)
        return self.x, {}

    def step(self, action):
        self.x = (0.9 * self.x + 0.1 * self.np_random.normal(size=3)).astype(np.float32)
        reward = 50.0 - float(self.x @ self.x) - float(np.sum(action))
        return self.x, reward, False, bool(self.np_random.random() < 0.1), {}


DISCRETE = gym.spaces.Discrete(3)


class Rows:
    """As Stable-Baselines3 has it: one observation or rows."""

    calls = 0

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.calls += 1
        return observation @ K, state


class Single:
    """Takes one observation only."""

    def __init__(self, gain):
        self.gain = gain

    def predict(self, observation, deterministic):
        return self.gain @ observation, None


class Gives:
    def __init__(self, found):
        self.found = found

    def predict(self, observation, deterministic=False):
        return self.found


def test_all_makes_agree():
    expected = WANTED.astype(np.float32)
    for policy in (Rows(), Single(K.T), lambda x: x @ K):
        pi = predictor(policy, BOX)
        for n in (1, 3, 6, 1, 0):
            rows = pi(X[:n])
            assert rows.shape == (n, 2)
            assert rows.dtype == np.float32
            np.testing.assert_allclose(rows, expected[:n], rtol=1e-6)


def test_a_square_of_rows_does_not_pass_for_rows():
    # gain @ rows has the right shape and the wrong numbers.
    gain = np.arange(9.0).reshape(3, 3)
    pi = predictor(Single(gain), gym.spaces.Box(-99.0, 99.0, (3,)))
    np.testing.assert_allclose(pi(X[:3]), X[:3] @ gain.T, rtol=1e-5)


def test_rows_are_one_call_once_they_are_known_to_work():
    policy = Rows()
    pi = predictor(policy, BOX)
    pi(X)
    policy.calls = 0
    pi(X)
    assert policy.calls == 1


def test_discrete_actions():
    space = gym.spaces.Discrete(3, start=1)
    rows = predictor(lambda x: 1 + int(x[0] > 0), space)(X)
    np.testing.assert_array_equal(rows, 1 + (X[:, 0] > 0))
    assert rows.dtype == np.int64


def test_a_predictor_can_be_sent_to_a_process():
    pi = pickle.loads(pickle.dumps(predictor(Rows(), BOX)))
    np.testing.assert_allclose(pi(X), WANTED, rtol=1e-6)


def test_our_own_agent():
    agent = D4PG(Tiny, widths=(8,), seed=0)
    np.testing.assert_allclose(
        predictor(agent, BOX)(X), agent.predict(X, deterministic=True)[0], rtol=1e-5
    )
    assert logits_of(agent) is None


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        (3, "got int: 3"),
        (None, "got NoneType: None"),
        (Rows, "the class Rows"),
        (lambda: 0, "observation"),
        (lambda x, y: 0, "'y'"),
        (type("Odd", (), {"predict": lambda self, x: (x, None)})(), "Odd.predict must be callable"),
    ],
)
def test_what_is_no_policy_is_refused_at_once(policy, named):
    with pytest.raises(ValueError, match=named):
        predictor(policy, BOX)


@pytest.mark.parametrize(
    ("policy", "space", "named"),
    [
        (lambda x: x, BOX, r"shape \(2,\).*got \(3,\)"),
        (lambda x: "left", BOX, "must be an array of numbers; got str"),
        (lambda x: None, BOX, "got NoneType"),
        (lambda x: np.array([0.0, np.nan]), BOX, r"must be finite.*\[1\] is nan"),
        (lambda x: 3, DISCRETE, r"Discrete\(3\); got 3"),
        (lambda x: 0.5, DISCRETE, "got 0.5"),
        (lambda x: [1], DISCRETE, r"got \(1,\)"),
        (Gives(np.zeros(2)), BOX, r"Gives.predict must give \(action, state\)"),
        (Gives((np.zeros(2), (np.zeros(4),))), BOX, "Gives is a recurrent policy.*tuple"),
        (Gives((np.zeros(5), None)), BOX, "the action of Gives must have shape"),
    ],
)
@pytest.mark.parametrize("n", [1, 4])
def test_bad_actions_are_named(policy, space, named, n):
    with pytest.raises(ValueError, match=named):
        predictor(policy, space)(X[:n])


def test_spaces_without_actions_of_ours():
    with pytest.raises(ValueError, match="MultiBinary"):
        predictor(lambda x: x, gym.spaces.MultiBinary(2))
    with pytest.raises(ValueError, match="rows; got 3"):
        predictor(lambda x: x, BOX)(3)


class Softmax:
    def logits(self, rows):
        return rows @ K


def test_logits_of_ones_own():
    np.testing.assert_allclose(logits_of(Softmax())(X), X @ K, rtol=1e-6)
    for other in (lambda x: x, Rows(), Softmax, None):
        assert logits_of(other) is None


@pytest.mark.parametrize(
    ("found", "named"),
    [(X[:2], "6 observations; got 2"), (X[0], "2 dimension"), (X * np.inf, "must be finite")],
)
def test_bad_logits_are_named(found, named):
    policy = Softmax()
    policy.logits = lambda rows: found
    with pytest.raises(ValueError, match=f"logits of Softmax.*{named}"):
        logits_of(policy)(X)


def test_a_function_needs_no_torch():
    code = """
import sys
import gymnasium as gym
import numpy as np
from windward.policies.predictor import logits_of, predictor

policy = lambda x: x[:1]
assert predictor(policy, gym.spaces.Box(-1, 1, (1,)))(np.zeros((2, 3))).shape == (2, 1)
assert logits_of(policy) is None
print(sorted({"torch", "stable_baselines3", "sbx"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("algorithm", ["PPO", "A2C"])
def test_logits_of_stable_baselines3(algorithm):
    sb3, torch = pytest.importorskip("stable_baselines3"), pytest.importorskip("torch")
    model = getattr(sb3, algorithm)("MlpPolicy", Tiny(DISCRETE), device="cpu", seed=0)
    with torch.no_grad():
        expected = model.policy.get_distribution(torch.tensor(X)).distribution.logits.numpy()
    logits = logits_of(model)(X)
    np.testing.assert_allclose(logits, expected, rtol=1e-6)
    np.testing.assert_array_equal(predictor(model, DISCRETE)(X), logits.argmax(axis=1))
    model = getattr(sb3, algorithm)("MlpPolicy", Tiny(), device="cpu", _init_setup_model=False)
    assert logits_of(model) is None


def test_logits_of_sbx():
    sbx = pytest.importorskip("sbx")
    model = sbx.PPO("MlpPolicy", Tiny(DISCRETE), seed=0, policy_kwargs={"net_arch": [16]})
    state = model.policy.actor_state
    logits = logits_of(model)(X)
    np.testing.assert_allclose(logits, state.apply_fn(state.params, X).logits, atol=1e-6)
    np.testing.assert_array_equal(predictor(model, DISCRETE)(X), logits.argmax(axis=1))
    for other in (
        sbx.PPO("MlpPolicy", Tiny(), _init_setup_model=False),
        sbx.DQN("MlpPolicy", Tiny(DISCRETE), _init_setup_model=False),
    ):
        assert logits_of(other) is None
