"""The page of a diagnosis: whole in one file, escaped, the same each time, with what was found."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import pytest

import windward as ww
from windward.diagnosis import Change, Diagnosis, Wind, robot
from windward.diagnosis.diagnosis import Trace
from windward.diagnosis.report import ALL_SHOWN, ROWS, headline, panels_of, write_report
from windward.diagnosis.wind import Axis, Coordinate, Model, Sine
from windward.envs import Changed, Disturbed

EVIL = '</h1><script>alert("$x^{2}$")</script>&amp;'
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """Elements that are open, and ids, of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words += data


def page_of(diagnosis: Diagnosis, folder: Path) -> tuple[str, Page]:
    text = write_report(diagnosis, folder / "report.html").read_text()
    page = Page(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert "script" not in page.tags
    return text, page


@pytest.fixture(scope="module")
def hopper() -> Diagnosis:
    world = Changed(gym.make("Hopper-v5"), {"mass:torso": 1.3})
    windy = Disturbed(world, "sine:amp=3,period=60", "force:torso")
    return ww.diagnose(None, windy, steps=200)


def made_up(**parts: Any) -> Diagnosis:
    """A diagnosis of nothing in particular, with a wind along two axes in two episodes."""
    t = np.arange(40.0)
    wave = np.stack([np.sin(2 * np.pi * t / 20), 0.2 * np.ones(40)], axis=1)
    axes = (
        Axis("x", 1.0, 0.9, Model(0.0, 0.0, 0, (Sine(1.0, 20.0),), (), 0.01)),
        Axis("z", 0.2, 0.0, Model(0.2, 0.0, 0, (), (), 0.01)),
    )
    coordinates = (Coordinate("rootx", 0.1, 0.9, 20.0), Coordinate("rootz", 0.1, 0.0, None))
    wind = Wind("force:torso", "N", axes, (wave, wave), 0.95, coordinates, 0.008)
    trace = Trace(np.full(80, 0.5), np.zeros(80), np.repeat([0, 1], 40))
    usual: dict[str, Any] = {
        "changes": {"mass:torso": Change(1.3, 1.2, 1.4)},
        "factors": {
            "mass:torso": Change(1.3, 1.2, 1.4),
            "mass:leg": Change(1.0, 0.9, 1.1),
            "gravity": Change(1.0, 0.4, 2.6, seen=False),
            "com:torso.x": Change(0.01, -0.01, 0.03, "m"),
        },
        "wind": wind,
        "unexplained": 0.02,
        "deviation": 0.5,
        "env_id": "Hopper-v5",
        "steps": 80,
        "episodes": 2,
        "seconds": 1.5,
        "simulated": 4000,
        "trace": trace,
    }
    return Diagnosis(**usual | parts)


def test_the_page_says_what_changed_where_and_when(hopper: Diagnosis, tmp_path: Path) -> None:
    text, page = page_of(hopper, tmp_path)
    words = " ".join(page.words.split())
    assert "Hopper-v5: mass:torso changed and there is a wind" in words
    assert re.search(r"mass:torso× 1\.30*[01]\.\d+ to 1\.\d+\+30 %", words)
    assert "from the side (x, z)" in words
    assert "wind on torso" in words
    assert "with the changes" in words
    assert "force x" in words
    assert "period 60 steps (0.48 s)" in words
    assert "thigh_joint" in words  # among the coordinates
    assert text.count("<svg") == 4  # robot, residual, wind, spectrum


def test_it_opens_from_disk_and_asks_for_nothing(hopper: Diagnosis, tmp_path: Path) -> None:
    text, _ = page_of(hopper, tmp_path)
    assert text.isascii()
    outside = re.sub(r'xmlns(:xlink)?="http://www\.w3\.org/[^"]+"', "", text)
    assert "//" not in re.sub(r"/\*.*?\*/", "", outside)
    assert 'Content-Security-Policy" content="default-src ' in text
    for drawing in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        tree = ET.fromstring(drawing)
        ids = {each.get("id") for each in tree.iter()}
        uses = re.findall(r'(?:href="#|url\(#)([^")]+)', drawing)
        assert set(uses) <= ids


def test_the_same_diagnosis_gives_the_same_bytes(hopper: Diagnosis, tmp_path: Path) -> None:
    first, again = (hopper.report(tmp_path / f"{i}.html").read_bytes() for i in (1, 2))
    assert first == again
    hopper.save(tmp_path / "diagnosis.npz")
    loaded = Diagnosis.load(tmp_path / "diagnosis.npz")
    text, page = page_of(loaded, tmp_path)
    assert "from the side" not in page.words  # there is no model in a file
    assert text.count("<svg") == 3


def test_nothing_of_a_diagnosis_is_code(tmp_path: Path) -> None:
    plain = made_up()
    assert plain.wind is not None
    axes = tuple(each._replace(name=EVIL) for each in plain.wind.axes)
    coordinates = tuple(each._replace(name=EVIL) for each in plain.wind.coordinates)
    wind = plain.wind._replace(place=f"force:{EVIL}", unit=EVIL, axes=axes, coordinates=coordinates)
    change = Change(1.3, 1.2, 1.4, EVIL)
    evil = replace(
        plain, changes={EVIL: change}, factors={EVIL: change, f"{EVIL}:{EVIL}": change},
        wind=wind, together=((EVIL, EVIL),), env_id=EVIL, notes=(EVIL,), env_options={EVIL: EVIL},
    )  # fmt: skip
    text, page = page_of(evil, tmp_path)
    assert "<script" not in text
    assert EVIL in page.words


def test_what_stays_unexplained_is_said_first(tmp_path: Path) -> None:
    change = {"mass:torso": Change(1.3, 1.2, 1.4)}
    text, page = page_of(made_up(unexplained=0.4, changes={}, suspects=change), tmp_path)
    words = page.words
    assert "Hopper-v5: 40 % of the deviation is not explained" in words
    assert words.index("a stuck joint") < words.index("too much is unexplained to be sure")
    assert 'class="lead alert"' in text
    assert 'class="row doubtful"' in text


def test_a_diagnosis_of_nothing_is_a_page_too(tmp_path: Path) -> None:
    text, page = page_of(Diagnosis({}, {}, None, 0.0), tmp_path)
    assert "The environment: nothing changed" in page.words
    assert "<svg" not in text


@pytest.mark.parametrize("steps", [1, 3, 12])
def test_short_episodes_and_a_wind_in_no_place(steps: int, tmp_path: Path) -> None:
    plain = made_up()
    assert plain.wind is not None
    short = plain.wind._replace(series=(plain.wind.series[0][:steps],))
    assert page_of(replace(plain, wind=short), tmp_path)
    nowhere = plain.wind._replace(place="", unit="", axes=(), series=(), explained=0.0)
    text, page = page_of(replace(plain, wind=nowhere, changes={}), tmp_path)
    assert "something is left over" in page.words
    assert text.count("<svg") == 1


def test_numbers_that_are_not_finite_leave_the_page_whole(tmp_path: Path) -> None:
    odd = {"mass": Change(1.0, 0.0, np.inf, seen=False), "gain": Change(np.nan, 0.5, 2.0)}
    trace = Trace(np.array([0.1, np.nan, np.inf]), np.array([0.0, np.nan, 1.0]), np.zeros(3))
    _, page = page_of(made_up(changes=odd, factors=odd, trace=trace), tmp_path)
    assert "2 parameters changed" in page.words


def test_panels_tell_changed_seen_and_unseen() -> None:
    plain = made_up()
    panels = {panel.kind: panel for panel in panels_of(plain.factors, plain.changes)}
    assert list(panels) == ["mass", "gravity", "com"]
    assert [row.state for row in panels["mass"].rows] == ["changed", "seen"]
    changed = panels["mass"].rows[0]
    assert 50 < changed.low < changed.at < changed.high < 100
    assert changed.text == "× 1.30"
    assert panels["gravity"].rows[0].state == "unseen"
    assert panels["com"].unit == "m"
    assert panels["com"].rows[0].low < 50 < panels["com"].rows[0].at
    for panel in panels.values():
        at = [tick.at for tick in panel.ticks]
        assert at == sorted(at)
        assert at[1] == 50.0


def test_a_kind_that_changed_as_one_is_one_row() -> None:
    factors = {f"gain:{name}": Change(0.8, 0.7, 0.9) for name in "abc"}
    (panel,) = panels_of(factors, {"gain": Change(0.8, 0.79, 0.81)})
    assert [row.name for row in panel.rows] == ["gain, all 3 alike"]
    assert panel.rows[0].state == "changed"


def test_many_parameters_stay_readable(tmp_path: Path) -> None:
    count = ALL_SHOWN + 10
    factors = {f"mass:{i}": Change(1.0, 0.9, 1.1, seen=i % 2 == 0) for i in range(count)}
    changes = {"mass:3": Change(1.5, 1.4, 1.6)}
    (panel,) = panels_of(factors | changes, changes, hide=True)
    assert panel.rows[0].name == "3"
    assert len(panel.rows) == ROWS
    assert len(panel.rows) + len(panel.rest) == count // 2 + 1
    _, page = page_of(made_up(factors=factors, changes={}, wind=None), tmp_path)
    assert f"nothing is known of them ({count // 2}): mass:1, mass:3" in page.words


def test_late_actions_have_no_interval(tmp_path: Path) -> None:
    late = {"delay": Change(2.0, 2.0, 2.0, "steps")}
    _, page = page_of(made_up(changes=late, wind=None), tmp_path)
    assert "delay2 steps––actions that come late" in page.words
    assert headline(made_up(changes=late, wind=None)) == "Hopper-v5: delay changed"


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="could not write the page"):
        write_report(made_up(), tmp_path / "file" / "report.html")


def drawing_of(env_id: str, changes: dict[str, Change], wind: Wind | None = None) -> Any:
    with gym.make(env_id) as env:
        diagnosis = made_up(changes=changes, wind=wind, env=env, nominal=ww.simulator(env))
        return robot.draw(diagnosis, changes)


@pytest.mark.parametrize(
    ("env_id", "sides"),
    [
        ("Hopper-v5", ["side"]),
        ("Ant-v5", ["above"]),
        ("Humanoid-v5", ["side"]),
        ("Swimmer-v5", ["above"]),
        ("Pusher-v5", ["side", "above"]),
        ("InvertedDoublePendulum-v5", ["side"]),
    ],
)
def test_robots_are_drawn_from_where_they_are_seen(env_id: str, sides: list[str]) -> None:
    drawn = drawing_of(env_id, {"mass": Change(1.2, 1.1, 1.3)})
    assert [title.split()[2 if "side" in title else 1] for title, _ in drawn.views] == sides
    assert drawn.everywhere == ("mass",)
    assert drawn.marks == ()
    for _, picture in drawn.views:
        assert picture.count("<path") > 1
        assert "nan" not in picture


def test_changes_are_marked_where_they_are() -> None:
    changes = {
        "mass:torso": Change(1.5, 1.4, 1.6),
        "inertia:foot": Change(0.5, 0.4, 0.6),
        "com:torso.x": Change(0.02, 0.01, 0.03, "m"),
        "com:leg.z": Change(0.02, 0.01, 0.03, "m"),
        "gain:leg_joint": Change(0.8, 0.7, 0.9),
        "slope:x": Change(0.1, 0.0, 0.2, "rad"),
    }
    drawn = drawing_of("Hopper-v5", changes, made_up().wind)
    assert [mark.names for mark in drawn.marks] == [  # from top to bottom
        ("mass:torso", "com:torso.x"), ("gain:leg_joint",), ("com:leg.z",), ("inertia:foot",)
    ]  # fmt: skip
    assert drawn.full == 2.0
    assert drawn.moved
    assert drawn.push == "torso"
    ((_, picture),) = drawn.views
    more, less = ("#" + "".join(f"{round(255 * part):02x}" for part in robot.colour(each, 2.0))
                  for each in (1.5, 0.5))  # fmt: skip
    assert picture.count(f"fill: {more}") == 1
    assert picture.count(f"fill: {less}") == 1


def test_what_is_on_no_body_is_not_drawn() -> None:
    assert drawing_of("Hopper-v5", {"friction": Change(1.2, 1.1, 1.3)}) is None
    assert robot.draw(made_up(), made_up().changes) is None  # loaded: there is no model
    with gym.make("Pendulum-v1") as env:
        assert robot.draw(made_up(env=env, nominal=ww.simulator(env)), {}) is None


SHAPES = """<mujoco><asset><mesh name="wedge" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/></asset>
<worldbody><body><freejoint/>
<geom type="sphere" size=".5"/>
<geom type="capsule" size=".5 1" euler="0 90 0"/>
<geom type="box" size="1 2 3"/>
<geom type="cylinder" size=".5 1"/>
<geom type="ellipsoid" size="1 2 3"/>
<geom type="mesh" mesh="wedge"/>
</body></worldbody></mujoco>"""


def test_every_shape_has_its_outline() -> None:
    model = mujoco.MjModel.from_xml_string(SHAPES)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    sizes = [
        np.ptp(robot._outline(model, data, geom, robot.SIDE), axis=0) for geom in range(model.ngeom)
    ]
    wanted = [(1, 1), (3, 1), (2, 6), (1, 2), (2, 6), (1, 1)]
    np.testing.assert_allclose(sizes, wanted, rtol=0.01)


def test_a_hull_of_points_on_a_line_is_its_ends() -> None:
    line = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [1.0, 1.0]])
    assert {tuple(each) for each in robot.hull(line)} == {(0.0, 0.0), (2.0, 2.0)}


# --- what it says ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (Change(1.29457, 1.29311, 1.29603), "mass", "x1.2946 [1.2931, 1.2960]"),
        (Change(5.09e-9, 4e-9, 6e-9), "gain", "dead (below x0.001)"),
        (Change(5.09e-9, 4e-9, 6e-9), "damping", "below x0.001"),
        (Change(1.0, 1.0, 1.0, "steps"), "delay", "1 step"),
        (Change(2.0, 2.0, 2.0, "steps"), "delay", "2 steps"),
        (Change(0.04, 0.004, 2.0), "gain", "x0.04 [0.004, 2.0]"),
        (Change(-0.0105, -0.0115, -0.0095, "m"), "com", "-0.0105 m [-0.0115, -0.0095]"),
    ],
)
def test_numbers_have_as_many_digits_as_their_interval(
    change: Change, kind: str, said: str
) -> None:
    assert change.said(kind) == said


def test_what_was_interrupted_is_suspected_and_not_said_to_have_changed(tmp_path: Path) -> None:
    change = {"mass:torso": Change(1.3, 1.2, 1.4)}
    found = made_up(changes={}, suspects=change, complete=False, wind=None)
    kinds = [each.kind for each in found.lines()]
    assert kinds == ["alert", "suspect", "unseen"]
    assert found.values == {}
    assert "unfinished: mass:torso x1.30 [1.20, 1.40]" in str(found)
    _, page = page_of(found, tmp_path)
    assert "interrupted before the diagnosis was finished" in page.words
    assert "Suspected changes: the fit was interrupted" in page.words


def test_lines_have_their_kinds_and_are_what_is_printed() -> None:
    found = made_up(unexplained=0.3, notes=("so it is",), together=(("mass", "gain"),))
    kinds = [each.kind for each in found.lines()]
    assert kinds == ["alert", "change", "together", "wind", "unseen", "note"]
    assert str(found).splitlines() == [each.text for each in found.lines()]
    assert [each.kind for each in Diagnosis({}, {}, None, 0.0).lines()] == ["nothing"]


def test_a_diagnosis_equals_what_was_loaded_of_it(hopper: Diagnosis, tmp_path: Path) -> None:
    hopper.save(tmp_path / "diagnosis.npz")
    loaded = Diagnosis.load(tmp_path / "diagnosis.npz")
    assert hopper == loaded
    assert hopper != replace(loaded, unexplained=0.5)
    assert loaded.trace is not None
    assert hopper != replace(loaded, trace=loaded.trace._replace(after=loaded.trace.after + 1))
    assert hopper != replace(loaded, trace=None)
    assert hopper != "hopper"


def test_the_page_explains_its_words(tmp_path: Path) -> None:
    text, page = page_of(made_up(), tmp_path)
    words = " ".join(page.words.split())
    assert words.index("usually changes from one step to the next") < words.index("Predictable:")
    assert "not to be trusted" not in text
    assert "told by" not in text
