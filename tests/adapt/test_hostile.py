"""A hundred thousand hostile steps: what is executed is finite and inside, and M stays finite."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

import windward as ww

pytestmark = [
    pytest.mark.filterwarnings("ignore::windward.Fault"),
    # Whether overflows are warned of is another test's question.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

GARBAGE = np.array([
    np.nan, np.inf, -np.inf, 1e308, -1e308, 1e39, -3e38, 1e-310, 5e-324, -5e-324, 0.0, -0.0,
    1.0, -1.0, 1e15, 2.0**31,
])  # fmt: skip
ROWS = 256
LOW, HIGH = np.array([-1.0, 2.0], np.float32), np.array([0.5, 7.0], np.float32)


def inside(space, action):
    """Whether an action is in a space, in whatever type of number it came."""
    if isinstance(space, gym.spaces.Discrete):
        return space.contains(action)
    array = np.asarray(action)
    return array.shape == space.shape and ((array >= LOW) & (array <= HIGH)).all()


class Garbage:
    """Numbers: good ones, or in one of a few calls any of the others."""

    def __init__(self, seed, evil=0.3):
        self.rng, self.evil = np.random.default_rng(seed), evil

    def __call__(self, *shape):
        good = self.rng.normal(size=shape)
        if self.rng.random() > self.evil:
            return good
        bad = self.rng.random(shape) < 0.5
        return np.where(bad, self.rng.choice(GARBAGE, shape), good)

    def flags(self, *shape):
        return self.rng.random(shape) < 0.05


class One(gym.Env):
    """An environment that shows garbage."""

    def __init__(self, garbage, actions):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space, self.garbage = actions, garbage

    def reset(self, *, seed=None, options=None):
        return self.garbage(3), {}

    def step(self, action):
        assert inside(self.action_space, action), action
        flags = self.garbage.flags(2).tolist()
        return self.garbage(3), self.garbage(1)[0], *flags, {}


class Many(VectorEnv):
    """Rows of them, reset in one of the two ways."""

    def __init__(self, garbage, actions, rows, mode):
        self.num_envs, self.garbage = rows, garbage
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.single_action_space = actions
        self.observation_space = batch_space(self.single_observation_space, rows)
        self.action_space = batch_space(actions, rows)
        self.same = mode == AutoresetMode.SAME_STEP

    def reset(self, *, seed=None, options=None):
        return self.garbage(self.num_envs, 3), {}

    def step(self, actions):
        actions = np.asarray(actions)
        assert all(inside(self.single_action_space, each) for each in actions), actions
        rows = self.num_envs
        terminated, truncated = self.garbage.flags(2, rows)
        info = {}
        if self.same:
            info["final_obs"] = self.garbage(rows, 3)
        return self.garbage(rows, 3), self.garbage(rows), terminated, truncated, info


def own(garbage):
    """A signal that fails in every way."""

    def signal(x, u, reward, x_next):
        chance = garbage.rng.random()
        if chance < 0.005 * garbage.evil:
            raise ArithmeticError
        return garbage(2) if chance < 0.1 else x[:2]

    return ww.adapt.Own(signal, 2)


class Values:
    """Critics that give garbage."""

    gamma, d_w = 0.9, 2

    def __init__(self, garbage, columns):
        self.garbage, self.columns = garbage, columns

    def V(self, x):
        return self.garbage(len(x), *self.columns)

    def Q(self, x, u):
        return self.garbage(len(x), *self.columns)

    def c(self, x):
        return self.garbage(len(x), *self.columns)


BOX = gym.spaces.Box(LOW, HIGH)
DISCRETE = gym.spaces.Discrete(3, start=2)
SIGNALS = {
    "own": own,
    "pd2": lambda garbage: ww.PD2(Values(garbage, (2,))),
    "pd1": lambda garbage: ww.PD1(Values(garbage, ())),
}


BOX_OPTIONS = {"sigma": 0.1, "every_steps": 3}


def options(actions, garbage):
    logits = {"logits": lambda x: garbage(len(x), 3)} if actions is DISCRETE else BOX_OPTIONS
    return {"learner": "mf-gpc", "h": 2, "eta": 1e-2, **logits}


def base(actions, garbage, *rows):
    if actions is BOX:
        return garbage(*rows, 2)
    return 2 + garbage.rng.integers(-1, 4, size=rows)  # now and then no action at all


def adapts(env, garbage, actions, *rows):
    """With good input M moves, once the guard, which saw what garbage does, lets it."""
    garbage.evil = 0.0
    env.M = np.zeros_like(env.M)
    env.reset()
    action = np.broadcast_to([0.0, 4.0], (*rows, 2)) if actions is BOX else np.full(rows, 3)
    for _ in range(500):
        _, _, terminated, truncated, _ = env.step(action)
        assert np.isfinite(env.M).all()
        if env.M.any():
            return
        if not rows and (terminated or truncated):
            env.reset()
    pytest.fail("M stayed where it was")


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("actions", [BOX, DISCRETE], ids=["box", "discrete"])
def test_one_environment(actions, signal):
    garbage = Garbage(0)
    env = ww.RobustWrapper(
        One(garbage, actions), SIGNALS[signal](garbage), **options(actions, garbage)
    )
    env.M = np.zeros_like(env.M)  # trusted, so that it explores from the start
    env.reset()
    for t in range(300):
        _, _, terminated, truncated, info = env.step(base(actions, garbage))
        told = info["windward"]
        assert inside(actions, told["action"])
        assert all(np.isfinite(told[name]).all() for name in ("correction", "noise", "w_hat"))
        assert np.isfinite(env.M).all()
        if terminated or truncated or t % 211 == 0:
            env.reset()
    assert env.faults["signal"] > 10
    assert env.faults["observation"] > 10
    adapts(env, garbage, actions)


@pytest.mark.parametrize(
    ("actions", "mode", "shared"),
    [
        (BOX, AutoresetMode.NEXT_STEP, True),
        (BOX, AutoresetMode.SAME_STEP, False),
        (DISCRETE, AutoresetMode.NEXT_STEP, False),
        (DISCRETE, AutoresetMode.SAME_STEP, True),
    ],
    ids=["box-next-shared", "box-same-own", "discrete-next-own", "discrete-same-shared"],
)
def test_rows_of_environments(actions, mode, shared):
    """4 · 256 · 100 = 102,400 steps."""
    garbage = Garbage(1)
    env = ww.RobustVectorWrapper(
        Many(garbage, actions, ROWS, mode), own(garbage), shared=shared, **options(actions, garbage)
    )
    env.M = np.zeros_like(env.M)
    env.reset()
    for t in range(100):
        *_, info = env.step(base(actions, garbage, ROWS))
        told = info["windward"]
        assert all(np.isfinite(told[name]).all() for name in ("correction", "noise", "w_hat"))
        if t % 10 == 0:
            assert np.isfinite(env.M).all()
        if t % 53 == 0:
            env.reset(options={"reset_mask": garbage.flags(ROWS)})
    adapts(env, garbage, actions, ROWS)


def test_policy():
    garbage = Garbage(2)
    policy = ww.robustify(
        lambda x: garbage(2),
        One(garbage, BOX),
        own(garbage),
        learner="mf-gpc",
        h=2,
        eta=1e-2,
        **BOX_OPTIONS,
    )
    policy.M = np.zeros_like(policy.M)
    x = garbage(3)
    for _ in range(300):
        action, _ = policy.predict(x, episode_start=garbage.flags(1))
        assert inside(BOX, action)
        x = garbage(3)
        if garbage.rng.random() < 0.8:
            policy.observe(garbage(1)[0], x, *garbage.flags(2))
        assert np.isfinite(policy.M).all()
    garbage.evil = 0.0
    while policy.phase == "rest":  # trials may have left the last episode to the base policy
        policy.predict(garbage(3))
        policy.observe(1.0, garbage(3), False, True)
    M = policy.M.copy()
    for _ in range(20):
        policy.predict(garbage(3))
        policy.observe(1.0, garbage(3), False, False)
    assert (policy.M != M).any()
