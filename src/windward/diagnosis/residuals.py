"""Residuals of recorded steps under parameters θ, and their Jacobian in one batch.

    r_t(θ) = (x_{t+1} - f_θ(x_t, u_t)) / s,   s the usual change of a coordinate in a step

Only velocities are compared where a state has them: positions follow from them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import mujoco
import numpy as np

from windward.diagnosis.parameters import BIAS, Parameter, values_of
from windward.simulators.mujoco import MujocoDynamics
from windward.simulators.variants import MujocoVariants, Variants, variants_of

STEP = 1e-3
"""of finite differences in θ: well above the solver's tolerance"""
PUSH = 1.0
"""newtons: of finite differences in forces"""


class Rows(NamedTuple):
    """Recorded steps, in runs of consecutive ones."""

    x: np.ndarray  # (m, d_x)
    u: np.ndarray  # (m, ...) as the physics takes actions
    x_next: np.ndarray  # (m, d_x)
    run: np.ndarray  # (m,) which run of consecutive steps
    time: np.ndarray  # (m,) step of the episode
    episode: np.ndarray  # (m,)
    push: np.ndarray | None = None  # (m, 3·bodies) forces through the step, where some are known

    def take(self, index: Any) -> "Rows":
        """Some of them."""
        parts: Any = (None if each is None else each[index] for each in self)
        return Rows(*parts)

    @property
    def size(self) -> int:
        """How many steps."""
        return len(self.x)


class Direction(NamedTuple):
    """Where something may push, with its effect on the residual of each row."""

    place: str
    """"force:torso", "action" or "coordinate\""""
    axes: tuple[str, ...]
    effect: np.ndarray  # (m, c, k) change of the residual for one unit
    unit: str


def along(r: np.ndarray, effect: np.ndarray) -> np.ndarray:
    """What must have pushed (m, k) in the directions of `effect`, by least squares at each step."""
    return np.einsum("tkc,tc->tk", np.linalg.pinv(np.nan_to_num(effect)), np.nan_to_num(r))


class Residuals:
    """r(θ) and its Jacobian on rows of steps."""

    def __init__(
        self, dynamics: Any, parameters: Sequence[Parameter], threads: int | None, scale: np.ndarray
    ) -> None:
        self.dynamics, self.parameters = dynamics, list(parameters)
        self._variants: Variants = variants_of(dynamics, threads)
        self.compared = compared(dynamics)
        self.scale = scale[self.compared]
        self.sensed = [i for i, each in enumerate(self.parameters) if each.kind == BIAS]
        """parameters that are a bias of a sensor"""
        self.simulated = 0
        """rows that were simulated so far"""

    @property
    def action_space(self) -> Any:
        """Of the physics."""
        return getattr(self.dynamics, "action_space", None) or self.dynamics.env.action_space

    @property
    def count(self) -> int:
        """How many parameters there are."""
        return len(self.parameters)

    def _values(self, theta: np.ndarray) -> Any:
        return values_of(self.parameters, theta, self.dynamics.parameters.elements)

    def bias(self, theta: np.ndarray) -> np.ndarray:
        """What sensors add to a state (d_x,)."""
        found = np.zeros(self.dynamics.d_x)
        for i in self.sensed:
            each = self.parameters[i]
            found[list(each.elements)] += each.value(float(theta[i]))
        return found

    def derive(self, flag: bool) -> None:
        """Whether a model's derived constants follow its masses; see `MujocoVariants`."""
        if isinstance(self._variants, MujocoVariants):
            self._variants.derive = flag

    def advance(
        self, thetas: Sequence[np.ndarray], x: np.ndarray, u: np.ndarray, force: Any = None
    ) -> np.ndarray:
        """Next states (k, m, d_x) as sensors show them; x is (m, d_x) for all, or (k, m, d_x)."""
        if not self.sensed:
            return self.physics(thetas, x, u, force)
        bias = np.array([self.bias(theta) for theta in thetas])[:, None]
        return self.physics(thetas, x - bias, u, force) + bias

    def physics(
        self, thetas: Sequence[np.ndarray], x: np.ndarray, u: np.ndarray, force: Any = None
    ) -> np.ndarray:
        """Next states (k, m, d_x) under each θ of true states."""
        if x.ndim == 2:
            x = np.broadcast_to(x, (len(thetas), *x.shape))
        self.simulated += len(thetas) * len(u)
        return self._variants.advance([self._values(each) for each in thetas], x, u, force)

    def _gap(self, x_next: np.ndarray, x_pred: np.ndarray) -> np.ndarray:
        return self.dynamics.gap(x_next, x_pred)[..., self.compared] / self.scale

    def at(self, thetas: Sequence[np.ndarray], rows: Rows) -> np.ndarray:
        """r (k, m, c) under each θ."""
        force = None if rows.push is None else np.repeat(rows.push[None], len(thetas), axis=0)
        return self._gap(rows.x_next[None], self.advance(thetas, rows.x, rows.u, force))

    def jacobian(
        self, theta: np.ndarray, rows: Rows, basis: np.ndarray, central: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """r (m, c) and its derivatives (m, c, b) along the columns of `basis`, in one batch.

        Forward differences; `central` ones take twice the simulated steps, and tell combinations
        that have no effect from those that have little.
        """
        steps = STEP * basis.T
        moved = [theta, *(theta + step for step in steps)]
        if central:
            moved += [theta - step for step in steps]
        r = self.at(moved, rows)
        b = len(steps)
        other = r[b + 1 :] if central else r[:1]
        slopes = (r[1 : b + 1] - other) / (2 * STEP if central else STEP)
        return r[0], np.moveaxis(slopes, 0, -1)

    def unit(self, columns: Sequence[int]) -> np.ndarray:
        """The basis of single parameters."""
        return np.eye(self.count)[:, list(columns)]

    def directions(
        self, theta: np.ndarray, rows: Rows, only: str = "", axes: Sequence[int] | None = None
    ) -> list[Direction]:
        """Where a wind may push: bodies, the action, single coordinates.

        Or `only` one of them, along some of its `axes`.
        """
        found: list[Direction] = []
        if isinstance(self.dynamics, MujocoDynamics) and only[:6] in ("", "force:"):
            found += self._on_bodies(theta, rows, only[6:], axes)
            axes = None if only else axes
        if rows.u.dtype.kind == "f" and only in ("", "action"):
            found.append(self._on_action(theta, rows))
        names = self.names
        for i, name in enumerate(names):
            effect = np.zeros((rows.size, len(names), 1))
            effect[:, i] = 1.0 / self.scale[i]
            found.append(Direction(f"coordinate:{name}", ("",), effect, "a step"))
        found = [each for each in found if not only or each.place == only]
        if axes is None:
            return found
        return [
            each._replace(axes=tuple(each.axes[i] for i in axes), effect=each.effect[..., axes])
            for each in found
        ]

    def _planar(self) -> list[int]:
        """Axes of forces that can be felt: a robot in the plane has no motion along y."""
        model = self.dynamics.model
        slides = model.jnt_axis[model.jnt_type == int(mujoco.mjtJoint.mjJNT_SLIDE)]
        hinges = model.jnt_axis[model.jnt_type == int(mujoco.mjtJoint.mjJNT_HINGE)]
        flat = len(slides) + len(hinges) == model.njnt and not np.abs(slides[:, 1]).any()
        # Hinges about y alone, in bodies that are not turned out of the plane.
        flat = flat and bool((np.abs(hinges[:, [0, 2]]) < 1e-9).all())
        flat = flat and bool((np.abs(model.body_quat[:, [1, 3]]) < 1e-9).all())
        return [0, 2] if flat else [0, 1, 2]

    def _on_bodies(
        self, theta: np.ndarray, rows: Rows, only: str, axes: Sequence[int] | None
    ) -> list[Direction]:
        model = self.dynamics.model
        bodies = self.dynamics.parameters.elements["mass"]
        own = [
            i for i, name in enumerate(bodies) if model.body_mass[i + 1] > 0 and only in ("", name)
        ]
        pushed = self._planar()
        pushed = pushed if axes is None else [pushed[axis] for axis in axes]
        force = np.zeros((1 + len(pushed) * len(own), rows.size, 3 * len(bodies)))
        if rows.push is not None:
            force += rows.push
        for row, (i, axis) in enumerate((i, axis) for i in own for axis in pushed):
            force[row + 1, :, 3 * i + axis] += PUSH
        moved = self.advance([theta] * len(force), rows.x, rows.u, force)
        effect = self._gap(moved[1:], moved[:1]) / PUSH
        names = tuple("xyz"[axis] for axis in pushed)
        k = len(pushed)
        return [
            Direction(
                f"force:{bodies[i]}",
                names,
                np.moveaxis(effect[k * place : k * place + k], 0, -1),
                "N",
            )
            for place, i in enumerate(own)
        ]

    def inside(self, rows: Rows, amount: np.ndarray) -> np.ndarray:
        """Where a push on the action of this usual size is not cut off by the action's bounds."""
        space = self.action_space
        u = np.asarray(rows.u, dtype=np.float64).reshape(rows.size, -1) - amount
        room = 3 * np.median(np.abs(amount), axis=0) + 1e-9
        return (u > space.low.ravel() + room) & (u < space.high.ravel() - room)

    def pushed(
        self, rows: Rows, direction: Direction, amount: np.ndarray
    ) -> tuple[Rows, np.ndarray]:
        """Rows with (m, k) along a direction added to what pushes them, and what that came to."""
        if direction.place == "action":
            space = self.action_space
            u = np.asarray(rows.u, dtype=np.float64)
            moved = u.reshape(rows.size, -1).copy()
            moved[:, [int(axis) for axis in direction.axes]] += amount
            moved = np.clip(moved.reshape(u.shape), space.low, space.high)
            change = (moved - u).reshape(rows.size, -1)
            own = change[:, [int(axis) for axis in direction.axes]]
            return rows._replace(u=moved), own
        bodies = self.dynamics.parameters.elements["mass"]
        place = bodies.index(direction.place.partition(":")[2])
        push = np.zeros((rows.size, 3 * len(bodies)))
        if rows.push is not None:
            push += rows.push
        for column, axis in enumerate(direction.axes):
            push[:, 3 * place + "xyz".index(axis)] += amount[:, column]
        return rows._replace(push=push), amount

    def _on_action(self, theta: np.ndarray, rows: Rows) -> Direction:
        space = self.action_space
        u = np.asarray(rows.u, dtype=np.float64).reshape(rows.size, -1)
        high = np.broadcast_to(np.asarray(space.high, np.float64).ravel(), u.shape)
        step = np.where(u + STEP > high, -STEP, STEP)
        effects = []
        base = self.advance([theta], rows.x, rows.u)[0]
        for i in range(u.shape[1]):
            moved = u.copy()
            moved[:, i] += step[:, i]
            after = self.advance([theta], rows.x, moved.reshape(rows.u.shape))[0]
            effects.append(self._gap(after, base) / step[:, i, None])
        axes = tuple(str(i) for i in range(u.shape[1]))
        return Direction("action", axes, np.stack(effects, axis=-1), "")

    @property
    def names(self) -> list[str]:
        """Names of the compared coordinates."""
        names = coordinates(self.dynamics)
        return [names[i] for i in self.compared]


def compared(dynamics: Any) -> np.ndarray:
    """Indices of the state's velocities, or of all coordinates where there are none."""
    parts = dynamics.parts
    return np.asarray(parts["qvel"]) if "qvel" in parts else np.arange(dynamics.d_x)


def coordinates(dynamics: Any) -> list[str]:
    """Names of a state's coordinates: joints for MuJoCo's velocities, numbers elsewhere."""
    names = [str(i) for i in range(dynamics.d_x)]
    if isinstance(dynamics, MujocoDynamics):
        model = dynamics.model
        for part, first, address in (
            ("q", 0, model.jnt_qposadr),
            ("v", model.nq, model.jnt_dofadr),
        ):
            ends = [*address[1:].tolist(), model.nq if part == "q" else model.nv]
            for j in range(model.njnt):
                for k in range(int(address[j]), int(ends[j])):
                    own = model.joint(j).name or str(j)
                    several = ends[j] - address[j] > 1
                    names[first + k] = own + (f".{k - int(address[j])}" if several else "")
    return names
