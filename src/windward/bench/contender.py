"""One contender of `windward bench train`: reads numbers of steps, answers with steps a second."""

import importlib
import sys
from time import perf_counter
from typing import Any

import gymnasium as gym

ENV = "Hopper-v5"
WIDTHS = (256, 256, 256)
WARM_UP = 2_000


def _ours() -> Any:
    """D4PG as `windward train` runs it: 4 environments, one update every 8 steps."""
    from windward.agents import D4PG
    from windward.agents.threads import one_core_each

    one_core_each()
    agent = D4PG(ENV, replay_size=100_000).learn(WARM_UP, eval_every=10**9)
    return lambda steps: agent.learn(agent.num_timesteps + steps, eval_every=10**9)


def _peer(name: str) -> Any:
    """DDPG with the same widths and batch, one update every 8 steps of one environment."""
    library: Any = importlib.import_module({"sbx": "sbx", "sb3": "stable_baselines3"}[name])
    model = library.DDPG(
        "MlpPolicy", gym.make(ENV), policy_kwargs={"net_arch": list(WIDTHS)}, batch_size=256,
        train_freq=8, gradient_steps=1, learning_starts=1_000, buffer_size=100_000, seed=0,
    )  # fmt: skip
    model.learn(WARM_UP)
    return lambda steps: model.learn(steps, reset_num_timesteps=False)


def main(name: str) -> None:
    """Says ready, then times what it is asked to."""
    train = _ours() if name == "ours" else _peer(name)
    print("ready", flush=True)
    for line in sys.stdin:
        start = perf_counter()
        train(int(line))
        print(int(line) / (perf_counter() - start), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
