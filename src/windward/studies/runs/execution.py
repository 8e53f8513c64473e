"""How the runs of a study are done: where, how many at once, or only planned."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from windward import checks
from windward.agents.threads import bound_to
from windward.studies.runs import pool, publishing, ray_backend
from windward.studies.runs.pool import Outcome
from windward.studies.spec import Execution, Run


def execute(runs: Sequence[Run], how: Execution, memory: int, console: Console) -> Outcome:
    """Does all that are not finished; `memory` is what one needs, in bytes."""
    with publishing.published(how.wandb, runs, how.runs):
        if how.backend == "ray":
            return ray_backend.run_all(
                runs, how.runs, console, address=how.address, cpus=how.cpus, memory=memory,
                retries=how.retries,
            )  # fmt: skip
        return pool.run_all(runs, how.runs, at_once(how, memory), console)


def at_once(how: Execution, memory: int) -> int:
    """How many runs share this machine, where each needs so many bytes."""
    return max(1, min(bound_to(), free_memory() // memory)) if how.jobs is None else how.jobs


def free_memory() -> int:
    """Bytes that can be had without swapping, or that a container allows; 2**62 if nobody says."""
    free = 2**62
    with suppress(OSError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        told = dict(line.split(":", 1) for line in lines)
        free = int(told["MemAvailable"].split()[0]) * 1024  # it says kB and means KiB
    with suppress(OSError, ValueError):  # ValueError: its "max" is no number
        free = min(free, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return free


def check(how: Execution) -> None:
    """Refuses what makes no sense, before anything is run."""
    if how.jobs is not None:
        checks.integer("jobs", how.jobs, 1)
    checks.integer("retries", how.retries, 0)
    checks.positive("cpus", how.cpus)
    if how.address is not None and how.backend != "ray":
        raise ValueError(f"address is for --backend ray; got {how.address!r} without it")
    if how.wandb is not None and how.train and not how.dry_run:
        publishing.library()
    if how.address is not None and how.train and not how.dry_run:
        ray_backend.knock(how.address)  # before a folder is made
