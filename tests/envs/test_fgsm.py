"""Gradient-sign: the default V, a function of one's own, a critic that JAX cannot trace."""

import gymnasium as gym
import numpy as np
import pytest
from scipy.linalg import solve_discrete_are

from windward.envs import Disturbed, GradientSign
from windward.envs.gradient_sign import linearise
from windward.simulators import Unsupported, simulator
from windward.simulators.physics import dynamics_of


def test_the_linearised_pendulum_is_the_one_of_the_equations() -> None:
    dynamics = dynamics_of(gym.make("Pendulum-v1").unwrapped)
    assert dynamics is not None
    A, B = linearise(dynamics)
    # θ̇' = θ̇ + (15 sin θ + 3u)·0.05, θ' = θ + 0.05 θ̇'
    np.testing.assert_allclose(A, [[1 + 0.05 * 0.75, 0.05], [0.75, 1]], atol=1e-8)
    np.testing.assert_allclose(B, [[0.05 * 0.15], [0.15]], atol=1e-8)


def test_the_linearised_cartpole_ignores_the_motor() -> None:
    dynamics = dynamics_of(gym.make("CartPole-v1").unwrapped)
    assert dynamics is not None
    A, B = linearise(dynamics)
    total, length, mass = 1.1, 0.5, 0.1
    inertia = length * (4 / 3 - mass / total)
    np.testing.assert_allclose(A[3], [0, 0, 0.02 * 9.8 / inertia, 1], atol=1e-8)
    assert B[3, 0] == pytest.approx(-0.02 / total / inertia, rel=1e-6)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "InvertedPendulum-v5", "CartPole-v1"])
def test_the_default_pushes_where_the_lqr_value_grows(env_id: str) -> None:
    env = Disturbed(gym.make(env_id), GradientSign(0.01), "state")
    dynamics = dynamics_of(env.unwrapped)
    assert dynamics is not None
    A, B = linearise(dynamics)
    P = solve_discrete_are(A, B, np.eye(len(A)), np.eye(1))
    sim = simulator(env, noisy=False)
    env.reset(seed=1)
    env.action_space.seed(1)
    for _ in range(5):
        action = env.action_space.sample()
        reached = sim.predict(action)
        _, _, ended, _, info = env.step(action)
        w = info["disturbance"]["state"]
        np.testing.assert_allclose(sim.state(), reached + w, atol=1e-12)
        x = dynamics.gap(reached, dynamics.rest())
        assert (x + w) @ P @ (x + w) > x @ P @ x
        np.testing.assert_array_equal(w, 0.01 * np.sign(P @ x))
        if ended:
            break


def _traceable(x):  # type: ignore[no-untyped-def]
    return 3.0 * x[0] ** 2 - x[1]


def _untraceable(x: np.ndarray) -> float:
    return float(_traceable(x))  # float() of a tracer is an error: central differences take over


@pytest.mark.parametrize("value", [_traceable, _untraceable])
def test_any_function_of_the_state_will_do(value) -> None:  # type: ignore[no-untyped-def]
    env = Disturbed(gym.make("Pendulum-v1"), GradientSign((0.1, 0.2), value=value), "state")
    sim = simulator(env, noisy=False)
    env.reset(seed=0)
    reached = sim.predict(np.zeros(1))
    w = env.step(np.zeros(1, np.float32))[4]["disturbance"]["state"]
    np.testing.assert_allclose(w, [0.1 * np.sign(reached[0]), -0.2])


def test_a_part_of_the_state_gets_its_part_of_the_gradient() -> None:
    adversary = GradientSign(0.1, gradient=lambda x: np.array([1.0, -1.0]))
    env = Disturbed(gym.make("Pendulum-v1"), adversary, "qvel")
    env.reset(seed=0)
    w = env.step(np.zeros(1, np.float32))[4]["disturbance"]["qvel"]
    np.testing.assert_array_equal(w, [-0.1])


def test_a_critic_of_observations_disturbs_observations() -> None:
    adversary = GradientSign(0.05, value=lambda obs: obs[0] - 2 * obs[2])
    plain = gym.make("Pendulum-v1")
    env = Disturbed(gym.make("Pendulum-v1"), adversary, "observation")
    seen, info = env.reset(seed=0)
    true, _ = plain.reset(seed=0)
    np.testing.assert_allclose(info["disturbance"]["observation"], [0.05, 0, -0.05])
    np.testing.assert_allclose(
        seen, np.clip(np.add(true, [0.05, 0, -0.05]), [-1, -1, -8], 1), atol=1e-6
    )


@pytest.mark.parametrize(
    ("channel", "adversary", "message"),
    [
        ("action", GradientSign(0.1), "a state or an observation"),
        ("observation", GradientSign(0.1), "value=V or gradient"),
        ("state", GradientSign(0.1, gradient=lambda x: x[:1]), "gradient of V must have shape"),
    ],
)
def test_where_it_makes_no_sense_it_says_so(
    channel: str, adversary: GradientSign, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Disturbed(gym.make("Pendulum-v1"), adversary, channel)


def test_a_system_without_an_lqr_asks_for_a_value() -> None:
    with pytest.raises(Unsupported, match="value=V"):
        Disturbed(gym.make("Reacher-v5"), GradientSign(0.1), "state")


def test_value_and_gradient_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="not both"):
        GradientSign(0.1, value=_traceable, gradient=lambda x: x)
