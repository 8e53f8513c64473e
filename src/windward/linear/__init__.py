"""Linear dynamical systems, on which every claim of the paper can be checked."""

from windward.linear import disturbances
from windward.linear.controllers import LQR, HInfinity, h_infinity, lqr
from windward.linear.gpc import gpc, idealised_cost
from windward.linear.hindsight import BestDAC, best_dac, regret
from windward.linear.plots import plot
from windward.linear.runs import Diverged, Run
from windward.linear.simulate import simulate
from windward.linear.stability import StrongStability, strong_stability
from windward.linear.systems import System
from windward.linear.tuning import Tuned, tune
from windward.linear.values import (
    QuadraticValues,
    VectorValues,
    quadratic_values,
    vector_values,
)

__all__ = [
    "LQR",
    "BestDAC",
    "Diverged",
    "HInfinity",
    "QuadraticValues",
    "Run",
    "StrongStability",
    "System",
    "Tuned",
    "VectorValues",
    "best_dac",
    "disturbances",
    "gpc",
    "h_infinity",
    "idealised_cost",
    "lqr",
    "plot",
    "quadratic_values",
    "regret",
    "simulate",
    "strong_stability",
    "tune",
    "vector_values",
]
