"""`windward bench train`: D4PG against SBX and SB3 DDPG, and against the machine's limit."""

import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter, sleep
from typing import Any

import numpy as np

from windward.agents import Settings
from windward.agents.crew import Crew
from windward.agents.learner import Learner, init
from windward.agents.losses import Batch
from windward.agents.pipeline import Pipeline
from windward.agents.threads import one_core_each
from windward.bench.contender import ENV, WIDTHS
from windward.studies.runs.origin import versions


@dataclass(frozen=True)
class BenchTrain:
    """D4PG on Hopper-v5: steps a second against SBX and SB3, updates against matrix products."""

    steps: int = 8_000
    """environment steps of each timing"""
    updates: int = 150
    """updates of each timing, in five slices with matrix products between them"""
    seeds: int = 2
    """agents trained together for fraction_of_limit_seeds"""
    repeats: int = 5
    """timings of each, taken in turns; the median of the ratios counts"""
    json: bool = False
    """print the JSON object alone"""


def update_flops(d_x: int, d_u: int, widths: tuple[int, ...], atoms: int, batch: int) -> int:
    """Floating-point operations of one update in matrix products alone.

    A layer of n rows costs 2n·in·out forward, as much again for the gradient of its weights and as
    much for that of its input. Forward: both policies, the target critic, the critic twice.
    Weights: policy and critic. Inputs: all layers but the first for policy and critic, and all of
    the critic once more for dQ/du.
    """

    def products(sizes: list[int]) -> list[int]:
        return [2 * batch * a * b for a, b in pairwise(sizes)]

    policy = products([d_x, *widths, d_u])
    critic = products([d_x + d_u, *widths, atoms])
    forward = 2 * sum(policy) + 3 * sum(critic)
    weights = sum(policy) + sum(critic)
    inputs = sum(policy[1:]) + sum(critic[1:]) + sum(critic)
    return forward + weights + inputs


SIZE = 2048
"""rows and columns of the matrices whose product is the machine's measure"""
SLICES = 5


def matmul_seconds(count: int = 3) -> float:
    """Seconds that large float32 matrix products take on all cores, on average."""
    a = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
    a @ a  # the library's threads wake up
    start = perf_counter()
    for _ in range(count):
        a @ a
    taken = perf_counter() - start
    sleep(0.1)  # the library's threads spin for a while after a product
    return taken / count


def _batch(rng: np.random.Generator, n: int) -> Batch:
    return Batch(
        rng.standard_normal((n, 11)).astype(np.float32),
        rng.uniform(-1, 1, (n, 3)).astype(np.float32),
        rng.standard_normal(n).astype(np.float32),
        np.full(n, 0.95, np.float32),
        rng.standard_normal((n, 11)).astype(np.float32),
    )


class _Updates:
    """Updates a second of several agents, which share a crew."""

    def __init__(self, seeds: int) -> None:
        settings = Settings()
        learners: list[Learner] = [
            init(settings.rule, 11, 3, settings.widths, seed) for seed in range(seeds)
        ]
        self._crew = Crew()
        self._pipelines = [Pipeline(settings.rule, each, self._crew) for each in learners]
        self._batch = _batch(np.random.default_rng(0), settings.batch_size)

    def seconds(self, count: int) -> float:
        """For each of so many updates of all agents; two are lined up for each, as in training."""
        start = perf_counter()
        before = [pipeline.submit(self._batch) for pipeline in self._pipelines]
        for _ in range(count - 1):
            after = [pipeline.submit(self._batch) for pipeline in self._pipelines]
            for pending in before:
                pending.policy.result()
            before = after
        for pending in before:
            pending.policy.result()
            pending.critic.result()
        return (perf_counter() - start) / (count * len(self._pipelines))

    def close(self) -> None:
        """Ends the threads."""
        self._crew.close()


class _Contender:
    """A process that trains on demand; JAX is set up in each as its users have it."""

    def __init__(self, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "windward.bench.contender", name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._name = name
        self._line()  # ready

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ValueError(
                f"{self._name} did not start; bench train needs SBX and SB3: pip install "
                "'windward[sb3]'"
            )
        return line

    def rate(self, steps: int) -> float:
        """Environment steps a second over so many steps."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def run(settings: BenchTrain) -> dict[str, Any]:
    """All rates, measured in turns; a ratio is the median of those of each turn."""
    flops = update_flops(11, 3, Settings().widths, Settings().num_atoms, Settings().batch_size)
    contenders = {name: _Contender(name) for name in ("ours", "sbx", "sb3")}
    one_core_each()
    one, several = _Updates(1), _Updates(settings.seeds)
    for agents in (one, several):
        agents.seconds(10)
    rows: list[dict[str, float]] = []
    for _ in range(settings.repeats):
        row = {name: each.rate(settings.steps) for name, each in contenders.items()}
        # In slices and in turns, so that all three have the machine at the same speed.
        count = max(settings.updates // SLICES, 1)
        slices = [
            (matmul_seconds(), one.seconds(count), several.seconds(count)) for _ in range(SLICES)
        ]
        product, alone, together = (statistics.fmean(times) for times in zip(*slices, strict=True))
        row["limit"] = 2 * SIZE**3 / product / flops
        row["updates"], row["updates_seeds"] = 1 / alone, 1 / together
        rows.append(row)
    for agents in (one, several):
        agents.close()
    for contender in contenders.values():
        contender.close()

    def median(top: str, bottom: str) -> float:
        return statistics.median(row[top] / row[bottom] for row in rows)

    return {
        "ratio_sbx": median("ours", "sbx"),
        "ratio_sb3": median("ours", "sb3"),
        "fraction_of_limit": median("updates", "limit"),
        "fraction_of_limit_seeds": median("updates_seeds", "limit"),
        "turns": rows,
        "flops_of_an_update": flops,
        "what": f"{ENV}, widths {WIDTHS}, batch 256, one update every 8 steps: environment steps a "
        "second of D4PG (51 atoms, 4 environments) over DDPG of SBX and SB3; updates a second, "
        f"one agent and {settings.seeds} together, over the limit: the rate of a 2048³ float32 "
        "matrix product on all cores, sustained, over the operations of an update in matrix "
        "products alone",
        "cores": os.cpu_count(),
        "settings": {
            name: getattr(settings, name) for name in ("steps", "updates", "seeds", "repeats")
        },
        "versions": versions(),
    }
