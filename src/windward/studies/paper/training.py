"""D4PG with MF-GPC against D4PG alone, both trained in the same disturbance.

The paper's experiments on Noisy Hopper, Walker and Ant (`fig:HopperTop`, `fig:HopperAll`), PD1
(`fig:allpd1`, `fig:HopperRawPD1`), the sweep (`fig:PD1`, right) and the pendulums (`fig:pend`).
The best sigma of each method is chosen on other seeds than those on which it is shown.
"""

import json
import time
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import tyro
from rich.console import Console

from windward import checks
from windward.agents import D4PG
from windward.agents import Settings as AgentSettings
from windward.agents.robust import Robust
from windward.studies.paper.group_study import GroupStudy, conduct
from windward.studies.paper.groups import (
    BASELINE,
    SHOWN,
    Entry,
    Group,
    Size,
    check_sizes,
    size_of,
)
from windward.studies.spec import Execution, Pace, Run, Scale, Task, command_line

SMOKE_AGENT: dict[str, Any] = {
    "widths": (8,), "num_atoms": 5, "batch_size": 16, "samples_per_insert": 2.0, "min_replay": 32,
    "replay_size": 2_000, "segment": 100,
}  # fmt: skip
"""settings of D4PG that smoke changes, where they are as they come"""
GREEK = {"sigma": "σ", "eta": "η", "weight_decay": "λ", "h": "h"}


@dataclass(frozen=True)
class RobustTraining:
    """D4PG with MF-GPC against D4PG alone, both trained in the same disturbance.

    Stop it at any moment: the same command goes on, and finished runs are not repeated. Flags that
    are left out come from the scale; --dry-run shows them all.
    """

    study: Annotated[str, tyro.conf.Suppress]
    """its name"""
    env: str
    """the environment's id"""
    scale: Scale = "laptop"
    """paper: the appendix's size; laptop: about an hour on 2 cores; smoke: a minute, for tests"""
    seeds: int | None = None
    """runs of each group that are shown"""
    tune_seeds: int | None = None
    """other runs of each group, used only to choose the best sigma"""
    steps: int | None = None
    """environment steps of a run; more of them go on from where fewer ended"""
    tune_steps: int | None = None
    """environment steps of the runs by which sigma is chosen"""
    eval_every: int | None = None
    """steps between evaluations"""
    eval_episodes: int | None = None
    """episodes of an evaluation"""
    all_groups: bool | None = None
    """show every sigma, not only the best of each method"""
    base_sigmas: tuple[float, ...] = (0.15, 0.2, 0.25)
    """exploration noise of the baseline"""
    sigmas: tuple[float, ...] = (0.15, 0.2, 0.25)
    """exploration noise of MF-GPC"""
    drop_worst: int = 0
    """leave the N lowest runs of each group out of the averaged curves, as one of the paper's
    figures does; tables have all"""
    out: Path | None = None
    """folder for the page, figures, curves and summary; if left out out/studies/STUDY-SCALE, of a
    search out/tune/STUDY-SCALE"""
    agent: AgentSettings = field(default_factory=AgentSettings)
    how: Execution = field(default_factory=Execution)

    def variants(self) -> list[tuple[dict[str, Any], AgentSettings]]:
        """What tells groups of a method apart, and the agent of each."""
        plain = replace(self.agent, robust=Robust())
        baseline = [({"sigma": sigma}, replace(plain, sigma=sigma)) for sigma in self.base_sigmas]
        ours = [({"sigma": sigma}, replace(self.agent, sigma=sigma)) for sigma in self.sigmas]
        return baseline + ours


@dataclass(frozen=True)
class Sweep(RobustTraining):
    """Hyperparameters one at a time around the usual ones: sigma, eta, weight decay and h.

    All groups are shown, none is chosen.
    """

    etas: tuple[float, ...] = ()
    """learning rates of M beside the usual one"""
    weight_decays: tuple[float, ...] = ()
    """weight decays of M beside the usual one"""
    memories: tuple[int, ...] = ()
    """h beside the usual one"""

    def variants(self) -> list[tuple[dict[str, Any], AgentSettings]]:
        """What tells groups of a method apart, and the agent of each."""
        middle = replace(self.agent, sigma=self.sigmas[0])
        others: list[tuple[dict[str, Any], AgentSettings]] = []
        for name, values in (
            ("eta", self.etas), ("weight_decay", self.weight_decays), ("h", self.memories)
        ):  # fmt: skip
            for value in values:
                change: dict[str, Any] = {name: value}
                changed = replace(middle.robust, **change)
                others.append(
                    ({"sigma": middle.sigma, name: value}, replace(middle, robust=changed))
                )
        return super().variants() + others


def method_of(agent: AgentSettings) -> str:
    """What a run with such settings is called in tables and figures."""
    signal = agent.robust.signal
    return BASELINE if signal is None else f"MF-GPC {signal.upper()}"


def training(
    env: str, agent: AgentSettings, seed: int, steps: int, eval_every: int, eval_episodes: int
) -> Run:
    """The run; a baseline has the same name in every study that trains it.

    Steps end with a segment: there a run that goes on later is the same as one that went through.
    """
    if steps % agent.segment or agent.segment % agent.num_envs:
        raise ValueError(
            f"steps must be a multiple of segment, and that of num_envs, so that a longer run goes "
            f"on from where this one ends; got {steps}, {agent.segment} and {agent.num_envs}"
        )
    if eval_every > steps:
        raise ValueError(
            f"eval_every must be at most steps, {steps}, or nothing is evaluated; got {eval_every}"
        )
    plain: dict[str, Any] = json.loads(json.dumps(asdict(agent)))
    if not agent.robust.on:
        del plain["robust"]
    settings = {
        "kind": "D4PG", "env": env, "seed": seed, "eval_every": eval_every,
        "eval_episodes": eval_episodes, "agent": plain,
    }  # fmt: skip
    label = f"{env.rpartition('/')[2]} {method_of(agent)} s{agent.sigma:g} seed{seed}"
    return Run(label, settings, steps, train)


def train(task: Task) -> Pace:
    """Trains, or goes on."""
    settings = task.run.settings
    agent = D4PG(settings["env"], seed=settings["seed"], **settings["agent"])
    times: list[tuple[int, float]] = []

    def evaluated(agent: D4PG) -> None:
        task.check()
        times.append((agent.num_timesteps, time.process_time()))

    agent.learn(
        task.run.goal, evaluated, out=task.folder, eval_every=settings["eval_every"],
        eval_episodes=settings["eval_episodes"],
    )  # fmt: skip
    if not times:  # it was there already, but for the mark
        return Pace(0, 0.0)
    (first, began), (last, ended) = times[0], times[-1]
    return Pace(last - first, ended - began)


def scaled(settings: RobustTraining, entry: Entry) -> RobustTraining:
    """With the small networks of smoke, where they are as they come."""
    if settings.scale != "smoke":
        return settings
    usual = entry.default.agent
    small = {
        name: value
        for name, value in SMOKE_AGENT.items()
        if getattr(settings.agent, name) == getattr(usual, name)
    }
    return replace(settings, agent=replace(settings.agent, **small))


def make_groups(settings: RobustTraining, size: Size) -> list[Group]:
    """All groups of the study; those of a method that has only one need no choosing."""
    variants = settings.variants()
    methods = [method_of(agent) for _, agent in variants]
    made = []
    for (values, agent), method in zip(variants, methods, strict=True):

        def runs(first: int, count: int, steps: int, agent: AgentSettings = agent) -> Any:
            every, episodes = size.eval_every, size.eval_episodes
            return tuple(
                training(settings.env, agent, first + i, steps, every, episodes)
                for i in range(count)
            )

        name = ", ".join(f"{GREEK[key]} = {value:g}" for key, value in values.items())
        rivals = methods.count(method) > 1
        judged = runs(0, size.tune_seeds, size.tune_steps) if rivals and size.tune_seeds else ()
        shown = runs(SHOWN, size.seeds, size.steps)
        made.append(Group(f"{method}, {name}", method, values, shown, judged))
    return made


def run(settings: RobustTraining, entry: Entry, console: Console) -> dict[str, Any]:
    """Does what is not finished, and writes what there is: page, figures, curves, summary."""
    command = command_line(f"windward run {entry.name}", settings, entry.default)
    settings = scaled(settings, entry)
    size = size_of(settings, entry)
    check(settings, size)
    every = make_groups(settings, size)
    identity = _identity(settings, size)
    return conduct(GroupStudy(settings, entry, size, every, identity, command), console)


def _identity(settings: RobustTraining, size: Size) -> dict[str, Any]:
    """What may not change under a name: all but how much is run, where, and how it is drawn."""
    free = {each.name for each in fields(Size)} | {"how", "out", "drop_worst"}
    kept = {name: value for name, value in asdict(settings).items() if name not in free}
    return kept | {"eval_every": size.eval_every, "eval_episodes": size.eval_episodes}


def check(settings: RobustTraining, size: Size) -> None:
    """Refuses what makes no sense, before anything is run."""
    check_sizes(settings.how, size)
    checks.integer("drop_worst", settings.drop_worst, 0)
    for name in ("base_sigmas", "sigmas"):
        values = getattr(settings, name)
        checks.positive(name, values)
        if len(set(values)) < len(values):
            raise ValueError(f"{name} must not name a value twice; got {values}")
    if not settings.agent.robust.on:
        raise ValueError("the study is of training with the module on: give a --signal")
    if settings.agent.sigma != AgentSettings().sigma:
        raise ValueError("here sigma is a grid for each method: use --base-sigmas and --sigmas")
    try:
        gym.spec(settings.env)
    except gym.error.Error as error:
        raise ValueError(str(error)) from error
