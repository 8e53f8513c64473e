"""Tasks run once each, after what they need, by whoever is free."""

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing

import pytest

from windward.agents.crew import Crew, given
from windward.agents.threads import cores


@pytest.fixture(params=[0, 1, 3])
def crew(request: pytest.FixtureRequest) -> Iterator[Crew]:
    with closing(Crew(request.param)) as crew:
        yield crew


def test_results_go_to_those_who_need_them(crew: Crew) -> None:
    total = given(0)
    for k in range(50):
        square = crew.submit(lambda k=k: k * k)
        total = crew.submit(lambda a, b: a + b, total, square)
    assert total.result() == sum(k * k for k in range(50))


@pytest.mark.parametrize(("told", "most"), [("1", 1), ("2", 2), ("", 99), ("0", 1), ("4,2", 99)])
def test_there_are_no_more_threads_than_the_scheduler_gives(
    monkeypatch: pytest.MonkeyPatch, told: str, most: int
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", told)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(99)), raising=False)
    assert cores() == most
    before = threading.active_count()
    if most < 99:
        with closing(Crew()):
            assert threading.active_count() == before + most - 1


def test_without_helpers_the_caller_does_it_all() -> None:
    with closing(Crew(0)) as crew:
        task = crew.submit(threading.get_ident)
        assert crew.submit(lambda who: who, task).result() == threading.get_ident()


def test_two_tasks_run_at_the_same_time() -> None:
    both = threading.Barrier(2)
    with closing(Crew(1)) as crew:
        tasks = [crew.submit(both.wait, given(60.0)) for _ in range(2)]
        assert sorted(task.result() for task in tasks) == [0, 1]


def test_an_error_comes_out_of_all_that_need_it(crew: Crew) -> None:
    broken = crew.submit(lambda: 1 // 0)
    later = crew.submit(lambda value: value + 1, broken)
    other = crew.submit(lambda: 5)
    for task in (broken, later):
        with pytest.raises(ZeroDivisionError):
            task.result()
    assert other.result() == 5


def test_an_interrupted_task_can_be_had_again() -> None:
    interrupts = [KeyboardInterrupt()]

    def work() -> int:
        if interrupts:
            raise interrupts.pop()
        return 7

    with closing(Crew(0)) as crew:
        task = crew.submit(work)
        last = crew.submit(lambda value: value + 1, task)
        with pytest.raises(KeyboardInterrupt):
            last.result()
        assert last.result() == 8


def test_what_was_needed_is_let_go(crew: Crew) -> None:
    class Large:
        pass

    first = crew.submit(Large)
    kept = weakref.ref(first.result())
    last = crew.submit(lambda _: None, first)
    last.result()
    del first
    gc.collect()
    assert kept() is None


def test_nobody_waits_for_a_closed_crew() -> None:
    with closing(Crew(0)) as crew:
        task = crew.submit(lambda: 1)
        later = crew.submit(lambda value: value, task)
    for each in (task, later):
        with pytest.raises(RuntimeError, match="closed before"):
            each.result()


def test_what_ends_a_helpers_work_comes_out_and_the_helper_stays() -> None:
    started = threading.Event()

    def leave() -> None:
        started.set()
        raise SystemExit

    with closing(Crew(1)) as crew:
        task = crew.submit(leave)
        assert started.wait(60.0)
        with pytest.raises(SystemExit):
            task.result()
        started.clear()
        crew.submit(started.set)
        assert started.wait(60.0)


def test_interrupts_leave_no_one_waiting() -> None:
    """As many signals as it takes to meet every line of the crew."""
    script = """
import gc, os, signal, threading, time, random
from windward.agents.crew import Crew

gc.callbacks.clear()  # in JAX's own an interrupt would be swallowed, and waited for in vain
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
rng, over = random.Random(0), time.monotonic() + 5
for _ in range(200):
    crew = Crew(1)
    timer = threading.Timer(rng.uniform(0, 0.01), os.kill, (os.getpid(), signal.SIGINT))
    last = None
    try:
        timer.start()
        while True:
            last = crew.submit(lambda *_: None, *([] if last is None else [last]))
            last.result()
    except KeyboardInterrupt:
        pass
    timer.join()
    if last is not None:
        last.result()
    crew.close()
    if time.monotonic() > over:
        break
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_closing_ends_the_helpers_and_what_has_not_begun() -> None:
    before = threading.active_count()
    started, go, ran = threading.Event(), threading.Event(), []

    def first() -> None:
        started.set()
        go.wait(60.0)

    crew = Crew(1)
    held = crew.submit(first)
    started.wait(60.0)
    second = crew.submit(lambda gate: ran.append(1), held)
    closer = threading.Thread(target=crew.close)
    closer.start()
    with pytest.raises(RuntimeError, match="closed"):
        second.result()
    go.set()
    closer.join(60.0)
    assert not ran
    assert threading.active_count() == before
