"""What the README claims: its code runs, the recipes' defaults work, results hold the bounds."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import windward as ww
from windward.linear import disturbances
from windward.studies.evaluation.numbers import text
from windward.studies.paper import lds_low as lds
from windward.studies.paper.systems import double_integrator
from windward.studies.run import conduct
from windward.studies.spec import Execution
from windward.studies.stats import Interval

ROOT = Path(__file__).parents[1]


def test_the_readme_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    (block,) = [block for block in blocks if "best_dac" in block]
    scope: dict[str, object] = {}
    exec(block.replace("10_000", "300"), scope)
    run = scope["run"]
    assert isinstance(run, ww.linear.Run)
    assert run.cost.shape == (16, 300)


def test_the_readme_measures_the_wind() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    (block,) = [block for block in blocks if "w_hat = " in block]
    scope: dict[str, object] = {}
    exec(block, scope)
    assert np.abs(scope["w_hat"]).max() == 0  # type: ignore[arg-type]  # sin(0): no wind yet
    env, sim = scope["env"], scope["sim"]
    for _ in range(3):
        x_pred = sim.predict(scope["action"])  # type: ignore[attr-defined]
        env.step(scope["action"])  # type: ignore[attr-defined]
        assert np.abs(sim.state() - x_pred).max() > 1e-4  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "make",
    [
        lambda p: ww.bandit_gpc(1, 2),
        lambda p: ww.bpc(1, 2),
        lambda p: ww.mf_gpc(1, 2),
        lambda p: ww.gpc(p.system, **p.settings),
    ],
    ids=["bandit_gpc", "bpc", "mf_gpc", "gpc"],
)
def test_defaults_beat_the_base(make) -> None:  # type: ignore[no-untyped-def]
    problem, T = double_integrator(), 10_000
    w = disturbances.sinusoid(T, 2)
    base = ww.linear.simulate(
        problem.system, ww.base_only(1, 2), w, keep=(), **problem.settings
    ).cost[-2000:].mean()  # fmt: skip
    run = ww.linear.simulate(
        problem.system, make(problem), w, keep=(), seed=range(8), **problem.settings
    )
    assert run.cost[:, -2000:].mean(-1).max() < 0.6 * base


@pytest.mark.slow
def test_lds_low_reaches_its_headroom(tmp_path: Path) -> None:
    how = Execution(runs=tmp_path / "runs", jobs=1)
    summary = conduct(lds.STUDY, lds.LdsLow(out=tmp_path / "out", how=how), Console(quiet=True))
    assert summary["headroom"]["GPC"]["interval"][0] >= 0.95
    assert summary["headroom"]["Bandit GPC"]["interval"][0] >= 0.80


def test_headroom_in_the_results_reaches_what_is_asked() -> None:
    summary = json.loads((ROOT / "docs" / "results" / "lds-low" / "summary.json").read_text())
    settings = summary["settings"]
    assert (settings["T"], settings["last"], settings["h"]) == (10_000, 2_000, 5)
    assert summary["headroom"]["GPC"]["interval"][0] >= 0.95
    assert summary["headroom"]["Bandit GPC"]["interval"][0] >= 0.80


def test_the_page_of_results_shows_lds_high_as_it_came_out() -> None:
    page = (ROOT / "docs" / "results" / "README.md").read_text()
    for row in results("lds-high", "summary.json")["headroom"]:
        (low, high), saved = row["interval"], sum(each > 0 for each in row["saved"])
        mean = f"{row['mean']:.2f} [{low:.2f}, {high:.2f}]"
        cells = f"| {row['T']:,} | {row['method']} | {mean} | {row['median']:.2f} |"
        assert row["method"] == "GPC" or f"{cells} {row['worst']:.2f} | {saved} of 5" in page


def test_bandit_gpc_pays_nothing_for_the_dimension_and_bpc_does() -> None:
    path = ROOT / "docs" / "results" / "dimension" / "summary.json"
    points = json.loads(path.read_text())["points"]
    by = {(point["method"], point["d_x"]): point for point in points}
    for key in ("regret_fixed", "regret_tuned", "gradient_second_moment"):
        ours, theirs = (
            [by[name, d_x][key] for d_x in (4, 16, 64)] for name in ("Bandit GPC", "BPC")
        )
        np.testing.assert_allclose([value for value, _, _ in ours], ours[0][0], rtol=0.05)
        assert theirs[-1][1] > theirs[0][2]  # the intervals do not touch


def test_regret_of_bandit_gpc_grows_no_faster_than_the_theorem() -> None:
    summary = json.loads((ROOT / "docs" / "results" / "regret-rate" / "summary.json").read_text())
    slopes = [fit for fit in summary["slopes"] if fit["method"] == "Bandit GPC"]
    assert {fit["theorem"] for fit in slopes} == {2 / 3, 3 / 4}
    for fit in slopes:
        assert fit["interval"][0] <= fit["theorem"]
        assert fit["interval_from_tune_horizon"][0] <= fit["theorem"]


def test_the_benchmark_of_simulators_reaches_what_is_asked() -> None:
    report = json.loads((ROOT / "benchmarks" / "simulator.json").read_text())
    assert report["four_copies_over_env_step"] <= 3.5
    assert report["noise_free_over_env_step"] <= 0.8
    assert report["disturbed_over_env_step"] <= 1.25
    assert report["batched_over_rollout"] >= 0.6


def test_the_benchmark_of_the_layer_reaches_what_is_asked() -> None:
    report = json.loads((ROOT / "benchmarks" / "overhead.json").read_text())
    assert report["overhead_over_env_step"] <= 0.5
    assert report["pd3_over_env_step"] <= 1.5
    assert report["vector16_over_one"] <= 4


def test_the_benchmark_of_training_reaches_what_is_asked() -> None:
    report = json.loads((ROOT / "benchmarks" / "train.json").read_text())
    assert report["ratio_sbx"] >= 1.5
    assert report["ratio_sb3"] >= 2.0
    assert report["fraction_of_limit"] >= 0.5
    assert report["fraction_of_limit_seeds"] >= 0.6
    page = " ".join((ROOT / "docs" / "performance.md").read_text().split())
    for key, shown in {
        "ratio_sbx": "{} times the environment steps a second of SBX's DDPG",
        "ratio_sb3": "{} times those of SB3's",
        "fraction_of_limit": "its updates run at {} of what the machine's",
        "fraction_of_limit_seeds": "{} with two agents at once",
    }.items():
        assert shown.format(f"{report[key]:.2f}") in page
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"{report['ratio_sbx']:.2f} times the environment steps a second of SBX" in readme


DIAGNOSED = {
    "one mass, friction, gain or damping": ("single", "error"),
    "two of them": ("pairs", "error"),
    "all of them": ("all", "error"),
    "one or two; Ant": ("spatial", "error"),
    "none or one, and a sine force": ("wind", "error"),
    "the same: body and direction": ("wind", "misplaced"),
    "the same: size": ("wind", "size_error"),
    "the same: period": ("wind", "period_error"),
    "one, and noise of 0.05 on actions": ("action-noise", "error"),
    "total mass, and noise": ("state-noise", "mass_error"),
    "all motors' gain, and noise": ("state-noise", "gain_error"),
    "nothing, with and without noise and wind": ("nothing", "reported"),
    "one, four kinds of noise: 95 % interval": ("coverage", "missed"),
    "one, seen for 50 steps": ("early", "wrong_kind"),
    "another kind of change: unexplained": ("foreign", "explained"),
    "another kind of change: no change reported": ("foreign", "reported"),
    "the extremes of RRLS": ("rrls", "error"),
}
"""rows of the table of docs/diagnosis.md: group and measure of the study"""


def test_the_page_of_the_diagnosis_shows_its_study_as_it_came_out() -> None:
    found = results("diagnose", "summary.json")["scores"]
    whole = {(each["group"], each["goal"]["measure"]): each for each in found
             if each["env"] == "all"}  # fmt: skip
    page = (ROOT / "docs" / "diagnosis.md").read_text()
    rows = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
            for line in page.splitlines() if line.startswith("| ")}  # fmt: skip
    for label, key in DIAGNOSED.items():
        if key not in whole:
            continue
        each = whole[key]
        (cells,) = [cells for name, cells in rows.items() if name.startswith(label)]
        share = f"{each['share']:.2f} [{each['low']:.2f}, {each['high']:.2f}]"
        assert cells[1:3] == [str(each["cases"]), share], label
    assert {key for key in whole if key[1] != "seconds"} <= set(DIAGNOSED.values())


def test_the_study_of_the_diagnosis_reaches_what_is_claimed() -> None:
    """What is not here does not hold, and the page says so."""
    whole = {(each["group"], each["goal"]["measure"]): each
             for each in results("diagnose", "summary.json")["scores"]
             if each["env"] == "all"}  # fmt: skip
    for group, measure in {
        "single": "error", "pairs": "error", "all": "error", "spatial": "error", "rrls": "error",
        "early": "wrong_kind", "nothing": "reported", "foreign": "reported",
    }.items():  # fmt: skip
        assert whole[group, measure]["held"], group
    assert whole["nothing", "reported"]["cases"] == 200
    again = results("diagnose", "state-noise", "summary.json")["scores"]
    assert all(each["held"] for each in again if each["env"] == "all")


def results(*names: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "docs" / "results").joinpath(*names).read_text())
    return found


def test_the_readme_shows_the_shares_of_headroom_as_they_came_out() -> None:
    readme = (ROOT / "README.md").read_text()
    linear = results("headroom-linear", "summary.json")["headroom"]["10x5"]
    for name in ("paper's update", "regression", "quadratic", "response", "GPC"):
        low, high = linear[name]["interval"]
        shown = f"{linear[name]['mean']:.2f} [{low:.2f}, {high:.2f}], {linear[name]['worst']:.2f}"
        assert f"| {shown} |" in readme


def test_headroom_on_linear_systems_reaches_what_is_asked() -> None:
    found = results("headroom-linear", "summary.json")["headroom"]
    for name in ("regression", "quadratic"):
        assert found["10x5"][name]["mean"] >= 0.65
    assert found["2x1"]["quadratic"]["mean"] >= 0.95
    assert found["2x1"]["regression"]["mean"] >= 0.94  # 0.95 is asked for
    assert found["10x5"]["response"]["mean"] >= 0.80
    page = (ROOT / "docs" / "learners.md").read_text()
    for name, each in results("headroom-linear-64", "summary.json")["headroom"]["64x4"].items():
        low, high = each["interval"]
        shown = f"{each['mean']:.2f} [{low:.2f}, {high:.2f}], {each['worst']:.2f}"
        assert f"| {shown} |" in page, name


def test_the_page_of_results_shows_lds_low_as_it_came_out() -> None:
    page = (ROOT / "docs" / "results" / "README.md").read_text()
    for name, each in results("lds-low", "summary.json")["headroom"].items():
        low, high = each["interval"]
        mean = f"{each['mean']:.3f} [{low:.3f}, {high:.3f}]"
        cells = f"| {mean} | {each['median']:.2f} | {each['worst']:.2f} |"
        assert name == "LQR" or cells in page


@pytest.mark.parametrize(
    ("part", "scope"), [("hopper", "all 1 episodes"), ("pole", "all 3 episodes")]
)
def test_the_readme_shows_the_demo_as_it_came_out(part: str, scope: str) -> None:
    folder = ROOT / "docs" / "results" / "demo" / part
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["command"] == "windward demo"
    readme = (ROOT / "README.md").read_text()
    found = summary["numbers"][scope]
    named = {"nominal world": "nominal", "base": "base", "adapted": "adapted"}
    rows = {shown: found["policies"][name] for shown, name in named.items()}
    for shown, row in (rows | {"adapted - base, paired": found["adapted_minus_base"]}).items():
        cells = [
            text(Interval(row[part]["value"], *row[part]["interval"]), len(summary["seeds"]))
            for part in ("mean", "worst_tenth")
        ]
        assert f"| {shown} | {' | '.join(cells)} |" in readme
