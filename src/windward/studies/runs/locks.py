"""One process at a time in a folder, by the lock of the system's own kernel.

Such a lock ends with the process that holds it, however that ends, and is seen in every container
and, on shared filesystems with locks (NFS, Lustre with -o flock), on every host.
"""

import os
import socket
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

NAME, HOLDER = ".lock", ".holder"
SOMEBODY = "another process"
PATIENCE = 0.05
"""seconds: whoever looks who has a lock holds it for a moment"""


def guard(folder: Path) -> FileLock:
    """Keeps all others out for a moment: `with guard(folder): ...`."""
    return FileLock(folder / ".guard")


class Lock:
    """The hold of one run's folder.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with Lock(folder) as one:
    ...     Lock(folder).take() == one.owner  # who has it
    True
    >>> Lock(folder).take() is None  # it is ours
    True
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.owner = f"process {os.getpid()} on {socket.gethostname()}"
        # Not of a thread: whoever beats, waits or ends a run may be another one.
        self._lock = FileLock(folder / NAME, thread_local=False)
        self._inode: int | None = None

    def take(self, patience: float = PATIENCE) -> str | None:
        """Takes the lock and gives None; or gives who has it, in words."""
        try:
            self._lock.acquire(timeout=patience, poll_interval=PATIENCE / 5)
        except Timeout:
            with suppress(OSError):
                return (self.folder / HOLDER).read_text() or SOMEBODY
            return SOMEBODY
        self._inode = self._found()
        (self.folder / HOLDER).write_text(self.owner)
        return None

    def _found(self) -> int | None:
        try:
            return (self.folder / NAME).stat().st_ino
        except OSError:
            return None

    @property
    def ours(self) -> bool:
        """Whether it still is: somebody may have deleted the folder, and another begun it anew."""
        return self._lock.is_locked and self._found() == self._inode

    def release(self) -> None:
        """Gives it back."""
        if self._lock.is_locked:
            if self.ours:
                (self.folder / HOLDER).unlink(missing_ok=True)
            self._lock.release()

    def __enter__(self) -> "Lock":
        owner = self.take()
        if owner is not None:
            raise ValueError(f"{self.folder} is held by {owner}: wait for it, or end it")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def holder(folder: Path) -> str | None:
    """Who works in a folder now, in words; None if nobody, or if that cannot be known."""
    if not (folder / NAME).exists():
        return None
    lock = Lock(folder)
    try:
        owner = lock.take(0)
    except OSError:
        return None
    lock.release()
    return owner
