"""Disturbances from text: `sine:amp=0.2,period=60,channel=qvel`, several joined by `+`.

NAME[:KEY=VALUE,...]. Keys are the fields of the disturbance (any unambiguous beginning of one),
`channel`, and the schedule: start, stop (steps), probability, from_episode, grow (steps),
grow_episodes. A value is a number, or one for each coordinate as 0.1/0/0.2.
"""

import dataclasses
import re
from typing import Any, NamedTuple

from windward.envs.disturbances import (
    Bias,
    Disturbance,
    Gaussian,
    Impulse,
    OrnsteinUhlenbeck,
    RandomWalk,
    Sinusoid,
    SquareWave,
    Step,
    Uniform,
)
from windward.envs.gradient_sign import GradientSign
from windward.envs.recorded import Recorded
from windward.envs.schedules import (
    FromEpisode,
    Growing,
    Interval,
    Probability,
    When,
    as_schedules,
)

DISTURBANCES: dict[str, type] = {
    "uniform": Uniform,
    "gaussian": Gaussian,
    "sine": Sinusoid,
    "square": SquareWave,
    "ou": OrnsteinUhlenbeck,
    "walk": RandomWalk,
    "step": Step,
    "impulse": Impulse,
    "bias": Bias,
    "recorded": Recorded,
    "fgsm": GradientSign,
}
_WHEN = ("start", "stop", "probability", "from_episode", "grow", "grow_episodes")


class Spec(NamedTuple):
    """One disturbance, where and when."""

    disturbance: Disturbance
    channel: str | None = None
    when: When = None


def fields_of(kind: Any) -> list[dataclasses.Field]:
    """The fields that a text may set for a kind of disturbance; functions are not among them."""
    return [each for each in dataclasses.fields(kind) if each.metadata.get("text", True)]


def available() -> str:
    """One line for each disturbance: its name and its fields with their defaults."""
    lines = []
    for name, kind in DISTURBANCES.items():
        shown = [
            each.name if each.default is dataclasses.MISSING else f"{each.name}={each.default}"
            for each in fields_of(kind)
        ]
        lines.append(f"  {name}:{','.join(shown)}")
    return "\n".join(lines)


def parse(text: str) -> list[Spec]:
    """The disturbances that a text describes.

    >>> parse("sine:amp=0.2,period=60")[0].disturbance
    Sinusoid(amplitude=0.2, period=60.0, phase=0.0)
    """
    if not isinstance(text, str):
        raise ValueError(f"expected a text such as sine:amp=0.2,period=60; got {text!r}")
    return [_one(each.strip()) for each in re.split(r"\+(?=\s*[A-Za-z])", text)]


def _one(text: str) -> Spec:
    name, _, rest = text.partition(":")
    if name not in DISTURBANCES:
        raise ValueError(
            f"there is no disturbance {name!r} (in {text!r}); there are\n{available()}"
        )
    kind = DISTURBANCES[name]
    own = [each.name for each in fields_of(kind)]
    given: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"expected KEY=VALUE and got {item!r} (in {text!r})")
        key = _field(key.strip(), (*own, "channel", *_WHEN), text)
        if key in given:
            raise ValueError(f"{key} is set twice (in {text!r})")
        given[key] = value.strip()
    channel = given.pop("channel", None)
    when = _schedule({key: given.pop(key) for key in _WHEN if key in given}, text)
    whole = {each.name for each in fields_of(kind) if each.type is int}
    words = {"phase", "after", "sequence"}
    settings = {
        key: _integer(key, value, text)
        if key in whole
        else _numbers(key, value, text, word=key in words)
        for key, value in given.items()
    }
    for each in fields_of(kind):
        if each.default is dataclasses.MISSING and each.name not in settings:
            raise ValueError(f"{name} needs {each.name}=... (in {text!r})")
    return Spec(kind(**settings), channel, when)


def _field(key: str, fields: tuple[str, ...], text: str) -> str:
    fitting = [key] if key in fields else [each for each in fields if each.startswith(key)]
    if len(fitting) != 1 or not key:
        trouble = "could be any of" if len(fitting) > 1 else "is not among"
        raise ValueError(f"{key!r} {trouble} {', '.join(fitting or fields)} (in {text!r})")
    return fitting[0]


def _integer(key: str, value: str, text: str) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise ValueError(f"{key} must be a whole number; got {value!r} (in {text!r})") from error


def _numbers(key: str, value: str, text: str, word: bool = False) -> Any:
    try:
        numbers = tuple(float(each) for each in value.split("/"))
    except ValueError as error:
        if word:
            return value
        raise ValueError(
            f"{key} must be a number, or one for each coordinate as 0.1/0/0.2; got {value!r} "
            f"(in {text!r})"
        ) from error
    return numbers if len(numbers) > 1 else numbers[0]


def _schedule(given: dict[str, str], text: str) -> When:
    schedules: list[Any] = []
    if "start" in given or "stop" in given:
        limits = {key: _integer(key, given[key], text) for key in ("start", "stop") if key in given}
        schedules.append(Interval(**limits))
    if "probability" in given:
        schedules.append(Probability(_numbers("probability", given["probability"], text)))
    if "from_episode" in given:
        schedules.append(FromEpisode(_integer("from_episode", given["from_episode"], text)))
    if "grow" in given:
        schedules.append(Growing(steps=_integer("grow", given["grow"], text)))
    if "grow_episodes" in given:
        schedules.append(Growing(episodes=_integer("grow_episodes", given["grow_episodes"], text)))
    return schedules or None


def text_of(spec: Spec) -> str | None:
    """The text that gives a spec; None where it holds functions, arrays or files.

    >>> text_of(Spec(Sinusoid((0.1, 0.0), 60), "qvel", Interval(100)))
    'sine:amplitude=0.1/0.0,period=60.0,phase=0.0,channel=qvel,start=100'
    """
    kind: Any = type(spec.disturbance)
    name = next((name for name, each in DISTURBANCES.items() if each is kind), None)
    schedule = _schedule_text(as_schedules(spec.when))
    if name is None or kind is Recorded or schedule is None:
        return None
    fields = {
        each.name: getattr(spec.disturbance, each.name)
        for each in dataclasses.fields(kind)
        if getattr(spec.disturbance, each.name) is not None
    }
    channel = {} if spec.channel is None else {"channel": spec.channel}
    items = []
    for key, value in (fields | channel | schedule).items():
        flat = value if isinstance(value, tuple) else (value,)
        if any(callable(each) or isinstance(each, tuple) for each in flat):
            return None
        items.append(f"{key}={'/'.join(map(str, flat))}")
    return f"{name}:{','.join(items)}"


def _schedule_text(schedules: tuple[Any, ...]) -> dict[str, Any] | None:
    """The keys that give schedules; None where there are functions or two of a kind."""
    given: dict[str, Any] = {}
    for each in schedules:
        own: dict[str, Any]
        match each:
            case Interval():
                own = {"start": each.start, "stop": each.stop}
            case Probability():
                own = {"probability": each.p}
            case FromEpisode():
                own = {"from_episode": each.episode}
            case Growing():
                own = {"grow": each.steps, "grow_episodes": each.episodes}
            case _:
                return None
        own = {key: value for key, value in own.items() if value is not None}
        if own.keys() & given.keys():
            return None
        given |= own
    return given


def as_specs(disturbance: Any, channel: Any, when: When) -> list[Spec]:
    """What Disturbed was given as specs; `channel` and `when` fill in what specs leave open.

    `disturbance` is one or a list, each an object or text; `channel` is one for all or a list.
    """
    one = isinstance(disturbance, Spec) or not isinstance(disturbance, (list, tuple))
    listed = [disturbance] if one else list(disturbance)
    if not listed:
        raise ValueError("give at least one disturbance")
    where = channel if isinstance(channel, (list, tuple)) else [channel] * len(listed)
    if len(where) != len(listed):
        raise ValueError(f"there are {len(listed)} disturbances and {len(where)} channels")
    specs = []
    for each, place in zip(listed, where, strict=True):
        for spec in _specs_of(each):
            specs.append(
                Spec(
                    spec.disturbance,
                    place if spec.channel is None else spec.channel,
                    when if spec.when is None else spec.when,
                )
            )
    return specs


def _specs_of(item: Any) -> list[Spec]:
    if isinstance(item, str):
        return parse(item)
    if isinstance(item, Spec):
        return [item]
    if isinstance(item, type) or not (hasattr(item, "block") and hasattr(item, "iid")):
        raise ValueError(
            f"a disturbance is an object such as Uniform(0.1) or text; got {item!r}; "
            f"there are\n{available()}"
        )
    return [Spec(item)]
