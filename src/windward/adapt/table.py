"""A step of rows of environments, and the table in which the core is handed it."""

from typing import Any, NamedTuple

import numpy as np

from windward.adapt.program import HEAD, Program


class Step(NamedTuple):
    """What rows of environments showed in one step; arrays with a row for each."""

    c: np.ndarray  # (B,)
    aux: dict[str, np.ndarray]  # (B, width) each
    terminated: np.ndarray  # (B,) bool
    truncated: np.ndarray
    valid: np.ndarray
    usable: np.ndarray  # (B,) bool: not refused for what the host knows of it
    u: np.ndarray | None = None  # (B,) the index of a discrete action
    usual: bool = False  # all rows are usable and none ends


class StepViews:
    """The columns of a table."""

    def __init__(self, table: np.ndarray, program: Program) -> None:
        self._given, self._rows = (table, program), len(table)
        self._usual: bool | None = None  # `learn`, if the flags are those of a usual step
        self._look()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy's views are of its own table."""
        self.__dict__.update(state)
        self._look()

    def _look(self) -> None:
        table, program = self._given
        self._c, self._flags, self._u = table[:, 0], table[:, 1:HEAD], table[:, HEAD]
        self._aux = [(name, table[:, columns]) for name, columns in program.columns]
        self._unit = table[:, program.unit_columns]

    def fill(self, step: Step, learn: bool, unit: np.ndarray) -> None:
        """Writes a step down."""
        self._c[:] = step.c
        if not step.usual or self._usual is not learn:
            self._set_flags(step, learn)
        if step.u is not None:
            self._u[:] = step.u
        for name, column in self._aux:
            column[:] = step.aux[name]
        self._unit[:] = unit

    def blank(self) -> None:
        """No step: nothing in it is valid."""
        self._flags[:], self._usual = 0, None

    def _set_flags(self, step: Step, learn: bool) -> None:
        flags: Any = (0, 0, 1, 1, learn)
        if not step.usual:
            learns = [learn] * self._rows
            rows = step.terminated, step.truncated, step.valid, step.usable, learns
            flags = np.stack(rows, axis=1)
        self._flags[:] = flags
        self._usual = learn if step.usual else None
