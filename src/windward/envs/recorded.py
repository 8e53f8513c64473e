"""A disturbance that was recorded: from an array or a file, played in every episode."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from windward import checks
from windward.envs.disturbances import Ask, Rows


@dataclass(frozen=True, eq=False)
class Recorded:
    """A recorded sequence, played from its first row in every episode.

    Give an array (steps, *shape) (one column may stand for all coordinates), or the path of a
    .npy or .csv file. Its end is an error, unless `after` says "repeat" or "zero", or the schedule
    is off by then. On "observation" the first row is that of reset.
    """

    sequence: Any = field(repr=False)
    after: Literal["error", "repeat", "zero"] = "error"
    iid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.choice("after", self.after, ("error", "repeat", "zero"))
        value = self.sequence
        if isinstance(value, (str, Path)):
            value = _read(Path(value))
        array = checks.finite_array("sequence", value)
        if array.ndim < 1 or not len(array):
            raise ValueError(f"sequence must hold at least one row; got shape {array.shape}")
        array.flags.writeable = False
        object.__setattr__(self, "sequence", array[:, None] if array.ndim == 1 else array)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Recorded)
            and self.after == other.after
            and np.array_equal(self.sequence, other.sequence)
        )

    def __hash__(self) -> int:
        return hash((self.after, self.sequence.shape, self.sequence.tobytes()))

    def block(self, ask: Ask) -> Rows:
        length, width = len(self.sequence), self.sequence.shape[1:]
        if width not in ((1,), ask.shape):
            raise ValueError(
                f"sequence must have rows of shape {ask.shape}, as the channel has; got {width}"
            )
        times = ask.times
        rows = self.sequence[times.ravel() % length]
        if width != ask.shape:  # one column stands for all coordinates
            rows = rows.reshape((ask.n,) + (1,) * len(ask.shape))
        return ask.rows(rows if self.after == "repeat" else rows * (times < length)), None

    def length(self) -> int | None:
        """How many steps the recording covers; None if it never ends."""
        return len(self.sequence) if self.after == "error" else None


def _read(path: Path) -> np.ndarray:
    """A recorded sequence from a .npy (never pickled) or .csv file."""
    readers: dict[str, Callable[[Path], np.ndarray]] = {
        ".npy": lambda file: np.load(file, allow_pickle=False),
        ".csv": lambda file: np.loadtxt(file, delimiter=",", ndmin=2),
    }
    if path.suffix not in readers:
        raise ValueError(f"sequence must be a .npy or .csv file; got {str(path)!r}")
    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r} to read a sequence from")
    try:
        return readers[path.suffix](path)
    except ValueError as error:
        raise ValueError(f"{str(path)!r} does not hold an array of numbers: {error}") from error
