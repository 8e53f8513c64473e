"""Steps that a simulator is learned from: rollouts of a policy with noise, or steps at hand."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from windward import checks
from windward.policies.actions import ActionCode

PIECE = 50
"""steps in a row with one size of noise; steps are also held out in such pieces"""
KEPT = 0.9
"""share of the noise that stays to the next step: noise that lasts leads farther"""
NAMES = ("x", "u", "reward", "x_next", "terminated")


class Steps(NamedTuple):
    """Rows of steps in order."""

    x: np.ndarray  # (n, d_x) observations, flattened
    u: np.ndarray  # (n, d_u) as networks see actions
    reward: np.ndarray  # (n,)
    x_next: np.ndarray  # (n, d_x)
    terminated: np.ndarray  # (n,) bool

    def at(self, rows: np.ndarray) -> "Steps":
        """Some of them."""
        return Steps(*(each[rows] for each in self))


def rows_of(observations: Any) -> np.ndarray:
    """Observations as rows of numbers, in full precision: what follows is a small difference."""
    array = np.asarray(observations, dtype=np.float64)
    return array.reshape(len(array), -1)


def explored(
    env: gym.Env,
    act: Callable[[np.ndarray], np.ndarray],
    sigma: float,
    rng: np.random.Generator,
) -> Iterator[tuple[Any, ...]]:
    """Steps without end, as (x, u, reward, x_next, terminated).

    Noise on the action that lasts for some steps, of another size in every piece: 0 to σ. For
    discrete actions the size is the chance that the action is any other. So the effect of u can be
    told from that of x, and states beside the policy's own path are seen.
    """
    code = ActionCode(env.action_space)
    seen, _ = env.reset(seed=int(rng.integers(2**31)))
    noise, size, t = np.zeros(code.size), 0.0, 0
    while True:
        if t % PIECE == 0:
            size = sigma * rng.random()
        t += 1
        base = code.encode(act(np.asarray(seen)[None]))[0]
        fresh = rng.standard_normal(code.size)
        if code.discrete:
            # The same other action for some steps.
            noise = fresh if rng.random() > KEPT else noise
            u = np.eye(code.size, dtype=np.float32)[noise.argmax()] if rng.random() < size else base
        else:
            noise = KEPT * noise + np.sqrt(1 - KEPT**2) * fresh
            u = np.clip(base + size * noise, code.low, code.high)
        action = code.decode(u[None])
        u = code.encode(action)[0]  # what is executed is what is learned from
        after, reward, terminated, truncated, _ = env.step(action[0])
        if not (np.isfinite(after).all() and np.isfinite(float(reward))):
            raise ValueError(
                f"the environment gave a reward of {reward} and an observation with "
                f"{int((~np.isfinite(after)).sum())} numbers that are not finite"
            )
        yield np.ravel(seen), u, float(reward), np.ravel(after), bool(terminated)
        seen = after
        if terminated or truncated:
            seen, _ = env.reset()
            noise = np.zeros(code.size)


def gathered(steps: list[tuple[Any, ...]]) -> Steps:
    """Steps one by one as rows."""
    x, u, reward, x_next, terminated = zip(*steps, strict=True)
    return Steps(rows_of(x), np.stack(u), np.array(reward), rows_of(x_next), np.array(terminated))


def steps_from(data: Any, observations: gym.spaces.Box, actions: gym.Space) -> Steps:
    """Steps at hand: a replay buffer of Stable-Baselines3 or SBX, or arrays by name or in order."""
    if all(hasattr(data, name) for name in ("observations", "actions", "dones", "pos", "full")):
        found = _from_buffer(data, actions)
    elif isinstance(data, Mapping):
        missing = [name for name in NAMES if name not in data]
        if missing:
            raise ValueError(f"data must have {', '.join(NAMES)}; it has no {missing[0]!r}")
        found = {name: data[name] for name in NAMES}
    elif isinstance(data, (tuple, list)) and len(data) == len(NAMES):
        found = dict(zip(NAMES, data, strict=True))
    else:
        raise ValueError(
            "data must be a replay buffer of Stable-Baselines3, or arrays "
            f"({', '.join(NAMES)}); got {type(data).__name__}"
        )
    arrays = {name: checks.finite_array(f"data's {name}", each) for name, each in found.items()}
    n = arrays["x"].shape[0] if arrays["x"].ndim else 0
    shapes = {
        "x": (n, *observations.shape), "u": (n, *(actions.shape or ())), "reward": (n,),
        "x_next": (n, *observations.shape), "terminated": (n,),
    }  # fmt: skip
    for name, shape in shapes.items():
        checks.shape(f"data's {name}", arrays[name], shape, "a row for each step")
    u = ActionCode(actions).encode(arrays["u"])
    terminated = arrays["terminated"] != 0
    return Steps(rows_of(arrays["x"]), u, arrays["reward"], rows_of(arrays["x_next"]), terminated)


def _from_buffer(buffer: Any, actions: gym.Space) -> dict[str, np.ndarray]:
    """A replay buffer's steps, one environment after the other and each in order.

    Such a buffer has actions of a box scaled to [-1, 1], and observations as they were before any
    VecNormalize.
    """
    if isinstance(buffer.observations, Mapping):
        raise ValueError(
            "the replay buffer has observations in a Dict: flatten them with "
            "gymnasium.wrappers.FlattenObservation"
        )
    if not hasattr(buffer, "next_observations"):
        raise ValueError(
            "the replay buffer was made with optimize_memory_usage=True and has no "
            "next_observations: make it without"
        )
    order = np.arange(buffer.pos)
    if buffer.full:
        order = np.concatenate([np.arange(buffer.pos, len(buffer.observations)), order])

    def column(array: np.ndarray) -> np.ndarray:
        each = np.swapaxes(array[order], 0, 1)
        return each.reshape(-1, *each.shape[2:])

    u = column(buffer.actions)
    if isinstance(actions, gym.spaces.Box):
        low, high = actions.low.ravel(), actions.high.ravel()
        u = (low + 0.5 * (u + 1.0) * (high - low)).reshape(-1, *actions.shape)
    else:
        u = u.reshape(-1)
    ended = column(buffer.dones) * (1 - column(buffer.timeouts))
    return {
        "x": column(buffer.observations), "u": u, "reward": column(buffer.rewards),
        "x_next": column(buffer.next_observations), "terminated": ended,
    }  # fmt: skip


def split(
    n: int, held_out: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows to learn from, to stop by and to judge by; the last two are half of `held_out` each.

    In pieces of consecutive steps: neighbours are alike, and would give away what is held out.
    """
    piece = min(PIECE, max(1, n // 20))
    owner = rng.permutation(-(-n // piece))[np.arange(n) // piece]
    count = owner.max() + 1
    half = max(1, round(0.5 * held_out * count))
    return (
        np.flatnonzero(owner >= 2 * half),
        np.flatnonzero(owner < half),
        np.flatnonzero((owner >= half) & (owner < 2 * half)),
    )
