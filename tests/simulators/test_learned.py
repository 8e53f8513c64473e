"""Simulators learned from steps: how true they are, what they are made from, what is refused."""

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.simulators import ensembles
from windward.simulators.fitting import circles_in
from windward.simulators.learned import Fit, LearnedSimulator
from windward.simulators.transitions import explored, gathered, split, steps_from

A, B = np.array([[0.9, 0.2], [0.0, 0.8]]), np.array([[0.0], [0.25]])
SMALL: dict[str, Any] = {"steps": 500, "updates": 250, "widths": (8,), "members": 2}


class Cart(gym.Env):
    """x_{t+1} = Ax + Bu, reward -|x|² - u², begun anywhere; ends where |x_0| > 1, or at 20 steps.

    `blur` adds noise to all states, which nobody can foresee.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Box(-2.0, 6.0, (1,), np.float64)

    def __init__(self, blur: float = 0.0, push: float = 0.0) -> None:
        self.blur, self.push = blur, push

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.x, self.t = self.np_random.uniform(-0.9, 0.9, 2), 0
        return self.x.copy(), {}

    def step(self, u: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        cost = float(self.x @ self.x + u @ u)
        noise = self.blur * self.np_random.standard_normal(2)
        self.x, self.t = A @ self.x + B @ u + noise + [0.0, self.push], self.t + 1
        return self.x.copy(), -cost, bool(abs(self.x[0]) > 1), self.t >= 20, {}


def steady(x: np.ndarray) -> np.ndarray:
    return np.array([-0.4 * x[0] - 0.5 * x[1]])


def swing(x: np.ndarray) -> np.ndarray:
    return np.array([-x[1]])


def true_step(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    return x @ A.T + u @ B.T


@pytest.fixture(scope="module")
def cart() -> LearnedSimulator:
    return ww.fit_simulator(
        Cart, steady, steps=3_750, updates=2_000, widths=(32, 32), sigma=0.5, seed=1
    )


@pytest.fixture(scope="module")
def pendulum() -> LearnedSimulator:
    return ww.fit_simulator("Pendulum-v1", swing, steps=2_500, updates=2_500, widths=(32, 32))


@pytest.fixture(scope="module")
def points() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.uniform(-0.7, 0.7, (200, 2))
    return x, -0.4 * x[:, :1] + rng.uniform(-0.5, 0.5, (200, 1))


def test_it_steps_as_the_world_does(cart: LearnedSimulator, points: Any) -> None:
    x, u = points
    x_next, cost, ended = cart.step(x, u)
    np.testing.assert_allclose(x_next, true_step(x, u), atol=0.005)
    np.testing.assert_allclose(cost, np.square(x).sum(axis=1) + u[:, 0] ** 2, atol=0.15)
    assert not ended.any()
    assert cart.d_x == 2


def test_its_error_is_that_of_steps_it_has_not_seen(cart: LearnedSimulator) -> None:
    rng = np.random.default_rng(5)
    walk = explored(Cart(), lambda x: np.stack([steady(each) for each in x]), 0.5, rng)
    fresh = gathered([next(walk) for _ in range(2_000)])
    u = 2.0 + 4.0 * fresh.u  # of [-2, 6]
    error = np.sqrt(np.square(cart.step(fresh.x, u)[0] - fresh.x_next).mean(axis=0))
    assert ((error / cart.fit.error > 0.3) & (error / cart.fit.error < 3)).all()
    np.testing.assert_allclose(cart.fit.motion, (fresh.x_next - fresh.x).std(axis=0), rtol=0.3)
    assert cart.fit.missed < 0.02
    assert not cart.fit.ill
    assert cart.fit.steps == 300
    assert "misses" in str(cart.fit)
    assert len(cart.report().splitlines()) == 2 + cart.d_x


def test_it_knows_where_episodes_end(cart: LearnedSimulator) -> None:
    x = np.array([[0.5, 0.0], [-0.5, 0.2], [1.25, 0.1], [-1.25, -0.1]])
    np.testing.assert_array_equal(cart.terminated(x, None), [False, False, True, True])
    assert cart.fit.ends > 0
    assert cart.fit.ends_missed < 0.5 * cart.fit.ends
    assert cart.fit.ends_made_up < 0.02 * cart.fit.steps


def test_what_users_know_better_is_taken_from_them(points: Any) -> None:
    x, u = points
    mine = ww.fit_simulator(
        Cart, steady, **SMALL,
        reward=lambda x, u, x_next: x_next[:, 0] - u[:, 0],
        terminated=lambda x_next: x_next[:, 1] > 0.1,
    )  # fmt: skip
    x_next, cost, ended = mine.step(x, u)
    np.testing.assert_allclose(cost, u[:, 0] - x_next[:, 0])
    np.testing.assert_array_equal(ended, x_next[:, 1] > 0.1)
    assert mine.networks.ends is None
    with pytest.raises(ValueError, match=r"terminated\(x\) must have shape \(40,\)"):
        ww.fit_simulator(Cart, steady, **SMALL, terminated=lambda x_next: x_next[:1, 0] > 1)


def test_more_learning_lowers_the_error(pendulum: LearnedSimulator) -> None:
    with pytest.warns(UserWarning, match="ill-fitted"):
        little = ww.fit_simulator("Pendulum-v1", swing, **SMALL)
    assert pendulum.fit.missed < 0.2 * little.fit.missed
    assert not pendulum.fit.ill


def test_angles_stay_on_their_circle(pendulum: LearnedSimulator) -> None:
    sim = pendulum
    np.testing.assert_array_equal(sim.networks.circles, [[1], [1], [0]])
    x = np.array([[0.6, 0.8, 1.0], [1.0, 0.0, -3.0]])
    for _ in range(200):
        x = sim.step(x + np.array([0.02, -0.01, 0.1]), [[0.5], [-1.0]])[0]
    np.testing.assert_allclose(np.hypot(x[:, 0], x[:, 1]), 1.0, atol=1e-9)
    seen = sim.observation([[3.0, 4.0, 1.0]])
    np.testing.assert_allclose(seen[0, :2], [0.6, 0.8], rtol=1e-6)
    assert seen.dtype == np.float32


def test_circles_are_found_where_they_are() -> None:
    rng = np.random.default_rng(0)
    angle, free = rng.uniform(-3, 3, 400), rng.standard_normal((400, 2))
    four = rng.standard_normal((400, 4))
    four /= np.linalg.norm(four, axis=1, keepdims=True)
    x = np.column_stack([np.cos(angle), free[:, :1], np.sin(angle), four, free[:, 1:], free**0])
    found = circles_in(x)
    np.testing.assert_array_equal(found.T, [[1, 0, 1, *[0] * 7], [0, 0, 0, 1, 1, 1, 1, 0, 0, 0]])
    assert circles_in(free).shape == (2, 0)


def test_the_same_seed_gives_the_same_simulator(points: Any) -> None:
    one, two, other = (
        ww.fit_simulator(Cart(), steady, seed=seed, **SMALL).step(*points)[0] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_the_programs_are_compiled_once() -> None:
    ww.fit_simulator(Cart, steady, seed=1, **SMALL)
    before = ensembles._learn_block._cache_size()
    ww.fit_simulator(Cart, steady, seed=2, **{**SMALL, "updates": 750, "learning_rate": 1e-4})
    assert ensembles._learn_block._cache_size() == before


def test_networks_answer_alike_under_jax_and_numpy() -> None:
    rng = np.random.default_rng(2)
    params = ensembles.init_ensemble(rng, 3, (4, 8, 2))
    params["w1"] = rng.standard_normal(params["w1"].shape).astype(np.float32)
    x = rng.standard_normal((5, 4)).astype(np.float32)
    rows = np.broadcast_to(x, (3, 5, 4))
    np.testing.assert_allclose(
        ensembles.forward_numpy(params, x), ensembles.forward(params, rows), atol=1e-5
    )


def steps_at_hand(n: int = 400, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, u = rng.uniform(-0.9, 0.9, (n, 2)), rng.uniform(-2, 6, (n, 1))
    x_next = true_step(x, u)
    reward = -np.square(x).sum(axis=1) - u[:, 0] ** 2
    return {
        "x": x, "u": u, "reward": reward, "x_next": x_next, "terminated": np.abs(x_next[:, 0]) > 1
    }  # fmt: skip


def test_steps_at_hand_by_name_and_in_order(points: Any) -> None:
    data = steps_at_hand()
    named, ordered = (
        ww.fit_simulator(Cart, data=each, **SMALL) for each in (data, tuple(data.values()))
    )
    x_next = named.step(*points)[0]
    np.testing.assert_array_equal(x_next, ordered.step(*points)[0])
    np.testing.assert_allclose(x_next, true_step(*points), atol=0.02)


@pytest.mark.parametrize("full", [False, True])
def test_a_replay_buffer_of_stable_baselines3(full: bool) -> None:
    buffers = pytest.importorskip("stable_baselines3.common.buffers")
    spaces, n = (Cart.observation_space, Cart.action_space), 150
    size = 2 * (100 if full else 200)
    buffer = buffers.ReplayBuffer(size, *spaces, device="cpu", n_envs=2)
    data = steps_at_hand(2 * n)
    pairs = {name: each.reshape(n, 2, *each.shape[1:]) for name, each in data.items()}
    for i in range(n):
        x, u, reward, x_next, ended = (each[i] for each in pairs.values())
        # As off-policy models store them: actions in [-1, 1], `done` for a time limit too.
        late = [{"TimeLimit.truncated": i % 7 == 0 and not ended[j]} for j in range(2)]
        done = ended | [each["TimeLimit.truncated"] for each in late]
        buffer.add(x, x_next, (u - 2.0) / 4.0, reward, done, late)
    found = steps_from(buffer, *spaces)
    kept = slice(n - 100 if full else 0, n)
    want = {name: np.concatenate([each[kept, j] for j in range(2)]) for name, each in pairs.items()}
    np.testing.assert_allclose(found.x, want["x"])
    np.testing.assert_allclose(found.x_next, want["x_next"])
    np.testing.assert_allclose(found.u, (want["u"] - 2.0) / 4.0, atol=1e-6)
    np.testing.assert_allclose(found.reward, want["reward"], rtol=1e-6)
    np.testing.assert_array_equal(found.terminated, want["terminated"])


def test_held_out_steps_are_whole_pieces() -> None:
    learn, stop, judge = split(1_000, 0.2, np.random.default_rng(0))
    assert (len(learn), len(stop), len(judge)) == (800, 100, 100)
    assert sorted([*learn, *stop, *judge]) == list(range(1_000))
    assert (np.diff(judge) == 1).sum() >= 98 - 1


def test_discrete_actions_are_learned_one_by_one() -> None:
    sim = ww.fit_simulator("CartPole-v1", lambda x: int(x[2] > 0), **SMALL)
    left, right = sim.step(np.zeros((2, 4)), [0, 1])[0]
    assert left[1] < -0.1 < 0.1 < right[1]
    with pytest.raises(ValueError, match="actions must be in"):
        sim.step(np.zeros((1, 4)), [2])


def test_what_cannot_be_learned_is_refused() -> None:
    box = gym.spaces.Box(-1, 1, (2,))
    env = Cart()
    env.observation_space = gym.spaces.Dict({"a": box})  # type: ignore[assignment]
    with pytest.raises(ValueError, match="FlattenObservation"):
        ww.fit_simulator(env, steady)
    env.observation_space = gym.spaces.Box(0, 255, (8, 8), np.uint8)
    with pytest.raises(ValueError, match="not of uint8"):
        ww.fit_simulator(env, steady)
    with pytest.raises(ValueError, match="a policy to run, or data="):
        ww.fit_simulator(Cart)
    with pytest.raises(ValueError, match="a policy to run, or data="):
        ww.fit_simulator(Cart, steady, data=steps_at_hand())
    with pytest.raises(ValueError, match="an id, an environment or a function"):
        ww.fit_simulator(3, steady)
    for name, value in {
        "steps": 10, "sigma": 0.0, "members": 0, "widths": (), "updates": 0, "held_out": 0.9,
        "learning_rate": np.nan, "seed": -1,
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=name):
            ww.fit_simulator(Cart, steady, **{name: value})


def test_data_that_is_none_is_refused() -> None:
    data = steps_at_hand()
    bad: list[tuple[Any, str]] = [
        (3, "got int"),
        ({"x": data["x"]}, "has no 'u'"),
        ({**data, "u": data["u"][:-1]}, r"data's u must have shape \(400, 1\)"),
        ({**data, "x": np.full((400, 2), np.nan)}, "data's x must be finite"),
        ({name: each[:50] for name, each in data.items()}, "at least 100 steps; it has 50"),
    ]
    for given, message in bad:
        with pytest.raises(ValueError, match=message):
            ww.fit_simulator(Cart, data=given)


def test_states_and_actions_of_another_size_are_refused(cart: LearnedSimulator) -> None:
    with pytest.raises(ValueError, match="x must be rows of 2 numbers"):
        cart.step(np.zeros((1, 3)), np.zeros((1, 1)))
    with pytest.raises(ValueError, match="x must be finite"):
        cart.step([[np.nan, 0.0]], np.zeros((1, 1)))


def test_an_environment_that_gives_no_numbers_is_refused() -> None:
    env = Cart(blur=np.nan)
    with pytest.raises(ValueError, match="2 numbers that are not finite"):
        ww.fit_simulator(env, steady)


def test_it_comes_back_from_a_file(tmp_path: Path, cart: LearnedSimulator, points: Any) -> None:
    ww.save_simulator(cart, tmp_path / "cart.npz")
    back = ww.load_simulator(tmp_path / "cart.npz", Cart())
    for here, there in zip(back.step(*points), cart.step(*points), strict=True):
        np.testing.assert_array_equal(here, there)
    assert str(back.fit) == str(cart.fit)
    with pytest.raises(ValueError, match=r"2 numbers and actions with 1; here they have 3 and 1"):
        ww.load_simulator(tmp_path / "cart.npz", "Pendulum-v1")
    with pytest.raises(ValueError, match="without reward="):
        ww.load_simulator(tmp_path / "cart.npz", Cart(), reward=lambda x, u, x_next: x[:, 0])


def test_functions_are_asked_for_again(tmp_path: Path) -> None:
    def ends(x_next: np.ndarray) -> np.ndarray:
        return np.asarray(np.abs(x_next[:, 0]) > 1)

    sim = ww.fit_simulator(Cart, steady, terminated=ends, **SMALL)
    ww.save_simulator(sim, tmp_path / "cart.npz")
    with pytest.raises(ValueError, match="with terminated="):
        ww.load_simulator(tmp_path / "cart.npz", Cart())
    back = ww.load_simulator(tmp_path / "cart.npz", Cart(), terminated=ends)
    np.testing.assert_array_equal(back.terminated(np.eye(2) * 2, None), [True, False])


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "learned-simulator.md").read_text()
    scope: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        # Shorter: what is tested is that it runs.
        block = block.replace("10_000", "2_500, updates=500, widths=(32, 32)")
        exec(block.replace("data=data)", "data=data, updates=500, widths=(32, 32))"), scope)
    assert scope["robust"].learner == "auto"
    assert scope["mine"].fit.missed < 0.01


def test_the_report_of_a_still_world_is_finite() -> None:
    still = Fit(10, np.zeros(2), np.zeros(2), 0.0, 0.0, 0, 0, 0, np.zeros(2))
    assert still.missed == 0.0
    assert not still.ill
    assert Fit(10, np.array([np.nan]), np.ones(1), 0.0, 0.0, 0, 0, 0, np.zeros(1)).ill
