"""Many runs: what is not finished is done, what fails is said, what another is at is waited for."""

import io
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.studies.runs import work
from windward.studies.runs import execution, pool, store
from windward.studies.runs.locks import Lock
from windward.studies.spec import Execution, Pace, Task

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "LOOK", 0.02)


def _said() -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=200), text


def test_as_many_at_once_as_cores_and_memory_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "bound_to", lambda: 8)
    monkeypatch.setattr(execution, "free_memory", lambda: 5 * 2**30)
    assert execution.at_once(Execution(), 2**30) == 5
    assert execution.at_once(Execution(), 2**20) == 8
    assert execution.at_once(Execution(), 2**33) == 1
    assert execution.at_once(Execution(jobs=3), 2**33) == 3


def test_free_memory_is_that_of_this_machine() -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < execution.free_memory() <= total


def test_all_are_done_once_and_one_that_fails_stops_no_other(tmp_path: Path) -> None:
    console, text = _said()
    runs = [work.run(1), work.run(2, fail=15), work.run(3), work.run(1, goal=70)]
    outcome = pool.run_all(runs, tmp_path, 1, console)
    assert outcome.failed == {runs[1].name: "RuntimeError: it failed at step 15"}
    assert f"run 3 of 3 ended: {runs[2].name}" in text.getvalue()  # this is no terminal
    assert f"failed: {runs[1].name}" in text.getvalue()
    assert work.starts(runs[0].folder(tmp_path)) == ["0"]  # once, with the higher goal
    assert store.finished(runs[3], tmp_path) is not None
    assert store.finished(runs[2], tmp_path) is not None
    with pytest.raises(ValueError, match=r"(?s)1 of 4 runs failed; .*it failed at step 15"):
        outcome.raise_for(4, tmp_path)
    # The next command tries that one alone.
    again = pool.run_all(runs, tmp_path, 1, console)
    assert list(again.failed) == [runs[1].name]
    assert work.starts(runs[1].folder(tmp_path)) == ["0", "10"]
    assert work.starts(runs[2].folder(tmp_path)) == ["0"]
    pool.Outcome().raise_for(4, tmp_path)


def test_if_all_failed_nothing_is_said_of_others(tmp_path: Path) -> None:
    outcome = pool.Outcome({"one": "it broke", "two": "so did it"})
    with pytest.raises(ValueError, match=r"^all 2 of 2 runs failed\. Run the same"):
        outcome.raise_for(2, tmp_path)
    with pytest.raises(ValueError, match=r"^2 of 3 runs failed; the others are finished"):
        outcome.raise_for(3, tmp_path)


def test_one_that_another_command_is_at_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console, text = _said()
    runs = [work.run(1), work.run(2)]
    folder = runs[0].folder(tmp_path)
    folder.mkdir()
    other = Lock(folder)
    assert other.take() is None
    naps = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        assert store.finished(runs[1], tmp_path) is not None  # meanwhile the rest is done
        other.release()

    monkeypatch.setattr(pool, "time", SimpleNamespace(sleep=sleep))  # of no other thread
    assert not pool.run_all(runs, tmp_path, 1, console).failed
    assert len(naps) == 1
    assert store.finished(runs[0], tmp_path) is not None
    assert ": waiting for it" in text.getvalue()


def _dies(task: Task) -> Pace:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_processes_share_the_work_and_one_that_is_killed_is_replaced(tmp_path: Path) -> None:
    console, _ = _said()
    runs = [work.run(1), replace(work.run(2), do=_dies), *(work.run(seed) for seed in range(3, 8))]
    outcome = pool.run_all(runs, tmp_path, 2, console)
    assert list(outcome.failed) == [runs[1].name]
    assert "its process was killed" in outcome.failed[runs[1].name]
    others = [run for run in runs if run is not runs[1]]
    assert all(store.finished(run, tmp_path) is not None for run in others)
    pids = {(run.folder(tmp_path) / "starts.txt").read_text().split()[0] for run in others}
    assert str(os.getpid()) not in pids
    # What was killed is not in the way of the next one.
    assert not pool.run_all([work.run(2)], tmp_path, 2, console).failed


SCRIPT = """
import sys
from pathlib import Path
from rich.console import Console
from tests.studies.runs import work
from windward.studies.runs import pool

if __name__ == "__main__":
    root = Path(sys.argv[1])
    runs = [work.run(seed, wait=25, file=str(root / "go")) for seed in (1, 2)]
    pool.run_all(runs, root, 2, Console(quiet=True))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_stopped_leaves_no_process_and_the_next_goes_on(
    how: signal.Signals, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environ = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    command = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=environ)
    while len(list(tmp_path.glob("waiting-*"))) < 2:
        time.sleep(0.05)
        assert command.poll() is None
    runs = [work.run(seed, wait=25, file=str(tmp_path / "go")) for seed in (1, 2)]
    owners = [store.holder(run, tmp_path) for run in runs]
    assert all(owner is not None for owner in owners)
    command.send_signal(how)
    command.wait()
    while any(store.holder(run, tmp_path) is not None for run in runs):
        time.sleep(0.05)  # a moment later the processes have ended with it
    (tmp_path / "go").touch()
    console, _ = _said()
    assert not pool.run_all(runs, tmp_path, 1, console).failed
    for run in runs:
        assert work.starts(run.folder(tmp_path)) == ["0", "20"]
        calm = work.run(run.settings["seed"])
        store.perform(calm, tmp_path)
        curves = [(each.folder(tmp_path) / "curves.csv").read_bytes() for each in (run, calm)]
        assert curves[0] == curves[1]
