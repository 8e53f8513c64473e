"""What made a result: the commit of windward's code that ran, and versions."""

import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

LIBRARIES = ("windward", "gymnasium", "jax", "jaxlib", "mujoco", "numpy", "optax", "scipy")


def versions() -> dict[str, str]:
    """What a number was made with."""
    return {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES}


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
