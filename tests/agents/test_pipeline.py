"""Steps side by side give what one update after the other gives."""

from collections.abc import Iterator
from contextlib import closing

import jax
import numpy as np
import pytest

from windward.agents.crew import Crew
from windward.agents.learner import Learner, Rule, init, update, vector_step
from windward.agents.losses import Batch
from windward.agents.pipeline import Pipeline
from windward.policies.networks import critic

RULE = Rule((-10.0, 10.0, 5), 1e-3, 40.0, 1.0, penalty=0.1, period=3, horizon=10.0)


def _batches(count: int) -> list[Batch]:
    rng = np.random.default_rng(5)
    return [
        Batch(
            *(rng.normal(size=(16, d)).astype(np.float32) for d in (3, 2)),
            rng.normal(size=16).astype(np.float32),
            np.full(16, 0.9, np.float32),
            rng.normal(size=(16, 3)).astype(np.float32),
        )
        for _ in range(count)
    ]


def _equal(one: Learner, two: Learner) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.fixture(scope="module")
def start() -> Learner:
    return init(RULE, 3, 2, (8, 8), seed=0)


@pytest.fixture(params=[0, 1, 3])
def crew(request: pytest.FixtureRequest) -> Iterator[Crew]:
    with closing(Crew(request.param)) as crew:
        yield crew


def test_to_the_last_bit(start: Learner, crew: Crew) -> None:
    learner, pipeline = start, Pipeline(RULE, start, crew)
    for batch in _batches(10):
        learner, losses = update(RULE, learner, batch)
        pending = pipeline.submit(batch)
    assert float(pending.critic.result().loss) == float(losses[0])
    assert float(pending.policy.result().loss) == float(losses[1])
    assert _equal(pipeline.learner(), learner)


def test_targets_are_copied_when_due_and_held_between(start: Learner) -> None:
    learner = start
    for step, batch in enumerate(_batches(6), start=1):
        before = learner
        learner, _ = update(RULE, learner, batch)
        if step % RULE.period == 0:
            assert learner.target_critic is learner.critic
            assert learner.target_policy is learner.policy
        else:
            assert learner.target_critic is before.target_critic
            assert not np.array_equal(learner.critic["w0"], before.critic["w0"])


def test_an_error_in_a_thread_comes_out(start: Learner, crew: Crew) -> None:
    pipeline = Pipeline(RULE, start, crew)
    wrong = _batches(1)[0]._replace(x=np.zeros((16, 7), np.float32))
    with pytest.raises((TypeError, ValueError)):
        pipeline.submit(wrong).critic.result()


def test_a_vector_head_takes_its_steps_beside_the_others(crew: Crew) -> None:
    start = init(RULE, 3, 2, (8, 8), seed=0, d_w=4)
    rng = np.random.default_rng(9)
    batches = [
        batch._replace(vector=rng.normal(size=(16, 4)).astype(np.float32))
        for batch in _batches(2 * RULE.period + 1)
    ]
    pipeline, by_hand = Pipeline(RULE, start, crew), start
    for batch in batches:
        pipeline.submit(batch)
        by_hand, _ = update(RULE, by_hand, batch)
    assert _equal(pipeline.learner(), by_hand)
    assert not np.array_equal(by_hand.target_vector["w0"], start.vector["w0"])


def test_a_vector_head_learns_the_value_of_a_constant() -> None:
    """c = 1 for ever: Q = 1/(1 - γ), which is 1 over the horizon."""
    rule = RULE._replace(learning_rate=3e-3, horizon=10.0)
    learner = init(rule, 3, 2, (16,), seed=0, d_w=1)
    step = vector_step(rule)
    head, memory, target = learner.vector, learner.vector_optimiser, learner.vector
    for k, batch in enumerate(_batches(10) * 150):
        ones = batch._replace(vector=np.ones((16, 1), np.float32))
        head, memory, _ = step(head, memory, target, learner.policy, ones)
        target = head if k % 5 == 0 else target
    values = critic(head, _batches(1)[0].x, _batches(1)[0].u)
    np.testing.assert_allclose(values, 1.0, atol=0.15)
