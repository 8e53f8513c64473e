"""Pictures of disturbances."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from windward import checks
from windward.envs.schedules import When
from windward.envs.specs import as_specs
from windward.envs.streams import Stream
from windward.figures import panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sequence(
    disturbance: Any, steps: int = 300, coordinates: int = 2, when: When = None, seed: int = 0
) -> np.ndarray:
    """The first `steps` rows of a disturbance's first episode, (steps, coordinates)."""
    shape = (checks.integer("coordinates", coordinates, 1),)
    streams = [
        Stream(spec.disturbance, spec.when, shape, (0, i))
        for i, spec in enumerate(as_specs(disturbance, None, when))
    ]
    for stream in streams:
        stream.restart(seed, 0)
    return sum(np.array([stream.next() for _ in range(steps)]) for stream in streams)  # type: ignore[return-value]


def plot(
    disturbances: Any, steps: int = 300, seed: int = 0, path: str | Path | None = None
) -> "Figure":
    """Two coordinates of each disturbance over an episode; writes to `path` if given.

    Takes one disturbance or several, as objects or text, or a mapping from titles to recorded
    arrays (steps, coordinates).
    """
    if isinstance(disturbances, Mapping):
        sequences = dict(disturbances)
    else:
        listed = disturbances if isinstance(disturbances, (list, tuple)) else [disturbances]
        sequences = {str(each): sequence(each, steps, seed=seed) for each in listed}
    columns = min(3, len(sequences))
    figure, axes = panels(columns, width=4.2, height=2.2, rows=-(-len(sequences) // columns))
    for panel, (title, rows) in zip(axes, sequences.items(), strict=False):
        panel.plot(rows, lw=1.0)
        panel.set_title(title, fontsize=9, family="monospace")
    for panel in axes[len(sequences) :]:
        panel.set_visible(False)
    for panel in axes[-columns:]:
        panel.set_xlabel("step")
    if path is not None:
        figure.savefig(path, dpi=110)
    return figure
