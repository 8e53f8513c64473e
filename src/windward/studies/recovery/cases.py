"""The cases of `recovery`: changed worlds, winds, and worlds in which nothing is to be gained."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym

from windward.envs import Changed, Disturbed


@dataclass(frozen=True)
class Case:
    """A world, what the wrapper is told about it, and the goals."""

    env: str
    changes: Mapping[str, float] = field(default_factory=dict)
    """parameters of the world that differ from the nominal ones, as `Changed` takes them"""
    wind: str = ""
    channel: str = ""
    scale: Mapping[str, float] = field(default_factory=dict)
    """errors of the simulator that the wrapper gets"""
    learned: int = 0
    """nominal steps that a simulator is learned from; 0 where it is the physics"""
    first: float | None = None
    """share of the lost return to be recovered in the first episode; None for no goal"""
    later: float | None = None
    """the same for later episodes"""
    since: int = 1
    """how many episodes come before the later ones"""
    each: bool = False
    """whether `later` must hold on every seed, and not only in the mean"""
    limit: float | None = None
    """percent of the base policy's return that the worst seed may lose, where nothing is to be
    gained; None where there is a return to recover"""
    exact: bool = False
    """whether every executed action must equal the base action bit for bit"""

    def nominal(self) -> gym.Env:
        """The world as trained."""
        return gym.make(self.env)

    def world(self) -> gym.Env:
        """The world as it is."""
        env = self.nominal()
        if self.changes:
            env = Changed(env, self.changes)
        return Disturbed(env, self.wind, self.channel) if self.wind else env


PENDULUM, INVERTED = "Pendulum-v1", "InvertedPendulum-v5"
HOPPER, CHEETAH, CARTPOLE = "Hopper-v5", "HalfCheetah-v5", "CartPole-v1"
NAMES = {HOPPER: "hopper", CHEETAH: "halfcheetah", INVERTED: "inverted-pendulum",
         PENDULUM: "pendulum", CARTPOLE: "cartpole"}  # fmt: skip
NOISE = {
    HOPPER: ("uniform:bound=0.05", "action"), CHEETAH: ("uniform:bound=0.05", "action"),
    INVERTED: ("uniform:bound=0.02", "qvel"), PENDULUM: ("uniform:bound=0.1", "qvel"),
    CARTPOLE: ("uniform:bound=0.05", "qvel"),
}  # fmt: skip
"""noise that tells nothing of what comes next"""
WITHIN = 1.0
"""percent that may be lost where nothing changed or the simulator is wrong"""
EXTREME = 3.0
"""percent that may be lost at the ends of the grid of RRLS"""


def _sine(size: str, period: int) -> str:
    """A sinusoid with a random phase in each episode."""
    return f"sine:amp={size},period={period},phase=random"


_POLE = Case(INVERTED, first=0.4, later=0.95, each=True)

RECOVERABLE: Mapping[str, Case] = {
    "hopper-mass": Case(HOPPER, {"mass": 1.1}, first=0.95, later=1.0),
    "halfcheetah-mass": Case(CHEETAH, {"mass": 1.3}, first=0.45, later=0.75),
    "halfcheetah-gain": Case(CHEETAH, {"gain": 0.7}, first=0.25, later=0.5),
    "hopper-gain": Case(HOPPER, {"gain": 0.8}, later=0.5),
    "hopper-torso": Case(HOPPER, {"mass:torso": 1.3}, later=0.8),
    "halfcheetah-torso": Case(CHEETAH, {"mass:torso": 1.5}, first=0.25, later=0.5),
    "inverted-pendulum-sine-70": replace(_POLE, wind=_sine("0/0.1", 70), channel="qvel"),
    "inverted-pendulum-sine-130": replace(_POLE, wind=_sine("0/0.1", 130), channel="qvel"),
    "inverted-pendulum-force": replace(_POLE, wind=_sine("6/0/0", 97), channel="force:pole"),
    "inverted-pendulum-mass": replace(_POLE, changes={"mass:pole": 2.0}),
    "inverted-pendulum-gain": replace(_POLE, changes={"gain": 0.5}),
    "hopper-force": Case(HOPPER, {}, _sine("5/0/0", 150), "force:torso", later=0.85),
    "halfcheetah-force": Case(
        CHEETAH, {}, _sine("80/0/0", 60), "force:torso", first=0.15, later=0.3
    ),
    "pendulum-slow-sine": Case(PENDULUM, {}, _sine("0.25", 63), "qvel"),
    "pendulum-bias": Case(PENDULUM, {}, "bias:value=0.2", "qvel"),
    "pendulum-step": Case(PENDULUM, {}, "step:size=0.2,at=100", "qvel"),
    "pendulum-fast-sine": Case(PENDULUM, {}, _sine("1", 8), "qvel"),
    "cartpole-force": Case(CARTPOLE, {}, _sine("8", 80), "force:cart", first=0.9, later=0.95),
}
"""where a return is lost"""

HARMLESS: Mapping[str, Case] = {
    **{f"{name}-calm": Case(env, limit=WITHIN, exact=True) for env, name in NAMES.items()},
    **{
        f"{name}-noise": Case(env, {}, *NOISE[env], limit=WITHIN) for env, name in NAMES.items()
    },
    **{
        f"{NAMES[env]}-simulator-{error}": Case(
            env, scale={"mass": error, "friction": error}, limit=WITHIN
        )
        for env in (HOPPER, CHEETAH)
        for error in (1.3, 0.7)
    },
    "hopper-light-torso": Case(HOPPER, {"mass:torso": 0.03}, limit=EXTREME),
    "hopper-friction": Case(HOPPER, {"friction": 4.0}, limit=EXTREME),
    "halfcheetah-friction": Case(CHEETAH, {"friction": 4.0}, limit=EXTREME),
}  # fmt: skip
"""where nothing is to be gained, or too much changed: adaptation must not harm"""


def _learned(name: str, steps: int, since: int = 3, **others: Any) -> Case:
    """A case without physics; its simulator needs some episodes of the changed world."""
    given = {**RECOVERABLE, **HARMLESS}[name]
    return replace(given, learned=steps, first=None, since=since, **{"later": None, **others})


LEARNED: Mapping[str, Case] = {
    "hopper-mass-learned-50000": _learned("hopper-mass", 50_000, later=0.95),
    "hopper-mass-learned-10000": _learned("hopper-mass", 10_000, later=0.75),
    "halfcheetah-mass-learned-50000": _learned("halfcheetah-mass", 50_000, later=0.4),
    "halfcheetah-mass-learned-10000": _learned("halfcheetah-mass", 10_000, later=0.4),
    "halfcheetah-gain-learned-50000": _learned("halfcheetah-gain", 50_000, later=0.25),
    "pendulum-slow-sine-learned-10000": _learned("pendulum-slow-sine", 10_000),
    "inverted-pendulum-sine-70-learned-10000": _learned(
        "inverted-pendulum-sine-70", 10_000, each=False
    ),
    "cartpole-force-learned-10000": _learned("cartpole-force", 10_000, later=0.95),
    "hopper-calm-learned-10000": _learned("hopper-calm", 10_000),
    "halfcheetah-calm-learned-10000": _learned("halfcheetah-calm", 10_000),
    "pendulum-calm-learned-10000": _learned("pendulum-calm", 10_000),
    "hopper-noise-learned-10000": _learned("hopper-noise", 10_000),
}
"""without physics: the simulator is learned from nominal steps"""

CASES: Mapping[str, Case] = {**RECOVERABLE, **HARMLESS, **LEARNED}
