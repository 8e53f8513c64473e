"""The settings of `headroom`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from windward.studies.execution import Execution
from windward.studies.scales import Scale


@dataclass(frozen=True)
class Headroom:
    """What each way of learning M captures of the headroom, on shipped policies in winds.

    For each case: the best fixed M is searched for offline, what has to be tuned is tuned on other
    seeds and winds, and then base, best and all methods play the same held-out episodes. Stop it at
    any moment: the same command goes on, and finished runs are not repeated. Examples:

    windward run headroom --cases pendulum-slow-sine --methods paper counterfactual

    windward run headroom --redo counterfactual    (after changing how it works)
    """

    scale: Scale = "laptop"
    """paper: all cases with 4 seeds, a day; laptop: some of them; smoke: for tests"""
    cases: tuple[str, ...] = ()
    """which, or those of the scale: pendulum-slow-sine, inverted-pendulum-force, hopper-mass,
    pendulum-calm, linear-10x5 ...; a wrong name lists them"""
    methods: tuple[str, ...] = ()
    """which beside base and best, or all: paper, counterfactual, learned, observer ...; a wrong
    name lists them"""
    seeds: int | None = None
    """how many held-out seeds; by the scale if left out"""
    first_seed: int = 100
    """the first of them; those below 100 serve for tuning"""
    episodes: int | None = None
    """episodes of each seed, over which a method learns; if left out 20 for Pendulum, 15 for
    InvertedPendulum ..., 50 where there is nothing to gain, and 3 times as many for methods that
    have no simulator given"""
    last: int = 10
    """final episodes that count, where there is something to gain"""
    generations: int = 60
    """of the search for a best fixed M that is not in `best` yet"""
    first_step: float = 0.3
    """of that search, in actions scaled to [-1, 1]; less where small corrections are felt"""
    max_steps: int | None = None
    """steps of an episode at most; the environment's own limit if left out"""
    processes: int = 1
    """runs at a time on this machine"""
    backend: Literal["local", "ray"] = "local"
    """where runs are done: in processes here, or as Ray tasks (pip install 'windward[ray]'); the
    search for a best fixed M is always done here"""
    address: str | None = None
    """of a Ray cluster, HOST:PORT or auto; --runs must then be a folder that all nodes share"""
    cpus: float = 1.0
    """cores that Ray sets aside for a run"""
    retries: int = 3
    """how often Ray begins a run again when its worker or node dies"""
    wandb: str | None = None
    """project of Weights & Biases to which returns go (pip install 'windward[wandb]')"""
    redo: tuple[str, ...] = ()
    """methods whose runs and tuning are thrown away and made again"""
    compute: bool = True
    """False makes table and page of what there is"""
    dry_run: bool = False
    """print what would be run and what it would cost, and run nothing"""
    runs: Path = Path("out/headroom")
    """folder of all runs, each in a folder that is named by its settings"""
    out: Path = Path("out/studies/headroom")
    """folder for episodes.csv, summary.json, headroom.png, headroom.pdf and report.html"""
    best: Path | None = None
    """folder with the best fixed M of each case, those that were found before; best_M in `out` if
    left out"""

    @property
    def how(self) -> Execution:
        """How its runs are done."""
        return Execution(
            self.runs, self.processes, self.backend, self.address, self.cpus, self.retries,
            self.wandb, self.compute, self.dry_run,
        )  # fmt: skip


IDENTITY = ("scale", "cases", "first_seed", "last", "generations", "first_step", "max_steps")
"""settings that may not change under one --out; more seeds, episodes and methods may come"""
