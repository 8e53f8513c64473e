"""Changed worlds that a diagnosis is tried on: what changed, what blows, and from which steps."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from windward.envs.changed import Changed
from windward.envs.disturbed import Disturbed
from windward.policies.shipped import SHIPPED

PLANAR = (
    "Hopper-v5", "HalfCheetah-v5", "Walker2d-v5", "InvertedPendulum-v5", "Pendulum-v1",
    "CartPole-v1",
)  # fmt: skip
SPATIAL = ("Ant-v5", "Humanoid-v5", "Swimmer-v5", "Reacher-v5", "Pusher-v5")
WALKING = ("Hopper-v5", "HalfCheetah-v5", "Walker2d-v5")
WINDY = (*WALKING, "InvertedPendulum-v5")
BODIES: Mapping[str, tuple[str, ...]] = {
    "Hopper-v5": ("torso", "thigh", "leg", "foot"),
    "HalfCheetah-v5": ("torso", "bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot"),
    "Walker2d-v5": ("torso", "thigh", "leg", "foot", "thigh_left", "leg_left", "foot_left"),
    "InvertedPendulum-v5": ("cart", "pole"),
    "Pendulum-v1": ("bob",),
    "CartPole-v1": ("cart", "pole"),
    "Ant-v5": ("torso", "front_left_leg", "aux_1", "back_leg"),
    "Humanoid-v5": ("torso", "lwaist", "right_thigh", "left_upper_arm"),
    "Swimmer-v5": ("torso", "mid", "back"),
    "Reacher-v5": ("body0", "body1", "fingertip"),
    "Pusher-v5": ("r_wrist_roll_link", "tips_arm", "object"),
}
"""bodies whose mass is changed"""
KINDS: Mapping[str, tuple[str, ...]] = {
    "InvertedPendulum-v5": ("gain", "damping"),
    "Pendulum-v1": (),
    "CartPole-v1": ("gain",),
    "Swimmer-v5": ("gain",),
    "Reacher-v5": ("gain", "damping"),
}
"""other kinds that an environment has; friction, gain, damping where it is not named here"""
FORCES = {
    "Hopper-v5": ("torso", 5.0), "HalfCheetah-v5": ("torso", 40.0), "Walker2d-v5": ("torso", 5.0),
    "InvertedPendulum-v5": ("pole", 6.0),
}  # fmt: skip
RRLS: Mapping[str, tuple[float, tuple[float, float], float, tuple[float, float]]] = {
    "Hopper-v5": (0.7, (0.1, 3.0), 3.665, (0.1, 3.0)),
    "HalfCheetah-v5": (0.4, (0.1, 4.0), 6.25, (0.1, 7.0)),
}
"""friction and torso mass, nominal and ends of the grid"""
GRID = 10
"""values of the grid in each dimension, without the upper end"""
RATIOS: Mapping[str, tuple[str, ...]] = {
    "InvertedPendulum-v5": ("mass", "gain", "damping"),
    "CartPole-v1": ("mass", "gain"),
}
"""kinds that show only as ratios: all of them times one number is the same motion, if a force on a
body is multiplied as well"""


@dataclass(frozen=True)
class Case:
    """One world, and how it is looked at."""

    group: str
    env: str
    seed: int
    changes: Mapping[str, float]
    wind: str = ""
    channel: str = ""
    steps: int | None = None
    """at most; one episode of a policy that comes with the package, or 1,000 random steps"""
    observed: bool = False
    """states come from noisy observations"""
    foreign: str = ""
    """a change of a kind that no parameter is"""
    policy: str = "shipped"
    """"random" for smooth random actions, as where no policy comes with the package"""
    amplitude: float = 0.0
    """of a sinusoidal force along x, in newtons"""
    period: float = 0.0
    """of it, in steps"""

    def world(self) -> gym.Env:
        """The environment as it is."""
        env = gym.make(self.env)
        if self.foreign:
            FOREIGN[self.foreign](env)
        if self.changes:
            env = Changed(env, self.changes)
        if self.wind:
            env = Disturbed(env, self.wind, self.channel, seed=self.seed)
        return env

    @property
    def has_policy(self) -> bool:
        """Whether a policy that comes with the package makes the steps."""
        return self.policy == "shipped" and self.env in SHIPPED


def _stuck(env: gym.Env) -> None:
    """A joint that hardly moves: a very stiff spring."""
    model: Any = env.unwrapped.model  # type: ignore[attr-defined]
    joint = model.njnt - 2
    model.jnt_stiffness[joint] += 50.0 * max(1.0, float(np.abs(model.actuator_gear[:, 0]).max()))


def _soft(env: gym.Env) -> None:
    """Softer contacts."""
    model: Any = env.unwrapped.model  # type: ignore[attr-defined]
    model.geom_solref[:, 0] = 0.08


def _foot(env: gym.Env) -> None:
    """A longer last geom: another shape of the foot."""
    model: Any = env.unwrapped.model  # type: ignore[attr-defined]
    model.geom_size[-1, 1] *= 1.6
    model.geom_rbound[-1] *= 1.6


FOREIGN: Mapping[str, Callable[[gym.Env], None]] = {"stuck": _stuck, "soft": _soft, "foot": _foot}


def _factor(rng: np.random.Generator, low: float = 0.5, high: float = 2.0) -> float:
    """A factor that is not near 1."""
    while True:
        factor = float(np.exp(rng.uniform(np.log(low), np.log(high))))
        if abs(np.log(factor)) > 0.1:
            return round(factor, 3)


def names(env: str) -> list[str]:
    """Changes of single parameters that are tried on an environment."""
    kinds = KINDS.get(env, ("friction", "gain", "damping"))
    bodies = BODIES[env]
    masses = [f"mass:{each}" for each in bodies] if len(bodies) > 1 else ["mass"]
    return [*masses, *kinds]


def cases(group: str, first: int, count: int) -> Iterator[Case]:
    """The cases of a group for each of `count` seeds, which alone they depend on."""
    for seed in range(first, first + count):
        rng = np.random.default_rng([seed, *group.encode()])
        yield from GROUPS[group](group, seed, rng)


def _singles(group: str, seed: int, rng: np.random.Generator) -> Iterator[Case]:
    for env in PLANAR:
        for name in names(env):
            yield Case(group, env, seed, {name: _factor(rng)})


def _pairs(group: str, seed: int, rng: np.random.Generator) -> Iterator[Case]:
    for env in PLANAR:
        own = names(env)
        for _ in range(3 if len(own) > 2 else 1):
            picked = rng.permutation(own)[:2]
            yield Case(group, env, seed, {str(name): _factor(rng) for name in picked})


def _all(group: str, seed: int, rng: np.random.Generator) -> Iterator[Case]:
    for env in PLANAR:
        yield Case(group, env, seed, {name: _factor(rng) for name in names(env)})


def _spatial(group: str, seed: int, rng: np.random.Generator) -> Iterator[Case]:
    for env in SPATIAL:
        own = [str(each) for each in rng.permutation(names(env))]
        yield Case(group, env, seed, {own[0]: _factor(rng)})
        yield Case(group, env, seed, {name: _factor(rng) for name in own[:2]})


def _wind(group: str, seed: int, rng: np.random.Generator) -> Iterator[Case]:
    for env in WINDY:
        body, size = FORCES[env]
        amplitude = round(size * rng.uniform(0.7, 1.3), 2)
        period = int(rng.integers(50, 180))
        wind = f"sine:amp={amplitude}/0/0,period={period},phase=random"
        name = str(rng.choice(names(env)))
        for changes in ({}, {name: _factor(rng, 0.7, 1.4)}):
            yield Case(
                group, env, seed, changes, wind, f"force:{body}", amplitude=amplitude,
                period=period,
            )  # fmt: skip


def _action_noise(group: str, seed: int, rng: np.random.Generator) -> Iterator[Case]:
    for env in WINDY:
        name = str(rng.choice(names(env)))
        changes = {name: _factor(rng)}
        yield Case(group, env, seed, changes, "uniform:bound=0.05", "action")


def _state_noise(group: str, seed: int, rng: np.random.Generator) -> Iterator[Case]:
    for env in WALKING:
        name = str(rng.choice(["mass", "gain"]))
        wind = "gaussian:scale=0.01"
        changes = {name: _factor(rng, 0.7, 1.4)}
        yield Case(group, env, seed, changes, wind, "observation", 1000, True)


def _rrls(group: str, seed: int, rng: np.random.Generator) -> Iterator[Case]:
    """A row of the grid: ten seeds that follow each other are the whole of it."""
    for env, (friction, ends, mass, bounds) in RRLS.items():
        a = np.linspace(*ends, GRID + 1)[seed % GRID]
        for b in np.linspace(*bounds, GRID + 1)[:-1]:
            changes = {"friction": a / friction, "mass:torso": b / mass}
            yield Case(group, env, seed, {key: round(float(v), 4) for key, v in changes.items()})


def _nothing(group: str, seed: int, rng: np.random.Generator) -> Iterator[Case]:
    for env in WINDY:
        body, size = FORCES[env]
        yield Case(group, env, seed, {})
        yield Case(group, env, seed, {}, "uniform:bound=0.05", "action")
        yield Case(group, env, seed, {}, f"sine:amp={size}/0/0,period=90,phase=random",
                   f"force:{body}")  # fmt: skip
        yield Case(group, env, seed, {}, f"ou:scale={size}/0/0", f"force:{body}")
        yield Case(group, env, seed, {}, "gaussian:scale=0.01", "observation", None, True)


def _coverage(group: str, seed: int, rng: np.random.Generator) -> Iterator[Case]:
    noises = (
        ("uniform:bound=0.05", "action", False), ("gaussian:scale=0.02", "qvel", False),
        ("ou:scale=0.05", "action", False), ("gaussian:scale=0.002", "observation", True),
    )  # fmt: skip
    for env in WALKING:
        for wind, channel, observed in noises:
            name = str(rng.choice(names(env)))
            changes = {name: _factor(rng)}
            yield Case(group, env, seed, changes, wind, channel, 1000, observed)


def _early(group: str, seed: int, rng: np.random.Generator) -> Iterator[Case]:
    for env in WALKING:
        name = str(rng.choice(names(env)))
        yield Case(group, env, seed, {name: _factor(rng)}, steps=50)


def _foreign(group: str, seed: int, rng: np.random.Generator) -> Iterator[Case]:
    for env in WALKING:
        for kind in FOREIGN:
            for policy in ("shipped", "random") if env in SHIPPED else ("random",):
                yield Case(group, env, seed, {}, foreign=kind, policy=policy)


GROUPS: Mapping[str, Callable[[str, int, np.random.Generator], Iterator[Case]]] = {
    "single": _singles, "pairs": _pairs, "all": _all, "spatial": _spatial, "wind": _wind,
    "action-noise": _action_noise, "state-noise": _state_noise, "rrls": _rrls,
    "nothing": _nothing, "coverage": _coverage, "early": _early, "foreign": _foreign,
}  # fmt: skip
