"""The command line: `windward demo | list | run STUDY | bench NAME`."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import gymnasium as gym
import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from windward import envs
from windward.bench import linear as bench_linear
from windward.bench import simulator as bench_simulator
from windward.linear import Diverged
from windward.studies import dimension, lds, regret


@dataclass(frozen=True)
class Demo:
    """See it work in a minute: controllers on a small linear system in a sinusoidal wind.

    LQR alone, then GPC, BPC, Bandit GPC and MF-GPC with each pseudo-disturbance on top of it, tuned
    on some winds and seeds and shown on others. A smaller `windward run lds-low`.
    """

    seeds: int = 8
    """held-out seeds for each wind"""
    out: Path = Path("out/demo")
    """folder for the figure, the raw results and the summary"""


@dataclass(frozen=True)
class List:
    """Show what can be run, which disturbances and environments there are; channels of one."""

    env: str | None = None
    """an environment's id: list the channels on which it can be disturbed"""


class Study(NamedTuple):
    """A study's runner, what it shows and its price."""

    run: Callable[[Any, Console], Any]
    name: str
    shows: str
    time: str


STUDIES: dict[type, Study] = {
    lds.LdsLow: Study(
        lds.run, "lds-low", "fig:LDS, left: LQR, GPC, BPC, Bandit GPC; and MF-GPC", "1 min"
    ),
    regret.RegretRate: Study(
        regret.run, "regret-rate", "thm:34: regret grows as T^3/4, T^2/3", "15 min"
    ),
    dimension.Dimension: Study(
        dimension.run, "dimension", "thm:34: Bandit GPC does not pay for d_x", "20 min"
    ),
}


@dataclass(frozen=True)
class Run:
    """Run a study by name; `windward run STUDY --help` lists its settings."""

    study: (
        Annotated[lds.LdsLow, tyro.conf.subcommand("lds-low")]
        | Annotated[regret.RegretRate, tyro.conf.subcommand("regret-rate")]
        | Annotated[dimension.Dimension, tyro.conf.subcommand("dimension")]
    )


BENCHES: dict[type, Callable[[Any], dict[str, Any]]] = {
    bench_linear.BenchLinear: bench_linear.run,
    bench_simulator.BenchSimulator: bench_simulator.run,
}


@dataclass(frozen=True)
class Bench:
    """Measure speed as a ratio against a peer, timed in the same run."""

    bench: (
        Annotated[bench_linear.BenchLinear, tyro.conf.subcommand("linear")]
        | Annotated[bench_simulator.BenchSimulator, tyro.conf.subcommand("simulator")]
    )


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Run, tyro.conf.subcommand("run")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)


def _demo(settings: Demo, console: Console) -> None:
    smaller = lds.LdsLow(
        tune_seeds=4,
        report_seeds=settings.seeds,
        report_periods=(25.0, 40.0, 50.0),
        out=settings.out,
    )
    lds.run(smaller, console, command="windward demo")


def _list(settings: List, console: Console) -> None:
    if settings.env is not None:
        _list_channels(settings.env, console)
        return
    table = Table(title="windward run STUDY")
    for column in ("study", "shows", "time on 2 cores"):
        table.add_column(column)
    for study in STUDIES.values():
        table.add_row(study.name, study.shows, study.time)
    console.print(table)
    console.print("Disturbances, as text for Disturbed or the command line:", style="bold")
    console.print(escape(envs.available()), highlight=False)
    console.print("Environments (gym.make):", style="bold")
    console.print("\n".join(f"  {name}" for name in envs.IDS), highlight=False)


def _list_channels(env_id: str, console: Console) -> None:
    try:
        env = gym.make(env_id)
    except gym.error.Error as error:
        raise ValueError(str(error)) from error
    table = Table(title=f"channels of {env_id}")
    table.add_column("channel")
    table.add_column("shape")
    for name, channel in envs.channels_of(env).items():
        table.add_row(name, str(channel.shape))
    env.close()
    console.print(table)


def _bench(settings: Any, console: Console) -> None:
    if not settings.json:
        console.print("timing; run nothing else meanwhile ...")
    result = BENCHES[type(settings)](settings)
    print(json.dumps(result, indent=None if settings.json else 1))


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the `windward` command."""
    console = Console()
    command = tyro.cli(
        Command,
        prog="windward",
        description="Keep any reinforcement-learning policy on course when the world pushes back.",
        args=args,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
    )
    try:
        match command:
            case Demo():
                _demo(command, console)
            case List():
                _list(command, console)
            case Run():
                STUDIES[type(command.study)].run(command.study, console)
            case Bench():
                _bench(command.bench, console)
    except (ValueError, Diverged) as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted")
        sys.exit(130)


if __name__ == "__main__":
    main()
