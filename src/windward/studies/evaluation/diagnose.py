"""`windward diagnose`: what changed in a world, from one run of a policy or from a log."""

import json
import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from windward import checks
from windward.atomic import prepare
from windward.diagnosis import Change, Diagnosis, Recorder, diagnose, diagnose_log, load_log
from windward.diagnosis.report import write_report
from windward.envs import Changed, Disturbed
from windward.simulators.learned_files import load_simulator
from windward.studies.evaluation.loading import check_fit, load_model, make_env

RANDOM = "random"
OF_A_RUN = (
    "model", "disturbance", "channel", "change", "episodes", "steps", "seed", "record", "algo",
    "vec_normalize",
)  # fmt: skip
"""settings that say what to run, so that a log has no use for them"""
ABOVE = ("alert", "change", "suspect")
"""kinds of lines that are printed before the table, or are in it"""
Words = Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction]
"""--flag A B, --flag A --flag B, or both"""


@dataclass(frozen=True)
class Diagnose:
    """Say what changed in a world: masses, motors, friction, late actions, a wind.

    Runs a policy, or reads a log, and compares each step with the environment's own simulator.
    Prints what changed with 95 % intervals; writes report.html (open it in a browser) and
    diagnosis.npz, which `windward.Diagnosis.load` reads. Examples:

    windward diagnose --model shipped --env Hopper-v5 --disturbance bias:value=0.1 --channel mass

    windward diagnose --log flight.npz --env Hopper-v5

    `windward list` names the disturbances, `windward list --env ID` the channels of an environment.
    A .zip is loaded by Stable-Baselines3's own code, which unpickles it and so can run anything:
    only load files that you trust. Logs, diagnoses and learned simulators hold no code.
    """

    env: str
    """the environment's id; with a log that of the nominal environment, which is not stepped"""
    model: str | None = None
    """the policy to run: a .zip of Stable-Baselines3 or SBX, an .npz of windward (D4PG, save_base),
    `shipped` (the one that comes with windward for this environment; shipped:ID for another's),
    module:function, or `random` for smooth random actions, which show most parameters"""
    log: Path | None = None
    """a file of windward.Recorder, instead of a policy"""
    disturbance: str | None = None
    """what pushes, such as sine:amp=3,period=60 or bias:value=0.1; `windward list` names them"""
    channel: str | None = None
    """where it pushes: qvel, action, force:torso, mass ...; goes with a disturbance, and
    `windward list --env ID` names those of an environment"""
    change: Words = ()
    """what to change in the environment, as NAME=VALUE: mass:torso=1.3 gain=0.8 delay=1;
    `windward list --env ID` names what there is"""
    episodes: int = 1
    """episodes to run"""
    steps: int | None = None
    """steps to run in all, at most; episodes begin anew until there are so many"""
    seed: int = 0
    """of the first reset, and of random actions"""
    parameters: Words = ()
    """kinds (mass gain) or single parameters (mass:torso) to try; all if left out"""
    from_observations: bool = False
    """do not read true states, get them back from observations"""
    simulator: Path | None = None
    """a learned simulator to compare with, a file of windward.save_simulator; the environment's own
    physics if left out"""
    record: Path | None = None
    """file for the log of what was run, such as flight.npz; `--log` reads it"""
    algo: str | None = None
    """class of a .zip that does not tell it: PPO, sbx.SAC ..."""
    vec_normalize: Path | None = None
    """file of VecNormalize's statistics that the .zip was trained with; a pickle"""
    json: bool = False
    """print nothing but the diagnosis as JSON"""
    out: Path | None = None
    """folder for report.html and diagnosis.npz; out/diagnose/ENV if left out"""


def run(settings: Diagnose, console: Console) -> Diagnosis:
    """Diagnoses, prints what was found, and writes report.html and diagnosis.npz."""
    _check(settings)
    made = make_env(settings.env)
    wanted = list(chain.from_iterable(settings.parameters)) or None
    options: dict[str, Any] = {
        "parameters": wanted,
        "from_observations": settings.from_observations,
        "progress_bar": not settings.json,
    }
    if settings.simulator is not None:
        options["simulator"] = load_simulator(settings.simulator, made)
    log = None if settings.log is None else load_log(settings.log)
    world, model = (made, None) if log is not None else _world(settings, made)
    out = prepare(settings.out or default_out(settings))
    with closing(world):
        if log is not None:
            found = diagnose_log(log, world, **options)
        else:
            found = diagnose(
                model, world, episodes=settings.episodes, steps=settings.steps,
                seed=settings.seed, **options,
            )  # fmt: skip
        found.save(out / "diagnosis.npz")
        page = write_report(found, out / "report.html")
    if settings.json:
        print(json.dumps(found.as_dict()))
        return found
    lines = found.lines()
    for line in lines:
        if line.kind == "alert":
            console.print(f"[bold red]{escape(line.text)}[/bold red]", highlight=False,
                          soft_wrap=True)  # fmt: skip
    shown = found.changes or found.suspects
    if shown:
        console.print(_table(found, shown))
    for line in lines:
        if line.kind not in ABOVE:
            console.print(escape(line.text), highlight=False, soft_wrap=True)
    console.print(f"page: {page}   diagnosis: {out / 'diagnosis.npz'}", highlight=False,
                  soft_wrap=True, markup=False)  # fmt: skip
    if settings.record is not None:
        console.print(f"log: {settings.record}", highlight=False, soft_wrap=True, markup=False)
    return found


def default_out(settings: Diagnose) -> Path:
    """A folder of the environment's name."""
    return Path("out/diagnose") / re.sub(r"[^\w.=-]+", "-", settings.env)


def changes_of(words: tuple[tuple[str, ...], ...]) -> dict[str, float]:
    """Changes by name from NAME=VALUE.

    >>> changes_of((("mass:torso=1.3", "gain=0.8"), ("delay=1",)))
    {'mass:torso': 1.3, 'gain': 0.8, 'delay': 1}
    """
    found: dict[str, float] = {}
    for word in chain.from_iterable(words):
        name, equals, text = word.rpartition("=")
        try:
            value = float(text)
        except ValueError:
            equals = ""
        if not name or not equals:
            raise ValueError(f"a change is NAME=VALUE, such as mass:torso=1.3; got {word!r}")
        if name in found:
            raise ValueError(f"change {name!r} is given twice")
        found[name] = int(value) if value.is_integer() else value
    return found


def _check(settings: Diagnose) -> None:
    """Refuses flags that do not go together."""
    if (settings.model is None) == (settings.log is None):
        raise ValueError(
            "a diagnosis is of a run or of a log: give either model (such as shipped, or random) "
            "or log"
        )
    if settings.log is not None:
        usual = {field.name: field.default for field in fields(settings)}
        given = [name for name in OF_A_RUN if getattr(settings, name) != usual[name]]
        if given:
            raise ValueError(f"a log is not run again: leave out {', '.join(given)}")
    if settings.channel is not None and settings.disturbance is None:
        raise ValueError(
            f"channel {settings.channel!r} is where a disturbance pushes, and there is none: give "
            "a disturbance too, such as bias:value=0.1, or leave channel out"
        )
    checks.integer("episodes", settings.episodes, 1)
    if settings.steps is not None:
        checks.integer("steps", settings.steps, 10)
    checks.integer("seed", settings.seed, 0)


def _world(settings: Diagnose, env: gym.Env) -> tuple[gym.Env, Any]:
    """(the environment with all that happens in it, the policy)."""
    changes = changes_of(settings.change)
    if changes:
        env = Changed(env, changes)
    if settings.disturbance is not None:
        env = Disturbed(env, settings.disturbance, settings.channel)
    assert settings.model is not None
    model = None
    if settings.model != RANDOM:
        model = load_model(settings.model, settings.env, settings.algo, settings.vec_normalize)
        check_fit(model, env, settings.model)
    if settings.record is not None:
        env = Recorder(env, settings.record)
    return env, model


def _table(found: Diagnosis, shown: Mapping[str, Change]) -> Table:
    title = "what changed"
    if not found.changes:
        title = (
            "unreliable: too much stays unexplained"
            if found.complete
            else "unfinished: what had been found until the interrupt"
        )
    table = Table(title=escape(f"{found.env_id}: {title}"))
    table.add_column("parameter")
    table.add_column("now", justify="right", no_wrap=True)
    table.add_column("95 % interval", justify="right", no_wrap=True)
    for name, each in shown.items():
        now, low, high, unit = each.texts(name.partition(":")[0])
        table.add_row(*map(escape, (name, now, f"{low} to {high}{unit}" if low else "–")))
    return table
