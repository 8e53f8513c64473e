"""Runs as Ray tasks: what dies is begun again from its checkpoint, with the same numbers."""

import io
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.studies.runs import work
from windward.agents import Settings
from windward.studies.paper import lds_high
from windward.studies.paper import lds_low as lds
from windward.studies.paper.lds_high import LdsHigh
from windward.studies.paper.lds_low import LdsLow
from windward.studies.paper.training import train, training
from windward.studies.run import conduct
from windward.studies.runs import ray_backend, store
from windward.studies.runs.execution import check
from windward.studies.spec import Execution, Pace, Task

ray = pytest.importorskip("ray")

SMALL: dict[str, Any] = {"cpus": 1.0, "memory": 2**27, "retries": 3}


@pytest.fixture(scope="module", autouse=True)
def _tests_are_no_package_there() -> Iterator[None]:
    modules = sys.modules[__name__], work
    for module in modules:
        ray.cloudpickle.register_pickle_by_value(module)
    yield
    for module in modules:
        ray.cloudpickle.unregister_pickle_by_value(module)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _dies_once(task: Task) -> Pace:
    """Its process is killed at step 25, when it is done for the first time."""
    once = task.folder / "died"
    if once.exists():
        return work.counting(task)
    once.touch()
    work.counting(task._replace(run=replace(task.run, goal=20)))
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _held(task: Task) -> Pace:
    """Trains beyond a checkpoint, and waits there until the gate is open."""
    with (task.folder / "starts.txt").open("a") as file:
        file.write(f"{os.getpid()} from {store.reached(task.run, task.folder.parent)}\n")
    train(task._replace(run=replace(task.run, goal=800)))
    (task.folder / "held").touch()
    while not (task.folder.parent / "gate").exists():
        task.check()
        time.sleep(0.02)
    return train(task)


def test_runs_are_done_a_lost_worker_is_replaced_and_a_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_worker_niceness", "0")  # else whatever else runs here comes first
    text = io.StringIO()
    lost = replace(work.run(1), do=_dies_once)
    runs = [lost, work.run(2, fail=15), work.run(3)]
    console = Console(file=text, width=200)
    outcome = ray_backend.run_all(runs, tmp_path, console, address=None, **SMALL)
    assert outcome.failed == {runs[1].name: "RuntimeError: it failed at step 15"}
    assert f"failed: {runs[1].name}" in text.getvalue()
    assert work.starts(lost.folder(tmp_path)) == ["0", "20"]
    store.perform(work.run(1), tmp_path / "here")
    curves = [each / lost.name / "curves.csv" for each in (tmp_path, tmp_path / "here")]
    assert curves[0].read_bytes() == curves[1].read_bytes()
    assert store.finished(runs[2], tmp_path) is not None
    assert not list(tmp_path.glob(".probe*"))
    assert not ray.is_initialized()  # it was started for this


def test_a_folder_that_the_node_does_not_share_is_told(tmp_path: Path) -> None:
    told = ray_backend.work(work.run(1), tmp_path, tmp_path / "nowhere")
    assert told is not None
    assert "must be on a filesystem that all nodes share" in told


def test_an_address_where_nobody_answers_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    def init(**_: Any) -> None:
        raise AssertionError("Ray would try for minutes")

    monkeypatch.setattr(ray, "init", init)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"no Ray cluster answers at {address}: .*refused"):
            ray_backend.run_all([work.run(1)], tmp_path, console, address=address, **SMALL)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("says", "told"), [(b"", "timed out"), (b"HTTP/1.1 404 Not Found\r\n", "is no Ray")]
)
def test_a_port_where_something_else_listens_is_refused_and_no_folder_is_made(
    says: bytes, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    monkeypatch.setattr(ray_backend, "PATIENCE", 0.2)
    lines = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            lines.append(server.accept()[0])
            lines[0].sendall(says)

        listener = threading.Thread(target=listen)
        listener.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        how = Execution(backend="ray", address=address, runs=tmp_path / "runs")
        study = LdsHigh(scale="smoke", out=tmp_path / "out", how=how)
        with pytest.raises(ValueError, match=f"no Ray cluster answers at {address}: .*{told}"):
            conduct(lds_high.STUDY, study, console)
        listener.join()
        lines[0].close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("address", ["somewhere", "host:", "host:port"])
def test_an_address_must_be_one(address: str, tmp_path: Path, console: Console) -> None:
    with pytest.raises(ValueError, match="address must be HOST:PORT"):
        ray_backend.run_all([work.run(1)], tmp_path, console, address=address, **SMALL)


def test_without_ray_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"needs Ray: pip install 'windward\[ray\]'"):
        ray_backend.run_all([work.run(1)], tmp_path, console, address=None, **SMALL)


def test_where_all_is_done_no_ray_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    store.perform(work.run(1), tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    outcome = ray_backend.run_all([work.run(1)], tmp_path, console, address=None, **SMALL)
    assert not outcome.failed


def test_an_address_without_the_backend_is_refused() -> None:
    with pytest.raises(ValueError, match="address is for --backend ray"):
        check(Execution(address="head:6379"))


def _low(out: Path, how: Execution, console: Console) -> bytes:
    conduct(lds.STUDY, LdsLow(scale="smoke", out=out, how=how), console)
    return (out / "runs.csv").read_bytes()


@pytest.mark.slow
def test_a_study_on_ray_is_the_same_as_here(tmp_path: Path, console: Console) -> None:
    there, here = (
        _low(tmp_path / "out" / how.backend, how, console)
        for how in (
            Execution(tmp_path / "ray", 1, backend="ray"),
            Execution(tmp_path / "local", 1, backend="local"),
        )
    )
    assert there == here


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of Ray's own nodes, beside JAX
def test_a_node_that_dies_in_the_middle_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real cluster of three nodes; the runs end with the floats of runs that nothing befell."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_worker_niceness", "0")
    agent = Settings(
        widths=(8,), num_atoms=5, batch_size=16, samples_per_insert=2.0, min_replay=32,
        replay_size=2_000, segment=400,
    )  # fmt: skip
    runs = [
        replace(training("Pendulum-v1", agent, seed, 2_000, 400, 1), do=_held) for seed in range(3)
    ]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    text = io.StringIO()
    killed: list[str] = []
    look = ray_backend.Watch._look

    def kill(self: Any) -> None:
        """Beside the bar: once both nodes are at work beyond a checkpoint, one of them is gone."""
        while not self._over.wait(0.05):
            held = [run.name for run in runs if (run.folder(tmp_path) / "held").exists()]
            if len(held) == 2:
                killed.extend(held)
                starts = [(tmp_path / name / "starts.txt").read_text() for name in held]
                workers = [int(each.split()[0]) for each in starts]
                cluster.remove_node(nodes[0], allow_graceful=False)
                # Its worker may outlive the node for a moment, in which it would finish the run.
                while all(map(_alive, workers)) and not self._over.wait(0.05):
                    pass
                (tmp_path / "gate").touch()
                break
        look(self)

    try:
        monkeypatch.setattr(ray_backend.Watch, "_look", kill)
        console = Console(file=text, width=200)
        outcome = ray_backend.run_all(runs, tmp_path, console, address=cluster.address, **SMALL)
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert killed
    assert not outcome.failed
    for run in runs:
        store.perform(replace(run, do=train), tmp_path / "here")
        curves = [each / run.name / "curves.csv" for each in (tmp_path, tmp_path / "here")]
        assert curves[0].read_bytes() == curves[1].read_bytes()
    stayed, moved = sorted((work.starts(tmp_path / name) for name in killed), key=len)
    assert stayed == ["0"]
    assert moved[0] == "0"
    assert 800 <= int(moved[1]) < 2_000  # from a checkpoint
