"""The exact command that a study was run with, and the commit of the code that ran."""

import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any


def command_line(start: str, settings: Any, default: Any) -> str:
    """The command for settings: flags for what is not as in `default`, nested settings included.

    --no-train is left out: what is only drawn anew was made by the command without it.

    >>> from windward.studies.runs.execution import Execution
    >>> command_line("windward run x", Execution(jobs=2, train=False), Execution())
    'windward run x --jobs 2'
    """
    return " ".join([start, *_flags(settings, default)])


def _flags(settings: Any, default: Any) -> Iterator[str]:
    for field in fields(settings):
        value, usual = getattr(settings, field.name), getattr(default, field.name)
        flag = field.name.replace("_", "-")
        if value == usual or field.name == "train":
            continue
        if is_dataclass(value):
            yield from _flags(value, usual)
        elif isinstance(value, bool) and usual is None:  # three values: yes, no and unsaid
            yield f"--{flag} {value}"
        elif isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        elif isinstance(value, dict):
            yield f"--{flag} " + " ".join(f"{name} {each}" for name, each in value.items())
        elif isinstance(value, tuple | list):
            yield f"--{flag} " + " ".join(shlex.quote(str(each)) for each in _flat(value))
        else:
            yield f"--{flag} {shlex.quote(str(value))}"


def _flat(values: Any) -> Iterator[Any]:
    """Numbers and words in tuples of tuples, as a command line has them."""
    for each in values:
        if isinstance(each, tuple | list):
            yield from _flat(each)
        else:
            yield each


@cache
def commit() -> str | None:
    """The commit of windward's own code, and whether files differ from it; None outside of git.

    It is looked up once: what a process runs is the code that was there when it began.
    """
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        if git("ls-files", "--", Path(__file__).name) == "":
            return None  # the repository around it is not windward's
        changed = git("status", "--porcelain", "--", str(here.parents[1]))
        return git("rev-parse", "HEAD") + (", with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None
