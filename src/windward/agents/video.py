"""An episode as a moving picture."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np


def record(
    make: Callable[..., gym.Env],
    act: Callable[[Any], Any],
    path: str | Path,
    seed: int = 0,
    max_steps: int = 1_000,
) -> float:
    """Plays one episode, writes it as a GIF (or what the ending of `path` says); its return.

    `make` is called with render_mode="rgb_array"; an environment's own error (no OpenGL, no pygame)
    comes out with a hint.
    """
    import imageio.v3 as imageio  # slow to import, and only needed here

    try:
        env = make(render_mode="rgb_array")
        frames, total, over = [], 0.0, False
        x, _ = env.reset(seed=seed)
        frames.append(_frame(env))
        while not over and len(frames) <= max_steps:
            x, reward, terminated, truncated, _ = env.step(act(x))
            total += float(reward)
            over = bool(terminated or truncated)
            frames.append(_frame(env))
    except Exception as error:  # any of many: OpenGL, EGL, pygame, the environment's own
        raise ValueError(
            f"the environment could not be drawn ({type(error).__name__}: {error}); without a "
            "display MuJoCo needs MUJOCO_GL=egl or osmesa, classic control needs pygame"
        ) from error
    env.close()
    fps = int(env.metadata.get("render_fps", 30))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    options = {"duration": 1000 / fps, "loop": 0} if Path(path).suffix == ".gif" else {"fps": fps}
    imageio.imwrite(Path(path), np.stack(frames), **options)
    return total


def _frame(env: gym.Env) -> np.ndarray:
    frame: Any = env.render()
    if frame is None:
        raise ValueError("render() gave nothing: make the environment with render_mode='rgb_array'")
    return np.asarray(frame)
