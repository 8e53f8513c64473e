"""`windward evaluate`: a base policy against itself with the adaptive layer, in the same wind.

For each seed the base policy plays its episodes alone, and again inside `RobustWrapper` with a
fresh M that learns over the episodes of that seed. Starts, wind and, for discrete actions, the
policy's own draws are the same in both, so differences are paired by seed. The base policy without
wind shows what there is to win back. What exploration costs is counted; nothing is left out.
"""

import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from windward import checks
from windward.adapt import RobustWrapper
from windward.envs import Disturbed
from windward.simulators.wrappers import chain
from windward.studies.evaluation.animation import Filming, Scene
from windward.studies.evaluation.episodes import (
    Actor,
    Episode,
    Recorder,
    Trace,
    play,
    play_adapted,
)
from windward.studies.evaluation.loading import (
    check_fit,
    load_model,
    load_object,
    logits_for,
    make_env,
)

NOMINAL, BASE, GREEDY, ADAPTED = "nominal", "base", "base, greedy", "adapted"


@dataclass(frozen=True)
class Evaluate:
    """Base policy against adapted policy on the same seeds, starts and disturbances.

    Prints a table with paired differences and 95 % intervals over seeds; writes report.html (open
    it in a browser), evaluation.png, episodes.csv, trace.csv and summary.json. Until all of it is
    done, the episodes of finished seeds are in episodes-unfinished.csv. Example:

    windward evaluate --model shipped --env Pendulum-v1
    --disturbance sine:amp=0.2,period=60 --channel qvel --signal pd3 --seeds 8

    `windward list` names the disturbances, `windward list --env ID` the channels of an environment.
    A .zip is loaded by Stable-Baselines3's own code, which unpickles it and so can run anything:
    only load files that you trust.
    """

    model: str
    """the base policy: a .zip of Stable-Baselines3 or SBX, an .npz of windward (D4PG, save_base),
    `shipped` (the one that comes with windward for this environment; shipped:ID for another's), or
    module:function, a function of one observation or an object with predict"""
    env: str
    """the environment's id"""
    disturbance: str | None = None
    """what pushes, as text; left out for environments that are disturbed themselves, such as
    windward/NoisyHopper-v0"""
    channel: str | None = None
    """where it pushes: qvel, action, observation, force:torso ...; goes with a disturbance"""
    signal: str = "auto"
    """pd1, pd2, pd3, auto (the strongest that can be made), or module:function of
    (x, u, reward, x_next)"""
    seeds: int = 8
    """how many seeds"""
    episodes: int = 20
    """episodes of each seed, over which M learns"""
    first_seed: int = 0
    """the first seed; tune on some, report on others"""
    simulator: str | None = None
    """of the nominal world, where windward knows none: a file of save_simulator, or module:object
    with what fit_simulator gave, or options of windward.simulator ({"step": f, "state": g})"""
    learner: str | None = None
    """who proposes corrections: auto, matching, search, mf-gpc, advantage, quadratic, response,
    observer, l1, residual; this and the five below are RobustWrapper's own defaults if left out"""
    h: int | None = None
    """memory"""
    sigma: float | None = None
    """standard deviation of the exploration noise, in actions scaled to [-1, 1]"""
    eta: float | None = None
    """learning rate"""
    every_episodes: int | None = None
    """update M once in so many episodes, not at every step"""
    weight_decay: float | None = None
    """pulls M towards 0"""
    freeze_after: int | None = None
    """episodes after which M stays as it is and exploration ends"""
    max_steps: int | None = None
    """steps of an episode at most; the environment's own limit if left out"""
    algo: str | None = None
    """class of a .zip that does not tell it: PPO, sbx.SAC ..."""
    vec_normalize: Path | None = None
    """file of VecNormalize's statistics that the .zip was trained with; a pickle"""
    logits: str | None = None
    """discrete actions: module:function from rows of observations to rows of logits, for a model
    that has none of its own"""
    greedy: bool = False
    """discrete actions: the base policy takes its likeliest action; otherwise it draws from its
    softmax, as DMF-GPC assumes, and the greedy one is shown beside it"""
    out: Path | None = None
    """folder for the results; if left out one in out/evaluate, of these settings alone"""


class Runs(NamedTuple):
    """One policy's episodes: arrays of shape (seeds, episodes)."""

    returns: np.ndarray
    lengths: np.ndarray
    clipped: np.ndarray
    M_norm: np.ndarray


class Evaluation(NamedTuple):
    """What `evaluate` measured."""

    runs: dict[str, Runs]
    seeds: tuple[int, ...]
    signal: str
    learner: str  # who proposed corrections, in words
    decisions: list[list[str]]  # what was decided about M on each seed, in sentences
    M: list[Any]  # the last one of each seed; none of learners without M
    faults: dict[str, int]
    notes: tuple[str, ...]  # warnings that were given meanwhile
    trace: Trace  # of the first seed
    scene: Scene | None = None  # of the first seed, where the environment can be drawn
    own_wind: bool = False  # whether the environment is disturbed by itself


Keep = Callable[[dict[str, Runs], tuple[int, ...]], object]
"""told all runs of the seeds that are finished, whenever one is"""


def evaluate(
    model: Any,
    env_id: str,
    disturbance: Any = None,
    channel: Any = None,
    signal: Any = "auto",
    *,
    seeds: int = 8,
    episodes: int = 20,
    first_seed: int = 0,
    freeze_after: int | None = None,
    max_steps: int | None = None,
    logits: Any = None,
    greedy: bool = False,
    console: Console | None = None,
    keep: Keep | None = None,
    **options: Any,
) -> Evaluation:
    """Base against adapted, paired; `options` are RobustWrapper's, a console shows progress.

    `keep` gets what there is after each seed, for whoever would not lose it to an interrupt.
    `model` is a policy, or its name as `Evaluate` takes it; the rest is as there too. Everything is
    checked before the first episode.

    >>> wind = "sine:amp=0.2,period=60"
    >>> found = evaluate("shipped", "Pendulum-v1", wind, "qvel", seeds=2, episodes=1, max_steps=20)
    >>> found.signal, found.runs["adapted"].returns.shape
    ('pd3', (2, 1))
    """
    _check(seeds, episodes, first_seed, freeze_after, max_steps)
    _check_channel(disturbance, channel)
    calm = partial(make_env, env_id, max_steps)
    windy = calm if disturbance is None else lambda: Disturbed(calm(), disturbance, channel)
    with closing(windy()) as env:
        space = env.action_space
        discrete = isinstance(space, gym.spaces.Discrete)
        if greedy and not discrete:
            raise ValueError(
                f"greedy is for discrete actions, those of {env_id} are {space}: leave it out"
            )
        own_wind = disturbance is None and any(isinstance(each, Disturbed) for each in chain(env))
        model = load_model(model, env_id) if isinstance(model, str) else model
        name = str(getattr(model, "__name__", type(model).__name__))
        check_fit(model, env, name)
        logits = load_object(logits) if isinstance(logits, str) else logits
        if discrete:
            logits = logits_for(model, logits, name)
        own = isinstance(signal, str) and ":" in signal
        options |= {"signal": load_object(signal) if own else signal, "logits": logits}
        options["model"] = model
        used = RobustWrapper(env, seed=first_seed, **options)
        filming = Filming(env, (BASE, ADAPTED), first_seed, episodes)

    greedy = greedy or not discrete
    actor = Actor(model, space, None if greedy else logits)
    alone: dict[str, tuple[Callable[[], gym.Env], Actor]] = {BASE: (windy, actor)}
    if disturbance is not None:
        alone = {NOMINAL: (calm, actor), **alone}
    if not greedy:
        alone[GREEDY] = windy, Actor(model, space)

    played: dict[str, list[list[Episode]]] = {policy: [] for policy in (*alone, ADAPTED)}
    wrappers: list[RobustWrapper] = []
    traces: list[Trace] = []
    every = tuple(range(first_seed, first_seed + seeds))
    with warnings.catch_warnings(record=True) as caught, _bar(console) as bar:
        lines = Lines(console, len(played) * seeds * episodes)
        warnings.simplefilter("always")
        task = bar.add_task("", total=len(played) * seeds * episodes)
        for seed in every:
            for policy, (make, by) in alone.items():
                bar.update(task, description=f"seed {seed}, {policy}")
                with closing(filming.on(make(), policy, seed)) as env:
                    played[policy].append([])
                    for number in range(episodes):
                        played[policy][-1].append(play(env, by, seed, number))
                        bar.advance(task)
                        lines.advance(f"seed {seed}, {policy}")
            bar.update(task, description=f"seed {seed}, {ADAPTED}")
            env = filming.on(windy(), ADAPTED, seed)
            with closing(RobustWrapper(env, seed=seed, **options)) as wrapper:
                recorder = None if traces else Recorder(wrapper)
                played[ADAPTED].append([])
                for number in range(episodes):
                    if number == freeze_after:
                        wrapper.freeze()
                    episode = play_adapted(wrapper, actor, seed, number, recorder)
                    played[ADAPTED][-1].append(episode)
                    bar.advance(task)
                    lines.advance(f"seed {seed}, {ADAPTED}")
                wrappers.append(wrapper)
                if recorder is not None:
                    traces.append(recorder.trace())
            if keep is not None:
                keep(_runs(played), every[: len(wrappers)])
    return Evaluation(
        _runs(played),
        every,
        str(used.signal),
        used.learner + (f", baseline {used.baseline}" if used.has_M and used.baseline else ""),
        [wrapper.decisions for wrapper in wrappers],
        [wrapper.M for wrapper in wrappers if wrapper.has_M],
        dict(sum((Counter(wrapper.faults) for wrapper in wrappers), Counter())),
        tuple(dict.fromkeys(str(each.message) for each in caught)),
        traces[0],
        filming.scene(),
        own_wind,
    )


def _runs(played: dict[str, list[list[Episode]]]) -> dict[str, Runs]:
    return {policy: Runs(*np.moveaxis(np.array(each), -1, 0)) for policy, each in played.items()}


def _check(
    seeds: int, episodes: int, first_seed: int, freeze_after: int | None, max_steps: int | None
) -> None:
    checks.integer("seeds", seeds, 1)
    checks.integer("episodes", episodes, 1)
    checks.integer("first_seed", first_seed, 0)
    if max_steps is not None:
        checks.integer("max_steps", max_steps, 1)
    if freeze_after is None:
        return
    if checks.integer("freeze_after", freeze_after, 0) >= episodes:
        raise ValueError(
            f"freeze_after must be less than episodes, {episodes}, or nothing is frozen; got "
            f"{freeze_after}"
        )


def _check_channel(disturbance: Any, channel: Any) -> None:
    if channel is not None and disturbance is None:
        raise ValueError(
            f"channel {channel!r} is where a disturbance pushes, and there is none: give a "
            "disturbance too, such as uniform:bound=0.1, or leave channel out"
        )


class Lines:
    """Progress in lines, where there is no terminal that a bar could be drawn on."""

    EVERY = 10.0
    """seconds between lines, at least"""

    def __init__(self, console: Console | None, total: int) -> None:
        self._console = console if console is not None and not console.is_terminal else None
        self._total, self._done = total, 0
        self._begun = self._said = time.monotonic()

    def advance(self, what: str) -> None:
        """An episode was played."""
        self._done += 1
        now = time.monotonic()
        if self._console is None or now - self._said < self.EVERY or self._done == self._total:
            return
        self._said = now
        left = (now - self._begun) / self._done * (self._total - self._done)
        self._console.print(
            f"{what}: {self._done} of {self._total} episodes, about {left / 60:.0f} minutes left",
            highlight=False,
        )


def _bar(console: Console | None) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("episodes"),
        TimeRemainingColumn(),
        console=console,
        disable=console is None,
        transient=True,
    )
