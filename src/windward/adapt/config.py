"""From options to a runtime: which learner, with which settings, and why another cannot be had."""

import logging
import warnings
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from windward import checks
from windward.adapt import diagnosed_options
from windward.adapt.actuation import Actuation, Continuous, Softmax, refuse
from windward.adapt.beside import Observing, Valued
from windward.adapt.engine import Engine
from windward.adapt.learners.base import Attempt, Learner
from windward.adapt.learners.input_maps import make_map
from windward.adapt.learners.l1 import L1Settings, PiecewiseConstant
from windward.adapt.learners.laws import Laws, refuse_score
from windward.adapt.learners.observer import (
    Cancelling,
    CancellingSettings,
    ObserverSettings,
    QFilter,
)
from windward.adapt.learners.policy_gradient import PolicyGradient
from windward.adapt.runtime import Runtime, Timely
from windward.adapt.signals import check_model, given_model, try_model, try_source, zeros_of
from windward.adapt.sizes import Size
from windward.adapt.sources import PD3, Own, Source
from windward.adapt.trials import Trials, TrialSettings
from windward.core.algorithm import Algorithm
from windward.core.recipes import dmf_gpc, mf_gpc
from windward.policies.actions import ActionCode
from windward.policies.predictor import logits_of
from windward.policies.sb3 import critic_of, library_of

_LOG = logging.getLogger("windward")
AUTO = "auto"
GRADIENTS = {
    "mf-gpc": "reinforce", "advantage": "advantage", "quadratic": "quadratic",
    "response": "response", "residual-feedback": "residual",
}  # fmt: skip
"""learners of an M, and the core's names of their gradients"""
OLD = {
    **{core: own for own, core in GRADIENTS.items()}, "auto": AUTO,
    "counterfactual": AUTO, "replay": AUTO,
}  # fmt: skip
"""names of before, and what takes their place"""
OF_VALUES = ("pd1", "pd2")
"""signals that are made of values: where these err ŵ is not 0 without any wind"""
PAPER = "paper"
EVERY_STEPS = 64
"""M moves with every so-many-th step if nothing is said (deviation 21): no call is due between"""
MOST_STATES = 64
"""numbers of an observation that `learner="response"` takes at most: a step costs their square"""


class Request(NamedTuple):
    """What a user asked for, as makers of learners get it."""

    name: str
    spaces: tuple[gym.Space, gym.Space]
    source: Source | None
    model: Any
    actuation: Actuation
    rows: int
    shared: bool
    seed: int
    options: dict[str, Any]
    """what was given beside; None for nothing is left out"""


Maker = Callable[[Request, Attempt], Learner]


def settings_of(kind: type, request: Request) -> Any:
    """The options of a request as frozen settings; refuses others."""
    known = [each.name for each in fields(kind)]
    unknown = sorted(set(request.options) - set(known))
    if unknown:
        raise ValueError(
            f"{', '.join(f'{name}=' for name in unknown)} means nothing to learner "
            f"{request.name!r}, which takes {', '.join(known)}"
        )
    return kind(**request.options)


def _observer(request: Request, attempt: Attempt) -> Learner:
    return _cancelling(request, attempt, ObserverSettings, QFilter)


def _l1(request: Request, attempt: Attempt) -> Learner:
    return _cancelling(request, attempt, L1Settings, PiecewiseConstant)


def _cancelling(request: Request, attempt: Attempt, kind: type, take_off: Any) -> Learner:
    """A law that cancels ŵ, for each row."""
    box = _box(request)
    settings: CancellingSettings = settings_of(kind, request)
    if request.source is None:
        raise ValueError(f"learner {request.name!r} cancels ŵ: give a signal")
    source = refuse_score(request.source)
    laws = [
        Cancelling(
            take_off(settings), make_map(settings.input_map, source, request.spaces, row),
            settings, request.seed + row,
        )
        for row in range(request.rows)
    ]  # fmt: skip
    return Laws(request.name, laws, source, ActionCode(box).size, attempt)


def _box(request: Request) -> gym.spaces.Box:
    space = request.spaces[1]
    if not isinstance(space, gym.spaces.Box):
        raise ValueError(
            f"learner {request.name!r} adds to continuous actions; here they are {space}"
        )
    return space


def _gradient(request: Request, attempt: Attempt) -> Learner:
    """An M that follows a gradient."""
    actuation, rows, source = request.actuation, request.rows, request.source
    options = dict(request.options)
    if source is None:
        raise ValueError(f"learner {request.name!r} acts on ŵ: give a signal")
    if isinstance(actuation, Softmax) and actuation.logits is None:
        raise ValueError(
            "discrete actions are corrected through the base policy's logits: pass logits=, a "
            "model (PPO or A2C of Stable-Baselines3; DQN) or a function from rows of observations "
            "to rows of logits"
        )
    settings = options.pop("trials", None) or TrialSettings()
    if not isinstance(settings, TrialSettings):
        raise ValueError(f"trials must be windward.adapt.TrialSettings; got {settings!r}")
    guard, preset = options.pop("guard", True), options.pop("preset", None)
    checks.choice("guard", guard, (True, False))
    checks.choice("preset", preset, (None, PAPER))
    # Given numbers are in the signal's own units.
    sized = (
        isinstance(source, Own)
        and preset is None
        and not {"eta", "M0", "projection"} & set(options)
    )
    gradient = GRADIENTS[request.name]
    if preset is not None:
        if gradient != "reinforce":
            raise ValueError(f"preset {PAPER!r} is of learner 'mf-gpc'; got {request.name!r}")
        guard = False
        if actuation.discrete:
            options["preset"] = PAPER
    elif gradient == "reinforce" and not actuation.discrete and "every_episodes" not in options:
        options.setdefault("every_steps", EVERY_STEPS)
    if gradient != "reinforce":
        options["gradient"] = gradient
    if gradient == "advantage":
        source = _with_values(source, actuation, request.model, request.spaces[0])
    elif gradient == "response":
        if "d_x" in options:
            raise ValueError("d_x is the size of what is observed here: leave it out")
        source, options["d_x"] = _with_states(source, actuation, request.spaces[0])
    if not actuation.discrete:
        options.setdefault("fit_every", "auto")
    algorithm = _algorithm(actuation, source, options)
    engine = Engine(algorithm, rows, request.shared, request.seed)
    trials = None
    if guard:
        # PD1 is made of the noise that would not be there.
        of_noise = source.signal.uses_score
        window = None if of_noise else (algorithm.h, algorithm.d_w)
        careful = not actuation.discrete  # a softmax has no noise of its own
        doubtful = careful and source.signal.name in OF_VALUES
        trials = Trials(rows, window, careful, doubtful, of_noise, settings, "M0" in options)
    return PolicyGradient(
        request.name, engine, source, attempt, trials, actuation.discrete,
        options.get("baseline"), actuation.square, Size() if sized else None,
    )  # fmt: skip


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


def _with_values(source: Source, actuation: Actuation, model: Any, space: gym.Space) -> Source:
    """Adds the base policy's values to a source; refuses a model that has none."""
    if actuation.discrete:
        raise ValueError("learner 'advantage' is for continuous actions; use 'mf-gpc'")
    try:
        found = Valued(source, given_model(model))
    except ValueError as error:
        raise ValueError(f"learner 'advantage' cannot be had: {error}") from error
    x = zeros_of(space)
    try:
        np.asarray(found.critic.V(x), dtype=float).reshape(len(x))
    except Exception as error:  # models of users may fail in any way
        raise ValueError(
            f"learner 'advantage' cannot be had: V of model= fails at an observation of zeros: "
            f"{error!r}"
        ) from error
    return found


def _with_states(source: Source, actuation: Actuation, space: gym.Space) -> tuple[Source, int]:
    """Adds observations to a source; gives it and how many numbers they have."""
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


def _diagnosed(request: Request, attempt: Attempt) -> Learner:
    why_not = why_no_diagnosis(request)
    if why_not:
        raise ValueError(f"learner {request.name!r} cannot be had: {why_not}")
    assert request.source is not None
    logits = getattr(request.actuation, "logits", None)
    return diagnosed_options.make(
        request.source, request.spaces[1], _policy_of(request), request.rows, request.seed,
        request.name, request.options, attempt, logits,
    )  # fmt: skip


def why_no_diagnosis(request: Request) -> str:
    """What is missing for learners in the diagnosed world; nothing if they can be had."""
    if request.source is None:
        return "it needs a signal"
    return diagnosed_options.why_not(
        request.source, request.spaces[1], _policy_of(request), request.name
    )


def _policy_of(request: Request) -> Any:
    """The base policy: the model, or the likeliest action of logits where that is all there is."""
    if request.model is None:
        return getattr(request.actuation, "logits", None)
    return request.model


LEARNERS: dict[str, Maker] = {
    AUTO: _diagnosed,
    **dict.fromkeys(diagnosed_options.PROPOSERS, _diagnosed),
    **dict.fromkeys(GRADIENTS, _gradient),
    "observer": _observer,
    "l1": _l1,
}
"""learners by name"""


def register(name: str, maker: Maker) -> None:
    """Adds a learner, made by `maker(request, attempt)`: `learner=name` is it in every form."""
    if not isinstance(name, str) or name == AUTO or not callable(maker):
        raise ValueError(f"register takes a name and a function that makes a learner; got {name!r}")
    LEARNERS[name] = maker


def known() -> tuple[str, ...]:
    """Names of learners."""
    return tuple(LEARNERS)


def make_runtime(
    spaces: tuple[gym.Space, gym.Space],
    source: Source | None,
    logits: Any,
    rows: int,
    shared: bool,
    seed: int,
    options: dict[str, Any],
    timely: Timely | None = None,
    model: Any = None,
) -> Runtime:
    """What acts and learns in a form; options that are None are left out."""
    if checks.integer("seed", seed, 0) >= 2**32:
        raise ValueError(f"seed must be below 2**32; got {seed}")
    if logits is not None and isinstance(spaces[1], gym.spaces.Box):
        raise ValueError(f"logits= is for discrete actions; this environment has {spaces[1]}")
    check_model(model, spaces)
    if isinstance(source, PD3) and len(source.simulators) != rows:
        raise ValueError(
            f"PD3 reads the state of {len(source.simulators)} environments, and there are {rows} "
            "rows: give a SyncVectorEnv of as many, or leave live=True out, so that observations "
            "tell states"
        )
    options = {name: each for name, each in options.items() if each is not None}
    actuation = make_actuation(*spaces, logits, model)
    if model is not logits:
        try_model(model, spaces)
    try_source(source, spaces, rows)
    name = options.pop("learner", AUTO)
    if not isinstance(name, str):
        raise ValueError(f"learner must be a name; got {name!r}")
    if name == "residual" and name not in LEARNERS:
        raise ValueError("learner 'residual' comes with the agents: `import windward.agents` first")
    checks.choice("learner", name, known())
    request = Request(name, spaces, source, model, actuation, rows, shared, seed, options)
    notes: list[str] = []
    if name == AUTO:
        request, note = _automatic(request)
        notes = [note] if note else []
    made = Runtime(
        lambda attempt: LEARNERS[request.name](request, attempt), actuation, rows, timely
    )
    made.notes = notes
    return made


def _automatic(request: Request) -> tuple[Request, str]:
    """What "auto" stands for: the best of what can be had, and what would be needed for better."""
    options = request.options
    if options.get("preset") is not None:
        return request._replace(name="mf-gpc"), ""
    why_not = why_no_diagnosis(request)
    if not why_not:
        unknown = sorted(set(options) - set(diagnosed_options.SETTINGS) - {"guard"})
        if unknown:
            raise ValueError(
                f"{', '.join(f'{each}=' for each in unknown)} means nothing to learner 'auto', "
                "which works in the diagnosed world here: leave it out, or say learner='mf-gpc' "
                "for the paper's update"
            )
        return request, ""
    name = "mf-gpc"
    more: dict[str, Any] = {}
    if not request.actuation.discrete:
        more = {"baseline": "regression"}
        if request.source is not None and _has_values(request):
            name, more = "advantage", {"baseline": "regression", "lam": 0.9}
    note = f"learner 'auto' takes {name!r}, as the world cannot be diagnosed: {why_not}"
    _LOG.info(note)
    return request._replace(name=name, options={**more, **options}), note


def _has_values(request: Request) -> bool:
    assert request.source is not None
    try:
        _with_values(request.source, request.actuation, request.model, request.spaces[0])
    except ValueError:
        return False
    return True


def named(learner: str, gradient: str | None) -> str:
    """The learner that is meant; `gradient` is its old name, for one release."""
    if gradient is not None:
        if learner != AUTO:
            raise ValueError(f"gradient= is the old name of learner=: drop gradient={gradient!r}")
        now = OLD.get(gradient, gradient)
        warnings.warn(f"gradient={gradient!r} is now learner={now!r}", FutureWarning, stacklevel=3)
        return now
    if learner == "replay":
        warnings.warn(
            "learner='replay' is gone: 'auto' diagnoses the world instead", FutureWarning,
            stacklevel=3,
        )  # fmt: skip
        return AUTO
    return learner


def make_actuation(
    observations: gym.Space, actions: gym.Space, logits: Any, model: Any = None
) -> Actuation:
    """How corrections act on an action space."""
    refuse(actions, observations)
    if isinstance(actions, gym.spaces.Box):
        return Continuous(actions)
    assert isinstance(actions, gym.spaces.Discrete)
    if logits is not None:
        return Softmax(actions, logits_from(logits))
    return Softmax(actions, None if model is None else _logits_of_model(model))


def _logits_of_model(model: Any) -> Callable[[Any], np.ndarray] | None:
    """Logits where a model has some; a plain function gives actions."""
    if logits_of(model) is None and library_of(model) is None:
        return None
    try:
        return logits_from(model)
    except ValueError:
        return None


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
