"""A simulator or critic that is late: the base action is executed, counted, and all goes on."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import windward as ww
from windward.adapt import deadline

from .worlds import A, B, Plant, ScalarValues, VectorValues, true_w, wind

SETTINGS = {
    "h": 3, "every_steps": 2, "eta": 1e-2, "sigma": 0.1, "M0": np.full((3, 1, 2), 0.5),
    "learner": "mf-gpc", "guard": False,
}  # fmt: skip
DEADLINE, BAD, LONG = 0.25, 5, 120.0


class Time:
    """Time passes only in the call that is held up: no deadline is met or missed by chance."""

    def __init__(self):
        self.held, self.free, self.ends = threading.Event(), threading.Event(), []

    def hold_up(self):
        self.held.set()
        assert self.free.wait(LONG), "somebody waits for what is late"

    def go_on(self):
        self.free.set()
        self.ends[-1](LONG)
        self.held.clear()

    def executor(self, *given, **named):
        time = self

        class Executor(ThreadPoolExecutor):
            def submit(self, work):
                future = super().submit(work)
                waited = future.result

                def result(seconds):
                    assert seconds == DEADLINE
                    while not (future.done() or time.held.wait(0.001)):
                        pass
                    return waited(0 if time.held.is_set() else None)

                future.result = result
                time.ends.append(waited)
                return future

        return Executor(*given, **named)


@pytest.fixture
def time(monkeypatch):
    time = Time()
    monkeypatch.setattr(deadline, "ThreadPoolExecutor", time.executor)
    yield time
    time.free.set()


def slowly(function, time, first=0):
    """The function, but for its call in step BAD, which is held up."""
    calls = iter(range(first, 1000))

    def slow(*given):
        if next(calls) == BAD:
            time.hold_up()
        return function(*given)

    return slow


def values_of(kind, name, time):
    values = kind()
    # They are called once when the layer is made.
    setattr(values, name, slowly(getattr(values, name), time, first=-1))
    return values


def predicted(x, u):
    return x @ A.T + u @ B.T, np.zeros(len(x)), np.zeros(len(x), bool)


SIGNALS = {
    "own": lambda plant, time: ww.adapt.Own(slowly(true_w, time), 2),
    "pd2": lambda plant, time: ww.PD2(values_of(VectorValues, "Q", time)),
    "pd1": lambda plant, time: ww.PD1(values_of(ScalarValues, "V", time)),
    "pd3": lambda plant, time: ww.PD3(
        ww.simulator(plant, noisy=False, step=slowly(predicted, time), state=lambda env: env.x)
    ),
}


@pytest.mark.parametrize("kind", SIGNALS)
def test_late(kind, time):
    plant = Plant(wind(100))
    settings = {**SETTINGS, "M0": SETTINGS["M0"][:, :, :1]} if kind == "pd1" else SETTINGS
    policy = ww.robustify(
        plant.base, plant, SIGNALS[kind](plant, time), live=True, deadline=DEADLINE, **settings
    )
    x, _ = plant.reset()
    late, actions, bases, reports = [], [], [], []

    def step():
        nonlocal x
        bases.append(plant.base(x))
        action, _ = policy.predict(x)
        x, reward, terminated, truncated, _ = plant.step(action)
        reports.append(policy.observe(reward, x, terminated, truncated))
        actions.append(action)
        late.append(policy.faults.get("late", 0))

    def steps(n):
        for _ in range(n):
            step()

    steps(BAD)
    M_late = policy.M.copy()
    with pytest.warns(ww.Fault, match="late"):
        steps(3)  # and it does not wait, which would never end
    assert late[BAD - 1] == 0
    assert late[BAD] == 1
    first = BAD if kind == "pd3" else BAD + 1  # PD3 is asked before the action is executed
    np.testing.assert_array_equal(actions[first], bases[first])
    assert late[BAD + 2] > 1  # the late work is still running
    np.testing.assert_array_equal(policy.M, M_late)
    time.go_on()
    steps(6)
    assert set(policy.faults) == {"late"}
    assert late[-1] == late[-5]
    assert reports[-1].correction.any()
    assert np.abs(policy.M - M_late).max() > 0


def test_what_is_not_done_in_time_is_left_to_itself():
    run, free = deadline.Deadline(0.01), threading.Event()
    assert run(lambda: free.wait(LONG)) == (False, None)
    late = run._running
    assert run(lambda: 1) == (False, None)
    assert run._running is late  # nothing is lined up behind it
    free.set()
    assert run._running.result(LONG) is True
    run.seconds = LONG
    assert run(lambda: 2) == (True, 2)


def test_in_time_it_changes_nothing():
    Ms = []
    for seconds in (None, LONG):
        plant = Plant(wind(100))
        policy = ww.robustify(plant.base, plant, true_w, deadline=seconds, **SETTINGS)
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
        plant.base, plant, ww.adapt.Own(fails, 2), deadline=LONG, **SETTINGS
    )  # fmt: skip
    x, _ = plant.reset()
    policy.predict(x)
    with pytest.warns(ww.Fault, match="gone"):
        policy.observe(0.0, x, False, False)
    assert policy.faults == {"signal": 1}


@pytest.mark.parametrize("seconds", [0.0, -1.0, np.nan, "soon"])
def test_deadlines_that_are_none(seconds):
    plant = Plant(wind(9))
    with pytest.raises(ValueError, match="deadline"):
        ww.robustify(plant.base, plant, true_w, deadline=seconds)
