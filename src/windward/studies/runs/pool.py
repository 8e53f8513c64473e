"""Many runs on this machine: those that are not finished, in several processes at once.

A run that fails is reported and the others go on. An interrupt, or the death of any process, leaves
each run at its last checkpoint, and the same command goes on from there. A second command on the
same runs does those that the first is not at, and waits for the rest.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures import wait as futures_wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from threadpoolctl import threadpool_limits

from windward.agents.threads import cores, one_core_each
from windward.atomic import prepare
from windward.studies.runs.store import ERROR, finished, holder, perform, reached
from windward.studies.spec import Run, unique

LOOK = 1.0
"""seconds between looks at how far the runs are"""
PATIENCE = 1.0
"""seconds between looks at whether processes have ended"""
Answer = tuple[bool, str | None]
"""whether another process is at a run; in one line why it failed, if it did"""


@dataclass
class Outcome:
    """What became of the runs."""

    failed: dict[str, str] = field(default_factory=dict)
    """names of runs, and in one line why"""

    def raise_for(self, total: int, root: Path) -> None:
        """An error that names what failed, if anything did."""
        if not self.failed:
            return
        lines = [f"{name}: {reason}" for name, reason in self.failed.items()]
        what = f"{len(self.failed)} of {total} runs failed"
        told = f"{what}; the others are finished. Run the same command to try these again"
        if len(self.failed) >= total:
            told = f"all {what}. Run the same command to try them again"
        raise ValueError(
            f"{told} (details in {ERROR} of each folder in {root}):\n  " + "\n  ".join(lines)
        )


def run_all(runs: Sequence[Run], root: Path, jobs: int, console: Console) -> Outcome:
    """Does all runs that are not finished, `jobs` at a time; with one, in this process."""
    prepare(root)
    todo = [run for run in unique(runs) if finished(run, root) is None]
    outcome = Outcome()
    if not todo:
        return outcome
    with Watch(todo, root, console) as watch:
        if jobs == 1 or len(todo) == 1:
            one_core_each()
            _serve(Queue(todo, root, watch), lambda run: work(run, root), outcome, watch)
        else:
            _in_processes(todo, root, min(jobs, len(todo)), outcome, watch)
    return outcome


def why(error: BaseException) -> str:
    """An error in one line."""
    text = str(error).partition("\n")[0] or type(error).__name__
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


class Watch:
    """A bar over the steps of all runs, and lines about what happened, above it."""

    def __init__(self, runs: Sequence[Run], root: Path, console: Console) -> None:
        self._runs, self._root, self._console = runs, root, console
        self._bar = Progress(
            TextColumn("{task.fields[done]} of {task.fields[count]} runs"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        goal = sum(run.goal for run in runs)
        self._task = self._bar.add_task("", total=goal, done=0, count=len(runs))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._ended = 0

    def __enter__(self) -> "Watch":
        self._bar.start()
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()
        self._bar.stop()

    def _look(self) -> None:
        """Reads the curves: that works for processes here and on other machines alike."""
        while not self._over.wait(LOOK):
            steps = sum(reached(run, self._root) for run in self._runs)
            self._bar.update(self._task, completed=steps, done=self._ended)

    def ended(self, run: Run, failure: str | None) -> None:
        """A run is done, or failed; a log file, which shows no bar, is told of both."""
        self._ended += 1
        if failure is not None:
            self.say(f"failed: {run.name}: {failure}")
        elif not self._console.is_terminal:
            self.say(f"run {self._ended} of {len(self._runs)} ended: {run.name}")

    def say(self, text: str) -> None:
        """A line."""
        self._console.print(escape(text), highlight=False, soft_wrap=True)


class Queue:
    """Runs in their order, for several threads; those that another command is at wait for it."""

    def __init__(self, runs: Sequence[Run], root: Path, watch: Watch) -> None:
        self._waiting, self._root, self._watch = deque(runs), root, watch
        self._told, self._lock = False, threading.Lock()
        self.closed = False

    def next(self) -> Run | None:
        """One that can be done now, which may be finished by now; None if there is none left."""
        while True:
            with self._lock:
                if not self._waiting:
                    return None
                for _ in range(len(self._waiting)):
                    run = self._waiting.popleft()
                    owner = holder(run, self._root)
                    if owner is None:
                        return run
                    self._waiting.append(run)
                    if not self._told:
                        self._told = True
                        self._watch.say(f"{run.name} is being done by {owner}: waiting for it")
            time.sleep(LOOK)

    def back(self, run: Run) -> None:
        """Somebody else was quicker."""
        with self._lock:
            self._waiting.append(run)

    def close(self) -> None:
        """Nobody gets any more."""
        with self._lock:
            self._waiting.clear()
            self.closed = True


def _serve(queue: Queue, do: Callable[[Run], Answer], outcome: Outcome, watch: Watch) -> None:
    """Does one run after the other."""
    while (run := queue.next()) is not None:
        elsewhere, failure = do(run)
        if queue.closed:  # it was interrupted, and goes on with the next command
            return
        if elsewhere:
            queue.back(run)
            continue
        if failure is not None:
            outcome.failed[run.name] = failure
        watch.ended(run, failure)


def work(run: Run, root: Path) -> Answer:
    """A run, in whatever process: whether another one is at it, and in one line why it failed."""
    try:
        return perform(run, root) is not None, None
    except Exception as error:  # whatever it is, the others go on
        return False, why(error)


def _begin(share: int) -> None:
    """What a process does before its first run; `share` are the cores that it may use."""
    os.environ["OMP_NUM_THREADS"] = str(share)
    threadpool_limits(share, "blas")  # which was loaded before and reads it no more
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it too, and decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    one_core_each()


def _end_with_parent() -> None:
    """A process whose parent was killed would go on unseen, and the next command wait for it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


class Slot:
    """A process for one run after the other: a pool of one, as a death breaks the whole pool."""

    def __init__(self, root: Path, share: int) -> None:
        self._root, self._share = root, share
        self._pool: ProcessPoolExecutor | None = None

    def do(self, run: Run) -> Answer:
        """A run; if the process dies it has failed, and the next has a new one."""
        if self._pool is None:
            spawn = multiprocessing.get_context("spawn")  # JAX hangs after a fork
            self._pool = ProcessPoolExecutor(1, spawn, _begin, (self._share,))
        try:
            return self._pool.submit(work, run, self._root).result()
        except BrokenProcessPool:
            self._pool = None
            return False, "its process was killed (was memory short?)"

    def close(self) -> None:
        """Lets the process go."""
        if self._pool is not None:
            self._pool.shutdown()


def _in_processes(
    todo: Sequence[Run], root: Path, jobs: int, outcome: Outcome, watch: Watch
) -> None:
    """Threads that each hold a process; an interrupt ends these, and their runs go on later."""
    queue, own = Queue(todo, root, watch), set(multiprocessing.active_children())

    def serve() -> None:
        with closing(Slot(root, max(1, cores() // jobs))) as slot:
            _serve(queue, slot.do, outcome, watch)

    with ThreadPoolExecutor(jobs) as threads:
        serving = [threads.submit(serve) for _ in range(jobs)]
        try:
            for each in serving:
                each.result()
        finally:
            queue.close()
            while not all(each.done() for each in serving):
                for process in set(multiprocessing.active_children()) - own:
                    process.kill()
                futures_wait(serving, PATIENCE)
