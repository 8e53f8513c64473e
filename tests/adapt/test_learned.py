"""Matching with a simulator that was learned: it is refitted, and real returns judge."""

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt.corrections import Choice, Matching

from .worlds import assert_same, drive

BASE = ww.policies.load("Pendulum-v1")
SINE = "sine:amp=0.25,period=63,phase=random"
SMALL: dict[str, Any] = {"steps": 3_000, "updates": 2_500, "widths": (32, 32), "members": 2}


@pytest.fixture(scope="module")
def learned() -> Any:
    return ww.fit_simulator("Pendulum-v1", BASE, **SMALL)


@pytest.fixture(scope="module")
def ill() -> Any:
    with pytest.warns(UserWarning, match=r"ill-fitted: .* misses \d+ % of the motion"):
        return ww.fit_simulator("Pendulum-v1", data=noise(), steps=200, updates=250, widths=(4,))


def noise(n: int = 200) -> Any:
    """Steps that follow from nothing."""
    rng = np.random.default_rng(0)
    x, x_next = rng.standard_normal((2, n, 3))
    return x, rng.uniform(-2, 2, (n, 1)), rng.standard_normal(n), x_next, np.zeros(n, dtype=bool)


def world(wind: str | None = SINE) -> gym.Env:
    env: gym.Env = gym.make("Pendulum-v1")
    return env if wind is None else ww.envs.Disturbed(env, wind, "qvel")


def made(simulator: Any, wind: str | None = SINE, **options: Any) -> ww.RobustWrapper:
    return ww.RobustWrapper(world(wind), **{"model": BASE, "simulator": simulator, **options})


def policy(x: np.ndarray) -> Any:
    return BASE.predict(x, deterministic=True)[0]


def ran(env: gym.Env, steps: int, seed: int | None = 0) -> list[Any]:
    x, _ = env.reset(seed=seed)
    return drive(env, policy, steps, x)[0]


def returns(env: gym.Env, seed: int, episodes: int) -> list[float]:
    totals = []
    for k in range(episodes):
        x, _ = env.reset(seed=seed + k)
        over, total = False, 0.0
        while not over:
            x, reward, terminated, truncated, _ = env.step(policy(x))
            total, over = total + float(reward), terminated or truncated
        totals.append(total)
    return totals


@pytest.mark.parametrize("wind", [None, "uniform:bound=0.1"], ids=["calm", "noise"])
def test_where_nothing_changed_the_base_acts_to_the_bit(learned: Any, wind: str | None) -> None:
    env = made(learned, wind)
    assert (env.signal, env.learner) == ("pd3", "auto")
    for seed in range(5):
        x, _ = env.reset(seed=seed)
        for _ in range(200):
            mine = policy(x)
            x, *_, info = env.step(mine)
            assert np.asarray(info["windward"]["action"]).tobytes() == mine.tobytes()
    assert env.decisions == []
    assert not env.faults


def test_a_wind_in_a_coordinate_is_found_and_met(learned: Any) -> None:
    """On held-out seeds, from the second episode on."""
    env = made(learned)
    adapted, base = returns(env, 5000, 8), returns(world(), 5000, 8)
    assert adapted[0] == base[0]
    assert isinstance(env.correction, Matching)
    wind = env.diagnosis.wind  # type: ignore[union-attr]
    assert wind.place == "coordinates:2"
    assert wind.period == pytest.approx(63, rel=0.03)
    assert wind.size == pytest.approx(0.25, rel=0.05)
    assert "real returns judge it" in env.decisions[0]
    assert np.mean(adapted[1:]) > 0.65 * np.mean(base[1:])  # both are negative
    assert not env.faults


def test_actions_stay_inside_the_space_and_the_same_seed_gives_the_same(learned: Any) -> None:
    told = []
    for _ in range(2):
        env = made(learned, seed=2)
        told.append(ran(env, 330))
        for each in told[-1]:
            assert env.action_space.contains(each["action"])
            assert each["w_hat"].shape == (3,)
    assert_same(*told)
    assert any(each["correction"].any() for each in told[0])


def test_it_goes_on_from_a_file_and_from_a_copy(learned: Any, tmp_path: Path) -> None:
    env = made(learned, seed=1)
    ran(env, 450)
    assert env.correction is not None
    env.save(tmp_path / "state.npz")
    twin = made(learned, seed=1)
    twin.load(tmp_path / "state.npz")
    assert env.decisions == twin.decisions
    copied = copy.deepcopy(env)
    told = [ran(each, 450, 7) for each in (env, twin, copied)]
    assert_same(told[0], told[1])
    assert_same(told[0], told[2])


def test_what_does_harm_is_withdrawn_by_real_returns(learned: Any) -> None:
    env = made(learned)
    ran(env, 250)
    supervisor = env._runtime.learner.supervisor
    assert env.correction is not None
    supervisor.belief.returns.base[:] = [0.0, -1.0, 0.0]
    ran(env, 800, None)
    assert env.correction is None
    assert "withdrawn" in " ".join(env.decisions)
    x, _ = env.reset(seed=3)
    for _ in range(100):
        mine = policy(x)
        x, *_, info = env.step(mine)
        np.testing.assert_array_equal(info["windward"]["action"], mine)


def test_other_forms_take_it_too(learned: Any) -> None:
    vector = gym.vector.SyncVectorEnv([world, world])
    robust = ww.RobustVectorWrapper(vector, model=BASE, simulator=learned)
    x, _ = robust.reset(seed=0)
    for _ in range(420):
        x, *_, info = robust.step(BASE.predict(x, deterministic=True)[0])
    assert np.shape(info["windward"]["w_hat"]) == (2, 3)
    assert robust.correction is not None
    mine = ww.robustify(BASE, "Pendulum-v1", simulator=learned)
    env = world()
    for seed in range(3):
        x, _ = env.reset(seed=seed)
        over = False
        while not over:
            action, _ = mine.predict(x, deterministic=True)
            x, reward, terminated, truncated, _ = env.step(action)
            mine.observe(reward, x, terminated, truncated)
            over = terminated or truncated
    assert mine.correction is not None
    assert not mine.faults
    assert not robust.faults


def test_numbered_actions() -> None:
    base = ww.policies.load("CartPole-v1")
    sim = ww.fit_simulator("CartPole-v1", base, **SMALL)
    env = ww.envs.Disturbed(gym.make("CartPole-v1"), "sine:amp=8,period=80,phase=random",
                            "force:cart")  # fmt: skip
    robust = ww.RobustWrapper(env, model=base, simulator=sim)
    totals = []
    for seed in (5000, 5001, 5002, 5003):
        x, _ = robust.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            x, reward, terminated, truncated, _ = robust.step(base.predict(x)[0])
            total, over = total + float(reward), terminated or truncated
        totals.append(total)
    assert isinstance(robust.correction, Choice)
    assert totals[0] < 300
    assert min(totals[-2:]) == 500
    assert not robust.faults


def test_what_does_not_fit_is_refused(learned: Any, ill: Any) -> None:
    with pytest.raises(ValueError, match="say signal='pd3' and simulator=it"):
        ww.PD3(learned)
    with pytest.raises(ValueError, match="the simulator was learned for"):
        ww.RobustWrapper(gym.make("InvertedPendulum-v5"), "pd3", simulator=learned)
    with pytest.raises(ValueError, match=r"what windward\.fit_simulator gives; got 'mine'"):
        ww.RobustWrapper(world(), "pd3", simulator="mine")
    with pytest.raises(ValueError, match=r"'matching' cannot be had: the learned .* misses \d+ %"):
        made(ill, learner="matching")
    with pytest.raises(ValueError, match=r"'search' cannot be had: .*not true enough for a search"):
        made(learned, learner="search")
    with pytest.raises(ValueError, match=r"'matching' cannot be had: .*pass model="):
        made(learned, model=None, learner="matching")


@pytest.mark.slow
def test_a_robot_that_weighs_more() -> None:
    """Its falls are few steps: the map is found from some of them, and kept as long as it pays."""
    base = ww.policies.load("Hopper-v5")
    sim = ww.fit_simulator("Hopper-v5", base, steps=10_000)
    env = ww.RobustWrapper(
        ww.envs.Changed(gym.make("Hopper-v5"), {"mass": 1.1}), model=base, simulator=sim
    )
    totals = []
    for seed in range(5200, 5207):
        x, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            x, reward, terminated, truncated, _ = env.step(base.predict(x, deterministic=True)[0])
            total, over = total + float(reward), terminated or truncated
        totals.append(total)
    assert env.correction is not None
    assert np.mean(totals[-3:]) > 1.3 * np.mean(totals[:2])
