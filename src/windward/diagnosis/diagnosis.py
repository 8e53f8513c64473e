"""What a diagnosis says: changes with intervals, the wind left over, and the world so changed."""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from windward import files
from windward.diagnosis.log import check_version
from windward.diagnosis.text import Texts, percent, texts
from windward.diagnosis.wind import Axis, Coordinate, Model, Sine, Wind
from windward.envs.changed import BIAS, DELAY, Changed
from windward.simulators.learned import LearnedSimulator
from windward.simulators.shell import Unsupported
from windward.simulators.simulator import Simulator, merged, simulator

KIND = "windward.diagnosis"
VERSION = 1
MUCH = 0.1
"""share of the deviation that may stay unexplained without being said first"""
PHYSICS, FUNCTION, LEARNED = "physics", "function", "learned"
WHY: Mapping[str, str] = {
    PHYSICS: "something changed that is not among the parameters (a stuck joint, another shape or "
    "contact)",
    FUNCTION: "something changed that is not among the parameters of your simulator",
    LEARNED: "something changed that does not act on each number of the observation alone, as a "
    "mass or a motor does; a simulator of the physics would tell which",
}
"""what much unexplained may mean"""
HOW_TO_GIVE: Mapping[str, tuple[str, str]] = {
    FUNCTION: (
        "a simulator of your own",
        "windward.simulator(env, step=..., state=..., parameters=...)",
    ),
    LEARNED: ("a learned simulator", "windward.load_simulator(path, env)"),
}
"""simulators that are not in a file, and how to give them"""


class Change(NamedTuple):
    """A parameter as it is now: a factor on its nominal value, or an amount added to it.

    >>> print(Change(1.2946, 1.2931, 1.2961))
    x1.2946 [1.2931, 1.2961]
    """

    factor: float
    """true value over nominal one; for other units than "x" the amount added"""
    low: float
    """of the 95 % interval"""
    high: float
    unit: str = "x"
    seen: bool = True
    """whether the steps show it at all; if not, the interval is that of before the data"""

    def texts(self, kind: str = "", times: str = "x") -> Texts:
        """The numbers as text; see `windward.diagnosis.text`."""
        return texts(self.factor, self.low, self.high, self.unit, kind, times)

    def said(self, kind: str = "") -> str:
        """The numbers as text, in one piece; a motor (`kind` "gain") may be dead."""
        now, low, high, _ = self.texts(kind)
        return f"{now} [{low}, {high}]" if low else now

    def __str__(self) -> str:
        return self.said()


class Line(NamedTuple):
    """One line of what a diagnosis says."""

    kind: str
    """"alert" (said first: interrupted, or much unexplained), "change", "together", "suspect",
    "nothing", "wind", "unexplained", "unseen" or "note\""""
    text: str


class Trace(NamedTuple):
    """The size of each step's residual, root mean square in usual changes of a coordinate."""

    before: np.ndarray  # (T,) under the nominal simulator
    after: np.ndarray  # (T,) with the changes
    episode: np.ndarray  # (T,)


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What changed in a world, from recorded steps; made by `diagnose` and `diagnose_log`.

    `print` shows it in a few lines, `lines()` gives them with their kinds.

    >>> import gymnasium as gym, windward as ww
    >>> world = ww.envs.Changed(gym.make("Pendulum-v1"), {"mass": 1.3, "delay": 1})
    >>> found = ww.diagnose(None, world)
    >>> {name: round(value, 3) for name, value in found.values.items()}
    {'mass': 1.3, 'delay': 1}
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
    """what would be `changes`, but too much is unexplained, or the fit was interrupted"""
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
    source: str = PHYSICS
    """of the nominal simulator: "physics", a user's "function", or "learned\""""
    nominal_values: Mapping[str, float] = field(default_factory=dict)
    """what the nominal simulator was made with: its scale, or the values of a user's parameters"""
    env: gym.Env | None = field(default=None, repr=False)
    """the environment that was diagnosed; None after loading"""
    nominal: Any = field(default=None, repr=False)
    """the simulator that it was compared with; None after loading"""

    def __eq__(self, other: object) -> bool:
        """Whether both say the same; the environment and the simulator are not compared."""
        if not isinstance(other, Diagnosis):
            return NotImplemented
        mine, theirs = (each.arrays() for each in (self, other))
        return (
            json.dumps(self.header()) == json.dumps(other.header())
            and mine.keys() == theirs.keys()
            and all(np.array_equal(mine[name], theirs[name], equal_nan=True) for name in mine)
        )

    @property
    def values(self) -> dict[str, float]:
        """The changes as `windward.envs.Changed` and `windward.simulator(scale=)` take them."""
        return {
            name: int(each.factor) if name == DELAY else each.factor
            for name, each in self.changes.items()
        }

    def _inner(self) -> dict[str, float]:
        """The changes of the physics; late actions and sensors are not part of it."""
        return {
            name: value
            for name, value in self.values.items()
            if name.partition(":")[0] not in (DELAY, BIAS)
        }

    def simulator(self, nominal: Any = None) -> Any:
        """Makes the simulator with the changes in it, but for late actions and sensors.

        Args:
            nominal: the nominal simulator, where it is not known: a file does not hold simulators
                that were learned or a user's own.

        Returns:
            Another simulator of the same kind.

        Raises:
            ValueError: `nominal` is no simulator.
            Unsupported: the nominal simulator is not known.

        >>> import gymnasium as gym, windward as ww
        >>> world = ww.envs.Changed(gym.make("Pendulum-v1"), {"mass": 1.3})
        >>> changed = ww.diagnose(None, world).simulator()
        """
        given = self.nominal if nominal is None else nominal
        if isinstance(given, LearnedSimulator):
            return given.changed(self._inner())
        if isinstance(given, Simulator):
            return given.quiet().changed(self._inner())
        if given is not None:
            raise ValueError(
                "nominal must be a simulator of windward.simulator or windward.fit_simulator; got "
                f"{type(given).__name__}"
            )
        if self.source in HOW_TO_GIVE:
            raise Unsupported(
                f"a file of a diagnosis does not hold {HOW_TO_GIVE[self.source][0]}: give "
                f"simulator(nominal={HOW_TO_GIVE[self.source][1]})"
            )
        scale = merged(self.nominal_values, self._inner())
        return simulator(self._made({}), noisy=False, scale=scale)

    def environment(self, make: Callable[..., gym.Env] | None = None, **options: Any) -> gym.Env:
        """Makes a Gymnasium environment with the changes in it: train in it, look at it.

        The wind is not in it: add it with `windward.envs.Disturbed`.

        Args:
            make: makes the nominal environment, where it cannot be made from its id. With a
                simulator of one's own it is called with the parameters of `step` as they are now,
                as keywords, because only the user knows how to write them into the environment.
            options: for `gym.make`, such as `render_mode="human"`.

        Returns:
            A new environment.

        Raises:
            ValueError: its id is not registered.
            Unsupported: there is no id and no `make`, or the changes are of a simulator that no
                environment corresponds to.

        >>> import gymnasium as gym, windward as ww
        >>> world = ww.envs.Changed(gym.make("Pendulum-v1"), {"mass": 1.3})
        >>> round(ww.diagnose(None, world).environment().unwrapped.m, 2)
        1.3
        """
        inner = self._inner()
        if self.source == LEARNED and inner:
            raise Unsupported(
                f"the changes ({_listed(list(inner))}) are of a learned simulator: they say how "
                "numbers of the observation respond, and no environment has such parameters. Use "
                f"simulator({'' if self.nominal else 'nominal=...'}), the simulator with the "
                "changes in it"
            )
        if self.source == FUNCTION and inner:
            env, put = self._by_user(make, inner), {}
        else:
            env = make() if make is not None else self._made(options)
            put = inner if self.source != PHYSICS else merged(self.nominal_values, inner)
        put |= {name: value for name, value in self.values.items() if name not in inner}
        return Changed(env, put) if put else env

    def _by_user(self, make: Callable[..., gym.Env] | None, inner: Mapping[str, float]) -> gym.Env:
        """An environment whose parameters only its owner can set."""
        now = merged(self.nominal_values, inner)
        if make is None:
            words = ", ".join(now)
            raise Unsupported(
                f"{_listed(list(inner))} changed in a simulator of your own, and windward cannot "
                "write that into the environment: give environment(make=...), which is called with "
                f"the parameters as they are now, such as make=lambda {words}: MyEnv({words}); or "
                "use simulator(), which has the changes in it"
            )
        try:
            inspect.signature(make).bind(**now)
        except TypeError as error:
            values = ", ".join(f"{name}={value:.6g}" for name, value in now.items())
            raise ValueError(f"make is called with {values}, and {error}") from error
        return make(**now)

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

    def lines(self) -> tuple[Line, ...]:
        """Gives what `print` shows, line by line, each with its kind.

        Returns:
            The lines; what matters most is first.

        >>> found = Diagnosis({"mass": Change(1.3, 1.2, 1.4)}, {}, None, 0.0)
        >>> found.lines()
        (Line(kind='change', text='mass x1.30 [1.20, 1.40]'),)
        """
        found = self._alerts()
        found += [Line("change", each) for each in _said(self.changes)]
        found += [Line("together", self._ratio(group)) for group in self.together]
        if self.suspects:
            how = "unreliable" if self.complete else "unfinished"
            found.append(Line("suspect", f"{how}: {', '.join(_said(self.suspects))}"))
        if not self.changes and not self.suspects and self.complete:
            found.append(Line("nothing", "no parameter changed"))
        if self.wind is not None:
            found.append(Line("wind", str(self.wind)))
        if self.deviation and self.unexplained <= MUCH and self.complete:
            found.append(Line("unexplained", f"unexplained {percent(self.unexplained)}"))
        unseen = [name for name, each in self.factors.items() if not each.seen]
        if unseen:
            found.append(Line("unseen", f"not seen in these steps: {_listed(unseen)}"))
        return (*found, *(Line("note", each) for each in self.notes))

    def _ratio(self, group: tuple[str, ...]) -> str:
        """What is known of kinds that show only together."""
        own = [name for name in group if name in self.changes]
        if len(own) != 1:
            return f"({', '.join(group)}: only their ratios show; this is the fewest changes)"
        ratios = ", ".join(f"{own[0]}/{name}" for name in group if name not in own)
        return f"(only ratios show, {ratios} {self.changes[own[0]].texts(own[0])[0]})"

    def _alerts(self) -> list[Line]:
        """What is said first."""
        share = percent(self.unexplained)
        if not self.complete:
            return [
                Line("alert", "interrupted: this is what had been found until then; so far "
                     f"{share} of the deviation is unexplained")
            ]  # fmt: skip
        if self.unexplained > MUCH:
            return [
                Line("alert", f"{share} of the deviation stays unexplained: {WHY[self.source]}, "
                     "or sensors are noisy")
            ]  # fmt: skip
        return []

    def __str__(self) -> str:
        return "\n".join(each.text for each in self.lines())

    def as_dict(self) -> dict[str, Any]:
        """Gives all of it but series over time, as JSON can hold it.

        Returns:
            Plain dictionaries, lists, numbers and texts.

        >>> Diagnosis({}, {}, None, 0.25).as_dict()["unexplained"]
        0.25
        """
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
            "source": self.source,
            "nominal_values": dict(self.nominal_values),
        }

    def header(self) -> dict[str, Any]:
        """What a file says of it in JSON."""
        options = {
            name: each
            for name, each in self.env_options.items()
            if isinstance(each, (bool, int, float, str, type(None)))
        }
        return {"kind": KIND, "version": VERSION, "env_options": options, **self.as_dict()}

    def arrays(self) -> dict[str, np.ndarray]:
        """Series over time by name."""
        arrays: dict[str, np.ndarray] = {}
        if self.trace is not None:
            arrays |= {f"trace/{name}": each for name, each in self.trace._asdict().items()}
        if self.wind is not None:
            arrays |= {f"wind/{i}": each for i, each in enumerate(self.wind.series)}
        return arrays

    def save(self, path: str | Path) -> None:
        """Writes it as arrays and JSON; `Diagnosis.load` reads it.

        Args:
            path: of the file; what is there is replaced.

        Raises:
            ValueError: the file cannot be written.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "diagnosis.npz"
        >>> Diagnosis({}, {}, None, 0.0).save(path)
        """
        files.write(path, self.arrays(), self.header())

    @staticmethod
    def load(path: str | Path, *, limit: int = files.LIMIT) -> "Diagnosis":
        """Loads a diagnosis from a file; runs no code and makes no environment.

        Args:
            path: of the file.
            limit: bytes that a compressed file may take unpacked.

        Returns:
            The diagnosis, without its environment and nominal simulator.

        Raises:
            ValueError: what is wrong with the file.

        >>> import tempfile
        >>> path, found = Path(tempfile.mkdtemp()) / "diagnosis.npz", Diagnosis({}, {}, None, 0.0)
        >>> found.save(path)
        >>> Diagnosis.load(path) == found
        True
        """
        arrays, header = files.read(path, KIND, names=("trace/*", "wind/*"), limit=limit)
        check_version(path, "diagnosis", header["version"], VERSION)
        try:
            return Diagnosis.made(arrays, header)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{str(path)!r} is damaged: {error}") from error

    @staticmethod
    def made(arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> "Diagnosis":
        """A diagnosis from its `arrays` and `header`, as a part of another file may hold them."""
        return _read(arrays, header)

    def report(self, path: str | Path) -> Path:
        """Writes a page, one HTML file that opens from disk.

        Args:
            path: of the page; its folder is made if it is not there.

        Returns:
            The path.

        Raises:
            ValueError: the page cannot be written.

        >>> import tempfile
        >>> page = Diagnosis({}, {}, None, 0.0).report(Path(tempfile.mkdtemp()) / "page.html")
        """
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
        source=str(header.get("source", PHYSICS)),
        nominal_values=dict(header.get("nominal_values", {})),
        **{name: header[name] for name in plain},
    )


def _said(changes: Mapping[str, Change]) -> list[str]:
    """Changes with their names."""
    return [f"{name} {each.said(name.partition(':')[0])}" for name, each in changes.items()]


def _listed(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
