"""Who moves little is disturbed by little: noise is sized by the base policy's own actions."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt.trials import Trials, TrialSettings

S = TrialSettings()


class Gentle:
    """Torques of a given size, in turn to the left and to the right."""

    def __init__(self, size: float) -> None:
        self.size, self.sign = 2.0 * size, 1.0  # Pendulum's torques go from -2 to 2

    def __call__(self) -> np.ndarray:
        self.sign = -self.sign
        return np.array([self.sign * self.size], dtype=np.float32)


def wrapped(**options: object) -> ww.RobustWrapper:
    env = ww.envs.Disturbed(gym.make("Pendulum-v1"), ww.envs.Sinusoid(0.25, 63), channel="qvel")
    return ww.RobustWrapper(env, "pd3", **{"learner": "mf-gpc", **options})  # type: ignore[arg-type]


def learner_of(env: ww.RobustWrapper) -> Any:
    return env._runtime.learner


def trials_of(env: ww.RobustWrapper) -> Trials:
    found: Trials = learner_of(env).trials
    return found


def play(env: ww.RobustWrapper, act: Gentle, steps: int, seed: int | None = 0) -> np.ndarray:
    """The noise of all steps."""
    noise, over = [], False
    env.reset(seed=seed)
    for _ in range(steps):
        if over:
            env.reset()
        *_, terminated, truncated, info = env.step(act())
        noise.append(info["windward"]["noise"])
        over = terminated or truncated
    return np.array(noise)


@pytest.mark.parametrize("learner", ["mf-gpc", "quadratic", "response", "residual-feedback"])
def test_noise_is_a_share_of_what_the_base_policy_does(learner: str) -> None:
    options = {"learner": learner} | ({"baseline": "mean"} if learner == "mf-gpc" else {})
    little, usual = wrapped(**options), wrapped(**options)
    small, large = play(little, Gentle(0.05), 200), play(usual, Gentle(1.0), 200)
    assert trials_of(little).reach == pytest.approx(0.05 * S.reach)
    assert trials_of(usual).reach == 1.0
    assert "with 10 % of the usual noise" in little.decisions[0]
    assert "usual noise" not in usual.decisions[0]
    begun = max(np.flatnonzero(each.any(axis=1))[0] for each in (small, large))
    np.testing.assert_allclose(small[begun:], 0.1 * large[begun:], rtol=1e-5)


def test_steps_go_with_the_noise() -> None:
    """Of the paper's update too, whose steps are as 1/σ."""
    moved = {}
    for share in (1.0, 0.1):
        for options in (
            {"learner": "mf-gpc"},
            {"learner": "residual-feedback"},
            {"learner": "quadratic"},
        ):
            env = wrapped(**options)
            trials_of(env).trust()
            learner_of(env).engine.scale(share)
            play(env, Gentle(0.0), 199)
            moved[options["learner"], share] = np.abs(env.M).max()
    for learner in ("mf-gpc", "residual-feedback", "quadratic"):
        assert 0.03 < moved[learner, 0.1] / moved[learner, 1.0] < 0.4


def test_what_was_withdrawn_begins_with_the_same_noise() -> None:
    env = wrapped(baseline="regression")
    play(env, Gentle(0.05), 150)
    engine = learner_of(env).engine
    sigma = float(engine.state.learner.hyper["sigma"])
    engine.forget()
    assert float(engine.state.learner.hyper["sigma"]) == pytest.approx(0.1 * 0.2)
    assert sigma <= 0.1 * 0.2
    env.reset_adaptation()
    assert float(engine.state.learner.hyper["sigma"]) == pytest.approx(0.2)
    assert trials_of(env).reach == 1.0


def test_a_file_of_the_usual_noise_brings_it_back(tmp_path: Path) -> None:
    env, usual = wrapped(), wrapped()
    play(env, Gentle(0.05), 150)
    play(usual, Gentle(1.0), 150)
    usual.save(tmp_path / "state.npz")
    env.load(tmp_path / "state.npz")
    assert learner_of(env).engine.algorithm.hyper == learner_of(usual).engine.algorithm.hyper
    np.testing.assert_array_equal(*(play(each, Gentle(0.05), 100, 3) for each in (env, usual)))
    learner_of(env).engine.forget()
    assert float(learner_of(env).engine.state.learner.hyper["sigma"]) == pytest.approx(0.2)


@pytest.mark.filterwarnings("ignore::windward.adapt.faults.Fault")
@pytest.mark.parametrize("size", [0.0, np.nan, np.inf, 1e38])
def test_odd_actions_have_a_reach_too(size: float) -> None:
    env = wrapped()
    play(env, Gentle(size), 200)
    assert S.least_reach <= trials_of(env).reach <= 1.0
