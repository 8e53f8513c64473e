"""Many runs as Ray tasks, on this machine or a cluster.

A run whose worker or node dies is begun again elsewhere, and goes on from its checkpoint: the
folder of runs must be on a filesystem that all nodes share. What a run itself raises is its
failure, as it is without Ray.
"""

import logging
import os
import socket
import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from windward.agents.threads import one_core_each
from windward.atomic import prepare
from windward.studies.runs.pool import LOOK, Outcome, Watch, why
from windward.studies.runs.store import finished, perform
from windward.studies.spec import Run, unique

PATIENCE = 5.0
"""seconds that a cluster has to answer"""
SETTINGS, FRAME = b"\x04", 9
"""of HTTP/2: the kind of frame that both sides begin with, and the length of a frame's head"""
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + SETTINGS + b"\0\0\0\0\0"


def run_all(
    runs: Sequence[Run],
    root: Path,
    console: Console,
    *,
    address: str | None,
    cpus: float,
    memory: int,
    retries: int,
) -> Outcome:
    """Does all runs that are not finished; each is a task with so many cores and bytes."""
    outcome = Outcome()
    root = prepare(root).resolve()
    todo = [run for run in unique(runs) if finished(run, root) is None]
    if not todo:
        return outcome
    with connected(address) as ray:
        probe = root / f".probe-{uuid.uuid4().hex}"
        probe.touch()
        try:
            with Watch(todo, root, console) as watch:
                if not any(_fits(node, cpus, memory) for node in ray.nodes()):
                    watch.say(
                        f"no node of the cluster has {cpus:g} core(s) and {memory / 2**30:.1f} GiB "
                        "to give: runs wait until one joins"
                    )
                # Ray would begin a task again that raised, too, but that is the run's failure.
                task = ray.remote(num_cpus=cpus, memory=memory, max_retries=retries)(work)
                flying = {task.remote(run, root, probe): run for run in todo}
                while flying:
                    ready, _ = ray.wait(list(flying), num_returns=1)
                    for each in ready:
                        run = flying.pop(each)
                        failure = _failure(ray, each)
                        if failure is not None:
                            outcome.failed[run.name] = failure
                        watch.ended(run, failure)
        finally:
            probe.unlink(missing_ok=True)
    return outcome


def _fits(node: dict[str, Any], cpus: float, memory: int) -> bool:
    has = node["Resources"]
    return bool(node["Alive"] and has.get("CPU", 0) >= cpus and has.get("memory", 0) >= memory)


def _failure(ray: Any, task: Any) -> str | None:
    try:
        answer: str | None = ray.get(task)
    except ray.exceptions.RayError as error:
        return f"its worker was lost too often: {why(error)}"
    return answer


def work(run: Run, root: Path, probe: Path) -> str | None:
    """A run, in a worker of Ray's; in one line why it failed, if it did."""
    if not probe.exists():
        return (
            f"{root} is not there on {socket.gethostname()}: the folder of runs must be on a "
            "filesystem that all nodes share; name one with --runs"
        )
    one_core_each()
    try:
        # The worker that had it before may be alive, only out of sight.
        while perform(run, root) is not None:
            time.sleep(LOOK)
    except Exception as error:  # whatever it is, the others go on
        return why(error)
    return None


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Ray: the one that runs, that at an address, or one on this machine, ended afterwards."""
    try:
        import ray  # slow to import, and only needed here
    except ImportError as error:
        raise ValueError("backend ray needs Ray: pip install 'windward[ray]'") from error
    if ray.is_initialized():
        yield ray
        return
    if address is not None:
        knock(address)
    with warnings.catch_warnings():
        # JAX, and Python from 3.12 on, warn of forks; Ray's become other programs at once.
        warnings.filterwarnings("ignore", r"os\.fork\(\) was|This process .* use of fork\(\) may")
        try:
            ray.init(
                address=address or ("local" if "RAY_ADDRESS" not in os.environ else None),
                include_dashboard=None if address else False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ValueError(f"there is no Ray cluster at {address!r}: {why(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def knock(address: str) -> None:
    """Refuses an address where no Ray answers: Ray itself would try for minutes.

    Whatever Ray serves there is gRPC, which greets whoever greets it as HTTP/2 says.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")  # IPv6
    if address == "auto":
        return
    if not colon or not port.isdigit():
        raise ValueError(f"address must be HOST:PORT, ray://HOST:PORT or auto; got {address!r}")
    answer, why_not = b"", "what answers there is no Ray"
    try:
        with socket.create_connection((host, int(port)), PATIENCE) as line:
            if os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true"):
                return  # it greets nobody in the clear
            line.sendall(GREETING)
            while len(answer) < FRAME and (more := line.recv(FRAME - len(answer))):
                answer += more
    except OSError as error:
        why_not = str(error)
    if answer[3:4] != SETTINGS:
        raise ValueError(
            f"no Ray cluster answers at {address}: {why_not}. `ray status --address {address}` on "
            "its head node tells whether it runs"
        )
