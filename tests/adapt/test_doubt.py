"""Returns judge replays whose simulator is wrong: when they are asked, what they decide, files."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import windward as ww
from tests.adapt.test_flaw import load_model, pendulum
from windward.adapt.doubt import Doubt
from windward.adapt.trial import KEPT, LEAST


def awake() -> tuple[Doubt, list[str]]:
    said: list[str] = []
    doubt = Doubt(said.append)
    doubt.wake()
    return doubt, said


def play(
    doubt: Doubt, adapted: float, base: float, episodes: int, spread: float = 1.0
) -> Iterator[tuple[bool, bool]]:
    """Episodes with given mean returns: whether the base policy had each, and what followed."""
    rng = np.random.default_rng(0)
    for _ in range(episodes):
        rested = doubt.resting
        doubt.see((base if rested else adapted) + spread * rng.standard_normal(), acts=not rested)
        yield rested, doubt.end()


def test_nobody_is_asked_while_the_simulator_seems_right() -> None:
    """And what was earned then does not count: it may be of another wind."""
    said: list[str] = []
    doubt = Doubt(said.append)
    assert not any(rested or forgets for rested, forgets in play(doubt, 0.0, 100.0, 40))
    assert said == doubt.adapted == doubt.base == []


def test_two_episodes_of_the_base_policy_come_first() -> None:
    doubt, said = awake()
    assert "the base policy acts for the next 2 episodes" in said[0]
    rested = [rested for rested, _ in play(doubt, 0.0, 0.0, 4)]
    assert rested == [True, True, False, False]


def test_what_pays_is_left_alone() -> None:
    doubt, _ = awake()
    rested = [rested for rested, _ in play(doubt, adapted=10.0, base=0.0, episodes=60)]
    assert sum(rested) == LEAST[1]


def test_what_cannot_be_told_is_compared_ever_more_seldom() -> None:
    doubt, said = awake()
    rested = []
    for episode in range(60):
        rested.append(doubt.resting)
        doubt.see((-1.0) ** episode, acts=not rested[-1])  # neither is better
        doubt.end()
    gaps = np.diff(np.flatnonzero(rested)[1:]) - 1
    assert gaps.tolist() == [4, 4, 8, 16]
    assert not any("stepped back" in each for each in said)


def test_harm_is_not_tried_again_soon() -> None:
    doubt, said = awake()
    played = list(play(doubt, adapted=-10.0, base=0.0, episodes=50))
    forgets = [i for i, (_, forgets) in enumerate(played) if forgets]
    assert forgets[0] == LEAST[1] + LEAST[0] - 1
    assert all(rested for rested, _ in played[forgets[0] + 1 : forgets[0] + 1 + Doubt.rest])
    assert forgets[1] == forgets[0] + Doubt.rest + LEAST[0]
    assert "4 adapted episodes were" in said[2]
    assert f"acts for the next {Doubt.rest}" in said[2]
    assert doubt.away


def test_another_wind_ends_the_rest() -> None:
    doubt, said = awake()
    list(play(doubt, adapted=-10.0, base=0.0, episodes=12))
    assert doubt.away
    list(play(doubt, adapted=0.0, base=50.0, episodes=4))
    assert not doubt.away
    assert "returns have changed" in said[-1]
    assert len(doubt.base) == LEAST[1]
    assert min(doubt.base) > 40.0  # none of the wind before


def test_which_episodes_tell_something() -> None:
    """Not those in which M began in the middle, that were left, or of which a part is not known."""
    doubt, _ = awake()
    list(play(doubt, 0.0, 0.0, LEAST[1]))
    base = list(doubt.base)
    for acts in (False, True):
        doubt.see(1.0, acts)
    doubt.end()
    doubt.see(1.0, acts=True)
    doubt.left()
    doubt.see(1.0, acts=True)
    doubt.torn()
    doubt.end()
    doubt.see(np.nan, acts=True)
    doubt.end()
    assert (doubt.adapted, doubt.base) == ([], base)
    for acts in (True, False):  # replays gave it up: its return is their doing
        doubt.see(2.0, acts)
    doubt.end()
    assert (doubt.adapted, doubt.base) == ([4.0], base)


@pytest.mark.parametrize("known", [True, False])
def test_a_rest_ends_though_its_episodes_tell_nothing(known: bool) -> None:
    doubt, said = awake()
    for _ in range(LEAST[1]):
        assert doubt.resting
        doubt.see(1.0 if known else np.nan, acts=False)
        if known:
            doubt.left()  # before their end
        else:
            doubt.end()
        doubt.left()  # the next begins
    assert not doubt.resting
    assert said[-1] == "began again"
    assert doubt.base == []


def test_returns_of_an_M_that_was_given_up_do_not_judge_the_next() -> None:
    doubt, _ = awake()
    list(play(doubt, -10.0, 0.0, LEAST[1] + LEAST[0] - 1))
    doubt.renounced()
    assert not any(forgets for _, forgets in play(doubt, -10.0, 0.0, LEAST[0] - 1))
    assert any(forgets for _, forgets in play(doubt, -10.0, 0.0, 2))  # one is the base policy's


def test_a_file_holds_all_of_it() -> None:
    doubt, _ = awake()
    list(play(doubt, -10.0, 0.0, 9))
    doubt.see(1.0, acts=False)
    other = Doubt(lambda _: None)
    other.restore(doubt.memory())
    assert other.memory() == doubt.memory()
    before = other.memory()
    for name, value in (
        ("_rest", -1), ("_next_rest", 0), ("resting", False), ("resting", "no"), ("awake", 1),
        ("base", [np.nan]), ("base", [0.0] * (KEPT + 1)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"rest|awake|base"):
            other.restore({**doubt.memory(), name: value})
    assert other.memory() == before


def episode(env: ww.RobustWrapper, seed: int) -> tuple[float, np.ndarray, list[bool]]:
    """Return, what was added to the base actions, and whether an episode was the base policy's."""
    act = ww.policies.predictor(load_model("shipped", "Pendulum-v1"), env.action_space)
    x, _ = env.reset(seed=seed)
    total, added, rests, done = 0.0, [], [], False
    while not done:
        base = act(x[None])[0]
        x, reward, terminated, truncated, info = env.step(base)
        total += float(reward)
        added.append(info["windward"]["action"] - base)
        rests.append(info["windward"]["resting"])
        done = terminated or truncated
    return total, np.array(added), rests


def harmful(monkeypatch: pytest.MonkeyPatch, guard: bool = True) -> ww.RobustWrapper:
    """Replays that are sure of an M that does harm, in a simulator that is wrong."""
    env = pendulum(1.3, guard=guard)
    teacher = env._module.teacher
    assert teacher is not None

    def update() -> bool:
        teacher.M = np.full_like(teacher.M, 2.0)
        return True

    monkeypatch.setattr(teacher, "update", update)
    return env


def test_replays_that_promise_too_much_step_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    env = harmful(monkeypatch)
    played = [episode(env, seed) for seed in range(9)]
    assert "after episode 1, step 200: the simulator is wrong" in env.decisions[0]
    assert "acts for the next 2 episodes" in env.decisions[1]
    assert "after episode 7, step 1399: stepped back: 4 adapted episodes were" in env.decisions[-1]
    for i, (_, added, rests) in enumerate(played):
        acts = 1 + LEAST[1] <= i < 1 + LEAST[1] + LEAST[0]
        assert added.any() == acts
        assert all(rests) == (i > 0 and not acts)
        assert any(rests) == all(rests)
    assert not env.M.any()
    env.save(tmp_path / "resting.npz")
    other = harmful(monkeypatch)
    other.load(tmp_path / "resting.npz")
    for each in (env, other):
        assert all(episode(each, 20)[2])
    assert other.decisions == env.decisions


def test_without_a_guard_nobody_asks_returns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    env = harmful(monkeypatch, guard=False)
    played = [episode(env, seed) for seed in range(6)]
    assert any("the simulator is wrong" in each for each in env.decisions)
    assert not any(any(rests) for _, _, rests in played)
    env.save(tmp_path / "alone.npz")
    with pytest.raises(ValueError, match="guarded = False"):
        harmful(monkeypatch).load(tmp_path / "alone.npz")


def test_episodes_that_are_left_before_their_end_do_not_rest_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    env = harmful(monkeypatch)
    episode(env, 0)  # with whose end returns are asked
    act = ww.policies.predictor(load_model("shipped", "Pendulum-v1"), env.action_space)
    resting = []
    for seed in range(4):
        x, _ = env.reset(seed=seed)
        for _ in range(50):
            x, _, _, _, info = env.step(act(x[None])[0])
        resting.append(info["windward"]["resting"])
    assert resting == [True, True, False, False]
    assert env.M.any()


def test_while_it_is_away_nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    env = harmful(monkeypatch)
    for seed in range(8):
        episode(env, seed)
    teacher = env._module.teacher
    assert teacher is not None
    assert teacher.doubt.away
    monkeypatch.setattr(teacher, "update", lambda: pytest.fail("looked for M"))
    episode(env, 8)


def test_frozen_is_M_itself_in_an_episode_of_the_base_policy_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    env = harmful(monkeypatch)
    episode(env, 0)
    assert not env.M.any()
    env.freeze()
    assert env.M.any()
    assert not any(episode(env, 1)[2])
    env.unfreeze()
    assert not env.M.any()
    assert all(episode(env, 2)[2])
