"""The M that cancels ŵ: by hand on a linear system, and as a candidate of replays."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt.amended import Amended
from windward.adapt.cancelling import cancelling, responses
from windward.adapt.record import Visit
from windward.adapt.replayed import Boxed, Drawn
from windward.simulators.linear import LinearEnv

A = np.array([[0.9, 0.2], [0.0, 0.8]])
B = np.array([[0.0], [0.5]])
HALF = 2.0
H = 3


def world(columns: np.ndarray = B) -> tuple[Amended, Boxed]:
    """A linear system under a policy that does nothing."""
    d_u = columns.shape[1]
    env = LinearEnv(A, columns, np.eye(2), np.eye(d_u), HALF)
    env.reset(seed=0)
    space = env.action_space
    assert isinstance(space, gym.spaces.Box)
    policy = Boxed(space, lambda x: np.zeros((len(x), d_u)))
    return Amended(ww.simulator(env), d_u, policy.coded), policy


def visits(wind: np.ndarray) -> list[Visit]:
    """A record of a wind (T, 2), at any states."""
    rng, found = np.random.default_rng(0), []
    for t in range(H, len(wind)):
        window = wind[t - H : t][::-1]
        found.append(Visit(rng.normal(size=2), window, wind[t], np.zeros(3), np.zeros((H, 3))))
    return found


def test_responses_are_the_input_map() -> None:
    simulator, policy = world()
    x = np.random.default_rng(0).normal(size=(5, 2))
    np.testing.assert_allclose(
        responses(simulator, policy, x), np.tile(HALF * B, (5, 1, 1)), atol=1e-6
    )


def test_a_wind_that_the_actuator_can_reach_is_cancelled() -> None:
    simulator, policy = world()
    wind = np.zeros((400, 2))
    wind[:, 1] = 0.3 * np.sin(0.2 * np.arange(400))
    per_size = np.array([0.0, 1 / 0.3])
    M = cancelling(simulator, policy, visits(wind), per_size, H)
    assert M is not None
    assert not M[..., 0].any()  # which does not move
    added = [float(np.einsum("hud,hd->u", M * per_size, each.window)[0]) for each in visits(wind)]
    left = [HALF * B[1, 0] * u + each.w_hat[1] for u, each in zip(added, visits(wind), strict=True)]
    assert np.std(left) < 0.05 * 0.3
    # Of one lag it is the last value with the other sign, as well as that tells the next one.
    last = cancelling(simulator, policy, visits(wind), per_size, 1)
    assert last is not None
    assert not last[1:].any()
    np.testing.assert_allclose(
        last[0, 0, 1] * per_size[1], -np.cos(0.2) / (HALF * B[1, 0]), rtol=0.02
    )


def test_a_wind_that_the_actuator_cannot_reach_has_none() -> None:
    simulator, policy = world(np.zeros((2, 1)))
    wind = np.random.default_rng(0).normal(size=(50, 2))
    assert cancelling(simulator, policy, visits(wind), np.ones(2), H) is None
    assert cancelling(simulator, policy, [], np.ones(2), H) is None
    assert cancelling(simulator, policy, visits(wind), np.zeros(2), H) is None


def test_states_at_which_the_physics_breaks_down_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulator, policy = world()
    recorded = visits(np.random.default_rng(0).normal(size=(60, 2)))
    whole = cancelling(simulator, policy, [*recorded[:20], *recorded[21:]], np.ones(2), 1)
    step = simulator.step

    def broken(x: np.ndarray, u: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x_next, cost, ended = step(x, u)
        x_next[20] = np.nan
        return x_next, cost, ended

    monkeypatch.setattr(simulator, "step", broken)
    found = cancelling(simulator, policy, recorded, np.ones(2), 1)
    assert whole is not None
    assert found is not None
    np.testing.assert_allclose(found, whole)


def test_draws_have_none() -> None:
    simulator, _ = world()
    policy = Drawn(gym.spaces.Discrete(2), lambda x: np.zeros((len(x), 2)))
    wind = np.random.default_rng(0).normal(size=(50, 2))
    assert cancelling(simulator, policy, visits(wind), np.ones(2), H) is None


def test_replays_take_it_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant push on Pendulum is met within the first episode, whatever the search draws."""
    from windward.adapt import cma

    monkeypatch.setattr(cma, "ask", lambda state, rng: np.zeros((12, len(state.mean))))
    base = ww.policies.load("Pendulum-v1")
    env = ww.envs.Disturbed(gym.make("Pendulum-v1"), "bias:value=0.2", channel="qvel")
    robust = ww.RobustWrapper(env, "pd3", model=base, learner="replay")
    x, _ = robust.reset(seed=3)
    over = False
    info: dict[str, Any] = {}
    while not over:
        x, _, _, over, info = robust.step(base.predict(x, deterministic=True)[0])
    assert any("began to correct" in each for each in robust.decisions)
    correction, push = info["windward"]["correction"], info["windward"]["w_hat"]
    assert correction[0] * push[1] < 0
