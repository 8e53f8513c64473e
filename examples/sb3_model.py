"""A model of Stable-Baselines3 in a wind, alone and with windward on it.

The model is trained for some seconds, far too short for a good policy: put your own in its place.
Run it with: python examples/sb3_model.py
"""

import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

import windward as ww

model = PPO("MlpPolicy", "Pendulum-v1", n_steps=256, n_epochs=4, device="cpu", seed=0)
model.learn(512)


def windy() -> gym.Env:
    """A pendulum in the wind, which is the same for the same seed."""
    env = ww.envs.Disturbed(gym.make("Pendulum-v1"), "sine:amp=0.2,period=60", channel="qvel")
    env.reset(seed=0)
    return env


base, _ = evaluate_policy(model, windy(), n_eval_episodes=2, warn=False)
env = ww.RobustWrapper(windy(), signal="pd3", learner="mf-gpc", guard=False)  # the one line
adapted, _ = evaluate_policy(model, env, n_eval_episodes=2, warn=False)
print(f"return {base:.0f} alone, {adapted:.0f} with M learning; |M| up to {abs(env.M).max():.1e}")
