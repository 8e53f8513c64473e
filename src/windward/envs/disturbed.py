"""Disturbed: a Gymnasium wrapper that pushes an environment around, reproducibly."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from windward import checks
from windward.envs.channels import Channel, resolve
from windward.envs.gradient_sign import Gradient, GradientSign
from windward.envs.schedules import When
from windward.envs.specs import as_specs, text_of
from windward.envs.streams import Redraw, Stream
from windward.simulators import wrappers
from windward.simulators.parameters import OFFSETS, Parameters, first_value
from windward.simulators.physics import dynamics_of, physics_of
from windward.simulators.shell import Unsupported
from windward.simulators.wrappers import within


class Push(NamedTuple):
    """A stream of disturbances on a channel, and ∇V for one that answers back."""

    stream: Stream
    channel: Channel
    gradient: Gradient | None


class Disturbed(
    gym.Wrapper[Any, Any, Any, Any],
    RecordConstructorArgs,
):
    """Adds disturbances to an environment.

    `disturbance` is an object (`Uniform(0.1)`), a text (`"sine:amp=0.2,period=60"`) or a list of
    them; `channel` says where (a name for all, or a list), `when` says at which steps. Disturbances
    of the state act after the physics step; observation and termination are then those of the
    disturbed state, the reward and the rest of info stay (deviation 13). What was sent to each
    channel is in `info["disturbance"]`; of an action or observation, what would leave the space is
    cut off after that.

    The disturbances of an episode follow from the seed and the episode's number alone: `reset(
    seed=s)` begins episode 0 of seed s, each `reset()` after it the next. `seed` is the one used
    until a reset brings another. Only `GradientSign` looks at what the policy does.

    >>> import gymnasium as gym
    >>> env = Disturbed(gym.make("Pendulum-v1"), "sine:amp=0.2,period=60", channel="qvel")
    >>> _ = env.reset(seed=0)
    >>> env.step(env.action_space.sample())[4]["disturbance"]["qvel"]
    array([0.])
    """

    see_through = True

    def __init__(
        self,
        env: gym.Env,
        disturbance: Any,
        channel: Any = None,
        when: When = None,
        seed: int | None = None,
    ) -> None:
        if isinstance(env, gym.vector.VectorEnv):
            raise ValueError("Disturbed takes one environment; use DisturbedVector for vector ones")
        self._specs = as_specs(disturbance, channel, when)
        texts = [text_of(spec) for spec in self._specs]
        if None not in texts:  # as text, what was given goes to JSON and back with env.spec
            disturbance, channel, when = " + ".join(map(str, texts)), None, None
        RecordConstructorArgs.__init__(
            self, disturbance=disturbance, channel=channel, when=when, seed=seed
        )
        gym.Wrapper.__init__(self, env)
        self._seed = None if seed is None else checks.integer("seed", seed, 0)
        self._episode = -1
        self._ready = False
        self._bind()

    def _bind(self) -> None:
        """Finds the physics and the channels."""
        self._physics = physics_of(self.unwrapped)
        inner = list(wrappers.chain(self.env))
        depth = sum(isinstance(layer, Disturbed) for layer in inner)
        self.pushes = [self._make(spec, (depth, i), inner) for i, spec in enumerate(self._specs)]
        stages = {
            stage: [push for push in self.pushes if push.channel.stage == stage]
            for stage in ("action", "push", "parameter", "state", "observation", "reward")
        }
        self._on_action, self._on_push = stages["action"], stages["push"]
        self._on_parameter, self._on_state = stages["parameter"], stages["state"]
        self._on_observation, self._on_reward = stages["observation"], stages["reward"]
        self._adversary = any(push.gradient is not None for push in self._on_state)
        if self._on_state:
            wrappers.check_inside(inner)
        if self._on_push and self._physics is not None and self._physics.steered:
            for layer in inner:
                wrappers.maps(layer)  # refuses one that hides the action
        self._inner = [layer for layer in inner if type(layer) not in wrappers.PASSIVE]
        self._written: dict[str, np.ndarray] = {}
        self._seen: list[np.ndarray] = []
        self._refuse_twice(inner)

    def _make(self, spec: Any, key: tuple[int, int], inner: list[gym.Wrapper]) -> Push:
        channel = resolve(spec.channel, self.env, self._physics)
        gradient = None
        if isinstance(spec.disturbance, GradientSign):
            gradient = self._gradient(spec.disturbance, channel, inner)
        stream = Stream(spec.disturbance, spec.when, channel.shape, key)
        return Push(stream, channel, gradient)

    def _gradient(
        self, disturbance: GradientSign, channel: Channel, inner: list[gym.Wrapper]
    ) -> Gradient:
        if channel.stage == "observation":
            return disturbance.gradient_for(None, np.zeros(channel.shape))
        if channel.stage != "state" or self._physics is None:
            raise Unsupported(
                f"gradient-sign disturbs a state or an observation; channel {channel.name!r} is "
                "neither"
            )
        dynamics = dynamics_of(self.unwrapped, wrappers.nominal_parameters(inner))
        assert dynamics is not None
        return disturbance.gradient_for(dynamics, dynamics.rest())

    def _refuse_twice(self, inner: list[gym.Wrapper]) -> None:
        """Two wrappers that write the same parameter would overwrite each other."""
        taken = {
            push.channel.part
            for layer in inner
            if isinstance(layer, Disturbed)
            for push in layer._on_parameter
        }
        for push in self._on_parameter:
            if push.channel.part in taken:
                raise ValueError(
                    f"{push.channel.part!r} is disturbed already by a Disturbed inside this one: "
                    "give both to one Disturbed as a list"
                )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; a seed makes it the first of that seed."""
        self._restore()
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._seed, self._episode = seed, 0
        else:
            if self._seed is None:
                self._seed = int(np.random.SeedSequence().generate_state(1)[0])
            self._episode += 1
        for push in self.pushes:
            push.stream.restart(self._seed, self._episode)
        self._ready = True
        if self._on_observation:
            told = dict(info.get("disturbance", {}))
            observation = self._observe(observation, told)
            info = {**info, "disturbance": told}
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step, disturbed; `info["disturbance"]` has each channel's share."""
        if not self._ready:
            raise gym.error.ResetNeeded("call reset() before the first step()")
        told: dict[str, np.ndarray] = {}
        physics = self._physics
        for push in self._on_action:
            w = _told(told, push)
            checks.shape("the action", np.asarray(action), push.channel.shape)
            action = within(action, w, self.env.action_space)  # type: ignore[arg-type]
        if self._on_parameter:
            self._write(told)
        if self._on_push:
            observation, reward, terminated, truncated, info = self._pushed(action, told)
        else:
            observation, reward, terminated, truncated, info = self.env.step(action)
        if physics is not None:
            physics.check()
            if self._on_state and self._shift(told):
                observation, terminated = physics.refresh(wrappers.act_through(self._inner, action))
                if self._inner:
                    observation = wrappers.observe_through(self._inner, observation)
        if self._on_observation:
            observation = self._observe(observation, told)
        for push in self._on_reward:
            reward = reward + float(_told(told, push)[0])
        inside = info.get("disturbance")
        info["disturbance"] = merge(inside, told) if inside else told
        return observation, reward, terminated, truncated, info

    def _pushed(self, action: Any, told: dict[str, np.ndarray]) -> Any:
        """A step with forces on."""
        physics = self._physics
        assert physics is not None
        inner = wrappers.act_through(self._inner, action) if physics.steered else action
        try:
            for push in self._on_push:
                physics.push(push.channel.part, inner, _told(told, push))
            return self.env.step(action)
        finally:
            physics.release()

    def _shift(self, told: dict[str, np.ndarray]) -> bool:
        """Disturbs the state; False if there was nothing to add."""
        physics = self._physics
        assert physics is not None
        # All gradients are taken at the state that the physics reached.
        x = physics.state() if self._adversary else None
        moved = False
        for push in self._on_state:
            w = push.stream.next()
            if push.gradient is not None:
                assert x is not None
                w = w * np.sign(np.asarray(push.gradient(x))[physics.parts[push.channel.part]])
            if push.stream.active:
                physics.add(push.channel.part, w)
                moved = True
            _add(told, push.channel.name, w)
        return moved

    def _write(self, told: dict[str, np.ndarray]) -> None:
        """Sets disturbed parameters, where they changed."""
        assert self._physics is not None
        parameters = self._physics.parameters
        factors: dict[str, np.ndarray] = {}
        for push in self._on_parameter:
            kind = push.channel.part
            first = np.full(len(parameters.elements[kind]), first_value(kind))
            factor = factors.setdefault(kind, first)
            factor[push.channel.elements] += _told(told, push)
        for kind, factor in factors.items():
            before = self._written.get(kind)
            if before is not None and np.array_equal(before, factor):
                continue
            if (factor <= 0).any() and kind != "gravity" and kind not in OFFSETS:
                worst = parameters.elements[kind][int(factor.argmin())]
                raise ValueError(
                    f"the disturbance would multiply {kind} of {worst!r} by {factor.min():.3g}: "
                    "keep it above -1"
                )
            parameters.write(kind, factor)
            self._written[kind] = factor

    def _restore(self) -> None:
        """Sets parameters back."""
        if self._written and self._physics is not None:
            self._physics.parameters.restore()
            self._written = {}

    def _observe(self, observation: Any, told: dict[str, np.ndarray]) -> Any:
        """Disturbs an observation, and remembers how for `observe_again`."""
        self._seen = []
        for push in self._on_observation:
            w = push.stream.next()
            if push.gradient is not None:
                w = w * np.sign(push.gradient(np.asarray(observation, dtype=np.float64)))
            self._seen.append(w)
            _add(told, push.channel.name, w)
            observation = within(observation, w, self.env.observation_space)  # type: ignore[arg-type]
        return observation

    def observe_again(self, observation: Any) -> Any:
        """Disturbs an observation as the last one was, for a Disturbed outside that looks again."""
        for w in self._seen:
            observation = within(observation, w, self.env.observation_space)  # type: ignore[arg-type]
        return observation

    def fresh_noise(self, rng: np.random.Generator) -> list[tuple[Channel, Redraw]]:
        """Its iid disturbances for the copies of a simulator, drawn from `rng`."""
        return [
            (push.channel, Redraw(push.stream, rng))
            for push in self.pushes
            if push.stream.disturbance.iid
        ]

    @property
    def nominal_parameters(self) -> Parameters | None:
        """The parameters from before any disturbance by this one or by those inside it.

        None where none disturbs them. The innermost Disturbed was there first.
        """
        found = [layer for layer in wrappers.chain(self) if isinstance(layer, Disturbed)]
        if not any(layer._on_parameter for layer in found):
            return None
        physics = found[-1]._physics
        return None if physics is None else physics.parameters

    def close(self) -> None:
        """Sets parameters back and closes the environment."""
        self._restore()
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        self_made = [name for name in state if name.startswith("_on_")]
        for name in (*self_made, "_physics", "pushes", "_inner", "_written", "_seen"):
            state.pop(name)
        # MuJoCo environments are made anew from their settings; others come with what was written.
        parameters = None if self._physics is None else self._physics.parameters
        state["_first"] = getattr(parameters, "first", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        first = state.pop("_first")
        self.__dict__.update(state)
        self._ready = False  # MuJoCo environments come back without their state: reset first
        self._bind()
        if first is not None and self._physics is not None:
            self._physics.parameters.first.update(first)  # type: ignore[attr-defined]
            self._physics.parameters.restore()


def _told(told: dict[str, np.ndarray], push: Push) -> np.ndarray:
    """The next row of a stream, noted under its channel's name."""
    w = push.stream.next()
    _add(told, push.channel.name, w)
    return w


def _add(told: dict[str, np.ndarray], name: str, w: np.ndarray) -> None:
    # Of vector environments, _name says which rows have a share.
    if name in told:
        told[name] = told[name] | w if w.dtype == bool else told[name] + w
    else:
        told[name] = w


def merge(inside: dict[str, np.ndarray], told: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What wrappers inside told and what this one tells; shares of one channel add up."""
    merged = dict(inside)
    for name, w in told.items():
        _add(merged, name, w)
    return merged
