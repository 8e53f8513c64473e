"""From what a user says to a source of ŵ: a name, an object or a function."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks, simulators
from windward.adapt.sources import PD1, PD2, PD3, ObservedPD3, Own, Source
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
