"""What is recorded: stretches of steps, what is forgotten, and the order of a log."""

import numpy as np

from windward.adapt.memory import Memory


def row(value: float) -> np.ndarray:
    return np.array([value, -value])


def played(memory: Memory, first: float, steps: int, row_: int = 0, begin: bool = True) -> None:
    """An episode whose states count up from `first`; observations are ten times them."""
    if begin:
        memory.begin(row_, row(first), row(10 * first))
    for k in range(1, steps + 1):
        x = first + k
        memory.add(row_, np.array([x]), row(x), row(10 * x))


def firsts(memory: Memory) -> list[float]:
    return [float(each.states[0, 0]) for each in memory.log().episodes]  # type: ignore[index]


def test_a_log_has_whole_episodes_newest_first() -> None:
    memory = Memory(1, 100)
    played(memory, 0, 5)
    memory.cut(0)
    played(memory, 50, 3)
    log = memory.log("It-v0")
    assert (log.about["env"], memory.steps, log.steps) == ("It-v0", 8, 8)
    assert firsts(memory) == [50, 0]
    first = log.episodes[1]
    np.testing.assert_array_equal(np.asarray(first.states)[:, 0], np.arange(6))
    np.testing.assert_array_equal(np.asarray(first.observations)[:, 0], 10 * np.arange(6))
    np.testing.assert_array_equal(first.actions[:, 0], np.arange(1, 6))


def test_stretches_after_a_gap_are_of_their_own() -> None:
    memory = Memory(1, 100)
    played(memory, 0, 4)
    memory.cut(0)
    memory.add(0, row(9)[:1], row(9), row(9))  # of nothing that was begun
    assert memory.steps == 4
    memory.resume(0, row(20), row(200))
    played(memory, 20, 3, begin=False)
    assert firsts(memory) == [20, 0]
    np.testing.assert_array_equal(memory.starts()[:, 0], [0])  # whole episodes alone
    assert [len(each) for each in memory.states()] == [5, 4]
    np.testing.assert_array_equal(memory.recent(2)[:, 0], [22, 23])


def test_a_single_step_is_no_episode_of_a_log() -> None:
    memory = Memory(1, 100)
    played(memory, 0, 1)
    assert not memory.log().episodes


def test_rows_are_recorded_side_by_side() -> None:
    memory = Memory(2, 100)
    memory.begin(0, row(0), row(0))
    memory.begin(1, row(100), row(0))
    for k in range(1, 4):
        for i in (0, 1):
            memory.add(i, np.array([k]), row(100 * i + k), row(0))
    assert firsts(memory) == [100, 0]
    x, u, x_next = memory.last(2)
    np.testing.assert_array_equal(x[:, 0], [1, 2, 101, 102])
    np.testing.assert_array_equal(u[:, 0], [2, 3, 2, 3])
    np.testing.assert_array_equal(x_next[:, 0], [2, 3, 102, 103])
    np.testing.assert_array_equal(memory.recent(1)[:, 0], [3, 103])


def test_forgetting_keeps_the_last_steps_of_open_episodes() -> None:
    memory = Memory(2, 100)
    played(memory, 0, 6)
    memory.cut(0)
    played(memory, 50, 8)
    played(memory, 100, 2, row_=1)
    memory.forget(3)
    assert memory.steps == 5
    assert firsts(memory) == [100, 55]
    np.testing.assert_array_equal(
        memory.starts()[:, 0], [55, 100]
    )  # of stretches, as none is whole
    memory.add(0, np.array([59.0]), row(59), row(590))
    assert [float(each[-1, 0]) for each in memory.states()] == [59, 102]
    x, _, x_next = memory.last(1)
    np.testing.assert_array_equal(x[:, 0], [58, 101])
    np.testing.assert_array_equal(x_next[:, 0], [59, 102])


def test_the_oldest_episodes_go() -> None:
    memory = Memory(1, 20)
    for first in (0, 100, 200, 300):
        played(memory, first, 8)
        memory.cut(0)
    assert firsts(memory) == [300, 200]


def test_an_episode_without_an_end_keeps_its_last_steps() -> None:
    memory = Memory(1, 20)
    played(memory, 0, 1000)
    (states,) = memory.states()
    assert 20 <= len(states) - 1 < 40
    np.testing.assert_array_equal(states[:, 0], np.arange(1001 - len(states), 1001))
    (episode,) = memory.log().episodes
    assert len(episode.actions) == len(states) - 1
    np.testing.assert_array_equal(episode.actions[:, 0], states[1:, 0])


def test_nothing_recorded() -> None:
    memory = Memory(2, 10)
    assert all(len(each) == 0 for each in memory.last(3))
    assert not memory.log().episodes
    memory.forget(3)
    assert memory.steps == 0
