"""Residual-policy learning: a small policy learned on top of the base; learner "residual".

u_t = base + scale·(π(z_t) + n_t),    z_t = (x_t, base action, ŵ_{t-1}, ..., ŵ_{t-h})

(Silver et al. 2018; Johannink et al. 2019.) π and its critic are D4PG's networks with a scalar
value, learned off policy from the steps themselves while it acts. As in those papers π begins near
0, and the critic learns alone at first; ŵ is there only with a signal.
"""

from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks
from windward.adapt.config import Request, register, settings_of
from windward.adapt.learners.base import Attempt, Learner
from windward.adapt.learners.laws import Laws, refuse_score
from windward.adapt.wrapper import RobustWrapper
from windward.agents.residual_learning import Learning, Residual

NAME = "residual"


def _make(request: Request, attempt: Attempt) -> Learner:
    box = request.spaces[1]
    if not isinstance(box, gym.spaces.Box):
        raise ValueError(f"learner {NAME!r} adds to continuous actions; here they are {box}")
    options = dict(request.options)
    h = checks.integer("h", options.pop("h", 5), 1)
    settings = settings_of(Residual, request._replace(options=options))
    source = None if request.source is None else refuse_score(request.source)
    shape = (0, 0) if source is None else (h, source.d_w)
    d_x = int(np.prod(request.spaces[0].shape or ()))
    laws = [Learning(settings, box, d_x, shape, request.seed + row) for row in range(request.rows)]
    return Laws(NAME, laws, source, int(np.prod(box.shape)), attempt)


register(NAME, _make)


class ResidualPolicy(RobustWrapper):
    """Learns a policy that is added to the base action, from rewards, while it acts.

    It is `RobustWrapper` with `learner="residual"`, and needs no signal; with one it sees the last
    h ŵ beside the observation, as M does.

    Args:
      env: an environment with bounded Box actions and Box observations.
      signal, model, simulator: as in `RobustWrapper`, without PD1; None for no ŵ.
      h: how many ŵ it sees. seed: of networks, exploration and batches.
      settings: the fields of `Residual`.

    >>> env = ResidualPolicy(gym.make("Pendulum-v1"), scale=0.2)
    >>> _ = env.reset(seed=0)
    >>> info = env.step(np.zeros(1, np.float32))[4]["windward"]
    >>> bool(abs(info["correction"] + info["noise"]) <= 0.2)
    True
    """

    def __init__(
        self,
        env: gym.Env,
        signal: Any = None,
        *,
        model: Any = None,
        simulator: Any = None,
        h: int | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(
            env, signal, model=model, simulator=simulator, h=h, learner=NAME, seed=seed, **settings
        )
