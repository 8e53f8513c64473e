"""What an agent is paid, and what it learns from: `python tools/discounted.py OUT RUN.npz ...`.

For each saved agent: length and return of episodes without noise, and over the steps of all of them
V(x_t) by its critic beside the discounted return that followed. A policy may be as good as another
in the second, which is what D4PG maximises, and half as good in the first.
"""

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from windward.agents import D4PG

EPISODES, FIRST_SEED = 20, 5_000


def look(path: str) -> dict[str, Any]:
    """The numbers of one agent."""
    agent = D4PG.load(path)
    critic, gamma = agent.critic, agent.settings.gamma
    assert agent.env_id is not None
    env = gym.make(agent.env_id)
    values, goes, lengths, returns = [], [], [], []
    for i in range(EPISODES):
        x, _ = env.reset(seed=FIRST_SEED + i)
        seen, rewards, over, terminated = [], [], False, False
        while not over:
            seen.append(x)
            x, reward, terminated, truncated, _ = env.step(agent.predict(x)[0])
            rewards.append(float(reward))
            over = terminated or truncated
        after = 0.0 if terminated else float(critic.V(np.array(x)[None])[0])
        for reward in reversed(rewards):
            after = reward + gamma * after
            goes.append(after)
        values.extend(critic.V(np.array(seen)))
        lengths.append(len(rewards))
        returns.append(sum(rewards))
    env.close()
    return {
        "agent": "/".join(Path(path).parts[-2:]), "step": agent.num_timesteps, "gamma": gamma,
        "length": float(np.mean(lengths)), "return": float(np.mean(returns)),
        "discounted_return": float(np.mean(goes)), "V": float(np.mean(values)),
    }  # fmt: skip


if __name__ == "__main__":
    rows = [look(path) for path in sys.argv[2:]]
    Path(sys.argv[1]).write_text(json.dumps(rows, indent=1) + "\n")
    for row in rows:
        print(row)
