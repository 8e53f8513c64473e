"""Discrete actions: exact draws from softmax(logits + correction), and DMF-GPC by hand."""

import gymnasium as gym
import numpy as np
import pytest
import scipy.special
import scipy.stats

import windward as ww
from windward.adapt.actuation import gumbel_given

LOGITS = np.array([0.4, -0.7, 1.1, 0.0])
CORRECTION = np.array([1.0, 0.5, -2.0, 0.3])
N = 20_000


def chi_square(counts, p):
    """p-value of counts against probabilities; those of 0 must not occur."""
    assert not counts[p == 0].any()
    return scipy.stats.chisquare(counts[p > 0], counts.sum() * p[p > 0]).pvalue


def conditioned(logits, correction, n=N, seed=0):
    """Indices of an agent that draws from its softmax, and those with the correction."""
    rng = np.random.default_rng(seed)
    index = rng.choice(len(logits), size=n, p=scipy.special.softmax(logits))
    noisy = np.array([
        gumbel_given(logits, int(i), g)
        for i, g in zip(index, rng.gumbel(size=(n, len(logits))), strict=True)
    ])  # fmt: skip
    return index, noisy, (noisy + correction).argmax(axis=1)


def test_conditioned_noise_is_gumbel_noise():
    index, noisy, same = conditioned(LOGITS, 0.0)
    np.testing.assert_array_equal(same, index)
    for k in range(4):
        assert scipy.stats.kstest(noisy[:, k] - LOGITS[k], "gumbel_r").pvalue > 1e-3
    # Independent of each other, as Gumbel noise is.
    ranks = np.corrcoef(scipy.stats.rankdata(noisy, axis=0).T)
    assert np.abs(ranks - np.eye(4)).max() < 0.03


def test_corrected_argmax_is_an_exact_draw():
    _, _, acted = conditioned(LOGITS, CORRECTION)
    counts = np.bincount(acted, minlength=4)
    assert chi_square(counts, scipy.special.softmax(LOGITS + CORRECTION)) > 1e-3
    assert chi_square(counts, scipy.special.softmax(LOGITS)) < 1e-6  # the test can tell


def test_masked_actions_are_never_drawn():
    logits = np.array([0.4, -np.inf, 1.1, 0.0])
    _, noisy, acted = conditioned(logits, CORRECTION + np.array([0.0, 1e6, 0.0, 0.0]), 5_000)
    assert (noisy[:, 1] == -np.inf).all()
    p = scipy.special.softmax(logits + CORRECTION)
    assert chi_square(np.bincount(acted, minlength=4), p) > 1e-3


@pytest.mark.parametrize("scale", [1e-300, 1.0, 300.0, 1e5])
def test_conditioned_noise_keeps_the_agents_action(scale):
    """However far the logits are apart, and however unlikely the action was."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        logits = scale * rng.normal(size=5)
        index = int(rng.integers(5))
        assert gumbel_given(logits, index, rng.gumbel(size=5)).argmax() == index


class Chooser(gym.Env[np.ndarray, int]):
    """Tells its action in the reward; nothing else happens."""

    def __init__(self, n: int = 4, start: int = 0) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(n, start=start)
        self.acted: list[int] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.acted.append(int(action))
        return np.zeros(1, np.float32), float(action), False, False, {}


def constant(logits):
    return lambda x: np.tile(logits, (len(x), 1))


def one(x, u, reward, x_next):
    return [1.0]


def corrected(env, correction):
    """M that adds a constant, as ŵ is always 1; frozen."""
    env.M = np.reshape(correction, env.M.shape)
    env.freeze()
    env.reset(seed=0)
    env.step(env.action_space.start)
    env.unwrapped.acted.clear()


@pytest.mark.parametrize(
    ("start", "logits"),
    [(0, LOGITS), (3, np.where([0, 1, 0, 0], -np.inf, LOGITS))],
    ids=["all", "masked and from 3"],
)
def test_executed_actions_are_exact_draws(start, logits):
    inner = Chooser(start=start)
    env = ww.RobustWrapper(
        inner, one, logits=constant(logits), h=1, eta=0.01, learner="mf-gpc", guard=False
    )
    corrected(env, CORRECTION)
    rng = np.random.default_rng(2)
    for u in start + rng.choice(4, size=2500, p=scipy.special.softmax(logits)):
        *_, info = env.step(int(u))
        assert info["windward"]["action"] == inner.acted[-1]
    counts = np.bincount(np.array(inner.acted) - start, minlength=4)
    assert chi_square(counts, scipy.special.softmax(logits + CORRECTION)) > 1e-3
    assert not env.faults


@pytest.mark.parametrize("start", [0, 3, -2])
def test_without_a_correction_it_is_the_agents_own_action(start):
    inner = Chooser(start=start)
    env = ww.RobustWrapper(inner, one, logits=constant(LOGITS), h=1)
    env.freeze()
    env.reset(seed=0)
    rng = np.random.default_rng(3)
    given = (start + rng.integers(4, size=200)).tolist()
    for u in given:
        env.step(u)
    assert inner.acted == given


def test_dmf_gpc_by_hand(x64):
    """M^{t+1} = M^t - η c_t Σ_j ∇log π(u_{t-j}), scores at the M that drew (deviation 5)."""
    h, eta = 2, 0.05
    rng = np.random.default_rng(4)
    table = rng.normal(size=(10, 3))
    clock = {"t": 0}

    def own(x, u, reward, x_next):
        return [1.0 + 0.5 * u, reward]

    def logits(x):
        return table[clock["t"]][None]

    M = 0.3 * rng.normal(size=(h, 3, 2))
    inner = Chooser(3)
    env = ww.RobustWrapper(
        inner,
        own,
        logits=logits,
        h=h,
        eta=eta,
        M0=M,
        projection=None,
        learner="mf-gpc",
        guard=False,
    )
    env.reset(seed=0)
    w_hist, scores = np.zeros((h, 2)), [np.zeros_like(M)] * h
    for t in range(8):
        clock["t"] = t
        *_, reward, _, _, info = env.step(int(rng.integers(3)))
        u = int(info["windward"]["action"])
        residual = np.einsum("iuw,iw->u", M, w_hist)
        np.testing.assert_allclose(info["windward"]["correction"], residual, rtol=1e-9, atol=1e-12)
        score = np.eye(3)[u] - scipy.special.softmax(table[t] + residual)
        scores = [score[None, :, None] * w_hist[:, None, :], *scores[:-1]]
        M = M - eta * -reward * sum(scores)
        w_hist = np.stack([own(None, u, reward, None), *w_hist[:-1]])
        np.testing.assert_allclose(env.M, M, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("preset", [None, "paper"])
def test_masked_logits_in_a_file(preset, tmp_path):
    """A mask is -inf, and no damage."""
    logits = np.where([0, 1, 0, 0], -np.inf, LOGITS)
    made = [
        ww.RobustWrapper(
            Chooser(), one, logits=constant(logits), h=2, eta=0.01, preset=preset, guard=False
        )
        for _ in range(2)
    ]
    env, other = made
    env.reset(seed=0)
    for u in (0, 2, 3):
        env.step(u)
    env.save(tmp_path / "state")
    other.load(tmp_path / "state")
    other.env.reset(seed=0)
    for each in made:
        for u in (3, 2, 0, 0):
            each.step(u)
    assert np.isfinite(env.M).all()
    assert env.M.any()
    np.testing.assert_array_equal(env.M, other.M)
    assert not env.faults


def test_it_learns_the_better_action():
    """Action 3 pays most, and a constant ŵ lets M say so."""
    inner = Chooser()
    env = ww.RobustWrapper(
        inner, one, logits=constant(np.zeros(4)), h=1, eta=0.02, learner="mf-gpc", guard=False
    )
    env.reset(seed=0)
    rng = np.random.default_rng(5)
    for _ in range(800):
        env.step(int(rng.integers(4)))
    assert np.mean(np.array(inner.acted[-100:]) == 3) > 0.8


def test_pd1_by_hand():
    """TD error times (one-hot - probabilities), d_w = |U| (deviation 3)."""
    model = ww.policies.load("CartPole-v1")
    env = ww.RobustWrapper(
        gym.make("CartPole-v1"),
        "pd1",
        model=model,
        logits=model,
        eta=1e-4,
        learner="mf-gpc",
        guard=False,
    )
    critic = model.critic
    x, _ = env.reset(seed=0)
    for t in range(40):
        x_next, reward, terminated, _, info = env.step(t % 2)
        told = info["windward"]
        u = told["action"]
        p = scipy.special.softmax(model.logits(x[None])[0] + told["correction"])
        ahead = 0.0 if terminated else critic.V(x_next[None])[0]
        error = -reward - critic.gamma * ahead + critic.Q(x[None], np.array([u]))[0]
        np.testing.assert_allclose(told["w_hat"], error * (np.eye(2)[u] - p), rtol=1e-3, atol=1e-4)
        x = env.reset()[0] if terminated else x_next


def test_logits_that_are_none():
    with pytest.raises(ValueError, match="logits="):
        ww.RobustWrapper(gym.make("CartPole-v1"), "pd3")
    with pytest.raises(ValueError, match="discrete"):
        ww.RobustWrapper(gym.make("Pendulum-v1"), "pd3", logits=constant(LOGITS))
    with pytest.raises(ValueError, match="logits"):
        ww.RobustWrapper(gym.make("CartPole-v1"), "pd3", logits=3)
