"""Base policies of any make as one function: rows of observations to rows of noise-free actions."""

import inspect
import reprlib
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks
from windward.policies.actions import ActionCode
from windward.policies.sb3 import SB3, SBX, Inputs, library_of


def predictor(policy: Any, action_space: gym.Space) -> Callable[[Any], np.ndarray]:
    """π, the base policy without noise, on rows: (n, observation) to (n, action).

    `policy` is a model of Stable-Baselines3 or SBX, windward's D4PG, anything with
    `predict(observation, deterministic=True) -> (action, state)`, or a function from one
    observation to an action. A `predict` that does not take rows is called one by one.
    Actions are clipped to the space, as they are when executed. Observations are the
    environment's own, also for a model that was trained under VecNormalize.
    A policy with a memory is refused: V and Q of a base policy are functions of x alone.

    >>> pi = predictor(lambda x: -0.5 * x[:1], gym.spaces.Box(-1.0, 1.0, (1,)))
    >>> pi([[1.0, 0.0], [-2.0, 0.0]])
    array([[-0.5],
           [ 1. ]], dtype=float32)
    """
    ActionCode(action_space)  # refuses spaces that windward has no actions for
    if isinstance(policy, type):
        raise ValueError(f"a base policy must be an instance; got the class {policy.__name__}")
    if callable(getattr(policy, "predict", None)):
        _refuse_signature(policy.predict, f"{_name(policy)}.predict", deterministic=True)
    elif callable(policy):
        _refuse_signature(policy, _name(policy))
    else:
        raise ValueError(
            "a base policy must have predict(observation, deterministic=True) or be a function of "
            f"one observation; got {type(policy).__name__}: {reprlib.repr(policy)}"
        )
    return _Predictor(policy, action_space)


def _name(policy: Any) -> str:
    return str(getattr(policy, "__name__", type(policy).__name__))


def _refuse_signature(function: Callable[..., Any], name: str, **options: Any) -> None:
    """A function that cannot be called is refused now and not in the middle of an episode."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in ones have none to read
        return
    try:
        signature.bind(None, **options)
    except TypeError as error:
        wanted = ", ".join(["observation", *(f"{key}={value}" for key, value in options.items())])
        raise ValueError(f"{name} must be callable with ({wanted}): {error}") from error


class _Predictor:
    """A class and not a closure, so that it can be sent to a process of its own."""

    def __init__(self, policy: Any, action_space: gym.Space) -> None:
        self._policy, self._space, self._name = policy, action_space, _name(policy)
        self._predicts = callable(getattr(policy, "predict", None))
        self._inputs = Inputs(policy) if self._predicts and library_of(policy) else None
        # None until there are rows to try it on.
        self._takes_rows = True if self._inputs else None if self._predicts else False

    def __call__(self, observations: Any) -> np.ndarray:
        rows = self._inputs.rows(observations) if self._inputs else np.asarray(observations)
        if not rows.ndim:
            raise ValueError(f"observations must be rows; got {observations!r}")
        if not len(rows):
            return np.zeros((0, *(self._space.shape or ())), self._space.dtype)
        if self._takes_rows is None and len(rows) > 1:
            self._takes_rows = self._try_rows(rows)
        if self._takes_rows:
            return self._checked(self._predict(rows), len(rows))
        return np.concatenate([self._one(row) for row in rows])

    def _one(self, row: np.ndarray) -> np.ndarray:
        action = self._predict(row) if self._predicts else self._policy(row)
        return self._checked(action)

    def _predict(self, observation: np.ndarray) -> Any:
        found = self._policy.predict(observation, deterministic=True)
        if not isinstance(found, tuple) or len(found) != 2:
            raise ValueError(
                f"{self._name}.predict must give (action, state); got {reprlib.repr(found)}"
            )
        action, state = found
        if state is not None:
            raise ValueError(
                f"{self._name} is a recurrent policy: its predict gives a state of type "
                f"{type(state).__name__}; a base policy must act on the observation alone"
            )
        return action

    def _try_rows(self, rows: np.ndarray) -> bool:
        """Whether predict takes rows: the first and the last must be as they are alone.

        The shape alone does not tell: K @ x runs on a square of rows, and gives other actions.
        """
        alone = np.concatenate([self._one(rows[0]), self._one(rows[-1])])
        try:
            together = self._checked(self._predict(rows), len(rows))
        except Exception:  # made for one observation, it may fail on rows in any way
            return False
        return np.allclose(together[[0, -1]], alone, rtol=1e-3, atol=1e-5)

    def _checked(self, actions: Any, n: int | None = None) -> np.ndarray:
        """Actions as rows of the space's type; `n` is None for one action."""
        name, shape = f"the action of {self._name}", self._space.shape or ()
        array = checks.finite_array(name, actions)
        checks.shape(name, array, shape if n is None else (n, *shape), "the action space's")
        if n is None:
            array = array[None]
        if isinstance(self._space, gym.spaces.Discrete):
            index = array - int(self._space.start)
            if ((index != np.floor(index)) | (index < 0) | (index >= self._space.n)).any():
                raise ValueError(f"{name} must be in {self._space}; got {reprlib.repr(actions)}")
        elif isinstance(self._space, gym.spaces.Box):
            # What is executed is what values are of (deviation 9).
            array = np.clip(array, self._space.low, self._space.high)
        return array.astype(self._space.dtype)


def logits_of(policy: Any) -> Callable[[Any], np.ndarray] | None:
    """The logits of a softmax policy, (n, observation) to (n, |U|), or None when it has none.

    For PPO and A2C of Stable-Baselines3 and PPO of SBX with discrete actions, and for anything with
    a method `logits` on rows. Logits are up to a number for each row, as any softmax's.
    """
    if isinstance(policy, type):
        return None
    library, name = library_of(policy) or ("", "")
    if not library:
        own = getattr(policy, "logits", None)
        space = getattr(policy, "action_space", None)
        if not callable(own) or isinstance(space, gym.spaces.Box):
            return None
        return lambda x: _checked_logits(policy, own(np.asarray(x)), len(x))
    if name not in ("PPO", "A2C") or not isinstance(policy.action_space, gym.spaces.Discrete):
        return None
    inputs = Inputs(policy)
    of = {SB3: _torch_logits, SBX: _jax_logits}[library](policy)

    def logits(x: Any) -> np.ndarray:
        rows = inputs.rows(x)
        return _checked_logits(policy, of(rows), len(rows))

    return logits


def _checked_logits(policy: Any, found: Any, n: int) -> np.ndarray:
    name = f"logits of {_name(policy)}"
    array = checks.finite_array(name, found, ndim=2)
    if len(array) != n:
        raise ValueError(f"{name} must have a row for each of {n} observations; got {len(array)}")
    return array.astype(np.float32)


def _torch_logits(model: Any) -> Callable[[np.ndarray], np.ndarray]:
    import torch

    def of(rows: np.ndarray) -> np.ndarray:
        policy = model.policy
        if policy.training:
            policy.set_training_mode(False)  # as `predict` does
        with torch.no_grad():
            seen = torch.tensor(rows, device=policy.device)
            return policy.get_distribution(seen).distribution.logits.cpu().numpy()

    return of


def _jax_logits(model: Any) -> Callable[[np.ndarray], np.ndarray]:
    import jax

    network = model.policy.actor_state.apply_fn
    program = jax.jit(lambda params, rows: network(params, rows).logits)
    return lambda rows: np.asarray(program(model.policy.actor_state.params, rows))
