"""One process at a time in a folder: who holds it, and what becomes of the hold after a kill.

A lock is a file that names its owner by host, process and the time at which that process began, as
numbers of processes are used again. On the same host a lock whose owner is gone is taken over at
once. What runs on another host, or in another container, cannot be seen from here: owners touch
their lock every few seconds, and one that was not touched for a while is taken over. No two clocks
are compared.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from windward.atomic import write_text

NAME = "lock.json"
BEAT = 5.0
"""seconds between touches of a lock by its owner"""
SILENCE = 6
"""touches of another host's owner that are waited for before it counts as gone"""


@dataclass(frozen=True)
class Owner:
    """A process, told from all others, and one hold of it."""

    host: str
    pid: int
    started: str
    hold: str
    space: str = ""
    """in which processes see each other: containers may share a host's name and see none of it"""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def here(self) -> bool:
        """Whether it is, or was, where this process could see it."""
        return (self.host, self.space) == (socket.gethostname(), space())

    @property
    def gone(self) -> bool:
        """Whether it was here and is no more."""
        return self.here and started(self.pid) != self.started


def space() -> str:
    """The namespace of processes that this one lives in; "" where the system has none."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def started(pid: int) -> str | None:
    """When a process began, in a form of the system's own; None if there is none (or a zombie).

    Where the system does not say, "" for a process that is there.
    """
    if not Path("/proc/self/stat").exists():
        try:
            os.kill(pid, 0)
        except PermissionError:
            return ""
        except OSError:
            return None
        return ""
    try:
        # The name of the program, in parentheses, may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"


@contextmanager
def guard(folder: Path) -> Iterator[None]:
    """Keeps all others out for a moment; ended by the system if this process dies."""
    with (folder / ".guard").open("w") as file:
        with suppress(ImportError, OSError):  # a system without such locks: then on good luck
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Lock:
    """The hold of one run's folder.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with Lock(folder) as one:
    ...     other = Lock(folder)
    ...     other.take() == one.owner  # who has it
    True
    >>> other.take() is None  # it is ours
    True
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        began = started(os.getpid()) or ""
        self.owner = Owner(socket.gethostname(), os.getpid(), began, uuid.uuid4().hex, space())
        self._over = threading.Event()
        self._beats: threading.Thread | None = None

    def holder(self) -> Owner | None:
        """Who has it according to the file; None if nobody, or one who is gone.

        A file that is there and cannot be read raises: nobody knows whether it is held.
        """
        try:
            owner = Owner(**json.loads(self.path.read_text()))
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
            return None  # a file of no meaning holds nothing
        return None if owner.gone else owner

    def take(self) -> Owner | None:
        """Takes the lock and gives None; or gives who has it."""
        with guard(self.path.parent):
            owner = self.holder()
            if owner is not None:
                return owner
            write_text(self.path, json.dumps(asdict(self.owner)))
        self._over.clear()
        self._beats = threading.Thread(target=self._beat, daemon=True)
        self._beats.start()
        return None

    def take_over(self) -> Owner | None:
        """`take`; an owner that cannot be seen from here is listened for first."""
        owner = self.take()
        return self.take_when_silent(owner) if owner is not None and not owner.here else owner

    def take_when_silent(self, owner: Owner) -> Owner | None:
        """`take`, once an owner on another host has not been heard of for a while.

        Gives who has it if that one was heard of, or another came.
        """
        before = self._touched()
        for _ in range(SILENCE):
            time.sleep(BEAT)
            if self._touched() != before or self.holder() != owner:
                return self.take()
        with guard(self.path.parent):
            if self.holder() == owner and self._touched() == before:
                self.path.unlink(missing_ok=True)
        return self.take()

    def _touched(self) -> int | None:
        try:
            return self.path.stat().st_mtime_ns
        except OSError:
            return None

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            with suppress(OSError):  # perhaps it can be read again at the next beat
                if self.ours:
                    os.utime(self.path)

    @property
    def ours(self) -> bool:
        """Whether it still is: a process that slept for long may have been taken for dead."""
        return self.holder() == self.owner

    def release(self) -> None:
        """Gives it back."""
        self._over.set()
        if self._beats is not None:
            self._beats.join()
            self._beats = None
        with guard(self.path.parent):
            if self.ours:
                self.path.unlink(missing_ok=True)

    def __enter__(self) -> "Lock":
        owner = self.take_over()
        if owner is not None:
            raise ValueError(f"{self.path.parent} is held by {owner}: wait for it, or end it")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
