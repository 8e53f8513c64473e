"""Steps of a base policy with now and then an explored action, as rows that value learning needs.

Most actions are the policy's own. From a step on, the costs up to the next explored action are
therefore those of the policy itself, whatever the first action was: n-step returns cut there are
unbiased for Q, with no correction, and reach several steps ahead.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from windward.policies.actions import ActionCode


class Rows(NamedTuple):
    """Steps, and what follows each up to the next explored action.

    The first column of costs is the reward, the others are φ(x). Q(x, u) should be
    G + discount·Q(x_ahead, u_ahead), and also costs + discount_next·Q(x_next, u_next); u_ahead and
    u_next are the base policy's.
    """

    x: np.ndarray
    u: np.ndarray
    costs: np.ndarray
    discount_next: np.ndarray
    x_next: np.ndarray
    u_next: np.ndarray
    G: np.ndarray
    discount: np.ndarray
    x_ahead: np.ndarray
    u_ahead: np.ndarray


class _Step(NamedTuple):
    x: np.ndarray
    u: np.ndarray
    costs: np.ndarray
    x_next: np.ndarray
    u_next: np.ndarray
    terminated: bool
    ended: bool
    explored: bool


def explored_action(
    code: ActionCode, base: np.ndarray, sigma: float, rng: np.random.Generator
) -> np.ndarray:
    """An action beside the base policy's: Gaussian around it, or any with equal chance."""
    if code.discrete:
        return np.eye(code.size, dtype=np.float32)[rng.integers(code.size)]
    noisy = base + sigma * rng.standard_normal(code.size)
    return np.clip(noisy, code.low, code.high).astype(np.float32)


def steps_of(
    env: gym.Env,
    act: Callable[[np.ndarray], np.ndarray],
    see: Callable[[np.ndarray], np.ndarray],
    phi: Callable[[np.ndarray], np.ndarray],
    explore: float,
    sigma: float,
    seed: int,
) -> Iterator[_Step]:
    """Steps without end; `see` makes the networks' input from rows of observations."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    code = ActionCode(env.action_space)

    def base_at(observation: Any) -> np.ndarray:
        row: np.ndarray = code.encode(act(np.asarray(observation)[None]))[0]
        return row

    seen, _ = env.reset(seed=int(rng.integers(2**31)))
    base = base_at(seen)
    while True:
        explored = bool(rng.random() < explore)
        u = explored_action(code, base, sigma, rng) if explored else base
        u = code.encode(code.decode(u[None]))[0]  # what is executed is what is learned from
        after, reward, terminated, truncated, _ = env.step(code.decode(u[None])[0])
        rows = np.stack([np.asarray(seen), np.asarray(after)])
        bad = int((~np.isfinite(rows)).sum())
        if bad or not np.isfinite(float(reward)):
            raise ValueError(
                f"the environment gave a reward of {reward} and observations with {bad} numbers "
                "that are not finite"
            )
        costs = np.array([reward, *phi(rows[:1])[0]], dtype=np.float32)
        x, x_next = see(rows)
        ended = bool(terminated or truncated)
        base_next = base_at(after)
        yield _Step(x, u, costs, x_next, base_next, bool(terminated), ended, explored)
        seen, base = after, base_next
        if ended:
            seen, _ = env.reset()
            base = base_at(seen)


def rows_of(steps: list[_Step], gamma: float) -> Rows:
    """Steps in order as rows; the last step counts as cut off, not as an end."""
    n = len(steps)
    x, u, costs, x_next, u_next = (
        np.stack([getattr(step, name) for step in steps])
        for name in ("x", "u", "costs", "x_next", "u_next")
    )
    discount_next = np.array([0.0 if step.terminated else gamma for step in steps], np.float32)
    G, discount, ahead = costs.copy(), discount_next.copy(), np.arange(n)
    for t in range(n - 2, -1, -1):
        if not steps[t].ended and not steps[t + 1].explored:
            G[t] += gamma * G[t + 1]
            discount[t] *= discount[t + 1]
            ahead[t] = ahead[t + 1]
    return Rows(
        x, u, costs, discount_next, x_next, u_next, G, discount, x_next[ahead], u_next[ahead]
    )
