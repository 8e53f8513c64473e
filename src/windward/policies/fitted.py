"""Values of a policy that shows none: learned from its own steps by off-policy evaluation."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

from windward import checks
from windward.policies.features import as_features
from windward.policies.networks import init_mlp
from windward.policies.predictor import predictor
from windward.policies.rollouts import Rows, rows_of, steps_of
from windward.policies.td import TD, td_init, td_update
from windward.policies.values import Fit, Network, Values, input_of
from windward.policies.vectors import horizon

BLOCK = 500
"""updates in one compiled call"""
BATCH = 256


@jax.jit
def _block(state: TD, rows: Any, indices: jax.Array, rates: jax.Array) -> TD:
    """Updates on the rows of each line of indices, at its learning rate."""

    def body(state: TD, each: Any) -> tuple[TD, None]:
        index, rate = each
        return td_update(state, [column[index] for column in rows], rate), None

    return jax.lax.scan(body, state, (indices, rates))[0]


def fit_values(
    env: Any,
    policy: Any,
    *,
    features: Any = "identity",
    gamma: float = 0.99,
    steps: int = 20_000,
    explore: float = 0.2,
    sigma: float = 0.3,
    updates: int = 20_000,
    widths: tuple[int, ...] = (128, 128),
    learning_rate: float = 1e-3,
    held_out: float = 0.2,
    seed: int = 0,
    online: bool = False,
    progress_bar: bool = False,
) -> Values:
    """V and Q of a black-box policy, of its reward and of c(x) = φ(x), so that PD1 and PD2 work.

    The policy (SB3, SBX, anything with `predict`, a function from an observation to an action) runs
    for `steps` steps; each is replaced with chance `explore` by another action (Gaussian of
    standard deviation `sigma` on actions scaled to [-1, 1], or any of a discrete space). One
    network learns Q of all costs by TD on returns that are cut at the next explored action. The
    last `held_out` of the steps are left out, and the Bellman error there is in `Values.fit`: look
    at it before relying on the values.

    `features` is φ: "identity", "random:d_w", a matrix L, or a function of one observation. For
    observations with more than one axis, images, the networks see φ(x) and not x. With
    `online=True` the values can go on learning: see `Values.observe`.

    >>> env = gym.make("Pendulum-v1")
    >>> values = fit_values(env, lambda x: [-x[1]], steps=300, updates=500, widths=(16,))
    >>> values.critic.V(np.zeros((2, 3))).shape, values.vector.V(np.zeros((2, 3))).shape
    ((2,), (2, 3))
    """
    checks.integer("steps", steps, 10)
    checks.integer("updates", updates, 1)
    checks.integer("seed", seed, 0)
    if not isinstance(widths, Sequence) or not widths:
        raise ValueError(f"widths must name the hidden layers, for instance (64, 64); got {widths}")
    for width in widths:
        checks.integer("widths", width, 1)
    for name, number in (("learning_rate", learning_rate), ("sigma", sigma)):
        checks.finite_array(name, number, ndim=0)
        checks.positive(name, number)
    for name, share in (("explore", explore), ("held_out", held_out)):
        if not 0.0 < float(checks.finite_array(name, share, ndim=0)) < 1.0:
            raise ValueError(f"{name} must lie in (0, 1); got {share!r}")
    if not isinstance(env, (str, gym.Env)) and not callable(env):
        raise ValueError(
            f"env must be an id, an environment or a function that makes one; got {env!r}"
        )
    gamma = checks.discount("gamma", gamma)
    own = not isinstance(env, gym.Env)
    made: gym.Env = gym.make(env) if isinstance(env, str) else env() if own else env
    try:
        space = made.observation_space
        if not isinstance(space, gym.spaces.Box):
            raise ValueError(
                f"fit_values needs observations in a Box; the space is {space}: flatten it with "
                "gymnasium.wrappers.FlattenObservation"
            )
        phi = as_features(features, space)
        see = input_of(space, phi)
        act = predictor(policy, made.action_space)
        source = steps_of(made, act, see, phi, explore, sigma, seed)
        walk = islice(source, steps)
        taken = list(track(walk, "rollouts", total=steps, disable=not progress_bar, transient=True))
        action_space = made.action_space
    finally:
        if own:
            made.close()
    kept = steps - max(1, int(held_out * steps))
    rows, test = rows_of(taken[:kept], gamma), rows_of(taken[kept:], gamma)
    network = _learn(rows, gamma, widths, learning_rate, updates, seed, disable=not progress_bar)
    return Values(
        network, act, space, action_space, phi, gamma,
        fit=_error(network, test), rows=rows if online else None, seed=seed,
    )  # fmt: skip


def _learn(
    rows: Rows,
    gamma: float,
    widths: tuple[int, ...],
    learning_rate: float,
    updates: int,
    seed: int,
    disable: bool,
) -> Network:
    """TD from rows alone, on inputs of unit spread and costs of unit size."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    mean, spread = rows.x.mean(axis=0), np.maximum(rows.x.std(axis=0), 1e-3)
    size = np.maximum(np.sqrt(np.square(rows.costs).mean(axis=0)), 1e-6) * horizon(gamma)
    network = Network({}, mean, spread, size)
    sizes = (rows.x.shape[1] + rows.u.shape[1], *widths, rows.costs.shape[1])
    start: Any = jax.tree.map(jnp.asarray, init_mlp(rng, sizes, last=1e-4))
    state = td_init(start)
    data = jax.tree.map(
        jnp.asarray,
        (
            network.inputs(rows.x),
            rows.u,
            rows.G / size,
            rows.discount,
            network.inputs(rows.x_ahead),
            rows.u_ahead,
        ),
    )
    rates = learning_rate * 0.5 * (1 + np.cos(np.pi * np.arange(updates) / updates))  # to zero
    for first in track(range(0, updates, BLOCK), "values", disable=disable, transient=True):
        rate = rates[first : first + BLOCK].astype(np.float32)
        indices = rng.integers(0, len(rows.x), (len(rate), min(BATCH, len(rows.x))))
        state = _block(state, data, indices, rate)
    if not all(np.isfinite(each).all() for each in jax.tree.leaves(state.target)):
        raise ValueError(
            f"the values did not stay finite: try a learning_rate below {learning_rate}"
        )
    return network._replace(params={name: np.asarray(v) for name, v in state.target.items()})


def _error(network: Network, test: Rows) -> Fit:
    """The one-step Bellman error on steps that were not learned from."""
    ahead = network(test.x_next, test.u_next)
    error = test.costs + test.discount_next[:, None] * ahead - network(test.x, test.u)
    rms = np.sqrt(np.square(error).mean(axis=0))
    size = np.sqrt(np.square(test.costs).mean(axis=0))
    return Fit(float(rms[0]), float(size[0]), rms[1:], size[1:])
