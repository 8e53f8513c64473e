"""Linear systems as environments: against `windward.linear`, and in `headroom`."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from rich.console import Console

import windward as ww
from windward.simulators.linear import LinearEnv
from windward.studies.evaluation.episodes import Actor, play
from windward.studies.evaluation.loading import load_model
from windward.studies.headroom import headroom as study
from windward.studies.headroom import linear_env
from windward.studies.headroom.cases import EVERY, NOTHING
from windward.studies.headroom.methods import METHODS

CASES = [name for name in EVERY if name.startswith("linear-")]


@pytest.mark.parametrize("size", linear_env.SIZES)
def test_is_the_system_that_it_is_named_after(size: tuple[int, int]) -> None:
    env, policy = gym.make(linear_env.env_id(*size)), linear_env.Lqr(*size)
    w = 0.1 * np.random.default_rng(0).normal(size=(200, size[0]))
    pushed = ww.envs.Disturbed(env, ww.envs.Recorded(w), "state")
    simulator = ww.simulator(pushed, noisy=False)
    x, _ = pushed.reset(seed=3)
    start, costs, gaps, steps, ended = x, [], [], 0, False
    while not ended:
        action = policy.predict(x)[0]
        predicted = simulator.predict(action)
        x, reward, terminated, ended, _ = pushed.step(action)
        gaps.append(simulator.state() - predicted)
        costs.append(-reward)
        assert not terminated
        steps += 1
    assert steps == linear_env.STEPS
    p = linear_env.problem(*size, linear_env.SYSTEM)
    run = ww.linear.simulate(p.system, ww.base_only(*size[::-1]), w, x0=start, **p.settings)
    np.testing.assert_allclose(costs, run.cost, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(gaps, w, atol=1e-12)  # PD3 is the wind


@pytest.mark.filterwarnings("ignore:.*WARN:UserWarning")  # it would like bounds of ±1
def test_keeps_to_the_rules_of_gymnasium() -> None:
    env = gym.make(linear_env.env_id(2, 1))
    check_env(env.unwrapped, skip_render_check=True)
    with pytest.raises(gym.error.ResetNeeded):
        LinearEnv(np.eye(2), np.ones((2, 1)), np.eye(2), np.eye(1), 1.0).step([0.0])
    with pytest.raises(ValueError, match="Q"):
        LinearEnv(np.eye(2), np.ones((2, 1)), np.eye(3), np.eye(1), 1.0)


def test_actions_are_cut_off_and_half_of_them_does() -> None:
    env = LinearEnv(0.5 * np.eye(1), np.eye(1), np.eye(1), np.eye(1), 2.0)
    env.reset(seed=0)
    env.state = np.array([4.0])
    x, reward, *_ = env.step(np.array([-9.0]))
    assert (x.item(), reward) == (0.0, -(16 + 4))
    for size in linear_env.SIZES:
        bounded, policy = gym.make(linear_env.env_id(*size)), linear_env.Lqr(*size)
        actor, shares = Actor(policy, bounded.action_space), []
        for seed in range(20):
            x, _ = bounded.reset(seed=seed)
            shares.append(np.abs(actor(x) / bounded.action_space.high).max())
        assert 0.1 < max(shares) < 0.65


def test_what_a_simulator_knows() -> None:
    env = gym.make(linear_env.env_id(2, 1))
    env.reset(seed=0)
    simulator = ww.simulator(env)
    x, u = np.random.default_rng(0).normal(size=(2, 5, 2))
    x_next, cost, terminated = simulator.step(x, u[:, :1])
    assert not terminated.any()
    base = env.unwrapped
    assert isinstance(base, LinearEnv)
    for i in range(5):
        base.state = x[i].copy()
        seen, reward, *_ = env.step(u[i, :1])
        np.testing.assert_allclose(seen, x_next[i], atol=1e-12)
        assert -reward == pytest.approx(cost[i])
    np.testing.assert_array_equal(simulator.observation(x), x)
    np.testing.assert_array_equal(simulator.state_of(x), x)


@pytest.mark.parametrize("name", CASES)
def test_starts_and_winds_are_the_same_for_all_methods(name: str) -> None:
    case = EVERY[name]
    model = load_model(case.policy, case.env)
    totals = [
        [play(env, Actor(model, env.action_space), 100, k).total for k in range(2)]
        for env in (case.make(max_steps=30), case.make(max_steps=30))
    ]
    assert totals[0] == totals[1]
    assert totals[0][0] != totals[0][1]


def test_nothing_to_gain_is_judged_with_the_limits() -> None:
    for name in CASES:
        assert EVERY[name].gains == name.endswith("sine")
    assert all(NOTHING[name].limit == 0.05 for name in CASES if name in NOTHING)
    unfit = {name for name in METHODS if not METHODS[name].suits(EVERY[CASES[0]])}
    values, physics = {"critic", "pd1", "advantage"}, {"heavy", "light", "learned"}
    assert unfit == values | physics  # there are none of the one and no masses in the other


def test_methods_with_and_without_a_grid_run(tmp_path: Path, console: Console) -> None:
    settings = study.Headroom(
        cases=("linear-2x1-noise",), methods=("counterfactual", "response", "l1"), seeds=1,
        episodes=1, last=1, max_steps=12, runs=tmp_path / "runs", out=tmp_path / "out",
    )  # fmt: skip
    summary = study.run(settings, console)
    found = summary["nothing"]["linear-2x1-noise"]
    assert set(found) == {"base", "counterfactual", "response", "l1"}
    assert found["counterfactual"]["mean"] == 0
    assert summary["tuned"]["linear-2x1-noise"].keys() == {"l1"}
