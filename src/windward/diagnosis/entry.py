"""`diagnose` and `diagnose_log`: from a policy's episode or a log to what changed."""

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from rich.console import Console

from windward import checks
from windward.bases.policies import predictor
from windward.diagnosis.diagnosis import MUCH, Change, Diagnosis, Trace
from windward.diagnosis.fit import interval_width
from windward.diagnosis.identify import Identified, Settings, identify, shifted
from windward.diagnosis.learned import LearnedDynamics
from windward.diagnosis.log import Episode, Log, check_fits, load_log, log_of
from windward.diagnosis.parameters import Parameter, parameters_of
from windward.diagnosis.recorder import Recorder
from windward.diagnosis.residuals import Residuals, Rows
from windward.diagnosis.wind import Wind, wind_of
from windward.envs.changed import DELAY
from windward.simulators.learned import LearnedSimulator
from windward.simulators.shell import Unsupported
from windward.simulators.simulator import Simulator, simulator

SEEN = 0.5
"""a parameter is seen if its interval is narrower than this share of what was before the data"""
SLEEP = 0.8
"""of a smooth random action that stays to the next step"""
REGULAR = 0.6
"""share of what is left over that its past tells, from which on it is no noise"""
JUMP = 3.0
"""a position that moves by so much more than its velocities allow has not been reached in a step"""


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
        model: the policy, of any make that windward knows; None for smooth random actions, which
            show more parameters than most policies do.
        env: the world as it is, an environment or an id.
        episodes: how many to run.
        steps: in all, at most; episodes begin anew until there are so many. Without it, whole
            episodes.
        seed: of the first reset.
        simulator: what the world is compared with: `windward.simulator(env)`, one of
            `fit_simulator`, or None for the environment's own physics, unchanged.
        parameters: kinds ("mass", "gain") or single ones ("mass:torso") to try; all if left out.
        from_observations: do not read true states, get them back from observations.
        settings: of the method.
        threads: for simulation; all cores if left out.
        progress_bar: show what is being done.

    Returns:
        What was found. An interrupt (Ctrl-C) ends the work early, and returns what there is.

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
    made = gym.make(env) if isinstance(env, str) else env
    if not isinstance(made, gym.Env):
        raise ValueError(f"env must be an environment or an id; got {env!r}")
    nominal = _nominal(made, simulator)
    act = _policy(model, made, seed)
    with _saying(progress_bar) as say:
        say("running the policy")
        log = _run(act, made, nominal, episodes, steps, seed)
        return _diagnosed(log, made, nominal, parameters, from_observations, settings, threads, say)


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
        simulator, parameters, from_observations, settings, threads, progress_bar: see `diagnose`.
    """
    made = gym.make(env) if isinstance(env, str) else env
    if not isinstance(made, gym.Env):
        raise ValueError(f"env must be an environment or an id; got {env!r}")
    if isinstance(log, (str, Path)):
        log = load_log(log)
    elif isinstance(log, Mapping):
        log = log_of(log)
    elif not isinstance(log, Log):
        raise ValueError(f"log must be a file, a Log or arrays by name; got {type(log).__name__}")
    nominal = _nominal(made, simulator)
    with _saying(progress_bar) as say:
        return _diagnosed(log, made, nominal, parameters, from_observations, settings, threads, say)


class _Saying:
    """Shows what is being done."""

    def __enter__(self) -> Any:
        self._status = Console(stderr=True).status("diagnosis")
        self._status.start()
        return lambda what: self._status.update(f"diagnosis: {what}")

    def __exit__(self, *_: Any) -> None:
        self._status.stop()


def _saying(progress_bar: bool) -> Any:
    return _Saying() if progress_bar else nullcontext(lambda _: None)


def _nominal(env: gym.Env, given: Any) -> Simulator | LearnedSimulator:
    """What the world is compared with."""
    if given is None:
        try:
            return simulator(env, noisy=False)
        except Unsupported as error:
            raise Unsupported(
                f"{error}. Or give simulator=: one of windward.fit_simulator, learned from steps "
                "of the nominal world"
            ) from error
    if isinstance(given, Simulator) and given.noisy:
        raise ValueError("a simulator for a diagnosis draws no noise: make it with noisy=False")
    if isinstance(given, (Simulator, LearnedSimulator)):
        return given
    raise ValueError(
        "simulator must be one of windward.simulator or windward.fit_simulator; got "
        f"{type(given).__name__}"
    )


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


def _run(act: Any, env: gym.Env, nominal: Any, episodes: int, steps: int | None, seed: int) -> Log:
    """Episodes of the policy; an interrupt ends them early."""
    recorder = Recorder(env)
    count, taken = 0, 0
    try:
        while count < episodes or (steps is not None and taken < steps):
            observation, _ = recorder.reset(seed=seed if count == 0 else None)
            count += 1
            done = False
            while not done and (steps is None or taken < steps):
                action = act(observation)
                observation, _, terminated, truncated, _ = recorder.step(action)
                taken += 1
                done = terminated or truncated
            if steps is not None and taken >= steps:
                break
    except KeyboardInterrupt:
        if taken < 10:
            raise
    recorder._end(terminated=False, truncated=True)
    return recorder.log


def _diagnosed(
    log: Log,
    env: gym.Env,
    nominal: Simulator | LearnedSimulator,
    wanted: Sequence[str] | None,
    from_observations: bool,
    settings: Settings | None,
    threads: int | None,
    say: Any,
) -> Diagnosis:
    settings = settings or Settings()
    learned = isinstance(nominal, LearnedSimulator)
    dynamics: Any = (
        LearnedDynamics(nominal) if isinstance(nominal, LearnedSimulator) else nominal.dynamics
    )
    check_fits(log, env, None if learned or from_observations else dynamics.d_x)
    rows, notes = _rows(log, nominal, from_observations or learned, settings.steps)
    parameters = parameters_of(dynamics, wanted, settings.sizes)
    scale = _scale(rows)
    if learned:
        settings = _looser(settings, nominal)
    residuals = Residuals(dynamics, parameters, threads, scale)
    began = time.perf_counter()
    found = identify(residuals, rows, settings, say)
    say("what is left over")
    rows = shifted(rows, found.explanation.delay)
    smallest = max(settings.nothing, settings.exact * found.nominal)
    seconds = nominal.seconds if isinstance(nominal, Simulator) else None
    wind = wind_of(residuals, found, rows, smallest, seconds)
    return _result(
        found, wind, residuals, rows, parameters, settings, log, env, nominal, notes,
        time.perf_counter() - began,
    )  # fmt: skip


def _looser(settings: Settings, nominal: Any) -> Settings:
    """A learned simulator's own error is no change."""
    error = float(nominal.fit.missed)
    return replace(
        settings,
        exact=max(settings.exact, error**2),
        nothing=max(settings.nothing, 2 * error**2),
        smallest=max(settings.smallest, 2 * error),
        resolution=max(settings.resolution, error),
    )


def _rows(log: Log, nominal: Any, observed: bool, most: int) -> tuple[Rows, tuple[str, ...]]:
    """Steps as rows of states; whole stretches of the first `most`."""
    parts, notes = [], []
    run = 0
    for number, episode in enumerate(log.episodes):
        x, kept = _states(episode, nominal, observed)
        u = _inner(nominal, episode.actions)
        _refuse_jumps(x, nominal, number)
        T = episode.steps
        good = kept[:-1] & kept[1:]
        # Runs end where a step is left out.
        breaks = np.r_[True, ~good[1:] | ~good[:-1]] if T > 1 else np.array([True])
        own = run + np.cumsum(breaks)
        run = int(own[-1]) + 1
        t = np.arange(T)
        rows = Rows(x[:-1], u, x[1:], own, t, np.full(T, number)).take(good)
        if rows.size < good.size:
            notes.append(
                f"{good.size - rows.size} steps of episode {number} were left out: their "
                "observations are clipped, and hide the state"
            )
        parts.append(rows)
        if sum(each.size for each in parts) >= most:
            break
    joined = Rows(
        *(np.concatenate(each) for each in zip(*(part[:6] for part in parts), strict=True))
    )
    if joined.size < 10:
        raise ValueError(
            f"only {joined.size} steps of the log can be used: record at least 10, better 100"
        )
    return joined.take(slice(0, most)), tuple(notes)


def _states(episode: Episode, nominal: Any, observed: bool) -> tuple[np.ndarray, np.ndarray]:
    """(states, which of them are known) of an episode."""
    if isinstance(nominal, LearnedSimulator):
        x = np.asarray(episode.observations, dtype=np.float64)
        x = x.reshape(len(x), -1)
        return x, np.ones(len(x), dtype=bool)
    if episode.states is not None and not observed:
        x = np.asarray(episode.states, dtype=np.float64)
        return x, np.ones(len(x), dtype=bool)
    return nominal.states_seen(np.asarray(episode.observations, dtype=np.float64))


def _inner(nominal: Any, actions: np.ndarray) -> np.ndarray:
    """Actions as the physics takes them."""
    if isinstance(nominal, LearnedSimulator):
        return np.asarray(actions)
    u = nominal.inner(np.asarray(actions))
    return np.asarray(u, dtype=np.float64) if u.dtype.kind == "f" else np.asarray(u)


def _refuse_jumps(x: np.ndarray, nominal: Any, number: int) -> None:
    """Positions that no velocity leads to: steps are missing, or an end is not marked."""
    parts = {} if isinstance(nominal, LearnedSimulator) else nominal.dynamics.parts
    if "qvel" not in parts or len(parts["qpos"]) != len(parts["qvel"]) or len(x) < 3:
        return
    q, v = x[:, parts["qpos"]], np.abs(x[:, parts["qvel"]])
    gap = np.abs(nominal.dynamics.gap(x[1:], x[:-1])[:, parts["qpos"]])
    dt = nominal.seconds
    if dt is None or not np.isfinite(q).all():
        return
    usual = np.median(v, axis=0) + 0.1
    speed = (x[1:] + x[:-1])[:, parts["qvel"]] / 2
    noise = np.median(np.abs(x[1:] - x[:-1])[:, parts["qpos"]] - dt * np.abs(speed), axis=0)
    allowed = JUMP * dt * (v[1:] + v[:-1] + usual) + 20 * np.abs(noise)
    bad = (gap > allowed).any(axis=1)
    # Where most steps jump the velocities are in another unit: that is for the fit to show.
    if bad.any() and bad.mean() < 0.2:
        step = int(bad.argmax())
        raise ValueError(
            f"step {step} of episode {number} jumps: its position changes by "
            f"{gap[step].max():.3g}, more than its velocities allow. Steps are missing there, or "
            "an episode ended: mark an end"
        )


def _scale(rows: Rows) -> np.ndarray:
    """The usual change of each coordinate in a step."""
    size = np.std(rows.x_next - rows.x, axis=0)
    # What hardly moves is measured against the others, not against itself.
    return np.maximum(size, 1e-3 * float(size.max(initial=0.0)) + 1e-9)


def _result(
    found: Identified,
    wind: Wind | None,
    residuals: Residuals,
    rows: Rows,
    parameters: list[Parameter],
    settings: Settings,
    log: Log,
    env: gym.Env,
    nominal: Any,
    notes: tuple[str, ...],
    seconds: float,
) -> Diagnosis:
    before, after = residuals.at([np.zeros(len(parameters)), found.theta], rows)
    unexplained, foreign = _unexplained(found, wind, after, before, rows)
    changes = _changes(found, parameters)
    if found.explanation.delay:
        late = float(found.explanation.delay)
        changes[DELAY] = Change(late, late, late, "steps")
    # Changes that leave much, and not as noise, were fitted to something else.
    doubtful = unexplained > MUCH and foreign
    factors = _factors(found, parameters)
    spec = env.spec
    return Diagnosis(
        changes={} if doubtful else changes,
        suspects=changes if doubtful else {},
        factors=factors,
        wind=wind,
        unexplained=unexplained,
        together=() if doubtful else _together(found, parameters, changes),
        deviation=float(np.sqrt(found.nominal)),
        env_id=None if spec is None else spec.id,
        env_options={} if env.unwrapped.spec is None else dict(env.unwrapped.spec.kwargs),
        steps=rows.size,
        episodes=len(np.unique(rows.episode)),
        seconds=seconds,
        simulated=residuals.simulated,
        complete=found.complete,
        notes=notes,
        trace=Trace(_rms(before), _rms(after), rows.episode),
        env=env,
        nominal=nominal,
    )


def _rms(r: np.ndarray) -> np.ndarray:
    return np.sqrt(np.nanmean(np.square(np.where(np.isfinite(r), r, np.nan)), axis=1))


def _unexplained(
    found: Identified, wind: Wind | None, after: np.ndarray, before: np.ndarray, rows: Rows
) -> tuple[float, bool]:
    """(share of the deviation that nothing explains, whether that is more than noise)."""
    if wind is None:
        return 0.0, False
    ok = np.isfinite(after).all(axis=1) & np.isfinite(before).all(axis=1)
    share = float(np.square(after[ok]).sum() / max(np.square(before[ok]).sum(), 1e-300))
    share = min(share, 1.0)
    if not wind.axes:
        past = np.mean([each.predictable for each in wind.coordinates])
        return share, bool(past > REGULAR) or _depends(after[ok], rows.take(ok))
    amount = np.concatenate(wind.series)
    if _modelled(wind):
        return share * (1 - wind.explained), False
    if _depends(amount[ok], rows.take(ok)):
        return share, True  # what follows from state and action is no wind
    return share * (1 - wind.explained), False


def _modelled(wind: Wind) -> bool:
    """Whether a sinusoid, a step or a constant is most of the wind."""
    strongest = max(wind.axes, key=lambda each: each.size)
    model = strongest.model
    rest = model.noise
    return bool((model.sines or model.step or abs(model.mean) > rest) and rest < strongest.size)


def _depends(w: np.ndarray, rows: Rows, most: float = 0.4) -> bool:
    """Whether state and action tell much of a series, on steps held out."""
    z = np.concatenate([rows.x, np.reshape(rows.u, (rows.size, -1))], axis=1)
    z = (z - z.mean(axis=0)) / (z.std(axis=0) + 1e-9)
    z = np.concatenate([z, np.square(z), np.ones((len(z), 1))], axis=1)
    half = (np.arange(len(z)) // 25) % 2 == 0
    if half.all() or len(z) < 40:
        return False
    size = np.median(np.abs(w), axis=0) + 1e-12
    y = np.clip(w / size, -6, 6)
    ridge = z[half].T @ z[half] + 0.01 * half.sum() * np.eye(z.shape[1])
    guess = z @ np.linalg.solve(ridge, z[half].T @ y[half])
    left = np.square(y[~half] - guess[~half]).sum() / max(np.square(y[~half]).sum(), 1e-12)
    return bool(1 - left > most)


def _changes(found: Identified, parameters: list[Parameter]) -> dict[str, Change]:
    """The chosen changes; where two overlap, each parameter by itself."""
    width = interval_width(found.scores)
    errors = width * np.sqrt(np.diag(found.covariance))
    taken = np.zeros(len(parameters))
    for atom in found.chosen:
        taken[list(atom.columns)] += 1
    changes: dict[str, Change] = {}
    for i, atom in enumerate(found.chosen):
        whole = not (taken[list(atom.columns)] > 1).any()
        for column in atom.columns[:1] if whole else atom.columns:
            parts = [k for k, each in enumerate(found.chosen) if column in each.columns]
            weight = np.zeros(len(found.chosen))
            weight[parts] = 1.0
            error = width * float(np.sqrt(weight @ found.covariance @ weight))
            name = atom.name if whole else parameters[column].name
            theta = float(found.theta[column])
            changes[name] = _change(parameters[column], theta, errors[i] if whole else error)
    return changes


def _change(parameter: Parameter, theta: float, error: float, seen: bool = True) -> Change:
    low, high = parameter.value(theta - error), parameter.value(theta + error)
    return Change(parameter.value(theta), low, high, parameter.unit, seen)


def _factors(found: Identified, parameters: list[Parameter]) -> dict[str, Change]:
    """Every parameter: as chosen, or what it would be if it were added to those."""
    chosen = {column: i for i, atom in enumerate(found.chosen) for column in atom.columns}
    width = interval_width(found.scores)
    factors = {}
    for i, parameter in enumerate(parameters):
        if i in chosen:
            error = width * float(np.sqrt(found.covariance[chosen[i], chosen[i]]))
            factors[parameter.name] = _change(parameter, float(found.theta[i]), error)
        else:
            error = 1.96 * float(found.errors[i])
            estimate = float(found.estimates[i])
            middle = 0.0 if abs(estimate) < error else estimate
            factors[parameter.name] = _change(
                parameter, middle, error, bool(found.errors[i] < SEEN)
            )
    return factors


def _together(
    found: Identified, parameters: list[Parameter], changes: Mapping[str, Change]
) -> tuple[tuple[str, ...], ...]:
    """Kinds that only show together, where a change is among them.

    A combination of kinds that has no effect is an eigenvector of the Hessian of next to no
    eigenvalue: all masses, gains and dampings times one number, say.
    """
    kinds = [
        kind
        for kind in dict.fromkeys(each.kind for each in parameters if each.is_factor)
        if kind != "inertia"
    ]
    B = np.array([[float(each.kind == kind) for kind in kinds] for each in parameters])
    if not kinds or not changes:
        return ()
    H = B.T @ found.hessian @ B
    size = np.sqrt(np.diag(H))
    felt = size > 1e-3 * size.max(initial=0.0)
    if felt.sum() < 2:
        return ()
    H = H[np.ix_(felt, felt)]
    values, vectors = np.linalg.eigh(H)
    own = [kind for kind, has in zip(kinds, felt, strict=True) if has]
    groups = []
    for value, vector in zip(values, vectors.T, strict=True):
        if value > 1e-5 * np.median(np.diag(H)):
            continue
        members = tuple(
            kind
            for kind, weight in zip(own, vector, strict=True)
            if abs(weight) > 0.2 * np.abs(vector).max()
        )
        if len(members) > 1 and any(name.partition(":")[0] in members for name in changes):
            groups.append(members)
    return tuple(groups)
