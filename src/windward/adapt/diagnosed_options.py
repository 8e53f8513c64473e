"""From options to a learner in the diagnosed world, and when it can be had."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks
from windward.adapt.corrections import space_of
from windward.adapt.diagnosed import Diagnosed, state_from_observations, state_reader
from windward.adapt.episodes import Policy
from windward.adapt.judges import JudgeSettings
from windward.adapt.learners.base import Attempt
from windward.adapt.metric import MetricSettings
from windward.adapt.proposers.base import Proposer, SimulationSettings
from windward.adapt.proposers.matching import MatchingProposer, MatchingSettings
from windward.adapt.proposers.search import SearchProposer, SearchSettings
from windward.adapt.sources import PD3, ObservedPD3, Source
from windward.adapt.supervisor import Parts, SupervisorSettings
from windward.adapt.winds import WindSettings
from windward.diagnosis.identify import Settings as DiagnosisSettings
from windward.policies.predictor import predictor
from windward.simulators.learned import LearnedSimulator, percent
from windward.simulators.simulator import Simulator

PROPOSERS: Mapping[str, Any] = {"matching": MatchingProposer, "search": SearchProposer}
"""proposers of corrections by name; a new one is a class and a line here"""
SETTINGS: Mapping[str, type] = {
    "matching": MatchingSettings, "search": SearchSettings, "supervisor": SupervisorSettings,
    "judge": JudgeSettings, "metric": MetricSettings, "simulation": SimulationSettings,
    "winds": WindSettings, "diagnosis": DiagnosisSettings,
}  # fmt: skip
"""options that hold settings, and their types"""
GATHERED = 8000
"""steps that are remembered where the simulator was learned: a map fitted to the last ones alone
forgets the motion without it"""
WORST = 0.5
"""share of the motion that a learned simulator may miss: what it misses in both worlds cancels"""
STEPS = 1000
"""steps of an episode where the environment does not say how long one may last"""


def why_not(source: Source, action_space: gym.Space, model: Any, name: str) -> str:
    """What is missing for a diagnosis; nothing if it can be had."""
    simulator = nominal_of(source)
    if simulator is None:
        return (
            "it needs a simulator of the nominal world: windward knows MuJoCo, Pendulum and "
            "CartPole; for others give simulator={'step': ..., 'state': ...}"
        )
    if isinstance(simulator, LearnedSimulator):
        if not simulator.fit.missed <= WORST:
            return f"the learned simulator misses {percent(simulator.fit.missed)} of the motion"
        if name == "search":
            return "a learned simulator is not true enough for a search: learner='matching' is"
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


def nominal_of(source: Source) -> Simulator | LearnedSimulator | None:
    """The simulator that a source compares the world with."""
    if isinstance(source, PD3) and source.coordinates == "state":
        return source.simulators[0]
    if isinstance(source, ObservedPD3):
        return source.simulator
    return None


def make(
    source: Source,
    action_space: gym.Space,
    model: Any,
    rows: int,
    seed: int,
    name: str,
    options: Mapping[str, Any],
    attempt: Attempt,
    logits: Any = None,
) -> Diagnosed:
    """The learner; `name` is that of a proposer, or "auto" for all of them.

    `options` may hold settings by name (see `SETTINGS`).
    """
    nominal = nominal_of(source)
    assert nominal is not None
    settings = _settings(options, name)
    learned = isinstance(nominal, LearnedSimulator)
    names = (name,) if name in PROPOSERS else ("matching",) if learned else tuple(PROPOSERS)
    proposers: Sequence[Proposer] = [PROPOSERS[each](settings.get(each)) for each in names]
    if learned:
        settings.setdefault("supervisor", SupervisorSettings(kept=GATHERED))
    for each in PROPOSERS:
        settings.pop(each, None)
    policy = _policy(model, action_space, logits)
    states = (
        state_reader(source.simulators)
        if isinstance(source, PD3)
        else state_from_observations(nominal)
    )
    env = None if isinstance(nominal, LearnedSimulator) else nominal.env
    spec = None if env is None else env.spec
    limit = None if spec is None else spec.max_episode_steps
    dtype: Any = action_space.dtype
    parts = Parts(
        env, nominal, policy, space_of(action_space), dtype.type,
        int(limit or STEPS), proposers, **settings,
    )  # fmt: skip
    return Diagnosed(name, parts, rows, states, seed, attempt)


def _policy(model: Any, action_space: gym.Space, logits: Any) -> Policy:
    """Base actions of rows of observations; of logits alone the likeliest."""
    alone = model is logits is not None and not callable(getattr(model, "predict", None))
    if isinstance(action_space, gym.spaces.Discrete) and alone:
        start, kind = int(action_space.start), action_space.dtype
        return lambda x: (np.asarray(logits(x)).argmax(axis=1) + start).astype(kind)
    return predictor(model, action_space)


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
