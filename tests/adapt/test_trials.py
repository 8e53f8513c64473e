"""Trials: what harms is withdrawn, what helps goes on, noise begins small where it may fell."""

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import windward as ww
from windward.adapt.trials import Trials, TrialSettings

S = TrialSettings()
STEPS = 100
SILENT = S.look[0] * S.vain  # adapted episodes after which the wind has stopped
SINE = np.sin(np.arange(STEPS) / 5)
STILL = np.zeros(STEPS)
YES = np.ones(1, bool)


def end(trials: Trials, total: float, fell: bool = False) -> bool:
    """An episode of one row and what it earned; whether M is to be forgotten."""
    trials.step(np.array([total]), YES)
    return trials.end(0, fell)


def play(
    trials: Trials, adapted: float, base: float, episodes: int, noise: float = 1.0
) -> list[bool]:
    """Episodes with given mean returns; which of them the base policy had."""
    rng = np.random.default_rng(0)
    rested = []
    for _ in range(episodes):
        rested.append(not trials.turn[0])
        end(trials, (adapted if trials.turn[0] else base) + noise * rng.standard_normal())
    return rested


# Returns.


def test_the_base_policy_is_asked_seldom_and_ever_more_seldom() -> None:
    at = np.flatnonzero(play(Trials(), adapted=100.0, base=50.0, episodes=60))
    assert at[0] == S.first
    assert (np.diff(np.diff(at)) == 1).all()  # the gaps grow by one
    assert len(at) < 12


def test_harm_is_withdrawn_for_longer_each_time() -> None:
    trials = Trials()
    rested = play(trials, adapted=50.0, base=100.0, episodes=100)
    back = [each for each in trials.decisions if "withdrawn" in each]
    assert "50 % worse" in back[0]
    assert [int(each.split()[-1]) for each in back] == [S.rest * 2**i for i in range(len(back))]
    assert len(back) >= 3
    assert np.mean(rested) > 0.6  # most episodes are the base policy's


def test_what_helps_or_makes_no_difference_goes_on() -> None:
    for adapted in (100.0, 120.0):
        trials = Trials()
        play(trials, adapted, base=100.0, episodes=80, noise=5.0)
        assert not trials.decisions


def test_one_lucky_episode_does_not_hide_harm() -> None:
    """A pole that stands or falls: means are uncertain, ranks are not."""
    trials, rng, base = Trials(), np.random.default_rng(0), iter([60.0, 1000.0, 1000.0, 55.0] * 9)
    for _ in range(30):
        end(trials, 20.0 + rng.random() if trials.turn[0] else next(base))
    assert "withdrawn" in trials.decisions[0]
    assert "of the base policy" in trials.decisions[0]


def test_an_adapted_pole_that_stands_more_often_goes_on() -> None:
    trials, rng = Trials(), np.random.default_rng(0)
    for _ in range(60):
        stands = rng.random() < (0.8 if trials.turn[0] else 0.2)
        end(trials, 1000.0 if stands else 50.0 + 10 * rng.random())
    assert not trials.decisions


def test_a_change_of_the_wind_ends_a_rest() -> None:
    trials = Trials()
    while trials._next_rest < S.longest:
        play(trials, adapted=50.0, base=100.0, episodes=1)
    while trials._rest < 20:
        play(trials, adapted=50.0, base=100.0, episodes=1)
    play(trials, adapted=50.0, base=100.0, episodes=6)
    assert trials.resting
    play(trials, adapted=50.0, base=20.0, episodes=3)
    assert not trials.resting
    assert "returns have changed" in trials.decisions[-1]


def test_less_evidence_than_asked_for_decides_nothing() -> None:
    trials = Trials()
    play(trials, adapted=0.0, base=1e6, episodes=S.first + 1)
    assert not trials.decisions


def test_an_episode_whose_return_is_unknown_counts_for_nothing() -> None:
    trials = Trials()
    assert not end(trials, float("nan"))
    assert trials.adapted == []
    assert trials.episode == 1


def test_settings_are_taken() -> None:
    trials = Trials(settings=TrialSettings(first=1, gap=1, rest=2, least=(1, 1)))
    rested = play(trials, adapted=0.0, base=100.0, episodes=4, noise=0.1)
    assert rested == [False, True, True, True]
    assert trials.decisions[0].endswith("the next 2")


# Rows.


def test_rows_have_turns_and_returns_of_their_own() -> None:
    trials, both = Trials(rows=2), np.ones(2, bool)
    for i in range(S.first):
        trials.step(np.array([1.0, 10.0]), both)
        trials.end(i % 2)
    assert trials.adapted == [1.0, 20.0, 2.0, 20.0]
    assert trials.turn.tolist() == [True, False]  # only the row that has just ended
    trials.step(np.array([1.0, 10.0]), np.array([True, False]))  # the other one was reset
    trials.step(np.array([1.0, 10.0]), both)
    trials.end(0)
    trials.end(1)
    assert trials.base == [10.0]
    assert trials.adapted[-1] == 3.0
    assert trials.turn.tolist() == [False, True]  # it began before the base policy's turn was over


def test_other_rows_episodes_of_a_withdrawn_M_count_for_nothing() -> None:
    trials = Trials(rows=2, settings=TrialSettings(first=2, gap=1, least=(2, 1)))
    rng, forgets = np.random.default_rng(0), False
    while not forgets:
        trials.step(np.where(trials.turn, 0.0, 10.0) + rng.random(2), np.ones(2, bool))
        forgets = trials.end(0)
    assert not trials.turn[0]
    trials.end(1)
    assert (trials.adapted, trials.base) == ([], [])


# Care.


def test_an_early_fall_brings_care_and_forgets_M() -> None:
    trials = Trials(careful=True)
    assert not end(trials, 100.0)
    assert trials.reach == 1.0
    assert end(trials, 5.0, fell=True)
    assert trials.reach == S.care
    assert trials.bound == S.care**2
    assert trials.adapted == []  # what came before was of other noise
    assert "after episode 2: episodes end by themselves" in trials.decisions[0]
    assert not end(trials, 5.0, fell=True)  # the second fall is no news
    assert len(trials.decisions) == 1


def test_a_fall_after_many_whole_episodes_is_left_to_the_returns() -> None:
    trials = Trials(careful=True)
    for _ in range(2 * S.early):  # some of which are the base policy's
        end(trials, 100.0)
    assert not end(trials, 5.0, fell=True)
    assert trials.reach == 1.0
    assert trials.decisions == []


def test_falls_of_the_base_policy_bring_care_before_anything_is_adapted() -> None:
    trials = Trials(1, (5, 2), careful=True)
    for _ in range(2 * S.early):  # nothing was dared in them
        end(trials, 100.0)
    assert not end(trials, 5.0, fell=True)  # and there is nothing to forget
    assert trials.waiting
    assert trials.reach == S.care


def test_a_fall_of_the_base_policy_beside_an_M_that_stands_is_no_harm() -> None:
    trials = Trials(careful=True)
    for _ in range(S.first):
        end(trials, 100.0)
    assert not trials.turn[0]
    assert not end(trials, 5.0, fell=True)
    assert trials.care == 1.0
    assert trials.adapted == [100.0] * S.first


def test_after_a_withdrawal_less_is_dared() -> None:
    """Noise of a sixteenth does no harm, of an eighth it does."""
    trials, rng, cares = Trials(careful=True), np.random.default_rng(0), []
    for _ in range(300):
        harm = trials.turn[0] and trials.care > 1 / 16
        end(trials, (20.0 if harm else 100.0) + rng.standard_normal(), fell=True)
        cares.append(trials.care)
    back = [i for i, each in enumerate(cares[1:]) if each < cares[i]]
    assert len(back) >= 2
    assert max(cares) == 1 / 8
    assert all(cares[i + 1] == max(cares[i] / 4, S.care) for i in back)


def test_harm_without_a_fall_makes_noise_smaller_too() -> None:
    trials, rng = Trials(careful=True), np.random.default_rng(0)
    while not trials.decisions:
        end(trials, (50.0 if trials.turn[0] else 100.0) + rng.standard_normal())
    assert trials.care == 1 / 4
    assert not trials.wary
    assert "noise has 25.0 % of its size after that" in trials.decisions[0]


def test_others_take_no_care() -> None:
    trials = Trials()
    assert not end(trials, 5.0, fell=True)
    assert trials.care == 1.0
    assert trials.decisions == []


def test_what_does_no_harm_dares_twice_as_much_each_time() -> None:
    trials, rng = Trials(careful=True), np.random.default_rng(0)
    cares: list[float] = []
    adapted = 0
    for _ in range(120):
        adapted += int(trials.turn[0])
        end(trials, 100.0 + rng.standard_normal(), fell=True)
        if not cares or trials.care != cares[-1]:
            cares.append(trials.care)
            assert len(cares) < 3 or adapted >= S.least[0]  # evidence of its own for each size
            adapted = 0
    assert cares == [S.care * 2**i for i in range(7)]
    assert trials.care == 1.0


def test_in_doubt_little_is_dared() -> None:
    """A pole that stands every other time tells little in forty episodes."""
    cares = []
    for seed in range(40):
        trials, rng = Trials(careful=True), np.random.default_rng(seed)
        for _ in range(40):
            end(trials, 1000.0 if rng.random() < 0.5 else 50.0, fell=True)
        cares.append(trials.care)
    assert np.mean(np.array(cares) > 2 * S.care) <= 0.1
    assert np.median(cares) == S.care


def test_doubtful_signals_dare_more_the_more_slowly() -> None:
    grown = []
    for doubtful in (False, True):
        trials = Trials(careful=True, doubtful=doubtful)
        trials.care = S.care
        for _ in range(40):
            end(trials, 100.0)
        grown.append(trials.care)
    assert S.care < grown[1] < grown[0]


def test_the_ball_shrinks_with_a_signal_that_grows_as_noise_shrinks() -> None:
    trials = Trials(careful=True, doubtful=True, of_noise=True)
    assert trials.care == S.care_of_noise
    assert trials.bound == S.care_of_noise**3
    assert Trials(careful=True, doubtful=True).bound == S.care**2


def test_M_that_was_set_stays_where_signals_are_doubted_and_episodes_fall() -> None:
    trials = Trials(1, (5, 1), careful=True, doubtful=True)
    assert trials.bound < 1e-3
    trials.trust()
    assert trials.bound == 1.0  # of the ball; noise stays small
    assert trials.reach == S.care
    assert not end(trials, 1.0, fell=True)


# A wind that begins and ends.


def episode(trials: Trials, wind: np.ndarray, total: float = 1.0) -> bool:
    """ŵ of one episode, as a learner shows it; whether M is to be forgotten."""
    for w in wind:
        if trials.looks and trials.turn[0]:
            trials.feel(np.atleast_1d(w))
    return end(trials, total)


def blown() -> Trials:
    """Trials of what has begun to adapt."""
    trials = Trials(1, (5, 1))
    episode(trials, SINE)
    assert not trials.waiting
    return trials


def test_one_glitch_does_not_make_it_wait_for_ever() -> None:
    trials, t = Trials(1, (5, 1)), 0
    while trials.waiting and t < 2 * S.anew:
        trials.feel(np.array([10.0 if t == 20 else 0.1 * np.sin(t / 10)]))
        t += 1
    assert S.anew < t < S.anew + 200


def test_returns_of_a_calm_are_not_held_against_what_is_adapted_in_a_wind() -> None:
    """The base policy earns -1 a step in the calm and -3 in the wind, adaptation -2."""
    trials, rng = Trials(1, (5, 1)), np.random.default_rng(0)
    for number in range(30):
        for t in range(STEPS):
            windy = number >= 12
            if trials.waiting:
                trials.feel(np.array([windy * np.sin(t / 5)]))
            adapts = trials.turn[0] and not trials.waiting
            earned = -1.0 if not windy else -2.0 if adapts else -3.0
            trials.step(np.array([earned + 0.1 * rng.normal()]), YES)
        assert not trials.end(0)
    (told,) = trials.decisions
    assert "began to adapt" in told


@pytest.mark.parametrize("calm", [STILL, np.random.default_rng(0).uniform(-1, 1, STEPS)])
def test_it_waits_again_when_the_past_tells_nothing_any_more(calm: np.ndarray) -> None:
    trials = blown()
    forgets = [episode(trials, calm) for _ in range(2 * SILENT)]  # some of them the base's
    assert sum(forgets) == 1
    assert trials.waiting
    assert trials.phase == "observe"
    assert "its past predicts nothing of the disturbance any more" in trials.decisions[-1]
    for _ in range(3):
        episode(trials, SINE)
    assert not trials.waiting
    assert "began to adapt" in trials.decisions[-1]


@pytest.mark.parametrize("phase", [0, 1])
def test_a_wind_of_every_other_episode_goes_on(phase: int) -> None:
    trials = blown()
    said = len(trials.decisions)
    for i in range(90):
        assert not episode(trials, SINE if i % 2 == phase else STILL)
    assert not trials.waiting
    assert len(trials.decisions) == said


def test_a_few_steps_decide_nothing() -> None:
    trials = blown()
    for _ in range(S.look[1] // 20):
        assert not episode(trials, STILL[:20])  # the first h of which predict nothing
    assert not trials.waiting


def test_a_wind_that_goes_on_is_not_looked_at_all_the_time() -> None:
    """It costs time at every step; once told, the rest of the episodes is not looked at."""
    trials, looked = blown(), []
    for _ in range(S.look[0]):
        for w in SINE:
            looked.append(trials.looks and trials.turn[0])
            if looked[-1]:
                trials.feel(np.atleast_1d(w))
        end(trials, 1.0)
    assert 0 < sum(looked) <= STEPS


def test_M_that_was_set_is_never_forgotten_for_a_calm() -> None:
    trials = Trials(1, (5, 1))
    trials.trust()
    assert not any(episode(trials, STILL) for _ in range(10))
    assert not trials.waiting


def test_one_glitch_does_not_lose_what_was_learned() -> None:
    for at in range(0, 5 * STEPS, 17):
        trials, wind = blown(), np.tile(SINE, 12)
        wind[at] += 30.0
        assert not any(episode(trials, each) for each in np.split(wind, 12))


def test_a_wind_that_takes_long_to_be_told_takes_long_to_be_missed() -> None:
    """Of noise in which every value has half of the last one the past tells a quarter."""
    trials, rng, w = Trials(1, (5, 1)), np.random.default_rng(0), 0.0
    for _ in range(300):
        wind = []
        for _ in range(STEPS):
            w = 0.5 * w + rng.standard_normal()
            wind.append(w)
        episode(trials, np.array(wind), rng.standard_normal())
    assert not trials.waiting
    assert not any("any more" in each for each in trials.decisions)


def test_a_constant_wind_and_numbers_that_do_not_move_are_told() -> None:
    trials = Trials(1, (5, 3))
    for _ in range(80):
        trials.feel(np.array([0.1, 0.0, -2.0], np.float32))
    assert not trials.waiting
    said = " ".join(trials.decisions)
    assert "1 of the 3 numbers of the disturbance do not move" in said
    assert "the disturbance is constant" in said
    assert f"judged by returns, of {S.least[0]} adapted episodes" in said
    assert not any("constant" in each or "move" in each for each in blown().decisions)


# Memories.


def test_a_memory_goes_on_exactly() -> None:
    first, again = blown(), Trials(1, (5, 1))
    episode(first, STILL)
    again.restore(copy.deepcopy(first.memory()))
    for trials in (first, again):
        for _ in range(2 * SILENT):
            episode(trials, STILL)
    assert again.waiting
    assert first.memory() == again.memory()


def test_a_damaged_memory_changes_nothing() -> None:
    trials = Trials()
    play(trials, 1.0, 1.0, 5)
    before = copy.deepcopy(trials.memory())
    odd: list[Any] = [{key: each for key, each in before.items() if key != name} for name in before]
    odd += [before | {"turn": [True, False]}, before | {"adapted": [np.nan]}, None]
    for each in odd:
        with pytest.raises(ValueError, match=r"no memory of trials|it has"):
            trials.restore(each)
    assert trials.memory() == before


ODD = [(name, each) for name in ("size", "care") for each in (0.0, -0.5, 2.0, np.nan, 10**400)]


@pytest.mark.parametrize(("name", "value"), [*ODD, ("_acted", np.inf), ("_acted", -1.0)])
def test_what_is_no_share_is_refused(name: str, value: float) -> None:
    trials = Trials(1, (5, 2))
    memory = copy.deepcopy(trials.memory()) | {name: value}
    with pytest.raises(ValueError, match=r"no share|squares|trials"):
        trials.restore(memory)
    assert trials.reach == 1.0


# In the wrapper, where exploring does harm and nothing is to gain.


class Harmed(gym.Env[np.ndarray, np.ndarray]):
    """Ten steps; every action costs its square."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, length: int = 10) -> None:
        self._length = length

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict]:  # type: ignore[type-arg]
        super().reset(seed=seed)
        self._t = 0
        return self.np_random.uniform(-1, 1, 2), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:  # type: ignore[type-arg]
        self._t += 1
        cost = float(np.square(action).sum()) + 0.01
        return self.np_random.uniform(-1, 1, 2), -cost, False, self._t == self._length, {}


OWN = ww.adapt.Own(lambda x, u, reward, x_next: x_next, 2)
TRUSTED = {
    "learner": "mf-gpc", "sigma": 0.3, "eta": 1e-3, "M0": np.zeros((5, 1, 2)),
}  # fmt: skip
NOTHING = np.zeros(1, np.float32)


def trials_of(form: Any) -> Trials:
    found: Trials = form._runtime.learner.trials
    return found


def harmed(**options: Any) -> ww.RobustWrapper:
    return ww.RobustWrapper(Harmed(), OWN, **{**TRUSTED, **options})


def episodes(
    env: ww.RobustWrapper, count: int, seed: int | None = 0
) -> list[tuple[float, bool, list[bool]]]:
    """Returns of episodes, whether their last step was the base policy's, and `decided`."""
    found = []
    for i in range(count):
        env.reset(seed=seed if i == 0 else None)
        total, ended, decided, info = 0.0, False, [], {}
        while not ended:
            before = len(env.decisions)
            _, reward, terminated, truncated, info = env.step(NOTHING)
            total, ended = total + float(reward), terminated or truncated
            decided.append(info["windward"]["decided"])
            assert decided[-1] == (len(env.decisions) > before)
        found.append((total, info["windward"]["resting"], decided))
    return found


def test_the_base_policy_acts_alone_while_resting() -> None:
    env = harmed()
    assert env.phase == "trial"
    played = episodes(env, 40)
    resting = [total for total, rests, _ in played if rests]
    assert len(resting) > 20  # it was withdrawn
    np.testing.assert_allclose(resting, -0.1)  # no correction and no noise
    assert any("withdrawn" in each for each in env.decisions)
    assert env.faults == {}
    assert not any(rests for _, rests, _ in played[: S.first])
    assert any(any(decided) for *_, decided in played)


def test_a_withdrawal_forgets_M() -> None:
    env = harmed()
    while not env.decisions:
        episodes(env, 1, None)
    assert not env.M.any()


@pytest.mark.parametrize("thawed", [10, 14], ids=["between", "within"])
def test_episodes_that_were_frozen_in_part_count_for_nothing(thawed: int) -> None:
    env = harmed()
    for t in range(30):
        if t % 10 == 0:
            env.reset(seed=0 if t == 0 else None)
        if t == 4:
            env.freeze()
        elif t == thawed:
            env.unfreeze()
        env.step(NOTHING)
    assert len(trials_of(env).adapted) == (2 if thawed == 10 else 1)


def test_an_episode_in_which_all_was_forgotten_counts_for_nothing() -> None:
    env = harmed()
    env.reset(seed=0)
    for t in range(10):
        if t == 4:
            env.reset_adaptation()
        env.step(NOTHING)
    assert trials_of(env).adapted == []
    episodes(env, 1)
    assert len(trials_of(env).adapted) == 1


@pytest.mark.parametrize("options", [{"guard": False}, {"preset": "paper"}])
def test_without_a_guard_every_episode_is_adapted(options: dict[str, Any]) -> None:
    env = harmed(**options)
    assert not any(rests for _, rests, _ in episodes(env, 12))
    assert env.decisions == []
    assert env.phase == "active"


def test_frozen_nobody_rests() -> None:
    env = harmed()
    episodes(env, S.first)
    env.freeze()
    assert not any(rests for _, rests, _ in episodes(env, 3, None))


def test_saved_trials_go_on_as_if_nothing_was(tmp_path: Path) -> None:
    one, other, frozen = harmed(), harmed(), harmed()
    episodes(one, 9)
    one.save(tmp_path / "state.npz")
    episodes(other, 1)
    frozen.freeze()
    for each in (other, frozen):
        each.load(tmp_path / "state.npz")
    told = episodes(one, 12, 5)
    for each in (other, frozen):
        assert episodes(each, 12, 5) == told
        assert each.decisions == one.decisions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"guard": "yes"}, "guard must be one of"),
        ({"preset": "papers"}, "preset must be one of"),
        ({"preset": "paper", "learner": "quadratic"}, "preset 'paper' is of learner 'mf-gpc'"),
        ({"trials": {"first": 3}}, "TrialSettings"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        harmed(**options)


# Corrections that the actuator cannot follow.


def saturated(M: float, base: float, steps: int) -> tuple[ww.RobustWrapper, list[dict[str, Any]]]:
    """A long episode under an M that was set; ŵ is uniform in [-1, 1]."""
    env = ww.RobustWrapper(Harmed(10_000), OWN, **{**TRUSTED, "projection": None, "eta": 0.0})
    env.M = np.full(env.M.shape, M)
    env.reset(seed=0)
    action = np.full(1, base, np.float32)
    return env, [env.step(action)[4]["windward"] for _ in range(steps)]


def test_a_correction_that_saturates_is_withdrawn_at_once() -> None:
    env, told = saturated(100.0, base=0.0, steps=S.looked + 10)
    (said,) = env.decisions
    assert said.startswith("after episode 0: withdrawn: ")
    assert "of the corrected actions were cut off at the actuator's bounds" in said
    assert [i for i, each in enumerate(told) if each["decided"]] == [S.looked]  # the first has none
    assert not any(each["resting"] for each in told[: S.looked + 1])
    for each in told[S.looked + 1 :]:  # in the same episode
        assert each["resting"]
        np.testing.assert_array_equal(each["action"], NOTHING)
    assert not env.M.any()
    assert env.phase == "rest"


@pytest.mark.parametrize("M", [0.0, 0.01])
def test_a_base_policy_that_saturates_by_itself_is_no_reason_to_withdraw(M: float) -> None:
    env, told = saturated(M, base=9.0, steps=2 * S.looked)
    assert all(each["clipped"] for each in told)
    assert any(each["correction"].any() for each in told) == (M != 0)
    assert env.decisions == []
    assert env.clipped == 2 * S.looked


# In the vector wrapper.


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_rows_of_a_vector_form_have_turns_of_their_own(mode: AutoresetMode) -> None:
    rows = [lambda: Harmed(6), lambda: Harmed(10)]
    env = ww.RobustVectorWrapper(SyncVectorEnv(rows, autoreset_mode=mode), OWN, **TRUSTED)
    env.reset(seed=0)
    resting = np.empty((120, 2), bool)
    for t in range(len(resting)):
        *_, info = env.step(np.zeros((2, 1), np.float32))
        told = info["windward"]
        resting[t] = told["resting"]
        alone = told["noise"][told["resting"]], told["correction"][told["resting"]]
        assert not any(each.any() for each in alone)
        adapted = told["noise"][~told["resting"]]
        assert adapted.all()
    assert (resting[:, 0] & ~resting[:, 1]).any()
    assert (~resting[:, 0] & resting[:, 1]).any()
    assert any("withdrawn" in each for each in env.decisions)
    trials = trials_of(env)
    assert all(each > -0.11 for each in trials.base)
    assert env.faults == {}


def test_a_row_that_ended_while_frozen_leaves_no_return_behind() -> None:
    inner = SyncVectorEnv([Harmed, Harmed], autoreset_mode=AutoresetMode.SAME_STEP)
    env = ww.RobustVectorWrapper(inner, OWN, **{**TRUSTED, "sigma": 1e-6})
    env.reset(seed=0)
    for t in range(30):
        if t == 4:
            env.freeze()
        elif t == 10:
            env.unfreeze()
        env.step(np.zeros((2, 1), np.float32))
    np.testing.assert_allclose(trials_of(env).adapted, [-0.1] * 4)


# In the wrapper, where noise that is not small fells.


class Cliff(gym.Env[np.ndarray, np.ndarray]):
    """A hundred steps in a slow sine, unless an action is far from the base policy's: a fall."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    t = 0

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict]:  # type: ignore[type-arg]
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2), {}

    @property
    def base(self) -> np.ndarray:
        return np.array([0.5 * (-1) ** self.t], np.float32)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:  # type: ignore[type-arg]
        off = float(np.abs(action - self.base).max())
        fell, reward = off > 0.1, 1.0 - off
        self.t += 1
        return np.full(2, np.sin(self.t / 8)), reward, fell, self.t == 100, {}


def cliff(**options: Any) -> ww.RobustWrapper:
    return ww.RobustWrapper(Cliff(), OWN, **options)


def whole(env: ww.RobustWrapper, seed: int | None = None) -> np.ndarray:
    """The noise of each step of an episode."""
    env.reset(seed=seed)
    noise, over = [], False
    while not over:
        *_, terminated, truncated, info = env.step(env.unwrapped.base)  # type: ignore[attr-defined]
        noise.append(info["windward"]["noise"])
        over = terminated or truncated
    return np.array(noise)


def lengths(env: ww.RobustWrapper, count: int, seed: int | None = 0) -> list[int]:
    return [len(whole(env, seed if i == 0 else None)) for i in range(count)]


def test_noise_that_fells_is_given_up_after_one_episode() -> None:
    careful = lengths(cliff(), 20)
    assert careful[0] < 100
    assert careful[1:] == [100] * 19
    assert np.mean(lengths(cliff(guard=False), 20)) < 50


def test_a_fall_while_waiting_leaves_the_actions_as_they_are() -> None:
    env = cliff()
    env.reset(seed=0)
    env.step(-env.unwrapped.base)  # type: ignore[attr-defined]
    assert trials_of(env).wary
    noise = whole(env)
    assert not noise[:60].any()
    assert noise.any()
    assert np.abs(noise).max() < 0.2 * S.care * 5


def test_M_stays_in_a_ball_that_shrinks_with_it() -> None:
    env = cliff(projection=ww.frobenius_ball(2.0))
    engine = env._runtime.learner.engine  # type: ignore[attr-defined]
    lengths(env, 2)
    engine.M = np.full_like(env.M, 2e-3)  # which does not fell, as if learned
    lengths(env, 1, None)
    care = trials_of(env).care
    assert care < 1
    assert 0 < np.linalg.norm(env.M) <= 2.0 * care**2 * (1 + 1e-5)
    env.reset_adaptation()
    assert float(engine.state.learner.hyper["radius"]) == pytest.approx(2.0)


def test_the_hidden_layers_of_a_network_stay_as_large_as_they_are() -> None:
    engine: Any = cliff(parametrisation=ww.mlp(4))._runtime.learner
    engine = engine.engine
    before = float(engine.state.learner.hyper["radius"])
    engine.scale(S.care, S.care**2)
    assert float(engine.state.learner.hyper["radius"]) == before


def test_a_file_keeps_the_care(tmp_path: Path) -> None:
    env, other = cliff(), cliff()
    lengths(env, 7)
    env.save(tmp_path / "state.npz")
    other.load(tmp_path / "state.npz")
    assert trials_of(other).care == trials_of(env).care < 1
    assert trials_of(other).wary
    hypers = [each._runtime.learner.engine.algorithm.hyper for each in (env, other)]  # type: ignore[attr-defined]
    assert hypers[0] == hypers[1]
    lengths(env, 12, 3)
    lengths(other, 12, 3)
    np.testing.assert_array_equal(env.M, other.M)


# In the wrapper, where the wind stops.


class Pushed(gym.Env[np.ndarray, np.ndarray]):
    """A wind that stops after some episodes; actions cost, and nothing can be gained by them."""

    observation_space = gym.spaces.Box(-9.0, 9.0, (2,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    episode, blows = -1, 10

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict]:  # type: ignore[type-arg]
        super().reset(seed=seed)
        self.t, self.episode = 0, self.episode + 1
        return np.zeros(2), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:  # type: ignore[type-arg]
        self.t += 1
        w = np.sin(self.t / 5) if self.episode < self.blows else 0.0
        cost = float(np.square(action).sum())
        return np.array([w, 0.5 * w]), -cost, False, self.t == STEPS, {}


def returns(env: gym.Env, count: int, action: float = 0.5) -> np.ndarray:
    found = []
    for _ in range(count):
        env.reset()
        total, over = 0.0, False
        while not over:
            _, reward, _, over, _ = env.step(np.full(1, action, np.float32))
            total += float(reward)
        found.append(total)
    return np.array(found)


def test_the_base_action_is_executed_after_the_wind_has_stopped(tmp_path: Path) -> None:
    env, other = (ww.RobustWrapper(Pushed(), OWN, learner="residual-feedback") for _ in range(2))
    played = returns(env, Pushed.blows + 4 * SILENT)
    base = returns(Pushed(), 1)[0]
    assert played[0] != base  # it explored in the wind
    np.testing.assert_array_equal(played[-SILENT:], base)
    assert not np.any(env.M)
    env.save(tmp_path / "M.npz")
    other.load(tmp_path / "M.npz")
    other.unwrapped.episode = Pushed.blows  # type: ignore[attr-defined]
    assert other.decisions == env.decisions
    np.testing.assert_array_equal(returns(other, 2)[:1], base)


# Signals that are made of values.


@pytest.mark.parametrize("signal", ["pd1", "pd2"])
def test_signals_of_values_begin_with_little_noise(signal: str) -> None:
    base = ww.policies.load("Pendulum-v1")
    env = ww.RobustWrapper(gym.make("Pendulum-v1"), signal, learner="advantage", model=base)
    least = S.care_of_noise if signal == "pd1" else S.care
    assert trials_of(env).care == least
    engine: Any = env._runtime.learner
    engine = engine.engine
    full = ww.mf_gpc(1, 1, gradient="advantage").hyper
    for _ in range(2):
        assert engine.algorithm.hyper["sigma"] == pytest.approx(least * full["sigma"])
        env.reset_adaptation()
    env.M = 0.3 * np.ones_like(env.M)  # what was set is not cut to a small ball
    x, _ = env.reset()
    for _ in range(3):
        x = env.step(base.predict(x, deterministic=True)[0])[0]
    assert np.abs(env.M).max() > 0.29


def test_values_do_no_harm_without_a_wind() -> None:
    """Their error can be told from its past, and noise of the usual size ruined the swing-up."""
    base, played = ww.policies.load("Pendulum-v1"), []
    for adapts in (False, True):
        env: gym.Env = gym.make("Pendulum-v1")
        if adapts:
            env = ww.RobustWrapper(env, "pd1", model=base, learner="advantage", lam=0.9)
        total = 0.0
        for number in range(8):
            x, _ = env.reset(seed=number)
            over = False
            while not over:
                x, reward, _, over, _ = env.step(base.predict(x, deterministic=True)[0])
                total += float(reward)
        played.append(total / 8)
    assert played[0] != played[1]  # PD1 always explores
    assert played[1] == pytest.approx(played[0], rel=0.01)
