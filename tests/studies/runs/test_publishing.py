"""Curves in Weights & Biases (the real one, offline) and in TensorBoard's files."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.studies.runs import work
from windward.studies.runs import execution, publishing, store
from windward.studies.spec import Execution, Run


def test_every_run_has_a_file_for_tensorboard(tmp_path: Path) -> None:
    sizes = []
    for goal in (20, 50):  # it goes on
        run = work.run(1, goal)
        store.perform(run, tmp_path)
        (file,) = run.folder(tmp_path).glob("events.*")
        content = file.read_bytes()
        sizes.append(content.count(b"eval_return"))
    assert sizes == [2, 5]


def test_curves_and_settings_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(publishing, "EVERY", 0.05)
    how = Execution(runs=tmp_path, jobs=1, wandb="windward-tests")
    execution.check(how)
    runs = [work.run(seed) for seed in (1, 2)]
    assert not execution.execute(runs, how, 0, console).failed
    for run in runs:
        (file,) = tmp_path.glob(f"wandb/offline-run-*-{run.name}/*.wandb")
        until = time.monotonic() + 20
        while b"eval_return" not in file.read_bytes() and time.monotonic() < until:
            time.sleep(0.05)  # a process of wandb's writes it, and takes its time
        assert b"eval_return" in file.read_bytes()
        assert b"windward-tests" in file.read_bytes()


class Recorded:
    """What a run of wandb's is told."""

    def __init__(self, step: int = 0) -> None:
        self.step, self.rows, self.over = step, list[tuple[int, dict[str, float]]](), False

    def log(self, row: dict[str, float], step: int) -> None:
        self.rows.append((step, row))

    def finish(self) -> None:
        self.over = True


def test_only_what_is_new_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "library", lambda: None)
    publisher = publishing.Publisher("project", [work.run(1, 40)], tmp_path)
    there = Recorded(step=20)  # an earlier command sent steps up to 19

    def begin(run: Run) -> Any:
        return publisher._open.setdefault(run.name, there)

    monkeypatch.setattr(publisher, "_begin", begin)
    publisher.look()
    assert not there.rows  # nothing has begun
    for goal in (30, 40):
        store.perform(work.run(1, goal), tmp_path)
        publisher.look()
        assert there.over == (goal == 40)  # it is ended as soon as it is finished
    publisher.close()
    curve = store.curve(work.run(1), tmp_path)
    known = dict(zip(curve["steps"], curve["eval_return"], strict=True))
    assert there.rows == [(step, {"eval_return": known[step]}) for step in (20, 30, 40)]
    assert there.over


def test_a_run_that_ends_while_it_is_begun_there_is_begun_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, begun = work.run(1, 40), list[Recorded]()
    store.perform(work.run(1, 20), tmp_path)
    monkeypatch.setattr(publishing, "library", lambda: None)
    publisher = publishing.Publisher("project", [run], tmp_path)

    def begin(run: Run) -> Any:
        begun.append(Recorded())
        publisher._open[run.name] = begun[-1]
        store.perform(run, tmp_path)  # meanwhile the last rows come, and the mark
        return begun[-1]

    monkeypatch.setattr(publisher, "_begin", begin)
    for _ in range(2):
        publisher.look()
    (there,) = begun
    assert [step for step, _ in there.rows] == [10, 20, 30, 40]
    assert there.over


def test_what_befalls_the_sending_befalls_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: publishing.Publisher) -> None:
        raise RuntimeError("no server")

    monkeypatch.setattr(publishing, "library", lambda: None)
    monkeypatch.setattr(publishing.Publisher, "look", fails)
    monkeypatch.setattr(publishing, "EVERY", 0.01)
    with (
        pytest.warns(UserWarning, match="failed, and some curves are not there.*no server"),
        publishing.published("project", [work.run(1)], tmp_path),
    ):
        store.perform(work.run(1), tmp_path)
    assert store.finished(work.run(1), tmp_path) is not None
    with (
        pytest.warns(UserWarning, match="no server"),
        pytest.raises(ValueError, match="of the runs"),
        publishing.published("project", [], tmp_path),
    ):
        raise ValueError("an error of the runs")


def test_without_it_what_to_install_is_said_before_anything_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=r"pip install 'windward\[wandb\]'"):
        execution.check(Execution(runs=tmp_path, wandb="project"))
    execution.check(Execution(runs=tmp_path, wandb="project", dry_run=True))
    assert not list(tmp_path.iterdir())


def test_who_is_not_known_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb  # slow to import

    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setattr(wandb, "login", lambda prompt: False)
    with pytest.raises(ValueError, match="run `wandb login`, or set WANDB_MODE=offline"):
        publishing.library()
