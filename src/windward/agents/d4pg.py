"""D4PG: the paper's base agent (called DDPG there), with the habits of Stable-Baselines3."""

import json
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from windward import checks
from windward.agents import files, learner
from windward.agents.actors import Actors, Recent, check_spaces, maker
from windward.agents.networks import Params, policy_numpy
from windward.agents.pipeline import Pending, Pipeline
from windward.agents.progress import Log, Progress
from windward.agents.replay import NStep, Replay
from windward.agents.settings import Settings


class NotFinite(RuntimeError):
    """A loss became NaN or infinite; the last checkpoint is as it was."""


class D4PG:
    """Distributional DDPG with n-step returns, layer-norm networks and a hard target copy.

    `env` is an id, a function that makes an environment, or an environment made by `gym.make`.
    Settings are the fields of `Settings`. The same seed gives the same floats: updates run in
    threads of their own while the environments step, but which batch and which policy each uses is
    fixed, not raced for.

    >>> agent = D4PG("Pendulum-v1", widths=(16,), min_replay=16, batch_size=16, seed=0)
    >>> agent.learn(64).predict(np.zeros(3))[0].shape
    (1,)
    """

    def __init__(self, env: Any, *, seed: int = 0, **settings: Any) -> None:
        self.settings = Settings(**settings)
        self.seed = checks.integer("seed", seed, 0)
        self._make, self.env_id = maker(env)
        example = self._make()
        self.observation_space, self.action_space = check_spaces(example)
        example.close()
        self._d_x = int(np.prod(self.observation_space.shape))
        self._d_u = int(np.prod(self.action_space.shape))
        chosen = self.settings
        self._learner = learner.init(chosen.rule, self._d_x, self._d_u, chosen.widths, self.seed)
        self._acting = _numpy(self._learner.policy)
        self._replay: Replay | None = None
        self._sampling, self._exploring = (_generator(self.seed, part) for part in (1, 2))
        self.num_timesteps = 0
        self.log = Log()
        self._best = -np.inf
        self._owed = 0.0
        self._losses = [np.nan, np.nan]
        self._recent = Recent()

    # Acting.

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, Any]:
        """(action, state) for one observation or rows of them; the policy itself has no noise."""
        x = np.asarray(observation, dtype=np.float32)
        single = x.shape == self.observation_space.shape
        x = x.reshape(1 if single else len(x), -1)
        if x.shape[1] != self._d_x:
            raise ValueError(
                f"an observation must have shape {self.observation_space.shape}; got "
                f"{np.shape(observation)}"
            )
        u = policy_numpy(self._acting, x).reshape(-1, *self.action_space.shape)
        low, high = self.action_space.low, self.action_space.high
        action = (low + (u + 1.0) * (high - low) / 2).astype(self.action_space.dtype)
        return (action[0] if single else action), state

    def evaluate(self, episodes: int = 10, seed: int = 0) -> np.ndarray:
        """Returns of episodes without noise; episode i is reset with its own seed."""
        env = self._make()
        returns = np.zeros(checks.integer("episodes", episodes, 1))
        for i in range(episodes):
            x, _ = env.reset(seed=_seed(seed, 3, i))
            over = False
            while not over:
                x, reward, terminated, truncated, _ = env.step(self.predict(x)[0])
                returns[i] += float(reward)
                over = bool(terminated or truncated)
        env.close()
        return returns

    # Learning.

    def learn(
        self,
        total_timesteps: int,
        callback: Callable[["D4PG"], bool | None] | None = None,
        progress_bar: bool = False,
        *,
        out: str | Path | None = None,
        eval_every: int = 10_000,
        eval_episodes: int = 5,
    ) -> "D4PG":
        """Learns until `num_timesteps` reaches `total_timesteps`.

        With `out`, writes curves.csv and TensorBoard scalars, best.npz and, at every segment's end,
        last.npz with everything; a later call on the same folder goes on from there. `callback`
        is called after every evaluation and stops learning by returning False.
        """
        checks.integer("total_timesteps", total_timesteps, 1)
        checks.integer("eval_every", eval_every, 1)
        folder = None if out is None else Path(out)
        if folder is not None and (folder / "last.npz").exists() and not self.num_timesteps:
            self._restore(folder / "last.npz")
        if self._replay is None:
            self._replay = Replay(self.settings.replay_size, self._d_x, self._d_u)
        actors = Actors(self._make, self.settings.num_envs, self.settings.sigma, self._recent)
        pipeline = Pipeline(self.settings.rule, self._learner)
        self.log.open(folder)
        try:
            # The policy is small: BLAS threads would only get in the way of the updates' threads.
            with (
                threadpool_limits(1, "blas"),
                Progress(total_timesteps, self.num_timesteps, progress_bar) as progress,
            ):
                going = True
                while going and self.num_timesteps < total_timesteps:
                    going = self._segment(
                        total_timesteps, actors, pipeline, progress, folder, callback,
                        eval_every, eval_episodes,
                    )  # fmt: skip
        finally:
            pipeline.close()
            actors.close()
            self.log.close()
        return self

    def _segment(
        self,
        total: int,
        actors: Actors,
        pipeline: Pipeline,
        progress: Progress,
        folder: Path | None,
        callback: Callable[["D4PG"], bool | None] | None,
        eval_every: int,
        eval_episodes: int,
    ) -> bool:
        """Steps to the next checkpoint, or to the end; False if the callback said stop."""
        chosen, replay = self.settings, self._replay
        assert replay is not None
        index = self.num_timesteps // chosen.segment
        end = min(total, (index + 1) * chosen.segment)
        adders = [NStep(replay, chosen.n_step, chosen.gamma) for _ in range(chosen.num_envs)]
        seeds = [_seed(self.seed, 4, index, i) for i in range(chosen.num_envs)]
        actors.reset(seeds, adders, chosen.gamma)
        per_update = chosen.batch_size / chosen.samples_per_insert
        pending: deque[Pending] = deque()
        going = True
        while going and self.num_timesteps < end:
            before = self.num_timesteps
            self.num_timesteps += chosen.num_envs
            actors.step(self._acting, self._exploring, cut=self.num_timesteps >= end)
            if len(replay) >= chosen.min_replay:
                self._owed += chosen.num_envs
                while self._owed >= per_update:
                    self._owed -= per_update
                    pending.append(
                        pipeline.submit(replay.sample(self._sampling, chosen.batch_size))
                    )
                    if len(pending) > 1:  # one is always under way while environments step
                        self._take(pending.popleft())
            progress.advance(chosen.num_envs, self._recent.returns)
            if before // eval_every != self.num_timesteps // eval_every:
                self._settle(pending, pipeline)
                going = self._report(folder, callback, eval_episodes)
        self._settle(pending, pipeline)
        if folder is not None:
            self._checkpoint(folder / "last.npz")
        self._warn_of_returns()
        return going

    def _take(self, update: Pending) -> None:
        """Waits for an update; the next steps act by its policy."""
        critic, policy = update.critic.result(), update.policy.result()
        self._losses = [float(critic.loss), float(policy.loss)]
        if not np.isfinite(self._losses).all():
            raise NotFinite(
                f"the losses of critic and policy are {self._losses}; the last checkpoint is as it "
                "was. Try a smaller learning_rate, or a range [v_min, v_max] that fits"
            )
        self._acting = _numpy(policy.params)

    def _settle(self, pending: deque[Pending], pipeline: Pipeline) -> None:
        """Waits for all updates under way."""
        while pending:
            self._take(pending.popleft())
        self._learner = pipeline.learner()

    def _report(
        self,
        folder: Path | None,
        callback: Callable[["D4PG"], bool | None] | None,
        episodes: int,
    ) -> bool:
        """Evaluates, writes the curves and keeps the best; False if the callback said stop."""
        returns = self.evaluate(episodes, seed=self.seed)
        mean = float(returns.mean())
        recent = list(self._recent.returns)
        self.log.add(
            steps=self.num_timesteps,
            updates=self._learner.steps,
            eval_return=mean,
            eval_worst=float(returns.min()),
            train_return=float(np.mean(recent)) if recent else np.nan,
            critic_loss=self._losses[0],
            policy_loss=self._losses[1],
        )
        if folder is not None and mean > self._best:
            self.save(folder / "best.npz")
        self._best = max(self._best, mean)
        return callback is None or callback(self) is not False

    def _warn_of_returns(self) -> None:
        low, high, atoms = self.settings.rule.atoms
        seen = self._recent.discounted
        if atoms == 1 or not seen:
            return
        least, most = min(seen), max(seen)
        if least < low or most > high:
            warnings.warn(
                f"discounted returns reach from {least:.0f} to {most:.0f}, beyond what the critic "
                f"can tell: set v_min and v_max around them (now {low:.0f} and {high:.0f})",
                stacklevel=4,
            )

    # Files.

    def _header(self, kind: str) -> dict[str, Any]:
        return {
            "kind": kind,
            "env": self.env_id,
            "seed": self.seed,
            "settings": asdict(self.settings),
            "observation": list(self.observation_space.shape),
            "action_low": self.action_space.low.tolist(),
            "action_high": self.action_space.high.tolist(),
            "timesteps": self.num_timesteps,
            "updates": self._learner.steps,
        }

    def save(self, path: str | Path) -> None:
        """Networks, optimisers and settings, in one file; not the replay."""
        tree = self._learner._replace(steps=0)
        files.write(path, files.flatten("learner", tree), self._header("windward.D4PG"))

    @classmethod
    def load(cls, path: str | Path, env: Any = None) -> "D4PG":
        """An agent as it was saved, for its own environment unless another is given."""
        arrays, header = files.read(path, "windward.D4PG")
        if env is None and header["env"] is None:
            raise ValueError(f"{str(path)!r} does not name its environment: pass env=")
        settings = header["settings"] | {"widths": tuple(header["settings"]["widths"])}
        agent = cls(header["env"] if env is None else env, seed=header["seed"], **settings)
        agent._match(header, path)
        agent._adopt(arrays, header)
        return agent

    def _match(self, header: dict[str, Any], path: str | Path) -> None:
        """Refuses a file of an agent for other spaces."""
        own = self._header("")
        for name in ("observation", "action_low", "action_high"):
            if header[name] != own[name]:
                raise ValueError(
                    f"{str(path)!r} is of another environment ({header['env']}): its {name} is "
                    f"{header[name]}, here it is {own[name]}"
                )

    def _adopt(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        tree = files.unflatten("learner", self._learner._replace(steps=0), arrays)
        self._learner = tree._replace(steps=header["updates"])
        self._acting = _numpy(self._learner.policy)
        self.num_timesteps = header["timesteps"]

    def _checkpoint(self, path: Path) -> None:
        """Everything that going on needs."""
        assert self._replay is not None
        tree = self._learner._replace(steps=0)
        arrays = files.flatten("learner", tree)
        arrays |= {f"replay/{name}": each for name, each in self._replay.arrays().items()}
        generators = [each.bit_generator.state for each in (self._sampling, self._exploring)]
        header = self._header("windward.D4PG checkpoint") | {
            "generators": json.dumps(generators),
            "owed": self._owed,
            "best": self._best,
            "log": self.log.rows,
            "returns": list(self._recent.returns),
            "discounted": list(self._recent.discounted),
            "losses": self._losses,
        }
        files.write(path, arrays, header)

    def _restore(self, path: Path) -> None:
        arrays, header = files.read(path, "windward.D4PG checkpoint")
        self._match(header, path)
        ours = json.loads(json.dumps(asdict(self.settings)))
        if header["settings"] != ours or header["seed"] != self.seed:
            changed = [name for name in ours if header["settings"].get(name) != ours[name]]
            raise ValueError(
                f"{path.parent} holds a run with other settings ({', '.join(changed) or 'seed'}): "
                "give another folder, or the same settings to go on"
            )
        self._adopt(arrays, header)
        self._replay = Replay(self.settings.replay_size, self._d_x, self._d_u)
        prefix = "replay/"
        self._replay.restore(
            {name[len(prefix) :]: each for name, each in arrays.items() if name.startswith(prefix)}
        )
        states = json.loads(header["generators"])
        for generator, state in zip((self._sampling, self._exploring), states, strict=True):
            generator.bit_generator.state = state
        self._owed, self._best = header["owed"], header["best"]
        self.log.rows, self._losses = header["log"], header["losses"]
        self._recent.returns.extend(header["returns"])
        self._recent.discounted.extend(header["discounted"])


def _numpy(params: Params) -> dict[str, np.ndarray]:
    return {name: np.asarray(each) for name, each in params.items()}


def _seed(*parts: int) -> int:
    """A seed for an environment that follows from the agent's."""
    return int(np.random.SeedSequence(parts[0], spawn_key=parts[1:]).generate_state(1)[0])


def _generator(seed: int, part: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(part,)))
