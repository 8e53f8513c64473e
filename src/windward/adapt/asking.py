"""Asking for ŵ: before a step and after it, in time, and whatever a simulator or critic does."""

from collections.abc import Callable
from typing import Any

import numpy as np

from windward.adapt.counterfactual import Counterfactual
from windward.adapt.engine import Engine
from windward.adapt.faults import Faults
from windward.adapt.sources import Aux, Happened, Source
from windward.core import signals

Timely = Callable[[Callable[[], Any]], tuple[bool, Any]]
"""runs what may be slow: (whether it was in time, what it gave)"""


class Asking:
    """Asks a source, and replays beside it; what goes wrong is noted and costs the step."""

    def __init__(
        self,
        source: Source,
        engine: Engine,
        teacher: Counterfactual | None,
        timely: Timely | None,
        every: np.ndarray,
    ) -> None:
        self._source, self._engine = source, engine
        self._teacher, self._timely = teacher, timely
        self._all, self._none = every, ~every  # told by `is`, which costs nothing

    @property
    def first(self) -> bool:
        """Whether somebody must be asked before the step."""
        return self._source.needs_steps or self._teacher is not None

    def before(self, x: Any, action: Any, faults: Faults) -> bool:
        """Lets the source predict; whether it could."""
        try:
            if self._teacher is not None:
                self._teacher.before(x, np.asarray(action))
            in_time, _ = self._in_time(self._source.before, np.asarray(action))
        except Exception as error:  # a simulator may fail in any way
            faults.note("signal", self._all, repr(error))
            return False
        if not in_time:
            faults.note("late", self._all)
        return in_time

    def after(self, happened: Happened, good: np.ndarray, faults: Faults) -> tuple[Aux, np.ndarray]:
        """Aux values of a step, and which of the good rows they could be made for."""
        if good is not self._all:
            if not good.any():
                return self._engine.blank(), good
            happened = happened.mended(good)  # good rows must not fail for what others hold
        try:
            in_time, aux = self._in_time(self._source.after, happened)
            if in_time and self._teacher is not None:
                w_hat = self._teacher.amend(aux[signals.W], happened.x_next)
                aux = {**aux, signals.W: w_hat}
            aux = self._engine.shaped(aux) if in_time else {}
        except Exception as error:  # a critic or a simulator may fail in any way
            faults.note("signal", good, repr(error))
            return self._engine.blank(), self._none
        if not in_time:
            faults.note("late", good)
            return self._engine.blank(), self._none
        return aux, good

    def _in_time(self, work: Callable[[Any], Any], given: Any) -> tuple[bool, Any]:
        return (True, work(given)) if self._timely is None else self._timely(lambda: work(given))
