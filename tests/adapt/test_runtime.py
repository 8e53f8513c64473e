"""Corrections in a diagnosed world through the forms: idle, acting, changing worlds, bad input."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt.corrections import Matching
from windward.adapt.judges import JudgeSettings
from windward.adapt.supervisor import SupervisorSettings

from .worlds import assert_same

POLE, HOPPER, SWING = "InvertedPendulum-v5", "Hopper-v5", "Pendulum-v1"
POLICY = {name: ww.policies.load(name) for name in (POLE, HOPPER, SWING)}
WIND = "sine:amp=1.5,period=30"
SOON = JudgeSettings(rounds=((4, 0.8),))  # fewer episodes of a verdict
QUIET = SupervisorSettings(ready=10**9)  # no long searches


def act(name: str, x: np.ndarray) -> np.ndarray:
    return np.asarray(POLICY[name].predict(x)[0])


def pushed(steps: int | None = None) -> gym.Env:
    """A pendulum in a strong wind on its motor."""
    return ww.envs.Disturbed(gym.make(SWING, max_episode_steps=steps), WIND, channel="action")


def wrapped(env: gym.Env, name: str = SWING, **options: Any) -> ww.RobustWrapper:
    given = {"model": POLICY[name], "learner": "matching", **options}
    return ww.RobustWrapper(env, "pd3", **given)


def run(env: Any, steps: int, name: str = SWING, seed: int = 100) -> list[dict[str, Any]]:
    """What was told of steps, with observations and rewards; episodes follow each other."""
    x, _ = env.reset(seed=seed)
    told = []
    for _ in range(steps):
        x, reward, terminated, truncated, info = env.step(act(name, x))
        told.append({**info.get("windward", {}), "x": x, "reward": reward})
        if terminated or truncated:
            x, _ = env.reset()
    return told


@contextmanager
def faults() -> Iterator[None]:
    """Faults are expected here, other warnings are not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ww.Fault)
        yield


class Kept(gym.Wrapper):
    """Remembers the very actions that it was given."""

    see_through = True

    def step(self, action: Any) -> Any:
        self.last = action
        return self.env.step(action)


# Nothing changed.


@pytest.mark.parametrize("name", [POLE, SWING, HOPPER])
@pytest.mark.parametrize("learner", ["auto", "matching"])
def test_where_nothing_changed_it_is_not_there(name: str, learner: str) -> None:
    inner, alone = Kept(gym.make(name)), gym.make(name)
    env = wrapped(inner, name, learner=learner)
    x, _ = env.reset(seed=100)
    y, _ = alone.reset(seed=100)
    for _ in range(300):
        mine = act(name, x)
        x, reward, terminated, truncated, info = env.step(mine)
        assert inner.last is mine
        y, other, *_ = alone.step(act(name, y))
        np.testing.assert_array_equal(x, y)
        assert reward == other
        assert not info["windward"]["correction"].any()
        assert info["windward"]["resting"]
        if terminated or truncated:
            x, _ = env.reset()
            y, _ = alone.reset()
    assert env.decisions == []
    assert (env.diagnosis, env.correction, env.phase) == (None, None, "observe")
    assert not env.faults
    assert not env.clipped


def test_without_a_change_all_rows_of_a_vector_are_the_agents_own() -> None:
    venv = gym.vector.SyncVectorEnv([lambda: gym.make(SWING, max_episode_steps=40)] * 3)
    robust = ww.RobustVectorWrapper(venv, "pd3", model=POLICY[SWING], learner="matching")
    x, _ = robust.reset(seed=0)
    for _ in range(150):
        mine = act(SWING, x)
        x, _, _, _, info = robust.step(mine)
        np.testing.assert_array_equal(info["windward"]["action"], mine)
    assert robust.decisions == []
    # The step that a row spends on its reset is none; all others are recorded, episode by episode.
    assert robust._runtime.learner.memory.steps == 3 * 150 - 3 * 3


# Something did.


def test_a_heavy_hopper_is_diagnosed_at_step_50_and_matched() -> None:
    env = wrapped(ww.envs.Changed(gym.make(HOPPER), {"mass": 1.1}), HOPPER, judge=SOON)
    told = run(env, 70, HOPPER)
    assert env.diagnosis is not None
    assert env.diagnosis.values == {"mass": pytest.approx(1.1, rel=1e-3)}
    assert isinstance(env.correction, Matching)
    (said,) = env.decisions
    assert said.startswith("step 50: mass x1.1")
    assert "matching wins" in said
    assert said.endswith("acting")
    acting = [bool(each["correction"].any()) for each in told]
    assert acting == [False] * 50 + [True] * 20
    assert [bool(each["decided"]) for each in told].index(True) == 49
    assert all(np.abs(each["action"]).max() <= 1.0 for each in told)
    assert not env.faults


@pytest.mark.slow
def test_a_heavy_hopper_walks_to_the_end_of_its_first_episode() -> None:
    totals = []
    for form in (lambda env: env, lambda env: wrapped(env, HOPPER)):
        env = form(ww.envs.Changed(gym.make(HOPPER), {"mass": 1.1}))
        x, _ = env.reset(seed=11)
        total, over = 0.0, False
        while not over:
            x, reward, terminated, truncated, _ = env.step(act(HOPPER, x))
            total, over = total + float(reward), terminated or truncated
        totals.append(total)
    assert totals[0] < 2200
    assert totals[1] > 3000


def total(told: list[dict[str, Any]]) -> float:
    return sum(float(each["reward"]) for each in told)


def test_a_wind_is_named_and_matched() -> None:
    alone, env = run(pushed(), 800), wrapped(pushed())
    told = run(env, 800)
    assert total(told) > 0.9 * total(alone)
    assert env.diagnosis is not None
    assert env.diagnosis.wind is not None
    assert env.diagnosis.wind.place == "action"
    assert env.diagnosis.wind.period == pytest.approx(30, rel=0.02)
    assert not env.faults


def test_same_seed_same_actions() -> None:
    one, two, other = (wrapped(pushed(), learner="matching", seed=seed) for seed in (3, 3, 4))
    told = run(one, 120)
    assert_same(told, run(two, 120))
    assert one.decisions == two.decisions
    assert any(each["correction"].any() for each in told)
    run(other, 60)
    assert other.correction is not None


def test_forms_have_the_same_actions_to_the_bit() -> None:
    wrapper, told, acted = wrapped(pushed(80)), [], 0
    x, _ = wrapper.reset(seed=7)
    for _ in range(140):
        x, _, terminated, truncated, info = wrapper.step(act(SWING, x))
        told.append(info["windward"]["action"])
        acted += bool(info["windward"]["correction"].any())
        if terminated or truncated:
            x, _ = wrapper.reset()
    world = pushed(80)
    mine = ww.robustify(POLICY[SWING], world, "pd3", live=True, learner="matching")
    x, _ = world.reset(seed=7)
    for i, executed in enumerate(told):
        action, _ = mine.predict(x, deterministic=True)
        np.testing.assert_array_equal(action, executed, err_msg=str(i))
        x, reward, terminated, truncated, _ = world.step(action)
        mine.observe(reward, x, terminated, truncated)
        if terminated or truncated:
            x, _ = world.reset()
    assert mine.decisions == wrapper.decisions
    assert acted
    assert not mine.faults


def test_from_observations_alone() -> None:
    world = ww.envs.Changed(gym.make(HOPPER), {"mass": 1.1})
    mine = ww.robustify(POLICY[HOPPER], HOPPER, "pd3", learner="matching", judge=SOON)
    x, _ = world.reset(seed=7)
    for _ in range(70):
        action, _ = mine.predict(x, deterministic=True)
        x, reward, terminated, truncated, _ = world.step(action)
        mine.observe(reward, x, terminated, truncated)
    assert mine.diagnosis is not None
    assert mine.diagnosis.values == {"mass": pytest.approx(1.1, rel=1e-3)}
    assert isinstance(mine.correction, Matching)
    assert mine.last is not None
    assert mine.last.correction.any()
    assert not mine.faults


def test_without_being_told_of_outcomes_it_still_finds_and_acts() -> None:
    """predict alone, as a server whose clients send no rewards."""
    world = ww.envs.Changed(gym.make(POLE), {"gain": 0.6})
    mine = ww.robustify(POLICY[POLE], POLE, "pd3", learner="matching")
    x, _ = world.reset(seed=7)
    for i in range(70):
        action, _ = mine.predict(x, episode_start=[i == 0])
        x, *_ = world.step(action)
    assert mine.decisions
    assert mine.decisions[0].startswith("step 50: gain x0.6")
    assert not mine.faults


def test_several_rows_share_what_is_known() -> None:
    venv = gym.vector.SyncVectorEnv([lambda: pushed(50)] * 4)
    robust = ww.RobustVectorWrapper(venv, "pd3", model=POLICY[SWING], learner="matching")
    x, _ = robust.reset(seed=7)
    for _ in range(120):
        x, *_, info = robust.step(act(SWING, x))
        assert info["windward"]["action"].shape == (4, 1)
    assert robust.correction is not None
    assert int(robust.decisions[0].split(":")[0].split()[1]) == 13  # four steps at a time
    assert info["windward"]["correction"].any(axis=1).all()
    assert not robust.faults


# The world changes amid an episode.


def switched(*during: tuple[int, int], gain: float) -> gym.Env:
    """A pole whose motor has another gain in some steps."""

    def when(t: int, episode: int) -> float:
        return float(any(first <= t < last for first, last in during))

    push = ww.envs.Bias(gain - 1.0)
    return ww.envs.Disturbed(gym.make(POLE), push, channel="gain", when=when)


def swung(env: Any, steps: int) -> list[dict[str, Any]]:
    """An agent that swings a little all the time: at rest nothing would show."""
    x, _ = env.reset(seed=100)
    told = []
    for t in range(steps):
        action = act(POLE, x) + np.float32(0.5 * np.sin(t / 3))
        x, *_, info = env.step(np.clip(action, -3, 3).astype(np.float32))
        told.append(info["windward"])
    return told


def steps_of(decisions: list[str]) -> list[int]:
    return [int(each.split(":")[0].removeprefix("step ")) for each in decisions]


@pytest.mark.parametrize("gain", [0.6, 1.5])
def test_a_world_that_changes_and_changes_back_is_noticed_and_named(gain: float) -> None:
    env = wrapped(switched((150, 300), gain=gain), POLE)
    told = swung(env, 400)
    noticed, named, back = env.decisions
    assert "the world changed" in noticed
    assert f"gain x{gain}" in named
    assert "as trained" in back
    at = steps_of(env.decisions)
    assert 150 < at[0] <= 160
    assert at[1] <= 190
    assert 300 < at[2] <= 310
    assert env.diagnosis is None
    assert all(each["resting"] for each in told[at[2] :])
    assert not env.faults


def test_a_world_that_is_known_is_not_diagnosed_again() -> None:
    env = wrapped(switched((150, 250), (330, 1000), gain=0.6), POLE)
    swung(env, 400)
    assert sum("gain x0.6" in each for each in env.decisions) == 1
    assert "as trained" in env.decisions[-2]
    assert "one that is known" in env.decisions[-1]
    assert 330 < steps_of(env.decisions)[-1] <= 340
    assert env.diagnosis is not None
    assert env.diagnosis.values == {"gain": pytest.approx(0.6, rel=1e-3)}


# Frozen, forgotten.


def test_frozen_it_acts_as_it_is_and_learns_nothing() -> None:
    env = wrapped(pushed(), supervisor=QUIET)
    run(env, 80)
    known, said, steps = env.correction, env.decisions, env._runtime.learner.memory.steps
    assert known is not None
    env.freeze()
    assert env.frozen
    told = run(env, 150, seed=101)
    assert env.correction is known
    assert env.decisions == said
    assert env._runtime.learner.memory.steps == steps
    assert not any(each["resting"] for each in told)
    env.unfreeze()
    run(env, 30, seed=102)
    assert env._runtime.learner.memory.steps == steps + 30


def test_frozen_before_anything_was_found_nothing_ever_acts() -> None:
    env = wrapped(pushed())
    env.freeze()
    assert not any(each["correction"].any() for each in run(env, 150))
    assert env.decisions == []


def test_forgotten_it_is_as_when_it_was_made() -> None:
    env, fresh = wrapped(pushed()), wrapped(pushed())
    run(env, 120)
    env.reset_adaptation()
    assert (env.decisions, env.diagnosis, env.phase) == ([], None, "observe")
    assert_same(run(env, 100), run(fresh, 100))


# Bad input.


HOSTILE = (np.nan, np.inf, -np.inf, 1e30, -1e30, 1e300)


def spoilt(rng: np.random.Generator, array: Any, share: float = 0.15) -> np.ndarray:
    """Now and then numbers that are none, or far too large, or of another time."""
    found = np.array(array, dtype=np.float64)
    if rng.random() < share:
        found.flat[rng.integers(found.size)] = HOSTILE[rng.integers(len(HOSTILE))]
    elif rng.random() < share / 3:
        found = rng.normal(size=found.shape) * 10.0 ** rng.uniform(-2, 3)
    return found


class Broken(gym.Wrapper):
    """An environment that shows and pays what it likes, and keeps what was executed."""

    def __init__(self, env: gym.Env, seed: int) -> None:
        super().__init__(env)
        self.rng, self.executed = np.random.default_rng(seed), []  # type: ignore[var-annotated]

    def step(self, action: Any) -> Any:
        self.executed.append(np.array(action))
        x, reward, terminated, truncated, info = self.env.step(action)
        reward = float(spoilt(self.rng, [reward])[0])
        return spoilt(self.rng, x), reward, terminated, truncated, info


def hostile(seed: int, steps: int) -> tuple[list[np.ndarray], Any]:
    """Through observations alone, so that what is seen is what states are taken from."""
    rng = np.random.default_rng(seed)
    world, mine = Broken(pushed(60), seed), None

    class Base:
        def predict(self, observation: Any, deterministic: bool = True) -> Any:
            with np.errstate(all="ignore"):  # of what it is shown
                action = act(SWING, np.asarray(observation, dtype=np.float64))
            return (spoilt(rng, action) if live else action), None

    live = False
    mine = ww.robustify(Base(), SWING, "pd3", learner="matching")
    x, _ = world.reset(seed=seed)
    start = True
    for _ in range(steps):
        live = True
        action, _ = mine.predict(x, episode_start=[start])
        live = False
        assert np.isfinite(action).all()
        assert world.action_space.contains(np.asarray(action, dtype=np.float32))
        x, reward, terminated, truncated, _ = world.step(action)
        mine.observe(reward, x, terminated, truncated)
        start = bool(terminated or truncated)
        if start:
            x, _ = world.reset()
    return world.executed, mine


def test_hostile_input_never_reaches_the_actuator() -> None:
    with faults():
        executed, mine = hostile(0, 2000)
    assert len(executed) == 2000
    found = mine.faults
    assert min(found["observation"], found["reward"], found["action"]) > 50


def test_hostile_input_where_something_acts() -> None:
    env = wrapped(pushed(), supervisor=QUIET)
    run(env, 80)
    assert env.correction is not None
    rng, space = np.random.default_rng(1), env.action_space
    inner = env.env.step
    seen: list[np.ndarray] = []

    def step(action: Any) -> Any:
        seen.append(np.array(action))
        x, reward, *others = inner(action)
        return spoilt(rng, x), float(spoilt(rng, [reward])[0]), *others

    env.env.step = step  # type: ignore[method-assign]
    x, _ = env.reset(seed=0)
    with faults():
        for _ in range(300):
            with np.errstate(all="ignore"):
                base = spoilt(rng, act(SWING, np.nan_to_num(x)), 0.3).astype(np.float32)
            x, _, terminated, _, info = env.step(base)
            executed = info["windward"]["action"]
            assert np.isfinite(executed).all()
            assert space.contains(executed.astype(np.float32))
            np.testing.assert_array_equal(executed, seen[-1])
            if terminated:
                x, _ = env.reset()
    assert min(env.faults[each] for each in ("observation", "reward", "action")) > 10


@pytest.mark.parametrize("what", ["advance", "observation", "state"])
def test_a_simulator_that_raises(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The base action is executed alone, and it is counted at every step that asks for it."""
    env = wrapped(pushed(), supervisor=QUIET)
    run(env, 80)
    assert env.correction is not None
    twin = env._runtime.learner.supervisor.belief.twin
    target = {"advance": twin, "observation": twin.nominal, "state": twin.nominal}[what]

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of order")

    x, _ = env.reset(seed=5)
    monkeypatch.setattr(target, what, fail)
    with faults():
        for _ in range(30):
            mine = act(SWING, x)
            x, _, terminated, _, info = env.step(mine)
            if what != "observation":  # matching does not observe
                np.testing.assert_array_equal(info["windward"]["action"], mine)
            if terminated:
                x, _ = env.reset()
    assert (env.faults.get("signal", 0) >= 15) == (what != "observation")
    monkeypatch.undo()
    told = run(env, 20, seed=6)
    assert not any(each["resting"] for each in told[2:])


def test_a_model_that_raises_in_simulated_episodes() -> None:
    class Shy:
        """Not there when it is asked again."""

        asked = 0

        def predict(self, observation: Any, deterministic: bool = True) -> Any:
            self.asked += 1
            if self.asked > 1:
                raise RuntimeError("not now")
            return np.zeros(1, np.float32), None

    env = wrapped(pushed(), model=Shy())
    with faults():
        told = run(env, 120)
    assert not any(each["correction"].any() for each in told)
    assert env.faults["signal"]


# What cannot be had.


REFUSED = [
    ({"model": None}, r"learner 'matching' cannot be had.*pass model="),
    ({"simulator": {"noisy": True}}, r"learner 'matching' cannot be had.*noisy=False"),
    ({"model": object()}, r"learner 'matching' cannot be had.*object, which has no predict"),
    ({"sigma": 0.1}, r"sigma= means nothing.*matching, search.*learner='mf-gpc'"),
    ({"metric": 3}, r"metric must be a windward.adapt.MetricSettings; got 3"),
    ({"learner": "mathcing"}, r"learner must be one of 'auto', 'matching', 'search'.*'mf-gpc'"),
    ({"learner": "reinforce"}, r"learner must be one of .*'mf-gpc', .*got 'reinforce'"),
    ({"learner": 3}, r"learner must be a name; got 3"),
]


@pytest.mark.parametrize(("options", "match"), REFUSED)
def test_what_cannot_be_had_is_said_with_the_remedy(options: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        wrapped(gym.make(POLE), POLE, **options)


def test_other_signals_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'matching' cannot be had.*simulator of the nominal"):
        ww.RobustWrapper(gym.make(POLE), "pd2", model=POLICY[POLE], learner="matching")


def test_there_is_no_M() -> None:
    env = wrapped(gym.make(POLE), POLE)
    assert not env.has_M
    for ask in (lambda: env.M, lambda: setattr(env, "M", 0), env.update_M):
        with pytest.raises(ValueError, match=r"mf-gpc|every_episodes"):
            ask()


def test_the_old_name_warns_with_the_new_one() -> None:
    olds = ("reinforce", "mf-gpc"), ("counterfactual", "auto"), ("residual", "residual-feedback")
    for old, new in olds:
        with pytest.warns(FutureWarning, match=f"gradient='{old}' is now learner='{new}'"):
            env = wrapped(gym.make(POLE), POLE, learner="auto", gradient=old)
        assert env.learner == new
    with pytest.raises(ValueError, match="old name of learner="):
        wrapped(gym.make(POLE), POLE, learner="mf-gpc", gradient="reinforce")
    with pytest.warns(FutureWarning, match="learner='replay' is gone"):
        assert wrapped(gym.make(POLE), POLE, learner="replay").learner == "auto"


def test_a_correction_that_is_late_leaves_the_base_action() -> None:
    base = ww.policies.load("Pendulum-v1")
    env = ww.envs.Disturbed(gym.make("Pendulum-v1"), "bias:value=0.2", "qvel")
    policy = ww.robustify(base, env, "pd3", live=True, learner="matching", deadline=10.0, seed=1)
    x, _ = env.reset(seed=5)
    for _ in range(70):
        action, _ = policy.predict(x, deterministic=True)
        x, reward, terminated, truncated, _ = env.step(action)
        policy.observe(reward, x, terminated, truncated)
    assert policy.correction is not None
    assert not policy.faults
    policy._runtime._timely = lambda work: (False, None)  # as a deadline says of late work
    own = base.predict(x, deterministic=True)[0]
    with pytest.warns(ww.Fault, match="late"):
        action, _ = policy.predict(x, deterministic=True)
    np.testing.assert_array_equal(action, own)
    assert policy.faults["late"] == 1
