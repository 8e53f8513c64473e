"""Discrete actions: DMF-GPC on a cart-pole in the wind.

Corrections go through the base policy's logits, so the base action must be a draw from its softmax.
Run it with: python examples/discrete.py
"""

import gymnasium as gym
import numpy as np

import windward as ww

model = ww.policies.load("CartPole-v1")  # PPO and A2C of Stable-Baselines3 have logits too
windy = gym.make("windward/WindyCartPole-v0", max_episode_steps=200)
env = ww.RobustWrapper(windy, signal="pd3", logits=model, eta=0.1, learner="mf-gpc", guard=False)
rng = np.random.default_rng(0)

for episode in range(3):
    x, _ = env.reset(seed=episode)
    ended, steps, changed = False, 0, 0
    while not ended:
        base = int(np.argmax(model.logits(x[None])[0] + rng.gumbel(size=2)))  # ~ softmax(logits)
        x, _, terminated, truncated, info = env.step(base)
        changed += int(info["windward"]["action"] != base)
        steps, ended = steps + 1, terminated or truncated
    print(f"episode {episode}: {steps} steps, {changed} actions changed")
