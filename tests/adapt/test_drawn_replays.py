"""Replays for discrete actions: the base policy draws, and every candidate has the same luck."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import scipy.special
import scipy.stats

import windward as ww
from windward.adapt.actuation import gumbel_given
from windward.adapt.counterfactual import Counterfactual
from windward.adapt.record import Start
from windward.adapt.replay import replay
from windward.adapt.replayed import Boxed, Drawn, nothing

from .worlds import assert_same

CART = ww.policies.load("CartPole-v1")
WIND = "sine:amp=8,period=80,phase=random"
QUICK = ww.adapt.Search(
    every=10, horizon=40, starts=6, judges=6, at_most=20, margin=0.0, spread=0.0, per_episode=1
)
NEVER = ww.adapt.Search(every=10**6, per_episode=0)


def world(wind=WIND, length=500):
    env = gym.make("CartPole-v1", max_episode_steps=length)
    return env if wind is None else ww.envs.Disturbed(env, wind, "force:cart")


def made(wind=WIND, length=500, **settings):
    options = {"signal": "pd3", "logits": CART, "learner": "replay", "search": QUICK}
    return ww.RobustWrapper(world(wind, length), **{**options, **settings})


class Agent:
    """Draws from its softmax, with luck of its own."""

    def __init__(self, seed=0):
        self.rng, self.drawn = np.random.default_rng(seed), []

    def __call__(self, x):
        self.drawn.append(self.rng.gumbel(size=2))
        return int((CART.logits(x[None])[0] + self.drawn[-1]).argmax())


def ran(env, steps, agent=None, x=None):
    """What was told of steps, through resets without a seed, and the last observation."""
    agent, told = agent or Agent(), []
    x = env.reset(seed=0)[0] if x is None else x
    for _ in range(steps):
        x, reward, terminated, truncated, info = env.step(agent(x))
        told.append({**info["windward"], "x": x, "reward": reward})
        if terminated or truncated:
            x, _ = env.reset()
    return told, x


def numbers(env):
    """All that it remembers."""
    teacher = env._module.teacher
    return [{**teacher.arrays(), "acting": env.M.copy(), "rest": repr(teacher.memory())}]


@pytest.mark.parametrize("corrected", [False, True], ids=["base", "M"])
def test_the_same_luck_gives_what_was_recorded(corrected):
    """In the world g is drawn given the agent's action; with that g a replay is the episode."""
    env, agent = made(search=NEVER), Agent()
    x, _ = env.reset(seed=3)
    if corrected:
        env._module.engine.M = np.tile([[0, -3.0, 0, 1.0], [0, 3.0, 0, -1.0]], (5, 1, 1))
    luck, rewards, changed, over = [], [], 0, False
    while not over:
        base, draw = agent(x), env._module.engine.draw[0].astype(float)
        logits = CART.logits(x[None])[0].astype(float)
        luck.append(gumbel_given(logits, base, draw) - logits if corrected else agent.drawn[-1])
        x, reward, terminated, truncated, info = env.step(base)
        changed += info["windward"]["action"] != base
        rewards.append(reward)
        over = terminated or truncated
    assert (changed > 3) == corrected
    teacher = env._module.teacher
    (episode,) = teacher.record.pieces
    wind = np.zeros((400, 4))
    wind[: len(episode)] = [visit.w_hat for visit in episode]
    luck = np.concatenate([luck, np.zeros((400 - len(luck), 2))])
    start = Start(episode[0].x, episode[0].window, wind, luck)
    states, step = [], teacher.simulator.step
    teacher.simulator.step = lambda x, u: (states.append(x.copy()), step(x, u))[1]
    costs, stood = replay(teacher.simulator, teacher.policy, [start], env.M[None].astype(float), 1)
    np.testing.assert_allclose(np.concatenate(states), [visit.x for visit in episode], atol=1e-3)
    assert costs[0, 0] == -sum(rewards)
    assert not stood[0, 0]


def test_replays_without_M_are_draws_of_the_base_policy():
    logits = np.array([0.4, -0.7, 1.1, 0.0])
    policy = Drawn(gym.spaces.Discrete(4, start=3), lambda x: np.tile(logits, (len(x), 1)))
    luck = policy.luck(np.random.default_rng(0), 20_000)
    assert luck.shape == (20_000, 4)
    for correction in (np.zeros(4), np.array([1.0, 0.5, -2.0, 0.3])):
        u = policy(luck, np.tile(correction, (len(luck), 1)), luck)
        counts = np.bincount(u - 3, minlength=4)
        p = scipy.special.softmax(logits + correction)
        assert scipy.stats.chisquare(counts, len(u) * p).pvalue > 1e-3
        assert u.dtype == np.int64


class Line:
    """x' = x + sign for action 1 and x - sign for action 0, cost x²; ends beyond `end`."""

    d_x = 1

    def __init__(self, end=np.inf, sign=1):
        self.end, self.sign, self.x = end, sign, np.zeros(1)

    def state(self):
        return self.x

    def observation(self, x):
        return x

    def gap(self, x_next, x):
        return x_next - x

    def terminated(self, x, u):
        return np.abs(x[:, 0]) > self.end

    def step(self, x, u):
        x_next = x + self.sign * (2 * u - 1)[:, None]
        return x_next, x[:, 0] ** 2, self.terminated(x_next, u)


COIN = Drawn(gym.spaces.Discrete(2), lambda x: np.zeros((len(x), 2)))


def starts(count, horizon, rng, wind=0.0):
    w = np.full((horizon, 1), wind)
    return [Start(np.zeros(1), np.ones((1, 1)), w, COIN.luck(rng, horizon)) for _ in range(count)]


def test_costs_by_hand():
    """A correction of 1 for action 1 is as much as -1 for action 0; luck decides the rest."""
    luck = np.array([[0.0, 0.5], [1.5, 0.0], [0.5, 0.0]])
    start = Start(np.zeros(1), np.ones((1, 1)), np.ones((3, 1)), luck)
    M = np.array([[[0.0], [0.0]], [[0.0], [1.0]], [[-1.0], [0.0]], [[0.0], [-2.0]]])[:, None]
    costs, stood = replay(Line(), COIN, [start], M, 0.5)
    # Up and down, three times, with a wind of 1: x is 0, 2, 2. Down with the last: it stays at 0.
    np.testing.assert_allclose(costs, [[0.5 * 4 + 0.25 * 4] * 3 + [0.0]])
    assert stood.all()


def test_candidates_from_one_start_have_the_same_luck():
    rng = np.random.default_rng(0)
    given = starts(5, 30, rng)
    M = np.zeros((3, 1, 2, 1))
    costs, _ = replay(Line(4), COIN, given, M, 1.0)
    assert (np.ptp(costs, axis=1) == 0).all()  # equal M, equal costs
    assert len(np.unique(costs[:, 0])) > 3  # starts have each their own
    M[1:] = rng.normal(size=(2, 1, 2, 1))
    together, _ = replay(Line(4), COIN, given, M, 1.0)
    for i, start in enumerate(given):  # also when others have fallen before
        for j in range(3):
            alone, _ = replay(Line(4), COIN, [start], M[j : j + 1], 1.0)
            assert alone[0, 0] == together[i, j]


def test_a_teacher_draws_luck_with_its_starts():
    env = made()
    ran(env, 12)
    teacher = env._module.teacher
    before, pairs = teacher.memory()["generator"], []
    for _ in range(2):
        teacher._rng.bit_generator.state = before
        pairs.append(teacher._starts(6))
    for one, other in zip(*pairs, strict=True):
        assert one.luck.shape == (teacher.pace.horizon, 2)
        np.testing.assert_array_equal(one.luck, other.luck)
    assert len({start.luck[0, 0] for start in pairs[0]}) == 6


def test_luck_in_a_box_draws_nothing():
    """So that what is drawn for boxes is as if there were no luck."""
    rng = np.random.default_rng(0)
    boxed = Boxed(gym.spaces.Box(-1.0, 1.0, (2,)), lambda x: x)
    assert boxed.luck(rng, 7).shape == nothing(rng, 7).shape == (7, 0)
    assert rng.bit_generator.state == np.random.default_rng(0).bit_generator.state


@pytest.mark.parametrize("sign", [1, -1])
def test_the_right_sign_is_found(sign):
    """The base policy tosses a coin; to stand still is to push against a wind in turns of 8 steps.

    With the other sign action 0 pushes to the right, and M is a mirror image.
    """
    often = ww.adapt.Search(every=20, at_most=20)
    teacher, line = Counterfactual(Line(sign=sign), COIN, 1, 0, often), Line(sign=sign)
    rng = np.random.default_rng(0)
    for _ in range(6):
        line.x = np.zeros(1)
        teacher.left()
        for t in range(80):
            w = np.array([1.0 if t // 8 % 2 else -1.0])
            teacher.simulator.x = line.x
            u = rng.integers(2, size=1)
            teacher.before(None, u)
            line.x = line.step(line.x[None], u)[0][0] + w
            teacher.simulator.x = line.x
            assert teacher.amend(w[None], None)[0] == w
            teacher.after(w, 0.0, True, False, t == 79)
    assert "began to correct" in teacher.decisions[0]
    (M,) = teacher.M_for_w_hat
    assert sign * (M[1, 0] - M[0, 0]) < -1.0  # logits


def test_nothing_but_replays_moves_M():
    env = made(search=NEVER)
    ran(env, 30)
    assert not env.M.any()
    large = np.full((5, 2, 4), 30.0)  # a ball, as the paper's update has one, would cut it
    env._module.engine.M = large
    ran(env, 30)
    np.testing.assert_array_equal(env.M, large)
    with pytest.raises(ValueError, match="kept by replays"):
        env.M = large


def test_without_wind_it_is_not_there():
    env = made(None, 60, learner="auto")
    told, alone = ran(env, 130)[0], world(None, 60)
    agent, (x, _) = Agent(), alone.reset(seed=0)
    for each in told:
        x, _, terminated, truncated, _ = alone.step(agent(x))
        np.testing.assert_array_equal(each["x"], x)
        if terminated or truncated:
            x, _ = alone.reset()
    assert not env.M.any()
    assert env._module.teacher.record.steps == 130


def test_same_seed_same_numbers():
    one, two, other = (made(seed=seed) for seed in (1, 1, 2))
    assert_same(ran(one, 120)[0], ran(two, 120)[0])
    assert_same(numbers(one), numbers(two))
    ran(other, 120)
    assert one.M.any()
    assert (one.M != other.M).any()


@pytest.mark.parametrize("steps", [0, 45, 60], ids=["new", "middle", "between"])
def test_a_file_goes_on(steps, tmp_path):
    env, agents = made(length=30), (Agent(), Agent())
    told, x = ran(env, steps, agents[0])
    env.save(tmp_path / "state")
    other = made(length=30, seed=9)
    other.env.reset(seed=0)
    for each in told:  # the environment alone, to the same state
        seen, _, terminated, truncated, _ = other.env.step(each["action"])
        np.testing.assert_array_equal(seen, each["x"])
        agents[1](seen)
        if terminated or truncated:
            other.env.reset()
    other.load(tmp_path / "state")
    assert_same(numbers(env), numbers(other))
    runs = [ran(*each, x)[0] for each in zip((env, other), (60, 60), agents, strict=True)]
    assert_same(*runs)
    assert_same(numbers(env), numbers(other))
    assert env.M.any()


def test_frozen_neither_records_nor_learns_and_M_acts():
    env, agent = made(), Agent()
    _, x = ran(env, 100, agent)
    assert env.M.any()
    env.freeze()
    before = numbers(env)
    told, x = ran(env, 60, agent, x)
    assert_same(numbers(env), before)
    assert any(each["correction"].any() for each in told)
    env.unfreeze()
    ran(env, 1, agent, x)
    assert env._module.teacher.record.steps == int(before[0]["counts"][0]) + 1


REFUSED = [
    ({"logits": None, "model": CART}, "logits="),
    ({"signal": "pd2", "model": CART}, "replay.*pd3"),
    ({"signal": lambda x, u, reward, x_next: x}, "replay.*simulator"),
    ({"simulator": {"noisy": True}}, "replay.*noisy=False"),
    ({"eta": 0.1}, "eta mean nothing"),
    ({"learner": "mf-gpc"}, "search="),
    ({"preset": "paper"}, "preset 'paper'"),
]


@pytest.mark.parametrize(("settings", "match"), REFUSED)
def test_refusals_name_what_is_missing(settings, match):
    with pytest.raises(ValueError, match=match):
        made(**settings)


BAD = {
    "raises": lambda found: 1 / 0,
    "nan": lambda found: found * np.nan,
    "masks alone": lambda found: found - np.inf,
    "shape": lambda found: found[:, :1],
}


@pytest.mark.parametrize("how", BAD)
def test_logits_that_fail_in_a_replay(how):
    """A fault like others; M stays, and replays go on when logits are well again."""

    def logits(x):
        found = CART.logits(x)
        return BAD[how](found) if len(x) > 1 and ill[0] else found

    ill, agent = [True], Agent()
    env = made(logits=logits, search=replace(QUICK, at_most=200))  # at one size of steps
    with pytest.warns(ww.Fault):
        _, x = ran(env, 30, agent)
    assert set(env.faults) == {"signal"}
    assert not env.M.any()
    ill[0], before = False, dict(env.faults)
    assert not env.decisions
    ran(env, 500, agent, x)
    assert env.faults == before
    assert "began to correct" in env.decisions[0]


def test_masked_actions_are_never_replayed():
    masked = Drawn(gym.spaces.Discrete(3), lambda x: np.tile([0.0, -np.inf, 0.0], (len(x), 1)))
    luck = masked.luck(np.random.default_rng(0), 500)
    u = masked(luck, np.tile([0.0, 1e6, 0.0], (500, 1)), luck)
    assert set(u.tolist()) == {0, 2}


@pytest.mark.slow
def test_a_cart_pole_that_fell_stands():
    lengths = []
    for env in (world(), made(search=None)):
        agent, lengths = Agent(), [*lengths, []]
        for episode in range(8):
            x, _ = env.reset(seed=None if episode else 0)
            over, steps = False, 0
            while not over:
                x, _, terminated, truncated, _ = env.step(agent(x))
                over, steps = terminated or truncated, steps + 1
            lengths[-1].append(steps)
    assert np.mean(lengths[0]) < 200
    assert np.mean(lengths[1][4:]) > 450
