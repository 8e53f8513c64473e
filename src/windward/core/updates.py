"""From a gradient estimate to the next M: optax transformations for the paper's updates.

Step sizes and radii are read from ``hyper``, an extra argument, so that a grid of them is one
compiled program. ``episodes`` is how many episodes ended, ``steps`` how many steps the gradient is
a sum over.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from windward.core import history
from windward.core.projections import Projection
from windward.types import Array, Hyper, PyTree

Transform: TypeAlias = optax.GradientTransformationExtraArgs

TOLD = "told"
"""`every_episodes` of an update that is applied when `tell` says so"""


def delay(steps: int) -> Transform:
    """Hands on the gradient of `steps` calls ago, zeros until there is one.

    With ``delay(h)`` step t applies ∇̂_{t-h} (`algo:banditgpc` line 6), so ∇̂_1 first changes
    M^{h+2} (deviation 4).
    """

    def init(params: PyTree) -> PyTree:
        return jax.tree.map(lambda p: jnp.zeros((steps, *p.shape), p.dtype), params)

    def update(
        updates: PyTree, waiting: PyTree, params: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, PyTree]:
        if steps == 0:
            return updates, waiting
        oldest = jax.tree.map(lambda leaf: leaf[-1], waiting)
        return oldest, history.push(waiting, updates)

    return Transform(init, update)


class EpisodesState(NamedTuple):
    """Gradients summed since the last release, episodes counted, the inner state."""

    total: PyTree
    counted: Array
    inner: PyTree


class StepsState(NamedTuple):
    """The same with steps counted."""

    total: PyTree
    counted: Array
    inner: PyTree


def every_k_episodes(k: int, inner: Transform) -> Transform:
    """Sums gradients at fixed M and applies `inner` once k episodes ended (deviation 11).

    optax.MultiSteps averages and counts calls; the paper updates "every 3 episodes".
    """
    return _every(k, inner, EpisodesState, "episodes")


def every_k_steps(k: int, inner: Transform) -> Transform:
    """Sums gradients at fixed M and applies `inner` at every k-th step that taught something."""
    return _every(k, inner, StepsState, "steps")


def _every(k: int, inner: Transform, kind: Callable[..., Any], what: str) -> Transform:
    def init(params: PyTree) -> Any:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return kind(zeros, jnp.zeros((), jnp.int32), inner.init(params))

    def update(
        updates: PyTree,
        state: Any,
        params: PyTree | None = None,
        **extra: Any,
    ) -> tuple[PyTree, Any]:
        total = jax.tree.map(jnp.add, state.total, updates)
        count = state.counted + extra[what]
        due = count >= k
        stepped, inner_state = inner.update(total, state.inner, params, **extra)
        return history.zero_if(~due, stepped), kind(
            history.zero_if(due, total),
            jnp.where(due, 0, count),
            history.keep_if(due, inner_state, state.inner),
        )

    return Transform(init, update)


class ToldState(NamedTuple):
    """Whether a release is due, gradients summed since the last one, the inner state."""

    due: Array  # an integer, 0 or 1; first, so that saved it is not taken for EpisodesState
    total: PyTree
    inner: PyTree


def when_told(inner: Transform) -> Transform:
    """Sums gradients at fixed M and applies `inner` at the first update after `tell`.

    For somebody else's clock: an on-policy agent wants one M for all of its rollout.
    """

    def init(params: PyTree) -> ToldState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return ToldState(jnp.zeros((), jnp.int32), zeros, inner.init(params))

    def update(
        updates: PyTree, state: ToldState, params: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, ToldState]:
        total = jax.tree.map(jnp.add, state.total, updates)
        due = state.due > 0
        stepped, inner_state = inner.update(total, state.inner, params, **extra)
        return history.zero_if(~due, stepped), ToldState(
            jnp.zeros_like(state.due),
            history.zero_if(due, total),
            history.keep_if(due, inner_state, state.inner),
        )

    return Transform(init, update)


def steps_counted(optimiser: PyTree) -> Array:
    """How many steps an update that is applied every k-th has summed up; 0 for any other."""
    leaves = jax.tree.leaves(optimiser, is_leaf=lambda each: isinstance(each, StepsState))
    counts = [each.counted for each in leaves if isinstance(each, StepsState)]
    return counts[0] if counts else jnp.zeros((), jnp.int32)


def _is_told(state: Any) -> bool:
    return isinstance(state, ToldState)


def waits(optimiser: PyTree) -> bool:
    """Whether the state of an update is of one that waits for `tell`."""
    return any(_is_told(each) for each in jax.tree.leaves(optimiser, is_leaf=_is_told))


def tell(optimiser: PyTree) -> PyTree:
    """The state of an update with its sum due."""

    def due(state: Any) -> Any:
        return state._replace(due=jnp.ones_like(state.due)) if _is_told(state) else state

    return jax.tree.map(due, optimiser, is_leaf=_is_told)


def _stateless(update: Any) -> Transform:
    def wrapped(
        updates: PyTree, state: Any, params: PyTree | None = None, *, hyper: Hyper, **extra: Any
    ) -> tuple[PyTree, Any]:
        return update(updates, params, hyper), state

    return Transform(lambda params: optax.EmptyState(), wrapped)


def decay_and_step() -> Transform:
    """-η(g + λM): behind a preconditioner the decay is decoupled from it (deviation 11)."""

    def update(updates: PyTree, params: PyTree, hyper: Hyper) -> PyTree:
        eta, decay = hyper["eta"], hyper["weight_decay"]
        return jax.tree.map(lambda g, m: -eta * (g + decay * m), updates, params)

    return _stateless(update)


def project(projection: Projection, margin: str | None = None) -> Transform:
    """Moves the step so that M ends in the set, shrunk by ``hyper[margin]`` where given."""

    def update(updates: PyTree, params: PyTree, hyper: Hyper) -> PyTree:
        moved = optax.apply_updates(params, updates)
        shrink = jnp.zeros(()) if margin is None else hyper[margin]
        inside = projection.apply(moved, hyper, shrink)
        return jax.tree.map(jnp.subtract, inside, params)

    return _stateless(update)


def gradient_step(
    *,
    delay_by: int = 0,
    scale_by: optax.GradientTransformation | None = None,
    projection: Projection | None = None,
    margin: str | None = None,
    every_episodes: int | str | None = None,
    every_steps: int = 1,
) -> Transform:
    """The whole update: delay, then once per applied step precondition, decay, step, project."""
    parts: list[Any] = [] if scale_by is None else [scale_by]
    parts.append(decay_and_step())
    if projection is not None:
        parts.append(project(projection, margin))
    step = optax.chain(*parts)
    if isinstance(every_episodes, str):
        step = when_told(step)
    elif every_episodes is not None:
        step = every_k_episodes(every_episodes, step)
    elif every_steps > 1:
        step = every_k_steps(every_steps, step)
    return optax.chain(delay(delay_by), step) if delay_by else step
