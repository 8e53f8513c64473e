"""A few threads that share tasks: as many compute as there are cores, and none waits in vain.

Whoever needs a task's result works on tasks itself until it is there. So a thread that steps
environments and then needs an update is one of the crew while it would wait, and with two cores
there are two threads: a third would be left on a busy core while the other one has nothing to do.
"""

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from windward.agents.threads import cores

T = TypeVar("T")


class Task(Generic[T]):
    """Work that begins when what it needs is there."""

    def __init__(
        self, crew: "Crew | None", work: Callable[..., T] | None, needs: tuple["Task[Any]", ...]
    ) -> None:
        self._crew = crew
        self.work, self.needs = work, needs
        self.by: int | None = None
        """the thread that is at it"""
        self.done = False
        self.value: T | None = None
        self.error: BaseException | None = None

    def result(self) -> T:
        """What came of it, after helping until it is done; raises what it raised."""
        if not self.done:
            assert self._crew is not None
            self._crew.help_until(self)
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


def given(value: T) -> Task[T]:
    """A task that is done."""
    task: Task[T] = Task(None, None, ())
    task.value, task.done = value, True
    return task


class Crew:
    """Runs tasks, of those that can begin the one that came first."""

    def __init__(self, helpers: int | None = None) -> None:
        """`helpers` are threads beside the caller's; by default one for each other core."""
        # The lock itself is entered, not the condition: that is a function in Python, and an
        # interrupt at its end would leave the lock taken for good.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._tasks: list[Task[Any]] = []
        self._open = True
        count = cores() - 1 if helpers is None else helpers
        self._helpers = [threading.Thread(target=self._help, daemon=True) for _ in range(count)]
        try:
            for helper in self._helpers:
                helper.start()
        except BaseException:
            self.close()
            raise

    def submit(self, work: Callable[..., T], *needs: Task[Any]) -> Task[T]:
        """work(*results of needs), as soon as they are there and someone is free."""
        task = Task(self, work, needs)
        with self._lock:
            self._tasks.append(task)
            self._changed.notify()
        return task

    def help_until(self, goal: Task[Any]) -> None:
        """Works on tasks until `goal` is done."""
        try:
            while not goal.done:
                with self._lock:
                    task = None if goal.done else self._next()
                    while task is None and not goal.done:
                        self._changed.wait()
                        task = self._next()
                if task is not None:
                    self._run(task)
        except BaseException:
            # Interrupted in the middle of a task: whoever still wants it may begin it anew.
            with self._lock:
                for each in self._tasks:
                    if each.by == threading.get_ident():
                        each.by = None
            raise

    def _help(self) -> None:
        while True:
            with self._lock:
                task = self._next()
                while task is None and self._open:
                    self._changed.wait()
                    task = self._next()
            if task is None:
                return
            try:
                self._run(task)
            except BaseException as error:  # for whoever waits, not for this thread
                self._end(task, None, error)

    def _next(self) -> Task[Any] | None:
        """The first task whose needs are there and that no one is at; the lock is held."""
        self._tasks = [task for task in self._tasks if not task.done]
        for task in self._tasks:
            if task.by is None and all(need.done for need in task.needs):
                task.by = threading.get_ident()
                return task
        return None

    def _run(self, task: Task[Any]) -> None:
        assert task.work is not None
        try:
            value, error = task.work(*(need.result() for need in task.needs)), None
        except Exception as raised:
            value, error = None, raised
        self._end(task, value, error)

    def _end(self, task: Task[Any], value: Any, error: BaseException | None) -> None:
        with self._lock:
            task.value, task.error = value, error
            task.done = True
            # What it needed is let go, or the first update would be kept for as long as the last.
            task.work, task.needs = None, ()
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the helpers; tasks that have not begun never do."""
        with self._lock:
            self._open = False
            for task in self._tasks:
                if task.by is None:
                    self._end(task, None, RuntimeError("the crew was closed before this began"))
            self._changed.notify_all()
        for helper in self._helpers:
            if helper.ident is not None:
                helper.join()
