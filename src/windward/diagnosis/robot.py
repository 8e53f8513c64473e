"""A MuJoCo robot with what changed on it: bodies coloured by factor, joints and pushes marked."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import mujoco
import numpy as np

from windward.diagnosis.charts import INK, MUTED, RULE, SERIES, drawing, svg
from windward.diagnosis.diagnosis import Change, Diagnosis
from windward.figures import panels
from windward.simulators.mujoco import MujocoDynamics
from windward.simulators.simulator import Simulator

GREY, HEAVY, LIGHT = (0.63, 0.66, 0.69), (0.84, 0.37, 0.0), (0.0, 0.45, 0.70)
"""as nominal, more, less; told apart with any kind of colour vision"""
MOVED = SERIES[3]
LEAST = 1.25
"""factor that has the full colour at least: small changes look small"""
ON_BODY, ON_JOINT = ("mass", "inertia", "com"), ("gain", "damping", "armature", "frictionloss")
SIDE, ABOVE = (0, 2), (0, 1)
VIEWS = {SIDE: "from the side (x, z)", ABOVE: "from above (x, y)"}
TOP_GROUP = 2
"""MuJoCo's own viewer hides geoms of higher groups"""
PLANE = int(mujoco.mjtGeom.mjGEOM_PLANE)
NOT_DRAWN = (PLANE, int(mujoco.mjtGeom.mjGEOM_HFIELD), int(mujoco.mjtGeom.mjGEOM_SDF))
ROUNDED = (int(mujoco.mjtGeom.mjGEOM_SPHERE), int(mujoco.mjtGeom.mjGEOM_CAPSULE))
ROUND = np.stack([f(np.linspace(0, 2 * np.pi, 48, endpoint=False)) for f in (np.cos, np.sin)], 1)


class Mark(NamedTuple):
    """A number on the drawing, and what it stands for."""

    number: int
    where: str
    names: tuple[str, ...]
    """of changes"""


class Drawing(NamedTuple):
    """A robot from one or two sides."""

    views: tuple[tuple[str, str], ...]
    """title and SVG of each"""
    marks: tuple[Mark, ...]
    everywhere: tuple[str, ...]
    """changes of all bodies or joints alike"""
    full: float | None
    """factor that has the full colour; None where no body has one"""
    moved: bool
    """whether a body is coloured because its centre of mass moved"""
    push: str
    """body that the wind pushes, or \"\""""


class _Scene(NamedTuple):
    """A model where it stands at first, and what is to be seen on it."""

    model: Any
    data: Any
    factors: Mapping[int, float]  # body -> factor
    moved: frozenset[int]  # other bodies, whose centre of mass moved
    places: Sequence[tuple[Mark, np.ndarray]]
    push: tuple[np.ndarray, np.ndarray] | None  # where, and how strong along x, y, z
    full: float


def draw(diagnosis: Diagnosis, changes: Mapping[str, Change]) -> Drawing | None:
    """The robot with its changes; None where there is no model or nothing to see on it."""
    dynamics = _dynamics(diagnosis)
    if dynamics is None:
        return None
    model, data = dynamics.model, mujoco.MjData(dynamics.model)
    start = getattr(getattr(diagnosis.env, "unwrapped", None), "init_qpos", None)
    if start is not None and np.shape(start) == (model.nq,):
        data.qpos[:] = start
    mujoco.mj_forward(model, data)
    elements = {kind: list(names) for kind, names in dynamics.parameters.elements.items()}
    places = _places(model, data, elements, changes)
    factors = _factors(elements, changes)
    coms = {elements["mass"].index(mark.where) + 1 for mark, _ in places
            if any(name.startswith("com:") for name in mark.names)}  # fmt: skip
    moved = frozenset(coms - set(factors))
    everywhere = tuple(name for name in changes if name in (*ON_BODY, *ON_JOINT))
    body, push = _push(diagnosis, data, elements)
    if not (places or factors or everywhere or body):
        return None
    full = max([LEAST, *(max(each, 1 / each) for each in factors.values())])
    scene = _Scene(model, data, factors, moved, places, push, full)
    views = tuple((VIEWS[view], _view(scene, view)) for view in _sides(model, data))
    marks = tuple(mark for mark, _ in places)
    return Drawing(views, marks, everywhere, full if factors else None, bool(moved), body)


def _dynamics(diagnosis: Diagnosis) -> MujocoDynamics | None:
    nominal = diagnosis.nominal
    dynamics = nominal.dynamics if isinstance(nominal, Simulator) else None
    return dynamics if isinstance(dynamics, MujocoDynamics) else None


def _factors(elements: Mapping[str, list[str]], changes: Mapping[str, Change]) -> dict[int, float]:
    """Factor of each body that has one: of its mass, or else of its inertia."""
    found: dict[int, float] = {}
    for i, body in enumerate(elements["mass"]):
        for kind in ("mass", "inertia"):
            own = [changes[name].factor for name in (kind, f"{kind}:{body}") if name in changes]
            if own and np.prod(own) > 0:
                found[i + 1] = float(np.prod(own))
                break
    return found


def _places(
    model: Any, data: Any, elements: Mapping[str, list[str]], changes: Mapping[str, Change]
) -> list[tuple[Mark, np.ndarray]]:
    """Numbered places of single changes, from top to bottom."""
    found: dict[tuple[str, int], tuple[str, list[str], np.ndarray]] = {}
    for name in changes:
        kind, _, element = name.partition(":")
        if kind not in elements or element not in elements[kind]:
            continue
        if kind in ON_BODY:
            body = element.rpartition(".")[0] if kind == "com" else element
            i = elements["mass"].index(body) + 1
            key, where, point = ("body", i), body, data.xipos[i]
        elif kind in ON_JOINT:
            joint = _joint(model, kind, elements[kind].index(element), element)
            if joint is None:
                continue
            key, where, point = ("joint", joint), element, data.xanchor[joint]
        else:
            continue
        found.setdefault(key, (where, [], np.array(point)))[1].append(name)
    ordered = sorted(found.values(), key=lambda each: (-each[2][2], each[2][0], each[2][1]))
    return [
        (Mark(number, where, tuple(names)), point)
        for number, (where, names, point) in enumerate(ordered, start=1)
    ]


def _joint(model: Any, kind: str, index: int, name: str) -> int | None:
    """The joint of a motor or of a joint's own parameter."""
    if kind == "gain":
        driven = model.actuator_trntype[index] == int(mujoco.mjtTrn.mjTRN_JOINT)
        return int(model.actuator_trnid[index, 0]) if driven else None
    found = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, name)
    if found < 0 and name.isdigit() and int(name) < model.njnt:
        found = int(name)  # joints without a name are called by their number
    return found if found >= 0 else None


def _push(
    diagnosis: Diagnosis, data: Any, elements: Mapping[str, list[str]]
) -> tuple[str, tuple[np.ndarray, np.ndarray] | None]:
    """The body that a wind pushes, where that is, and how strong it is along each axis."""
    wind = diagnosis.wind
    if wind is None:
        return "", None
    kind, _, body = wind.place.partition(":")
    if kind != "force" or body not in elements["mass"]:
        return "", None
    strength = np.zeros(3)
    for axis in wind.axes:
        if axis.name in "xyz":
            strength["xyz".index(axis.name)] = axis.size
    return body, (np.array(data.xipos[elements["mass"].index(body) + 1]), strength)


def _visible(model: Any) -> list[int]:
    return [
        geom
        for geom in range(model.ngeom)
        if int(model.geom_type[geom]) not in NOT_DRAWN
        and model.geom_group[geom] <= TOP_GROUP
        and model.geom_rgba[geom, 3] > 0
    ]


def _sides(model: Any, data: Any) -> list[tuple[int, int]]:
    """From which sides there is something to see."""
    own = [geom for geom in _visible(model) if model.geom_bodyid[geom] > 0]
    points = np.concatenate([_points(model, data, geom) for geom in own] or [np.zeros((1, 3))])
    _, width, height = size = np.ptp(points, axis=0)
    views = [SIDE] if height > 0.15 * size.max() else []
    if not views or width > 0.6 * size.max():
        views.append(ABOVE)
    return views


def _points(model: Any, data: Any, geom: int) -> np.ndarray:
    """Points (n, 3) of a geom whose hull it is; of a rounded one without its radius."""
    size, kind = model.geom_size[geom], mujoco.mjtGeom(model.geom_type[geom])
    signs = np.stack(np.meshgrid(*[[-1.0, 1.0]] * 3), -1).reshape(-1, 3)
    match kind:
        case mujoco.mjtGeom.mjGEOM_SPHERE:
            own = np.zeros((1, 3))
        case mujoco.mjtGeom.mjGEOM_CAPSULE:
            own = np.array([[0.0, 0.0, -size[1]], [0.0, 0.0, size[1]]])
        case mujoco.mjtGeom.mjGEOM_CYLINDER:
            ring = size[0] * ROUND
            ends = [np.full((len(ring), 1), each) for each in (-size[1], size[1])]
            own = np.concatenate([np.hstack([ring, end]) for end in ends])
        case mujoco.mjtGeom.mjGEOM_ELLIPSOID:
            tilt = np.linspace(-np.pi / 2, np.pi / 2, 25)
            own = size * np.concatenate(
                [np.hstack([np.cos(a) * ROUND, np.full((len(ROUND), 1), np.sin(a))]) for a in tilt]
            )
        case mujoco.mjtGeom.mjGEOM_MESH:
            mesh = model.geom_dataid[geom]
            first = model.mesh_vertadr[mesh]
            own = model.mesh_vert[first : first + model.mesh_vertnum[mesh]]
        case _:
            own = signs * size
    found: np.ndarray = data.geom_xpos[geom] + own @ data.geom_xmat[geom].reshape(3, 3).T
    return found


def _outline(model: Any, data: Any, geom: int, view: tuple[int, int]) -> np.ndarray:
    """The outline (n, 2) of a geom as seen from a side."""
    points = _points(model, data, geom)[:, view]
    if int(model.geom_type[geom]) in ROUNDED:
        rim = model.geom_size[geom, 0] * ROUND
        points = (points[:, None] + rim[None]).reshape(-1, 2)
    return hull(points)


def hull(points: np.ndarray) -> np.ndarray:
    """The convex hull of points in a plane, counterclockwise; for points on a line its ends.

    >>> hull(np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.2], [1.0, 1.0], [0.0, 1.0]])).tolist()
    [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    """

    def chain(ordered: np.ndarray) -> list[np.ndarray]:
        kept: list[np.ndarray] = []
        for p in ordered:
            while len(kept) > 1:
                (ax, ay), (bx, by) = kept[-1] - kept[-2], p - kept[-2]
                if ax * by - ay * bx > 0:
                    break
                kept.pop()
            kept.append(p)
        return kept[:-1]

    ordered = np.unique(points, axis=0)
    if len(ordered) < 3:
        return ordered
    return np.array(chain(ordered) + chain(ordered[::-1]))


def colour(factor: float, full: float) -> tuple[float, float, float]:
    """Grey as nominal, orange for more, blue for less; the full colour at `full` and 1 / `full`."""
    share = float(np.clip(np.log(factor) / np.log(full), -1.0, 1.0))
    end = HEAVY if share > 0 else LIGHT
    r, g, b = (
        (1 - abs(share)) * own + abs(share) * far for own, far in zip(GREY, end, strict=True)
    )
    return r, g, b


def _view(scene: _Scene, view: tuple[int, int]) -> str:
    """The robot from one side."""
    model, data = scene.model, scene.data
    changed = {*scene.factors, *scene.moved}

    def order(geom: int) -> tuple[bool, float]:
        """What changed is drawn over the rest; otherwise what is nearer over what is behind."""
        return int(model.geom_bodyid[geom]) in changed, _depth(model, data, geom, view)

    geoms = sorted(_visible(model), key=order)
    outlines = {geom: _outline(model, data, geom, view) for geom in geoms}
    own = [outline for geom, outline in outlines.items() if model.geom_bodyid[geom] > 0]
    around = np.concatenate(own or [np.zeros((1, 2))])
    low, high = around.min(axis=0), around.max(axis=0)
    span = max(float((high - low).max()), 1e-6)
    if scene.push is not None:  # room for its arrows
        at = scene.push[0][list(view)]
        low, high = np.minimum(low, at - 0.3 * span), np.maximum(high, at + 0.3 * span)
    low, high = low - 0.06 * span, high + 0.06 * span
    wide, tall = high - low
    scale = min(4.4 / wide, 3.6 / tall)
    with drawing("robot" + VIEWS[view]):
        from matplotlib.patches import Polygon

        figure, (axes,) = panels(1, max(1.4, wide * scale), max(1.0, tall * scale))
        axes.set_axis_off()
        for number, geom in enumerate(geoms):
            body = int(model.geom_bodyid[geom])
            still = body == 0
            fill: Any = colour(scene.factors.get(body, 1.0), scene.full)
            if body in scene.moved:
                fill = MOVED
            axes.add_patch(
                Polygon(
                    outlines[geom],
                    facecolor=RULE if still else fill,
                    edgecolor=RULE if still else INK,
                    linewidth=0.8,
                    joinstyle="round",
                    zorder=2 + (0 if still else 1 + number / len(geoms)),
                )
            )
        for plane in np.flatnonzero(model.geom_type == PLANE) if view == SIDE else ():
            if data.geom_xmat[plane, 8] > 0.99:  # level
                axes.axhline(data.geom_xpos[plane, 2], color=MUTED, linewidth=1.0, zorder=1)
        _arrows(axes, scene, view, 0.28 * span)
        for mark, point in scene.places:
            axes.plot(*point[list(view)], "o", markersize=13, markerfacecolor="white",
                      markeredgecolor="black", markeredgewidth=0.8, zorder=7)  # fmt: skip
            axes.annotate(str(mark.number), point[list(view)], color="black", ha="center",
                          va="center_baseline", fontsize=9, zorder=8)  # fmt: skip
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        return svg(figure)


def _depth(model: Any, data: Any, geom: int, view: tuple[int, int]) -> float:
    """How near the viewer a geom comes: from the side y falls, from above z grows."""
    axis, sign = (1, -1.0) if view == SIDE else (2, 1.0)
    rim = model.geom_size[geom, 0] if int(model.geom_type[geom]) in ROUNDED else 0.0
    return float((sign * _points(model, data, geom)[:, axis]).max() + rim)


def _arrows(axes: Any, scene: _Scene, view: tuple[int, int], length: float) -> None:
    """A wind's arrow along each axis that is seen from here."""
    if scene.push is None:
        return
    point, strength = scene.push
    strongest = max(float(strength.max()), 1e-300)
    for column, axis in enumerate(view):
        reach = length * strength[axis] / strongest
        if reach < 0.1 * length:
            continue
        start, end = point[list(view)].copy(), point[list(view)].copy()
        start[column] -= reach
        end[column] += reach
        style = {"arrowstyle": "<|-|>", "color": SERIES[2], "linewidth": 2.2, "shrinkA": 0,
                 "shrinkB": 0, "mutation_scale": 14}  # fmt: skip
        axes.annotate("", xy=end, xytext=start, arrowprops=style, zorder=6)
