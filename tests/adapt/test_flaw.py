"""What is wrong with a simulator is told from wind, and put right."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt.amended import Amended
from windward.adapt.flaw import LEAST, flaw
from windward.adapt.record import Record, begins
from windward.adapt.replayed import Drawn
from windward.studies.evaluation.loading import load_model

H = 5
UNKNOWN = np.zeros(1, dtype=bool)


def closed_loop(B_sim: float, wind: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ŵ and φ of x' = 0.9 x + u + w under u = -0.6 x, with a simulator whose input is B_sim u.

    The policy answers to the wind, so u and w are far from independent, and trembles a little.
    """
    x, w_hat, phi, rng = 0.0, [], [], np.random.default_rng(3)
    for w in wind:
        u = -0.6 * x + rng.normal(0.0, 0.03)
        predicted = 0.9 * x + B_sim * u
        x_next = 0.9 * x + u + w
        w_hat.append([x_next - predicted])
        phi.append([predicted - x, u])
        x = x_next
    return np.array(w_hat), np.array(phi)


SLOW = 0.3 * np.sin(np.arange(400) / 15)
WINDS = {
    "slow": SLOW,
    "fast": 0.3 * np.sin(np.arange(400) * 1.1),
    "constant": np.full(400, 0.3),
    "step": np.where(np.arange(400) < 200, 0.0, 0.3),
    "noise": np.random.default_rng(0).uniform(-0.3, 0.3, 400),
    "square": 0.3 * np.sign(np.sin(np.arange(400) / 8)),
    "walk": 0.02 * np.random.default_rng(1).normal(size=400).cumsum(),
    "calm": np.zeros(400),
}


@pytest.mark.parametrize("wind", WINDS)
def test_nothing_is_found_in_a_simulator_that_is_right(wind: str) -> None:
    w_hat, phi = closed_loop(1.0, WINDS[wind])
    found = flaw([w_hat], [phi], H, UNKNOWN)
    assert found is not None
    assert not found.Theta.any()


@pytest.mark.parametrize("B_sim", [0.7, 1.3])
def test_the_answer_to_the_wind_is_not_taken_for_a_flaw(B_sim: float) -> None:
    """Plain regression of ŵ on φ finds something else: it takes part of the wind with it."""
    w_hat, phi = closed_loop(B_sim, SLOW)
    found = flaw([w_hat], [phi], H, UNKNOWN)
    assert found is not None
    left = w_hat - phi @ found.Theta.T
    plain = w_hat - phi @ np.linalg.lstsq(phi, w_hat, rcond=None)[0]

    def away(each: np.ndarray) -> float:
        return float(np.abs(each[:, 0] - SLOW).mean() / np.abs(SLOW).mean())

    assert away(left) < 0.1
    assert away(plain) > 0.3
    assert away(w_hat) > 0.2


def test_little_says_nothing() -> None:
    w_hat, phi = closed_loop(1.3, SLOW)
    few = LEAST + 2 * 2 + H - 1
    assert flaw([w_hat[:few]], [phi[:few]], H, UNKNOWN) is None
    assert flaw([w_hat[:H]] * 50, [phi[:H]] * 50, H, UNKNOWN) is None
    assert flaw([w_hat[: few + 1]], [phi[: few + 1]], H, UNKNOWN) is not None


def test_what_is_known_is_not_asked_again() -> None:
    w_hat, phi = closed_loop(1.0, SLOW)
    found = flaw([w_hat], [phi], H, ~UNKNOWN)
    assert found is not None
    assert found.Theta.any()
    assert np.abs(phi @ found.Theta.T).max() < 0.05 * np.abs(w_hat).max()


class Line:
    """x' = x + 2 u, and no end."""

    d_x = 1

    def observation(self, x: np.ndarray) -> np.ndarray:
        return x

    def terminated(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        return np.zeros(len(x), dtype=bool)

    def gap(self, x_next: np.ndarray, x: np.ndarray) -> np.ndarray:
        return x_next - x

    def step(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return x + 2 * u, np.square(x[:, 0]), self.terminated(x, u)


def test_a_step_is_put_right() -> None:
    amended = Amended(Line(), 1, lambda u: np.asarray(u))  # type: ignore[arg-type]
    x, u = np.array([[1.0], [2.0]]), np.array([[0.5], [-1.0]])
    right, cost, _ = amended.step(x, u)
    np.testing.assert_array_equal(right, x + 2 * u)
    amended.Theta = np.array([[-0.25, -0.5]])  # of the motion 2 u, and of u: x + u in all
    np.testing.assert_allclose(amended.step(x, u)[0], x + u)
    np.testing.assert_array_equal(amended.step(x, u)[1], cost)


def recorded(w_hat: np.ndarray, phi: np.ndarray, cuts: tuple[int, ...] = ()) -> Record:
    record = Record(H, w_hat.shape[1], phi.shape[1], 8)
    for t, (each, step) in enumerate(zip(w_hat, phi, strict=True)):
        if t in cuts:
            record.cut()
        record.add(np.array([float(t)]), each, step)
    return record


def test_a_record_is_put_right() -> None:
    """As if it had been made in the amended simulator, in pieces and in what follows."""
    w_hat, phi = closed_loop(1.3, np.tile(SLOW, 2)[:500])
    Theta = np.array([[0.1, -0.3]])
    record, other = (recorded(each, phi, (60,)) for each in (w_hat, w_hat - phi @ Theta.T))
    record.amend(Theta / 2)
    record.amend(Theta / 2)
    record.add(np.zeros(1), (w_hat - phi @ Theta.T)[0], phi[0])
    other.add(np.zeros(1), (w_hat - phi @ Theta.T)[0], phi[0])
    assert [len(piece) for piece in record.pieces] == [60, 200, 200, 41]
    for piece, own in zip(record.pieces, other.pieces, strict=True):
        assert begins(piece) == begins(own)
        for a, b in zip(piece, own, strict=True):
            for one, two in zip(a, b, strict=True):
                np.testing.assert_allclose(one, two, atol=1e-14)


def test_the_end_of_a_piece_is_forgotten_where_the_flaw_is_another() -> None:
    """A cart that meets the end of its rail: ŵ of the last steps is no wind."""
    w_hat, phi = closed_loop(1.3, SLOW)
    w_hat[-3:] += 5.0
    w_hat[100] += 5.0  # a gust in the middle stays
    found = flaw([w_hat], [phi], H, UNKNOWN)
    assert found is not None
    record = recorded(w_hat, phi)
    sizes = 1 / record.per_size
    record.amend(found.Theta)
    record.look(found.wind, found.a)
    assert len(record) == 397
    assert np.abs(record.pieces[0][100].w_hat) > 4.0
    assert 1 / record.per_size < sizes


def test_an_end_is_looked_at_once() -> None:
    """In noise every end is odd: a record must not wear away."""
    rng = np.random.default_rng(0)
    w_hat, phi = closed_loop(1.3, SLOW[:100] + rng.normal(0.0, 0.2, 100))
    record = recorded(w_hat, phi)
    wind, a = np.ones(1, dtype=bool), np.full((1, H), 1 / H)
    record.look(wind, a)
    once = len(record)
    assert 100 - 2 * H <= once < 100
    for _ in range(5):
        record.look(wind, a)
    assert len(record) == once


def test_what_is_left_of_an_error_is_no_wind() -> None:
    w_hat, phi = closed_loop(1.3, SLOW)
    error = phi[:, 1:] * 0.3
    found = flaw([np.concatenate([w_hat, error], 1)], [phi], H, np.ones(2, dtype=bool))
    assert found is not None
    assert found.wind.tolist() == [True, False]
    record = recorded(np.concatenate([w_hat, error], 1), phi)
    record.amend(found.Theta)
    record.look(found.wind, found.a)
    assert record.per_size[0] > 0
    assert record.per_size[1] == 0
    restored = Record(H, 2, 2, 8)
    restored.restore(record.arrays(), 1)
    np.testing.assert_array_equal(restored.per_size, record.per_size)


def test_what_hardly_moves_tells_nothing() -> None:
    w_hat, phi = closed_loop(1.3, SLOW)
    still = np.concatenate([phi, 1e-17 * np.random.default_rng(0).normal(size=(400, 1))], 1)
    found = flaw([w_hat], [still], H, UNKNOWN)
    assert found is not None
    assert found.Theta[0, 1] != 0
    assert found.Theta[0, 2] == 0


def test_discrete_actions_hold_no_constant() -> None:
    """Else a steady wind might be taken for the simulator's error."""
    policy = Drawn(gym.spaces.Discrete(3, start=2), lambda x: np.zeros((len(x), 3)))
    coded = policy.coded(np.array([2, 3, 4, 4]))
    np.testing.assert_allclose(coded.sum(axis=1), 0.0, atol=1e-6)
    assert len(np.unique(coded, axis=0)) == 3


def pendulum(scale: float, guard: bool = False) -> ww.RobustWrapper:
    """Replays that look for flaws, and never for M."""
    env = ww.envs.Disturbed(gym.make("Pendulum-v1"), "sine:amp=0.25,period=60", channel="qvel")
    return ww.RobustWrapper(
        env, signal="pd3", model=load_model("shipped", "Pendulum-v1"), seed=0, guard=guard,
        simulator={"scale": {"mass": scale}}, search=ww.adapt.Search(every=10_000, at_most=10_000),
    )  # fmt: skip


def run(env: ww.RobustWrapper, seed: int) -> np.ndarray:
    """ŵ of an episode."""
    seen = []
    act = ww.policies.predictor(load_model("shipped", "Pendulum-v1"), env.action_space)
    x, _ = env.reset(seed=seed)
    done = False
    while not done:
        x, _, terminated, truncated, info = env.step(act(x[None])[0])
        seen.append(info["windward"]["w_hat"])
        done = terminated or truncated
    return np.array(seen)


def test_a_wrong_mass_is_put_right_while_it_runs(tmp_path: Path) -> None:
    """ŵ becomes the wind alone in the second episode, and a file holds what was found."""
    env, right = pendulum(1.3), pendulum(1.0)
    late = slice(80, None)  # the policy has swung up: no speed is cut off any more
    before, wind = (run(each, 0)[late, 1] for each in (env, right))
    assert np.abs(before - wind).max() > 0.02
    assert any("the simulator is wrong" in each for each in env.decisions)
    after, wind = (run(each, 1)[late, 1] for each in (env, right))
    assert np.abs(after - wind).max() < 1e-4
    assert not right.decisions
    env.save(tmp_path / "module.npz")
    other = pendulum(1.3)
    other.load(tmp_path / "module.npz")
    np.testing.assert_array_equal(run(other, 2), run(env, 2))
    env._module.reset()
    np.testing.assert_array_equal(run(env, 0)[late, 1], before)


def test_where_the_world_has_changed_the_simulator_stays() -> None:
    """All of ŵ is its error then, and all that M can act on."""
    env = ww.envs.Disturbed(gym.make("Pendulum-v1"), "bias:value=0.7", channel="mass")
    model = load_model("shipped", "Pendulum-v1")
    search = ww.adapt.Search(every=10_000, at_most=10_000)
    wrapped = ww.RobustWrapper(env, "pd3", model=model, seed=0, search=search)
    for seed in range(3):
        seen = run(wrapped, seed)
    assert np.abs(seen).max() > 0.05
    assert not wrapped._module.teacher.amended.Theta.any()


def test_replays_that_fail_leave_no_M_of_another_w_hat(monkeypatch: pytest.MonkeyPatch) -> None:
    env = pendulum(1.3)
    teacher = env._module.teacher
    teacher.M = np.ones_like(teacher.M)
    env._module.engine.M = teacher.M
    monkeypatch.setattr(teacher, "update", lambda: 1 / 0)
    with pytest.warns(ww.Fault, match="ZeroDivisionError"):
        run(env, 0)
    assert teacher.amended.Theta.any()
    assert not teacher.M.any()
    assert not env.M.any()
