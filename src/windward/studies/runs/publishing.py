"""Curves of runs to Weights & Biases as they come, read from their folders by whoever began them.

So runs need to know nothing of it, in processes here or on a cluster. A run there has the name of
its folder as its id: a study that goes on later goes on there too.
"""

import csv
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from windward.studies.runs.store import CURVES, finished
from windward.studies.spec import Run

EVERY = 10.0
"""seconds between looks"""


@contextmanager
def published(project: str | None, runs: Sequence[Run], root: Path) -> Iterator[None]:
    """Sends the curves of runs to a project while they are made; None sends nothing."""
    if project is None:
        yield
        return
    publisher, over = Publisher(project, runs, root), threading.Event()
    failed: list[Exception] = []

    def carefully(send: Callable[[], None]) -> None:
        """What befalls the sending befalls no run, and hides no error of theirs."""
        try:
            send()
        except Exception as error:  # a server may fail in any way
            failed.append(error)

    def watch() -> None:
        while not over.wait(EVERY) and not failed:
            carefully(publisher.look)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        carefully(publisher.close)
        if failed:
            warnings.warn(
                f"Weights & Biases failed, and some curves are not there: {failed[0]!r}; they are "
                f"in {root}, and the same command sends them again",
                stacklevel=3,
            )


class Publisher:
    """Sends rows that it has not sent yet, at every `look`."""

    def __init__(self, project: str, runs: Sequence[Run], root: Path) -> None:
        self._wandb = library()
        self._project, self._runs, self._root = project, runs, root
        self._open: dict[str, Any] = {}
        self._sent: dict[str, int] = {}

    def look(self) -> None:
        """Sends what is new."""
        for run in self._runs:
            # Before the rows: those of a run that ends after this are sent at the next look.
            over = finished(run, self._root) is not None
            rows = _rows(run.folder(self._root) / CURVES)
            sent = self._sent.get(run.name, 0)
            if len(rows) > sent:
                there = self._open.get(run.name) or self._begin(run)
                for row in rows[sent:]:
                    numbers = {name: float(text) for name, text in row.items()}
                    step = int(numbers.pop("steps"))
                    if step >= there.step:  # else it is there, of an earlier command
                        there.log({k: v for k, v in numbers.items() if np.isfinite(v)}, step=step)
                self._sent[run.name] = len(rows)
            if over and run.name in self._open:
                self._open.pop(run.name).finish()

    def _begin(self, run: Run) -> Any:
        self._open[run.name] = made = self._wandb.init(
            project=self._project, id=run.name, name=run.label, config=dict(run.settings),
            dir=str(self._root), resume="allow", reinit="create_new",
            settings=self._wandb.Settings(silent=True, console="off"),
        )  # fmt: skip
        return made

    def close(self) -> None:
        """Sends the rest, and ends all."""
        self.look()
        for run in self._open.values():
            run.finish()


def library() -> Any:
    """Weights & Biases, or what to do to have it."""
    try:
        import wandb
    except ImportError as error:
        raise ValueError("--wandb needs Weights & Biases: pip install 'windward[wandb]'") from error
    if os.environ.get("WANDB_MODE") in ("offline", "disabled"):
        return wandb
    try:
        known = wandb.login(prompt=False)
    except Exception as error:  # an unknown key, a server that does not answer
        raise ValueError(f"Weights & Biases cannot be reached: {error}") from error
    if not known:
        raise ValueError(
            "Weights & Biases does not know who you are: run `wandb login`, or set "
            "WANDB_MODE=offline and `wandb sync` later"
        )
    return wandb


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
