"""Animations: what is drawn are the states that were met, and the page plays them."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from rich.console import Console

from tests.studies import test_report_browser
from tests.studies.test_report_browser import CHROMIUM, NARROW, WIDE, chart, look
from windward import policies
from windward.envs import Disturbed
from windward.studies import report
from windward.studies.evaluation import animation
from windward.studies.evaluation import report as evaluation_report
from windward.studies.evaluation.animation import Body, Camera, Film, Scene, body_of, section
from windward.studies.evaluation.episodes import Actor, begin
from windward.studies.evaluation.evaluate import Evaluate, evaluate

WIND = ("uniform:bound=0.2", "qvel")
SMALL: dict[str, Any] = {
    "seeds": 2,
    "episodes": 3,
    "max_steps": 12,
    "eta": 1e-3,
    "learner": "mf-gpc",
    "guard": False,
}
CART = Body("cart", 0.04, 0.6, 1.0, 0.2)


# What is filmed.


def test_a_film_holds_the_states_and_pushes_of_its_episode() -> None:
    found = evaluate("shipped", "Pendulum-v1", *WIND, **SMALL)
    assert found.scene is not None
    films = found.scene.films
    assert {policy: list(each) for policy, each in films.items()} == {
        "base": [0, 2], "adapted": [0, 2],
    }  # fmt: skip
    env = Disturbed(gym.make("Pendulum-v1", max_episode_steps=12), *WIND)
    actor = Actor(policies.load("Pendulum-v1"), env.action_space)
    for number in range(3):
        x = begin(env, 0, number)
        pendulum: Any = env.unwrapped
        angles, pushes = [pendulum.state[0]], []
        for _ in range(12):
            x, *_, info = env.step(actor(x))
            angles.append(pendulum.state[0])
            pushes.append(info["disturbance"]["qvel"][0])
        if number in films["base"]:
            film = films["base"][number]
            np.testing.assert_allclose(film.angle, angles, atol=5.1e-5)
            np.testing.assert_allclose(film.pushes["pole", "qvel[0]"], pushes, rtol=6e-3)
            assert (film.length, film.terminated, film.x) == (12, False, [])


def test_base_and_adapted_are_filmed_from_one_start_in_one_wind() -> None:
    found = evaluate("shipped", "Pendulum-v1", *WIND, **SMALL, first_seed=4)
    assert found.scene is not None
    assert found.scene.seed == 4
    base, adapted = (found.scene.films[policy][2] for policy in ("base", "adapted"))
    assert base.angle[0] == adapted.angle[0]
    assert base.pushes == adapted.pushes
    assert base.angle != adapted.angle


def test_filming_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    filmed = evaluate("shipped", "Pendulum-v1", *WIND, **SMALL)
    monkeypatch.setattr(animation, "body_of", lambda env: None)
    alone = evaluate("shipped", "Pendulum-v1", *WIND, **SMALL)
    assert alone.scene is None
    for policy, runs in filmed.runs.items():
        for one, other in zip(runs, alone.runs[policy], strict=True):
            np.testing.assert_array_equal(one, other)


def cart(disturbance: str, channel: str, env_id: str = "InvertedPendulum-v5") -> Camera:
    """One episode of a cart that is pushed by nothing else."""
    env = Disturbed(gym.make(env_id), disturbance, channel)
    body = body_of(env)
    assert body is not None
    camera = Camera(env, body, [0])
    camera.reset(seed=0)
    ended = False
    while not ended:
        action: Any = 0 if env_id == "CartPole-v1" else np.zeros(1, np.float32)
        _, _, terminated, truncated, _ = camera.step(action)
        ended = terminated or truncated
    return camera


def test_a_cart_is_filmed_from_its_start_to_its_fall() -> None:
    camera = cart("bias:value=0/0.05", "qvel")
    film, inner = camera.films[0], camera.unwrapped
    assert isinstance(inner, gym.envs.mujoco.MujocoEnv)
    np.testing.assert_allclose([film.x[-1], film.angle[-1]], inner.data.qpos, atol=5.1e-5)
    assert len(film.x) == len(film.angle) == film.length + 1
    assert film.terminated
    assert abs(film.angle[-1]) > 0.2 >= max(map(abs, film.angle[:-1]))
    assert film.pushes == {("cart", "qvel[0]"): [0] * film.length,
                           ("pole", "qvel[1]"): [0.05] * film.length}  # fmt: skip
    # The page turns a positive angle clockwise: the tip is then to the right of the cart.
    tip = inner.data.geom("cpole").xpos[0] - inner.data.body("cart").xpos[0]
    assert film.angle[-1] * tip > 0


@pytest.mark.parametrize(
    ("env_id", "channel", "disturbance", "expected"),
    [
        ("InvertedPendulum-v5", "state", "bias:value=1/2/3/4e-2",
         {("cart", "state[2]"): 3, ("pole", "state[3]"): 0.04}),
        ("InvertedPendulum-v5", "force:pole", "bias:value=1/2/3", {("pole", "force:pole[0]"): 1}),
        ("InvertedPendulum-v5", "torque:pole", "bias:value=1/2/3", {("pole", "torque:pole[1]"): 2}),
        ("InvertedPendulum-v5", "observation", "bias:value=1", {}),
        ("CartPole-v1", "state", "bias:value=1/2/3/4e-2",
         {("cart", "state[1]"): 2, ("pole", "state[3]"): 0.04}),
        ("CartPole-v1", "force:cart", "bias:value=-3", {("cart", "force:cart[0]"): -3}),
    ],
)  # fmt: skip
def test_pushes_on_parts_that_are_drawn_are_kept(
    env_id: str, channel: str, disturbance: str, expected: dict[Any, float]
) -> None:
    film = cart(disturbance, channel, env_id).films[0]
    assert {push: values[0] for push, values in film.pushes.items()} == expected


def test_bodies_have_the_sizes_of_their_environments() -> None:
    bodies = [
        body_of(gym.make(each))
        for each in ("InvertedPendulum-v5", "windward/SinePendulum-v0", "CartPole-v1",
                     "windward/WindyCartPole-v0", "Pendulum-v1")
    ]  # fmt: skip
    for one, other in zip(bodies[0] or (), CART, strict=True):
        assert one == other or one == pytest.approx(other, abs=1e-5)
    assert bodies[1] == bodies[0]
    lean = 12 * np.pi / 180
    assert bodies[2] == bodies[3] == Body("cart", 0.02, 1.0, 2.4, pytest.approx(lean))
    assert bodies[4] == Body("pendulum", 0.05, 1.0)


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Acrobot-v1", "InvertedDoublePendulum-v5"])
def test_what_cannot_be_drawn_is_not_filmed(env_id: str) -> None:
    assert body_of(gym.make(env_id)) is None


def test_a_model_of_somebodys_own_is_not_drawn(tmp_path: Path) -> None:
    assets = Path(gym.envs.mujoco.__file__).parent / "assets"
    xml = (assets / "inverted_pendulum.xml").read_text().replace("cpole", "stick")
    (tmp_path / "own.xml").write_text(xml)
    assert body_of(gym.make("InvertedPendulum-v5", xml_file=str(tmp_path / "own.xml"))) is None


def test_a_film_ends_before_a_state_that_is_not_finite() -> None:
    env = gym.make("Pendulum-v1", max_episode_steps=5)
    camera = Camera(env, Body("pendulum", 0.05, 1.0), [0])
    camera.reset(seed=0)
    pendulum: Any = env.unwrapped
    for step in range(5):
        if step == 2:
            pendulum.state[0] = np.nan
        camera.step(np.zeros(1))
    film = camera.films[0]
    assert (len(film.angle), film.length) == (3, 5)
    assert animation._end(film, Body("pendulum", 0.05, 1.0)) == "drawn to step 2 of 5"


def test_of_a_long_episode_the_beginning_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(animation, "STEPS", 6)
    film = cart("sine:amp=0/0.01,period=20", "qvel").films[0]
    assert len(film.angle) == 7 < film.length
    data = section(Scene(CART, 0, {"base": {0: film}}), {"base": 0}).scene["episodes"][0]["films"]
    assert data[0]["end"] == f"drawn to step 6 of {film.length}"
    assert not data[0]["over"]


# What a page gets.


def film(angle: list[float], terminated: bool, push: float = 0.1) -> Film:
    steps = len(angle) - 1
    pushes = {
        ("cart", "qvel[0]"): [0.0] * steps,
        ("pole", "qvel[1]"): [push * (-1) ** i for i in range(steps)],
    }
    return Film([0.01 * i for i in range(steps + 1)], angle, pushes, steps, terminated)


def scene() -> Scene:
    """Base falls after 3 steps of both episodes, adapted stands in the last."""
    falls, stands = [0.0, 0.05, 0.1, 0.3], [0.0, *(-0.002 * i for i in range(1, 101))]
    return Scene(CART, 7, {
        "base": {0: film(falls, True), 4: film(falls, True)},
        "adapted": {0: film(falls, True), 4: film(stands, False, 0.2)},
    })  # fmt: skip


def test_a_section_holds_films_arrows_and_how_they_end() -> None:
    made = section(scene(), {"base": 1, "adapted": 2})
    assert made.title == "Base beside adapted, seed 7"
    assert "qvel[1], 0.2 at its longest" in made.note
    assert "qvel[0]" not in made.note  # it never pushed
    data = made.scene
    assert data["arrows"] == ["pole"]
    assert data["policies"] == [{"name": "base", "colour": 1}, {"name": "adapted", "colour": 2}]
    assert data["half"] == pytest.approx(1.0 + 0.8 * 0.6)
    first, last = data["episodes"]
    assert (first["name"], last["name"]) == ("episode 1", "episode 5")
    base, adapted = last["films"]
    assert base["arrows"] == [[0, 0.5, -0.5, 0.5]]
    assert adapted["arrows"][0][:3] == [0, 1, -1]
    assert (base["end"], base["over"]) == ("fell at step 3", True)
    assert (adapted["end"], adapted["over"]) == ("stands at step 100", False)
    assert base["angle"] == [0.0, 0.05, 0.1, 0.3]


def test_a_cart_that_leaves_its_rail_upright_did_not_fall() -> None:
    assert animation._end(film([0.0, 0.1], True), CART) == "ended at step 1"
    assert animation._end(film([0.0, 0.1], False), CART._replace(lean=None)) == "ended at step 1"


SETTINGS = Evaluate(
    "shipped",
    "Pendulum-v1",
    *WIND,
    seeds=1,
    episodes=2,
    max_steps=12,
    eta=1e-3,
    learner="mf-gpc",
)


def test_the_page_of_an_evaluation_holds_its_films(tmp_path: Path, console: Console) -> None:
    evaluation_report.run(replace(SETTINGS, out=tmp_path), console)
    page = (tmp_path / "report.html").read_text()
    found = evaluate(
        "shipped", "Pendulum-v1", *WIND, **SMALL | {"seeds": 1, "episodes": 2, "guard": True}
    )
    assert found.scene is not None
    data = section(found.scene, {"base": 1, "adapted": 2}).scene
    (figure,) = re.findall(r'<figure class="film.*?</figure>', page, re.DOTALL)
    text = re.search(r'<script type="application/json">(.*?)</script>', figure, re.DOTALL)
    assert text
    assert json.loads(text[1]) == json.loads(json.dumps(data))
    assert len(page) < 100_000


def test_the_page_of_what_cannot_be_drawn_has_no_animation(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(animation, "body_of", lambda env: None)
    evaluation_report.run(replace(SETTINGS, out=tmp_path), console)
    page = (tmp_path / "report.html").read_text()
    assert "film" not in page
    assert "Base beside adapted" not in page


def test_four_long_films_fit_in_a_small_page(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def noise() -> list[float]:
        return rng.normal(size=animation.STEPS + 1).round(4).tolist()

    pushes = {("cart", "qvel[0]"): noise()[1:], ("pole", "qvel[1]"): noise()[1:]}
    films = {i: Film(noise(), noise(), pushes, animation.STEPS) for i in (0, 4)}
    made = section(Scene(CART, 0, {"base": films, "adapted": films}), {"base": 0, "adapted": 1})
    report.write(tmp_path / "report.html", "t", "l", [made], {})
    assert len((tmp_path / "report.html").read_bytes()) < 200_000


# In a browser.


def browser(test: Any) -> Any:
    """Marks a test that needs a browser, and is slow for it."""
    for mark in test_report_browser.pytestmark:
        test = mark(test)
    return test


# Virtual time has hardly any frames: they are asked of its clock instead.
PLAYER = """
window.requestAnimationFrame = (f) => setTimeout(() => f(performance.now()), 20);
window.cancelAnimationFrame = clearTimeout;
const [play, slider, step, slow] = ['.play', '.film input', 'output', '.slow']
    .map((what) => document.querySelector(what));
const episodes = every('.episode');
const of = (what, name) => every(what).map((each) => each.getAttribute(name));
const poles = () => of('.pole', 'transform'), carts = () => of('.cart', 'transform');
const states = () => every('.panel span').map((each) => each.textContent);
const drag = (to) => { slider.value = to; slider.dispatchEvent(new Event('input')); };
const at = () => Number(slider.value);
const tell = (what) => parent.postMessage(JSON.stringify(what), '*');
"""


def watch(folder: Path, script: str, **rest: Any) -> Any:
    made = section(scene(), {"base": 1, "adapted": 2})
    return look(folder, [made, chart()], PLAYER + script, **rest)


@browser
def test_the_slider_shows_the_recorded_states(tmp_path: Path) -> None:
    seen = watch(
        tmp_path,
        """seen = [at(), poles()];
        drag(2); seen.push([poles(), carts(), states(), step.textContent, play.innerText]);
        drag(50); seen.push([poles(), states(), of('.panel', 'class')]);
        drag(100); seen.push([states(), play.innerText, slider.max]);
        drag(1); seen.push(of('.arrow', 'd').map((d) => d.startsWith('M5 0H')));
        drag(2); seen.push(of('.arrow', 'd').map((d) => d.startsWith('M-5 0H-')));
        drag(4); seen.push(of('.arrow', 'd').map((d) => d.length > 0));""",
    )
    assert seen[:2] == [0, ["rotate(0.00)", "rotate(0.00)"]]
    assert seen[2] == [
        ["rotate(5.73)", "rotate(-0.23)"], ["translate(3.33 0)", "translate(3.33 0)"],
        ["5.7°", "−0.2°"], "step 2, 0.1 s", "Play",
    ]  # fmt: skip
    assert seen[3] == [
        ["rotate(17.19)", "rotate(-5.73)"], ["fell at step 3", "−5.7°"],
        ["panel done over", "panel"],
    ]  # fmt: skip
    assert seen[4] == [["fell at step 3", "stands at step 100"], "Play again", "100"]
    assert seen[5:] == [[True, True], [True, True], [False, True]]


@browser
def test_it_plays_by_itself_and_pauses_on_request(tmp_path: Path) -> None:
    seen = watch(
        tmp_path,
        """const before = poles(), all = [at()];
        setTimeout(() => { all.push(at(), poles()[1] !== before[1], play.innerText); }, 1200);
        setTimeout(() => { play.click(); all.push(at()); }, 1300);
        setTimeout(() => { all.push(at(), play.innerText); play.click(); }, 1600);
        setTimeout(() => { all.push(at()); tell(all); }, 1900);""",
    )
    start, playing, moved, text, paused, later, resume, resumed = seen
    assert start == 0
    assert 0 < playing < 100
    assert moved
    assert text == "Pause"
    assert paused >= playing
    assert (later, resume) == (paused, "Play")
    assert resumed > later


@browser
def test_an_episode_is_picked_and_ends(tmp_path: Path) -> None:
    seen = watch(
        tmp_path,
        """const all = [of('.episode', 'aria-pressed'), slider.max];
        drag(60); episodes[0].click();
        all.push(of('.episode', 'aria-pressed'), slider.max, at(), play.innerText);
        setTimeout(() => { tell([...all, at(), states(), play.innerText]); }, 1900);""",
    )
    assert seen == [
        ["false", "true"], "100", ["true", "false"], "3", 0, "Pause", 3,
        ["fell at step 3"] * 2, "Play again",
    ]  # fmt: skip


@browser
def test_slow_motion_is_slower(tmp_path: Path) -> None:
    script = "%s; setTimeout(() => tell([of('.slow', 'aria-pressed')[0], at()]), 1900);"
    pressed, slowly = watch(tmp_path, script % "slow.click()")
    normal, quickly = watch(tmp_path, script % "")
    assert (pressed, normal) == ("true", "false")
    assert 0 < 2 * slowly < quickly


@browser
def test_it_waits_for_those_who_want_no_motion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = tmp_path / "calm"
    calm.write_text(f'#!/bin/sh\nexec "{CHROMIUM}" --force-prefers-reduced-motion "$@"\n')
    calm.chmod(0o755)
    monkeypatch.setattr(test_report_browser, "CHROMIUM", str(calm))
    seen = watch(
        tmp_path,
        """const all = [];
        setTimeout(() => { episodes[1].click(); all.push(at(), play.innerText); }, 900);
        setTimeout(() => { all.push(at()); play.click(); }, 1000);
        setTimeout(() => tell([...all, at() > 0]), 1950);""",
    )
    assert seen == [0, "Play", 0, True]


@browser
@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_panels_are_beside_each_other_where_there_is_room(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    seen = watch(
        tmp_path,
        """const boxes = every('.panel').map((each) => each.getBoundingClientRect());
        seen = {
            page: [innerWidth, document.documentElement.scrollWidth],
            rows: new Set(boxes.map((each) => Math.round(each.top))).size,
            width: slider.getBoundingClientRect().width,
        }""",
        size=size,
    )
    assert seen["page"] == [size[0], size[0]]
    assert seen["rows"] == (1 if size == WIDE else 2)
    assert seen["width"] > 200
