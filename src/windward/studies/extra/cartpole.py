"""`cartpole-discrete`: DMF-GPC (`algo:discrete`) on a softmax policy, CartPole in a strong wind.

The paper's appendix on discrete actions (`sec:discrete`) has no experiment. Here the policy that
comes with the package acts alone, or with a residual on its logits that learns over the episodes
of a seed, by PD1 (`eq:pd1_discrete`), PD2 or PD3. eta is chosen for each signal on other seeds.
"""

import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from rich.console import Console

from windward import checks, policies
from windward.adapt import RobustWrapper
from windward.atomic import write_rows
from windward.envs import Disturbed
from windward.studies.evaluation.episodes import Actor, play, play_adapted
from windward.studies.evaluation.loading import make_env
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
from windward.studies.runs.store import CURVES
from windward.studies.spec import Execution, Pace, Run, Scale, Task, command_line

ENV = "CartPole-v1"
Signal = Literal["pd1", "pd2", "pd3"]


@dataclass(frozen=True)
class CartpoleDiscrete:
    """DMF-GPC on CartPole in a sinusoidal wind, against the policy alone.

    Flags that are left out come from the scale; --dry-run shows what they come to.
    """

    scale: Scale = "laptop"
    """paper and laptop are alike here, as the paper has no such experiment; smoke: for tests"""
    seeds: int | None = None
    """runs of each group that are shown"""
    tune_seeds: int | None = None
    """other runs of each group, by which eta is chosen"""
    steps: int | None = None
    """episodes of a run"""
    all_groups: bool | None = None
    """show every eta, not only the best of each signal"""
    signals: tuple[Signal, ...] = ("pd1", "pd2", "pd3")
    """pseudo-disturbances"""
    etas: tuple[float, ...] = (1e-4, 1e-3, 1e-2)
    """learning rates of M"""
    h: int = 5
    """memory"""
    weight_decay: float = 0.0
    """of M"""
    disturbance: str = "sine:amplitude=8,period=90"
    """the wind; the motor pushes with 10 newtons"""
    channel: str = "force:cart"
    """where it pushes"""
    drop_worst: int = 0
    """lowest runs of each group that figures leave out; tables never do"""
    out: Path | None = None
    """folder for the page, figures, curves and summary; out/studies/... if left out"""
    how: Execution = field(default_factory=Execution)

    @property
    def env(self) -> str:
        """For titles."""
        return ENV


def episodes(task: Task) -> Pace:
    """The episodes of one seed; quick, so that it begins anew after a stop."""
    settings, began = task.run.settings, time.process_time()
    seed, signal = settings["seed"], settings["signal"]
    env: Any = Disturbed(make_env(ENV), settings["disturbance"], settings["channel"])
    model = policies.load(ENV)
    if signal is not None:
        env = RobustWrapper(
            env, signal, model=model, logits=model.logits, preset=settings["preset"],
            h=settings["h"], eta=settings["eta"], weight_decay=settings["weight_decay"], seed=seed,
        )  # fmt: skip
    # As DMF-GPC assumes, the policy draws from its softmax: for all alike.
    actor = Actor(model, env.action_space, model.logits)
    rows = []
    for number in range(task.run.goal):
        played = (play if signal is None else play_adapted)(env, actor, seed, number)
        row = {"steps": number + 1, "eval_return": played.total}
        rows.append(row if signal is None else row | {"M_norm": played.M_norm})
        if number % 10 == 9 or number + 1 == task.run.goal:
            task.check()
            write_rows(task.folder / CURVES, rows)
    env.close()
    return Pace(task.run.goal, time.process_time() - began)


def make_groups(settings: CartpoleDiscrete, size: Size) -> list[Group]:
    """The policy alone, and each signal with each eta."""

    def runs(values: dict[str, Any], label: str, first: int, count: int, goal: int) -> Any:
        common = {"kind": "DMF-GPC", "env": ENV, "disturbance": settings.disturbance,
                  "channel": settings.channel}  # fmt: skip
        return tuple(
            Run(f"CartPole {label} seed{seed}", common | values | {"seed": seed}, goal, episodes)
            for seed in range(first, first + count)
        )

    alone: dict[str, Any] = {"signal": None}
    shown = runs(alone, BASELINE, SHOWN, size.seeds, size.steps)
    groups = [Group(BASELINE, BASELINE, {}, shown)]
    for signal in settings.signals:
        for eta in settings.etas:
            values = {"signal": signal, "eta": eta, "h": settings.h,
                      "weight_decay": settings.weight_decay, "preset": "paper"}  # fmt: skip
            method = f"DMF-GPC {signal.upper()}"
            label = f"{method} eta{eta:g}"
            judged = runs(values, label, 0, size.tune_seeds, size.tune_steps)
            shown = runs(values, label, SHOWN, size.seeds, size.steps)
            name = f"{method}, η = {eta:g}"
            groups.append(Group(name, method, {"eta": eta}, shown, judged))
    return groups


def run(settings: CartpoleDiscrete, console: Console) -> dict[str, Any]:
    """Does what is not finished, and writes what there is."""
    size = size_of(settings, ENTRY)
    check_sizes(settings.how, size)
    for signal in settings.signals:
        checks.choice("signals", signal, get_args(Signal))
    checks.positive("etas", settings.etas, zero=True)
    Disturbed(make_env(ENV), settings.disturbance, settings.channel).close()
    command = command_line(f"windward run {ENTRY.name}", settings, ENTRY.default)
    free = {each.name for each in fields(Size)} | {"how", "out", "drop_worst"}
    identity = {name: value for name, value in asdict(settings).items() if name not in free}
    groups = make_groups(settings, size)
    return conduct(GroupStudy(settings, ENTRY, size, groups, identity, command), console)


FULL = Size(25, 8, 60, 60, 1, 1, all_groups=False)
ENTRY = Entry(
    "cartpole-discrete",
    "DMF-GPC against the policy alone, CartPole in a strong wind",
    "sec:discrete: DMF-GPC with PD1, PD2 and PD3 on CartPole in a wind.",
    "The paper gives the algorithm and no experiment.",
    "none",
    "about 1 h",
    {"paper": FULL, "laptop": FULL, "smoke": Size(2, 1, 2, 1, 1, 1, all_groups=False)},
    CartpoleDiscrete(),
    "A trained softmax policy acts alone (baseline), or with Σ M_i ŵ_{t-i} on its logits; M is 0 "
    "at the first episode of a seed and learns over the others, by the paper's update. Starts, "
    "wind and the policy's own draws are the same for all at the same seed and episode.",
    "episodes",
    paired=True,
)
