"""The command line: `windward demo | evaluate | diagnose | list | train | run STUDY | ...`."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from windward import envs
from windward.agents import D4PG, NotFinite
from windward.agents import Settings as AgentSettings
from windward.agents.threads import one_core_each
from windward.atomic import prepare
from windward.bench import diagnose as bench_diagnose
from windward.bench import linear as bench_linear
from windward.bench import overhead as bench_overhead
from windward.bench import simulator as bench_simulator
from windward.bench import train as bench_train
from windward.linear import Diverged
from windward.studies import compare, run, summary_page
from windward.studies.diagnosis import study as diagnosis_study
from windward.studies.evaluation import diagnose
from windward.studies.evaluation import report as evaluation_report
from windward.studies.evaluation.diagnose import Diagnose
from windward.studies.evaluation.evaluate import Evaluate
from windward.studies.evaluation.loading import make_env
from windward.studies.extra import cartpole, dimension, headroom_linear, learning, tune
from windward.studies.paper import lds_high, lds_low, regret_rate, trainings
from windward.studies.paper.training import RobustTraining
from windward.studies.recovery import study as recovery_study
from windward.studies.runs.locks import Lock
from windward.studies.spec import Study


@dataclass(frozen=True)
class Demo:
    """See it work in a minute: two policies that fail in a changed world, and recover.

    First a Hopper whose body became 10 % heavier: alone it falls; with windward the change is
    diagnosed at step 50 of the first episode, and it goes on to the end. Then InvertedPendulum in a
    sinusoidal wind: it falls once or twice, and from then on it stands. Both are `windward
    evaluate` at a small size, base against adapted on the same seeds, with what was measured,
    whatever it is.
    """

    seeds: int = 3
    """seeds, from 100 on"""
    episodes: int = 3
    """episodes of each seed in the wind; the Hopper has one"""
    out: Path | None = None
    """folder for the pages, figures, raw results and summaries; out/demo, or with other numbers
    out/demo-SEEDSxEPISODES, if left out"""


@dataclass(frozen=True)
class List:
    """Show what can be run, which disturbances and environments there are; channels of one."""

    env: str | None = None
    """an environment's id: list the channels on which it can be disturbed"""


COMPUTED: tuple[Study, ...] = (
    lds_low.STUDY, regret_rate.STUDY, dimension.STUDY, headroom_linear.STUDY, lds_high.STUDY,
)  # fmt: skip
"""studies whose runs are computed at one go: a new one is a file and a name here"""


class Own(NamedTuple):
    """A study with a way of its own to be run."""

    name: str
    default: Any
    shows: str
    time: str
    run: Callable[[Any, Console], Any]


OWN = (
    Own(
        diagnosis_study.NAME, diagnosis_study.DiagnoseStudy(),
        "how well windward.diagnose finds held-out changes and winds", "2 to 3 h",
        diagnosis_study.run,
    ),
    Own(
        recovery_study.NAME, recovery_study.RecoveryStudy(),
        "how much of a lost return comes back in changed worlds, and that nothing is harmed",
        "2 to 3 h", recovery_study.run,
    ),
    Own(
        "learning", learning.Learning(), learning.SHOWS, "about 3 h",
        learning.run,
    ),
    Own(
        cartpole.ENTRY.name, cartpole.ENTRY.default, cartpole.ENTRY.shows, cartpole.ENTRY.time,
        cartpole.run,
    ),
)  # fmt: skip
EVERY: tuple[Study | Own, ...] = (*COMPUTED, *OWN)
STUDIES = {type(each.default): each for each in EVERY}
"""all but the trainings, by the type of their settings"""


@dataclass(frozen=True)
class Train:
    """Train the paper's base agent, D4PG; the same command goes on where it was stopped."""

    env: str
    """the environment's id, for instance Hopper-v5"""
    steps: int = 1_000_000
    """environment steps in all"""
    seed: int = 0
    """fixes everything"""
    out: Path | None = None
    """folder for curves.csv, TensorBoard scalars, best.npz and last.npz; out/train/ENV-SEED if left
    out"""
    eval_every: int = 20_000
    """steps between evaluations"""
    eval_episodes: int = 10
    """episodes of an evaluation, without noise"""
    video: bool = False
    """play an episode into episode.gif at the end"""
    settings: AgentSettings = field(default_factory=AgentSettings)


if TYPE_CHECKING:
    Studies = Any
else:
    Studies = reduce(
        or_,
        (Annotated[each, tyro.conf.subcommand(study.name)] for each, study in STUDIES.items()),
        trainings.Trained,
    )
"""the type by which the command line knows them"""


@dataclass(frozen=True)
class Run:
    """Run a study by name; `windward run STUDY --help` lists its settings."""

    study: Studies


BENCHES: dict[type, Callable[[Any], dict[str, Any]]] = {
    bench_linear.BenchLinear: bench_linear.run,
    bench_simulator.BenchSimulator: bench_simulator.run,
    bench_overhead.BenchOverhead: bench_overhead.run,
    bench_diagnose.BenchDiagnose: bench_diagnose.run,
    bench_train.BenchTrain: bench_train.run,
}


@dataclass(frozen=True)
class Bench:
    """Measure speed as a ratio against a peer, timed in the same run."""

    bench: (
        Annotated[bench_linear.BenchLinear, tyro.conf.subcommand("linear")]
        | Annotated[bench_simulator.BenchSimulator, tyro.conf.subcommand("simulator")]
        | Annotated[bench_overhead.BenchOverhead, tyro.conf.subcommand("overhead")]
        | Annotated[bench_diagnose.BenchDiagnose, tyro.conf.subcommand("diagnose")]
        | Annotated[bench_train.BenchTrain, tyro.conf.subcommand("train")]
    )


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Diagnose, tyro.conf.subcommand("diagnose")]
    | Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Run, tyro.conf.subcommand("run")]
    | Annotated[tune.Tune, tyro.conf.subcommand("tune")]
    | Annotated[summary_page.Report, tyro.conf.subcommand("report")]
    | Annotated[compare.Compare, tyro.conf.subcommand("compare")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)


def _demo(settings: Demo, console: Console) -> None:
    usual, size = Demo(), (settings.seeds, settings.episodes)
    name = "demo" if size == (usual.seeds, usual.episodes) else f"demo-{size[0]}x{size[1]}"
    out = settings.out or Path("out") / name
    shared: dict[str, Any] = {"model": "shipped", "seeds": settings.seeds, "first_seed": 100}
    payload = Evaluate(
        env="Hopper-v5", disturbance="bias:value=0.1", channel="mass", learner="matching",
        episodes=1, out=out / "hopper", **shared,
    )  # fmt: skip
    wind = Evaluate(
        env="InvertedPendulum-v5", disturbance="sine:amp=0/0.1,period=100", channel="qvel",
        episodes=settings.episodes, out=out / "pole", **shared,
    )  # fmt: skip
    command = evaluation_report.command_of("windward demo", settings)
    for title, each in (("A Hopper with a payload", payload), ("A pole in the wind", wind)):
        console.print(f"[bold]{title}[/bold]")
        evaluation_report.run(each, console, command)
    console.print("your own policy: windward evaluate --help, windward diagnose --help")


def _list(settings: List, console: Console) -> None:
    if settings.env is not None:
        _list_channels(settings.env, console)
        return
    table = Table(title="windward run STUDY")
    for column in ("study", "shows", "time on 2 cores", "in docs/results"):
        table.add_column(column)
    for study in (*EVERY, *trainings.ENTRIES.values()):
        table.add_row(study.name, study.shows, study.time, _kept(study.name))
    console.print(table)
    console.print("Disturbances, as text for Disturbed or the command line:", style="bold")
    console.print(escape(envs.available()), highlight=False)
    console.print("Environments (gym.make):", style="bold")
    console.print("\n".join(f"  {name}" for name in envs.IDS), highlight=False)


def _kept(name: str) -> str:
    """What a checkout has of a study, and what that took."""
    path = Path(__file__).parents[2] / "docs" / "results" / name / "summary.json"
    if not path.is_file():
        return "–"
    summary = json.loads(path.read_text())
    size, hours = summary.get("size", summary["settings"]), summary.get("core_hours")
    told = []
    if isinstance(size.get("seeds"), int):
        told.append(f"{size['seeds']} seeds")
    if isinstance(steps := size.get("steps", size.get("T")), int):
        told.append(f"{steps:,} {summary.get('x_label', 'steps').split()[-1]}")
    told += [f"{hours:g} core-hours"] if hours else []
    return ", ".join(told) or "yes"


def _list_channels(env_id: str, console: Console) -> None:
    env = make_env(env_id)
    table = Table(title=f"channels of {env_id}")
    table.add_column("channel")
    table.add_column("shape")
    for name, channel in envs.channels_of(env).items():
        table.add_row(name, str(channel.shape))
    env.close()
    console.print(table)


def _train(command: Train, console: Console) -> None:
    make_env(command.env).close()
    one_core_each()
    out = command.out or learning.run_folder(learning.Learning.runs, command.env, command.seed)
    agent = D4PG(command.env, seed=command.seed, **vars(command.settings))
    with Lock(prepare(out)):
        agent.learn(
            command.steps,
            progress_bar=True,
            out=out,
            eval_every=command.eval_every,
            eval_episodes=command.eval_episodes,
        )
        if command.video:
            agent.record(out / "episode.gif", command.seed)
    last = agent.log.rows[-1] if agent.log.rows else {}
    console.print(f"return {last.get('eval_return', float('nan')):.1f} after {agent.num_timesteps} "
                  f"steps; curves and networks: {out}")  # fmt: skip


def _run(settings: Any, console: Console) -> None:
    study = STUDIES[type(settings)]
    if isinstance(study, Study):
        run.conduct(study, settings, console)
    else:
        study.run(settings, console)


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
            case Evaluate():
                evaluation_report.run(command, console)
            case Diagnose():
                diagnose.run(command, console)
            case List():
                _list(command, console)
            case Train():
                _train(command, console)
            case Run(study=RobustTraining() as study):
                trainings.run(study, console)
            case Run():
                _run(command.study, console)
            case tune.Tune():
                tune.run(command, console)
            case summary_page.Report():
                summary_page.run(command, console)
            case compare.Compare():
                compare.run(command, console)
            case Bench():
                _bench(command.bench, console)
    except (ValueError, Diverged, NotFinite) as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted")
        sys.exit(130)


if __name__ == "__main__":
    main()
