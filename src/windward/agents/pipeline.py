"""Updates in threads of their own: the networks' steps run side by side.

The policy's step k needs the critic from before step k, and the critic's needs the policy only when
targets are copied. So neither waits for the other, each keeps one core busy, and the result is that
of one update after the other, to the last bit.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax

from windward.agents.learner import Learner, Rule, critic_step, policy_step, vector_step
from windward.agents.losses import Batch


class Half(NamedTuple):
    """One network after a step; it has no loss before the first."""

    params: Any
    optimiser: Any
    loss: Any


class Pending(NamedTuple):
    """An update under way."""

    policy: "Future[Half]"
    critic: "Future[Half]"
    vector: "Future[Half] | None"


class Pipeline:
    """Takes batches, and gives networks as they become ready.

    Without `values` critic and vector head stay as they are, without `base` the policy does.
    """

    def __init__(
        self, rule: Rule, learner: Learner, *, values: bool = True, base: bool = True
    ) -> None:
        self._rule, self._steps = rule, learner.steps
        self._values, self._base = values, base
        self._critic = _ready(Half(learner.critic, learner.critic_optimiser, None))
        self._policy = _ready(Half(learner.policy, learner.policy_optimiser, None))
        self._target_critic = _ready(Half(learner.target_critic, None, None))
        self._target_policy = _ready(Half(learner.target_policy, None, None))
        self._threads = [ThreadPoolExecutor(1) for _ in range(2)]
        self._vector: Future[Half] | None = None
        self._target_vector: Future[Half] | None = None
        if learner.vector is not None:
            self._vector = _ready(Half(learner.vector, learner.vector_optimiser, None))
            self._target_vector = _ready(Half(learner.target_vector, None, None))
            self._threads.append(ThreadPoolExecutor(1))

    def submit(self, batch: Batch) -> Pending:
        """Starts an update, or lines it up behind those under way."""
        before, plain = self._critic, batch._replace(vector=None)
        if self._values:
            self._critic = self._threads[0].submit(
                self._td_step, critic_step, before, self._target_critic, self._target_policy, plain
            )
        if self._base:
            self._policy = self._threads[1].submit(self._policy_step, self._policy, before, batch)
        if self._values and self._vector is not None and self._target_vector is not None:
            self._vector = self._threads[2].submit(
                self._td_step, vector_step, self._vector, self._target_vector, self._target_policy,
                batch,
            )  # fmt: skip
        self._steps += 1
        if self._steps % self._rule.period == 0:
            self._target_critic, self._target_policy = self._critic, self._policy
            self._target_vector = self._vector
        return Pending(self._policy, self._critic, self._vector)

    def _td_step(
        self,
        kind: Any,
        before: "Future[Half]",
        target: "Future[Half]",
        target_policy: "Future[Half]",
        batch: Batch,
    ) -> Half:
        now, goal, ahead = before.result(), target.result(), target_policy.result()
        fresh = kind(self._rule)(now.params, now.optimiser, goal.params, ahead.params, batch)
        return Half(*jax.block_until_ready(fresh))

    def _policy_step(self, before: "Future[Half]", critic: "Future[Half]", batch: Batch) -> Half:
        now = before.result()
        step = policy_step(self._rule)
        fresh = step(now.params, now.optimiser, critic.result().params, batch.x_next)
        return Half(*jax.block_until_ready(fresh))

    def learner(self) -> Learner:
        """Everything, after waiting for what is under way."""
        policy, critic = self._policy.result(), self._critic.result()
        vector = self._vector and self._vector.result()
        target_vector = self._target_vector and self._target_vector.result()
        return Learner(
            policy.params,
            critic.params,
            self._target_policy.result().params,
            self._target_critic.result().params,
            policy.optimiser,
            critic.optimiser,
            vector and vector.params,
            target_vector and target_vector.params,
            vector and vector.optimiser,
            self._steps,
        )

    def close(self) -> None:
        """Ends the threads."""
        for thread in self._threads:
            thread.shutdown(cancel_futures=True)


def _ready(half: Half) -> "Future[Half]":
    future: Future[Half] = Future()
    future.set_result(half)
    return future
