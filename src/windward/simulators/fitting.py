"""`fit_simulator`: a simulator for who has none, learned from steps."""

import warnings
from collections.abc import Sequence
from itertools import chain, combinations, islice
from typing import Any

import gymnasium as gym
import numpy as np
from rich.progress import track

from windward import checks
from windward.policies.predictor import predictor
from windward.simulators.ensembles import CLASSES, init_ensemble, learn_ensemble
from windward.simulators.learned import EndFunction, Fit, LearnedSimulator, Networks, RewardFunction
from windward.simulators.ridge import explained, robust_ridge
from windward.simulators.transitions import Steps, explored, gathered, split, steps_from

MEMBERS = 4
RIDGE = 10.0
"""of the linear map that is fitted on the policy's own steps, in steps that say 0"""
CIRCLE = 1e-4
"""how far from 1 a sum of squares may be for a circle; float32 is not exact"""
ENDS = (32, 32)
"""hidden layers of the network that knows ends"""
FEWEST_ENDS = 5
"""ends to learn from at least; with fewer, episodes are taken to go on for ever"""


def fit_simulator(
    env: Any,
    policy: Any = None,
    *,
    data: Any = None,
    steps: int = 10_000,
    sigma: float = 1.0,
    plain: float = 0.2,
    reward: RewardFunction | None = None,
    terminated: EndFunction | None = None,
    members: int = MEMBERS,
    widths: tuple[int, ...] = (64, 64),
    updates: int = 10_000,
    learning_rate: float = 3e-3,
    held_out: float = 0.2,
    seed: int = 0,
    progress_bar: bool = False,
) -> LearnedSimulator:
    """A simulator learned from steps, for PD3 and for replays where there is no other.

    The policy runs for `steps` steps in `env` (an environment, its id or a function that makes it:
    calm, as what it learns counts as no disturbance). Noise on its actions, of standard deviation
    up to `sigma` in actions scaled to [-1, 1], shows what u does; for discrete actions `sigma` is
    how often, at most, another one is taken. In a share `plain` of the steps there is no noise: the
    networks do not learn from them, a linear map of what is left over does, and how large the error
    is where the policy itself goes is measured there. That tells a changed world from an error of
    the simulator. Or `data` has the steps, and the policy is left out: a
    replay buffer of Stable-Baselines3 or SBX, or arrays (x, u, reward, x_next, terminated), u as
    the environment takes it; `env` then only tells the spaces.

    Small networks (`members` of them) learn x_{t+1} - x_t and the reward, and one when an episode
    ends; give what you know better as functions on rows of observations: reward(x, u, x_next) and
    terminated(x_next). Half of `held_out` of the steps say when to stop, the other half how large
    the error is: `.fit`, `.report()`, and a warning where it is too large to rely on.

    >>> import gymnasium as gym
    >>> small = {"steps": 3000, "updates": 2000, "widths": (16,)}
    >>> sim = fit_simulator("Pendulum-v1", lambda x: [-x[1]], **small)
    >>> sim.step([[1.0, 0.0, 0.0]], [[0.5]])[0].shape
    (1, 3)
    """
    _check(widths, members, updates, learning_rate, sigma, held_out, seed)
    if not 0.0 <= float(checks.finite_array("plain", plain, ndim=0)) <= 0.5:
        raise ValueError(f"plain must lie in [0, 0.5]; got {plain!r}")
    checks.integer("steps", steps, 100)
    if (policy is None) == (data is None):
        raise ValueError("fit_simulator needs a policy to run, or data=: one of them")
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3,)))
    if not isinstance(env, (str, gym.Env)) and not callable(env):
        raise ValueError(
            f"env must be an id, an environment or a function that makes one; got {env!r}"
        )
    own = not isinstance(env, gym.Env)
    made: gym.Env = gym.make(env) if isinstance(env, str) else env() if own else env
    try:
        spaces = spaces_of(made)
        if data is None:
            act, last = predictor(policy, spaces[1]), round(plain * steps)
            source = chain(
                islice(explored(made, act, sigma, rng), steps - last),
                islice(explored(made, act, 0.0, rng), last),
            )
            walk = track(source, "rollouts", steps, disable=not progress_bar, transient=True)
            both = gathered(list(walk))
            rows = np.arange(steps)
            taken, alone = both.at(rows[: steps - last]), both.at(rows[steps - last :])
        else:
            taken = steps_from(data, *spaces)
            alone = taken.at(np.arange(0))
    finally:
        if own:
            made.close()
    if len(taken.x) < 100:
        raise ValueError(f"data must have at least 100 steps; it has {len(taken.x)}")
    learn, stop, judge = (taken.at(rows) for rows in split(len(taken.x), held_out, rng))
    settings: dict[str, Any] = {
        "updates": updates, "learning_rate": learning_rate, "rng": rng, "progress_bar": progress_bar
    }  # fmt: skip
    networks = _learn(learn, stop, members, widths, terminated is None, settings)
    found = LearnedSimulator(networks, *spaces, _nothing(taken), reward, terminated)
    if not len(alone.x):  # the next best: steps that the networks have not learned from
        alone = stop
    found = _settled_on(found, alone)
    found.fit = judged(found, judge)._replace(own=_own_error(found, alone))
    if found.fit.ill:
        warnings.warn(f"ill-fitted: {found.fit}", UserWarning, stacklevel=2)
    return found


def _check(
    widths: Any, members: Any, updates: Any, rate: Any, sigma: Any, held_out: Any, seed: Any
) -> None:
    if not isinstance(widths, Sequence) or not widths:
        raise ValueError(f"widths must name the hidden layers, for instance (64, 64); got {widths}")
    for width in widths:
        checks.integer("widths", width, 1)
    checks.integer("members", members, 1)
    checks.integer("updates", updates, 1)
    checks.integer("seed", seed, 0)
    for name, number in (("learning_rate", rate), ("sigma", sigma)):
        checks.finite_array(name, number, ndim=0)
        checks.positive(name, number)
    if not 0.0 < float(checks.finite_array("held_out", held_out, ndim=0)) <= 0.5:
        raise ValueError(f"held_out must lie in (0, 0.5]; got {held_out!r}")


def spaces_of(env: gym.Env) -> tuple[gym.spaces.Box, gym.Space]:
    """The spaces, where they are of a kind that can be learned."""
    space = env.observation_space
    if not isinstance(space, gym.spaces.Box):
        raise ValueError(
            f"fit_simulator needs observations in a Box; the space is {space}: flatten it with "
            "gymnasium.wrappers.FlattenObservation"
        )
    if np.dtype(space.dtype).kind != "f":
        raise ValueError(
            f"fit_simulator learns the motion of real numbers, not of {space.dtype}: images and "
            "counts have no small differences"
        )
    return space, env.action_space


def _learn(
    learn: Steps,
    stop: Steps,
    members: int,
    widths: tuple[int, ...],
    ends_too: bool,
    settings: dict[str, Any],
) -> Networks:
    """Least squares, and networks for what these leave."""
    x_all = np.concatenate([learn.x, learn.x_next])
    mean, spread = x_all.mean(axis=0), np.maximum(x_all.std(axis=0), 1e-6)
    start = Networks(
        mean, spread, x_all.min(axis=0), x_all.max(axis=0), linear=np.zeros(0), size=np.zeros(0),
        circles=circles_in(x_all), params={}, ends=None,
    )  # fmt: skip
    z, goal = start.inputs(learn.x, learn.u), _goal(learn)
    # Nearly singular where the policy leaves no room for noise: the smallest such solution.
    linear = np.linalg.lstsq(z, goal, rcond=1e-6)[0]
    rest = goal - z @ linear
    size = np.maximum(rest.std(axis=0), np.maximum(1e-4 * goal.std(axis=0), 1e-8))
    z_stop = start.inputs(stop.x, stop.u)
    rng = settings["rng"]
    params = learn_ensemble(
        init_ensemble(rng, members, (z.shape[1] - 1, *widths, goal.shape[1])),
        (z[:, :-1], rest / size),
        (z_stop[:, :-1], (_goal(stop) - z_stop @ linear) / size),
        label="dynamics",
        **settings,
    )
    ends = None
    if ends_too and learn.terminated.sum() >= FEWEST_ENDS:
        ends = learn_ensemble(
            init_ensemble(rng, members, (len(mean), *ENDS, 1)),
            ((learn.x_next - mean) / spread, learn.terminated[:, None]),
            ((stop.x_next - mean) / spread, stop.terminated[:, None]),
            kind=CLASSES,
            label="ends",
            **settings,
        )
    return start._replace(linear=linear, size=size, params=params, ends=ends)


def _settled_on(simulator: LearnedSimulator, own: Steps) -> LearnedSimulator:
    """With a linear map of what is left over on the policy's own steps, where there is one."""
    F = simulator.features(own.x, own.u)
    rest = own.x_next - simulator.advance(own.x, own.u)
    share = explained(F, rest, RIDGE).share
    if not (share > 0).any():
        return simulator
    return simulator.corrected(np.where(share > 0, robust_ridge(F, rest, RIDGE), 0.0))


def _own_error(simulator: LearnedSimulator, own: Steps) -> np.ndarray:
    """(d_x,) root mean square error on those steps."""
    rest = own.x_next - simulator.advance(own.x, own.u)
    return np.asarray(np.sqrt(np.square(rest).mean(axis=0)))


def circles_in(x: np.ndarray) -> np.ndarray:
    """Pairs of coordinates whose squares sum to 1, and fours in a row: angles and quaternions."""
    d_x = x.shape[1]
    fours = [tuple(range(i, i + 4)) for i in range(d_x - 3)]
    found: list[np.ndarray] = []
    for group in [*combinations(range(d_x), 2), *fours]:
        free = not any(each[list(group)].any() for each in found)
        moves = x[:, group].std(axis=0).min() > CIRCLE
        if free and moves and np.abs(np.square(x[:, group]).sum(axis=1) - 1).max() < CIRCLE:
            found.append(np.isin(np.arange(d_x), group).astype(float))
    return np.stack(found, axis=1) if found else np.zeros((d_x, 0))


def _goal(steps: Steps) -> np.ndarray:
    return np.concatenate([steps.x_next - steps.x, steps.reward[:, None]], axis=1)


def _nothing(steps: Steps) -> Fit:
    zero = np.zeros(steps.x.shape[1])
    return Fit(0, zero, zero, 0.0, 0.0, 0, 0, 0, zero)


def judged(simulator: LearnedSimulator, steps: Steps) -> Fit:
    """The one-step error on steps."""
    u = simulator._code.decode(steps.u)
    x_next, cost, _ = simulator.step(steps.x, u)
    seen = simulator.terminated(steps.x_next, u)
    reward_error = cost + steps.reward
    return Fit(
        len(steps.x),
        np.sqrt(np.square(x_next - steps.x_next).mean(axis=0)),
        (steps.x_next - steps.x).std(axis=0),
        float(np.sqrt(np.square(reward_error).mean())),
        float(steps.reward.std()),
        int(steps.terminated.sum()),
        int((steps.terminated & ~seen).sum()),
        int((seen & ~steps.terminated).sum()),
        np.zeros(steps.x.shape[1]),
    )
