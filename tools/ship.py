"""Makes the policies that come with the package: `python tools/ship.py ENV [RUN/best.npz]`.

D4PG policies are taken from a run of `windward train`; CartPole's is trained here with SB3's PPO.
Values of reward and observation are fitted to each, and it is evaluated as it is stored.
"""

import csv
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from windward.agents import D4PG, Settings
from windward.policies.fitted import fit_values
from windward.policies.shipped import SHIPPED, load_base, save_base

DATA = Path(__file__).resolve().parents[1] / "src" / "windward" / "policies" / "data"
EPISODES = 100
FITS: dict[str, dict[str, Any]] = {
    # A gait whose values change quickly from step to step, and which large draws throw over.
    "HalfCheetah-v5": {
        "steps": 200_000, "updates": 100_000, "widths": (128, 128), "explore": 0.1, "sigma": 0.1
    },
}  # fmt: skip
"""how values are fitted where the usual way does not do"""


def d4pg(run: str) -> tuple[Any, dict[str, Any], np.ndarray, dict[str, Any]]:
    """(agent, networks, atoms, what it is) of a saved run."""
    agent = D4PG.load(run)
    with Path(run).with_name("curves.csv").open() as file:
        evaluated = [row["steps"] for row in csv.DictReader(file)]
    usual = asdict(Settings())
    changed = {k: v for k, v in asdict(agent.settings).items() if v != usual[k]}
    about = {
        "algorithm": "D4PG",
        "trained": f"windward train --env {agent.env_id} --seed {agent.seed} --steps "
        f"{evaluated[-1]} --eval-every {evaluated[0]}, "
        f"{changed or 'usual settings'}; best.npz, of step {agent.num_timesteps}",
    }
    return agent, agent.networks, agent.atoms, about


def ppo(env_id: str, steps: int = 100_000, seed: int = 0) -> tuple[Any, dict[str, Any], None, dict]:
    """The same of SB3's PPO, trained now."""
    from stable_baselines3 import PPO

    model = PPO(
        "MlpPolicy", env_id, seed=seed, device="cpu", n_steps=512, batch_size=64, gamma=0.99,
        learning_rate=lambda left: 3e-4 * left,
    ).learn(steps)  # fmt: skip
    state = {name: each.numpy() for name, each in model.policy.state_dict().items()}

    def layers(*names: str) -> dict[str, np.ndarray]:
        return {
            f"{letter}{i}": state[f"{name}.{kind}"].T
            for i, name in enumerate(names)
            for letter, kind in (("w", "weight"), ("b", "bias"))
        }

    extract = "mlp_extractor.{}_net.{}"
    networks = {
        "policy": layers(*(extract.format("policy", i) for i in (0, 2)), "action_net"),
        "state_value": layers(*(extract.format("value", i) for i in (0, 2)), "value_net"),
    }
    about = {
        "algorithm": "SB3 PPO",
        "trained": f"stable_baselines3.PPO('MlpPolicy', {env_id!r}, seed={seed}, n_steps=512, "
        f"learning rate 3e-4 falling to 0).learn({steps})",
    }
    return model, networks, None, about


def returns_of(policy: Any, env: gym.Env) -> np.ndarray:
    """Returns of episodes with seeds that no training used."""
    returns = np.zeros(EPISODES)
    for i in range(EPISODES):
        x, _ = env.reset(seed=10_000 + i)
        over = False
        while not over:
            x, reward, terminated, truncated, _ = env.step(policy.predict(x, deterministic=True)[0])
            returns[i] += float(reward)
            over = terminated or truncated
    return returns


def main(env_id: str, run: str | None = None) -> None:
    """Writes one file, and says how good what it holds is."""
    policy, networks, atoms, about = ppo(env_id) if run is None else d4pg(run)
    env, path = gym.make(env_id), DATA / f"{SHIPPED[env_id]}.npz"
    about |= {
        "env": env_id,
        "shipped": " ".join(["python tools/ship.py", env_id, run or ""]).strip(),
    }
    gamma = policy.gamma if run is None else policy.settings.gamma
    # First in half precision: values are fitted to, and returns measured of, what is shipped.
    save_base(path, networks, fit_values(env, policy, steps=100, updates=1), env, about, atoms)
    stored = load_base(path)
    usual = {"steps": 50_000, "updates": 40_000, "widths": (64, 64)}
    fit = {**usual, **FITS.get(env_id, {})}
    values = fit_values(env, stored, gamma=gamma, seed=1, progress_bar=True, **fit)
    returns = returns_of(stored, env)
    about |= {"return": float(returns.mean()), "worst": float(returns.min()), "episodes": EPISODES}
    save_base(path, networks, values, env, about, atoms)
    print(about, values.fit, f"{path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])
