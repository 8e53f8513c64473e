"""The best fixed M of a linear case of `headroom`, without a search: least squares over episodes.

Under LQR the state and the action are affine in M, and the cost is quadratic in both:

    x_{t+1} = (A - BK)x_t + B Σ_i M_i w_{t-i} + w_t,    u_t = -Kx_t + Σ_i M_i w_{t-i}.

Bounds of the actions are left out, which are far beyond what is used.
"""

import numpy as np

from windward.simulators.linear import LinearEnv


def best(env: LinearEnv, K: np.ndarray, starts: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """M (h, d_u, d_w), for actions scaled to [-1, 1], of least total cost over episodes.

    ``starts`` (N, d_x) are their first states and ``windows`` (T, N, h, d_w) what M sees before
    each step, newest first; ŵ is the wind itself, whatever M is.
    """
    T, N, h, d_w = windows.shape
    d_x, d_u = env.B.shape
    closed, n = env.A - env.B @ K, h * d_u * d_w
    x, slope = starts.copy(), np.zeros((N, d_x, n))  # ∂x/∂M
    G, g = np.zeros((n, n)), np.zeros(n)
    for t in range(T):
        # (N, d_u, n): what is added to the action is linear in the entries of M.
        added = np.einsum("uv,nhd->nuhvd", np.eye(d_u), windows[t]).reshape(N, d_u, n)
        u, u_slope = -x @ K.T, added - K @ slope
        for value, change, weight in ((x, slope, env.Q), (u, u_slope, env.R)):
            weighted = weight @ change
            G += np.tensordot(change, weighted, axes=([0, 1], [0, 1]))
            g += np.einsum("ni,nip->p", value, weighted)
        if t + 1 < T:
            x = x @ closed.T + windows[t + 1][:, 0]
            slope = closed @ slope + env.B @ added
    M = np.linalg.lstsq(G, -g, rcond=1e-10)[0].reshape(h, d_u, d_w)
    return np.asarray(M / env.half[:, None])
