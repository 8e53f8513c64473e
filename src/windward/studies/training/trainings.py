"""A run of D4PG, with the adaptive module or without, as studies keep it."""

import json
import time
from dataclasses import asdict
from typing import Any

from windward.agents import D4PG
from windward.agents import Settings as AgentSettings
from windward.studies.runs.store import Pace, Run, Task

BASELINE = "baseline"


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
