"""Values and base policies in files."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.policies.networks import init_mlp, plain_numpy
from windward.policies.shipped import load_base, save_base

SMALL: dict[str, Any] = {"steps": 60, "updates": 20, "widths": (8,)}


def swing(x: np.ndarray) -> np.ndarray:
    return np.array([-x[1]])


@pytest.fixture(scope="module")
def values() -> ww.policies.Values:
    return ww.fit_values("Pendulum-v1", swing, **SMALL)


def test_values_come_back_as_they_were(tmp_path: Path, values: ww.policies.Values) -> None:
    ww.save_values(values, tmp_path / "values.npz")
    env = gym.make("Pendulum-v1")
    back = ww.load_values(tmp_path / "values.npz", env, swing)
    x, u = np.ones((4, 3)), np.ones((4, 1))
    np.testing.assert_array_equal(back.Q(x, u), values.Q(x, u))
    np.testing.assert_array_equal(back.V(x), values.V(x))
    assert back.gamma == values.gamma
    assert back.fit.relative == values.fit.relative
    assert not back.online


def test_values_of_another_environment_are_refused(
    tmp_path: Path, values: ww.policies.Values
) -> None:
    ww.save_values(values, tmp_path / "values.npz")
    with pytest.raises(ValueError, match=r"observations with 3 numbers; here they have 4"):
        ww.load_values(tmp_path / "values.npz", gym.make("InvertedPendulum-v5"), swing)
    with pytest.raises(ValueError, match="no file"):
        ww.load_values(tmp_path / "other.npz", gym.make("Pendulum-v1"), swing)


def test_a_discrete_policy_comes_back_with_logits_and_value(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    env = gym.make("CartPole-v1")

    def plain(*sizes: int) -> dict[str, np.ndarray]:
        params = init_mlp(rng, sizes)
        return {name: each for name, each in params.items() if name[0] in "wb"}

    networks = {"policy": plain(4, 8, 2), "state_value": plain(4, 8, 1)}
    fitted = ww.fit_values(env, lambda x: int(x[2] > 0), **SMALL)
    about = {"algorithm": "none", "return": 9.0, "episodes": 1}
    save_base(tmp_path / "base.npz", networks, fitted, env, about)
    policy = load_base(tmp_path / "base.npz")
    x = rng.standard_normal((6, 4)).astype(np.float32)
    half = {name: each.astype(np.float16).astype(np.float32) if each.ndim == 2 else each
            for name, each in networks["policy"].items()}  # fmt: skip
    np.testing.assert_allclose(policy.logits(x), plain_numpy(half, x), rtol=1e-6)
    actions, state = policy.predict(x)
    np.testing.assert_array_equal(actions, policy.logits(x).argmax(axis=1))
    assert state is None
    assert policy.predict(x[0])[0] == actions[0]
    assert policy.state_value(x).shape == policy.critic.V(x).shape == (6,)
    assert policy.vector.V(x).shape == (6, 4)
    assert policy.about["algorithm"] == "none"
    with pytest.raises(ValueError, match=r"must have shape \(4,\); got \(3,\)"):
        policy.predict(np.zeros(3))
