"""Judges: verdicts from simulated episodes, and harm from real ones."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt.corrections import Carry, Range
from windward.adapt.episodes import Window, play
from windward.adapt.judges import JudgeSettings, Returns, Verdict, base_return, judged, simulated
from windward.adapt.proposers.base import SimulationSettings, Situation
from windward.adapt.twin import Twin
from windward.adapt.winds import WindSettings

S = JudgeSettings()


class Added(NamedTuple):
    """Adds the same to every action, cut to the space."""

    range: Range
    by: float

    def act(self, twin: Any, x: Any, observation: Any, base: Any, wind: Any, carry: Carry) -> Any:
        return np.clip(base + self.by, self.range.low, self.range.high), carry


@pytest.fixture(scope="module")
def at() -> Situation:
    """An InvertedPendulum whose policy pushes 0.35 too much: it falls, unless that is taken off."""
    env = gym.make("InvertedPendulum-v5")
    env.reset(seed=0)
    sim = ww.simulator(env, noisy=False)
    base = ww.policies.load("InvertedPendulum-v5")

    def policy(x: np.ndarray) -> np.ndarray:
        return np.asarray(base.predict(x)[0]) + np.float32(2.5)

    twin = Twin(sim, sim.changed({"gain": 0.9}), threads=1)
    start = sim.state()[None]
    space = Range.of(env.action_space)  # type: ignore[arg-type]
    return Situation(
        None, twin, policy, space, np.float32, np.eye(4), np.ones(4), start, start,  # type: ignore[arg-type]
        np.zeros((1, 4)), Window(2, np.ones(2), np.array([2, 3])), 120, SimulationSettings(),
        WindSettings(),
    )  # fmt: skip


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_the_base_policy_is_no_winner(at: Situation) -> None:
    """However often it is asked, it gains exactly nothing."""
    (found,) = judged(at, {"nothing": Added(at.range, 0.0)}, S, rng(), recent=True)
    assert (found.gain, found.error, found.returns) == (0.0, 0.0, found.base)
    assert not found.won(S)
    assert found.lost(S)
    assert found.episodes == S.rounds[1][0]  # a whole round says so, and no more are played


def test_the_better_one_wins_and_the_worse_one_loses(at: Situation) -> None:
    good, bad = Added(at.range, -2.5), Added(at.range, 2.5)
    found = judged(at, {"bad": bad, "good": good}, S, rng(), recent=False)
    assert [each.name for each in found] == ["good", "bad"]
    assert found[0].won(S)
    assert not found[1].won(S)
    assert found[1].lost(S)
    assert found[0].nominal <= 120
    assert found[0].gain == pytest.approx(found[0].returns - found[0].base)


def test_all_meet_the_same_starts_and_draws(at: Situation) -> None:
    same = {"one": Added(at.range, -2.5), "two": Added(at.range, -2.5)}
    one, two = simulated(at, same, at.draw(6, rng()), 50)
    assert one[1:] == two[1:]
    alone = simulated(at, {"one": same["one"]}, at.draw(6, rng()), 50)
    assert alone[0] == one


def test_a_short_episode_does_not_lose(at: Situation) -> None:
    """Who falls falls late: in a tenth of an episode nothing is to be seen."""
    settings = JudgeSettings(rounds=((4, 0.1), (4, 1.0)))
    (found,) = judged(at, {"good": Added(at.range, -2.5)}, settings, rng(), recent=True)
    assert found.steps == 120
    assert found.won(settings)


def test_episodes_are_those_of_the_environment(at: Situation) -> None:
    """The return and length of a simulated episode are those of a real one from the same state."""
    env = ww.envs.Changed(gym.make("InvertedPendulum-v5"), {"gain": 0.9})
    x, _ = env.reset(seed=5)
    starts = at.draw(1, rng())._replace(x=ww.simulator(env, noisy=False).state()[None])
    total, alive = play(at.twin, at.policy, None, starts, 120, at.winds, at.window)
    real, steps, over = 0.0, 0, False
    while not over and steps < 120:
        x, reward, over, _, _ = env.step(at.policy(x[None])[0])
        real, steps = real + float(reward), steps + 1
    assert (total[0], alive[0]) == (real, steps)
    assert steps < 120


def test_the_base_policys_own_return(at: Situation) -> None:
    starts = at.draw(4, rng())
    same = simulated(at, {"nothing": Added(at.range, 0.0)}, starts, at.horizon)[0]
    assert base_return(at, starts) == same.base


def verdict(gain: float, error: float, base: float = 100.0) -> Verdict:
    return Verdict("it", base + gain, base, 2 * base, gain, error, 8, 100)


def test_credible_and_worth_it() -> None:
    assert verdict(10, 4).won(S)
    assert not verdict(10, 6).won(S)  # less than two errors
    assert not verdict(0.9, 0.01).won(S)  # less than a hundredth of the return
    assert verdict(0.9, 0.01).lost(S)
    assert not verdict(0.9, 1.0).lost(S)  # more episodes may tell
    assert verdict(2, 0.1, base=-100.0).won(S)  # returns below 0
    assert not verdict(10, np.inf).won(S)  # of a single episode


def returns(adapted: list[float], base: list[float]) -> Returns:
    found = Returns()
    found.adapted, found.base = adapted, base
    return found


def test_harm_needs_two_episodes_and_a_credible_difference() -> None:
    assert not returns([0.0], [100.0, 101.0]).harmful(100.0, S)
    assert returns([50.0, 52.0], [100.0, 101.0]).harmful(0.0, S)
    assert not returns([50.0, 150.0], [100.0, 101.0]).harmful(0.0, S)  # too uneven to tell
    assert not returns([99.5, 99.5], [100.0, 100.0]).harmful(0.0, S)  # less than a hundredth
    assert not returns([120.0, 122.0], [100.0, 101.0]).harmful(200.0, S)


def test_without_real_episodes_the_simulated_return_stands_for_the_base() -> None:
    assert returns([50.0, 52.0], []).harmful(100.0, S)
    assert not returns([50.0, 52.0], []).harmful(49.0, S)
