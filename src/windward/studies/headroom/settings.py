"""The settings of `headroom`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from windward.studies.runs.execution import Execution
from windward.studies.runs.scale import Scale


@dataclass(frozen=True)
class Headroom:
    """What each way of learning M captures of the headroom, on shipped policies in winds.

    For each case: the best fixed M is searched for offline, what has to be tuned is tuned on other
    seeds and winds, and then base, best and all methods play the same held-out episodes. Stop it at
    any moment: the same command goes on, and finished runs are not repeated. Example:

    windward run headroom --cases pendulum-slow-sine --methods paper counterfactual

    After a change of code, runs that are finished are not made again: delete their folders in
    --runs, or name another folder with --runs.
    """

    scale: Scale = "laptop"
    """paper: all cases with 4 seeds, a day; laptop: some of them; smoke: for tests"""
    cases: tuple[str, ...] = ()
    """names of the cases to run; those of --scale if left out. `windward run headroom --scale paper
    --dry-run` lists all names"""
    methods: tuple[str, ...] = ()
    """methods to compare with base and best; all if left out: paper, residual, regression,
    quadratic, response, critic, pd1, advantage, counterfactual, heavy, light, learned, observer,
    l1, residual-policy"""
    seeds: int | None = None
    """how many held-out seeds each method plays; as many as --scale says if left out"""
    first_seed: int = 100
    """the first held-out seed; seeds below 100 are for tuning"""
    episodes: int | None = None
    """episodes of each seed, over which a method learns; if left out 20 for Pendulum, 15 for
    InvertedPendulum ..., 50 where there is nothing to gain, and 3 times as many for methods that
    have no simulator given"""
    last: int = 10
    """how many final episodes of each seed are scored, in cases with something to gain"""
    generations: int = 60
    """generations of the search for the best fixed M of a case, if --best does not have it yet"""
    first_step: float = 0.3
    """initial step size of the search for the best M, in scaled actions (from -1 to 1); take a
    smaller one where small corrections already matter"""
    max_steps: int | None = None
    """steps of an episode at most; the environment's own limit if left out"""
    processes: int = 1
    """runs at a time on this machine"""
    backend: Literal["local", "ray"] = "local"
    """where runs are done: in processes here, or as Ray tasks (pip install 'windward[ray]'); the
    search for a best fixed M is always done here"""
    address: str | None = None
    """address of a Ray cluster, HOST:PORT or auto; --runs must then be a folder that all nodes
    share"""
    cpus: float = 1.0
    """cores that Ray sets aside for a run"""
    retries: int = 3
    """how often Ray begins a run again when its worker or node dies"""
    wandb: str | None = None
    """project of Weights & Biases to which returns go (pip install 'windward[wandb]')"""
    compute: bool = True
    """--no-compute only makes the table and page of the runs that exist"""
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
