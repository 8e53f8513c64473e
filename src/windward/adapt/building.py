"""From options to parts: which algorithm and way to act make a module."""

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks
from windward.adapt.actuation import Actuation, Continuous, Softmax, refuse
from windward.adapt.beside import Observing, Valued
from windward.adapt.counterfactual import Counterfactual
from windward.adapt.diagnosing import AUTO, LEARNERS, SETTINGS, make_runtime, why_no_diagnosis
from windward.adapt.engine import Engine
from windward.adapt.finding import given_model
from windward.adapt.guard import Guard
from windward.adapt.module import Module
from windward.adapt.replayed import Boxed, Drawn, Replayed
from windward.adapt.runtime import Runtime
from windward.adapt.search import Search
from windward.adapt.sources import PD3, ObservedPD3, Source
from windward.core.algorithm import Algorithm
from windward.core.choices import GRADIENTS
from windward.core.recipes import dmf_gpc, mf_gpc
from windward.policies.predictor import logits_of, predictor
from windward.policies.sb3 import critic_of, library_of
from windward.simulators import Simulator
from windward.simulators.learned import LearnedSimulator, percent

COUNTERFACTUAL, REPLAY = "counterfactual", "replay"
"""replays: in the core, and what users call them"""
PAPERS = (
    "eta", "sigma", "M0", "baseline", "weight_decay", "projection", "every_episodes", "every_steps",
)  # fmt: skip
"""options of who wants the paper's update"""
IDLE = (
    *PAPERS, "sigma_end", "Sigma", "lam", "d_x", "cost", "fit_every", "delay", "scale_by",
    "parametrisation",
)  # fmt: skip
"""options that mean nothing to replays"""
AT_ONCE = ("eta", "sigma", "sigma_end", "M0", "every_episodes")
"""options of who knows how to learn: nothing waits for a wind that can be told from its past"""
OF_VALUES = ("pd1", "pd2")
"""signals that are made of values: where these err ŵ is not 0 without any wind"""
PAPER = "paper"
NAMES = {"mf-gpc": "reinforce", REPLAY: COUNTERFACTUAL}
"""learners whose gradient has another name in the core"""
OLD = {core: own for own, core in NAMES.items()}
KNOWN = (AUTO, *LEARNERS, *(OLD.get(each, each) for each in (COUNTERFACTUAL, *GRADIENTS)))
"""learners by name"""
EVERY_STEPS = 64
"""M moves with every so-many-th step if nothing is said (deviation 21): no call is due between"""
MOST_STATES = 64
"""numbers of an observation that `learner="response"` takes at most: a step costs their square"""
MARGIN = 1.0
"""how much better M must be in a learned simulator, in shares of the motion that it misses"""


def make_module(
    spaces: tuple[gym.Space, gym.Space],
    source: Source,
    logits: Any,
    rows: int,
    shared: bool,
    seed: int,
    options: dict[str, Any],
    timely: Any = None,
    model: Any = None,
) -> Module | Runtime:
    """What acts and learns in a wrapper; `options` as of `mf_gpc`, or of `dmf_gpc` for logits.

    Options that are None are left to the recipe. `learner="auto"` works in a diagnosed world where
    that can be had; else it is what `_best` says.
    `guard=False` trusts what is learned; `preset="paper"` is the paper's update as printed, without
    a guard.
    """
    if checks.integer("seed", seed, 0) >= 2**32:
        raise ValueError(f"seed must be below 2**32; got {seed}")
    refuse(spaces[1], spaces[0])
    if logits is not None:
        make_actuation(*spaces, logits)
    options = {name: each for name, each in options.items() if each is not None}
    learner = options.pop("learner", AUTO)
    if not isinstance(learner, str):
        raise ValueError(f"learner must be a name; got {learner!r}")
    checks.choice("learner", learner, KNOWN)
    own = {name: each for name, each in options.items() if name not in ("h", "guard")}
    others = set(own) - set(SETTINGS) or isinstance(own.get("search"), Search)
    if learner in LEARNERS or (learner == AUTO and not others):
        why_not = why_no_diagnosis(source, spaces[1], model, learner)
        if not why_not:
            return make_runtime(source, spaces[1], model, rows, seed, learner, own, timely, logits)
        if learner in LEARNERS:
            raise ValueError(f"learner {learner!r} cannot be had: {why_not}")
    actuation = make_actuation(*spaces, logits)
    options["gradient"] = NAMES.get(learner, learner)
    gradient, search = options.pop("gradient", "auto"), options.pop("search", None)
    guarded, preset = options.pop("guard", True), options.pop("preset", None)
    checks.choice("guard", guarded, (True, False))
    checks.choice("preset", preset, (None, PAPER))
    if preset is not None:
        if gradient not in ("auto", "reinforce"):
            raise ValueError(f"preset {PAPER!r} is learner 'mf-gpc'; got {learner!r}")
        gradient, guarded = "reinforce", False
        if actuation.discrete:
            options["preset"] = PAPER
    why_not = _why_no_replays(source, actuation, rows, model)
    begins = set(AT_ONCE) & set(options)
    if gradient == "auto":
        gradient, more = _best(source, actuation, rows, model, set(options), why_not)
        options = more | options
    teacher = None
    if gradient == COUNTERFACTUAL:
        if why_not:
            raise ValueError(f"learner {REPLAY!r} cannot be had: {why_not}")
        idle = sorted(set(IDLE) & set(options))
        if idle:
            raise ValueError(f"{', '.join(idle)} mean nothing to learner {REPLAY!r}")
        # Replays need no exploration, and M is theirs: nothing else may move it.
        options |= {"eta": 0.0, "projection": None}
        if not actuation.discrete:  # else the agent itself draws
            options |= {"sigma": 0.0, "every_steps": EVERY_STEPS}
        policy = _replayed(actuation, model, spaces[1])
        teacher = _teacher(source, policy, options, seed, search, guarded)
    elif search is not None:
        raise ValueError(f"search= is for learner={REPLAY!r}; got learner={learner!r}")
    elif gradient != "reinforce":
        options["gradient"] = gradient
        if gradient == "advantage":
            source = _with_values(source, actuation, model)
        elif gradient == "response":
            if "d_x" in options:
                raise ValueError("d_x is the size of what is observed here: leave it out")
            source, options["d_x"] = _with_states(source, actuation, spaces[0])
    elif preset is None and not actuation.discrete and "every_episodes" not in options:
        options.setdefault("every_steps", EVERY_STEPS)
    if not actuation.discrete:
        options.setdefault("fit_every", "auto")
    algorithm = _algorithm(actuation, source, options)
    engine = Engine(algorithm, rows, shared, seed)
    guard = None
    # With a simulator replays judge M, and ask for returns if it is wrong; returns of several rows
    # at once are not told apart.
    if guarded and teacher is None and rows == 1:
        # PD1 is made of the noise that would not be there.
        waits = not begins and not source.signal.uses_score
        window = (algorithm.h, algorithm.d_w) if waits else None
        # Who says how to learn has said how much noise; a softmax has none of its own.
        careful = not begins and not actuation.discrete
        doubtful = careful and source.signal.name in OF_VALUES
        guard = Guard(window, careful, doubtful, of_noise=source.signal.uses_score)
    return Module(
        engine, source, actuation, timely, gradient, teacher, guard, options.get("baseline")
    )


def named(learner: str, gradient: str | None) -> str:
    """The learner that is meant; `gradient` is its old name, for one release."""
    if gradient is None:
        return learner
    now = OLD.get(gradient, gradient)
    if learner != AUTO:
        raise ValueError(f"gradient= is the old name of learner=: drop gradient={gradient!r}")
    warnings.warn(f"gradient={gradient!r} is now learner={now!r}", FutureWarning, stacklevel=3)
    return now


def _best(
    source: Source,
    actuation: Actuation,
    rows: int,
    model: Any,
    given: set[str],
    why_no_replays: str,
) -> tuple[str, dict[str, Any]]:
    """What "auto" takes, and options beside it: the best of what can be had, by measurement.

    Who gives options of the paper's update gets it, and so do discrete actions and vector forms,
    which have no guard.
    """
    if given & set(PAPERS):
        return "reinforce", {}
    if not why_no_replays and not given & set(IDLE):
        return COUNTERFACTUAL, {}
    if actuation.discrete or rows > 1:
        return "reinforce", {}
    try:
        _with_values(source, actuation, model)
    except ValueError:
        return "reinforce", {"baseline": "regression"}
    return "advantage", {"baseline": "regression", "lam": 0.9}


def _with_values(source: Source, actuation: Actuation, model: Any) -> Source:
    """The source with the base policy's values beside it; refuses where there are none."""
    if actuation.discrete:
        raise ValueError("learner 'advantage' is for continuous actions; use 'mf-gpc'")
    try:
        return Valued(source, given_model(model))
    except ValueError as error:
        raise ValueError(f"learner 'advantage' cannot be had: {error}") from error


def _with_states(source: Source, actuation: Actuation, space: gym.Space) -> tuple[Source, int]:
    """The source with observations beside it, and how many numbers they have."""
    if actuation.discrete:
        raise ValueError("learner 'response' is for continuous actions; use 'mf-gpc'")
    size = int(np.prod(space.shape or ()))
    if size > MOST_STATES:
        raise ValueError(
            f"learner 'response' fits a model of what is observed, and {size} numbers are too "
            f"many for it ({MOST_STATES} at most): use 'quadratic', or show less by a "
            "gymnasium.ObservationWrapper inside"
        )
    return Observing(source), size


def _replayed(actuation: Actuation, model: Any, space: gym.Space) -> Replayed:
    """The base policy as replays need it: its noise-free action, or its logits."""
    if isinstance(actuation, Softmax):
        assert isinstance(space, gym.spaces.Discrete)
        return Drawn(space, actuation.logits)
    assert isinstance(space, gym.spaces.Box)
    return Boxed(space, predictor(model, space))


def _teacher(
    source: Source,
    policy: Replayed,
    options: dict[str, Any],
    seed: int,
    search: Search | None,
    doubting: bool,
) -> Counterfactual:
    """Replays with the simulator of PD3; more careful ones, or none, with one that was learned."""
    simulator, refusal = _simulator_of(source), ""
    assert simulator is not None
    if isinstance(simulator, LearnedSimulator):
        missed = simulator.fit.missed
        if simulator.fit.ill:
            refusal = f"no replays: the learned simulator misses {percent(missed)} of the motion"
        search = search or Search(margin=max(Search.margin, MARGIN * missed))
    h = options.get("h", 5)
    return Counterfactual(simulator, policy, h, seed, search, refusal, doubting)


def _simulator_of(source: Source) -> Simulator | LearnedSimulator | None:
    """The simulator that replays can run in."""
    if isinstance(source, PD3) and source.coordinates == "state":
        return source.simulators[0]
    if isinstance(source, ObservedPD3) and isinstance(source.simulator, LearnedSimulator):
        return source.simulator
    return None


def _why_no_replays(source: Source, actuation: Actuation, rows: int, model: Any) -> str:
    """What is missing for counterfactual replays; nothing if they can be had."""
    simulator = _simulator_of(source)
    if simulator is None:
        return "it needs signal='pd3' with a simulator of the environment as it runs"
    if rows > 1:
        return "it is for one environment at a time"
    if model is None:
        return "it replays the base policy: use RobustWrapper, and pass model="
    if not (actuation.discrete or callable(model) or callable(getattr(model, "predict", None))):
        return f"it replays the base policy, and model= is a {type(model).__name__} without predict"
    if simulator.noisy:
        return "replays add the recorded ŵ themselves: make the simulator with noisy=False"
    try:
        simulator.observation(np.zeros(simulator.d_x))
    except ValueError as error:
        return f"the base policy acts on observations, and {error}"
    return ""


def _algorithm(actuation: Actuation, source: Source, options: dict[str, Any]) -> Algorithm:
    recipe: Callable[..., Algorithm] = mf_gpc
    if actuation.discrete:
        recipe = dmf_gpc
        options = {name: each for name, each in options.items() if name != "sigma"}
    d_w = actuation.d_u if source.d_w is None else source.d_w
    try:
        return recipe(actuation.d_u, d_w, signal=source.signal, gamma=source.gamma, **options)
    except TypeError as error:
        raise ValueError(f"{recipe.__name__} does not take these options: {error}") from error


def make_actuation(observations: gym.Space, actions: gym.Space, logits: Any) -> Actuation:
    """How corrections act on an action space."""
    refuse(actions, observations)
    if isinstance(actions, gym.spaces.Box):
        if logits is not None:
            raise ValueError(f"logits= is for discrete actions; this environment has {actions}")
        return Continuous(actions)
    assert isinstance(actions, gym.spaces.Discrete)
    if logits is None:
        raise ValueError(
            "discrete actions are corrected through the base policy's logits: pass logits=, a "
            "model (PPO or A2C of Stable-Baselines3; DQN) or a function from rows of observations "
            "to rows of logits"
        )
    return Softmax(actions, logits_from(logits))


def logits_from(given: Any, temperature: float = 1.0) -> Callable[[Any], np.ndarray]:
    """Logits on rows from a model or a function.

    PPO and A2C have them; a DQN is taken as the Boltzmann policy of its Q over `temperature`.
    """
    found = logits_of(given)
    if found is not None:
        return found
    if (library_of(given) or ("", ""))[1] == "DQN":
        critic, n = critic_of(given), int(given.action_space.n)
        checks.positive("temperature", temperature)

        def boltzmann(x: Any) -> np.ndarray:
            rows = np.asarray(x)
            values = [critic.Q(rows, np.full(len(rows), u)) for u in range(n)]
            return np.stack(values, axis=1) / temperature

        return boltzmann
    if callable(given) and not isinstance(given, type) and library_of(given) is None:
        return given
    raise ValueError(
        f"no logits can be read from {type(given).__name__}; they can from PPO, A2C and DQN with "
        "discrete actions, from anything with a method logits, and from a function on rows"
    )
