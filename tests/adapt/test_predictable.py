"""ŵ that can be told from its past, and a learner that waits for it."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt.predictable import LEAST, Predictable
from windward.adapt.sources import Happened
from windward.adapt.trials import Trials

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


def pendulum(wind: object, **options: object) -> ww.RobustWrapper:
    env = gym.make("Pendulum-v1")
    if wind is not None:
        env = ww.envs.Disturbed(env, wind, channel="qvel")  # type: ignore[arg-type]
    return ww.RobustWrapper(env, "pd3", **options)  # type: ignore[arg-type]


def trials_of(env: ww.RobustWrapper) -> Trials:
    found: Trials = env._runtime.learner.trials  # type: ignore[attr-defined]
    return found


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
    (said,) = env.decisions  # of the learner alone
    assert said.startswith("learner 'auto' takes 'mf-gpc'")
    assert env.phase == "observe"


def test_a_wind_ends_the_waiting_and_info_says_so() -> None:
    env = pendulum(ww.envs.Sinusoid(0.25, 63))
    steps = play(env, 2)
    (at,) = (i for i, each in enumerate(steps) if each["decided"])
    assert LEAST <= at < 150
    assert "began to adapt: its past predicts" in env.decisions[1]  # after the learner's name
    assert all(each["resting"] for each in steps[: at + 1])
    assert not any(each["resting"] for each in steps[at + 1 :])
    assert any(each["noise"].any() for each in steps[at + 1 :])
    assert env.M.any()
    trials = trials_of(env)
    assert len(trials.adapted) == 1  # the first episode was of both kinds
    assert trials.base == []


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        ({"sigma": 0.1, "eta": 1e-4}, True),
        ({"guard": False}, False),
        ({"M0": np.zeros((5, 1, 2))}, False),
    ],
    ids=["sigma", "guard", "M0"],
)
def test_only_a_guard_waits_and_not_for_an_M_that_was_given(
    options: dict[str, object], waits: bool
) -> None:
    env = pendulum(None, **options)
    env.reset(seed=0)
    told = [env.step(np.zeros(1, np.float32))[4]["windward"] for _ in range(5)]
    assert all(each["resting"] == waits for each in told)
    assert any(each["noise"].any() for each in told) != waits


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
    trials = trials_of(env)
    assert (len(trials.adapted), trials.base) == (1, [])
    env.reset_adaptation()
    assert trials.waiting


def test_frozen_steps_are_no_part_of_the_past() -> None:
    env = pendulum(ww.envs.Uniform(0.1))
    x, _ = env.reset(seed=0)
    for t in range(90):
        if t == 30:
            env.freeze()
        elif t == 60:
            env.unfreeze()
        x, *_ = env.step(BASE.predict(x)[0])
    assert trials_of(env)._past.predicted == 2 * (30 - 5)


@pytest.mark.parametrize("steps", [40, 120])
def test_a_file_goes_on(steps: int, tmp_path: Path) -> None:
    env, again = (pendulum(ww.envs.Sinusoid(0.25, 63), seed=1) for _ in range(2))
    x, _ = env.reset(seed=3)
    for _ in range(steps):
        x, *_ = env.step(BASE.predict(x)[0])
    env.save(tmp_path / "state.npz")
    again.load(tmp_path / "state.npz")
    assert repr(trials_of(again).memory()) == repr(trials_of(env).memory())
    assert trials_of(again).waiting == trials_of(env).waiting == (steps == 40)


def test_a_file_of_one_who_does_not_wait_is_refused(tmp_path: Path) -> None:
    env, other = pendulum(None), pendulum(None, guard=False)
    other.reset(seed=0)
    other.save(tmp_path / "state.npz")
    with pytest.raises(ValueError, match="guarded = False"):
        env.load(tmp_path / "state.npz")


def test_auto_takes_the_best_that_can_be_had() -> None:
    def taken(**options: object) -> str:
        return ww.RobustWrapper(gym.make("Pendulum-v1"), **options).learner  # type: ignore[arg-type]

    assert taken(signal="pd3", model=BASE) == "auto"  # in the world as it is diagnosed
    assert taken(signal="pd2", model=BASE) == "advantage"
    assert taken(signal="pd3") == "mf-gpc"
    assert taken(signal="pd3", model=BASE, simulator={"noisy": True}) == "advantage"
    assert taken(signal="pd2", model=BASE, eta=1e-4) == "advantage"
    assert taken(signal="pd2", model=BASE, lam=0.5) == "advantage"
    assert taken(signal="pd3", model=BASE, preset="paper") == "mf-gpc"
    values = ww.fit_values("Pendulum-v1", BASE, steps=50, updates=1, widths=(4,))
    assert taken(signal="pd3", model=values) == "advantage"  # no policy to simulate
    with pytest.raises(ValueError, match=r"delay= means nothing to learner 'auto'.*'mf-gpc'"):
        taken(signal="pd3", model=BASE, delay=1)


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
    assert {each.item() for each in env._runtime.learner.source.after(step).values()} == {-1.0}


def test_auto_leaves_what_was_given() -> None:
    """lam of the advantages, which auto would take to be 0.9."""

    def learning(**options: object) -> object:
        env = ww.RobustWrapper(gym.make("Pendulum-v1"), "pd2", model=BASE, **options)  # type: ignore[arg-type]
        return env._runtime.learner.engine.algorithm.observe

    asked = {"learner": "advantage", "baseline": "regression"}
    assert learning(lam=0.1) is learning(**asked, lam=0.1)
    assert learning() is learning(**asked, lam=0.9)
