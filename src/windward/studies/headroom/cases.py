"""The cases of `headroom`: which policy is pushed by what, and what serves for tuning instead.

A case's own wind is met on held-out seeds alone; phases follow from the seed and the episode.
Whatever is tuned meets `tune`, another period, amplitude or time, on other seeds.
"""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from windward.envs import Disturbed
from windward.studies.evaluation.loading import make_env
from windward.studies.headroom import linear_env
from windward.studies.runs.scale import Scale

TUNE_SEEDS = (10, 11)
"""seeds on which methods are tuned, and on which the winds were chosen, with 12 and 13"""
SHIPPED = "shipped"
SEARCH_SEED = 1_000_000
"""seeds from here on serve the search for the best fixed M; reports use those from 100 on"""


@dataclass(frozen=True)
class Case:
    """A policy in a wind, a shipped one or LQR."""

    env: str
    wind: str | None
    """None for none"""
    channel: str | None
    episodes: int
    """over which a method may learn"""
    tune: str | None = None
    """the wind for tuning; None where there is nothing to gain, and so nothing to tune on"""
    tuned_as: str | None = None
    """the case whose tuned numbers are taken, where there is nothing to tune on"""
    limit: float | None = None
    """where there is nothing to gain: the worst seed may lose this share of the base's return"""
    policy: str = SHIPPED
    """the base policy, by a name that `load_model` knows"""

    @property
    def discrete(self) -> bool:
        """Whether actions are."""
        return self.env.startswith("CartPole")

    @property
    def gains(self) -> bool:
        """Whether there is something to gain."""
        return self.tune is not None

    def make(self, *, tuning: bool = False, max_steps: int | None = None) -> gym.Env:
        """The environment in its wind."""
        env, wind = make_env(self.env, max_steps), self.tune if tuning else self.wind
        return env if wind is None else Disturbed(env, wind, self.channel)


PENDULUM, INVERTED, HOPPER = "Pendulum-v1", "InvertedPendulum-v5", "Hopper-v5"
CHEETAH, CARTPOLE = "HalfCheetah-v5", "CartPole-v1"
LINEAR_2X1, LINEAR_10X5 = (linear_env.env_id(*size) for size in linear_env.SIZES)
LQR_2X1, LQR_10X5 = (f"{linear_env.__name__}:LQR_{size}" for size in ("2X1", "10X5"))


def sine(size: str | float, period: int) -> str:
    """A sinusoid with a phase of its own in each episode."""
    return f"sine:amp={size},period={period},phase=random"


CASES = {
    "pendulum-slow-sine": Case(PENDULUM, sine(0.25, 63), "qvel", 20, sine(0.25, 50)),
    "pendulum-fast-sine": Case(PENDULUM, sine(1, 8), "qvel", 20, sine(1, 9)),
    "pendulum-bias": Case(PENDULUM, "bias:value=0.2", "qvel", 20, "bias:value=-0.22"),
    "pendulum-step": Case(PENDULUM, "step:size=0.2,at=100", "qvel", 20, "step:size=-0.22,at=80"),
    "inverted-pendulum-sine-70": Case(INVERTED, sine("0/0.1", 70), "qvel", 15, sine("0/0.1", 60)),
    "inverted-pendulum-sine-130": Case(
        INVERTED, sine("0/0.1", 130), "qvel", 15, sine("0/0.1", 110)
    ),
    "inverted-pendulum-force": Case(
        INVERTED, sine("6/0/0", 97), "force:pole", 15, sine("6/0/0", 80)
    ),
    "hopper-force": Case(HOPPER, sine("5/0/0", 150), "force:torso", 20, sine("5/0/0", 120)),
    "hopper-mass": Case(HOPPER, "bias:value=0.1", "mass", 20, "bias:value=0.12"),
    "halfcheetah-force": Case(CHEETAH, sine("80/0/0", 60), "force:torso", 20, sine("80/0/0", 50)),
    "halfcheetah-mass": Case(CHEETAH, "bias:value=0.3", "mass", 20, "bias:value=0.25"),
    "cartpole-force": Case(CARTPOLE, sine(8, 80), "force:cart", 40, sine(8, 95)),
    "linear-2x1-sine": Case(LINEAR_2X1, sine(0.5, 40), "state", 20, sine(0.5, 30), policy=LQR_2X1),
    "linear-10x5-sine": Case(
        LINEAR_10X5, sine(0.5, 40), "state", 20, sine(0.5, 30), policy=LQR_10X5
    ),
}
"""where there is something to gain"""

NOTHING = {
    "pendulum-calm": Case(PENDULUM, None, None, 50, None, "pendulum-slow-sine", 0.05),
    "pendulum-noise": Case(
        PENDULUM, "uniform:bound=0.1", "qvel", 50, None, "pendulum-slow-sine", 0.05
    ),
    "inverted-pendulum-calm": Case(
        INVERTED, None, None, 50, None, "inverted-pendulum-sine-70", 0.05
    ),
    "inverted-pendulum-noise": Case(
        INVERTED, "uniform:bound=0.02", "qvel", 50, None, "inverted-pendulum-sine-70", 0.05
    ),
    "hopper-calm": Case(HOPPER, None, None, 50, None, "hopper-force"),
    "hopper-noise": Case(HOPPER, "uniform:bound=0.05", "action", 50, None, "hopper-force"),
    "halfcheetah-calm": Case(CHEETAH, None, None, 50, None, "halfcheetah-force"),
    "halfcheetah-noise": Case(
        CHEETAH, "uniform:bound=0.05", "action", 50, None, "halfcheetah-force"
    ),
    "linear-2x1-calm": Case(LINEAR_2X1, None, None, 50, None, "linear-2x1-sine", 0.05, LQR_2X1),
    "linear-2x1-noise": Case(
        LINEAR_2X1, "uniform:bound=0.1", "state", 50, None, "linear-2x1-sine", 0.05, LQR_2X1
    ),
    "linear-10x5-calm": Case(LINEAR_10X5, None, None, 50, None, "linear-10x5-sine", 0.05, LQR_10X5),
    "linear-10x5-noise": Case(
        LINEAR_10X5, "uniform:bound=0.1", "state", 50, None, "linear-10x5-sine", 0.05, LQR_10X5
    ),
}
"""where there is nothing to gain: no wind, or noise that tells nothing of what comes next"""

LINEAR = {"linear-2x1": (2, 1), "linear-10x5": (10, 5), "linear-64x4": (64, 4)}
"""the random linear systems of `headroom-linear`"""
EVERY = {**CASES, **NOTHING}

SIZES: dict[Scale, dict[str, Any]] = {
    "paper": {"cases": (*EVERY, *LINEAR), "seeds": 4},
    "laptop": {
        "cases": ("pendulum-slow-sine", "inverted-pendulum-sine-70", "cartpole-force",
                  "linear-2x1-sine", "pendulum-calm", "linear-2x1", "linear-10x5"),
        "seeds": 4,
    },
    "smoke": {
        "cases": ("pendulum-slow-sine", "pendulum-calm", "linear-2x1"), "seeds": 1,
        "methods": ("counterfactual", "regression"), "episodes": 2, "max_steps": 40,
    },
}  # fmt: skip
"""what is run where nothing is said"""
