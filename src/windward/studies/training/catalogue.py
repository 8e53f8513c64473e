"""The paper's trainings by name, each with its settings and what the paper says of it.

Sigma grids, h, the updates of M every 3 episodes and that there is weight decay are the appendix's
(`app:exper`). It gives neither eta nor the weight decay (deviation 11). Our etas follow the size of
each signal early in training, of whose square corrections are made: on Noisy Hopper |ŵ| was about
20 for PD1, 6.5 for PD2 and 0.14 for PD3. `windward tune` searches for better ones.
"""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console

from windward.agents import Settings as AgentSettings
from windward.agents.robust import Robust, Signal
from windward.studies.training import robust_training, scales
from windward.studies.training.entries import Entry
from windward.studies.training.robust_training import RobustTraining, Sweep

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
    sizes = scales.locomotion(steps)
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
        scales.SWEEP,
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
        scales.PENDULUM,
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
    return robust_training.run(settings, ENTRIES[settings.study], console)


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
