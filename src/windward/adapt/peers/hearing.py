"""ŵ for the peers: which source there is, and its numbers for a step of one environment."""

from typing import Any

import gymnasium as gym
import numpy as np

from windward.adapt.finding import find_source
from windward.adapt.sources import Happened, Source
from windward.core import signals


def signal_source(env: gym.Env, signal: Any, model: Any, simulator: Any) -> Source:
    """Where ŵ comes from; refuses PD1, a gradient that is found by exploring."""
    spaces = env.observation_space, env.action_space
    source = find_source(signal, model, [env], spaces, simulator)
    if source.signal.uses_score or source.d_w is None:
        raise ValueError(
            f"signal {source.name!r} is a gradient in the action, estimated from exploration: use "
            "pd3 (a simulator), pd2 (vector values) or a function"
        )
    return source


def w_hat_of(source: Source, step: Happened) -> np.ndarray:
    """ŵ of a step, (d_w,): as the source gives it, or by PD2's formula."""
    aux: dict[str, Any] = dict(source.after(step))
    found = aux.get(signals.W)
    if found is None:
        ahead = np.asarray(aux[signals.V_VEC_NEXT]) * ~step.terminated[:, None]
        found = signals.pd2(aux[signals.C_VEC], ahead, aux[signals.Q_VEC], source.gamma)
    return np.asarray(found, dtype=np.float64).reshape(source.d_w or 0)
