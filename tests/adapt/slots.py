"""What tests of peers share: runs in the slot of `RobustWrapper`, and bad input in it."""

import warnings

import gymnasium as gym
import numpy as np

import windward as ww

from .worlds import A, B, Plant

BASE = 0.125  # of an agent that looks at nothing
BAD = 5  # the step at which input is bad
KEYS = {"w_hat", "correction", "noise", "action", "clipped", "fault", "resting", "decided"}


class Broken(Plant):
    """At step BAD an observation or a reward is not what it should be."""

    def __init__(self, what="", value=np.nan):
        super().__init__(np.full((1, 2), 0.05))
        self.what, self.value = what, value

    def step(self, action):
        assert self.action_space.contains(np.asarray(action)), action
        x, reward, *rest = super().step(action)
        if self.t - 1 == BAD and self.what == "observation":
            x = np.array([self.value, x[1]])
        if self.t - 1 == BAD and self.what == "reward":
            reward = self.value
        return x, reward, *rest


def broken_signal(raises):
    """True w, but for step BAD."""
    steps = iter(range(1000))

    def signal(x, u, reward, x_next):
        if next(steps) == BAD:
            if raises:
                raise ArithmeticError("no signal")
            return np.full(2, np.nan)
        return x_next - A @ x - B @ u

    return ww.adapt.Own(signal, 2)


def run(env: gym.Env, steps: int = 12, bad_action: float | None = None) -> list[dict]:
    """What was told at each step, by an agent that is good but for `bad_action`."""
    env.reset(seed=0)
    told = []
    for t in range(steps):
        base = np.full(1, bad_action if bad_action is not None and t == BAD else BASE)
        *_, info = env.step(base)
        assert set(info["windward"]) == KEYS
        told.append(info["windward"])
    return told


def faulty(env: gym.Env, kind: str, **options: float) -> list[dict]:
    """A run in which one fault is warned of, once, and after which all is as usual."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        told = run(env, **options)
    assert [each.category for each in said] == [ww.Fault], [str(each.message) for each in said]
    assert set(env.faults) == {kind}  # type: ignore[attr-defined]
    assert all(np.isfinite(each[name]).all() for each in told for name in KEYS)
    assert {t for t, each in enumerate(told) if each["fault"]} in ({BAD}, {BAD, BAD + 1})
    assert any((told[-1]["correction"] + told[-1]["noise"]).ravel())
    return told


def assert_alone(told: list[dict], t: int, base: float = BASE) -> None:
    """The base action was executed as it is."""
    np.testing.assert_array_equal(told[t]["action"], [base])
    assert not told[t]["correction"].any()
    assert not told[t]["noise"].any()


def settle(env: gym.Env, steps: int = 400) -> float:
    """Mean |x| over the last half of a run of the plant under its own base policy."""
    x, _ = env.reset(seed=0)
    sizes = []
    for _ in range(steps):
        x, *_ = env.step(env.unwrapped.base(x))  # type: ignore[attr-defined]
        sizes.append(np.abs(x).sum())
    return float(np.mean(sizes[steps // 2 :]))


def plant_simulator(plant: Plant) -> dict:
    """Options of a simulator of the plant."""

    def step(x, u):
        u = (u - plant.middle) / plant.half
        return x @ A.T + u @ B.T, np.zeros(len(x)), np.zeros(len(x), dtype=bool)

    return {"step": step, "state": lambda env: env.x}
