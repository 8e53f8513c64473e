"""n-step returns by hand, and a replay that forgets the oldest."""

import numpy as np
import pytest

from windward.agents import replay as module
from windward.agents.replay import NStep, Replay

GAMMA = 0.5


def run(steps: list[tuple[float, bool, bool]], n: int = 3) -> Replay:
    """Episodes in which the state counts steps; each step is (reward, terminated, truncated)."""
    replay = Replay(100, 1, 1)
    adder = NStep(replay, n, GAMMA)
    for t, (reward, terminated, truncated) in enumerate(steps):
        adder.add([t], [10 * t], reward, [t + 1], terminated, truncated)
    return replay


def rows(replay: Replay) -> list[tuple[float, ...]]:
    n = len(replay)
    columns = (replay.x[:n, 0], replay.reward[:n], replay.discount[:n], replay.x_next[:n, 0])
    return [tuple(float(value) for value in row) for row in zip(*columns, strict=True)]


def test_three_step_returns() -> None:
    got = rows(run([(1, False, False), (2, False, False), (4, False, False), (8, False, False)]))
    assert got == [(0, 1 + 1 + 1, 0.125, 3), (1, 2 + 2 + 2, 0.125, 4)]


def test_termination_gives_every_later_start_and_no_bootstrap() -> None:
    got = rows(run([(1, False, False), (2, True, False)]))
    assert got == [(0, 2, 0, 2), (1, 2, 0, 2)]


def test_truncation_bootstraps_from_the_last_observation() -> None:
    got = rows(run([(1, False, False), (2, False, True)]))
    assert got == [(0, 2, 0.25, 2), (1, 2, 0.5, 2)]


def test_an_episode_does_not_reach_into_the_next() -> None:
    got = rows(run([(1, True, False), (2, False, False), (4, False, False), (8, False, False)]))
    assert got == [(0, 1, 0, 1), (1, 2 + 2 + 2, 0.125, 4)]


def test_one_step_is_the_plain_transition() -> None:
    assert rows(run([(1, False, False), (2, False, False)], n=1)) == [
        (0, 1, 0.5, 1),
        (1, 2, 0.5, 2),
    ]


def test_the_oldest_is_forgotten() -> None:
    replay = Replay(3, 1, 1)
    for t in range(5):
        replay.add([t], [0], t, 1.0, [t])
    assert len(replay) == 3
    assert sorted(replay.reward.tolist()) == [2, 3, 4]


def test_samples_are_rows_that_belong_together_and_reach_all() -> None:
    replay = Replay(8, 1, 1)
    for t in range(6):
        replay.add([t], [10 * t], 2 * t, 0.5 * t, [t + 1])
    batch = replay.sample(np.random.default_rng(0), 500)
    x = batch.x[:, 0]
    assert set(x.tolist()) == set(range(6))
    np.testing.assert_array_equal(batch.u[:, 0], 10 * x)
    np.testing.assert_array_equal(batch.reward, 2 * x)
    np.testing.assert_array_equal(batch.discount, 0.5 * x)
    np.testing.assert_array_equal(batch.x_next[:, 0], x + 1)


def test_a_replay_comes_back_as_it_was() -> None:
    replay, other = Replay(4, 1, 1), Replay(4, 1, 1)
    for t in range(6):
        replay.add([t], [t], t, 0.5, [t])
    other.restore(replay.arrays())
    for each in (replay, other):
        each.add([9], [9], 9, 0.5, [9])
    assert rows(replay) == rows(other)
    assert replay.inserted == other.inserted == 7


def test_a_replay_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "available_memory", lambda: 1000)
    with pytest.raises(ValueError, match="1000 transitions needs"):
        Replay(1000, 3, 1)


def test_features_add_up_as_rewards_do() -> None:
    replay = Replay(10, 1, 1, d_w=2)
    adder = NStep(replay, 2, 0.5)
    for t in range(3):
        adder.add([t], [0], float(t), [t + 1], t == 2, False, phi=np.array([1.0, 10.0 * t]))
    # starts at 0 and 1 see two steps, the last one only itself
    assert replay.vector is not None
    np.testing.assert_allclose(replay.vector[:3], [[1.5, 0 + 5], [1.5, 10 + 10], [1.0, 20]])
    np.testing.assert_allclose(replay.reward[:3], [0.5, 2.0, 2.0])
    np.testing.assert_allclose(replay.discount[:3], [0.25, 0.0, 0.0])
