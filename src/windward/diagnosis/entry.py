"""`diagnose` and `diagnose_log`: from a policy's episode or a log to what changed."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from rich.console import Console

from windward import checks
from windward.diagnosis.diagnosis import Diagnosis
from windward.diagnosis.identify import Settings, identify
from windward.diagnosis.learned import LearnedDynamics
from windward.diagnosis.log import Log, check_fits, load_log, log_of
from windward.diagnosis.parameters import parameters_of, wants_bias, wants_delay
from windward.diagnosis.recorder import Recorder, check_single
from windward.diagnosis.registered import as_registered
from windward.diagnosis.residuals import Residuals
from windward.diagnosis.result import Parts, result_of
from windward.diagnosis.rows import Nominal, check_function, lost_steps, rows_of, scale_of, without
from windward.diagnosis.sensors import bias_beside
from windward.diagnosis.wind import wind_of
from windward.policies.predictor import predictor
from windward.simulators import wrappers
from windward.simulators.function import FunctionDynamics
from windward.simulators.learned import LearnedSimulator
from windward.simulators.physics import physics_of
from windward.simulators.shell import Unsupported
from windward.simulators.simulator import Simulator, simulator

SLEEP = 0.8
"""of a smooth random action that stays to the next step"""

Progress = Callable[[str], None]


def diagnose(
    model: Any,
    env: gym.Env | str,
    *,
    episodes: int = 1,
    steps: int | None = None,
    seed: int = 0,
    simulator: Any = None,
    parameters: Sequence[str] | None = None,
    from_observations: bool = False,
    settings: Settings | None = None,
    threads: int | None = None,
    progress_bar: bool = False,
) -> Diagnosis:
    """Runs a policy and says what changed in its world.

    Args:
        model: the policy: a model of Stable-Baselines3 or SBX, one of windward, or a function from
            an observation to an action; None for smooth random actions, which show more parameters
            than most policies do.
        env: the world as it is, an environment or an id.
        episodes: how many to run.
        steps: in all, at most; episodes begin anew until there are so many. Without it, whole
            episodes, each of `settings.steps` at most.
        seed: of the first reset.
        simulator: what the world is compared with, made by `windward.simulator` or
            `fit_simulator`; its noise is left out. None for the environment's own physics,
            unchanged.
        parameters: kinds ("mass", "gain") or single ones ("mass:torso") to try; all if left out.
        from_observations: do not read true states, get them back from observations.
        settings: of the method.
        threads: for simulation; all cores if left out.
        progress_bar: show what is being done.

    Returns:
        What was found. An interrupt (Ctrl-C) ends the work early, and returns what there is; then
        `changes` is empty, and what had been found is in `suspects`.

    Raises:
        ValueError: where something does not fit, before any work starts.

    >>> import gymnasium as gym, windward as ww
    >>> world = ww.envs.Changed(gym.make("Pendulum-v1"), {"mass": 1.3})
    >>> round(diagnose(None, world).changes["mass"].factor, 2)
    1.3
    """
    checks.integer("episodes", episodes, 1)
    if steps is not None:
        checks.integer("steps", steps, 10)
    checks.integer("seed", seed, 0)
    settings = _settings(settings)
    made = _environment(env)
    nominal = _nominal(made, simulator)
    about: tuple[str, ...] = ()
    if simulator is None:
        nominal, about = as_registered(made, nominal)
    act = _policy(model, made, seed)
    with _progress(progress_bar) as progress:
        progress("running the policy")
        log = _run(act, made, nominal, episodes, steps, seed, settings.steps)
        return _diagnosed(
            log, made, nominal, parameters, from_observations, settings, threads, progress, about
        )


def diagnose_log(
    log: str | Path | Log | Mapping[str, Any],
    env: gym.Env | str,
    *,
    simulator: Any = None,
    parameters: Sequence[str] | None = None,
    from_observations: bool = False,
    settings: Settings | None = None,
    threads: int | None = None,
    progress_bar: bool = False,
) -> Diagnosis:
    """Says what changed, from recorded transitions.

    Args:
        log: a file of `Recorder`, a `Log`, or arrays as `windward.diagnosis.log_of` takes them.
        env: the nominal environment, as the policy knows it. It is not stepped.
        simulator: see `diagnose`, as are the others.
        parameters: kinds or single ones to try.
        from_observations: do not use recorded states.
        settings: of the method.
        threads: for simulation.
        progress_bar: show what is being done.

    Returns:
        What was found.

    Raises:
        ValueError: a log that cannot be read, or is of another environment.

    >>> import gymnasium as gym, windward as ww
    >>> env = ww.Recorder(ww.envs.Changed(gym.make("Pendulum-v1"), {"mass": 1.3}))
    >>> _ = env.reset(seed=0)
    >>> for _ in range(100):
    ...     _ = env.step(env.action_space.sample())
    >>> env.end_episode()
    >>> round(diagnose_log(env.log, "Pendulum-v1").changes["mass"].factor, 2)
    1.3
    """
    settings = _settings(settings)
    made = _environment(env)
    if isinstance(log, (str, Path)):
        log = load_log(log)
    elif isinstance(log, Mapping):
        log = log_of(log)
    elif not isinstance(log, Log):
        raise ValueError(f"log must be a file, a Log or arrays by name; got {type(log).__name__}")
    nominal = _nominal(made, simulator)
    with _progress(progress_bar) as progress:
        return _diagnosed(
            log, made, nominal, parameters, from_observations, settings, threads, progress
        )


@contextmanager
def _progress(shown: bool) -> Iterator[Progress]:
    """Shows what is being done, if that is wanted."""
    if not shown:
        yield lambda _: None
        return
    with Console(stderr=True).status("diagnosis") as status:
        yield lambda what: status.update(f"diagnosis: {what}")


def _settings(given: Any) -> Settings:
    if given is None:
        return Settings()
    if not isinstance(given, Settings):
        how = "Settings(**settings)" if isinstance(given, Mapping) else "Settings(steps=500)"
        raise ValueError(
            f"settings must be windward.diagnosis.Settings, such as {how}; got "
            f"{type(given).__name__}"
        )
    return given


def _environment(env: Any) -> gym.Env:
    """The one environment that is meant."""
    check_single(env, "diagnose each of them, or put a windward.Recorder around each")
    made = gym.make(env) if isinstance(env, str) else env
    if not isinstance(made, gym.Env):
        raise ValueError(f"env must be an environment or an id; got {env!r}")
    return made


def _nominal(env: gym.Env, given: Any) -> Nominal:
    """What the world is compared with."""
    if given is None:
        try:
            return simulator(env, noisy=False)
        except Unsupported as error:
            raise Unsupported(f"{error}. {_way_out(env)}") from error
    if isinstance(given, Simulator):
        return given.quiet()
    if isinstance(given, LearnedSimulator):
        return given
    raise ValueError(
        "simulator must be one of windward.simulator or windward.fit_simulator; got "
        f"{type(given).__name__}"
    )


def _way_out(env: gym.Env) -> str:
    """What to do where there is no simulator."""
    learn = (
        "simulator=windward.fit_simulator(...), learned from steps of the nominal world, goes "
        "with any environment"
    )
    if physics_of(env.unwrapped) is None:
        return (
            "Or give a diagnosis simulator=windward.simulator(env, step=..., state=...), equations "
            f"of your own; {learn}"
        )
    for layer in wrappers.chain(env):
        try:
            wrappers.maps(layer)
        except Unsupported:
            name = type(layer).__name__
            return (
                f"Or record inside of it: {name}(windward.Recorder(env, 'log.npz'), ...), run "
                "the policy, close the environment, and windward.diagnose_log('log.npz', env) with "
                "the environment that is inside"
            )
    return f"Or give a diagnosis {learn}"


def _policy(model: Any, env: gym.Env, seed: int) -> Any:
    """Observation -> action."""
    space = env.action_space
    if model is not None:
        own = predictor(model, space)
        return lambda observation: own(np.asarray(observation)[None])[0]
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(5,)))
    if isinstance(space, gym.spaces.Discrete):
        return lambda _: int(space.start + rng.integers(space.n))
    if not isinstance(space, gym.spaces.Box):
        raise ValueError(f"random actions are of a Box or Discrete; got {space}")
    low, high = np.maximum(space.low, -1e3), np.minimum(space.high, 1e3)
    middle, half, now = (low + high) / 2, (high - low) / 2, np.zeros(space.shape)

    def act(_: Any) -> np.ndarray:
        now[...] = SLEEP * now + 0.5 * (1 - SLEEP**2) ** 0.5 * rng.standard_normal(now.shape)
        return np.clip(middle + half * now, low, high).astype(space.dtype)

    return act


def _run(
    act: Any, env: gym.Env, nominal: Nominal, episodes: int, steps: int | None, seed: int, most: int
) -> Log:
    """Episodes of the policy; an interrupt ends them early.

    An episode of an environment without an end is cut off after `most` steps.
    """
    recorder = Recorder(env, state=_reader(nominal))
    count, taken = 0, 0
    try:
        while count < episodes or (steps is not None and taken < steps):
            observation, _ = recorder.reset(seed=seed if count == 0 else None)
            count += 1
            stop = taken + most if steps is None else steps
            done = False
            while not done and taken < stop:
                observation, _, terminated, truncated, _ = recorder.step(act(observation))
                taken += 1
                done = terminated or truncated
            if steps is not None and taken >= steps:
                break
    except KeyboardInterrupt:
        if taken < 10:
            raise
    recorder.end_episode()
    return recorder.log


def _reader(nominal: Nominal) -> Callable[[Any], Any] | None:
    """How the simulator reads states, where that is the user's."""
    if isinstance(nominal, Simulator) and isinstance(nominal.dynamics, FunctionDynamics):
        return nominal.dynamics.read
    return None


def _diagnosed(
    log: Log,
    env: gym.Env,
    nominal: Nominal,
    wanted: Sequence[str] | None,
    from_observations: bool,
    settings: Settings,
    threads: int | None,
    progress: Progress,
    about: tuple[str, ...] = (),
) -> Diagnosis:
    observed = from_observations or isinstance(nominal, LearnedSimulator)
    check_fits(log, env, None if observed else _width(nominal))
    rows, notes = rows_of(log, nominal, observed, settings.steps)
    dynamics: Any
    if isinstance(nominal, LearnedSimulator):
        dynamics, settings = LearnedDynamics(nominal), _looser(settings, nominal)
    else:
        dynamics = nominal.dynamics
        if isinstance(dynamics, FunctionDynamics):
            dynamics.take_width(rows.x.shape[1])
            check_function(dynamics, rows)
    seen = observed or any(each.states is None for each in log.episodes)
    parameters = parameters_of(dynamics, wanted, settings.sizes, seen)
    sensed = () if seen or not wants_bias(wanted) else bias_beside(log, nominal)
    if not wants_delay(wanted):
        settings = replace(settings, delays=0)
    residuals = Residuals(dynamics, parameters, threads, scale_of(rows))
    began = time.perf_counter()
    found = identify(residuals, rows, settings, progress)
    used = found.rows
    wind, complete = None, found.complete
    try:
        lost, said = lost_steps(residuals.at([found.theta], used)[0], used)
        if complete and lost.any() and found.noise is None:
            progress("again, without steps that stand out")
            # Delayed rows are fewer: what is lost is known by episode and step.
            keys = set(zip(used.episode[lost].tolist(), used.time[lost].tolist(), strict=True))
            each = zip(rows.episode.tolist(), rows.time.tolist(), strict=True)
            rows = without(rows, np.array([key in keys for key in each]))
            notes = (*notes, *said)
            found = identify(residuals, rows, settings, progress)
            complete = found.complete
            used = found.rows
        # A wind is what is left by a fit that is finished.
        if complete:
            progress("what is left over")
            smallest = max(settings.nothing, settings.exact * found.nominal)
            seconds = nominal.seconds if isinstance(nominal, Simulator) else None
            wind = wind_of(residuals, found, used, smallest, seconds)
    except KeyboardInterrupt:
        complete = False
    took = time.perf_counter() - began
    notes = (*about, *notes, *found.notes)
    return result_of(
        Parts(found, wind, residuals, used, env, nominal, notes, took, complete, sensed)
    )


def _width(nominal: Simulator | LearnedSimulator) -> int | None:
    """Of a state, where it is known without one."""
    dynamics: Any = nominal.dynamics if isinstance(nominal, Simulator) else nominal
    if isinstance(dynamics, FunctionDynamics):
        return dynamics.known_width
    return int(dynamics.d_x)


def _looser(settings: Settings, nominal: LearnedSimulator) -> Settings:
    """A learned simulator's own error is no change."""
    error = float(nominal.fit.missed)
    return replace(
        settings,
        exact=max(settings.exact, error**2),
        nothing=max(settings.nothing, 2 * error**2),
        smallest=max(settings.smallest, 2 * error),
        resolution=max(settings.resolution, error),
    )
