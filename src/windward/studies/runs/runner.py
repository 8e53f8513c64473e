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
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from threadpoolctl import threadpool_limits

from windward.agents.threads import cores, one_core_each
from windward.atomic import prepare
from windward.studies.runs.store import ERROR, Run, finished, holder, perform, reached, unique

LOOK = 1.0
"""seconds between looks at how far the runs are"""
PATIENCE = 5.0
"""seconds that a process has to end by itself"""


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
            _here(todo, root, outcome, watch)
        else:
            _Crew(min(jobs, len(todo)), root, outcome, watch).do(todo)
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


class _Queue:
    """Runs in their order; those that another command is at wait until it is done or dead."""

    def __init__(self, runs: Sequence[Run], root: Path, watch: Watch) -> None:
        self._waiting, self._root, self._watch = deque(runs), root, watch
        self._told = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def next(self) -> Run | None:
        """One that can be done now; it may be finished by now."""
        for _ in range(len(self._waiting)):
            run = self._waiting.popleft()
            owner = holder(run, self._root)
            if owner is None or not owner.here:
                return run
            self._waiting.append(run)
            if not self._told:
                self._told = True
                self._watch.say(f"{run.name} is being done by {owner}: waiting for it")
        return None

    def back(self, run: Run) -> None:
        """Somebody else was quicker."""
        self._waiting.append(run)


def _here(todo: Sequence[Run], root: Path, outcome: Outcome, watch: Watch) -> None:
    queue = _Queue(todo, root, watch)
    while queue:
        run = queue.next()
        if run is None:
            time.sleep(LOOK)
            continue
        failure = None
        try:
            if perform(run, root) is not None:
                queue.back(run)
                continue
        except Exception as error:  # whatever it is, the others go on
            failure = outcome.failed[run.name] = why(error)
        watch.ended(run, failure)


def work(pipe: Connection, share: int) -> None:
    """A process of the crew: does the runs that it is sent, until its parent ends.

    `share` are the cores that it may use.
    """
    os.environ["OMP_NUM_THREADS"] = str(share)
    threadpool_limits(share, "blas")  # which was loaded before and reads it no more
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it too, and decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    one_core_each()
    while True:
        try:
            run, root = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer: tuple[bool, str | None] = perform(run, root) is not None, None
        except Exception as error:  # it is the parent's to say
            answer = False, why(error)
        pipe.send(answer)


def _end_with_parent() -> None:
    """A process whose parent was killed would go on unseen, and the next command wait for it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


@dataclass
class _Hand:
    """A process of the crew, and what it is at."""

    process: BaseProcess
    pipe: Connection
    run: Run | None = None


class _Crew:
    """Processes that do runs; one that dies is replaced, and its run has failed."""

    def __init__(self, count: int, root: Path, outcome: Outcome, watch: Watch) -> None:
        self._count, self._root, self._outcome, self._watch = count, root, outcome, watch
        self._context = multiprocessing.get_context("spawn")  # JAX hangs after a fork
        self._hands: list[_Hand] = []

    def do(self, todo: Sequence[Run]) -> None:
        """All of them."""
        queue = _Queue(todo, self._root, self._watch)
        try:
            while queue or self._hands:
                self._send(queue)
                pipes = [hand.pipe for hand in self._hands]
                if not pipes:
                    time.sleep(LOOK)
                for pipe in wait(pipes, timeout=LOOK):
                    self._take(next(hand for hand in self._hands if hand.pipe is pipe), queue)
        finally:
            self._dismiss(self._hands)

    def _send(self, queue: _Queue) -> None:
        """Gives everybody idle a run, and lets those go for whom there is none."""
        for hand in [hand for hand in self._hands if hand.run is None]:
            run = queue.next()
            if run is None:
                self._dismiss([hand])
            else:
                hand.run = run
                hand.pipe.send((run, self._root))
        while len(self._hands) < self._count and (run := queue.next()) is not None:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(
                target=work, args=(theirs, max(1, cores() // self._count)), daemon=True
            )
            process.start()
            theirs.close()
            self._hands.append(_Hand(process, ours, run))
            ours.send((run, self._root))

    def _take(self, hand: _Hand, queue: _Queue) -> None:
        """An answer, or the end of the process."""
        run, hand.run = hand.run, None
        assert run is not None
        try:
            elsewhere, failure = hand.pipe.recv()
        except (EOFError, OSError):
            hand.process.join(PATIENCE)
            code = hand.process.exitcode
            elsewhere, failure = False, f"its process ended with code {code}"
            if code is not None and code < 0:
                failure = f"its process was killed by signal {-code} (was memory short?)"
            self._dismiss([hand])
        if elsewhere:
            queue.back(run)
            return
        if failure is not None:
            self._outcome.failed[run.name] = failure
        self._watch.ended(run, failure)

    def _dismiss(self, hands: Sequence[_Hand]) -> None:
        """Ends processes: idle ones, or in the middle, from where their runs go on later."""
        for hand in list(hands):
            hand.process.terminate()
        for hand in list(hands):
            hand.process.join(PATIENCE)
            if hand.process.is_alive():
                hand.process.kill()
                hand.process.join()
            hand.pipe.close()
            self._hands.remove(hand)
