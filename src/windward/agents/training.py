"""A run of learning: what it changes, counts and writes, and its loop in one process."""

import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from windward.agents.actors import Actors, NotFinite, Recent
from windward.agents.adaptation import Adaptation, peek
from windward.agents.learner import Learner
from windward.agents.pipeline import Pending, Pipeline
from windward.agents.progress import Log, Progress
from windward.agents.replay import NStep, Replay
from windward.agents.settings import Settings
from windward.policies.networks import Params

LOSSES = ("critic_loss", "policy_loss", "vector_loss")


@dataclass
class Plan:
    """What the caller of `learn` asked for."""

    total: int
    folder: Path | None
    eval_every: int
    evaluate: Callable[[], np.ndarray]
    """returns of episodes without noise"""
    save_best: Callable[[Path], None]
    checkpoint: Callable[[Path], None]
    callback: Callable[[], bool | None]
    """after every evaluation; False stops learning"""


class Training:
    """Everything that learning changes; a checkpoint holds all of it."""

    def __init__(
        self,
        settings: Settings,
        seed: int,
        learner: Learner,
        adaptation: Adaptation | None = None,
    ) -> None:
        self.settings, self.seed, self.adaptation = settings, seed, adaptation
        self.learner = learner
        self.acting = as_numpy(learner.policy)
        self.replay: Replay | None = None
        self.sampling, self.exploring = (
            np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(part,)))
            for part in (1, 2)
        )
        self.evaluation: dict[str, int] = {}
        """how often `learn` evaluates, and by how many episodes"""
        self.timesteps = 0
        self.owed = 0.0
        """steps that no update has been made for yet"""
        self.losses = [np.nan] * (2 if learner.vector is None else 3)
        """of critic, policy and vector head"""
        self.best = -np.inf
        self.recent = Recent()
        self.log = Log()

    def updates_due(self, steps: int) -> int:
        """How many updates so many more steps allow, at `samples_per_insert`."""
        assert self.replay is not None
        if len(self.replay) < self.settings.min_replay or self.settings.robust.update == "neither":
            return 0
        per_update = self.settings.batch_size / self.settings.samples_per_insert
        self.owed += steps
        due = int(self.owed // per_update)
        self.owed -= due * per_update
        return due

    def submit(self, pipeline: Pipeline, pending: deque[Pending]) -> None:
        """Starts an update, and waits for the one before: one is always under way."""
        assert self.replay is not None
        batch = self.replay.sample(self.sampling, self.settings.batch_size)
        pending.append(pipeline.submit(batch))
        if len(pending) > 1:
            self.take(pending.popleft())

    def take(self, update: Pending) -> None:
        """Waits for an update; the next steps act by its policy."""
        policy = update.policy.result()
        parts = [update.critic.result(), policy]
        if update.vector is not None:
            parts.append(update.vector.result())
        losses = [part.loss for part in parts]  # None of a network that does not learn
        self.losses = [np.nan if loss is None else float(loss) for loss in losses]
        if not np.isfinite([float(loss) for loss in losses if loss is not None]).all():
            raise NotFinite(
                f"the losses of critic, policy and vector head (if any) are {self.losses}; the "
                "last checkpoint is as it was. Try a smaller learning_rate, or a range "
                "[v_min, v_max] that fits"
            )
        self.act_by(policy.params, *(part.params for part in parts if part is not policy))

    def act_by(self, policy: Params, critic: Params, vector: Params | None = None) -> None:
        """The next steps act by this policy, and the module's values are of these networks."""
        self.acting = as_numpy(policy)
        if self.adaptation is not None:
            head = None if vector is None else as_numpy(vector)
            self.adaptation.follow(self.acting, as_numpy(critic), head)

    def settle(self, pending: deque[Pending], pipeline: Pipeline) -> None:
        """Waits for all updates under way."""
        while pending:
            self.take(pending.popleft())
        self.adopt(pipeline)

    def adopt(self, pipeline: Pipeline) -> None:
        """Takes over the networks as they are after all updates; refuses ones that blew up."""
        learner = pipeline.learner()
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(learner)):
            last = self.learner
            self.act_by(last.policy, last.critic, last.vector)
            raise NotFinite(
                "the networks are no longer finite; the last checkpoint is as it was. Try a "
                "smaller learning_rate"
            )
        self.learner = learner
        self.act_by(learner.policy, learner.critic, learner.vector)

    def report(self, plan: Plan) -> bool:
        """Evaluates, writes the curves and keeps the best; False if the callback said stop."""
        returns = plan.evaluate()
        mean = float(returns.mean())
        recent = list(self.recent.returns)
        self.log.add(
            steps=self.timesteps,
            updates=self.learner.steps,
            eval_return=mean,
            eval_worst=float(returns.min()),
            train_return=float(np.mean(recent)) if recent else np.nan,
            **dict(zip(LOSSES, self.losses, strict=False)),
            **({} if self.adaptation is None else self.adaptation.report()),
        )
        if plan.folder is not None and mean >= self.best:  # of equal ones the newest
            plan.save_best(plan.folder / "best.npz")
        self.best = max(self.best, mean)
        return plan.callback() is not False

    def after(
        self,
        steps: int,
        inserted: int,
        plan: Plan,
        pipeline: Pipeline,
        pending: deque[Pending],
        progress: Progress,
    ) -> bool:
        """Counts steps that were made; the updates and the evaluation that are due after them.

        False if the callback said stop.
        """
        before = self.timesteps
        self.timesteps += steps
        for _ in range(self.updates_due(inserted)):
            self.submit(pipeline, pending)
        progress.advance(steps, self.recent.returns)
        if before // plan.eval_every == self.timesteps // plan.eval_every:
            return True
        self.settle(pending, pipeline)
        return self.report(plan)

    def end_segment(self, plan: Plan) -> None:
        """Writes everything, and warns of returns that the critic cannot tell."""
        if plan.folder is not None:
            plan.checkpoint(plan.folder / "last.npz")
        low, high, atoms = self.settings.rule.atoms
        seen = self.recent.discounted
        if atoms > 1 and seen and (min(seen) < low or max(seen) > high):
            warnings.warn(
                f"discounted returns reach from {min(seen):.0f} to {max(seen):.0f}, beyond what "
                f"the critic can tell: set v_min and v_max around them (now {low:.0f} and "
                f"{high:.0f})",
                stacklevel=5,  # whoever called learn
            )

    def segment(self, plan: Plan, actors: Actors, pipeline: Pipeline, progress: Progress) -> bool:
        """Steps to the next checkpoint, or to the end; False if the callback said stop."""
        chosen, replay = self.settings, self.replay
        assert replay is not None
        begun = self.timesteps
        end = min(plan.total, (begun // chosen.segment + 1) * chosen.segment)
        adders = [NStep(replay, chosen.n_step, chosen.gamma) for _ in range(chosen.num_envs)]
        seeds = [seed_of(self.seed, 4, begun, i) for i in range(chosen.num_envs)]
        actors.reset(seeds, adders, chosen.gamma)
        if self.adaptation is not None:
            shape = chosen.num_envs, self.adaptation.engine.algorithm.d_u
            self.adaptation.begin(peek(self.exploring, shape))
        pending: deque[Pending] = deque()
        going = True
        while going and self.timesteps < end:
            steps = chosen.num_envs
            actors.step(self.acting, self.exploring, cut=self.timesteps + steps >= end)
            # Every step makes one transition, if up to n - 1 steps later.
            going = self.after(steps, steps, plan, pipeline, pending, progress)
        self.settle(pending, pipeline)
        self.end_segment(plan)
        return going


def as_numpy(params: Params) -> dict[str, Any]:
    """Parameters as NumPy arrays, which views of JAX's are on a CPU."""
    return {name: np.asarray(each) for name, each in params.items()}


def seed_of(*parts: int) -> int:
    """A seed for an environment that follows from the agent's."""
    return int(np.random.SeedSequence(parts[0], spawn_key=parts[1:]).generate_state(1)[0])
