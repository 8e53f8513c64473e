"""The metric of the nominal closed loop, against closed forms of linear systems."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt.metric import MetricSettings, closed_loop_metric, usual_change
from windward.adapt.twin import Twin

A = np.array([[0.9, 0.2], [-0.1, 0.8]])
B = np.array([[0.5], [1.0]])
K = np.array([[0.2, 0.3]])
SETTINGS = MetricSettings(free=0.0, horizon=20, discount=0.9, states=6)


class Linear:
    """As much of a twin as the metric asks for: x' = Fx under u = -Kx."""

    def __init__(self, A: np.ndarray, B: np.ndarray) -> None:
        self.A, self.B, self.d_x = A, B, len(A)

    def advance(self, changed: np.ndarray, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        assert not changed.any()
        return x @ self.A.T + u @ self.B.T

    def observe(self, x: np.ndarray) -> np.ndarray:
        return x

    def gap(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x - y


def found(twin: Any, K: np.ndarray, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    root = closed_loop_metric(twin, lambda x: -x @ K.T, x, scale, SETTINGS)
    return root.T @ root


def closed_form(F: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Σ γ^k F^kᵀ Q F^k with Q = diag(scale)^-2, of trace d in usual changes."""
    P, D = np.zeros_like(F), np.eye(len(F))
    for k in range(SETTINGS.horizon + 1):
        P += SETTINGS.discount**k * D.T @ np.diag(scale**-2) @ D
        D = F @ D
    return P * len(F) / np.trace(scale[:, None] * P * scale)


@pytest.mark.parametrize("scale", [np.ones(2), np.array([0.02, 3.0])])
def test_it_is_the_closed_form_of_a_linear_system(scale: np.ndarray) -> None:
    x = np.random.default_rng(0).normal(size=(30, 2))
    P = found(Linear(A, B), K, x, scale)
    np.testing.assert_allclose(P, closed_form(A - B @ K, scale), rtol=1e-8)


def test_a_position_on_which_nothing_depends_has_no_weight() -> None:
    """It moves with the rest, and moves nothing itself."""
    wide = np.zeros((3, 3))
    wide[0] = 1.0, 0.3, 0.1
    wide[1:, 1:] = A
    twin = Linear(wide, np.vstack([np.zeros((1, 1)), B]))
    own, scale = np.hstack([np.zeros((1, 1)), K]), np.array([1.0, 0.5, 2.0])
    P = found(twin, own, np.random.default_rng(0).normal(size=(30, 3)), scale)
    np.testing.assert_array_equal(P[0], 0.0)
    np.testing.assert_array_equal(P[:, 0], 0.0)
    inner = closed_form(A - B @ K, scale[1:])
    np.testing.assert_allclose(P[1:, 1:], inner * np.trace(P) / np.trace(inner), rtol=1e-8)


def test_states_at_which_the_physics_breaks_down_are_left_out() -> None:
    """Also where they could hide a position on which nothing depends."""
    wide = np.diag([1.0, 0.9, 0.8])
    twin, x = Linear(wide, np.zeros((3, 1))), np.random.default_rng(0).normal(size=(6, 3))
    whole = twin.advance

    def broken(changed: np.ndarray, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        made = whole(changed, x, u)
        made[4:8] = np.nan  # the rows of the second state
        return made

    twin.advance = broken  # type: ignore[method-assign]
    P = found(twin, np.zeros((1, 3)), x, np.ones(3))
    assert np.isfinite(P).all()
    np.testing.assert_array_equal(P[0], 0.0)
    assert P[1, 1] > P[2, 2] > 0


def test_rootx_of_a_hopper_has_no_weight() -> None:
    sim = ww.simulator(gym.make("Hopper-v5"), noisy=False)
    sim.env.reset(seed=0)
    base = ww.policies.load("Hopper-v5")
    twin, x, visited = Twin(sim, sim, threads=1), sim.state()[None], []
    for _ in range(40):
        visited.append(x[0])
        x = twin.step(x, base.predict(twin.observe(x))[0], None, False)[0]
    states = np.array(visited)
    scale = usual_change(states, 1e-3)
    root = closed_loop_metric(
        twin, lambda x: base.predict(x)[0], states, scale, MetricSettings(free=0.0)
    )
    np.testing.assert_array_equal(root[:, 0], 0.0)
    size = np.square(root * scale).sum()
    np.testing.assert_allclose(size, twin.d_x, rtol=1e-9)
    assert (np.abs(root[:, 1:]).max(axis=0) > 0).all()


def test_usual_change_is_that_of_a_step() -> None:
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.normal(size=(2000, 3)) * [1.0, 0.1, 0.0], axis=0)
    x[1000:] += 500.0  # where two stretches meet
    np.testing.assert_allclose(usual_change(x, 1e-3), [1.0, 0.1, 1e-3], rtol=0.15)
