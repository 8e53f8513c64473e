"""Updates as tasks of a crew: what does not wait for one another runs side by side.

The policy's step k needs the critic from before step k; the critic's needs its goal, which follows
from the target networks and the batch alone, and these change only when they are copied. The
result is that of one update after the other, to the last bit.
"""

from typing import Any, NamedTuple

import jax

from windward.agents.crew import Crew, Task, given
from windward.agents.learner import Learner, Rule, critic_step, goal_step, policy_step, vector_step
from windward.agents.losses import Batch


class Half(NamedTuple):
    """One network after a step; it has no loss before the first."""

    params: Any
    optimiser: Any
    loss: Any


class Pending(NamedTuple):
    """An update under way."""

    policy: Task[Half]
    critic: Task[Half]
    vector: Task[Half] | None


class Pipeline:
    """Takes batches, and gives networks as they become ready.

    Without `values` critic and vector head stay as they are, without `base` the policy does.
    """

    def __init__(
        self, rule: Rule, learner: Learner, crew: Crew, *, values: bool = True, base: bool = True
    ) -> None:
        self._rule, self._steps, self._crew = rule, learner.steps, crew
        self._values, self._base = values, base
        self._critic = given(Half(learner.critic, learner.critic_optimiser, None))
        self._policy = given(Half(learner.policy, learner.policy_optimiser, None))
        self._target_critic = given(Half(learner.target_critic, None, None))
        self._target_policy = given(Half(learner.target_policy, None, None))
        self._vector: Task[Half] | None = None
        self._target_vector: Task[Half] | None = None
        if learner.vector is not None:
            self._vector = given(Half(learner.vector, learner.vector_optimiser, None))
            self._target_vector = given(Half(learner.target_vector, None, None))

    def submit(self, batch: Batch) -> Pending:
        """Starts an update, or lines it up behind those under way."""
        before, rule, crew = self._critic, self._rule, self._crew
        if self._values:
            plain = batch._replace(vector=None)

            def goal(target: Half, ahead: Half) -> Any:
                return jax.block_until_ready(goal_step(rule)(target.params, ahead.params, plain))

            def critic(now: Half, goal: Any) -> Half:
                return _half(critic_step(rule), now, goal, batch.x, batch.u)

            wanted = crew.submit(goal, self._target_critic, self._target_policy)
            self._critic = crew.submit(critic, before, wanted)
        if self._base:

            def policy(now: Half, critic: Half) -> Half:
                return _half(policy_step(rule), now, critic.params, batch.x_next)

            self._policy = crew.submit(policy, self._policy, before)
        if self._values and self._vector is not None and self._target_vector is not None:

            def vector(now: Half, target: Half, ahead: Half) -> Half:
                return _half(vector_step(rule), now, target.params, ahead.params, batch)

            needs = self._vector, self._target_vector, self._target_policy
            self._vector = crew.submit(vector, *needs)
        self._steps += 1
        if self._steps % rule.period == 0:
            self._target_critic, self._target_policy = self._critic, self._policy
            self._target_vector = self._vector
        return Pending(self._policy, self._critic, self._vector)

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


def _half(step: Any, now: Half, *rest: Any) -> Half:
    return Half(*jax.block_until_ready(step(now.params, now.optimiser, *rest)))
