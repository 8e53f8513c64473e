"""The paper's trainings by name, each with its settings and what the paper says of it.

Sigma grids, h, the updates of M every 3 episodes and that there is weight decay are the appendix's
(`app:exper`). It gives neither eta nor the weight decay (deviation 11). Our etas follow the size of
each signal early in training, of whose square corrections are made: on Noisy Hopper |ŵ| was about
20 for PD1, 6.5 for PD2 and 0.14 for PD3. `windward tune` searches for better ones.
"""

from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console

from windward.agents import Settings as AgentSettings
from windward.agents.robust import Robust, Signal
from windward.studies.paper import training
from windward.studies.paper.groups import Entry, Size
from windward.studies.paper.training import RobustTraining, Sweep

ETAS: dict[Signal, float] = {"pd1": 1e-8, "pd2": 1e-7, "pd3": 2e-4}
WEIGHT_DECAYS: dict[Signal, float] = {"pd1": 1e5, "pd2": 1e4, "pd3": 5.0}
"""each takes a thousandth of M at every update: eta times the weight decay"""
PD1_BASE, PD1_OURS = (0.1, 0.15, 0.2, 0.25, 0.3), (0.1, 0.15, 0.2)
WIDE, ALONE = (0.15, 0.2, 0.25), (0.15,)
HOPPER, WALKER = 10_000_000, 15_000_000
MADE = (
    "Baseline and MF-GPC are the same agent, D4PG, trained and evaluated in the same environment. "
    "With MF-GPC the executed action is the policy's, plus Σ M_i ŵ_{t-i}, plus the exploration "
    "noise that the baseline has too, from the same stream. Evaluations have M at rest and no "
    "noise; PD1, which is made of the noise, keeps it."
)


LOCOMOTION: dict[str, Size] = {
    "laptop": Size(3, 1, 300_000, 100_000, 10_000, 20, all_groups=False),
    "smoke": Size(2, 1, 400, 200, 100, 1, all_groups=False),
}
"""of the MuJoCo studies; the paper's own has the appendix's steps. In U[-0.1, 0.1] on qpos most
episodes end within 50 steps, with returns as far apart as they are high: hence 20 of them"""


def paper(steps: int) -> Size:
    """25 seeds and all groups, as in the appendix; how often it evaluated it does not say."""
    return Size(25, 3, steps, steps, 100_000, 20, all_groups=True)


def locomotion(steps: int) -> dict[str, Size]:
    """The three sizes of a study that the paper trained for so many steps."""
    return {"paper": paper(steps), **LOCOMOTION}


PENDULUM: dict[str, Size] = {
    "paper": Size(25, 3, 100_000, 100_000, 2_000, 5, all_groups=True),
    "laptop": Size(25, 2, 30_000, 30_000, 2_000, 3, all_groups=False),
    "smoke": LOCOMOTION["smoke"],
}
"""the paper says neither steps nor, of these, seeds"""

SWEEP: dict[str, Size] = {
    "paper": replace(paper(15_000_000), tune_seeds=0),
    "laptop": Size(3, 0, 100_000, 100_000, 10_000, 20, all_groups=True),
    "smoke": Size(1, 0, 200, 200, 100, 1, all_groups=True),
}
"""nothing is chosen here: all groups are shown"""


def _agent(signal: Signal, **changes: Any) -> AgentSettings:
    # The paper reads PD2's values off the critic's last layer (deviation 14).
    form: dict[str, Any] = {"form": "critic_units"} if signal == "pd2" else {}
    sizes: dict[str, Any] = {"eta": ETAS[signal], "weight_decay": WEIGHT_DECAYS[signal]}
    return AgentSettings(robust=Robust(signal=signal, **sizes, **form), **changes)


def _locomotion(
    name: str,
    env: str,
    signal: Signal,
    shows: str,
    says: str,
    *,
    steps: int,
    base: tuple[float, ...] = WIDE,
    ours: tuple[float, ...] = WIDE,
) -> Entry:
    settings = RobustTraining(
        study=name, env=env, base_sigmas=base, sigmas=ours, agent=_agent(signal)
    )
    title = f"D4PG with MF-GPC {signal.upper()} against D4PG, {env.rpartition('/')[2]}"
    paper = f"25 seeds of {steps:,} steps"
    sizes = locomotion(steps)
    return Entry(name, title, shows, says, paper, "about 1 h", sizes, settings, MADE)


TOP = "D4PG with and without MF-GPC {} on Noisy {}: best sigma and all (fig:HopperTop, HopperAll)."
RAW = "D4PG with and without MF-GPC PD1 on Noisy {}: every run of each sigma ({})."
WELL = "The paper finds that PD2 and PD3 perform well here."
PD1_SAYS = "A caption of the paper says that PD1 is not effective; {}."

_TRAININGS = (
    _locomotion(
        "hopper-pd2", "windward/NoisyHopper-v0", "pd2", TOP.format("PD2", "Hopper"), WELL,
        steps=HOPPER, ours=ALONE,
    ),
    _locomotion(
        "hopper-pd3", "windward/NoisyHopper-v0", "pd3", TOP.format("PD3", "Hopper"), WELL,
        steps=HOPPER,
    ),
    _locomotion(
        "walker-pd2", "windward/NoisyWalker2d-v0", "pd2", TOP.format("PD2", "Walker"),
        WELL, steps=WALKER,
    ),
    _locomotion(
        "walker-pd3", "windward/NoisyWalker2d-v0", "pd3", TOP.format("PD3", "Walker"),
        WELL, steps=WALKER,
    ),
    _locomotion(
        "ant-pd2", "windward/NoisyAnt-v0", "pd2", TOP.format("PD2", "Ant"), WELL,
        steps=WALKER,
    ),
    _locomotion(
        "ant-pd3", "windward/NoisyAnt-v0", "pd3", TOP.format("PD3", "Ant"), WELL,
        steps=WALKER, ours=ALONE,
    ),
    _locomotion(
        "hopper-pd1", "windward/NoisyHopper-v0", "pd1",
        RAW.format("Hopper", "fig:allpd1, HopperRawPD1"),
        PD1_SAYS.format("its appendix sees a small advantage on Noisy Hopper, in a plot without "
                        "the two lowest runs of each group"),
        steps=HOPPER, base=PD1_BASE, ours=PD1_OURS,
    ),
    _locomotion(
        "halfcheetah-pd1", "windward/NoisyHalfCheetah-v0", "pd1",
        RAW.format("HalfCheetah", "fig:allpd1, right"),
        PD1_SAYS.format("of HalfCheetah in particular its text says nothing"),
        steps=HOPPER, base=PD1_BASE, ours=PD1_OURS,
    ),
    _locomotion(
        "hopper-clean", "Hopper-v5", "pd2",
        "D4PG with and without MF-GPC PD2 on Hopper without noise: does it harm? Not in the paper.",
        "PD3 has nothing to hear here: its simulator is right, and M stays 0.",
        steps=HOPPER, base=ALONE, ours=ALONE,
    ),
    Entry(
        "walker-pd3-sweep",
        "Hyperparameters of MF-GPC PD3 and the baseline, NoisyWalker2d-v0",
        "Sigma, eta, weight decay and h of MF-GPC PD3 on Noisy Walker (fig:PD1, right).",
        "The paper finds that neither MF-GPC nor the baseline is too sensitive.",
        f"25 seeds of {WALKER:,} steps",
        "about 1 h",
        SWEEP,
        Sweep(
            study="walker-pd3-sweep", env="windward/NoisyWalker2d-v0", base_sigmas=WIDE,
            sigmas=WIDE, agent=_agent("pd3"), etas=(2e-5, 2e-3), weight_decays=(0.0, 50.0),
            memories=(1, 10),
        ),
        MADE,
    ),
)  # fmt: skip


def _pendulum(name: str, env: str, what: str) -> Entry:
    settings = RobustTraining(study=name, env=env, agent=_agent("pd3", segment=10_000))
    return Entry(
        name,
        f"D4PG with MF-GPC PD3 against D4PG, inverted pendulum, {what}",
        f"D4PG with and without MF-GPC PD3 on the inverted pendulum with {what} (fig:pend).",
        "The paper shows both in one figure and says no more; it names neither sizes nor signal "
        "(deviation 16).",
        "an unknown number of seeds and steps",
        "about 1 h",
        PENDULUM,
        settings,
        MADE,
    )


ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        *_TRAININGS,
        _pendulum("pendulum-fgsm", "windward/FGSMPendulum-v0", "fast gradient sign noise"),
        _pendulum("pendulum-sine", "windward/SinePendulum-v0", "a sinusoidal push"),
    )
}


def run(settings: RobustTraining, console: Console) -> dict[str, Any]:
    """Runs one of them by its settings."""
    return training.run(settings, ENTRIES[settings.study], console)


if TYPE_CHECKING:
    Trained = RobustTraining
else:
    Trained = reduce(
        or_,
        (
            Annotated[
                type(entry.default),
                tyro.conf.subcommand(entry.name, default=entry.default, description=entry.shows),
            ]
            for entry in ENTRIES.values()
        ),
    )
"""the type by which the command line knows them"""
