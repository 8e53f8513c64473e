"""How many threads there are, and JAX set up so that each keeps to one core."""

import os
import sys

import jax


def cores() -> int:
    """Those that this process may use: what it is bound to, and no more than OMP_NUM_THREADS.

    Ray and other schedulers set that, and so do studies that make several runs at once.
    """
    told = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(bound_to(), int(told) if told.isdigit() else sys.maxsize))


def bound_to() -> int:
    """How many cores this process, and those that it starts, may run on."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return bound or 1


def one_core_each() -> None:
    """Computations run in the thread that asks for them, on one core.

    D4PG runs the critic's steps and the policy's side by side; each spread over all cores as well
    would get in the other's way. JAX reads this when it first computes, so call it before. It
    holds for the whole process: `windward train` does it, `import windward` does not.
    """
    os.environ.setdefault("PJRT_NPROC", "1")
    # A thread whose step is done waits for Python's lock while environments step: 0.5 ms at most,
    # not the usual 5.
    sys.setswitchinterval(0.0005)
    jax.config.update("jax_cpu_enable_async_dispatch", False)
