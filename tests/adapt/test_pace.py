"""When replays look for M, and how long they are."""

import json

import numpy as np
import pytest

from windward.adapt.pace import SCALES, VAIN, Pace
from windward.adapt.search import Search


def episode(pace: Pace, length: int, *, falls: bool) -> int:
    """Plays one in which nothing is found; how many updates were due."""
    total = 0
    for t in range(length):
        last = t == length - 1
        due = pace.step(True, last and falls)
        total += due
        for _ in range(due):
            pace.searched(idle=True)
        if due:
            pace.updated(due, found=False, idle=True, ended=last)
    pace.left()
    return total


def test_replays_reach_beyond_most_ends() -> None:
    """M must not gain by what brings an end nearer that replays do not see."""
    search = Search(horizon=120, after_end=300)
    pace = Pace(search)
    assert pace.horizon == 120
    episode(pace, 40, falls=True)
    assert pace.horizon == 300
    for length in (400, 410, 420, 430, 440):
        episode(pace, length, falls=True)
    assert 1.25 * 420 <= pace.horizon <= 1.25 * 440
    assert pace.gamma(pace.horizon) ** pace.horizon == pytest.approx(search.gamma**300)
    for _ in range(8):
        episode(pace, 5000, falls=True)
    assert pace.horizon == 1000


def test_episodes_that_time_ends_say_nothing_of_ends() -> None:
    pace = Pace(Search())
    episode(pace, 900, falls=False)
    assert pace.horizon == Search().horizon
    assert pace.gamma(pace.horizon) == Search().gamma
    assert not pace.ends


def test_after_a_long_search_in_vain_an_end_is_no_reason_to_hurry() -> None:
    pace = Pace(Search(every=50, at_most=600, per_episode=6))
    made = [episode(pace, 100, falls=True) for _ in range(60)]
    assert made[0] >= 6
    assert sum(made[-12:]) <= 2 * 12 * 100 / 600 + 2
    assert pace.scale == len(SCALES) - 1


def test_an_end_that_comes_much_sooner_is_news() -> None:
    pace = Pace(Search())
    for _ in range(8):
        episode(pace, 100, falls=True)
    pace.vain, pace.wait, pace.since = VAIN, 600, 0
    assert episode(pace, 90, falls=True) == 0
    assert episode(pace, 20, falls=True) == 6
    assert pace.vain == 6


def test_what_is_news_is_told_from_most_ends() -> None:
    pace = Pace(Search(kept=4))
    for length in (1000, 100, 100, 100, 100):
        episode(pace, length, falls=True)
    assert pace.ends == [100, 100, 100, 100]
    for length, news in ((60, False), (40, True)):
        pace.vain, pace.wait, pace.since = VAIN, 600, 0
        episode(pace, length, falls=True)
        assert (pace.vain < VAIN) == news


def test_updates_within_an_episode_count_for_its_end() -> None:
    pace = Pace(Search(every=10, at_most=10, per_episode=6))
    assert episode(pace, 45, falls=True) == 6  # four on the way, two at the end


def test_how_long_episodes_last() -> None:
    pace = Pace(Search())
    for _ in range(70):
        pace.step(True, False)
    assert pace.lasts == 70
    pace.left()
    assert pace.lasts == 70
    episode(pace, 200, falls=False)
    episode(pace, 210, falls=False)
    pace.step(True, False)
    assert pace.lasts == 200
    episode(pace, 50, falls=True)
    assert pace.lasts == 0


def test_a_part_of_an_episode_says_nothing_of_its_length() -> None:
    pace = Pace(Search())
    for falls in (True, False):
        pace.torn = True
        assert episode(pace, 40, falls=falls) == 6 * falls
        assert not pace.ends
        assert not pace.lasted
        assert not pace.torn


def test_one_update_for_each_end_stays_one() -> None:
    pace = Pace(Search(per_episode=1, after_end=300, every=10_000, at_most=10_000))
    assert [episode(pace, 480, falls=True) for _ in range(4)] == [1, 1, 1, 1]


def test_learned_simulators_are_not_asked_so_far_ahead() -> None:
    pace = Pace(Search(after_end=300), 300)
    episode(pace, 800, falls=True)
    assert pace.horizon == 300


def test_what_was_found_ends_the_vain_search() -> None:
    pace = Pace(Search())
    pace.vain = VAIN
    pace.searched(idle=False)
    assert pace.vain == 0


def test_a_long_replay_counts_for_more_than_one() -> None:
    """As much work after an end, however late it came."""
    pace = Pace(Search(per_episode=6, after_end=300, every=10_000, at_most=10_000))
    assert episode(pace, 100, falls=True) == 6
    for _ in range(8):
        late = episode(pace, 480, falls=True)
    assert late == 3


def test_memory_is_json_and_goes_on() -> None:
    search = Search()
    pace = Pace(search)
    for length in (30, 60, 200):
        episode(pace, length, falls=length != 60)
    pace.torn = True
    again = Pace(search)
    again.restore(json.loads(json.dumps(pace.memory())))
    assert again.memory() == pace.memory()
    made = [episode(each, 77, falls=True) for each in (pace, again)]
    assert made[0] == made[1] > 0
    assert again.memory() == pace.memory()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scale", 3),
        ("since", -1),
        ("ends", [0]),
        ("wait", 0),
        ("wait", 1.5),
        ("lasted", [0]),
        ("ends", [np.nan]),
    ],
)
def test_what_is_no_memory_is_refused(name: str, value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        Pace(Search()).restore(Pace(Search()).memory() | {name: value})
