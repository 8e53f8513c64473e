"""What a study is: its settings, its runs, and what it shows of them. Data only; `run` does it."""

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    from windward.studies.report import Chart, Section

Scale = Literal["paper", "laptop", "smoke"]
"""how much of a study is run: the paper's size, a laptop's, or hardly any"""
SMOKE = "Scale smoke shows that everything works; its numbers mean nothing."


@dataclass(frozen=True, eq=False)
class Run:
    """One run: what is done, with which settings, how far.

    All that its numbers depend on is in `settings`, as JSON can hold it, but for how far it goes:
    a run that went on to a higher `goal` is the same run. `do` is a function of a module, so that
    other processes find it; it gets the folder and goes on from what is there.
    """

    label: str
    """the readable part of its name"""
    settings: Mapping[str, Any]
    goal: int
    """steps, or episodes: whatever its curve counts"""
    do: Callable[["Task"], "Pace"]

    @property
    def name(self) -> str:
        """What its folder is called: two runs have the same name if they have the same settings.

        >>> Run("Hopper, seed 1", {"seed": 1}, 10, print).name
        'Hopper-seed-1-a4bbadc1c7'
        """
        text = json.dumps(self.settings, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        return f"{re.sub(r'[^A-Za-z0-9.]+', '-', self.label).strip('-')}-{digest}"

    def folder(self, root: Path) -> Path:
        """Where it lies."""
        return root / self.name


class Task(NamedTuple):
    """What `do` gets: the run, its folder, and what to call now and then."""

    run: Run
    folder: Path
    check: Callable[[], None]
    """ends the work, by an exception, if the folder is no longer this process's"""


class Pace(NamedTuple):
    """How much of it took how long, as far as it was timed."""

    units: int
    """of its goal"""
    seconds: float
    """of a core, which is the same whatever else the machine does, or nearly so"""


class Result(NamedTuple):
    """A finished run: what it left, and its curve, {} if it has none."""

    run: Run
    content: dict[str, Any]
    curve: Mapping[str, np.ndarray]
    folder: Path


def unique(runs: Iterable[Run]) -> list[Run]:
    """Each run once, with the highest goal that it has among them."""
    highest: dict[str, Run] = {}
    for run in runs:
        known = highest.setdefault(run.name, run)
        if run.goal > known.goal:
            highest[run.name] = run
    return list(highest.values())


@dataclass(frozen=True)
class Execution:
    """How the runs are done; none of this changes their numbers."""

    runs: Path = Path("out/runs")
    """folder of all runs, of all studies: what one has done the others need not"""
    jobs: int | None = None
    """runs at once on this machine; if left out one for each core, as far as the memory goes"""
    backend: Literal["local", "ray"] = "local"
    """where runs are done: in processes here, or as Ray tasks (pip install 'windward[ray]')"""
    address: str | None = None
    """of a Ray cluster, HOST:PORT or auto; --runs must then be a folder that all nodes share. A Ray
    on this machine is started if left out"""
    cpus: float = 1.0
    """cores that Ray sets aside for a run"""
    retries: int = 3
    """how often Ray begins a run again, from its checkpoint, when its worker or node dies"""
    wandb: str | None = None
    """project of Weights & Biases to which curves go as they come (pip install 'windward[wandb]');
    WANDB_MODE=offline keeps them in --runs until `wandb sync`"""
    train: bool = True
    """--no-train only draws the report of the runs that exist"""
    dry_run: bool = False
    """print what would be run and what it would cost, and run nothing"""


@dataclass(frozen=True, kw_only=True)
class Computed:
    """The settings that all studies have whose runs are computed at one go."""

    scale: Scale = "laptop"
    """laptop: as the settings say, which is also the paper's size; smoke: a minute, for tests"""
    out: Path | None = None
    """folder for the page, figures, runs.csv and summary.json; out/studies/STUDY-SCALE if left
    out"""
    how: Execution = field(default_factory=Execution)


class Shown(NamedTuple):
    """What a study shows of its finished runs."""

    found: str
    """what was found, in a sentence or two"""
    rows: Sequence[Mapping[str, Any]]
    """the raw results, runs.csv"""
    numbers: Mapping[str, Any]
    """what summary.json has beside settings and versions"""
    sections: Sequence["Section"]
    """of the page; its first table is printed, too"""
    charts: Sequence["Chart"] = ()
    """the panels of the figure; all charts of the page if there are none"""


@dataclass(frozen=True)
class Study:
    """A study whose runs are computed at one go: one file has its settings, runs and figure.

    To add one, write such a file (`extra/dimension.py` is an example) and name it in
    `windward.cli.COMPUTED`; the command, resuming, Ray, the page and the figure come with it.
    """

    name: str
    default: Computed
    """its settings as they come; every field is a flag"""
    shows: str
    """what it shows, for `windward list`"""
    time: str
    """of the laptop scale on 2 cores"""
    title: str
    question: str
    """what the page asks"""
    make_runs: Callable[[Any], Sequence[Run]]
    show: Callable[[Sequence[Result], Any], Shown]
    """of finished runs and the settings"""
    numbers: Callable[[Sequence[Mapping[str, Any]]], Mapping[str, Any]]
    """the statistics in summary.json, from the rows of runs.csv alone"""
    check: Callable[[Any], None] = lambda settings: None
    """refuses settings that make no sense"""
    small: Mapping[str, Any] = field(default_factory=dict)
    """what scale smoke changes"""
    free: tuple[str, ...] = ()
    """settings that may change under one name: more of the same"""
    figure: str = ""
    """what its figure is called, the study's name if left out"""
    partial: bool = False
    """whether it shows what there is before all runs are finished"""
    columns: int = 3
    """panels of its figure side by side"""


S = TypeVar("S", bound=Computed)


def sized(settings: S, usual: S, small: Mapping[str, Any]) -> S:
    """With the small numbers of smoke, where they are as they come."""
    if settings.scale != "smoke":
        return settings
    same = {name for name in small if getattr(settings, name) == getattr(usual, name)}
    return replace(settings, **{name: small[name] for name in same})


def command_line(start: str, settings: Any, default: Any) -> str:
    """The command for settings: flags for what is not as in `default`, nested settings included.

    --no-train is left out: what is only drawn anew was made by the command without it.

    >>> command_line("windward run x", Execution(jobs=2, train=False), Execution())
    'windward run x --jobs 2'
    """
    return " ".join([start, *_flags(settings, default)])


def _flags(settings: Any, default: Any) -> Iterator[str]:
    for each in fields(settings):
        value, usual = getattr(settings, each.name), getattr(default, each.name)
        flag = each.name.replace("_", "-")
        if value == usual or each.name == "train":
            continue
        if is_dataclass(value):
            yield from _flags(value, usual)
        elif isinstance(value, bool) and usual is None:  # three values: yes, no and unsaid
            yield f"--{flag} {value}"
        elif isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        elif isinstance(value, dict):
            yield f"--{flag} " + " ".join(f"{name} {one}" for name, one in value.items())
        elif isinstance(value, tuple | list):
            yield f"--{flag} " + " ".join(shlex.quote(str(one)) for one in _flat(value))
        else:
            yield f"--{flag} {shlex.quote(str(value))}"


def _flat(values: Any) -> Iterator[Any]:
    """Numbers and words in tuples of tuples, as a command line has them."""
    for each in values:
        if isinstance(each, tuple | list):
            yield from _flat(each)
        else:
            yield each
