"""Disturbances, environments and simulators on Gymnasium.

What pushes (`Uniform`, `Sinusoid`, ...), where (`channels`), when (`Interval`, ...): `Disturbed`.
The same environment without the wind: `simulator`.
"""

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
from windward.envs.physics import Unstable, Unsupported
from windward.envs.plots import plot, sequence
from windward.envs.recorded import Recorded
from windward.envs.schedules import FromEpisode, Growing, Interval, Probability
from windward.envs.simulators import Simulator, simulator
from windward.envs.specs import Spec, available, parse
from windward.envs.vector import DisturbedVector

__all__ = [
    "IDS",
    "Bias",
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
    "Simulator",
    "Sinusoid",
    "Spec",
    "SquareWave",
    "Step",
    "Uniform",
    "Unstable",
    "Unsupported",
    "available",
    "channels_of",
    "parse",
    "plot",
    "register",
    "sequence",
    "simulator",
]

register()
