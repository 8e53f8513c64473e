"""From what a user says to a source of ŵ: a name, an object or a function."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks, simulators
from windward.adapt.sources import PD1, PD2, PD3, Happened, ObservedPD3, Own, Source
from windward.policies.sb3 import Inputs, library_of
from windward.simulators.learned import LearnedSimulator

NAMES = ("pd1", "pd2", "pd3", "auto")


def find_source(
    signal: Any,
    model: Any,
    environments: Sequence[gym.Env] | None,
    spaces: tuple[gym.Space, gym.Space],
    simulator: Any = None,
    *,
    observed: bool = False,
) -> Source:
    """The source that a user means by a name, an object or a function.

    `environments` are those within reach, one for each row, or None; `observed` says that they are
    not the ones that run. `simulator` has options of `windward.simulator`, or was learned.
    """
    check_model(model, spaces)
    if isinstance(signal, str):
        signal = signal.lower()
        checks.choice("signal", signal, NAMES)
        finders: dict[str, Callable[[], Source]] = {
            "pd3": lambda: _pd3(environments, simulator, observed, spaces),
            "pd2": lambda: PD2(given_model(model)),
            "pd1": lambda: PD1(given_model(model)),
        }
        if signal == "auto":
            return _strongest(finders)
        try:
            return finders[signal]()
        except ValueError as error:
            rest = {name: find for name, find in finders.items() if name != signal}
            works = [name for name, find in rest.items() if not _why_not(find)]
            hint = f"; {' and '.join(works)} would work here" if works else ""
            raise ValueError(f"signal {signal!r} cannot be made: {error}{hint}") from error
    if isinstance(signal, PD3):
        _refuse_foreign(signal, environments)
    if all(hasattr(signal, name) for name in ("after", "before", "signal", "d_w")):
        found: Source = signal
        return found
    if callable(signal):
        return Own(signal, _probe(signal, *spaces))
    raise ValueError(
        f"signal must be one of {', '.join(NAMES)}, PD1(critic), PD2(values), PD3(simulator), or a "
        f"function (x, u, reward, x_next); got {signal!r}"
    )


def given_model(model: Any) -> Any:
    """The model, where values of it are needed; an error that says what would have them."""
    if model is None:
        raise ValueError(
            "it needs values of the base policy: pass model=, a policy with a critic (D4PG, an "
            "off-policy model of Stable-Baselines3 or SBX, one that comes with windward) or what "
            "windward.fit_values(env, policy) gives"
        )
    return model


def _pd3(
    environments: Sequence[gym.Env] | None,
    simulator: Any,
    observed: bool,
    spaces: tuple[gym.Space, gym.Space],
) -> Source:
    if isinstance(simulator, LearnedSimulator):
        theirs = simulator.observation_space, simulator.action_space
        for here, there in zip(spaces, theirs, strict=True):
            if here != there:
                raise ValueError(f"the simulator was learned for {there}, and here it is {here}")
        return ObservedPD3(simulator)
    if environments is None:
        raise ValueError(
            "the environments run out of reach, in processes of their own: use a SyncVectorEnv (of "
            "Stable-Baselines3: use a DummyVecEnv), or wrap each in RobustWrapper where it is made"
        )
    if simulator is not None and not isinstance(simulator, dict):
        raise ValueError(
            "simulator= takes the options of windward.simulator, or what "
            f"windward.fit_simulator gives; got {simulator!r}"
        )
    options = {"noisy": False, **(simulator or {})}
    try:
        made = [simulators.simulator(each, **options) for each in environments]
        if observed:
            # Refused now, not at the first step.
            _refuse_hidden(made[0], environments[0])
            return ObservedPD3(made[0])
    except TypeError as error:
        raise ValueError(f"simulator= takes the options of windward.simulator: {error}") from (
            error
        )
    return PD3(made)


def _refuse_hidden(simulator: simulators.Simulator, env: gym.Env) -> None:
    """Refuses now, not at the first step, observations that do not tell the state."""
    try:
        simulator.states_seen(np.zeros((1, *(env.observation_space.shape or ()))))
    except ValueError as error:
        raise ValueError(f"{error}; or say live=True if this is the environment you step") from (
            error
        )


def _refuse_foreign(signal: PD3, environments: Sequence[gym.Env] | None) -> None:
    """A simulator reads the state of the environment that it was made of."""
    mine = [each.unwrapped for each in environments or []]
    theirs = [each.env.unwrapped for each in signal.simulators]
    if len(mine) != len(theirs) or any(a is not b for a, b in zip(mine, theirs, strict=True)):
        raise ValueError(
            "PD3's simulator is of another environment than the one that runs: make it with "
            "windward.simulator(env) of this one, or say signal='pd3' and simulator={...}"
        )


def _why_not(find: Callable[[], Source]) -> str:
    try:
        find()
    except ValueError as error:
        return str(error)
    return ""


def _strongest(finders: dict[str, Callable[[], Source]]) -> Source:
    """PD3 where there is a simulator, else PD2, else PD1: by how much each tells of w."""
    reasons = []
    for name, find in finders.items():
        try:
            return find()
        except ValueError as error:
            reasons.append(f"{name}: {error}")
    raise ValueError("no signal can be made here.\n  " + "\n  ".join(reasons))


def _probe(signal: Callable[..., Any], observations: gym.Space, actions: gym.Space) -> int:
    """d_w of a user's function, by calling it once."""
    x = np.zeros(observations.shape or (), observations.dtype)
    u = np.zeros(actions.shape or (), actions.dtype)
    try:
        return int(np.asarray(signal(x, u, 0.0, x), dtype=float).reshape(-1).size)
    except Exception as error:  # the user's function may fail in any way
        raise ValueError(
            f"a signal must be a function (x, u, reward, x_next) to a vector; it fails at zeros: "
            f"{error!r}. To give d_w yourself: windward.adapt.Own(function, d_w)"
        ) from error


def check_model(model: Any, spaces: tuple[gym.Space, gym.Space]) -> None:
    """Refuses a model that is none, or of another environment."""
    if isinstance(model, str | Path):
        raise ValueError(
            f"model= takes a model, not the path {str(model)!r}: load it first, as with "
            "SAC.load(path), D4PG.load(path) or windward.policies.load_base(path)"
        )
    if is_dataclass(model) and isinstance(model, type):
        raise ValueError(f"model= takes a model; got the class {model.__name__}")
    for name, here in zip(("observation", "action"), spaces, strict=True):
        theirs = getattr(model, f"{name}_space", None)
        if isinstance(theirs, gym.Space) and theirs.shape != here.shape:
            raise ValueError(
                f"model= is of another environment: its {name}s are {theirs}, here they are {here}"
            )


def zeros_of(space: gym.Space, rows: int = 1) -> np.ndarray:
    """Rows of zeros, or of what is nearest to them in the space."""
    zero: Any = np.zeros(space.shape or (), space.dtype)
    if isinstance(space, gym.spaces.Box):
        zero = np.clip(zero, space.low, space.high)
    elif isinstance(space, gym.spaces.Discrete):
        zero = np.asarray(space.start)
    return np.stack([zero] * rows)


def try_model(model: Any, spaces: tuple[gym.Space, gym.Space]) -> None:
    """Asks a base policy for one action; what has values alone is not asked."""
    predict = getattr(model, "predict", None)
    if not callable(predict) and (not callable(model) or isinstance(model, type)):
        return
    x, shape = zeros_of(spaces[0]), spaces[1].shape or ()
    if library_of(model) is not None:
        x = Inputs(model).rows(x)

    def action(given: np.ndarray) -> tuple[int, ...]:
        if not callable(predict):
            return np.shape(model(given))
        known = {"deterministic": True} if "deterministic" in options_of(predict) else {}
        return np.shape(predict(given, **known)[0])

    try:
        found = action(x[0])
    except Exception as error:  # models of users may fail in any way
        try:  # a predict may be made for rows
            found = action(x)[1:]
        except Exception:
            raise ValueError(
                f"model= fails at an observation of zeros of this environment: {error!r}"
            ) from error
    if found != shape:
        raise ValueError(f"the model must give actions of shape {shape}; got {found}")


def options_of(predict: Any) -> set[str]:
    """Which of the options of Stable-Baselines3's predict a model's takes."""
    names = {"state", "episode_start", "deterministic"}
    try:
        parameters = inspect.signature(predict).parameters
    except (TypeError, ValueError):  # some built-in ones have none to read
        return names
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return names
    return names & set(parameters)


def try_source(source: Source | None, spaces: tuple[gym.Space, gym.Space], rows: int) -> None:
    """Computes a signal of values once: what fails at the first step is no fault but an error."""
    if not isinstance(source, PD1 | PD2):
        return
    x, u = (zeros_of(space, rows) for space in spaces)
    no = np.zeros(rows, dtype=bool)
    try:
        aux = source.after(Happened(x, u, np.zeros(rows), x, no, no, learn=False))
        for each in aux.values():
            np.asarray(each, dtype=float).reshape(rows, source.d_w or 1)
    except Exception as error:  # values of users may fail in any way
        raise ValueError(
            f"signal {source.name!r} cannot be computed; at observations and actions of zeros its "
            f"values give {error!r}"
        ) from error
