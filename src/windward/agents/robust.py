"""Settings for training with the adaptive module on, as in the paper's experiments (`sec:exps`).

What they do is in `adaptation.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from windward import checks

Signal = Literal["pd1", "pd2", "pd3"]
Update = Literal["both", "values", "base", "neither"]
Form = Literal["vector_head", "critic_units"]
Coordinates = Literal["observation", "state"]
ONLY_FOR = {"form": "pd2", "simulator": "pd3", "coordinates": "pd3"}
SIMULATOR = ("copies", "noisy", "seed", "scale")
"""options of `windward.simulator` that a file can hold"""


@dataclass(frozen=True)
class Robust:
    """Training with the adaptive module on; without a signal it is off."""

    signal: Signal | None = None
    """pseudo-disturbance: pd1 and pd2 from the agent's own values, pd3 from a simulator"""
    h: int = 5
    """memory: how many past w_hat the correction looks at"""
    eta: float = 1e-5
    """learning rate of M"""
    weight_decay: float = 0.0
    """of M, once for each update of it"""
    every_episodes: int | None = 3
    """M is updated once per so many episodes, of all environments together; None: at every step"""
    radius: float | None = 10.0
    """of the ball that holds M; None for none"""
    update: Update = "both"
    """what learns beside M: values (critic and vector head), base (policy), both, neither"""
    form: Form = "vector_head"
    """where pd2 finds vector values: a head of its own, or the critic's first units"""
    simulator: dict[str, float] = field(default_factory=dict)
    """pd3: options of windward.simulator; 4 noisy copies if left out"""
    coordinates: Coordinates = "observation"
    """pd3: what is compared with the simulator's prediction"""

    def __post_init__(self) -> None:
        if self.signal is not None:
            checks.choice("signal", self.signal, get_args(Signal))
        self._refuse_idle()
        checks.choice("update", self.update, get_args(Update))
        checks.choice("form", self.form, get_args(Form))
        checks.choice("coordinates", self.coordinates, get_args(Coordinates))
        self._keep("h", checks.integer("h", self.h, 1))
        if self.every_episodes is not None:
            self._keep("every_episodes", checks.integer("every_episodes", self.every_episodes, 1))
        for name in ("eta", "weight_decay", "radius"):
            value = getattr(self, name)
            if value is not None or name != "radius":
                checks.finite_array(name, value, ndim=0)
                self._keep(name, float(checks.positive(name, value, zero=name != "radius")))
        self._keep("simulator", _options(self.simulator))

    def _keep(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _refuse_idle(self) -> None:
        """Refuses settings that would do nothing."""
        plain = {each.name: each.default for each in fields(self)} | {"simulator": {}}
        for name, default in plain.items():
            if name == "signal" or getattr(self, name) == default:
                continue
            if self.signal is None:
                raise ValueError(
                    f"{name} is for training with the module on: give a signal too, one of "
                    f"{', '.join(get_args(Signal))}"
                )
            if ONLY_FOR.get(name, self.signal) != self.signal:
                raise ValueError(f"{name} is for {ONLY_FOR[name]}; the signal is {self.signal}")

    @property
    def on(self) -> bool:
        """Whether there is a module at all."""
        return self.signal is not None

    @property
    def needs_head(self) -> bool:
        """Whether a vector head must learn beside the critic."""
        return self.signal == "pd2" and self.form == "vector_head"


def _options(given: Any) -> dict[str, Any]:
    """Options of a simulator, checked and as JSON can hold them."""
    if not isinstance(given, Mapping):
        raise ValueError(f"simulator must be a mapping of options; got {given!r}")
    for name in given:
        checks.choice("an option in simulator", name, SIMULATOR)
    options: dict[str, Any] = dict(given)
    for name, least in (("copies", 1), ("seed", 0)):
        if name in options:
            value = options[name]
            whole = isinstance(value, float) and value.is_integer()  # the command line's
            options[name] = checks.integer(name, int(value) if whole else value, least)
    if "noisy" in options:
        options["noisy"] = bool(options["noisy"])
    return options


def as_robust(given: Any) -> Robust:
    """Settings from None, a dictionary or `Robust` itself."""
    if given is None:
        return Robust()
    if isinstance(given, Robust):
        return given
    if not isinstance(given, Mapping):
        raise ValueError(f"robust must be a dictionary of settings or None; got {given!r}")
    known = [each.name for each in fields(Robust)]
    unknown = sorted(str(name) for name in given if name not in known)
    if unknown:
        raise ValueError(
            f"robust does not know {', '.join(unknown)}; its settings are {', '.join(known)}"
        )
    if "signal" not in given:
        raise ValueError(f"robust needs a signal, one of {', '.join(get_args(Signal))}")
    return Robust(**given)
