"""D4PG: the paper's base agent (called DDPG there), with the habits of Stable-Baselines3."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks, files
from windward.adapt.sources import Source
from windward.agents import checkpoints, learner, running
from windward.agents.actors import check_spaces, maker
from windward.agents.adaptation import Adaptation
from windward.agents.progress import Log
from windward.agents.replay import Replay
from windward.agents.settings import Settings
from windward.agents.training import Plan, Training, as_numpy, seed_of
from windward.agents.valuing import Valuing, simulated
from windward.agents.video import record
from windward.atomic import prepare
from windward.policies.actions import ActionCode
from windward.policies.critics import NetworkCritic, VectorCritic
from windward.policies.features import as_features, from_file
from windward.policies.networks import policy_numpy


class D4PG:
    """Distributional DDPG with n-step returns, layer-norm networks and a hard target copy.

    `env` is an id, a function that makes an environment, or an environment made by `gym.make`.
    Settings are the fields of `Settings`. With `features` (φ: "identity", "random:8", a matrix, a
    function) a vector head learns PD2's values of c(x) = φ(x) beside the critic; the agent itself
    is the same with it and without. With `robust`, a dictionary of the fields of `Robust`, policy
    and the module's M are trained together. The same seed gives the same floats: updates run in
    threads of their own while the environments step, but which batch and which policy each uses is
    fixed, not raced for.

    >>> agent = D4PG("Pendulum-v1", widths=(16,), min_replay=16, batch_size=16, seed=0)
    >>> agent.learn(64).predict(np.zeros(3))[0].shape
    (1,)
    """

    def __init__(self, env: Any, *, seed: int = 0, features: Any = None, **settings: Any) -> None:
        chosen = Settings(**settings)
        robust = chosen.robust
        self._make, env_id = maker(env)
        example = self._make()
        self.observation_space, self.action_space = check_spaces(example)
        self._d_x = int(np.prod(self.observation_space.shape))
        self._code = ActionCode(self.action_space)
        if features is None and robust.needs_head:
            features = "identity"  # the paper's
        self._features = None if features is None else as_features(features, self.observation_space)
        self._d_w = 0 if self._features is None else self._features.d_w
        seed = checks.integer("seed", seed, 0)
        fresh = learner.init(
            chosen.rule, self._d_x, self._code.size, chosen.widths, seed, self._d_w
        )
        self._valuing = Valuing(
            self.action_space, chosen.gamma, learner.atoms_of(chosen.rule), self._d_x,
            self._features,
        )  # fmt: skip
        self._training, self._learning = Training(chosen, seed, fresh), False
        if robust.on:
            follow = None if robust.signal == "pd3" else partial(self._valuing.source, robust)
            self._training.adaptation = Adaptation(
                robust, self._source([example], [0]), chosen.num_envs, self._code.size,
                chosen.sigma, follow,
            )  # fmt: skip
        example.close()
        self._identity = checkpoints.Identity(
            env_id, self.observation_space, self.action_space, self._features
        )

    def _source(self, environments: list[gym.Env], seeds: list[int]) -> Source:
        """What the module hears of environments: from simulators, or the networks as they are."""
        robust = self.settings.robust
        if robust.signal == "pd3":
            return simulated(robust, environments, seeds)
        return self._valuing.source(robust, *self._now())

    def _now(self) -> tuple[Any, Any, Any]:
        """Policy, critic and vector head, if there is one, as NumPy has them."""
        now = self._training.learner
        head = None if now.vector is None else as_numpy(now.vector)
        return as_numpy(now.policy), as_numpy(now.critic), head

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
        """(action, state) for one observation or rows of them; the policy itself has no noise.

        It is the base policy alone, also of an agent with a module: a correction needs to see what
        follows. `ww.RobustWrapper(env, ..., model=agent, M0=agent.M)` adds it.
        """
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
    def M(self) -> np.ndarray:
        """The module's M, (h, d_u, d_w), for actions scaled to [-1, 1]; also to be set."""
        return self._module.M

    @M.setter
    def M(self, M: Any) -> None:
        self._module.M = M

    @property
    def _module(self) -> Adaptation:
        if self._training.adaptation is None:
            raise AttributeError("this agent has no M: it was made without robust=")
        return self._training.adaptation

    @property
    def networks(self) -> dict[str, dict[str, np.ndarray]]:
        """The parameters of "policy" and "critic" as they are now."""
        return dict(zip(("policy", "critic"), self._now(), strict=False))

    @property
    def atoms(self) -> np.ndarray:
        """The support of the value distribution."""
        return self._valuing.atoms

    @property
    def critic(self) -> NetworkCritic:
        """V, Q and their gradients, as they are now."""
        return self._valuing.critic(**self.networks)

    def vector_values(self, form: str | None = None) -> VectorCritic:
        """PD2's values: of the "vector_head", or the paper's "critic_units" (deviation 14).

        If left out, those that the agent's module uses, or the head.
        """
        return self._valuing.vector(form or self.settings.robust.form, *self._now())

    def evaluate(self, episodes: int = 10, seed: int = 0, *, base: bool = False) -> np.ndarray:
        """Returns of episodes without noise; episode i is reset with its own seed.

        A module acts with M as it is, and learns nothing; PD1 keeps its noise (deviation 18). With
        `base` the policy acts alone.
        """
        env = self._make() if base else self._make_adapted(seed)
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

    def _make_adapted(self, seed: int, **options: Any) -> gym.Env:
        """An environment in which the module, if there is one, corrects what the policy does."""
        env, module = self._make(**options), self._training.adaptation
        if module is None:
            return env
        return module.frozen(env, self._source([env], [seed_of(seed, 8)]), seed_of(seed, 9))

    def record(self, path: str | Path, seed: int = 0) -> float:
        """Plays an episode, as `evaluate` does, into a GIF; its return."""
        make = partial(self._make_adapted, seed)
        return record(make, lambda x: self.predict(x)[0], path, seed)

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
        last.npz with everything; a later call on the same folder goes on from there, with the
        same settings and evaluations. `callback` is called after every evaluation and stops
        learning by returning False.
        """
        checks.integer("total_timesteps", total_timesteps, 1)
        evaluation = {
            "eval_every": checks.integer("eval_every", eval_every, 1),
            "eval_episodes": checks.integer("eval_episodes", eval_episodes, 1),
        }
        if callback is not None and not callable(callback):
            raise ValueError(
                "callback must be a function of the agent, called after every evaluation; got "
                f"{callback!r}"
            )
        if self._learning:
            raise ValueError("this agent is learning already: learn cannot be called in a callback")
        folder = None if out is None else Path(out)
        training, identity, chosen = self._training, self._identity, self.settings
        if folder is not None:
            prepare(folder)
            if training.replay is not None and training.evaluation not in ({}, evaluation):
                raise ValueError(
                    f"this agent's run was evaluated with {training.evaluation}, now it is "
                    f"{evaluation}: give the same ones, or no out"
                )
        training.evaluation = evaluation
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
            # Other episodes each time: a noise that decides how long they last would else be a
            # constant of the run. Agents of one seed meet the same ones.
            evaluate=lambda: self.evaluate(
                eval_episodes, seed=seed_of(self.seed, 10, training.timesteps)
            ),
            save_best=self.save,
            checkpoint=lambda path: checkpoints.write(path, identity, training),
            callback=lambda: None if callback is None else callback(self),
        )  # fmt: skip
        sizes = self._d_x, self._code.size, self._d_w
        self._learning = True
        try:
            running.run(
                training, plan, self._make, self._features, sizes, progress_bar,
                self._source,
            )  # fmt: skip
        finally:
            self._learning = False
        return self

    # Files.

    def save(self, path: str | Path) -> None:
        """Networks, optimisers, the module and settings, in one file; not the replay."""
        checkpoints.save(path, self._identity, self._training)

    @classmethod
    def load(
        cls, path: str | Path, env: Any = None, features: Any = None, robust: Any = None
    ) -> "D4PG":
        """An agent as it was saved, for its own environment unless another is given.

        `features` is needed again when they were a matrix or a function: files hold no code.
        `robust` puts another module on a trained agent, which begins with M = 0.
        """
        arrays, header = files.read(path, checkpoints.AGENT, checkpoints.CHECKPOINT)
        if env is None and header["env"] is None:
            raise ValueError(f"{str(path)!r} does not name its environment: pass env=")
        env = header["env"] if env is None else env
        settings = checkpoints.settings_in(header)
        if robust is not None:
            settings["robust"] = checkpoints.module_for(header, robust, path)
        example = maker(env)[0]()
        space = check_spaces(example)[0]
        example.close()
        phi = from_file(header.get("features"), header.get("features_at"), space, features, path)
        agent = cls(env, seed=header["seed"], features=phi, **settings)
        checkpoints.adopt(path, arrays, header, agent._identity, agent._training)
        return agent
