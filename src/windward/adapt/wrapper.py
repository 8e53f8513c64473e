"""RobustWrapper: one line keeps a trained policy working in a changed world."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from windward.adapt import saving
from windward.adapt.actuation import action_array
from windward.adapt.config import make_runtime, named
from windward.adapt.shell import Shell
from windward.adapt.signals import find_source


class RobustWrapper(Shell, gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Corrects every action of an agent so that a changed world matters as little as can be.

    The action given to `step` is the base action, of any agent. The wrapper adds what its learner
    proposes, clips to the space, executes, and learns from what followed. Put it outside whatever
    disturbs the environment. `info["windward"]` has w_hat, correction and noise (in actions scaled
    to [-1, 1]), action (as executed), clipped, fault, resting (the base policy acted alone) and
    decided (something was decided with this step; the last of `decisions` says what).

    Args:
      env: an environment with bounded Box or Discrete actions and Box observations.
      signal: where ŵ comes from: "pd1", "pd2", "pd3", "auto" (the strongest that can be made),
        `PD1(critic)`, `PD2(values)`, `PD3(simulator)`, a function (x, u, reward, x_next) -> ŵ, or
        None for learners that need none.
      model: the base policy, or its fitted values, where "pd1" and "pd2" find V and Q.
      logits: for discrete actions, where `model` has none: a function on rows of observations.
      simulator: of the nominal world: options of `windward.simulator`, one noise-free step if None;
        or what `windward.fit_simulator` gives.
      learner: who proposes corrections; docs/learners.md helps to choose. "auto": the diagnosed
        world ("matching" and "search") where simulator and model are there, else "advantage" where
        the model has values, else "mf-gpc" with baseline="regression". "mf-gpc" is the paper's;
        "quadratic", "response", "residual-feedback" estimate its gradient otherwise; "observer" and
        "l1" cancel ŵ; "residual" (`import windward.agents`) learns a policy on top.
      h: memory of learners of an M, 5 if left out. seed: of all draws.
      sigma: standard deviation of their noise, in actions scaled to [-1, 1]. eta: learning rate.
      guard: whether real returns judge a learner of an M; see `TrialSettings`.
      gradient: the old name of `learner`, for one release.
      options: of the learner; one that means nothing to it is refused. For the diagnosed world its
        frozen settings by name: matching=MatchingSettings(...), search=, supervisor=, judge=,
        metric=, simulation=, winds=, diagnosis=. For learners of an M those of `mf_gpc` or
        `dmf_gpc`, and trials=TrialSettings(...); preset="paper" is the update as printed. For
        "observer" and "l1" the fields of their settings.

    Bad input never reaches the actuator: see `faults`.

    >>> env = RobustWrapper(gym.make("Pendulum-v1"), signal="pd3")
    >>> _ = env.reset(seed=0)
    >>> sorted(env.step(env.action_space.sample())[4]["windward"])
    ['action', 'clipped', 'correction', 'decided', 'fault', 'noise', 'resting', 'w_hat']
    """

    def __init__(
        self,
        env: gym.Env,
        signal: Any = "auto",
        *,
        model: Any = None,
        logits: Any = None,
        simulator: Any = None,
        h: int | None = None,
        learner: str = "auto",
        gradient: str | None = None,
        sigma: float | None = None,
        eta: float | None = None,
        guard: bool | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        if isinstance(env, gym.vector.VectorEnv):
            raise ValueError(
                "RobustWrapper takes one environment; use RobustVectorWrapper for vector ones"
            )
        if not isinstance(env, gym.Env):
            raise ValueError(f"env must be an environment; got {env!r}: use gym.make for an id")
        learner = named(learner, gradient)
        given = {
            "signal": signal, "model": model, "logits": logits, "simulator": simulator, "h": h,
            "learner": learner, "sigma": sigma, "eta": eta, "guard": guard, "seed": seed,
            **options,
        }  # fmt: skip
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **given)
        gym.Wrapper.__init__(self, env)
        spaces = env.observation_space, env.action_space
        source = None
        if signal is not None:
            source = find_source(signal, model, [env], spaces, simulator)
        self._runtime = make_runtime(
            spaces, source, logits, 1, True, seed,
            {"h": h, "learner": learner, "sigma": sigma, "eta": eta, "guard": guard, **options},
            model=logits if model is None else model,
        )  # fmt: skip
        self._shape = env.action_space.shape
        self._ndim = 1 + len(env.observation_space.shape or ())

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; M is kept, the windows are emptied."""
        x, info = self.env.reset(seed=seed, options=options)
        self._runtime.begin(np.array(x)[None])
        return x, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step; `action` is the base policy's."""
        runtime = self._runtime
        if runtime.x is None:
            raise gym.error.ResetNeeded("call reset() before the first step()")
        rows = action_array(action, self._shape)[None]
        executed = runtime.act(rows)
        # The agent's own object where nothing was added: what it would have done without us.
        chosen = action if executed is rows else executed[0]
        x_next, reward, terminated, truncated, info = self.env.step(chosen)
        ends: tuple[np.ndarray, ...] = ()
        if terminated or truncated:
            ends = (np.array([bool(terminated)]), np.array([bool(truncated)]))
        seen = np.array(x_next, ndmin=self._ndim)
        report = runtime.observe(reward, seen, *ends)
        return x_next, reward, terminated, truncated, {**info, "windward": report.row(0)}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.env, self._saved_kwargs, saving.snapshot(self._runtime))


def _rebuild(cls: type[RobustWrapper], env: gym.Env, given: dict[str, Any], state: Any) -> Any:
    """A wrapper from a pickle."""
    wrapper = cls(env, **given)
    arrays, header = state
    saving.restore(wrapper._runtime, arrays, header, "the pickled wrapper")
    return wrapper
