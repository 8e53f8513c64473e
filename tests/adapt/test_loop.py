"""The loop at its edges: odd first actions, learners that give no numbers, unknown rewards."""

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt import config
from windward.adapt.memory import Memory

from .test_contract import MODEL, OPTIONS, QUICK, base, world


@pytest.mark.parametrize("learner", ["observer", "l1", "mf-gpc", "matching"])
def test_a_first_base_action_that_is_none(learner: str) -> None:
    env = ww.RobustWrapper(world(), "pd3", model=MODEL, learner=learner, **OPTIONS[learner])
    env.reset(seed=0)
    with pytest.warns(ww.Fault, match="base action is not usable"):
        info = env.step(np.array([np.nan], np.float32))[4]
    assert info["windward"]["fault"]
    for _ in range(5):
        env.step(np.zeros(1, np.float32))
    assert env.faults == {"action": 1}


def test_a_learner_that_gives_no_numbers_never_reaches_the_actuator() -> None:
    class Broken(config.Laws):
        """Adds what is no number."""

        def plan(self, x: Any, base: np.ndarray, ready: np.ndarray) -> Any:
            bad = np.full((self.rows, 1), np.nan)
            return ww.adapt.Planned(bad, bad, bad.ravel().tolist(), ready)

    ww.adapt.register("broken", lambda r, attempt: Broken(r.name, [], None, 1, attempt))
    try:
        env = ww.RobustWrapper(world(), "pd3", model=MODEL, learner="mf-gpc")
        env._runtime.learner = Broken("broken", [_Nothing()], None, 1, env._runtime.attempt)
        env.reset(seed=0)
        with pytest.warns(ww.Fault, match="not finite"):
            info = env.step(np.array([0.5], np.float32))[4]
        np.testing.assert_array_equal(info["windward"]["action"], [0.5])
    finally:
        del config.LEARNERS["broken"]


class _Nothing:
    def plan(self, x: Any, base: Any) -> Any:
        return np.zeros(1), np.zeros(1)

    def begin(self) -> None:
        pass

    def observe(self, step: Any, w_hat: Any) -> None:
        pass


@pytest.mark.parametrize("given", [0.1234567890123, np.float32(0.1)])
def test_an_action_of_another_type_is_the_agents_own_where_nothing_is_added(given: Any) -> None:
    seen = []

    class Watched(gym.Wrapper):
        see_through = True

        def step(self, action: Any) -> Any:
            seen.append(action)
            return self.env.step(action)

    env = ww.RobustWrapper(Watched(gym.make("Pendulum-v1")), "pd3", model=MODEL)
    env.reset(seed=0)
    action = np.array([given])
    env.step(action)
    assert seen[0] is action
    assert env.clipped == 0
    env.step(np.array([5.0]))  # out of bounds by itself: cut, and no correction of ours
    assert float(seen[1][0]) == 2.0
    assert env.clipped == 0


def test_returns_with_unknown_rewards_do_not_judge() -> None:
    pushed = ww.envs.Disturbed(gym.make("Pendulum-v1"), "bias:value=0.2", "qvel")
    policy = ww.robustify(MODEL, pushed, "pd3", live=True, learner="matching", **QUICK)
    for episode in range(4):
        x, _ = pushed.reset(seed=episode)
        over, start = False, True
        while not over:
            action, _ = policy.predict(x, deterministic=True, episode_start=[start])
            x, reward, terminated, truncated, _ = pushed.step(action)
            start, over = False, terminated or truncated
            if over:  # what came of the last step alone is told
                policy.observe(reward, x, terminated, truncated)
    assert policy.correction is not None
    assert not any("withdrawn" in each for each in policy.decisions)
    belief = policy._runtime.learner.supervisor.belief  # type: ignore[attr-defined]
    assert belief.returns.adapted == []


def test_a_change_soon_after_a_diagnosis_is_noticed() -> None:
    inner = gym.make("Pendulum-v1", max_episode_steps=1000)
    env = ww.RobustWrapper(inner, "pd3", model=MODEL, learner="matching", **QUICK)
    x, _ = env.reset(seed=1)
    for t in range(260):
        if t == 201:  # a diagnosis was made at step 200, and found nothing
            inner.unwrapped.m = 1.5
        x, *_ = env.step(base(x))
    assert any("the world changed" in each for each in env.decisions)
    assert env.diagnosis is not None
    assert env.diagnosis.changes["mass"].factor == pytest.approx(1.5, rel=0.02)


def test_a_world_that_was_changed_in_place_is_believed_as_it_is() -> None:
    inner = gym.make("Pendulum-v1")
    simulator = ww.simulator(inner, noisy=False)
    inner.unwrapped.m = 1.3  # type: ignore[attr-defined]
    changed = simulator.changed({"mass": 1.3})
    assert changed.dynamics.p.m == pytest.approx(1.3)  # type: ignore[attr-defined]


def test_what_is_remembered_is_bounded_though_an_episode_never_ends() -> None:
    memory = Memory(2, kept=200)
    x = np.zeros(2)
    for row in (0, 1):
        memory.begin(row, x, x)
    for t in range(5000):
        memory.add(0, x, x, x)
        memory.add(1, x, x, x)
        if t % 10 == 9:
            memory.cut(1)
            memory.begin(1, x, x)
    assert sum(len(each.u) for each in memory._tracks) <= 3 * 200


def test_as_many_states_as_rows() -> None:
    with pytest.raises(ValueError, match="state of 1 environments, and there are 2 rows"):
        ww.robustify(MODEL, gym.make("Pendulum-v1"), "pd3", live=True, num_envs=2)


def test_one_bad_row_leaves_the_other_its_correction() -> None:
    venv = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
    asked = []

    def logits(x: np.ndarray) -> np.ndarray:
        asked.append(np.isfinite(x).all())
        return np.zeros((len(x), 2))

    env = ww.RobustVectorWrapper(
        venv, lambda x, u, r, y: np.ones(1), logits=logits, learner="mf-gpc", guard=False
    )
    env.reset(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ww.Fault)
        env._runtime.begin(np.array([[np.nan] * 4, [0.0] * 4], np.float32))
        env.step(np.array([0, 1]))
    assert all(asked)
    assert "signal" not in env.faults
