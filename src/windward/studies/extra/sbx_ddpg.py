"""One run of SBX's DDPG for the study `learning`, in a process of its own.

JAX is then set up as SBX's users have it. Steps, updates, batch, widths, learning rate, discount,
noise and evaluations are D4PG's. What is SBX's own: a scalar critic, one-step targets, soft target
copies, no layer norm, one environment, and uniform actions until the first update.
"""

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from windward.agents import Settings
from windward.agents.checkpoints import settings_in
from windward.agents.progress import Progress
from windward.agents.training import seed_of
from windward.atomic import write_rows
from windward.studies.runs.store import CURVES

TASK = "task.json"
SHOWN_EVERY = 200  # steps between looks at the progress bar


def evaluate(model: Any, env: str, episodes: int, seed: int) -> np.ndarray:
    """Returns of episodes without noise, reset with the seeds of `D4PG.evaluate`."""
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    world = DummyVecEnv([lambda: Monitor(gym.make(env))])
    returns = np.zeros(episodes)
    for i in range(episodes):
        world.seed(seed_of(seed, 3, i))
        returns[i], _ = evaluate_policy(model, world, n_eval_episodes=1)
    world.close()
    return returns


def make(env: str, seed: int, settings: Settings) -> Any:
    """SBX's DDPG with D4PG's settings, where it has the same ones."""
    from sbx import DDPG
    from stable_baselines3.common.noise import NormalActionNoise

    world = gym.make(env)
    shape = world.action_space.shape or ()
    steps_per_update = settings.batch_size / settings.samples_per_insert
    return DDPG(
        "MlpPolicy",
        world,
        learning_rate=settings.learning_rate,
        qf_learning_rate=settings.learning_rate,
        buffer_size=settings.replay_size,
        learning_starts=settings.min_replay,
        batch_size=settings.batch_size,
        gamma=settings.gamma,
        train_freq=max(1, round(steps_per_update)),
        gradient_steps=max(1, round(1 / steps_per_update)),
        # SB3 adds noise to actions scaled to [-1, 1], as D4PG does.
        action_noise=NormalActionNoise(np.zeros(shape), np.full(shape, settings.sigma)),
        policy_kwargs={"net_arch": list(settings.widths)},
        seed=seed,
    )


def train(
    env: str,
    seed: int,
    steps: int,
    eval_every: int,
    eval_episodes: int,
    settings: Settings,
    out: Path,
) -> None:
    """Trains from the start; writes the curve anew after every evaluation."""
    model = make(env, seed, settings)
    rows: list[dict[str, Any]] = []

    def recent() -> list[float]:
        return [episode["r"] for episode in model.ep_info_buffer][-20:]

    def evaluated() -> None:
        returns = evaluate(model, env, eval_episodes, seed)
        row = {
            "steps": model.num_timesteps,
            "updates": model._n_updates,
            "eval_return": float(returns.mean()),
            "eval_worst": float(returns.min()),
            "train_return": float(np.mean(recent())) if recent() else np.nan,
        }
        rows.append(row)
        write_rows(out, rows)

    with Progress(steps, 0, shown=True) as progress:

        def each_step(*_: Any) -> bool:
            now = model.num_timesteps
            if now % SHOWN_EVERY == 0:
                progress.advance(SHOWN_EVERY, recent())
            if now % eval_every == 0 and now <= steps:
                evaluated()
            return True  # anything else would end learning

        model.learn(steps, callback=each_step)


def main(folder: Path) -> None:
    """Makes the run that task.json in a folder asks for; its curve goes there too."""
    asked = json.loads((folder / TASK).read_text())
    train(
        asked["env"], asked["seed"], asked["steps"], settings=Settings(**settings_in(asked)),
        out=folder / CURVES, **asked["evaluation"],
    )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
