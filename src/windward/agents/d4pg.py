"""D4PG: the paper's base agent (called DDPG there), with the habits of Stable-Baselines3."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from windward import checks, files
from windward.agents import checkpoints, learner, remote
from windward.agents.actors import Actors, check_spaces, maker
from windward.agents.pipeline import Pipeline
from windward.agents.progress import Log, Progress
from windward.agents.replay import Replay
from windward.agents.settings import Settings
from windward.agents.training import Plan, Training, as_numpy, seed_of
from windward.agents.video import record
from windward.atomic import prepare
from windward.bases.actions import ActionCode
from windward.bases.critics import NetworkCritic, VectorCritic
from windward.bases.features import as_features, from_file
from windward.bases.networks import policy_numpy
from windward.bases.vectors import CriticUnits, VectorHead


class D4PG:
    """Distributional DDPG with n-step returns, layer-norm networks and a hard target copy.

    `env` is an id, a function that makes an environment, or an environment made by `gym.make`.
    Settings are the fields of `Settings`. With `features` (φ: "identity", "random:8", a matrix, a
    function) a vector head learns PD2's values of c(x) = φ(x) beside the critic; the agent itself
    is the same with it and without. The same seed gives the same floats: updates run in threads of
    their own while the environments step, but which batch and which policy each uses is fixed, not
    raced for.

    >>> agent = D4PG("Pendulum-v1", widths=(16,), min_replay=16, batch_size=16, seed=0)
    >>> agent.learn(64).predict(np.zeros(3))[0].shape
    (1,)
    """

    def __init__(self, env: Any, *, seed: int = 0, features: Any = None, **settings: Any) -> None:
        chosen = Settings(**settings)
        self._make, env_id = maker(env)
        example = self._make()
        self.observation_space, self.action_space = check_spaces(example)
        example.close()
        self._d_x = int(np.prod(self.observation_space.shape))
        self._code = ActionCode(self.action_space)
        self._features = None if features is None else as_features(features, self.observation_space)
        self._d_w = 0 if self._features is None else self._features.d_w
        seed = checks.integer("seed", seed, 0)
        fresh = learner.init(
            chosen.rule, self._d_x, self._code.size, chosen.widths, seed, self._d_w
        )
        self._training = Training(chosen, seed, fresh)
        self._identity = checkpoints.Identity(
            env_id, self.observation_space, self.action_space, self._features
        )

    @property
    def settings(self) -> Settings:
        """How it learns."""
        return self._training.settings

    @property
    def seed(self) -> int:
        """What fixes everything."""
        return self._training.seed

    @property
    def env_id(self) -> str | None:
        """The environment's id, if it has one."""
        return self._identity.env_id

    @property
    def num_timesteps(self) -> int:
        """Environment steps learned from so far."""
        return self._training.timesteps

    @property
    def log(self) -> Log:
        """The learning curve, row by row."""
        return self._training.log

    # Acting and valuing.

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
        action = self._code.decode(policy_numpy(self._training.acting, x))
        return (action[0] if single else action), state

    @property
    def networks(self) -> dict[str, dict[str, np.ndarray]]:
        """The parameters of "policy" and "critic" as they are now."""
        now = self._training.learner
        return {"policy": as_numpy(now.policy), "critic": as_numpy(now.critic)}

    @property
    def atoms(self) -> np.ndarray:
        """The support of the value distribution."""
        return learner.atoms_of(self.settings.rule)

    @property
    def critic(self) -> NetworkCritic:
        """V, Q and their gradients, as they are now."""
        return NetworkCritic(
            **self.networks, atoms=self.atoms, action_space=self.action_space,
            gamma=self.settings.gamma,
        )  # fmt: skip

    def vector_values(self, form: str = "vector_head") -> VectorCritic:
        """PD2's values: of the "vector_head", or the paper's "critic_units" (deviation 14)."""
        checks.choice("form", form, ("vector_head", "critic_units"))
        if form == "critic_units":
            return CriticUnits(self.critic, self._d_x, self.settings.num_atoms)
        if self._features is None:
            raise ValueError(
                "this agent has no vector head: make it with features='identity', take "
                "form='critic_units', or learn values afterwards with windward.fit_values"
            )
        now = self._training.learner
        return VectorHead(
            as_numpy(now.policy), as_numpy(now.vector), self._features, self.settings.gamma,
            self.action_space,
        )  # fmt: skip

    def evaluate(self, episodes: int = 10, seed: int = 0) -> np.ndarray:
        """Returns of episodes without noise; episode i is reset with its own seed."""
        env = self._make()
        returns = np.zeros(checks.integer("episodes", episodes, 1))
        for i in range(episodes):
            x, _ = env.reset(seed=seed_of(seed, 3, i))
            over = False
            while not over:
                x, reward, terminated, truncated, _ = env.step(self.predict(x)[0])
                returns[i] += float(reward)
                over = bool(terminated or truncated)
        env.close()
        return returns

    def record(self, path: str | Path, seed: int = 0) -> float:
        """Plays an episode without noise into a GIF; its return."""
        return record(self._make, lambda x: self.predict(x)[0], path, seed)

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
        backend: str = "local",
    ) -> "D4PG":
        """Learns until `num_timesteps` reaches `total_timesteps`.

        With `out`, writes curves.csv and TensorBoard scalars, best.npz and, at every segment's end,
        last.npz with everything; a later call on the same folder goes on from there. `callback`
        is called after every evaluation and stops learning by returning False.

        `backend` "ray" steps each environment in a Ray actor of its own, on this machine or a
        cluster; lost actors are replaced. Chunks of steps are then learned from as they arrive, so
        the same seed does not give the same floats; with "local" it does.
        """
        checks.integer("total_timesteps", total_timesteps, 1)
        checks.integer("eval_every", eval_every, 1)
        checks.integer("eval_episodes", eval_episodes, 1)
        checks.choice("backend", backend, ("local", "ray"))
        folder = None if out is None else Path(out)
        training, identity, chosen = self._training, self._identity, self.settings
        if folder is not None:
            prepare(folder)
        if training.replay is None:
            there = folder is not None and (folder / "last.npz").exists()
            if there and training.timesteps:
                raise ValueError(
                    f"{folder} holds another run, and its replay is not this agent's: give "
                    "another folder, or learn with a fresh agent of the same settings to go on"
                )
            replay = Replay(chosen.replay_size, self._d_x, self._code.size, self._d_w)
            if folder is not None and there:
                checkpoints.restore(folder / "last.npz", identity, training, replay)
            training.replay = replay
        plan = Plan(
            total_timesteps, folder, eval_every,
            evaluate=lambda: self.evaluate(eval_episodes, seed=self.seed),
            save_best=self.save,
            checkpoint=lambda path: checkpoints.write(path, identity, training),
            callback=lambda: None if callback is None else callback(self),
        )  # fmt: skip
        actors: Any
        segment: Callable[..., bool]
        if backend == "ray":
            sizes = self._d_x, self._code.size, self._d_w
            start = seed_of(self.seed, 6, training.timesteps)
            actors = remote.RemoteActors(self._make, chosen, self._features, sizes, start)
            segment = remote.segment
        else:
            actors = Actors(
                self._make, chosen.num_envs, chosen.sigma, training.recent, self._features
            )
            segment = Training.segment
        pipeline = Pipeline(chosen.rule, training.learner)
        training.log.open(folder)
        try:
            # The policy is small: BLAS threads would only get in the way of the updates' threads.
            with (
                threadpool_limits(1, "blas"),
                Progress(total_timesteps, self.num_timesteps, progress_bar) as progress,
            ):
                going = True
                while going and self.num_timesteps < total_timesteps:
                    going = segment(training, plan, actors, pipeline, progress)
        except BaseException:
            # Stopped in the middle: what was learned until then is this agent's all the same.
            with suppress(Exception):
                training.adopt(pipeline)
            raise
        finally:
            pipeline.close()
            actors.close()
            training.log.close()
        return self

    # Files.

    def save(self, path: str | Path) -> None:
        """Networks, optimisers and settings, in one file; not the replay."""
        checkpoints.save(path, self._identity, self._training)

    @classmethod
    def load(cls, path: str | Path, env: Any = None, features: Any = None) -> "D4PG":
        """An agent as it was saved, for its own environment unless another is given.

        `features` is needed again when they were a matrix or a function: files hold no code.
        """
        arrays, header = files.read(path, checkpoints.AGENT, checkpoints.CHECKPOINT)
        if env is None and header["env"] is None:
            raise ValueError(f"{str(path)!r} does not name its environment: pass env=")
        env = header["env"] if env is None else env
        settings = checkpoints.settings_in(header)
        example = maker(env)[0]()
        space = check_spaces(example)[0]
        example.close()
        phi = from_file(header.get("features"), header.get("features_at"), space, features, path)
        agent = cls(env, seed=header["seed"], features=phi, **settings)
        checkpoints.adopt(path, arrays, header, agent._identity, agent._training)
        return agent
