"""ŵ that can be told from its past, and a guard that waits for it."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt.guard import ANEW, Guard
from windward.adapt.predictable import LEAST, Predictable
from windward.adapt.record import Record
from windward.adapt.sources import Happened

BASE = ww.policies.load("Pendulum-v1")
T = np.arange(600)
RNG = np.random.default_rng(0)
WINDS = {
    "sine": np.sin(2 * np.pi * T / 63),
    "fast sine": np.sin(2 * np.pi * T / 4.3),
    "constant": np.full(600, 0.3),
    "walk": np.cumsum(RNG.normal(size=600)),
    "step": (T > 100).astype(float),
    "sine in noise": np.sin(2 * np.pi * T / 63) + 0.5 * RNG.normal(size=600),
}
NOISES = {
    "uniform": RNG.uniform(-1, 1, 600),
    "heavy tails": RNG.standard_t(2, 600),
    "bursts": RNG.normal(size=600) * (1 + 5 * (np.sin(T / 20) > 0.5)),
    "none": np.zeros(600),
}


def told(w: np.ndarray, scale: float = 1.0) -> float:
    past = Predictable(5, 1)
    for each in w:
        past.see(scale * each[None])
    return past.told


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("name", WINDS)
def test_winds_are_told(name: str, scale: float) -> None:
    assert told(WINDS[name], scale) > 0.3


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("name", NOISES)
def test_noise_is_not(name: str, scale: float) -> None:
    assert told(NOISES[name], scale) == 0.0


def test_noise_is_not_told_in_many_coordinates_whenever_one_looks() -> None:
    """The test is made at every step of a long run: no coordinate may pass it by chance."""
    past, rng = Predictable(5, 20), np.random.default_rng(1)
    for _ in range(5000):
        past.see(rng.uniform(-1, 1, 20))
        assert past.told == 0.0


def test_one_coordinate_among_many_is_enough() -> None:
    past, rng = Predictable(5, 20), np.random.default_rng(1)
    for t in T[:200]:
        w = rng.normal(size=20)
        w[7] = np.sin(2 * np.pi * t / 50)
        past.see(w)
    assert past.told > 0.8


def test_predictions_are_least_squares_of_the_past_alone() -> None:
    """The gain, by hand: weights of the steps before, refitted at every tenth prediction."""
    w, past = RNG.normal(size=80) + np.sin(T[:80] / 5), Predictable(3, 1)
    for each in w:
        past.see(each[None])
    Z = np.array([w[t - 3 : t][::-1] for t in range(3, 80)])
    gain = 0.0
    for i, t in enumerate(range(3, 80)):
        seen = i // 10 * 10
        gram = Z[:seen].T @ Z[:seen]
        ridge = 1e-3 * np.trace(gram) / 3 if seen else 1.0
        weights = np.linalg.solve(gram + ridge * np.eye(3), Z[:seen].T @ w[3 : 3 + seen])
        gain += w[t] ** 2 - (w[t] - Z[i] @ weights) ** 2
    np.testing.assert_allclose(past.gain[0], gain, rtol=1e-9)


def test_episodes_are_not_told_from_each_other() -> None:
    past = Predictable(5, 1)
    for t in range(10 * LEAST):
        if t % 5 == 0:
            past.cut()
        past.see(np.ones(1))
    assert past.predicted == 0  # no window was ever full
    assert past.told == 0.0


def test_huge_numbers_are_passed_over() -> None:
    past = Predictable(5, 1)
    for t, each in enumerate(WINDS["sine"][:200]):
        past.see(np.array([1e200 if t == 50 else each]))
    assert np.isfinite(past.gain).all()
    assert past.told > 0.9


@pytest.mark.parametrize("calm", [1e-4, 1e-9])
@pytest.mark.parametrize("onset", range(200, 210))
def test_a_wind_after_a_calm_is_told_whenever_it_begins(onset: int, calm: float) -> None:
    """Weights that were fitted to a calm and the first push are of any size."""
    w = np.where(onset > T, calm * np.random.default_rng(0).normal(size=600), 0.3)
    assert told(w) > 0.3


def test_one_glitch_does_not_make_a_guard_wait_for_ever() -> None:
    guard, t = Guard((5, 1)), 0
    while guard.waiting and t < 2 * ANEW:
        guard.feel(np.array([10.0 if t == 20 else 0.1 * np.sin(t / 10)]))
        t += 1
    assert ANEW < t < ANEW + 200


def test_returns_of_a_calm_are_not_held_against_what_is_adapted_in_a_wind() -> None:
    """The base policy earns -1 a step in the calm and -3 in the wind, adaptation -2."""
    guard, rng = Guard((5, 1)), np.random.default_rng(0)
    for episode in range(30):
        for t in range(100):
            windy = episode >= 12
            if guard.waiting:
                guard.feel(np.array([windy * np.sin(t / 5)]))
            adapts = not (guard.waiting or guard.resting)
            guard.step((-1.0 if not windy else -2.0 if adapts else -3.0) + 0.1 * rng.normal())
        assert not guard.end()
    assert len(guard.decisions) == 1
    assert "began to adapt" in guard.decisions[0]


def record(w: np.ndarray) -> Record:
    found = Record(5, 1, 1, 8)
    for each in w:
        found.add(np.zeros(2), each[None], np.zeros(1))
    return found


def test_replays_go_on_until_it_is_known_that_there_is_noise() -> None:
    few, many = NOISES["uniform"][: LEAST // 2], NOISES["uniform"]
    assert record(few).tells(LEAST)
    assert record(many).tells(len(many))
    assert not record(many).tells(LEAST)
    assert record(WINDS["sine"]).tells(LEAST)


def pendulum(wind: object, **options: object) -> ww.RobustWrapper:
    env = gym.make("Pendulum-v1")
    if wind is not None:
        env = ww.envs.Disturbed(env, wind, channel="qvel")  # type: ignore[arg-type]
    return ww.RobustWrapper(env, "pd3", **options)  # type: ignore[arg-type]


def play(env: gym.Env, episodes: int) -> list[dict[str, np.ndarray]]:
    told = []
    for i in range(episodes):
        x, _ = env.reset(seed=0 if i == 0 else None)
        over = False
        while not over:
            x, reward, terminated, truncated, info = env.step(BASE.predict(x)[0])
            told.append({"x": x, "reward": np.array(reward), **info.get("windward", {})})
            over = terminated or truncated
    return told


@pytest.mark.parametrize("wind", [None, ww.envs.Uniform(0.1)], ids=["calm", "noise"])
def test_without_a_wind_nothing_is_explored(wind: object) -> None:
    env = pendulum(wind)
    bare = env.env
    assert env.learner == "mf-gpc"
    adapted, alone = play(env, 3), play(bare, 3)
    assert all(each["resting"] and not each["noise"].any() for each in adapted)
    for a, b in zip(adapted, alone, strict=True):
        np.testing.assert_array_equal(a["x"], b["x"])
    assert not env.M.any()
    assert not env.decisions


def test_a_wind_ends_the_waiting_and_info_says_so() -> None:
    env = pendulum(ww.envs.Sinusoid(0.25, 63))
    steps = play(env, 2)
    (at,) = (i for i, each in enumerate(steps) if each["decided"])
    assert LEAST <= at < 150
    assert "began to adapt: the past tells" in env.decisions[0]
    assert all(each["resting"] for each in steps[: at + 1])
    assert not any(each["resting"] for each in steps[at + 1 :])
    assert any(each["noise"].any() for each in steps[at + 1 :])
    assert env.M.any()
    guard = env._module.guard
    assert len(guard.adapted) == 1  # the first episode was of both kinds
    assert guard.base == []


@pytest.mark.parametrize("options", [{"sigma": 0.1}, {"eta": 1e-4}, {"guard": False}])
def test_who_says_how_to_explore_does_not_wait(options: dict[str, object]) -> None:
    assert any(each["noise"].any() for each in play(pendulum(None, **options), 1)[:5])


@pytest.mark.parametrize("frozen", [False, True])
def test_who_sets_M_does_not_wait(frozen: bool) -> None:
    env = pendulum(ww.envs.Sinusoid(0.25, 63))
    if frozen:
        env.freeze()
    env.M = np.ones((5, 1, 2))
    if frozen:
        env.unfreeze()
    steps = play(env, 1)
    assert not any(each["resting"] for each in steps)
    assert any(each["noise"].any() for each in steps)
    guard = env._module.guard
    assert (len(guard.adapted), guard.base) == (1, [])
    env.reset_adaptation()
    assert env._module.waiting


def test_frozen_steps_are_no_part_of_the_past() -> None:
    env = pendulum(ww.envs.Uniform(0.1))
    x, _ = env.reset(seed=0)
    for t in range(90):
        if t == 30:
            env.freeze()
        elif t == 60:
            env.unfreeze()
        x, *_ = env.step(BASE.predict(x)[0])
    assert env._module.guard._past.predicted == 2 * (30 - 5)


@pytest.mark.parametrize("steps", [40, 120])
def test_a_file_goes_on(steps: int, tmp_path: Path) -> None:
    env, again = (pendulum(ww.envs.Sinusoid(0.25, 63), seed=1) for _ in range(2))
    x, _ = env.reset(seed=3)
    for _ in range(steps):
        x, *_ = env.step(BASE.predict(x)[0])
    env.save(tmp_path / "state.npz")
    again.load(tmp_path / "state.npz")
    assert repr(again._module.guard.memory()) == repr(env._module.guard.memory())
    assert again._module.waiting == env._module.waiting == (steps == 40)


def test_a_file_of_one_who_does_not_wait_is_refused(tmp_path: Path) -> None:
    same = {"learner": "mf-gpc", "baseline": "none"}
    env, other = pendulum(None, **same), pendulum(None, **same, sigma=0.2)
    other.reset(seed=0)
    other.save(tmp_path / "state.npz")
    with pytest.raises(ValueError, match="does not fit in 'guard'"):
        env.load(tmp_path / "state.npz")


def test_auto_takes_the_best_that_can_be_had() -> None:
    def taken(**options: object) -> tuple[str, bool]:
        env = ww.RobustWrapper(gym.make("Pendulum-v1"), **options)  # type: ignore[arg-type]
        return env.learner, env._module.guard is None

    assert taken(signal="pd3", model=BASE, search=ww.adapt.Search()) == ("replay", True)
    assert taken(signal="pd2", model=BASE) == ("advantage", False)
    assert taken(signal="pd3") == ("mf-gpc", False)
    assert taken(signal="pd3", model=BASE, simulator={"noisy": True})[0] == "advantage"
    assert taken(signal="pd2", model=BASE, eta=1e-4)[0] == "mf-gpc"
    assert taken(signal="pd2", model=BASE, lam=0.5)[0] == "advantage"
    assert taken(signal="pd3", model=BASE, delay=1)[0] == "advantage"  # replays know no delay
    values = ww.fit_values("Pendulum-v1", BASE, steps=100, updates=1)
    assert taken(signal="pd3", model=values)[0] == "advantage"  # no policy to replay


class Same:
    """Values that are the same everywhere."""

    gamma = 0.9

    def __init__(self, value: float) -> None:
        self.value = value

    def V(self, x: np.ndarray) -> np.ndarray:
        return np.full(len(x), self.value)

    def Q(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        return self.V(x)


def test_pd1_keeps_its_own_values_where_auto_finds_others_in_the_model() -> None:
    env = ww.RobustWrapper(gym.make("Pendulum-v1"), ww.PD1(Same(1.0)), model=Same(5.0))
    assert env.learner == "advantage"
    x, no = np.zeros((1, 3)), np.zeros(1, bool)
    step = Happened(x, np.zeros((1, 1)), np.zeros(1), x, no, no)
    assert {each.item() for each in env._module.source.after(step).values()} == {-1.0}


def test_auto_leaves_what_was_given() -> None:
    """lam of the advantages, which auto would take to be 0.9."""

    def learning(**options: object) -> object:
        env = ww.RobustWrapper(gym.make("Pendulum-v1"), "pd2", model=BASE, **options)  # type: ignore[arg-type]
        return env._module.engine.algorithm.observe

    asked = {"learner": "advantage", "baseline": "regression"}
    assert learning(lam=0.1) is learning(**asked, lam=0.1)
    assert learning() is learning(**asked, lam=0.9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wind", "stays"), [(ww.envs.Uniform(0.1), False), (ww.envs.Sinusoid(0.25, 63), True)]
)
def test_replays_that_found_something_in_noise_step_back(wind: object, stays: bool) -> None:
    env = pendulum(wind, model=BASE, learner="replay")
    teacher = env._module.teacher
    play(env, 1)
    teacher.M = np.full(teacher.M.shape, 1e-3)
    teacher.update()
    assert "the past tells nothing" not in " ".join(teacher.decisions)  # one episode is too little
    play(env, 1)
    teacher.M = np.full(teacher.M.shape, 1e-3)
    teacher.update()
    assert ("the past tells nothing" in teacher.decisions[-1]) is not stays
    assert teacher.M.any() == stays
