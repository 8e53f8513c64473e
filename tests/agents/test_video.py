"""An episode as a moving picture."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import imageio.v3 as imageio
import numpy as np
import pytest

from windward.agents import D4PG


class Dot(gym.Env):
    """A dot goes right for 5 steps; it can be drawn."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = gym.spaces.Box(-10.0, 10.0, (1,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))
    render_mode = "rgb_array"

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.t += 1
        return np.full(1, self.t, np.float32), 2.0, self.t >= 5, False, {}

    def render(self) -> Any:
        frame = np.zeros((16, 16, 3), np.uint8)
        frame[8, 2 * self.t] = 255
        return frame


class Blind(Dot):
    def render(self) -> Any:
        return None


def test_an_episode_becomes_a_gif(tmp_path: Path) -> None:
    total = D4PG(Dot, widths=(8,)).record(tmp_path / "new" / "episode.gif")
    assert total == 10.0
    frames = imageio.imread(tmp_path / "new" / "episode.gif")
    assert frames.shape == (6, 16, 16, 3)
    assert [int(frame[8].max(axis=-1).argmax()) for frame in frames] == [0, 2, 4, 6, 8, 10]


def test_what_cannot_be_drawn_says_why(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"could not be drawn.*render\(\) gave nothing"):
        D4PG(Blind, widths=(8,)).record(tmp_path / "episode.gif")
