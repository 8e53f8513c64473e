"""From options to a learner in the diagnosed world, and when it can be had."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks
from windward.adapt.contract import Attempt
from windward.adapt.corrections import Range
from windward.adapt.diagnosed import Diagnosed, state_from_observations, state_reader
from windward.adapt.judges import JudgeSettings
from windward.adapt.learners.base import Learner, SimulationSettings
from windward.adapt.learners.matching import MatchingLearner, MatchingSettings
from windward.adapt.learners.search import SearchLearner, SearchSettings
from windward.adapt.metric import MetricSettings
from windward.adapt.sources import PD3, ObservedPD3, Source
from windward.adapt.supervisor import Parts, SupervisorSettings
from windward.adapt.winds import WindSettings
from windward.diagnosis.identify import Settings as DiagnosisSettings
from windward.policies.predictor import predictor
from windward.simulators.simulator import Simulator

PROPOSERS: Mapping[str, Any] = {"matching": MatchingLearner, "search": SearchLearner}
"""proposers of corrections by name; a new one is a class and a line here"""
SETTINGS: Mapping[str, type] = {
    "matching": MatchingSettings, "search": SearchSettings, "supervisor": SupervisorSettings,
    "judge": JudgeSettings, "metric": MetricSettings, "simulation": SimulationSettings,
    "winds": WindSettings, "diagnosis": DiagnosisSettings,
}  # fmt: skip
"""options that hold settings, and their types"""
STEPS = 1000
"""steps of an episode where the environment does not say how long one may last"""


def why_not(source: Source, action_space: gym.Space, model: Any) -> str:
    """What is missing for a diagnosis; nothing if it can be had."""
    simulator = nominal_of(source)
    if simulator is None:
        return (
            "it needs a simulator of the nominal world: windward knows MuJoCo, Pendulum and "
            "CartPole; for others give simulator={'step': ..., 'state': ...}"
        )
    if not isinstance(action_space, gym.spaces.Box):
        return "it is for continuous actions"
    if model is None:
        return "it compares corrections in simulated episodes of the base policy: pass model="
    if not (callable(model) or callable(getattr(model, "predict", None))):
        return f"model= is a {type(model).__name__}, which has no predict"
    if simulator.noisy:
        return "it needs a simulator without noise: make it with noisy=False"
    try:
        simulator.observation(np.zeros(simulator.d_x))
    except ValueError as error:
        return f"the base policy acts on observations, and {error}"
    return ""


def nominal_of(source: Source) -> Simulator | None:
    """The simulator that a source compares the world with."""
    if isinstance(source, PD3) and source.coordinates == "state":
        return source.simulators[0]
    if isinstance(source, ObservedPD3) and isinstance(source.simulator, Simulator):
        return source.simulator
    return None


def make(
    source: Source,
    action_space: Any,
    model: Any,
    rows: int,
    seed: int,
    name: str,
    options: Mapping[str, Any],
    attempt: Attempt,
) -> Diagnosed:
    """The learner; `name` is that of a proposer, or "auto" for all of them.

    `options` may hold settings by name (see `SETTINGS`).
    """
    nominal = nominal_of(source)
    assert nominal is not None
    settings = _settings(options, name)
    names = (name,) if name in PROPOSERS else tuple(PROPOSERS)
    proposers: Sequence[Learner] = [PROPOSERS[each](settings.get(each)) for each in names]
    for each in PROPOSERS:
        settings.pop(each, None)
    policy = predictor(model, action_space)
    states = (
        state_reader(source.simulators)
        if isinstance(source, PD3)
        else state_from_observations(nominal)
    )
    spec = nominal.env.spec
    limit = None if spec is None else spec.max_episode_steps
    parts = Parts(
        nominal.env, nominal, policy, Range.of(action_space), action_space.dtype.type,
        int(limit or STEPS), proposers, **settings,
    )  # fmt: skip
    return Diagnosed(name, parts, rows, states, seed, attempt)


def _settings(options: Mapping[str, Any], learner: str) -> dict[str, Any]:
    """Options that are settings; refuses others."""
    found = {}
    for name, value in options.items():
        if name == "guard":
            checks.choice("guard", value, (True, False))
            if not value:
                raise ValueError(
                    f"guard=False means nothing to learner {learner!r}: what acts in a diagnosed "
                    "world is always judged"
                )
            continue
        if name not in SETTINGS:
            raise ValueError(
                f"{name}= means nothing to learner {learner!r}, which takes {', '.join(SETTINGS)}; "
                "for the paper's update say learner='mf-gpc'"
            )
        if not isinstance(value, SETTINGS[name]):
            own = SETTINGS[name].__name__
            raise ValueError(f"{name} must be a windward.adapt.{own}; got {value!r}")
        found[name] = value
    return found
