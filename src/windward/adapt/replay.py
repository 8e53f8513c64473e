"""What would have happened: recorded disturbances replayed in a simulator under other M.

A replay starts at a recorded state, with the window of ŵ of that step, and takes the recorded ŵ
for the wind: x_{t+1} = f_sim(x_t, u_t) + ŵ_t.
"""

import numpy as np

from windward.adapt.amended import Amended
from windward.adapt.record import Start
from windward.adapt.replayed import Replayed


def replay(
    simulator: Amended,
    policy: Replayed,
    starts: list[Start],
    candidates: np.ndarray,
    gamma: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Discounted costs of candidates for M, and which stood to the last step: (starts, candidates).

    Every candidate meets the same wind from the same states, with the same luck of the base policy.
    An episode that ends pays no more.
    """
    shape = (len(starts), len(candidates))
    rows = np.repeat(np.arange(shape[0]), shape[1])
    x = np.array([start.x for start in starts])[rows]
    window = np.array([start.window for start in starts])[rows]
    wind = np.array([start.wind for start in starts])[rows]
    luck = np.array([start.luck for start in starts])[rows]
    M = np.tile(candidates, (shape[0], 1, 1, 1))
    cost, index, weight = np.zeros(len(rows)), np.arange(len(rows)), 1.0
    for t in range(wind.shape[1]):
        correction = np.einsum("nhud,nhd->nu", M, window)
        u = policy(simulator.observation(x), correction, luck[:, t])
        x_next, c, _ = simulator.step(x, u)
        cost[index] += weight * c  # NaN where the physics broke down
        x = x_next + wind[:, t]
        window = np.concatenate([wind[:, t][:, None], window[:, :-1]], axis=1)
        weight *= gamma
        whole = np.isfinite(x).all(axis=1)
        # As in the world, it is the pushed state that ends an episode.
        alive = whole & ~simulator.terminated(np.where(whole[:, None], x, 0.0), u)
        if not alive.all():
            parts = (x, window, wind, luck, M, index)
            x, window, wind, luck, M, index = (part[alive] for part in parts)
            if not len(index):
                break
    broken = ~np.isfinite(cost)
    if broken.any():  # as bad as can be, and still a number
        known = cost[~broken] if not broken.all() else np.zeros(1)
        cost[broken] = known.max() + np.ptp(known) + 1.0
    stood = np.zeros(len(rows), dtype=bool)
    stood[index] = True
    return cost.reshape(shape), stood.reshape(shape)
