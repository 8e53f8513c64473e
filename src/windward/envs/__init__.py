"""Disturbances and environments on Gymnasium.

What pushes (`Uniform`, `Sinusoid`, ...), where (`channels`), when (`Interval`, ...): `Disturbed`.
The same environment without the wind: `windward.simulator`.
"""

from windward.envs.changed import Changed
from windward.envs.channels import Channel, channels_of
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
from windward.envs.disturbed import Disturbed
from windward.envs.gradient_sign import GradientSign
from windward.envs.ids import IDS, register
from windward.envs.plots import plot, sequence
from windward.envs.recorded import Recorded
from windward.envs.schedules import FromEpisode, Growing, Interval, Probability
from windward.envs.specs import Spec, available, parse
from windward.envs.vector import DisturbedVector

__all__ = [
    "IDS",
    "Bias",
    "Changed",
    "Channel",
    "Disturbance",
    "Disturbed",
    "DisturbedVector",
    "FromEpisode",
    "Gaussian",
    "GradientSign",
    "Growing",
    "Impulse",
    "Interval",
    "OrnsteinUhlenbeck",
    "Probability",
    "RandomWalk",
    "Recorded",
    "Sinusoid",
    "Spec",
    "SquareWave",
    "Step",
    "Uniform",
    "available",
    "channels_of",
    "parse",
    "plot",
    "register",
    "sequence",
]

register()
