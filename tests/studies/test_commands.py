"""The recorded command is one that the command line takes, and gives the same settings."""

import shlex
from dataclasses import replace
from typing import Any

import pytest
import tyro

from windward.cli import Run
from windward.studies.extra import cartpole, headroom_linear
from windward.studies.paper import lds_high
from windward.studies.paper import lds_low as lds
from windward.studies.paper import trainings as catalogue
from windward.studies.spec import Execution, command_line

TRAINING = catalogue.ENTRIES["hopper-pd3"].default
CHANGED: list[tuple[str, Any, Any]] = [
    ("hopper-pd3", TRAINING, replace(TRAINING, all_groups=True, base_sigmas=(0.1, 0.3), seeds=2)),
    ("hopper-pd3", TRAINING, replace(TRAINING, all_groups=False, agent=replace(
        TRAINING.agent, widths=(8, 8), robust=replace(TRAINING.agent.robust, eta=0.5)))),
    ("cartpole-discrete", cartpole.CartpoleDiscrete(),
     cartpole.CartpoleDiscrete(disturbance="sine:amplitude=8,period=9", signals=("pd3",))),
    ("lds-high", lds_high.LdsHigh(), lds_high.LdsHigh(
        winds=("sine 20",), scale="smoke", how=Execution(jobs=1, dry_run=True))),
    ("lds-low", lds.LdsLow(), lds.LdsLow(T=300, last=100)),
    ("headroom-linear", headroom_linear.HeadroomLinear(),
     headroom_linear.HeadroomLinear(sizes=((2, 1), (64, 4)))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "usual", "settings"), CHANGED)
def test_the_command_gives_the_settings_again(name: str, usual: Any, settings: Any) -> None:
    command = command_line(f"windward run {name}", settings, usual)
    words = shlex.split(command)[2:]
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)
    assert tyro.cli(Run, args=words, config=config).study == settings
