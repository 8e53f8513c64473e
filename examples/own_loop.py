"""A loop of one's own, as on a robot: predict, act, observe.

Nothing but observations and rewards goes in. PD3's simulator works out states from observations.
Run it with: python examples/own_loop.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import gymnasium as gym

import windward as ww

# The world: here a pendulum in a slow wind, elsewhere a robot.
world = gym.make("windward/SinePendulum-v0", pendulum="Pendulum")

# The policy that adapts: it has a model of the calm pendulum, and never touches the world.
base = ww.bases.load("Pendulum-v1")
policy = ww.robustify(base, "Pendulum-v1", signal="pd3", seed=0)

for episode in range(3):
    x, _ = world.reset(seed=episode)
    start, ended, total = True, False, 0.0
    while not ended:
        action, _ = policy.predict(x, episode_start=[start])
        x, reward, terminated, truncated, _ = world.step(action)
        policy.observe(reward, x, terminated, truncated)
        start, ended, total = False, terminated or truncated, total + float(reward)
    print(f"episode {episode}: return {total:.0f}, |M| up to {abs(policy.M).max():.1e}")

with TemporaryDirectory() as folder:  # tomorrow, in another process
    policy.save(Path(folder) / "M.npz")
    again = ww.robustify(base, "Pendulum-v1", signal="pd3")
    again.load(Path(folder) / "M.npz")

again.freeze()  # M acts as it is, without noise
x, _ = world.reset(seed=3)
action, _ = again.predict(x, episode_start=[True])
print(f"faults: {policy.faults or 'none'}; clipped actions: {policy.clipped}")
