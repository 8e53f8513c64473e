"""Fitted values against the closed form on a linear system, and on what users bring."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.linear.values import quadratic_values, vector_values
from windward.policies.features import Features
from windward.policies.fitted import fit_values
from windward.policies.rollouts import _Step, rows_of, steps_of

GAMMA = 0.9
A, B = np.array([[0.9, 0.2], [0.0, 0.8]]), np.array([[0.0], [0.5]])
SYSTEM = ww.linear.System(A, B)
Q, R = np.eye(2), np.eye(1)
K = ww.linear.lqr(A, B, Q, R).K


class Linear(gym.Env):
    """x_{t+1} = Ax + Bu, reward -(xᵀQx + uᵀRu), begun anywhere, cut off after 20 steps."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Box(-2.0, 6.0, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.x, self.t = self.np_random.uniform(-1, 1, 2), 0
        return self.x.copy(), {}

    def step(self, u: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        cost = float(self.x @ Q @ self.x + u @ R @ u)
        self.x, self.t = A @ self.x + B @ u, self.t + 1
        return self.x.copy(), -cost, False, self.t >= 20, {}


def controller(x: np.ndarray) -> np.ndarray:
    return np.asarray(-K @ x)


@pytest.fixture(scope="module")
def fitted() -> Any:
    return fit_values(
        Linear, controller, gamma=GAMMA, steps=4_000, updates=2_000, widths=(32, 32), sigma=0.2,
        explore=0.5, learning_rate=3e-3, seed=1, online=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def points() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.uniform(-0.7, 0.7, (200, 2))
    return x, -x @ K.T + rng.uniform(-0.3, 0.3, (200, 1))


def _share_explained(got: np.ndarray, true: np.ndarray) -> float:
    return float(1 - np.square(got - true).sum() / np.square(true - true.mean(axis=0)).sum())


def test_scalar_values_are_those_of_the_closed_form(fitted: Any, points: Any) -> None:
    x, u = points
    P = quadratic_values(SYSTEM, K, Q, R, GAMMA).P
    V = -np.einsum("ni,ij,nj->n", x, P, x)
    after = x @ A.T + u @ B.T
    true_Q = -(np.square(x) @ np.diag(Q) + R[0, 0] * u[:, 0] ** 2) - GAMMA * np.einsum(
        "ni,ij,nj->n", after, P, after
    )
    assert _share_explained(fitted.critic.V(x), V) > 0.97
    assert _share_explained(fitted.critic.Q(x, u), true_Q) > 0.97
    slope = -2 * R[0, 0] * u - 2 * GAMMA * (after @ P @ B)
    assert _share_explained(fitted.critic.grad_Q(x, u), slope) > 0.8
    assert _share_explained(fitted.critic.grad_V(x), -2 * x @ P) > 0.9


def test_vector_values_are_those_of_the_closed_form(fitted: Any, points: Any) -> None:
    x, u = points
    G = vector_values(SYSTEM, K, GAMMA, np.eye(2)).G
    after = x @ A.T + u @ B.T
    np.testing.assert_allclose(fitted.vector.c(x), x, atol=1e-6)
    assert _share_explained(fitted.vector.V(x), x @ G.T) > 0.97
    assert _share_explained(fitted.vector.Q(x, u), x + GAMMA * after @ G.T) > 0.97


def test_the_bellman_error_is_measured_on_other_steps(fitted: Any) -> None:
    rng = np.random.default_rng(8)
    x = rng.uniform(-0.5, 0.5, (500, 2))
    u = -x @ K.T + 0.1 * rng.standard_normal((500, 1))
    after = x @ A.T + u @ B.T
    costs = -(np.square(x).sum(axis=1) + u[:, 0] ** 2)
    error = costs + GAMMA * fitted.critic.V(after) - fitted.critic.Q(x, u)
    # the same size as reported for the steps of the rollouts, though not the same points
    assert 0.2 < np.sqrt(np.square(error).mean()) / fitted.fit.bellman < 5
    assert fitted.fit.relative < 0.2
    assert (fitted.fit.vector_relative < 0.2).all()


def test_more_learning_lowers_the_error(fitted: Any) -> None:
    less = fit_values(Linear, controller, gamma=GAMMA, steps=400, updates=20, widths=(8,), seed=1)
    assert less.fit.relative > 2 * fitted.fit.relative


def test_the_same_seed_gives_the_same_values() -> None:
    small: dict[str, Any] = {"steps": 100, "updates": 40, "widths": (8,)}
    x = np.ones((3, 2))
    one, two, other = (
        fit_values(Linear(), controller, seed=seed, **small).critic.V(x) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_returns_run_to_the_next_explored_action() -> None:
    env = Linear()
    one = Features(lambda rows: np.ones((len(rows), 1)), 1, "one")
    source = steps_of(env, lambda x: -x @ K.T, lambda x: x, one, 0.3, 0.2, seed=0)
    steps = [next(source) for _ in range(60)]
    rows = rows_of(steps, GAMMA)
    for t in range(60):
        m, total = 1, steps[t].costs.astype(np.float64)
        while t + m < 60 and not steps[t + m - 1].ended and not steps[t + m].explored:
            total = total + GAMMA**m * steps[t + m].costs
            m += 1
        np.testing.assert_allclose(rows.G[t], total, rtol=1e-5)
        assert rows.discount[t] == pytest.approx(GAMMA**m, rel=1e-5)
        np.testing.assert_array_equal(rows.x_ahead[t], steps[t + m - 1].x_next)
        np.testing.assert_array_equal(rows.u_ahead[t], steps[t + m - 1].u_next)
    assert any(step.explored for step in steps)
    assert any(step.ended for step in steps)
    explored = np.array([step.explored for step in steps])
    base = np.array([steps[t].u_next for t in range(59) if not steps[t].ended])
    taken = np.array([steps[t + 1].u for t in range(59) if not steps[t].ended])
    follows = np.array([not explored[t + 1] for t in range(59) if not steps[t].ended])
    np.testing.assert_allclose(base[follows], taken[follows], atol=1e-6)


def test_termination_ends_the_return_and_truncation_does_not() -> None:
    def step(cost: float, terminated: bool, ended: bool) -> _Step:
        one = np.ones(1, np.float32)
        costs = np.array([cost], np.float32)
        return _Step(one, one, costs, one * cost, one, terminated, ended, explored=False)

    steps = [
        step(1, False, False),
        step(2, True, True),
        step(4, False, True),
        step(8, False, False),
    ]
    rows = rows_of(steps, 0.5)
    np.testing.assert_allclose(rows.G[:, 0], [2, 2, 4, 8])
    np.testing.assert_allclose(rows.discount, [0, 0, 0.5, 0.5])
    np.testing.assert_allclose(rows.discount_next, [0.5, 0, 0.5, 0.5])
    np.testing.assert_allclose(rows.x_ahead[2:, 0], [4, 8])


def test_online_values_do_not_look_beyond_an_end() -> None:
    values = fit_values(
        Linear, controller, gamma=GAMMA, steps=100, updates=300, widths=(32,), online=True
    )
    x, far = np.zeros(2), np.full(2, 0.9)
    for _ in range(400):  # at 0 all ends with a reward of 3, whatever far is worth
        values.observe(x, np.zeros(1), 3.0, far, True)
    assert values.critic.Q(x[None], np.zeros((1, 1)))[0] == pytest.approx(3.0, abs=0.5)


def test_discrete_actions() -> None:
    values = fit_values(
        "CartPole-v1", lambda x: int(x[2] + x[3] > 0), steps=300, updates=100, widths=(16,)
    )
    assert values.critic.Q(np.zeros((2, 4)), [0, 1]).shape == (2,)
    with pytest.raises(ValueError, match="actions are discrete"):
        values.critic.grad_Q(np.zeros((1, 4)), [0])
    with pytest.raises(ValueError, match=r"actions must be in Discrete\(2\)"):
        values.critic.Q(np.zeros((1, 4)), [2])


def test_values_are_of_the_action_that_is_executed() -> None:
    def beyond(x: np.ndarray) -> np.ndarray:
        return np.array([50.0 * x[0]])

    values = fit_values(Linear, beyond, gamma=GAMMA, steps=100, updates=50, widths=(16,))
    x = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    executed = np.clip(50.0 * x[:, :1], -2, 6)
    np.testing.assert_allclose(values.critic.V(x), values.critic.Q(x, executed), rtol=1e-6)
    with pytest.raises(ValueError, match=r"must have shape \(2,\); got \(3,\)"):
        values.critic.V(np.zeros(3))
    assert values.critic.V(x[0]).shape == (1,)


class Image(gym.Env):
    """A bright column moves over a small image; the action moves it."""

    observation_space = gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def _look(self) -> np.ndarray:
        image = np.zeros((8, 8, 3), np.uint8)
        image[:, int(np.clip(self.place, 0, 7))] = 255
        return image

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.place, self.t = float(self.np_random.uniform(0, 8)), 0
        return self._look(), {}

    def step(self, u: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.place = float(np.clip(self.place + u[0], 0, 7.99))
        self.t += 1
        return self._look(), -abs(self.place - 4), False, self.t >= 25, {}


def _column(image: np.ndarray) -> float:
    return float(image[0, :, 0].argmax())


def test_images_work_with_features() -> None:
    def to_middle(image: np.ndarray) -> np.ndarray:
        return np.array([np.sign(4 - _column(image)) * 0.5], np.float32)

    values = fit_values(
        Image, to_middle, features="random:8", steps=1_000, updates=1_500, widths=(32,), gamma=0.9,
        explore=0.4,
    )  # fmt: skip
    assert values.vector.d_w == 8
    images = np.stack([np.zeros((8, 8, 3), np.uint8) for _ in range(8)])
    for column in range(8):
        images[column, :, column] = 255
    assert values.vector.c(images).shape == values.vector.V(images).shape == (8, 8)
    V = values.critic.V(images)
    assert V[4] > V[2] > V[0]  # nearer to the middle is better
    one = fit_values(Image, to_middle, features=_column, steps=50, updates=10, widths=(8,))
    np.testing.assert_array_equal(one.vector.c(images)[:, 0], np.arange(8))
    with pytest.raises(ValueError, match=r"features='random:8'"):
        fit_values(Image, to_middle, steps=50, updates=10)


def test_online_values_follow_a_change() -> None:
    values = fit_values(
        Linear, controller, gamma=GAMMA, steps=300, updates=1_000, widths=(32,), online=True,
        explore=0.5,
    )  # fmt: skip
    env, rng = Linear(), np.random.default_rng(0)
    x, _ = env.reset(seed=0)
    shift = 1.0  # the reward is now lower by this at every step

    def error() -> float:
        points = rng.uniform(-0.5, 0.5, (100, 2))
        u = points @ -K.T
        after = points @ A.T + u @ B.T
        cost = np.square(points).sum(axis=1) + u[:, 0] ** 2 + shift
        gap = -cost + GAMMA * values.critic.V(after) - values.critic.Q(points, u)
        return float(np.sqrt(np.square(gap).mean()))

    before = error()
    for _ in range(900):
        u = np.clip(controller(x) + 0.2 * rng.standard_normal(1), -2, 6)
        after, reward, terminated, truncated, _ = env.step(u)
        values.observe(x, u, reward - shift, after, terminated)
        x = env.reset()[0] if truncated else after
    assert error() < 0.6 * before
    values.observe(x, u, np.nan, x, False)  # ignored
    assert np.isfinite(values.critic.V(x[None])).all()


def test_values_that_are_not_online_do_not_learn(fitted: Any) -> None:
    assert fitted.online
    still = fit_values(Linear, controller, steps=50, updates=10, widths=(8,))
    assert not still.online
    with pytest.raises(ValueError, match="online=True"):
        still.observe(np.zeros(2), np.zeros(1), 0.0, np.zeros(2), False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 5}, "steps must be an integer of at least 10; got 5"),
        ({"explore": 0.0}, r"explore must lie in \(0, 1\); got 0.0"),
        ({"held_out": 1.0}, r"held_out must lie in \(0, 1\); got 1.0"),
        ({"gamma": 1.5}, r"gamma must lie in \(0, 1\]; got 1.5"),
        ({"widths": ()}, r"widths must name the hidden layers"),
        ({"learning_rate": [1e-3]}, "learning_rate must have 0 dimension"),
        ({"sigma": -1.0}, "sigma must be greater than 0"),
        ({"features": "wavelets"}, "features must be 'identity'.*got 'wavelets'"),
        ({"features": np.ones((3, 7))}, r"L must have a column for each of 2 coordinates"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_values(Linear, controller, **{"steps": 20, "updates": 5, **arguments})


def test_what_is_no_environment_is_named() -> None:
    with pytest.raises(ValueError, match=r"env must be an id, an environment or a function.*None"):
        fit_values(None, controller)
