"""Work that must be done in time, or is done without."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from typing import Any

from windward import checks


class Deadline:
    """Runs work in a thread and waits for it `seconds` at most.

    Called with work it gives (True, result) in time and (False, None) otherwise. Late work runs to
    its end, unused; as long as it runs, all other work is late at once.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = float(checks.positive("deadline", seconds))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="windward-deadline")
        self._running: Future[Any] | None = None

    def __call__(self, work: Callable[[], Any]) -> tuple[bool, Any]:
        """(in time, result)."""
        if self._running is not None and not self._running.done():
            return False, None
        self._running = self._thread.submit(work)
        try:
            return True, self._running.result(self.seconds)
        except Late:
            return False, None
