"""From names to parts: which source, algorithm and way to act make a module."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks, envs
from windward.adapt.actuation import Actuation, Continuous, Softmax, refuse
from windward.adapt.counterfactual import Counterfactual, Search
from windward.adapt.engine import Engine
from windward.adapt.guard import Guard
from windward.adapt.module import Module
from windward.adapt.sources import (
    PD1,
    PD2,
    PD3,
    ObservedPD3,
    Own,
    Source,
    Valued,
)
from windward.bases.dynamics import LearnedSimulator, percent
from windward.bases.policies import logits_of, predictor
from windward.bases.sb3 import critic_of, library_of
from windward.core.algorithm import Algorithm
from windward.core.recipes import dmf_gpc, mf_gpc
from windward.envs.simulators import Simulator

NAMES = ("pd1", "pd2", "pd3", "auto")
COUNTERFACTUAL = "counterfactual"
IDLE = (
    "eta", "sigma", "M0", "baseline", "weight_decay", "projection", "every_episodes", "every_steps",
)  # fmt: skip
"""options that mean nothing to replays"""
PAPER = "paper"
EVERY_STEPS = 64
"""M moves with every so-many-th step if nothing is said (deviation 21): no call is due between"""
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
) -> Module:
    """The module of a wrapper; `options` are those of `mf_gpc`, or of `dmf_gpc` for logits.

    Options that are None are left to the recipe. `gradient="auto"` is "counterfactual" where it can
    be, for one environment with a simulator at hand and the model, and the paper's elsewhere.
    `guard=False` trusts what is learned; `preset="paper"` is the paper's update as printed, without
    a guard.
    """
    if checks.integer("seed", seed, 0) >= 2**32:
        raise ValueError(f"seed must be below 2**32; got {seed}")
    actuation = make_actuation(*spaces, logits)
    options = {name: each for name, each in options.items() if each is not None}
    gradient, search = options.pop("gradient", "auto"), options.pop("search", None)
    guarded, preset = options.pop("guard", True), options.pop("preset", None)
    checks.choice("guard", guarded, (True, False))
    checks.choice("preset", preset, (None, PAPER))
    if preset is not None:
        if gradient not in ("auto", "reinforce"):
            raise ValueError(f"preset {PAPER!r} is gradient 'reinforce'; got {gradient!r}")
        gradient, guarded = "reinforce", False
        if actuation.discrete:
            options["preset"] = PAPER
    why_not = _why_no_replays(source, actuation, rows, model)
    if gradient == "auto":
        given = set(IDLE) & set(options)
        gradient = "reinforce" if why_not or given else COUNTERFACTUAL
    teacher = None
    if gradient == COUNTERFACTUAL:
        if why_not:
            raise ValueError(f"gradient {COUNTERFACTUAL!r} cannot be had: {why_not}")
        idle = sorted(set(IDLE) & set(options))
        if idle:
            raise ValueError(f"{', '.join(idle)} mean nothing to gradient {COUNTERFACTUAL!r}")
        # Replays need no exploration, and M is theirs: nothing else may move it.
        options |= {"eta": 0.0, "sigma": 0.0, "projection": None, "every_steps": EVERY_STEPS}
        teacher = _teacher(source, predictor(model, spaces[1]), spaces[1], options, seed, search)
    elif search is not None:
        raise ValueError(f"search= is for gradient={COUNTERFACTUAL!r}; got gradient={gradient!r}")
    elif gradient == "response":
        raise ValueError(
            "gradient 'response' looks at states, and works in windward.linear.simulate alone; in "
            "a wrapper there are reinforce, residual, advantage, quadratic and counterfactual"
        )
    elif gradient == "advantage":
        source = _with_values(source, actuation, model)
        options["gradient"] = gradient
    elif gradient != "reinforce":
        options["gradient"] = gradient
    elif preset is None and not actuation.discrete and "every_episodes" not in options:
        options.setdefault("every_steps", EVERY_STEPS)
    algorithm = _algorithm(actuation, source, options)
    engine = Engine(algorithm, rows, shared, seed)
    # With a simulator replays judge M; returns of several rows at once are not told apart.
    guard = Guard() if guarded and teacher is None and rows == 1 else None
    return Module(engine, source, actuation, timely, gradient, teacher, guard)


def _with_values(source: Source, actuation: Actuation, model: Any) -> Source:
    """The source with the base policy's values beside it; refuses where there are none."""
    if actuation.discrete:
        raise ValueError("gradient 'advantage' is for continuous actions; use 'reinforce'")
    try:
        return Valued(source, _given(model))
    except ValueError as error:
        raise ValueError(f"gradient 'advantage' cannot be had: {error}") from error


def _teacher(
    source: Source,
    policy: Callable[[Any], np.ndarray],
    space: gym.Space,
    options: dict[str, Any],
    seed: int,
    search: Search | None,
) -> Counterfactual:
    """Replays with the simulator of PD3; more careful ones, or none, with one that was learned."""
    assert isinstance(space, gym.spaces.Box)
    simulator, refusal = _simulator_of(source), ""
    assert simulator is not None
    if isinstance(simulator, LearnedSimulator):
        missed = simulator.fit.missed
        if simulator.fit.ill:
            refusal = f"no replays: the learned simulator misses {percent(missed)} of the motion"
        search = search or Search(margin=max(Search.margin, MARGIN * missed))
    h = options.get("h", 5)
    return Counterfactual(simulator, policy, space, h, seed, search, refusal)


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
    if actuation.discrete:
        return "actions are discrete"
    if rows > 1:
        return "it is for one environment at a time"
    if model is None:
        return "it replays the base policy: use RobustWrapper, and pass model="
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
    not the ones that run. `simulator` has options of `envs.simulator`, or was learned.
    """
    if isinstance(signal, str):
        checks.choice("signal", signal, NAMES)
        finders: dict[str, Callable[[], Source]] = {
            "pd3": lambda: _pd3(environments, simulator, observed, spaces),
            "pd2": lambda: PD2(_given(model)),
            "pd1": lambda: PD1(_given(model)),
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


def _given(model: Any) -> Any:
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
            "simulator= takes the options of windward.envs.simulator, or what "
            f"windward.fit_simulator gives; got {simulator!r}"
        )
    options = {"noisy": False, **(simulator or {})}
    try:
        made = [envs.simulator(each, **options) for each in environments]
        if observed:
            # Refused now, not at the first step.
            _refuse_hidden(made[0], environments[0])
            return ObservedPD3(made[0])
    except TypeError as error:
        raise ValueError(f"simulator= takes the options of windward.envs.simulator: {error}") from (
            error
        )
    return PD3(made)


def _refuse_hidden(simulator: envs.Simulator, env: gym.Env) -> None:
    """Refuses now, not at the first step, observations that do not tell the state."""
    try:
        simulator.state_of(np.zeros(env.observation_space.shape or ()))
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
            "windward.envs.simulator(env) of this one, or say signal='pd3' and simulator={...}"
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
