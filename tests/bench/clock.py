"""A clock that moves by hand: what a benchmark reports is then the same on every machine."""

from collections.abc import Callable
from typing import Any


class Clock:
    """In place of `perf_counter`: time passes only where a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def taking(self, seconds: float, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, taking so many seconds."""

        def timed(*given: Any, **named: Any) -> Any:
            self.now += seconds
            return function(*given, **named)

        return timed
