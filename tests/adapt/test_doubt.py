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
    said: list[str] = []
    doubt = Doubt(said.append)
    assert not any(rested or forgets for rested, forgets in play(doubt, 0.0, 100.0, 40))
    assert said == []
    assert len(doubt.adapted) == KEPT


def test_two_episodes_of_the_base_policy_come_first() -> None:
    doubt, said = awake()
    assert "the base policy acts for the next 2 episodes" in said[0]
    rested = [rested for rested, _ in play(doubt, 0.0, 0.0, 4)]
    assert rested == [True, True, False, False]


def test_episodes_without_M_need_not_be_asked_for() -> None:
    said: list[str] = []
    doubt = Doubt(said.append)
    for _ in range(LEAST[1]):
        doubt.see(1.0, acts=False)
        doubt.end()
    doubt.wake()
    assert not doubt.resting
    assert said == []


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


def test_which_episodes_tell_something() -> None:
    """Not those in which M began in the middle, that were left, or of which a part is not known."""
    doubt = Doubt(lambda _: None)
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
    assert (doubt.adapted, doubt.base) == ([], [])
    for acts in (True, False):  # replays gave it up: its return is their doing
        doubt.see(2.0, acts)
    doubt.end()
    assert (doubt.adapted, doubt.base) == ([4.0], [])


def test_a_file_holds_all_of_it() -> None:
    doubt, _ = awake()
    list(play(doubt, -10.0, 0.0, 9))
    doubt.see(1.0, acts=False)
    other = Doubt(lambda _: None)
    other.restore(doubt.memory())
    assert other.memory() == doubt.memory()
    with pytest.raises(ValueError, match="_rest"):
        other.restore({**doubt.memory(), "_rest": -1})


def episode(env: ww.RobustWrapper, seed: int) -> tuple[float, np.ndarray, list[bool]]:
    """Return, what was added to the base actions, and whether an episode was the base policy's."""
    act = ww.bases.predictor(load_model("shipped", "Pendulum-v1"), env.action_space)
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
    assert "acts for the next episode" in env.decisions[1]  # beside the first
    assert "after episode 6, step 1199: stepped back: 4 adapted episodes were" in env.decisions[-1]
    for i, (_, added, rests) in enumerate(played):
        acts = LEAST[1] <= i < LEAST[1] + LEAST[0]
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


def test_without_a_guard_nobody_asks_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    env = harmful(monkeypatch, guard=False)
    played = [episode(env, seed) for seed in range(6)]
    assert any("the simulator is wrong" in each for each in env.decisions)
    assert not any(any(rests) for _, _, rests in played)


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
