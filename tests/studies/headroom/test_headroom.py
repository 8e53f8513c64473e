"""`headroom` at a tiny size: shares by hand, runs that are not repeated, and clear errors."""

import csv
import io
import json
import re
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from windward.adapt import cma
from windward.studies.evaluation.episodes import Actor, play
from windward.studies.evaluation.loading import load_model
from windward.studies.headroom import headroom as study
from windward.studies.headroom import numbers as stats
from windward.studies.headroom import offline, runs
from windward.studies.headroom.cases import (
    CASES,
    EVERY,
    LINEAR,
    NOTHING,
    SEARCH_SEED,
    SIZES,
    TUNE_SEEDS,
)  # fmt: skip
from windward.studies.headroom.methods import METHODS, Given, fixed
from windward.studies.headroom.page import terminal
from windward.studies.headroom.settings import Headroom
from windward.studies.headroom.worlds import World
from windward.studies.linear import headroom_linear

RESULTS = Path(__file__).parents[3] / "docs" / "results" / "headroom"
BIAS, CALM = "pendulum-bias", "pendulum-calm"


def tiny(folder: Path, **changes: Any) -> Headroom:
    settings = Headroom(
        cases=(BIAS, CALM), methods=("regression",), seeds=2, episodes=2, last=1, generations=2,
        max_steps=40, runs=folder / "runs", out=folder / "out",
    )  # fmt: skip
    return replace(settings, **changes)


@pytest.fixture(autouse=True)
def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "EPISODES", 2)
    monkeypatch.setattr(offline, "JUDGES", 2)
    monkeypatch.setattr(offline, "FINAL", 2)


# Numbers.


def test_shares_by_hand() -> None:
    base, best = np.array([[0.0, 10.0], [0.0, 20.0]]), np.array([[0.0, 20.0], [0.0, 40.0]])
    method = np.array([[-99.0, 13.0], [-99.0, 32.0]])
    found = stats.share(base, method, best, last=1)
    # Gains 3 and 12 of a mean headroom of 15.
    np.testing.assert_allclose(found.each, [0.2, 0.8])
    assert found.mean.value == pytest.approx(0.5)
    assert found.mean.low == pytest.approx(3 / 10)  # the first seed twice
    assert found.mean.high == pytest.approx(12 / 20)
    assert found.worst == 0
    assert stats.share(base, best, best, last=1).mean.value == pytest.approx(1)
    assert stats.share(base, base, best, last=1).mean.value == 0


def test_a_method_is_compared_on_its_own_last_episodes() -> None:
    base, best = np.zeros((1, 4)), np.array([[1.0, 1.0, 8.0, 8.0]])
    assert stats.share(base, np.array([[7.0, 0.5]]), best, last=1).mean.value == 0.5


def test_no_headroom_gives_no_share() -> None:
    base = np.ones((2, 3))
    found = stats.share(base, base, base, last=2)
    assert np.isnan(found.mean.value)
    assert stats.as_json(found, (100, 101))["mean"] is None


def test_losses_by_hand() -> None:
    base = np.full((2, 2), -200.0)
    found = stats.loss(base, np.array([[-200.0, -204.0], [-210.0, -206.0]]))
    np.testing.assert_allclose(found.each, [-0.01, -0.04])
    assert found.worst == 1
    case = NOTHING[CALM]
    assert not stats.harmless(case, found)  # 2.5 % on average
    assert stats.harmless(case, stats.loss(base, base))
    one = np.array([[-200.0, -200.0], [-202.0, -202.0]])
    assert stats.harmless(case, stats.loss(base, one))
    assert not stats.harmless(replace(case, limit=0.005), stats.loss(base, one))
    assert stats.harmless(replace(case, limit=None), found)  # one seed lost no more than 1 %


def test_a_wrong_simulator_is_worse_only_where_the_exact_one_helps() -> None:
    base, best = np.zeros((2, 1)), np.ones((2, 1))
    helps, harms = (stats.share(base, base + gain, best, last=1) for gain in (0.5, -0.1))
    assert stats.worse(helps, harms)
    assert not stats.worse(helps, helps)
    assert not stats.worse(harms, harms)
    assert not stats.worse(helps, stats.share(base, base, best, last=1))  # it stepped back


# The best fixed M.


@pytest.mark.parametrize(
    "name", ["pendulum-slow-sine", "inverted-pendulum-force", "linear-10x5-sine"]
)
def test_rows_of_states_are_worth_what_the_environment_says(name: str) -> None:
    case, steps, seeds = CASES[name], 120, np.array([3, 4])
    model = load_model(case.policy, case.env)
    with closing(World(case, steps)) as world:
        M = 0.3 * np.random.default_rng(0).normal(size=(2, world.d_u, world.d_w))
        found = world.play(np.stack([0 * M, M]), seeds).returns
    assert (found[0] != found[1]).any()
    for candidate, returns in zip((0 * M, M), found, strict=True):
        for seed, expected in zip(seeds.tolist(), returns, strict=True):
            env = case.make(max_steps=steps)
            with closing(fixed(Given(env, model, None, seed, {}, candidate))) as wrapped:
                total = play(wrapped, Actor(model, env.action_space), seed, 0).total
            assert total == pytest.approx(expected, rel=1e-4)


def test_mass_is_changed_for_the_world_and_not_for_its_model() -> None:
    case = CASES["hopper-mass"]
    with closing(World(case, 5)) as world:
        zero = np.zeros((1, 2, world.d_u, world.d_w))
        windows = world.play(zero, np.array([0]), keep=True).windows
    assert np.abs(windows[-1]).max() > 1e-3  # the model does not know of it


def test_components_of_the_window_have_unit_size() -> None:
    t = np.arange(400)
    wave = np.stack([np.sin(0.1 * t), np.zeros(400)], axis=1)
    windows = np.stack([wave[2:-1], wave[1:-2], wave[:-3]], axis=1)
    found = offline.basis(windows)
    assert found.shape == (2, 3, 2)  # a sinusoid is two numbers
    assert not found[:, :, 1].any()  # what does not move is left alone
    values = np.einsum("khd,thd->tk", found, windows)
    np.testing.assert_allclose((values**2).mean(axis=0), 1)


def test_the_search_finds_a_minimum_on_a_slope_that_is_long_and_narrow() -> None:
    scale, rng = np.array([1.0, 10.0, 100.0]), np.random.default_rng(0)
    state = cma.start(np.zeros(3), 0.3)
    for _ in range(120):
        points = cma.ask(state, rng)
        state = cma.tell(state, points, ((scale * (points - 1)) ** 2).sum(axis=1))
    np.testing.assert_allclose(state.mean, 1, atol=1e-3)


def test_a_search_that_was_stopped_finds_the_same(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(folder: str) -> dict[str, Any]:
        return offline.search(BIAS, 3, tmp_path / folder, "a command", console, max_steps=30)

    whole = find("whole")
    tell, told = cma.tell, []

    def stop(*given: Any) -> cma.State:
        told.append(given)
        if len(told) == 3:
            raise KeyboardInterrupt
        return tell(*given)

    monkeypatch.setattr(cma, "tell", stop)
    with pytest.raises(KeyboardInterrupt):
        find("stopped")
    again = find("stopped")
    assert len(told) == 4  # two generations were kept
    assert again == whole
    assert again["command"] == "a command"
    assert [path.name for path in (tmp_path / "stopped").iterdir()] == [f"{BIAS}.json"]


def test_a_search_begins_with_the_step_that_was_asked_for(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ask = [], cma.ask

    def spy(state: cma.State, rng: np.random.Generator) -> np.ndarray:
        points = ask(state, rng)
        asked.append((points - state.mean).std())
        return points

    monkeypatch.setattr(cma, "ask", spy)
    for step in (0.3, 0.003):
        study.run(tiny(tmp_path / str(step), cases=(BIAS,), first_step=step), console)
    assert asked[0] == pytest.approx(100 * asked[2])  # of two generations each
    found = json.loads((tmp_path / "0.003/out/best_M" / f"{BIAS}.json").read_text())
    assert "--first-step 0.003" in found["command"]
    with pytest.raises(ValueError, match="first_step"):
        study.run(tiny(tmp_path / "0", cases=(BIAS,), first_step=0.0), console)


def test_on_a_linear_case_no_M_near_the_best_is_better(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "EXACT", 24)
    monkeypatch.setattr(offline, "FINAL", 24)
    name = "linear-2x1-sine"
    found = offline.search(name, 1, tmp_path, "", console, max_steps=60)
    M, rng = np.array(found["M"]), np.random.default_rng(0)
    seeds = np.arange(SEARCH_SEED, SEARCH_SEED + 24)
    with closing(World(CASES[name], 60)) as world:
        size = 0.02 * np.abs(M).max()
        others = M + size * rng.standard_normal((40, *M.shape))
        costs = -world.play(np.concatenate([M[None], others]), seeds).returns.mean(axis=1)
        assert costs[0] < costs[1:].min()
        # The slope along any direction is 0: what is lost to both sides is alike.
        both = np.stack([2 * M - others[0], others[0]])
        low, high = -world.play(both, seeds).returns.mean(axis=1) - costs[0]
        assert low == pytest.approx(high, rel=1e-3)
    assert found["best_return"] > found["base_return"]


def test_a_search_ends_where_nothing_is_left_to_find(tmp_path: Path, console: Console) -> None:
    upright = "inverted-pendulum-force"  # for 5 steps, whatever M is
    found = offline.search(upright, 9, tmp_path, "", console, max_steps=5)
    assert found["generations"] == 1
    assert not np.any(found["M"])
    assert found["best_return"] == found["base_return"] == 5


# Runs.


def test_writes_what_it_reports_and_repeats_nothing(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, perform = tiny(tmp_path), runs.perform

    def with_room(job: runs.Job) -> dict[str, Any]:
        """So short a search finds no M that is better than 0: the best is made up."""
        found = perform(job)
        gain = 5.0 * (job.seed - 99) if job.method == "best" else 0.0
        return found | {"returns": [each + gain for each in found["returns"]]}

    monkeypatch.setattr(runs, "perform", with_room)
    summary = study.run(settings, console)
    with (settings.out / "episodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 3 + 2 * 2 * 2  # best is for the case with headroom alone

    def last(case: str, method: str) -> float:
        mine = [row for row in rows if (row["case"], row["method"]) == (case, method)]
        return float(np.mean([float(row["return"]) for row in mine if row["episode"] == "1"]))

    reported = summary["headroom"][BIAS]
    assert reported["regression"]["return"] == pytest.approx(last(BIAS, "regression"))
    gain, room = (last(BIAS, name) - last(BIAS, "base") for name in ("regression", "best"))
    assert gain != 0
    assert room == pytest.approx(7.5)  # 5 on the first seed, 10 on the second
    assert reported["regression"]["mean"] == pytest.approx(gain / room)
    assert summary["nothing"][CALM]["base"]["mean"] == 0
    found = json.loads((settings.out / "best_M" / f"{BIAS}.json").read_text())
    assert found["command"] == (
        "windward run headroom --cases pendulum-bias --generations 2 --max-steps 40"
    )
    assert "return by episode" in (settings.out / "report.html").read_text()
    assert all((settings.out / f"headroom.{kind}").stat().st_size for kind in ("png", "pdf"))

    def refuse(job: runs.Job) -> dict[str, Any]:
        raise AssertionError(f"{job} was there")

    monkeypatch.setattr(runs, "perform", refuse)
    assert study.run(settings, console) == summary
    assert study.run(replace(settings, compute=False), console)["headroom"] == summary["headroom"]
    # Methods that were not run, more patient ones among them, ask nothing of the base policy.
    every = replace(settings, methods=(), compute=False)
    assert study.run(every, console)["headroom"] == summary["headroom"]
    # What is deleted is made again.
    for folder in settings.runs.glob("*-regression-*"):
        shutil.rmtree(folder)
    with pytest.raises(ValueError, match=r"4 of 10 runs failed.*\n.*bias-regression-seed100"):
        study.run(settings, console)


def test_a_study_that_was_stopped_ends_with_the_same_numbers(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = study.run(tiny(tmp_path / "whole"), console)
    settings, perform, done = tiny(tmp_path / "stopped"), runs.perform, []

    def stop(job: runs.Job) -> dict[str, Any]:
        done.append(job)
        if len(done) == 6:
            raise KeyboardInterrupt
        return perform(job)

    monkeypatch.setattr(runs, "perform", stop)
    with pytest.raises(KeyboardInterrupt):
        study.run(settings, console)
    again = study.run(settings, console)
    assert len(done) == 1 + 2 * 3 + 2 * 2
    assert (again["headroom"], again["nothing"]) == (whole["headroom"], whole["nothing"])


def test_tuning_takes_the_best_of_the_grid_on_its_own_seeds_and_wind(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = replace(METHODS["paper"], grid=(("eta", (0.0, 1e-4)), ("sigma", (0.0, 0.5))))
    monkeypatch.setitem(METHODS, "paper", method)
    seen = []

    def made_up(job: runs.Job) -> dict[str, Any]:
        seen.append(job)
        value = -abs(job.numbers.get("eta", 0) - 1e-4) - job.numbers.get("sigma", 0)
        many = [value] * job.episodes
        told: dict[str, Any] = {"decisions": [], "faults": {}, "warned": []}
        names = ("returns", "lengths", "clipped", "M_norm")
        return {**dict.fromkeys(names, many), **told}

    monkeypatch.setattr(runs, "perform", made_up)
    summary = study.run(tiny(tmp_path, methods=("paper",)), console)
    best = {"eta": 1e-4, "sigma": 0.0}
    assert summary["tuned"] == {BIAS: {"paper": best}, CALM: {"paper": best}}
    tuning = [job for job in seen if job.tuning]
    as_calm = CASES[NOTHING[CALM].tuned_as or ""]
    assert len(tuning) == 2 * 4 * len(TUNE_SEEDS)
    winds = {job.run.settings["wind"] for job in tuning}
    assert winds == {CASES[BIAS].tune, as_calm.tune}
    assert {job.seed for job in tuning} == set(TUNE_SEEDS)
    assert all(
        dict(job.numbers) == best for job in seen if job.method == "paper" and not job.tuning
    )


def test_other_settings_under_one_name_are_refused(tmp_path: Path, console: Console) -> None:
    settings = tiny(tmp_path, cases=(CALM,))
    study.run(settings, console)
    with pytest.raises(ValueError, match=r"other settings \(max_steps was 40, now 10\)"):
        study.run(replace(settings, max_steps=10), console)
    with pytest.raises(ValueError, match=r"other settings \(cases was"):
        study.run(replace(settings, cases=(BIAS,)), console)
    with pytest.raises(ValueError, match="was found with max_steps None, not 30"):
        offline.search(BIAS, 1, RESULTS / "best_M", "", console, max_steps=30)
    shorter = study.run(replace(settings, episodes=1), console)
    assert shorter["nothing"][CALM]["base"]["mean"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cases": ("pendulum-gale",)}, "a case must be one of 'pendulum-slow-sine'"),
        ({"methods": ("magic",)}, "a method must be one of 'base', 'best', 'paper'"),
        ({"first_seed": 8, "seeds": 4}, "seeds 10, 11 are for tuning"),
        ({"seeds": 0}, "seeds must be an integer of at least 1"),
        ({"episodes": 0}, "episodes must be an integer of at least 1"),
    ],
)
def test_bad_settings_end_in_a_clear_error(
    change: dict[str, Any], message: str, tmp_path: Path, console: Console
) -> None:
    with pytest.raises(ValueError, match=message):
        study.run(tiny(tmp_path, **change), console)


def test_a_plan_runs_nothing_and_says_what_is_there(
    tmp_path: Path, console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tiny(tmp_path, methods=("regression", "l1"))
    assert study.run(replace(settings, dry_run=True), Console(width=120)) == {}
    assert not list(tmp_path.iterdir())
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines() if "pendulum" in line]
    plan = {cells[1].strip(): [cell.strip() for cell in cells[2:7]] for cells in rows}
    # Base, best and two methods on two seeds; where nothing is gained there is no best M.
    tuning = str(len(TUNE_SEEDS) * len(METHODS["l1"].points(CASES[BIAS])))
    assert plan == {
        BIAS: ["8", "0", tuning, "0", "to be searched for"], CALM: ["6", "0", tuning, "0", "-"]
    }  # fmt: skip
    study.run(replace(settings, methods=("regression",)), console)
    study.run(replace(settings, dry_run=True), Console(width=120))
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines() if BIAS in line]
    assert [cell.strip() for cell in rows[-1][2:7]] == ["8", "6", tuning, "0", "there"]


def test_a_plan_says_hours_and_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(**changes: Any) -> float:
        settings = tiny(tmp_path, cases=(CALM,), dry_run=True, **changes)
        study.run(settings, Console(width=200))
        text = capsys.readouterr().out
        assert "GiB of memory each" in text
        found = re.search(r"up to ([0-9.]+) core-hours", text)
        assert found is not None
        return float(found[1])

    short, long = told(episodes=20_000), told(episodes=40_000)
    assert 0 < short < long < 2.2 * short


def test_scales_say_what_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for scale, count in (("paper", len(EVERY) + len(LINEAR)), ("laptop", 7), ("smoke", 3)):
        assert set(SIZES[scale]["cases"]) <= {*EVERY, *LINEAR}
        settings = Headroom(scale=scale, dry_run=True, out=tmp_path / "out", runs=tmp_path / "runs")
        study.run(settings, Console(width=200))
        lines = [line for line in capsys.readouterr().out.splitlines() if "│" in line]
        assert len(lines) == count


def test_linear_systems_are_on_the_page(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def made_up(settings: headroom_linear.HeadroomLinear, console: Console, command: str) -> None:
        asked.append(settings.sizes)
        settings.out.mkdir(exist_ok=True)
        one = {"response": {"mean": 0.875, "interval": [0.5, 1.0], "worst": 0.25}}
        text = json.dumps({"headroom": {"64x4": one}, "command": command})
        (settings.out / "summary.json").write_text(text)

    monkeypatch.setattr(headroom_linear, "run", made_up)
    settings = tiny(tmp_path, cases=("linear-64x4",))
    for _ in range(2):
        summary = study.run(settings, console)
    assert asked == [((64, 4),)] * 2  # which runs nothing twice by itself
    assert summary["linear"]["linear-64x4"]["response"]["mean"] == 0.875
    assert "0.88 [0.50, 1.00]" in (settings.out / "report.html").read_text()


# Cases and methods.


def test_what_is_reported_served_for_nothing_else() -> None:
    for case in CASES.values():
        assert case.tune != case.wind
        assert case.tune is not None
    assert all(EVERY[case.tuned_as or ""].gains for case in NOTHING.values())
    assert max(TUNE_SEEDS) < Headroom.first_seed
    most = max(size["seeds"] for size in SIZES.values())
    assert Headroom.first_seed + most < SEARCH_SEED


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"base", "best", "learned"}))
def test_every_method_plays(name: str) -> None:
    method = METHODS[name]
    for case in ("pendulum-slow-sine", "cartpole-force", "linear-10x5-sine"):
        if not method.suits(EVERY[case]):
            continue
        point = (method.points(EVERY[case]) or [{}])[0]
        found = runs.perform(runs.Job(case, name, 100, 1, 8, False, point))
        assert np.isfinite(found["returns"]).all()
        assert found["lengths"] == [8]
        assert found["faults"] == {}


def test_tables_name_every_method_that_was_run() -> None:
    base = np.zeros((2, 2))
    outcome = stats.share(base, base + 1, base + 2, last=1)
    tables = terminal({BIAS: {"base": outcome, "paper": outcome}}, 1, 2)
    text = Console(width=120, record=True, file=io.StringIO())
    text.print(*tables)
    shown = text.export_text()
    assert "0.50 [0.50, 0.50] 0.50" in shown
    assert "paper" in shown


def test_what_a_method_changes_is_told_where_there_is_no_headroom() -> None:
    base = np.full((2, 4), 100.0)
    method = np.array([[0.0, 0.0, 90.0, 90.0], [0.0, 0.0, 100.0, 100.0]])
    found = stats.share(base, method, base, last=2)
    assert np.isnan(found.mean.value)
    assert found.change.value == pytest.approx(-0.05)
    told = stats.as_json(found, (7, 8))
    assert (told["mean"], told["change"]) == (None, pytest.approx(-0.05))
    assert told["change_interval"] == [pytest.approx(-0.1), pytest.approx(0.0)]
