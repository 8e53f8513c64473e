"""What a diagnosis says: changes with intervals, the wind left over, and the world so changed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from windward import files
from windward.diagnosis.wind import Axis, Coordinate, Model, Sine, Wind
from windward.envs.changed import BIAS, DELAY, Changed
from windward.simulators.learned import LearnedSimulator
from windward.simulators.shell import Unsupported
from windward.simulators.simulator import Simulator, simulator

KIND = "windward.diagnosis"
VERSION = 1
MUCH = 0.1
"""share of the deviation that may stay unexplained without being said first"""


class Change(NamedTuple):
    """A parameter as it is now: a factor on its nominal value, or an amount added to it."""

    factor: float
    """true value over nominal one; for other units than "x" the amount added"""
    low: float
    """of the 95 % interval"""
    high: float
    unit: str = "x"
    seen: bool = True
    """whether the steps show it at all; if not, the interval is that of before the data"""

    def __str__(self) -> str:
        if self.unit == "x":
            return f"x{self.factor:.3g} [{self.low:.3g}, {self.high:.3g}]"
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.factor:+.3g}{unit} [{self.low:.3g}, {self.high:.3g}]"


class Trace(NamedTuple):
    """The size of each step's residual, root mean square in usual changes of a coordinate."""

    before: np.ndarray  # (T,) under the nominal simulator
    after: np.ndarray  # (T,) with the changes
    episode: np.ndarray  # (T,)


@dataclass(frozen=True)
class Diagnosis:
    """What changed in a world, from recorded steps; made by `diagnose` and `diagnose_log`.

    `print` says it in a few lines.
    """

    changes: Mapping[str, Change]
    """what credibly differs from the nominal world, the fewest changes that explain the steps"""
    factors: Mapping[str, Change]
    """every parameter that was tried: as found, or what it would be if it were added"""
    wind: Wind | None
    """what is left over once the parameters are known; None if nothing is"""
    unexplained: float
    """share of the steps' deviation from the nominal simulator that neither explains"""
    suspects: Mapping[str, Change] = field(default_factory=dict)
    """what would be `changes`, were not too much left unexplained to trust it"""
    together: tuple[tuple[str, ...], ...] = ()
    """kinds that show only together: all times one number is the same motion"""
    deviation: float = 0.0
    """of a step from the nominal simulator, root mean square in usual changes of a coordinate"""
    env_id: str | None = None
    steps: int = 0
    episodes: int = 0
    seconds: float = 0.0
    """that the fit took"""
    simulated: int = 0
    """steps that were simulated for it"""
    complete: bool = True
    """False where it was interrupted: what had been found until then"""
    notes: tuple[str, ...] = ()
    trace: Trace | None = None
    env_options: Mapping[str, Any] = field(default_factory=dict)
    env: gym.Env | None = field(default=None, compare=False, repr=False)
    """the environment that was diagnosed; None after loading"""
    nominal: Any = field(default=None, compare=False, repr=False)
    """the simulator that it was compared with; None after loading"""

    @property
    def values(self) -> dict[str, float]:
        """The changes as `windward.envs.Changed` and `windward.simulator(scale=)` take them."""
        return {name: each.factor for name, each in self.changes.items()}

    def simulator(self) -> Any:
        """The simulator with the changes in it; late actions and sensors are not part of it."""
        own = {
            name: value
            for name, value in self.values.items()
            if name.partition(":")[0] not in (DELAY, BIAS)
        }
        if isinstance(self.nominal, LearnedSimulator):
            return self.nominal.changed(own)
        if isinstance(self.nominal, Simulator):
            return self.nominal.scaled(own)
        return simulator(self._made({}), noisy=False, scale=own)

    def environment(self, make: Callable[[], gym.Env] | None = None, **options: Any) -> gym.Env:
        """A Gymnasium environment with the changes in it: train in it, look at it.

        The wind is not in it: add it with `windward.envs.Disturbed`.

        Args:
            make: makes the nominal environment, where it cannot be made from its id.
            options: for `gym.make`, such as `render_mode="human"`.
        """
        env = make() if make is not None else self._made(options)
        return Changed(env, self.values) if self.changes else env

    def _made(self, options: Mapping[str, Any]) -> gym.Env:
        if self.env is not None and self.env.spec is not None:
            spec = self.env.spec
            kept = tuple(
                each
                for each in spec.additional_wrappers
                if not each.entry_point.startswith("windward.")
            )
            # gym.make adds these by itself.
            return gym.make(replace(spec, additional_wrappers=kept), **options)
        if self.env_id is None:
            raise Unsupported(
                "the environment has no id to make it from again: give environment(make=...)"
            )
        if self.env_id not in gym.registry:
            raise ValueError(
                f"{self.env_id!r} is not registered here: import the package that registers it, "
                "or give environment(make=...)"
            )
        return gym.make(self.env_id, **{**self.env_options, **options})

    def __str__(self) -> str:
        lines = []
        if not self.complete:
            lines.append("interrupted: this is what had been found until then")
        if self.unexplained > MUCH:
            lines.append(
                f"{100 * self.unexplained:.0f} % of the deviation stays unexplained: something "
                "changed that is not among the parameters (a stuck joint, another shape or "
                "contact), or sensors are noisy"
            )
        lines += [f"{name} {each}" for name, each in self.changes.items()]
        for group in self.together:
            lines.append(
                f"({', '.join(group)}: only their ratios show; this is the fewest changes)"
            )
        if self.suspects:
            said = ", ".join(f"{name} {each}" for name, each in self.suspects.items())
            lines.append(f"not to be trusted: {said}")
        if not self.changes and not self.suspects:
            lines.append("no parameter changed")
        if self.wind is not None:
            lines.append(str(self.wind))
        if self.deviation and self.unexplained <= MUCH:
            lines.append(f"unexplained {_percent(self.unexplained)}")
        unseen = [name for name, each in self.factors.items() if not each.seen]
        if unseen:
            lines.append(f"not seen in these steps: {_listed(unseen)}")
        return "\n".join([*lines, *self.notes])

    def as_dict(self) -> dict[str, Any]:
        """All of it but the traces, as JSON can hold it."""
        wind = None
        if self.wind is not None:
            wind = {
                **self.wind._asdict(),
                "series": None,
                "axes": [
                    {**axis._asdict(), "model": _model_dict(axis.model)} for axis in self.wind.axes
                ],
                "coordinates": [each._asdict() for each in self.wind.coordinates],
            }
            wind.pop("series")
        return {
            "env": self.env_id,
            "changes": {name: each._asdict() for name, each in self.changes.items()},
            "suspects": {name: each._asdict() for name, each in self.suspects.items()},
            "factors": {name: each._asdict() for name, each in self.factors.items()},
            "together": [list(each) for each in self.together],
            "wind": wind,
            "unexplained": self.unexplained,
            "deviation": self.deviation,
            "steps": self.steps,
            "episodes": self.episodes,
            "seconds": self.seconds,
            "simulated": self.simulated,
            "complete": self.complete,
            "notes": list(self.notes),
        }

    def save(self, path: str | Path) -> None:
        """Writes it as arrays and JSON; `Diagnosis.load` reads it."""
        arrays: dict[str, np.ndarray] = {}
        if self.trace is not None:
            arrays |= {f"trace/{name}": each for name, each in self.trace._asdict().items()}
        if self.wind is not None:
            arrays |= {f"wind/{i}": each for i, each in enumerate(self.wind.series)}
        options = {
            name: each
            for name, each in self.env_options.items()
            if isinstance(each, (bool, int, float, str, type(None)))
        }
        header = {"kind": KIND, "version": VERSION, "env_options": options, **self.as_dict()}
        files.write(path, arrays, header)

    @staticmethod
    def load(path: str | Path) -> "Diagnosis":
        """A diagnosis from a file; loading runs no code and makes no environment."""
        arrays, header = files.read(path, KIND)
        if header["version"] != VERSION:
            raise ValueError(
                f"{str(path)!r} is a diagnosis of version {header['version']!r}, and this windward "
                f"reads version {VERSION}: make it again from its log"
            )
        try:
            return _read(arrays, header)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{str(path)!r} is damaged: {error}") from error

    def report(self, path: str | Path) -> Path:
        """Writes a page, one HTML file that opens from disk."""
        from windward.diagnosis.report import write_report

        return write_report(self, Path(path))


def _model_dict(model: Model) -> dict[str, Any]:
    return {**model._asdict(), "sines": [each._asdict() for each in model.sines]}


def _read(arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> Diagnosis:
    def changes(name: str) -> dict[str, Change]:
        return {str(key): Change(**each) for key, each in header[name].items()}

    trace = None
    if "trace/before" in arrays:
        trace = Trace(*(arrays[f"trace/{name}"] for name in Trace._fields))
    wind = None
    if header["wind"] is not None:
        given = dict(header["wind"])
        axes = []
        for axis in given.pop("axes"):
            model = dict(axis["model"])
            sines = tuple(Sine(**each) for each in model.pop("sines"))
            model["past"] = tuple(model["past"])
            axes.append(Axis(**{**axis, "model": Model(**model, sines=sines)}))
        found = tuple(Coordinate(**each) for each in given.pop("coordinates"))
        count = sum(name.startswith("wind/") for name in arrays)
        series = tuple(arrays[f"wind/{i}"] for i in range(count))
        wind = Wind(**given, axes=tuple(axes), coordinates=found, series=series)
    plain = ("unexplained", "deviation", "steps", "episodes", "seconds", "simulated", "complete")
    return Diagnosis(
        changes=changes("changes"),
        factors=changes("factors"),
        suspects=changes("suspects"),
        wind=wind,
        together=tuple(tuple(each) for each in header["together"]),
        env_id=header["env"],
        notes=tuple(header["notes"]),
        trace=trace,
        env_options=dict(header["env_options"]),
        **{name: header[name] for name in plain},
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def _listed(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
