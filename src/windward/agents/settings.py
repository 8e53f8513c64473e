"""The settings of D4PG: Acme's for continuous control, and the paper's appendix's."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from windward import checks
from windward.agents.learner import Rule
from windward.agents.robust import Robust, as_robust
from windward.policies.vectors import horizon


@dataclass(frozen=True)
class Settings:
    """How D4PG learns; each field is an argument of `D4PG` and a flag of `windward train`."""

    widths: tuple[int, ...] = (256, 256, 256)
    """hidden layers of policy and critic"""
    num_atoms: int = 51
    """of the value distribution; 1 gives plain DDPG with a scalar critic"""
    v_min: float = -1000.0
    """lowest discounted return that the critic can tell"""
    v_max: float = 1000.0
    """highest discounted return that the critic can tell"""
    n_step: int = 5
    """steps in a transition"""
    gamma: float = 0.99
    """discount"""
    batch_size: int = 256
    """transitions in an update"""
    samples_per_insert: float = 32.0
    """how often a transition is sampled on average: one update every 256/32 = 8 steps"""
    learning_rate: float = 3e-4
    """of Adam, for both networks"""
    sigma: float = 0.2
    """standard deviation of the exploration noise, on actions scaled to [-1, 1]"""
    num_envs: int = 4
    """environments stepped side by side"""
    replay_size: int = 1_000_000
    """transitions kept"""
    min_replay: int = 1_000
    """transitions before the first update"""
    target_period: int = 100
    """updates between copies to the target networks"""
    gradient_clip: float = 40.0
    """largest norm of a gradient"""
    slope_clip: float = 1.0
    """largest norm of dQ/du"""
    saturation_penalty: float = 0.1
    """on how far the policy's output before tanh goes beyond 2; 0 as in Acme"""
    segment: int = 50_000
    """steps between checkpoints; episodes are cut there, so that a resumed run is the same run"""
    robust: Robust = field(default_factory=Robust)
    """training with the adaptive module on; without a signal it is off"""

    def __post_init__(self) -> None:
        widths = self.widths if isinstance(self.widths, Sequence) else (self.widths,)
        if not widths:
            raise ValueError("widths must name at least one hidden layer; got none")
        self._keep("widths", tuple(checks.integer("widths", width, 1) for width in widths))
        for name in ("num_atoms", "n_step", "batch_size", "num_envs", "replay_size", "min_replay",
                     "target_period", "segment"):  # fmt: skip
            self._keep(name, checks.integer(name, getattr(self, name), 1))
        for name in ("v_min", "v_max"):
            self._keep(name, float(checks.finite_array(name, getattr(self, name), ndim=0)))
        for name in ("samples_per_insert", "learning_rate", "gradient_clip", "slope_clip", "sigma",
                     "saturation_penalty"):  # fmt: skip
            checks.finite_array(name, getattr(self, name), ndim=0)
            zero = name in ("sigma", "saturation_penalty")
            self._keep(name, float(checks.positive(name, getattr(self, name), zero=zero)))
        self._keep("gamma", checks.discount("gamma", self.gamma))
        self._keep("robust", as_robust(self.robust))
        if self.num_atoms > 1 and not self.v_min < self.v_max:
            raise ValueError(f"v_min must be below v_max; got {self.v_min} and {self.v_max}")
        if self.min_replay > self.replay_size:
            raise ValueError(
                f"min_replay must be at most replay_size, {self.replay_size}; got {self.min_replay}"
            )

    def _keep(self, name: str, value: Any) -> None:
        """A setting as a plain number, whatever it came as, so that it can go to a file."""
        object.__setattr__(self, name, value)

    @property
    def rule(self) -> Rule:
        """What an update is compiled for."""
        return Rule(
            (self.v_min, self.v_max, self.num_atoms),
            self.learning_rate,
            self.gradient_clip,
            self.slope_clip,
            self.saturation_penalty,
            self.target_period,
            horizon(self.gamma),
        )
