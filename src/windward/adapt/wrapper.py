"""RobustWrapper: one line makes a trained policy adapt to what pushes it around."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from windward.adapt import saving
from windward.adapt.actuation import action_array
from windward.adapt.building import make_module, named
from windward.adapt.finding import find_source
from windward.adapt.shell import Shell


class RobustWrapper(Shell, gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Adds a learned correction to every action: u_t = base + Σ_{i=1..h} M_i ŵ_{t-i} + n_t.

    The action given to `step` is the base action, of any agent. The wrapper adds the correction and
    exploration noise, clips to the space, executes, computes the pseudo-disturbance ŵ_t and updates
    M by replays, MF-GPC, or DMF-GPC for discrete actions, whose logits are corrected. Put it
    outside whatever disturbs the environment. `info["windward"]` has w_hat, correction, noise (both
    in actions scaled to [-1, 1]), action (as executed), clipped, fault, resting (the guard left
    this step to the base policy) and decided (with this step something was decided about M, or
    found; the last of `decisions` says what).

    Args:
      env: an environment with bounded Box or Discrete actions and Box observations.
      signal: "pd1", "pd2", "pd3", "auto" (the strongest that can be made), `PD1(critic)`,
        `PD2(values)`, `PD3(simulator)`, or a function (x, u, reward, x_next) -> ŵ.
      model: the base policy, or its fitted values, where "pd1" and "pd2" find V and Q.
      logits: for discrete actions: a model, or a function on rows of observations.
      simulator: for "pd3": options of `windward.simulator`, one noise-free step if None; or
        what `windward.fit_simulator` gives, which is refitted to the world by its own steps.
      h: memory. seed: of the noise, and of replays.
      learner: who proposes corrections. "matching" and "search" work in the world as it was
        diagnosed, and need a simulator of the nominal world and the model. The others keep an M:
        "mf-gpc" is the paper's; "residual", "quadratic", "response" and, with V of the model,
        "advantage" are gradients of `mf_gpc`. States of "response" are what is observed, 64 numbers
        at most, also where ŵ has other coordinates. "replay" plays the recorded ŵ in the simulator
        again under other M, without exploration, and needs "pd3" and the model, or the logits for
        discrete actions. "auto" is matching and search where they can be had, else "replay", else
        "advantage", else "mf-gpc", both with baseline="regression"; with eta, sigma, M0 or another
        option of the paper's update, and for discrete actions without replays, "mf-gpc". `.learner`
        and `.baseline` say which.
      gradient: the old name of `learner`, for one release.
      sigma: standard deviation of the noise, in actions scaled to [-1, 1]; if left out it is also
        scaled to what the base policy does while the guard waits. eta: learning rate.
      guard: whether adaptation is judged by returns, and steps back where it does harm: some
        episodes are left to the base policy for that. With "replay" replays judge M in any
        case, and returns once the simulator was found to be wrong. Without replays nothing begins
        before ŵ can be told from its past, but with PD1, or if eta, sigma, sigma_end, M0 or
        every_episodes is given, or M is set.
      options: others of `mf_gpc` or `dmf_gpc`: baseline, weight_decay, every_episodes, projection,
        M0 ...; for continuous actions every_steps, for "mf-gpc" 64 if nothing is said: M moves
        with every 64th step, and gradients are summed until then; and fit_every, "auto" here. For
        "replay" also search=Search(...). preset="paper" is the paper's update as printed,
        without a guard.

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
        h: int = 5,
        learner: str = "auto",
        gradient: str | None = None,
        sigma: float | None = None,
        eta: float | None = None,
        guard: bool = True,
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
        source = find_source(signal, model, [env], spaces, simulator)
        self._module = make_module(
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
        self._module.begin(np.array(x)[None])
        return x, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step; `action` is the base policy's."""
        module = self._module
        if module.x is None:
            raise gym.error.ResetNeeded("call reset() before the first step()")
        rows = action_array(action, self._shape)[None]
        executed = module.act(rows)
        # The agent's own object where nothing was added: what it would have done without us.
        chosen = action if executed is rows else executed[0]
        x_next, reward, terminated, truncated, info = self.env.step(chosen)
        ends: tuple[np.ndarray, ...] = ()
        if terminated or truncated:
            ends = (np.array([bool(terminated)]), np.array([bool(truncated)]))
        seen = np.array(x_next, ndmin=self._ndim)
        report = module.observe(np.array([float(reward)]), seen, *ends)
        return x_next, reward, terminated, truncated, {**info, "windward": report.row(0)}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.env, self._saved_kwargs, saving.snapshot(self._module))


def _rebuild(cls: type[RobustWrapper], env: gym.Env, given: dict[str, Any], state: Any) -> Any:
    """A wrapper from a pickle."""
    wrapper = cls(env, **given)
    arrays, header = state
    saving.restore(wrapper._module, arrays, header, "the pickled wrapper")
    return wrapper
