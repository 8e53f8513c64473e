"""Numbered actions: matching tries each of them, a residual is a preference for each of them."""

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt.corrections import Carry, Choice, Choices, Residual
from windward.adapt.proposers.search import SearchSettings

from .worlds import assert_same, drive

CART = ww.policies.load("CartPole-v1")
SINE = "sine:amp=8,period=80,phase=random"
FOUR = Choices(3, 4)
B = np.random.default_rng(0).normal(size=(4, 2))
ROOT = np.array([[2.0, 0.3], [0.0, 0.5]])


class Table:
    """x' = x + row of B for the action's number; 0.6 of it where the world changed, and wind."""

    d_x, axes = 2, 2

    def advance(self, changed: Any, x: Any, u: Any, wind: Any = None) -> np.ndarray:
        share = np.where(np.asarray(changed), 0.6, 1.0)[:, None]
        moved = np.asarray(x) + share * B[np.asarray(u).astype(int) - 3]
        return np.asarray(moved if wind is None else moved + wind)

    def gap(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x - y


def carry(n: int, debt: Any = 0.0) -> Carry:
    return Carry(
        np.zeros((n, 4)), np.zeros((n, 0, 0)), np.zeros((n, 2)), np.full((n, 2), 0.0) + debt
    )


def chosen(base: np.ndarray, wind: np.ndarray, damping: float, kept: float, owed: Any) -> Any:
    x = np.arange(2.0 * len(base)).reshape(-1, 2)
    made = Choice(FOUR, ROOT, damping, kept)
    return made.act(Table(), x, x, base, wind, carry(len(base), owed))  # type: ignore[arg-type]


@pytest.mark.parametrize(("damping", "kept"), [(0.0, 0.0), (0.5, 0.0), (0.05, 0.9)])
def test_the_best_of_all_actions_is_taken(damping: float, kept: float) -> None:
    rng = np.random.default_rng(1)
    base, wind = rng.integers(3, 7, (60, 1)).astype(float), rng.normal(size=(60, 2))
    owed = rng.normal(size=(60, 2))
    found, after = chosen(base, wind, damping, kept, owed)
    others = 0
    for i in range(60):
        own = int(base[i, 0]) - 3
        left = [0.6 * B[a] + wind[i] - B[own] + kept * owed[i] for a in range(4)]
        cost = [np.square(ROOT @ e).sum() + damping * (a != own) for a, e in enumerate(left)]
        best = int(np.argmin(cost))
        assert found[i, 0] == best + 3
        np.testing.assert_allclose(after.debt[i], left[best], atol=1e-12)
        np.testing.assert_array_equal(after.delta[i], np.eye(4)[best] - np.eye(4)[own])
        others += best != own
    assert 5 < others < 60


def test_even_actions_leave_the_base_action() -> None:
    made = Choice(FOUR, np.zeros((2, 2)), 0.0, 0.0)
    base, x = np.array([[3.0], [6.0]]), np.zeros((2, 2))
    found, _ = made.act(Table(), x, x, base, None, carry(2))  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, base)
    np.testing.assert_array_equal(FOUR.moved(base, np.zeros((2, 4))), base)
    # One more for another action is even with 1 for the base action.
    np.testing.assert_array_equal(FOUR.moved(base, np.eye(4)[[1, 1]]), base)
    np.testing.assert_array_equal(FOUR.moved(base, 1.01 * np.eye(4)[[1, 2]]), [[4.0], [5.0]])


def test_half_a_push_is_made_up_for_by_a_sequence() -> None:
    """With actions ±1 and a wind of 0.5: without what is owed nothing is done, with it the mean."""
    two = Choices(0, 2)

    class Push:
        """x' = x ± 1 + wind."""

        d_x, axes = 1, 1

        def advance(self, changed: Any, x: Any, u: Any, wind: Any = None) -> np.ndarray:
            moved = np.asarray(x) + np.where(np.asarray(u) == 1, 1.0, -1.0)[:, None]
            return np.asarray(moved if wind is None else moved + wind)

        gap = Table.gap

    means = {}
    for kept in (0.0, 1.0):
        own = Carry(np.zeros((1, 2)), np.zeros((1, 0, 0)), np.zeros((1, 1)), np.zeros((1, 1)))
        pushed = []
        for t in range(40):
            base = np.array([[float(t % 2)]])
            x, w = np.zeros((1, 1)), np.full((1, 1), 0.5)
            u, own = Choice(two, np.eye(1), 0.0, kept).act(Push(), x, x, base, w, own)  # type: ignore[arg-type]
            pushed.append(2 * float(u[0, 0]) - 1 - (2 * float(base[0, 0]) - 1))
        means[kept] = np.mean(pushed)
    assert means[0.0] == 0.0
    assert means[1.0] == pytest.approx(-0.5, abs=0.06)


def test_a_residual_is_a_preference() -> None:
    rng = np.random.default_rng(2)
    width = 2 + 4 + 1
    like = Residual(
        FOUR, rng.normal(size=(width, 4)), np.zeros(2), np.ones(2), np.zeros(0),
        np.zeros((0, 0)), 1.5, None,
    )  # fmt: skip
    base, x = rng.integers(3, 7, (30, 1)).astype(float), rng.normal(size=(30, 2))
    found, _ = like.act(Table(), x, x, base, None, carry(30))  # type: ignore[arg-type]
    for i in range(30):
        hot = np.eye(4)[int(base[i, 0]) - 3]
        z = np.concatenate([np.clip(x[i], -3, 3), hot, [1.0]])
        wanted = hot + np.clip(z @ like.weights, -1.5, 1.5)
        assert found[i, 0] == wanted.argmax() + 3
    zero = like._replace(weights=np.zeros((width, 4)))
    np.testing.assert_array_equal(
        zero.act(Table(), x, x, base, None, carry(30))[0],  # type: ignore[arg-type]
        base,
    )


# In a wrapper.


def policy(x: np.ndarray) -> Any:
    return CART.predict(x, deterministic=True)[0]


def made(wind: str | None = SINE, **options: Any) -> ww.RobustWrapper:
    env: gym.Env = gym.make("CartPole-v1")
    if wind is not None:
        env = ww.envs.Disturbed(env, wind, "force:cart")
    return ww.RobustWrapper(env, **{"model": CART, "learner": "matching", **options})


def ran(env: gym.Env, steps: int, seed: int | None = 0) -> list[Any]:
    x, _ = env.reset(seed=seed)
    return drive(env, policy, steps, x)[0]


def test_nothing_changed_is_the_agents_own_object() -> None:
    env = made(None)
    x, _ = env.reset(seed=0)
    given: list[Any] = []
    inner = env.env.step

    def step(action: Any) -> Any:
        given.append(action)
        return inner(action)

    env.env.step = step  # type: ignore[method-assign]
    for t in range(120):
        mine = policy(x) if t % 2 else int(policy(x))
        x, *_ = env.step(mine)
        assert given[-1] is mine
    assert not env.decisions
    assert not env.faults


def test_it_balances_in_the_first_episode_where_the_base_falls() -> None:
    base, adapted = [], []
    for seed in (5000, 5002):
        for totals, env in ((base, made().env), (adapted, made(seed=seed))):
            x, _ = env.reset(seed=seed)
            total, over = 0.0, False
            while not over:
                x, reward, terminated, truncated, _ = env.step(policy(x))
                total, over = total + float(reward), terminated or truncated
            totals.append(total)
    assert np.mean(base) < 300
    assert min(adapted) == 500


@pytest.mark.parametrize("known", ["model", "logits", "function"])
def test_actions_are_of_the_space_and_the_same_seed_gives_the_same(known: str) -> None:
    given: dict[str, Any] = {
        "model": {"model": CART}, "logits": {"model": None, "logits": CART},
        "function": {"model": None, "logits": CART.logits},
    }[known]  # fmt: skip
    told = [ran(made(**given, seed=3), 90) for _ in range(2)]
    assert_same(*told)
    actions = [each["action"] for each in told[0]]
    assert all(each in (0, 1) and np.asarray(each).dtype == np.int64 for each in actions)
    assert any(each["correction"].any() for each in told[0])


def test_it_goes_on_from_a_file_and_from_a_copy(tmp_path: Path) -> None:
    env = made(seed=1)
    ran(env, 70)
    assert isinstance(env.correction, Choice)
    env.save(tmp_path / "state.npz")
    twin = made(seed=1)
    twin.load(tmp_path / "state.npz")
    copied = copy.deepcopy(env)
    told = [ran(each, 60, 5) for each in (env, twin, copied)]
    assert_same(told[0], told[1])
    assert_same(told[0], told[2])
    assert any(each["correction"].any() for each in told[0])


def test_a_vector_of_two() -> None:
    def world() -> gym.Env:
        return ww.envs.Disturbed(gym.make("CartPole-v1"), SINE, "force:cart")

    vector = gym.vector.SyncVectorEnv([world, world])
    env = ww.RobustVectorWrapper(vector, model=CART, learner="matching")
    x, _ = env.reset(seed=0)
    for _ in range(120):
        x, *_, info = env.step(CART.predict(x, deterministic=True)[0])
    assert env.correction is not None
    assert not env.faults
    assert info["windward"]["action"].shape == (2,)


def test_bad_actions_never_reach_the_world() -> None:
    env = made(seed=1)
    ran(env, 70)
    env.reset(seed=3)
    with pytest.warns(ww.Fault, match="the base action is not usable"):
        actions = [env.step(np.int64(base))[4]["windward"]["action"] for base in (7, -3, 10**9)]
    assert set(actions) <= {0, 1}
    assert env.faults["action"] == 3


@pytest.mark.slow
def test_a_search_finds_preferences() -> None:
    """Without matching: from zero, in the world with the wind."""
    small = SearchSettings(generations=12, trial=4, starts=4)
    env = made(learner="search", search=small, seed=0)
    x, _ = env.reset(seed=5000)
    totals: list[float] = []
    total = 0.0
    while len(totals) < 4:
        x, reward, terminated, truncated, _ = env.step(policy(x))
        total += float(reward)
        if terminated or truncated:
            totals.append(total)
            x, _ = env.reset()
            total = 0.0
    assert isinstance(env.correction, Residual)
    assert np.mean(totals[1:]) > 1.5 * totals[0]


REFUSED = [
    ({"model": None}, r"learner 'matching' cannot be had.*pass model="),
    ({"model": object()}, r"learner 'matching' cannot be had.*no predict"),
    ({"sigma": 0.1}, r"sigma= means nothing"),
]


@pytest.mark.parametrize(("options", "match"), REFUSED)
def test_what_cannot_be_had_is_said(options: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        made(**options)
