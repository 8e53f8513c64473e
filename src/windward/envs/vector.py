"""DisturbedVector: Disturbed for Gymnasium's vector environments."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper

from windward import checks
from windward.envs.channels import Channel
from windward.envs.disturbed import Disturbed, merge
from windward.envs.gradient_sign import GradientSign
from windward.envs.schedules import When
from windward.envs.specs import Spec, as_specs
from windward.envs.streams import Stream
from windward.simulators.shell import Unsupported
from windward.simulators.wrappers import within

Told = dict[str, np.ndarray]
"""Channels -> what each row got, and _channels -> which rows did, as vector infos have it."""


class DisturbedVector(VectorWrapper):
    """Disturbances for a vector environment, each sub-environment with its own.

    Sub-environment i of `reset(seed=s)` gets what `Disturbed` gives after `reset(seed=s + i)`. A
    `SyncVectorEnv` has all channels: its environments are wrapped in `Disturbed`, in place. Others
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
        self._seed = None if seed is None else checks.integer("seed", seed, 0)
        rows = _rows_within_reach(env)
        self._inside = rows is not None
        if rows is not None:
            rows.envs = [
                Disturbed(each, disturbance, channel, when, None if seed is None else seed + i)
                for i, each in enumerate(rows.envs)
            ]
            return
        depth = _depth(env)
        specs = as_specs(disturbance, channel, when)
        self._boundary = [self._at_boundary(spec, (depth, i)) for i, spec in enumerate(specs)]
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._seeds: list[int | None] = [None] * self.num_envs
        self._episodes = [-1] * self.num_envs
        self._ended = np.zeros(self.num_envs, dtype=bool)
        self._shown: Any = None
        """the observations of the last step or reset; None before the first"""

    def _at_boundary(self, spec: Spec, key: tuple[int, int]) -> tuple[Channel, list[Stream]]:
        """A channel that a vector environment shows from outside, and a stream for each row."""
        spaces = {"action": self.single_action_space, "observation": self.single_observation_space}
        found = {
            name: Channel(name, name, space.shape)  # type: ignore[arg-type]
            for name, space in spaces.items()
            if isinstance(space, gym.spaces.Box)
        }
        found["reward"] = Channel("reward", "reward", (1,))
        if spec.channel is None:
            raise ValueError(f"say where to disturb: channel=...; there are {', '.join(found)}")
        if spec.channel not in found or isinstance(spec.disturbance, GradientSign):
            raise Unsupported(
                f"{type(self.env).__name__} has {', '.join(found)} and no adversary; for "
                f"channel {spec.channel!r} wrap the environments before they are made a vector, "
                "gym.make_vec(..., wrappers=[functools.partial(ww.envs.Disturbed, disturbance=..., "
                "channel=...)]), or put DisturbedVector directly around a SyncVectorEnv"
            )
        channel = found[spec.channel]
        streams = [
            Stream(spec.disturbance, spec.when, channel.shape, key) for _ in range(self.num_envs)
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
        mask = None if options is None else options.get("reset_mask")  # env.reset takes it out
        observations, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        if self._inside:
            return observations, info
        begun = np.ones(self.num_envs, dtype=bool) if mask is None else np.array(mask, dtype=bool)
        for i in np.flatnonzero(begun):
            own = seed + int(i) if isinstance(seed, int) else None if seed is None else seed[i]
            self._begin(int(i), own)
        self._ended = self._ended & ~begun
        told: Told = {}
        observations = self._disturb("observation", observations, begun, told)
        if self._shown is not None:  # rows that go on show what they showed
            observations = _choose(begun, observations, self._shown)
        self._shown = observations
        return observations, _with(info, told)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of all rows, disturbed; `info["disturbance"]` has each channel's share."""
        if self._inside:
            return self.env.step(actions)
        if self._shown is None:
            raise gym.error.ResetNeeded("call reset() before the first step()")
        told: Told = {}
        # In this mode a row that ended spends the next step on its reset.
        restarting = self._ended & (self._mode == AutoresetMode.NEXT_STEP)
        actions = self._disturb("action", actions, ~restarting, told)
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        rewards = self._disturb("reward", rewards, ~restarting, told)
        for i in np.flatnonzero(restarting):
            self._begin(int(i))
        ended = np.asarray(terminated) | np.asarray(truncated)
        if self._mode == AutoresetMode.SAME_STEP and ended.any():
            observations, info = self._restart_at_once(observations, info, ended, told)
        else:
            everywhere = np.ones(self.num_envs, dtype=bool)
            observations = self._disturb("observation", observations, everywhere, told)
        self._ended, self._shown = ended, observations
        return observations, rewards, terminated, truncated, _with(info, told)

    def _restart_at_once(
        self, observations: Any, info: dict[str, Any], ended: np.ndarray, told: Told
    ) -> tuple[Any, dict[str, Any]]:
        """Rows that ended show the next episode's first observation; `final_*` has their last."""
        last = info["final_obs"]
        shown = np.array([last[i] if ended[i] else observations[i] for i in range(len(ended))])
        seen = self._disturb("observation", shown, np.ones_like(ended), told)
        for i in np.flatnonzero(ended):
            last[i] = seen[i]
            self._begin(int(i))
        final = {name: _choose(ended, w, np.zeros_like(w)) for name, w in told.items()}
        info = {**info, "final_info": _with(info.get("final_info", {}), final)}
        for name, w in told.items():
            told[name] = _choose(ended, np.zeros_like(w), w)
        fresh: Told = {}
        first = self._disturb("observation", observations, ended, fresh)
        for name, w in fresh.items():
            told[name] = _choose(ended, w, told[name])
        return _choose(ended, first, seen), info

    def _disturb(self, stage: str, values: Any, rows: np.ndarray, told: Told) -> Any:
        """Adds the next disturbances of a stage to the given rows."""
        for channel, streams in self._boundary:
            if channel.stage != stage:
                continue
            w = np.zeros((self.num_envs, *channel.shape))
            for i in np.flatnonzero(rows):
                w[i] = streams[i].next()
            told[channel.name] = told[channel.name] + w if channel.name in told else w
            told[f"_{channel.name}"] = rows.copy()
            if stage == "reward":
                values = np.asarray(values) + w[:, 0]
            else:
                space = self.env.action_space if stage == "action" else self.env.observation_space
                values = within(values, w, space)  # type: ignore[arg-type]
        return values


def _rows_within_reach(env: VectorEnv) -> SyncVectorEnv | None:
    """The SyncVectorEnv directly inside, or inside DisturbedVectors that are inside it already."""
    while isinstance(env, DisturbedVector):
        env = env.env
    return env if isinstance(env, SyncVectorEnv) else None


def _depth(env: VectorEnv) -> int:
    """How many wrappers inside disturb already: each draws apart."""
    depth = 0
    while isinstance(env, VectorWrapper):
        depth += isinstance(env, DisturbedVector)
        env = env.env
    # Rows may be in other processes; what they are called tells what wraps them.
    rows = env.call("__str__") if hasattr(env, "call") else ("",)
    return depth + str(rows[0]).count(f"{Disturbed.__name__}<")


def _choose(rows: np.ndarray, then: Any, otherwise: Any) -> np.ndarray:
    """`then` in the given rows, `otherwise` in the rest."""
    mask = rows.reshape((-1,) + (1,) * (np.ndim(then) - 1))
    return np.where(mask, then, otherwise)


def _with(info: dict[str, Any], told: Told) -> dict[str, Any]:
    """An info with what was told, beside what environments inside have told."""
    return {**info, "disturbance": merge(info.get("disturbance", {}), told)} if told else info
