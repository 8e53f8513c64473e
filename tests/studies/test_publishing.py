"""Curves in Weights & Biases (the real one, offline) and in TensorBoard's files."""

import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.studies import work
from windward.studies import execution, publishing, store
from windward.studies.execution import Execution


def test_every_run_has_a_file_for_tensorboard(tmp_path: Path) -> None:
    sizes = []
    for goal in (20, 50):  # it goes on
        run = work.run(1, goal)
        store.perform(run, tmp_path)
        (file,) = run.folder(tmp_path).glob("events.*")
        content = file.read_bytes()
        sizes.append(content.count(b"eval_return"))
    assert sizes == [2, 5]


def test_curves_are_sent_once_with_settings_and_go_on(
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
        content = file.read_bytes()
        assert b"eval_return" in content
        assert b"windward-tests" in content


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
    publisher = publishing.Publisher("project", [work.run(1)], tmp_path)
    there = Recorded(step=20)  # an earlier command sent steps up to 19

    def begin(run: store.Run) -> Any:
        return publisher._open.setdefault(run.name, there)

    monkeypatch.setattr(publisher, "_begin", begin)
    publisher.look()
    assert not there.rows  # nothing has begun
    for goal in (30, 40):
        store.perform(work.run(1, goal), tmp_path)
        publisher.look()
    publisher.close()
    curve = store.curve(work.run(1), tmp_path)
    known = dict(zip(curve["steps"], curve["eval_return"], strict=True))
    assert there.rows == [(step, {"eval_return": known[step]}) for step in (20, 30, 40)]
    assert there.over


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
