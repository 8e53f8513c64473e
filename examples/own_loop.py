"""A loop of one's own, as on a robot: predict, act, observe.

Nothing but observations and rewards goes in. The simulator works out states from observations.
Run it with: python examples/own_loop.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import gymnasium as gym

import windward as ww

# The world: here a Hopper with a payload, elsewhere a robot.
world = ww.envs.Changed(gym.make("Hopper-v5"), {"mass": 1.1})

# The policy that adapts: it has a simulator of the Hopper as trained, and never touches the world.
base = ww.policies.load("Hopper-v5")
policy = ww.robustify(base, "Hopper-v5", signal="pd3", seed=0)

x, _ = world.reset(seed=0)
start, ended, total = True, False, 0.0
while not ended:
    action, _ = policy.predict(x, episode_start=[start])
    x, reward, terminated, truncated, _ = world.step(action)
    policy.observe(reward, x, terminated, truncated)
    start, ended, total = False, terminated or truncated, total + float(reward)
print(f"return {total:.0f}")
print(*policy.decisions, sep="\n")

with TemporaryDirectory() as folder:  # tomorrow, in another process
    policy.save(Path(folder) / "hopper.npz")
    again = ww.robustify(base, "Hopper-v5", signal="pd3", seed=0)
    again.load(Path(folder) / "hopper.npz")

again.freeze()  # what acts goes on, nothing is learned
x, _ = world.reset(seed=1)
action, _ = again.predict(x, episode_start=[True])
print(f"faults: {policy.faults or 'none'}; clipped actions: {policy.clipped}")
