"""Environments stepped in Ray actors, each in a process of its own, feeding the one learner here.

Acme's rate limit holds both ways. The learner samples only what the transitions that have arrived
allow; an actor collects one chunk at a time and gets its next order when that has been taken, so
that no actor is ever more than a chunk ahead, however slow the learner is.
"""

import logging
import os
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from threadpoolctl import threadpool_limits

from windward.agents.actors import Actors, NotFiniteStep, Recent
from windward.agents.losses import Batch
from windward.agents.pipeline import Pending, Pipeline
from windward.agents.progress import Progress
from windward.agents.replay import NStep, Replay
from windward.agents.settings import Settings
from windward.agents.training import Plan, Training, seed_of
from windward.bases.features import Features
from windward.bases.networks import Params

CHUNK = 32
"""steps that an actor collects for one order, at most: four updates with the usual settings"""
RESTARTS = 3
"""in a row, of one actor or its environment; the failure after them ends learning"""


class Chunk(NamedTuple):
    """What an actor collected."""

    steps: int
    columns: list[np.ndarray]
    """the transitions that became complete, in the order of `Replay.add`"""
    recent: Recent
    """the episodes that ended"""


class Worker:
    """One environment in a process of its own; it acts with NumPy."""

    def __init__(
        self,
        number: int,
        make: Callable[[], gym.Env],
        settings: Settings,
        features: Features | None,
        sizes: tuple[int, int, int],
    ) -> None:
        threadpool_limits(1, "blas")  # other actors are on the other cores
        self._number, self._make, self._features = number, make, features
        self._settings, self._recent = settings, Recent()
        # A chunk completes at most its own steps and the n - 1 that were waiting.
        self._buffer = Replay(CHUNK + settings.n_step, *sizes)
        self._actors: Actors | None = None

    def collect(self, policy: Params, steps: int, seed: int | None) -> Chunk:
        """Steps on; with a seed, in an environment that is made and begun anew.

        Made here and not with the worker: what the environment raises then comes back as itself.
        """
        if seed is not None:
            self._begin(seed)
        assert self._actors is not None
        self._buffer.inserted = 0
        self._recent.returns.clear()
        self._recent.discounted.clear()
        for _ in range(steps):
            self._actors.step(policy, self._noise)
        arrays = self._buffer.arrays()
        columns = [arrays[name] for name in Batch._fields if name in arrays]
        return Chunk(steps, columns, self._recent)

    def _begin(self, seed: int) -> None:
        if self._actors is not None:
            with suppress(Exception):  # it has failed before: that it cannot close is no news
                self._actors.close()
        n, gamma, sigma = self._settings.n_step, self._settings.gamma, self._settings.sigma
        self._noise = np.random.default_rng(seed_of(seed, 0))
        self._actors = Actors(self._make, 1, sigma, self._recent, self._features, self._number)
        self._actors.reset([seed_of(seed, 1)], [NStep(self._buffer, n, gamma)], gamma)

    def close(self) -> None:
        """Closes the environment."""
        if self._actors is not None:
            self._actors.close()


@dataclass
class _Seat:
    """An actor's place: who follows a lost one takes it."""

    seed: int | None
    """with which the next chunk begins; None while the environment goes on"""
    worker: Any = None
    restarts: int = 0
    failures_in_a_row: int = 0


class RemoteActors:
    """Orders chunks from Ray actors, and replaces the actors that are lost.

    `sizes` are those of an observation, an action and φ; each actor's seeds follow from `seed`.
    Uses the Ray that is running. If none is, it starts one here (or joins the cluster that
    RAY_ADDRESS names, as Ray's jobs expect) and ends it in `close`.
    """

    def __init__(
        self,
        make: Callable[[], gym.Env],
        settings: Settings,
        features: Features | None,
        sizes: tuple[int, int, int],
        seed: int,
    ) -> None:
        self._ray, self._ours = connect(settings.num_envs)
        # By Ray's default an actor holds no CPU once it runs: on a small machine none is kept out.
        self._remote = self._ray.remote(scheduling_strategy="SPREAD")(Worker)
        self._given, self._seed = (make, settings, features, sizes), seed
        self._seats = [_Seat(seed_of(seed, i, 0)) for i in range(settings.num_envs)]
        self._flying: dict[Any, tuple[int, int]] = {}
        """(actor, steps) of every order under way, oldest first"""
        self._policy: tuple[Any, Any] = None, None
        """the one that was put into Ray's store last, and where"""

    def gather(self, policy: Params, left: int) -> Chunk:
        """The next chunk to arrive; the orders under way never go beyond `left` more steps.

        Whoever brings it is sent on at once, and collects while the learner works on it.
        """
        while True:
            self._send(policy, left)
            (first, *_), _ = self._ray.wait(list(self._flying), num_returns=1)
            i, steps = self._flying.pop(first)
            try:
                chunk: Chunk = self._ray.get(first)
            except self._ray.exceptions.RayError as error:
                self._restart(i, error)
            else:
                self._seats[i].failures_in_a_row = 0
                self._send(policy, left - steps)
                return chunk

    def _send(self, policy: Params, left: int) -> None:
        """Gives every idle actor an order, as far as the steps reach."""
        if policy is not self._policy[0]:
            self._policy = policy, self._ray.put(policy)
        busy = {i for i, _ in self._flying.values()}
        left -= sum(steps for _, steps in self._flying.values())
        for i, seat in enumerate(self._seats):
            steps = min(CHUNK, left)
            if i in busy or not steps:
                continue
            if seat.worker is None:
                seat.worker = self._remote.remote(i, *self._given)
            order = seat.worker.collect.remote(self._policy[1], steps, seat.seed)
            self._flying[order] = i, steps
            seat.seed = None
            left -= steps

    def _restart(self, i: int, error: Any) -> None:
        """Replaces an actor that was lost, or an environment that failed; not for ever."""
        seat = self._seats[i]
        seat.failures_in_a_row += 1
        raised = isinstance(error, self._ray.exceptions.RayTaskError)
        if raised and isinstance(error.cause, NotFiniteStep):
            raise error.cause from error
        if seat.failures_in_a_row > RESTARTS:
            often = f"{seat.failures_in_a_row} times in a row; the last checkpoint is as it was"
            if not raised:
                raise RuntimeError(f"actor {i} was lost {often}: {error}") from error
            error.cause.add_note(f"The environment of actor {i} failed {often}.")
            raise error.cause from error
        seat.restarts += 1
        seat.seed = seed_of(self._seed, i, seat.restarts)
        if raised:
            what, why = f"the environment of actor {i} failed and is restarted", repr(error.cause)
        else:
            what, why = f"actor {i} was lost and is replaced", str(error).partition("\n")[0]
            self._ray.kill(seat.worker)  # one that only cannot be reached must not come back
            seat.worker = None
        warnings.warn(f"{what}; learning goes on: {why}", stacklevel=6)

    def close(self) -> None:
        """Closes the environments and ends the actors; and Ray, if it was started here."""
        workers = [seat.worker for seat in self._seats if seat.worker is not None]
        closing = [worker.close.remote() for worker in workers]
        if closing:  # in a moment, or not at all: an environment may hang
            self._ray.wait(closing, num_returns=len(closing), timeout=5.0)
        for worker in workers:
            self._ray.kill(worker)
        if self._ours:
            self._ray.shutdown()


def segment(
    training: Training, plan: Plan, actors: RemoteActors, pipeline: Pipeline, progress: Progress
) -> bool:
    """`Training.segment` with chunks that arrive in any order.

    Episodes are not cut at its end, as no other run could be the same anyway: the actors go on, up
    to a chunk each, while everything is written.
    """
    replay, every = training.replay, training.settings.segment
    assert replay is not None
    end = min(plan.total, (training.timesteps // every + 1) * every)
    pending: deque[Pending] = deque()
    going = True
    while going and training.timesteps < end:
        chunk = actors.gather(training.acting, plan.total - training.timesteps)
        for row in zip(*chunk.columns, strict=True):
            replay.add(*row)
        training.recent.extend(chunk.recent)
        # Transitions and not steps allow samples: those of a lost actor never arrived.
        inserted = len(chunk.columns[0])
        going = training.after(chunk.steps, inserted, plan, pipeline, pending, progress)
    training.settle(pending, pipeline)
    training.end_segment(plan)
    return going


def connect(count: int) -> tuple[Any, bool]:
    """(Ray, whether it was started for this): one that suits so many actors."""
    try:
        import ray  # slow to import, and only needed here
    except ImportError as error:
        raise ValueError("backend='ray' needs Ray: pip install 'windward[ray]'") from error
    if ray.is_initialized():
        return ray, False
    here = "RAY_ADDRESS" not in os.environ
    with warnings.catch_warnings():
        # JAX, and Python from 3.12 on, warn of forks; Ray's become other programs at once.
        warnings.filterwarnings("ignore", r"os\.fork\(\) was|This process .* use of fork\(\) may")
        ray.init(
            address="local" if here else None,
            num_cpus=min(count, os.cpu_count() or 1) if here else None,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    return ray, True
