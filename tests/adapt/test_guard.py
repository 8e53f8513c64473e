"""The guard: what harms steps back, what helps goes on, and all of it survives a file."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt import trial
from windward.adapt.guard import Guard


def play(
    guard: Guard, adapted: float, base: float, episodes: int, noise: float = 1.0
) -> list[bool]:
    """Episodes with given mean returns; which of them the base policy had."""
    rng = np.random.default_rng(0)
    rested = []
    for _ in range(episodes):
        rested.append(guard.resting)
        guard.step((base if guard.resting else adapted) + noise * rng.standard_normal())
        guard.end()
    return rested


def test_the_base_policy_is_asked_seldom_and_ever_more_seldom() -> None:
    rested = play(Guard(), adapted=100.0, base=50.0, episodes=60)
    at = np.flatnonzero(rested)
    assert at[0] == trial.FIRST
    assert (np.diff(np.diff(at)) == 1).all()  # the gaps grow by one
    assert len(at) < 12


def test_harm_is_met_by_stepping_back_longer_each_time() -> None:
    guard = Guard()
    rested = play(guard, adapted=50.0, base=100.0, episodes=100)
    back = [each for each in guard.decisions if "stepped back" in each]
    assert "50 % worse" in back[0]
    assert [int(each.split()[-1]) for each in back] == [
        trial.Trial.rest * 2**i for i in range(len(back))
    ]
    assert len(back) >= 3
    assert np.mean(rested) > 0.6  # most episodes are the base policy's


def test_what_helps_or_makes_no_difference_goes_on() -> None:
    for adapted in (100.0, 120.0):
        guard = Guard()
        play(guard, adapted, base=100.0, episodes=80, noise=5.0)
        assert not guard.decisions


def test_one_lucky_episode_does_not_hide_harm() -> None:
    """A pole that stands or falls: means are uncertain, ranks are not."""
    guard, rng, base = Guard(), np.random.default_rng(0), iter([60.0, 1000.0, 1000.0, 55.0] * 9)
    for _ in range(30):
        guard.step(next(base) if guard.resting else 20.0 + rng.random())
        guard.end()
    assert "stepped back" in guard.decisions[0]
    assert "of the base policy" in guard.decisions[0]


def test_an_adapted_pole_that_stands_more_often_goes_on() -> None:
    guard, rng = Guard(), np.random.default_rng(0)
    for _ in range(60):
        stands = rng.random() < (0.2 if guard.resting else 0.8)
        guard.step(1000.0 if stands else 50.0 + 10 * rng.random())
        guard.end()
    assert not guard.decisions


def test_a_change_of_the_wind_ends_a_rest() -> None:
    guard = Guard()
    while guard._next_rest < trial.LONGEST:
        play(guard, adapted=50.0, base=100.0, episodes=1)
    while guard._rest < 20:
        play(guard, adapted=50.0, base=100.0, episodes=1)
    play(guard, adapted=50.0, base=100.0, episodes=6)
    assert guard.resting
    play(guard, adapted=50.0, base=20.0, episodes=3)
    assert not guard.resting
    assert "returns have changed" in guard.decisions[-1]


def test_less_evidence_than_asked_for_decides_nothing() -> None:
    guard = Guard()
    play(guard, adapted=0.0, base=1e6, episodes=trial.FIRST + 1)
    assert not guard.decisions


def test_an_episode_whose_return_is_unknown_counts_for_nothing() -> None:
    guard = Guard()
    guard.step(float("nan"))
    assert not guard.end()
    assert guard.adapted == []
    assert guard.episode == 1


class Harmed(gym.Env[np.ndarray, np.ndarray]):
    """Ten steps; every action costs its square, so exploring does harm and nothing is to gain."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict]:  # type: ignore[type-arg]
        super().reset(seed=seed)
        self._t = 0
        return self.np_random.uniform(-1, 1, 2), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:  # type: ignore[type-arg]
        self._t += 1
        cost = float(np.square(action).sum()) + 0.01
        return self.np_random.uniform(-1, 1, 2), -cost, False, self._t == 10, {}


def wrapped(**options: object) -> ww.RobustWrapper:
    signal = ww.adapt.Own(lambda x, u, reward, x_next: x_next, 2)
    return ww.RobustWrapper(Harmed(), signal=signal, sigma=0.3, eta=1e-3, **options)  # type: ignore[arg-type]


def episodes(env: ww.RobustWrapper, count: int, seed: int | None = 0) -> list[tuple[float, bool]]:
    found = []
    for i in range(count):
        env.reset(seed=seed if i == 0 else None)
        total, ended, info = 0.0, False, {}
        while not ended:
            _, reward, terminated, truncated, info = env.step(np.zeros(1, np.float32))
            total, ended = total + float(reward), terminated or truncated
        found.append((total, info["windward"]["resting"]))
    return found


def test_in_the_wrapper_the_base_policy_acts_alone_while_resting() -> None:
    env = wrapped()
    played = episodes(env, 40)
    resting = [total for total, rests in played if rests]
    assert len(resting) > 20  # it stepped back
    np.testing.assert_allclose(resting, -0.1)  # no correction and no noise
    assert any("stepped back" in each for each in env.decisions)
    assert env.faults == {}
    assert not any(rests for _, rests in played[: trial.FIRST])


def test_info_tells_when_something_was_decided() -> None:
    env, told = wrapped(), []
    for i in range(40):
        env.reset(seed=0 if i == 0 else None)
        ended = False
        while not ended:
            before = len(env.decisions)
            *_, terminated, truncated, info = env.step(np.zeros(1, np.float32))
            ended = terminated or truncated
            assert info["windward"]["decided"] == (len(env.decisions) > before)
            told.append(info["windward"]["decided"])
    assert any(told)
    assert not all(told)


def test_corrections_that_only_saturate_are_told_once(tmp_path: Path) -> None:
    """ŵ is uniform in [-1, 1], so that M_1 = 100 cuts off all but a hundredth."""
    M0 = np.full((5, 1, 2), 100.0)
    env = wrapped(M0=M0, projection=None)
    episodes(env, 3)
    (told,) = env.decisions
    assert told.startswith("after episode 1: ")
    assert "of the actions were cut off at the actuator's bounds" in told
    env.save(tmp_path / "state.npz")
    again = wrapped(M0=M0, projection=None)
    again.load(tmp_path / "state.npz")
    episodes(again, 1, seed=None)
    assert again.decisions == env.decisions


def test_a_base_policy_that_saturates_by_itself_is_not_told() -> None:
    env = wrapped(every_steps=1000)
    env.reset(seed=0)
    for _ in range(10):
        *_, info = env.step(np.full(1, 9.0, np.float32))
        assert info["windward"]["clipped"]
    assert env.decisions == []
    assert env.clipped == 10


@pytest.mark.parametrize("thawed", [10, 14], ids=["between", "within"])
def test_episodes_that_were_frozen_in_part_count_for_nothing(thawed: int) -> None:
    env = wrapped()
    guard = env._module.guard
    for t in range(30):
        if t % 10 == 0:
            env.reset(seed=0 if t == 0 else None)
        if t == 4:
            env.freeze()
        elif t == thawed:
            env.unfreeze()
        env.step(np.zeros(1, np.float32))
    assert len(guard.adapted) == (2 if thawed == 10 else 1)


def test_an_episode_in_which_all_was_forgotten_counts_for_nothing() -> None:
    env = wrapped()
    env.reset(seed=0)
    for t in range(10):
        if t == 4:
            env.reset_adaptation()
        env.step(np.zeros(1, np.float32))
    assert env._module.guard.adapted == []
    episodes(env, 1)
    assert len(env._module.guard.adapted) == 1


def test_stepping_back_forgets_M() -> None:
    env = wrapped()
    while not env.decisions:
        episodes(env, 1, None)
    assert not env.M.any()


@pytest.mark.parametrize("options", [{"guard": False}, {"preset": "paper"}])
def test_without_a_guard_every_episode_is_adapted(options: dict[str, object]) -> None:
    env = wrapped(**options)
    assert not any(rests for _, rests in episodes(env, 12))
    assert env.decisions == []


def test_frozen_nobody_rests() -> None:
    env = wrapped()
    episodes(env, trial.FIRST)
    env.freeze()
    assert not any(rests for _, rests in episodes(env, 3, None))


def test_a_saved_guard_goes_on_as_if_nothing_was(tmp_path: Path) -> None:
    one, other = wrapped(), wrapped()
    episodes(one, 9)
    one.save(tmp_path / "state.npz")
    episodes(other, 1)
    other.load(tmp_path / "state.npz")
    assert episodes(one, 12, 5) == episodes(other, 12, 5)
    assert one.decisions == other.decisions


def test_a_damaged_memory_changes_nothing() -> None:
    guard = Guard()
    play(guard, 1.0, 1.0, 5)
    before = guard.memory()
    for name in before:
        with pytest.raises(ValueError, match="no memory of a guard"):
            guard.restore({key: each for key, each in before.items() if key != name})
    assert guard.memory() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"guard": "yes"}, "guard must be one of"),
        ({"preset": "papers"}, "preset must be one of"),
        ({"preset": "paper", "learner": "quadratic"}, "preset 'paper' is learner 'mf-gpc'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrapped(**options)
