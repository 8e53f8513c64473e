"""DisturbedVector: Disturbed for Gymnasium's vector environments."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper

from windward import checks
from windward.envs.channels import Channel, within
from windward.envs.disturbed import Disturbed
from windward.envs.gradient_sign import GradientSign
from windward.envs.physics import Unsupported
from windward.envs.schedules import When
from windward.envs.specs import as_specs
from windward.envs.streams import Stream


class DisturbedVector(VectorWrapper):
    """Disturbances for a vector environment, each sub-environment with its own.

    Sub-environment i of `reset(seed=s)` gets what `Disturbed` gives after `reset(seed=s + i)`. A
    `SyncVectorEnv` has all channels: each of its environments is wrapped in `Disturbed`. Others
    keep their physics out of reach and have "action", "observation" and "reward"; for the rest,
    wrap before making it: `gym.make_vec(..., wrappers=[partial(Disturbed, disturbance=...)])`.
    """

    def __init__(
        self,
        env: VectorEnv,
        disturbance: Any,
        channel: Any = None,
        when: When = None,
        seed: int | None = None,
    ) -> None:
        if not isinstance(env, VectorEnv):
            raise ValueError("DisturbedVector takes a vector environment; use Disturbed for one")
        super().__init__(env)
        self._specs = as_specs(disturbance, channel, when)
        self._seed = None if seed is None else checks.integer("seed", seed, 0)
        self._boundary: list[tuple[Channel, list[Stream]]] = []
        base = env.unwrapped
        self._inside = isinstance(base, SyncVectorEnv)
        if self._inside:
            base.envs = [  # type: ignore[attr-defined]
                Disturbed(each, disturbance, channel, when, None if seed is None else seed + i)
                for i, each in enumerate(base.envs)  # type: ignore[attr-defined]
            ]
            return
        self._boundary = [self._at_boundary(spec, i) for i, spec in enumerate(self._specs)]
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._seeds: list[int | None] = [None] * self.num_envs
        self._episodes = [-1] * self.num_envs
        self._ended = np.zeros(self.num_envs, dtype=bool)
        self._ready = False

    def _at_boundary(self, spec: Any, index: int) -> tuple[Channel, list[Stream]]:
        """A channel that a vector environment shows from outside, and a stream for each row."""
        spaces = {"action": self.single_action_space, "observation": self.single_observation_space}
        found = {
            name: Channel(name, name, space.shape)  # type: ignore[arg-type]
            for name, space in spaces.items()
            if isinstance(space, gym.spaces.Box)
        }
        found["reward"] = Channel("reward", "reward", (1,))
        if spec.channel not in found or isinstance(spec.disturbance, GradientSign):
            raise Unsupported(
                f"{type(self.env.unwrapped).__name__} has {', '.join(found)} and no adversary; "
                f"for channel {spec.channel!r} wrap the environments before they are made a "
                "vector: gym.make_vec(..., wrappers=[functools.partial(ww.envs.Disturbed, "
                "disturbance=..., channel=...)]), or use a SyncVectorEnv"
            )
        channel = found[spec.channel]
        streams = [
            Stream(spec.disturbance, spec.when, channel.shape, (0, index))
            for _ in range(self.num_envs)
        ]
        return channel, streams

    def _begin(self, i: int, seed: int | None = None) -> None:
        """Starts an episode of row i."""
        known = self._seeds[i]
        if seed is not None:
            known, self._episodes[i] = seed, 0
        else:
            if known is None:
                fresh = int(np.random.SeedSequence().generate_state(1)[0])
                known = fresh if self._seed is None else self._seed + i
            self._episodes[i] += 1
        self._seeds[i] = known
        for _, streams in self._boundary:
            streams[i].restart(known, self._episodes[i])

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Begins episodes; row i has seed + i."""
        mask = None if options is None else options.get("reset_mask")
        observations, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        if self._inside:
            return observations, info
        for i in range(self.num_envs):
            if mask is None or mask[i]:
                own = seed + i if isinstance(seed, int) else seed[i] if seed is not None else None
                self._begin(i, own)
                self._ended[i] = False
        self._ready = True
        begun = np.ones(self.num_envs, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
        told: dict[str, np.ndarray] = {}
        observations = self._disturb("observation", observations, begun, told)
        return observations, _with(info, told)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of all rows, disturbed; `info["disturbance"]` has each channel's share."""
        if self._inside:
            return self.env.step(actions)
        if not self._ready:
            raise gym.error.ResetNeeded("call reset() before the first step()")
        told: dict[str, np.ndarray] = {}
        restarting = self._ended if self._mode == AutoresetMode.NEXT_STEP else self._ended & False
        running = ~restarting
        actions = self._disturb("action", actions, running, told)
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        rewards = self._disturb("reward", rewards, running, told)
        for i in np.flatnonzero(restarting):
            self._begin(int(i))
        ended = np.asarray(terminated) | np.asarray(truncated)
        if self._mode == AutoresetMode.SAME_STEP and ended.any():
            # The rows that ended show the next episode's first observation; their own last one
            # is in info, and it was disturbed too.
            last = info["final_obs"]
            shown = np.array([last[i] if ended[i] else observations[i] for i in range(len(ended))])
            seen = self._disturb("observation", shown, np.ones_like(ended), told)
            for i in np.flatnonzero(ended):
                last[i] = seen[i]
                self._begin(int(i))
            fresh = self._disturb("observation", observations, ended, {})
            observations = np.where(ended.reshape((-1,) + (1,) * (seen.ndim - 1)), fresh, seen)
        else:
            everywhere = np.ones(self.num_envs, dtype=bool)
            observations = self._disturb("observation", observations, everywhere, told)
        self._ended = ended
        return observations, rewards, terminated, truncated, _with(info, told)

    def _disturb(
        self, stage: str, values: Any, rows: np.ndarray, told: dict[str, np.ndarray]
    ) -> Any:
        """Adds the next disturbances of a stage to the given rows."""
        for channel, streams in self._boundary:
            if channel.stage != stage:
                continue
            w = np.zeros((self.num_envs, *channel.shape))
            for i in np.flatnonzero(rows):
                w[i] = streams[i].next()
            told[channel.name] = told[channel.name] + w if channel.name in told else w
            told[f"_{channel.name}"] = rows
            if stage == "reward":
                values = np.asarray(values) + w[:, 0]
            else:
                space = self.env.action_space if stage == "action" else self.env.observation_space
                values = within(values, w, space)  # type: ignore[arg-type]
        return values


def _with(info: dict[str, Any], told: dict[str, np.ndarray]) -> dict[str, Any]:
    return {**info, "disturbance": told} if told else info
