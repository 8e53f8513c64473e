"""The M that cancels ŵ as far as the actuator can: where a search may begin that knows nothing yet.

What an action adds to the next state, B_t = ∂f_sim/∂u at recorded states, comes from differences in
the simulator. Then, by least squares over the record, in sizes of ŵ,

    min_M Σ_t ‖ŵ_t + B_t Σ_i M_i ŵ_{t-i}‖².

It is a disturbance observer that forecasts, with one gain for all states. It knows nothing of
costs: a pole that must first be moved against its wind is not held by it. So replays judge it like
any other candidate.
"""

import numpy as np

from windward.adapt.amended import Amended
from windward.adapt.record import Visit
from windward.adapt.replayed import Replayed

STATES = 120
"""recorded steps that it is fitted to, at most"""
DELTA = 0.1
"""of the differences, in actions scaled to [-1, 1]: wide enough to see past a contact"""
RIDGE = 1e-3
"""over the mean of the diagonal"""


def cancelling(
    simulator: Amended, policy: Replayed, visits: list[Visit], per_size: np.ndarray, lags: int
) -> np.ndarray | None:
    """M (h, d_u, d_w) for ŵ in its sizes, of which the first `lags` act; None if nothing does."""
    if not policy.smooth or not visits:
        return None
    at = np.unique(np.linspace(0, len(visits) - 1, min(len(visits), STATES)).astype(int))
    some = [visits[i] for i in at]
    B = responses(simulator, policy, np.array([visit.x for visit in some])) * per_size[:, None]
    known = np.isfinite(B).all(axis=(1, 2))  # the physics may have broken down
    B = B[known]
    windows = np.array([visit.window for visit in some])[known] * per_size
    w_hat = np.array([visit.w_hat for visit in some])[known] * per_size
    h, d_u, d_w = windows.shape[1], policy.d_u, len(per_size)
    z = windows[:, :lags].reshape(len(windows), -1)
    square = np.einsum("nwu,nwv->nuv", B, B)
    normal = np.einsum("nuv,na,nb->uavb", square, z, z).reshape(d_u * lags * d_w, -1)
    right = -np.einsum("nwu,nw,na->ua", B, w_hat, z).ravel()
    size = float(np.trace(normal)) / len(normal)
    if not 0 < size < np.inf:
        return None
    found = np.linalg.solve(normal + RIDGE * size * np.eye(len(normal)), right)
    M = np.zeros((h, d_u, d_w))
    M[:lags] = found.reshape(d_u, lags, d_w).swapaxes(0, 1)
    return M if M.any() and np.isfinite(M).all() else None


def responses(simulator: Amended, policy: Replayed, x: np.ndarray) -> np.ndarray:
    """What actions scaled to [-1, 1] add to the next state of each x, (n, d_x, d_u)."""
    seen, luck = simulator.observation(x), np.zeros((len(x), 0))
    columns = []
    for j in range(policy.d_u):
        offset = np.zeros((len(x), policy.d_u))
        offset[:, j] = DELTA
        high, low = (policy(seen, sign * offset, luck) for sign in (1, -1))
        moved = (policy.coded(high) - policy.coded(low))[:, j].astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            apart = simulator.step(x, high)[0] - simulator.step(x, low)[0]
            # Where the action is at a bound on both sides it moves nothing.
            columns.append(np.where(moved[:, None] > 0, apart / moved[:, None], 0.0))
    return np.stack(columns, axis=2)
