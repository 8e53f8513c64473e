"""The methods of `headroom`: how each wraps an environment, what it sees, and what is tuned.

One more is one more entry in METHODS: a function that wraps, and a few words.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from windward import envs
from windward.adapt import RobustWrapper
from windward.adapt.peers import DisturbanceObserver, L1Augmentation
from windward.agents.residual import ResidualPolicy
from windward.simulators.fitting import fit_simulator
from windward.simulators.learned import LearnedSimulator
from windward.studies.evaluation.loading import load_model
from windward.studies.headroom.cases import SHIPPED, Case

BASE, BEST = "base", "best"
WRONG = 0.3
"""how wrong mass and friction are in a simulator that is wrong on purpose"""


class Given(NamedTuple):
    """What there is to make a method of."""

    env: gym.Env
    """in its wind"""
    model: Any
    logits: Any
    """for discrete actions, else None"""
    seed: int
    numbers: Mapping[str, float]
    """those that were tuned"""
    M: np.ndarray | None
    """the best fixed one, for the method that asks for it"""


def alone(given: Given) -> gym.Env:
    """The base policy as it is."""
    return given.env


def robust(given: Given, **options: Any) -> gym.Env:
    """RobustWrapper, with PD3 unless the method says otherwise."""
    usual = {"signal": "pd3", "model": given.model, "logits": given.logits, "seed": given.seed}
    return RobustWrapper(given.env, **{**usual, **options, **given.numbers})


def fixed(given: Given) -> gym.Env:
    """An M that stays."""
    assert given.M is not None
    still: dict[str, Any] = {} if given.logits is not None else {"sigma": 0.0}
    env = RobustWrapper(
        given.env, signal="pd3", model=given.model, logits=given.logits, seed=given.seed,
        h=len(given.M), learner="mf-gpc", guard=False, eta=0.0, projection=None, M0=given.M,
        **still,
    )  # fmt: skip
    env.freeze()
    return env


def wrong(given: Given, by: float) -> gym.Env:
    """Replays in a simulator whose mass and friction, where there is any, are multiplied."""
    kinds = {"mass", "friction"} & set(envs.channels_of(given.env))
    return robust(given, learner="replay", simulator={"scale": dict.fromkeys(kinds, by)})


@lru_cache(maxsize=1)
def _learned(env_id: str) -> LearnedSimulator:
    """Of the calm environment; the same for all seeds, as a user has one."""
    return fit_simulator(env_id, load_model("shipped", env_id), seed=0)


def learned(given: Given) -> gym.Env:
    """Replays in a simulator learned from 10,000 calm steps."""
    assert given.env.spec is not None
    simulator = _learned(given.env.spec.id)
    return robust(given, learner="replay", simulator=simulator)


def peer(given: Given, kind: Callable[..., gym.Env]) -> gym.Env:
    """A peer in the place of RobustWrapper."""
    return kind(given.env, "pd3", model=given.model, seed=given.seed, **given.numbers)


@dataclass(frozen=True)
class Method:
    """How to wrap, what that sees, and what is tuned on the tuning wind."""

    make: Callable[[Given], gym.Env]
    sees: str
    grid: tuple[tuple[str, tuple[float, ...]], ...] = ()
    continuous: bool = True
    discrete: bool = False
    patience: int = 1
    """it has so many times the episodes of a case"""
    shipped: bool = False
    """whether it is for policies that come with the package alone: these have values, and their
    environments masses"""

    def suits(self, case: Case) -> bool:
        """Whether it knows actions of this kind, and has what it needs."""
        fits = self.discrete if case.discrete else self.continuous
        return fits and (not self.shipped or case.policy == SHIPPED)

    def points(self, case: Case) -> list[dict[str, float]]:
        """The grid; noise on the action is no part of it where actions are discrete."""
        axes = {name: each for name, each in self.grid if name != "sigma" or not case.discrete}
        return [dict(zip(axes, point, strict=True)) for point in product(*axes.values())]


PAPER = (("eta", (1e-6, 1e-5, 1e-4, 1e-3)), ("sigma", (0.05, 0.2)))
WIDTHS = (("bandwidth", (0.1, 0.3, 1.0)),)
GAINS = (("gain", (1.0, 4.0, 12.0, 16.0)), ("bandwidth", (0.3, 1.0)))
SCALES = (("scale", (0.2, 0.5)),)

METHODS = {
    BASE: Method(alone, "nothing", discrete=True),
    BEST: Method(fixed, "hindsight: the best fixed M", discrete=True),
    "paper": Method(partial(robust, preset="paper"), "simulator", PAPER, discrete=True),
    "residual": Method(partial(robust, learner="residual"), "simulator"),
    "regression": Method(
        partial(robust, learner="mf-gpc", baseline="regression"), "simulator"
    ),
    "quadratic": Method(partial(robust, learner="quadratic"), "simulator"),
    "response": Method(partial(robust, learner="response"), "simulator, states"),
    "critic": Method(
        partial(robust, signal="pd2", learner="advantage", baseline="regression", lam=0.9),
        "values of the policy", patience=3, shipped=True,
    ),
    "pd1": Method(partial(robust, signal="pd1"), "values of the policy", patience=3, shipped=True),
    "advantage": Method(
        partial(robust, learner="advantage"), "simulator for ŵ, values of the policy",
        patience=3, shipped=True,
    ),
    "counterfactual": Method(
        partial(robust, learner="replay"), "simulator", discrete=True
    ),
    "heavy": Method(
        partial(wrong, by=1 + WRONG), "simulator, mass and friction 30 % too large", discrete=True,
        shipped=True,
    ),
    "light": Method(
        partial(wrong, by=1 - WRONG), "simulator, mass and friction 30 % too small", discrete=True,
        shipped=True,
    ),
    "learned": Method(
        learned, "simulator learned from 10,000 calm steps", discrete=True, patience=3,
        shipped=True,
    ),
    "observer": Method(partial(peer, kind=DisturbanceObserver), "simulator", GAINS),
    "l1": Method(partial(peer, kind=L1Augmentation), "simulator", WIDTHS),
    "residual-policy": Method(partial(peer, kind=ResidualPolicy), "simulator", SCALES, patience=3),
}  # fmt: skip
"""by name; `paper` is the paper's update, the last three are peers"""
