"""What learning shows: a progress bar, curves as CSV, TensorBoard scalars."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.text import Text

from windward.atomic import write_rows

OURS = ".windward"
"""how files for TensorBoard end that a log writes: others in its folder are not touched"""


class _Speed(ProgressColumn):
    """Steps a second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f} steps/s")


class Progress:
    """A bar with the return of the last episodes, steps a second and the time left."""

    def __init__(self, total: int, done: int, shown: bool) -> None:
        self._bar = Bar(
            TextColumn("return {task.fields[value]}"),
            BarColumn(),
            MofNCompleteColumn(),
            _Speed(),
            TimeRemainingColumn(),
            disable=not shown,
        )
        self._task = self._bar.add_task("", total=total, completed=done, value="-")
        self._shown, self._waiting = shown, 0

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def advance(self, steps: int, returns: Sequence[float]) -> None:
        """Counts steps."""
        self._waiting += steps
        if self._shown and self._waiting >= 200:  # a bar need not be told of every step
            value = f"{np.mean(returns):.0f}" if returns else "-"
            self._bar.update(self._task, advance=self._waiting, value=value)
            self._waiting = 0


class Board:
    """Rows as TensorBoard scalars, in a folder."""

    def __init__(self, folder: Path, suffix: str = "") -> None:
        from tensorboardX import SummaryWriter  # slow to import, and only needed here

        self._writer = SummaryWriter(str(folder), filename_suffix=suffix)

    def add(self, row: Mapping[str, Any]) -> None:
        """One row; what is not finite, such as a mean of no episodes, is left out."""
        for name, value in row.items():
            if name != "steps" and np.isfinite(value):
                self._writer.add_scalar(name, value, row["steps"])
        self._writer.flush()  # of what its thread has written; it may not be at the last yet

    def close(self) -> None:
        """Ends writing."""
        self._writer.close()


class Log:
    """The rows of curves.csv, and the same as TensorBoard scalars."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._folder: Path | None = None
        self._board: Board | None = None

    def open(self, folder: Path | None) -> None:
        """Takes up a folder to write to.

        All rows there are go into a new file for TensorBoard, in place of what was there of ours:
        a kill may have lost some of them, and what came after the last checkpoint comes again.
        """
        self._folder = folder
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        self._write()
        for path in folder.glob(f"events.*{OURS}"):
            path.unlink()
        self._board = Board(folder, OURS)
        for row in self.rows:
            self._board.add(row)

    def add(self, **row: Any) -> None:
        """One row."""
        self.rows.append(row)
        if self._folder is not None:
            self._write()
        if self._board is not None:
            self._board.add(row)

    def _write(self) -> None:
        assert self._folder is not None
        if not self.rows:
            return
        write_rows(self._folder / "curves.csv", self.rows)

    def close(self) -> None:
        """Ends writing."""
        if self._board is not None:
            self._board.close()
            self._board = None
