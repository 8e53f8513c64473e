"""What windward sees through, what it refuses, and what it says then."""

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers

from windward.envs import Disturbed
from windward.simulators import Unsupported, simulator
from windward.simulators.wrappers import (
    act_through,
    chain,
    check_inside,
    maps,
    nominal_parameters,
    observe_through,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*Box (low|high).*:UserWarning")


def pendulum() -> gym.Env:
    return gym.make("Pendulum-v1").unwrapped


class Plain(gym.Wrapper):
    """Overrides nothing."""


class Recorder(gym.Wrapper):
    """Leaves everything alone, and says so."""

    see_through = True

    def step(self, action: Any) -> Any:
        return self.env.step(action)


class Steps(gym.Wrapper):
    """Overrides step, and says nothing."""

    def step(self, action: Any) -> Any:
        return self.env.step(action)


class Halved(gym.ActionWrapper):
    def action(self, action: Any) -> Any:
        return 0.5 * action


class Shifted(gym.ActionWrapper):
    def action(self, action: Any) -> Any:
        return action + 1.0


class Doubled(gym.ObservationWrapper):
    def observation(self, observation: Any) -> Any:
        return 2.0 * observation


class Raised(gym.ObservationWrapper):
    def observation(self, observation: Any) -> Any:
        return observation + 1.0


class Paid(gym.RewardWrapper):
    def reward(self, reward: Any) -> Any:
        return 3.0 * reward


def test_a_chain_runs_from_the_outermost_wrapper_inwards() -> None:
    env = Halved(Doubled(Plain(pendulum())))
    assert [type(layer) for layer in chain(env)] == [Halved, Doubled, Plain]
    assert list(chain(pendulum())) == []


def test_a_chain_has_what_gymnasium_puts_around_an_environment() -> None:
    kinds = [type(layer) for layer in chain(gym.make("Pendulum-v1"))]
    assert kinds == [wrappers.TimeLimit, wrappers.OrderEnforcing, wrappers.PassiveEnvChecker]


@pytest.mark.parametrize(
    ("wrap", "what"),
    [
        (Halved, "action"),
        (wrappers.ClipAction, "action"),
        (lambda env: wrappers.RescaleAction(env, -1.0, 1.0), "action"),
        (lambda env: wrappers.TransformAction(env, lambda a: a, env.action_space), "action"),
        (Doubled, "observation"),
        (wrappers.FlattenObservation, "observation"),
        (lambda env: wrappers.DtypeObservation(env, np.float32), "observation"),
        (lambda env: wrappers.TransformObservation(env, lambda o: o, None), "observation"),
        (Paid, "reward"),
        (lambda env: wrappers.ClipReward(env, -1.0, 1.0), "reward"),
        (Plain, ""),
        (Recorder, ""),
        (lambda env: wrappers.TimeLimit(env, 10), ""),
        (wrappers.OrderEnforcing, ""),
        (wrappers.PassiveEnvChecker, ""),
        (wrappers.RecordEpisodeStatistics, ""),
        (lambda env: Disturbed(env, "uniform:bound=0.1", "qpos"), ""),
    ],
)
def test_what_a_layer_maps(wrap: Any, what: str) -> None:
    assert maps(wrap(pendulum())) == what


@pytest.mark.parametrize(
    "wrap",
    [
        Steps,
        wrappers.Autoreset,
        wrappers.NormalizeObservation,
        wrappers.NormalizeReward,
        wrappers.TimeAwareObservation,
        lambda env: wrappers.FrameStackObservation(env, 2),
        lambda env: wrappers.DelayObservation(env, 1),
        lambda env: wrappers.StickyAction(env, 0.5),
        lambda env: wrappers.MaxAndSkipObservation(env, 2),
    ],
)
def test_a_refusal_names_the_wrapper_and_says_what_to_do(wrap: Any) -> None:
    layer = wrap(gym.make("Pendulum-v1"))
    with pytest.raises(Unsupported, match=rf"{type(layer).__name__}.*outside.*see_through = True"):
        maps(layer)


def test_a_refusal_is_a_value_error() -> None:
    assert issubclass(Unsupported, ValueError)


@pytest.mark.parametrize("base", [gym.ActionWrapper, gym.ObservationWrapper, gym.RewardWrapper])
def test_a_map_that_overrides_step_as_well_is_refused(base: Any) -> None:
    kind = type("Sly", (base,), {"step": Steps.step})
    with pytest.raises(Unsupported, match="Sly"):
        maps(kind(pendulum()))


def test_a_subclass_of_a_passive_wrapper_that_overrides_step_is_refused() -> None:
    own = type("Own", (wrappers.TimeLimit,), {"step": Steps.step})
    with pytest.raises(Unsupported, match="Own"):
        maps(own(pendulum(), 10))


def test_see_through_false_is_no_promise() -> None:
    closed = type("Closed", (Steps,), {"see_through": False})
    with pytest.raises(Unsupported, match="Closed"):
        maps(closed(pendulum()))


def test_actions_pass_from_the_outermost_layer_inwards() -> None:
    layers = list(chain(Halved(Recorder(Doubled(Shifted(pendulum()))))))
    assert act_through(layers, np.array([4.0])).tolist() == [3.0]  # 4/2 + 1
    layers = list(chain(Shifted(Halved(pendulum()))))
    assert act_through(layers, np.array([4.0])).tolist() == [2.5]  # (4 + 1)/2


def test_observations_pass_from_the_innermost_layer_outwards() -> None:
    layers = list(chain(Doubled(Halved(Raised(pendulum())))))
    assert observe_through(layers, np.array([4.0])).tolist() == [10.0]  # (4 + 1)·2
    layers = list(chain(Raised(Doubled(pendulum()))))
    assert observe_through(layers, np.array([4.0])).tolist() == [9.0]  # 4·2 + 1


def test_without_layers_nothing_changes() -> None:
    assert act_through([], 7) == 7
    assert observe_through([], 7) == 7


def test_what_passes_is_what_the_environment_gets_and_shows() -> None:
    env = Halved(Doubled(Shifted(Raised(pendulum()))))
    env.reset(seed=0)
    inner = pendulum()
    inner.reset(seed=0)
    layers = list(chain(env))
    action = np.array([0.6])
    seen = env.step(action)[0]
    assert np.allclose(
        observe_through(layers, inner.step(act_through(layers, action))[0]), seen, atol=1e-12
    )


def test_a_disturbed_observation_is_looked_at_again_with_the_same_disturbance() -> None:
    env = Disturbed(pendulum(), "uniform:bound=0.1", "observation")
    env.reset(seed=0)
    seen = env.step(np.zeros(1))[0]
    plain = env.unwrapped._get_obs()
    assert not np.array_equal(seen, plain)
    assert np.array_equal(observe_through(list(chain(env)), plain), seen)


@pytest.mark.parametrize("wrap", [wrappers.RecordEpisodeStatistics, Steps])
def test_recorders_and_what_cannot_be_seen_through_are_refused_inside(wrap: Any) -> None:
    with pytest.raises(Unsupported, match=rf"{wrap.__name__}.*outside"):
        check_inside(list(chain(Halved(wrap(pendulum())))))


@pytest.mark.parametrize("channel", ["qpos", "qvel", "state"])
def test_a_recorder_inside_a_disturbance_of_the_state_is_refused(channel: str) -> None:
    with pytest.raises(Unsupported, match=r"RecordEpisodeStatistics.*outside, around Disturbed"):
        Disturbed(wrappers.RecordEpisodeStatistics(pendulum()), "uniform:bound=0.1", channel)


def test_maps_limits_and_disturbances_are_fine_inside() -> None:
    inner = Disturbed(Doubled(pendulum()), "uniform:bound=0.1", "action")
    check_inside(list(chain(wrappers.TimeLimit(Halved(Paid(inner)), 10))))


class Windy(gym.Wrapper):
    """Disturbs in a way of its own, and offers simulators what they ask of a wrapper that does."""

    see_through = True
    nominal_parameters = None

    def fresh_noise(self, rng: np.random.Generator) -> Any:
        return [(SimpleNamespace(name="qvel", stage="state", part="qvel"), Drawn(rng))]


class Drawn:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def next(self, n: int) -> np.ndarray:
        return self.rng.normal(size=(n, 1))

    def memory(self) -> dict[str, Any]:
        return {}

    def remember(self, memory: dict[str, Any]) -> None:
        """Nothing is kept."""


def test_a_simulator_redraws_the_noise_that_a_wrapper_of_ones_own_offers() -> None:
    env = Windy(pendulum())
    env.reset(seed=0)
    calm, noisy = simulator(env, noisy=False), simulator(env, copies=2, seed=5)
    noise = np.random.default_rng(5).normal(size=(2, 1)).mean(axis=0)
    action = np.zeros(1)
    assert noisy.predict(action) - calm.predict(action) == pytest.approx([0.0, noise[0]])


def test_parameters_from_before_a_disturbance_are_those_of_the_outermost_that_has_them() -> None:
    inner = Disturbed(pendulum(), "bias:value=0.5", "mass")
    outer = Disturbed(Plain(inner), "bias:value=0.1", "qvel")
    first = inner.nominal_parameters
    assert first is not None
    assert nominal_parameters(list(chain(Halved(outer)))) is first
    assert nominal_parameters(list(chain(Halved(Windy(pendulum()))))) is None
    assert nominal_parameters(list(chain(Halved(pendulum())))) is None
