"""Bad input never reaches the actuator: the base action is executed, counted and said once."""

import warnings

import gymnasium as gym
import numpy as np
import pytest

import windward as ww

from .worlds import A, B, Plant, ScalarValues, VectorValues, true_w, wind

SETTINGS = {
    "learner": "mf-gpc", "guard": False, "h": 3, "every_steps": 2, "eta": 1e-2, "sigma": 0.1,
    "M0": np.full((3, 1, 2), 0.5),
}  # fmt: skip
BASE = 0.125  # of the agent, whatever it sees
BAD = 5  # the step at which it happens
NUMBERS = [np.nan, np.inf, -np.inf]
HUGE = [1e308, -1e308, 1e39]


class Broken(Plant):
    """At step BAD an observation or a reward is not what it should be."""

    def __init__(self, what=None, value=None, **options):
        super().__init__(wind(50), **options)
        self.what, self.value = what, value

    def step(self, action):
        assert self.action_space.contains(action), action
        x, reward, *rest = super().step(action)
        if self.t - 1 == BAD and self.what == "observation":
            x = np.array([self.value, x[1]])
        if self.t - 1 == BAD and self.what == "reward":
            reward = self.value
        return x, reward, *rest


def run(env, steps=12, bad_action=None):
    """What was told at each step, and M after it; the agent is good but for `bad_action`."""
    env.reset(seed=0)
    told, Ms = [], []
    for t in range(steps):
        bad = bad_action is not None and t == BAD
        base = np.full(1, bad_action if bad else env.unwrapped.middle + BASE)
        *_, info = env.step(base)
        told.append(info["windward"])
        Ms.append(env.M.copy())
        assert np.isfinite(env.M).all()
        if not bad:  # what is told is what was done
            each = told[-1]
            wanted = base + env.unwrapped.half * (each["correction"] + each["noise"])
            space = env.action_space
            np.testing.assert_allclose(
                each["action"], np.clip(wanted, space.low, space.high), rtol=1e-6
            )
    return told, Ms


def faulty(env, kind, **options):
    """A run in which one fault is warned of, once."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        told, Ms = run(env, **options)
    assert [str(each.message) for each in said if each.category is not ww.Fault] == []
    assert len(said) == 1
    assert set(env.faults) == {kind}
    return told, Ms


def assert_base(told, t, base=BASE):
    np.testing.assert_array_equal(told[t]["action"], [base])
    assert not told[t]["correction"].any()
    assert not told[t]["noise"].any()


def assert_recovered(told, Ms):
    """Two steps after it, all is as usual."""
    assert {t for t, each in enumerate(told) if each["fault"]} in ({BAD}, {BAD, BAD + 1})
    assert told[BAD + 3]["correction"].any()
    assert told[BAD + 3]["noise"].any()
    assert (Ms[-1] != Ms[BAD]).any()


@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize("what", ["observation", "reward"])
def test_observation_or_reward(what, value):
    env = ww.RobustWrapper(Broken(what, value), true_w, **SETTINGS)
    told, Ms = faulty(env, what)
    assert told[BAD]["fault"]
    assert env.faults[what] == 1
    np.testing.assert_array_equal(Ms[BAD], Ms[BAD - 1])  # nothing was learned from it
    assert_base(told, BAD + 1)
    assert_recovered(told, Ms)


def test_first_observation():
    class Blind(Plant):
        def reset(self, **options):
            x, info = super().reset(**options)
            return x * np.nan, info

    env = ww.RobustWrapper(Blind(wind(50)), true_w, **SETTINGS)
    with pytest.warns(ww.Fault, match="observation"):
        told, Ms = run(env)
    assert_base(told, 0)
    assert (Ms[-1] != Ms[0]).any()


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("what", ["observation", "reward"])
def test_numbers_that_are_huge(what, value):
    """Finite in float64, too large for what comes after: no other warning than a Fault."""
    env = ww.RobustWrapper(Broken(what, value), true_w, **SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ww.Fault)
        told, Ms = run(env)
    assert (Ms[-1] != Ms[BAD]).any()
    assert told[-1]["correction"].any()


@pytest.mark.parametrize("middle", [0.0, 3.0])
@pytest.mark.parametrize("value", NUMBERS)
def test_base_action(value, middle):
    """The middle of the space is executed in its place."""
    env = ww.RobustWrapper(Broken(middle=middle), true_w, **SETTINGS)
    told, Ms = faulty(env, "action", bad_action=value)
    assert env.faults == {"action": 1}
    assert_base(told, BAD, middle)
    np.testing.assert_array_equal(Ms[BAD], Ms[BAD - 1])
    assert_recovered(told, Ms)


@pytest.mark.parametrize("value", HUGE)
def test_huge_base_action(value):
    env = ww.RobustWrapper(Broken(), true_w, **SETTINGS)
    told, _ = run(env, bad_action=value)
    np.testing.assert_array_equal(told[BAD]["action"], [np.sign(value)])
    assert told[BAD]["clipped"]
    assert not env.faults


@pytest.mark.parametrize("size", [1e3, 1e30, 3e38])
@pytest.mark.parametrize("projection", [None, ww.frobenius_ball(10.0)], ids=["none", "ball"])
def test_exploding_M(size, projection):
    env = ww.RobustWrapper(Broken(), true_w, **{**SETTINGS, "projection": projection})
    env.M = np.full((3, 1, 2), size)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ww.Fault)
        run(env)
        env.M = np.zeros((3, 1, 2))
        _, Ms = run(env)
    assert (Ms[-1] != Ms[0]).any()


def test_M_that_is_none():
    env = ww.RobustWrapper(Broken(), true_w, **SETTINGS)
    for wrong in (np.full((3, 1, 2), np.nan), np.zeros((2, 1, 2)), "M"):
        with pytest.raises(ValueError, match="M"):
            env.M = wrong
    np.testing.assert_array_equal(env.M, SETTINGS["M0"])


def raising(*_):
    raise RuntimeError("the sensor is gone")


def failing(good, how, before=0):
    """`good`, but for the call at step BAD; `before` is how often it is called before the first."""
    clock = {"t": -1 - before}

    def function(*given):
        clock["t"] += 1
        if clock["t"] != BAD:
            return good(*given)
        out = np.asarray(good(*given), dtype=float)
        return {
            "raises": raising,
            "nan": lambda *_: out * np.nan,
            "huge": lambda *_: np.full_like(out, 1e308),
            "shape": lambda *_: np.zeros((*out.shape, 3)),
        }[how](*given)

    return function


def source(kind, how, plant):
    """A signal that fails at step BAD in one of its parts."""
    if kind == "own":
        return ww.adapt.Own(failing(true_w, how), 2)
    if kind == "pd3":
        step = failing(lambda x, u: x @ A.T + u @ B.T, how)
        simulator = ww.simulator(
            plant, noisy=False, state=lambda env: env.x,
            step=lambda x, u: (step(x, u), np.zeros(len(x)), np.zeros(len(x), bool)),
        )  # fmt: skip
        return ww.PD3(simulator)
    values = {"pd2": VectorValues, "pd1": ScalarValues}[kind[:3]]()
    name = kind[4:]
    setattr(values, name, failing(getattr(values, name), how, before=1))
    return {"pd2": ww.PD2, "pd1": ww.PD1}[kind[:3]](values)


@pytest.mark.parametrize("how", ["raises", "nan", "huge", "shape"])
@pytest.mark.parametrize("kind", ["own", "pd3", "pd2.V", "pd2.Q", "pd1.V", "pd1.Q"])
def test_signals_that_fail(kind, how):
    plant = Broken()
    settings = {**SETTINGS, "M0": SETTINGS["M0"][:, :, :1]} if "pd1" in kind else SETTINGS
    env = ww.RobustWrapper(plant, source(kind, how, plant), **settings)
    told, Ms = faulty(env, "signal")
    assert env.faults == {"signal": 1}
    np.testing.assert_array_equal(Ms[BAD], Ms[BAD - 1])
    if kind == "pd3" and how in ("raises", "shape"):
        assert_base(told, BAD)  # it failed before the action was executed
    else:
        assert_base(told, BAD + 1)
    assert_recovered(told, Ms)


def test_each_kind_is_said_once():
    env = ww.RobustWrapper(Broken(), true_w, **SETTINGS)
    env.reset(seed=0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(9):
            env.step(np.array([np.nan]))
    assert len(said) == 1
    assert "faults" in str(said[0].message)
    assert env.faults == {"action": 9}


@pytest.mark.parametrize("how", ["raises", "nan", "shape"])
def test_logits_that_fail(how):
    model = ww.policies.load("CartPole-v1")
    logits = failing(model.logits, how)
    env = ww.RobustWrapper(
        gym.make("CartPole-v1"), lambda x, u, reward, x_next: x, logits=logits, h=1, eta=1e-2,
        M0=np.ones((1, 2, 4)), learner="mf-gpc", guard=False
    )  # fmt: skip
    env.reset(seed=0)

    def steps():
        for t in range(9):
            *_, info = env.step(t % 2)
            assert env.action_space.contains(info["windward"]["action"])
            if t == BAD:
                assert info["windward"]["action"] == t % 2
                assert info["windward"]["fault"]

    with pytest.warns(ww.Fault):
        steps()
    assert env.faults == {"signal": 1}
    assert np.isfinite(env.M).all()


@pytest.mark.parametrize("value", [7, -1, np.nan])
def test_discrete_base_action(value):
    model = ww.policies.load("CartPole-v1")
    env = ww.RobustWrapper(gym.make("CartPole-v1"), "pd3", logits=model, h=1, learner="mf-gpc")
    env.reset(seed=0)
    with pytest.warns(ww.Fault, match="action"):
        *_, info = env.step(value)
    assert env.action_space.contains(info["windward"]["action"])
    assert env.faults == {"action": 1}


ODD = [None, 1j, np.complex128(1j), 10**400, np.array([1j]), np.array(None), "much", [1.0, 2.0]]


@pytest.mark.parametrize("value", ODD, ids=str)
def test_rewards_that_are_no_numbers(value):
    """A fault as any other, and no exception."""
    env = ww.RobustWrapper(Broken("reward", value), true_w, **SETTINGS)
    told, Ms = faulty(env, "reward")
    assert env.faults == {"reward": 1}
    np.testing.assert_array_equal(Ms[BAD], Ms[BAD - 1])
    assert_base(told, BAD + 1)
    assert_recovered(told, Ms)


def test_a_reward_in_an_array_of_one_is_the_number():
    played = []
    for value in (-0.5, np.array([-0.5]), [-0.5]):
        env = ww.RobustWrapper(Broken("reward", value), true_w, **SETTINGS)
        played.append(run(env)[1])
        assert not env.faults
    np.testing.assert_array_equal(played[0], played[1])
    np.testing.assert_array_equal(played[0], played[2])


def test_rewards_that_are_no_numbers_in_the_other_forms():
    settings = {**SETTINGS, "every_steps": 1}
    policy = ww.robustify(lambda x: [BASE], Plant(wind(50)), true_w, **settings)
    policy.predict(np.zeros(2))
    with pytest.warns(ww.Fault, match="reward"):
        assert policy.observe(None, np.zeros(2), False, False).fault.all()
    assert policy.faults == {"reward": 1}

    class Unpaid(gym.vector.VectorWrapper):
        def step(self, actions):
            x, reward, *rest = super().step(actions)
            return x, [None, reward[1]], *rest

    inner = Unpaid(gym.vector.SyncVectorEnv([lambda: Plant(wind(50))] * 2))
    env = ww.RobustVectorWrapper(inner, true_w, **settings)
    env.reset(seed=0)
    with pytest.warns(ww.Fault, match="reward"):
        *_, info = env.step(np.full((2, 1), BASE))
    assert info["windward"]["fault"].tolist() == [True, False]
