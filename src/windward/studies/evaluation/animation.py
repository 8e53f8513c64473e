"""An animation of an evaluation: a pole, base beside adapted, from the states that were recorded.

Nothing is rendered: states are numbers, and the page draws them itself, so no display and no OpenGL
is needed. Environments whose state is a cart or a pole can be drawn; of others nothing is kept.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.envs.mujoco.inverted_pendulum_v5 import InvertedPendulumEnv

from windward.simulators.base import Physics
from windward.simulators.physics import physics_of
from windward.studies.report import Animation

STEPS = 1000  # of an episode that are kept at most, which keeps a page small

PARTS = {"cart": ("cart", "pole"), "pendulum": ("pole",)}
"""the parts of a drawing, in the order of qpos and qvel"""
FORCES = {
    "cart": (("cart", "force:cart", 0), ("cart", "action", 0),
             ("pole", "force:pole", 0), ("pole", "torque:pole", 1)),
    "pendulum": (("pole", "action", 0),),
}  # fmt: skip
"""(part, channel, i): the i-th number sent to the channel pushes the part along its own way"""


class Body(NamedTuple):
    """What is drawn: a pole on a cart ("cart"), or one that turns about a point ("pendulum")."""

    kind: str
    dt: float  # seconds of a step
    length: float  # of the pole
    rail: float | None = None  # the cart reaches from -rail to rail
    lean: float | None = None  # the episode ends where the angle is larger, in radians


def body_of(env: gym.Env) -> Body | None:
    """How to draw an environment; None for one that cannot be drawn."""
    inner: Any = env.unwrapped
    if physics_of(inner) is None:
        return None
    if isinstance(inner, InvertedPendulumEnv):
        try:
            rail, pole = inner.model.joint("slider").range[1], inner.model.geom("cpole").size[1]
        except KeyError:  # a model of somebody's own
            return None
        return Body("cart", float(inner.dt), 2 * float(pole), float(rail), 0.2)
    if isinstance(inner, CartPoleEnv):
        lean = float(inner.theta_threshold_radians)
        return Body("cart", inner.tau, 2 * inner.length, float(inner.x_threshold), lean)
    if isinstance(inner, PendulumEnv):
        return Body("pendulum", inner.dt, float(inner.l))
    return None


@dataclass
class Film:
    """An episode: the pole's place after 0, 1, 2 ... steps, and what pushed in each step."""

    x: list[float] = field(default_factory=list)  # stays empty for a pendulum
    angle: list[float] = field(default_factory=list)
    pushes: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """(part, number of a channel), such as ("pole", "qvel[1]") -> its value in each step"""
    length: int = 0
    terminated: bool = False


class Camera(gym.Wrapper[Any, Any, Any, Any]):
    """Films some episodes, counted from the first reset; changes nothing."""

    see_through = True

    def __init__(self, env: gym.Env, body: Body, episodes: Collection[int]) -> None:
        super().__init__(env)
        physics = physics_of(env.unwrapped)
        assert physics is not None
        self._physics: Physics = physics
        self._wanted, self._episode = episodes, -1
        self._forces = list(FORCES[body.kind])
        for i, part in enumerate(PARTS[body.kind]):
            velocity = int(physics.parts["qvel"][i])
            self._forces += (part, "qvel", i), (part, "qpos", i), (part, "state", velocity)
        self.films: dict[int, Film] = {}

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        result = super().reset(**options)
        self._episode += 1
        if self._episode in self._wanted:
            self.films[self._episode] = Film()
            self._look(self.films[self._episode])
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step."""
        result = super().step(action)
        film = self.films.get(self._episode)
        if film is not None:
            _, _, terminated, _, info = result
            film.terminated = bool(terminated)
            film.length += 1
            # A state that is not finite cannot be drawn, and so nothing after it.
            if film.length <= STEPS and len(film.angle) == film.length and self._look(film):
                self._feel(film, info.get("disturbance", {}))
        return result

    def _look(self, film: Film) -> bool:
        """Keeps the state as it is now, if it can be drawn."""
        *x, angle = self._physics.state()[self._physics.parts["qpos"]]
        if not np.isfinite([*x, angle]).all():
            return False
        film.angle.append(_short(angle))
        film.x += map(_short, x)
        return True

    def _feel(self, film: Film, told: Mapping[str, Any]) -> None:
        """Keeps what was sent to the channels that push a part."""
        for part, channel, i in self._forces:
            if channel in told:
                value = float(f"{np.ravel(told[channel])[i]:.3g}")
                film.pushes.setdefault((part, f"{channel}[{i}]"), []).append(value)


def _short(value: float) -> float:
    return round(float(value), 4) + 0.0  # no -0.0


Arrows = dict[tuple[str, str], float]
"""(part, number of a channel) -> the largest that it was"""


class Scene(NamedTuple):
    """What was filmed of an evaluation."""

    body: Body
    seed: int
    films: dict[str, dict[int, Film]]  # of each policy, by the number of the episode


class Filming:
    """Puts cameras on the first and the last episode of some policies, for one seed."""

    def __init__(self, env: gym.Env, policies: Collection[str], seed: int, episodes: int) -> None:
        self._body, self._policies, self._seed = body_of(env), policies, seed
        self._wanted = 0, episodes - 1
        self._cameras: dict[str, Camera] = {}

    def on(self, env: gym.Env, policy: str, seed: int) -> gym.Env:
        """The environment, with a camera around it where it is to be filmed."""
        if self._body is None or policy not in self._policies or seed != self._seed:
            return env
        self._cameras[policy] = Camera(env, self._body, self._wanted)
        return self._cameras[policy]

    def scene(self) -> Scene | None:
        """What the cameras have seen; None if the environment cannot be drawn."""
        if self._body is None:
            return None
        films = {policy: camera.films for policy, camera in self._cameras.items()}
        return Scene(self._body, self._seed, films)


def section(scene: Scene, colours: Mapping[str, int]) -> Animation:
    """The animation as a part of the page; `colours` are the numbers of policies' colours."""
    body, films = scene.body, scene.films
    every = [film for each in films.values() for film in each.values()]
    numbers = sorted({number for each in films.values() for number in each})
    pushes = [(push, value) for film in every for push, row in film.pushes.items() for value in row]
    longest: Arrows = {}
    for push, value in pushes:
        longest[push] = max(abs(value), longest.get(push, 0.0))
    arrows = {push: value for push, value in longest.items() if value > 0}
    farthest = max((abs(x) for film in every for x in film.x), default=0.0)
    data = {
        **body._asdict(),
        "half": round(max(farthest + 0.8 * body.length, 1.4 * body.length), 3),  # of the width
        "arrows": [part for part, _ in arrows],
        "policies": [{"name": name, "colour": colours[name]} for name in films],
        "episodes": [
            {"name": f"episode {number + 1}",
             "films": [_data(films[name][number], body, arrows) for name in films]}
            for number in numbers
        ],
    }  # fmt: skip
    title = f"{' beside '.join(films)}, seed {scene.seed}"
    return Animation(title[0].upper() + title[1:], data, _note(body, arrows))


def _data(film: Film, body: Body, arrows: Arrows) -> dict[str, Any]:
    """A film as the page needs it; arrows as shares of the longest, none before the first step."""
    shares = [
        [0, *(round(value / longest, 3) + 0.0 for value in film.pushes.get(push, []))]
        for push, longest in arrows.items()
    ]
    over = film.terminated and len(film.angle) == film.length + 1
    return {
        "x": film.x, "angle": film.angle, "arrows": shares, "end": _end(film, body), "over": over,
    }  # fmt: skip


def _end(film: Film, body: Body) -> str:
    """How a film ends, in words."""
    drawn = len(film.angle) - 1
    if drawn < film.length:
        return f"drawn to step {drawn} of {film.length}"
    if body.lean is None:
        return f"ended at step {drawn}"
    if not film.terminated:
        return f"stands at step {drawn}"
    fell = abs(film.angle[-1]) >= round(body.lean, 4)
    return f"{'fell' if fell else 'ended'} at step {drawn}"


def _note(body: Body, arrows: Arrows) -> str:
    said = [
        f"Both play the same episode, as recorded, {body.dt:g} seconds a step; angles are true to "
        "scale."
    ]
    if body.lean is not None:
        said.append(f"Dashed: an episode ends when the pole leans more than {body.lean:.3g} rad.")
    for (part, channel), longest in arrows.items():
        said.append(f"Arrow at the {part}: what was sent to {channel}, {longest:g} at its longest.")
    return " ".join(said)
