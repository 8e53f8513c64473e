"""A simulator or critic that is late: the base action is executed, counted, and all goes on."""

import time

import numpy as np
import pytest

import windward as ww

from .worlds import A, B, Plant, ScalarValues, VectorValues, true_w, wind

SETTINGS = {"h": 3, "eta": 1e-2, "sigma": 0.1, "M0": np.full((3, 1, 2), 0.5)}
SLOW, DEADLINE, BAD = 0.8, 0.15, 5


def slowly(function):
    """The function, but for its call number BAD, which takes its time."""
    clock = {"t": -1}

    def slow(*given):
        clock["t"] += 1
        if clock["t"] == BAD:
            time.sleep(SLOW)
        return function(*given)

    return slow


def values_of(kind, name):
    values = kind()
    setattr(values, name, slowly(getattr(values, name)))
    return values


def predicted(x, u):
    return x @ A.T + u @ B.T, np.zeros(len(x)), np.zeros(len(x), bool)


SIGNALS = {
    "own": lambda plant: ww.adapt.Own(slowly(true_w), 2),
    "pd2": lambda plant: ww.PD2(values_of(VectorValues, "Q")),
    "pd1": lambda plant: ww.PD1(values_of(ScalarValues, "V")),
    "pd3": lambda plant: ww.PD3(
        ww.envs.simulator(plant, noisy=False, step=slowly(predicted), state=lambda env: env.x)
    ),
}


@pytest.mark.parametrize("kind", SIGNALS)
def test_late(kind):
    plant = Plant(wind(100))
    settings = {**SETTINGS, "M0": SETTINGS["M0"][:, :, :1]} if kind == "pd1" else SETTINGS
    policy = ww.robustify(
        plant.base, plant, SIGNALS[kind](plant), live=True, deadline=DEADLINE, **settings
    )
    x, _ = plant.reset()
    late, actions, bases, reports, spent = [], [], [], [], []

    def step():
        nonlocal x
        begun = time.perf_counter()
        bases.append(plant.base(x))
        action, _ = policy.predict(x)
        x, reward, terminated, truncated, _ = plant.step(action)
        reports.append(policy.observe(reward, x, terminated, truncated))
        spent.append(time.perf_counter() - begun)
        actions.append(action)
        late.append(policy.faults.get("late", 0))

    def steps(n):
        for _ in range(n):
            step()

    steps(BAD)
    M_late = policy.M.copy()
    with pytest.warns(ww.Fault, match="late"):
        steps(3)
    assert max(spent[BAD:]) < SLOW  # it did not wait
    assert late[BAD - 1] == 0
    assert late[BAD] == 1
    first = BAD if kind == "pd3" else BAD + 1  # PD3 is asked before the action is executed
    np.testing.assert_array_equal(actions[first], bases[first])
    assert late[BAD + 2] > 1  # the late work is still running
    np.testing.assert_array_equal(policy.M, M_late)
    time.sleep(SLOW)
    steps(6)
    assert set(policy.faults) == {"late"}
    assert late[-1] == late[-5]
    assert reports[-1].correction.any()
    assert np.abs(policy.M - M_late).max() > 0


def test_in_time_it_changes_nothing():
    Ms = []
    for deadline in (None, 10.0):
        plant = Plant(wind(100))
        policy = ww.robustify(plant.base, plant, true_w, deadline=deadline, **SETTINGS)
        x, _ = plant.reset()
        for _ in range(20):
            action, _ = policy.predict(x)
            x, reward, terminated, truncated, _ = plant.step(action)
            policy.observe(reward, x, terminated, truncated)
        assert not policy.faults
        Ms.append(policy.M)
    np.testing.assert_array_equal(*Ms)


def test_a_failure_is_no_lateness():
    def fails(x, u, reward, x_next):
        raise RuntimeError("gone")

    plant = Plant(wind(100))
    policy = ww.robustify(
        plant.base, plant, ww.adapt.Own(fails, 2), deadline=10.0, **SETTINGS
    )  # fmt: skip
    x, _ = plant.reset()
    policy.predict(x)
    with pytest.warns(ww.Fault, match="gone"):
        policy.observe(0.0, x, False, False)
    assert policy.faults == {"signal": 1}


@pytest.mark.parametrize("deadline", [0.0, -1.0, np.nan, "soon"])
def test_deadlines_that_are_none(deadline):
    plant = Plant(wind(9))
    with pytest.raises(ValueError, match="deadline"):
        ww.robustify(plant.base, plant, true_w, deadline=deadline)
