"""Residual-policy learning, a peer of `RobustWrapper`: a small policy learned on top of the base.

u_t = base + scale·(π(z_t) + n_t),    z_t = (x_t, base action, ŵ_{t-1}, ..., ŵ_{t-h})

(Silver et al. 2018; Johannink et al. 2019.) π and its critic are D4PG's networks with a scalar
value, learned off policy from the steps themselves while it acts. As in those papers π begins near
0, and the critic learns alone at first; ŵ is there only with a signal.
"""

from dataclasses import fields
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks
from windward.adapt.peers.hearing import signal_source
from windward.adapt.peers.slot import Slot
from windward.agents.residual_learning import Learning, Residual


class ResidualPolicy(Slot):
    """Learns a policy that is added to the base action, from rewards, while it acts.

    The action given to `step` is the base action, and `info["windward"]` and faults are as in
    `RobustWrapper`. It needs no simulator; with a signal it sees the last h ŵ beside the
    observation, as M does.

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
        h: int = 5,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        given = {"signal": signal, "model": model, "simulator": simulator, "h": h, "seed": seed}
        super().__init__(env, given | settings)
        unknown = sorted(set(settings) - {each.name for each in fields(Residual)})
        if unknown:
            raise ValueError(
                f"ResidualPolicy does not know {', '.join(unknown)}; its settings are "
                f"{', '.join(each.name for each in fields(Residual))}"
            )
        checks.integer("h", h, 1)
        source = None if signal is None else signal_source(env, signal, model, simulator)
        shape = (0, 0) if source is None else (h, source.d_w)
        d_x = int(np.prod(env.observation_space.shape or ()))
        seed = checks.integer("seed", seed, 0)
        self._fill(Learning(Residual(**settings), self._box, d_x, shape, seed), source)
