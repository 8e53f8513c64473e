"""The studies of trainings: the appendix's settings, what is chosen where, files, and refusals."""

import csv
import io
import json
import os
import runpy
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pytest
from rich.console import Console

from windward.atomic import write_rows
from windward.cli import main
from windward.studies.paper import groups, planning
from windward.studies.paper import training as robust_training
from windward.studies.paper import training as trainings
from windward.studies.paper import trainings as catalogue
from windward.studies.paper.groups import SHOWN, size_of
from windward.studies.paper.training import RobustTraining
from windward.studies.paper.trainings import ENTRIES
from windward.studies.runs import store, study_folder
from windward.studies.spec import Execution, Pace, Run, Task
from windward.studies.stats import on_grid

ROOT = Path(__file__).parents[3]
THREE, ALONE = (0.15, 0.2, 0.25), (0.15,)
FIVE, PD1 = (0.1, 0.15, 0.2, 0.25, 0.3), (0.1, 0.15, 0.2)


@pytest.mark.parametrize(
    ("name", "env", "signal", "base", "ours", "steps"),
    [
        ("hopper-pd1", "windward/NoisyHopper-v0", "pd1", FIVE, PD1, 10_000_000),
        ("hopper-pd2", "windward/NoisyHopper-v0", "pd2", THREE, ALONE, 10_000_000),
        ("hopper-pd3", "windward/NoisyHopper-v0", "pd3", THREE, THREE, 10_000_000),
        ("walker-pd2", "windward/NoisyWalker2d-v0", "pd2", THREE, THREE, 15_000_000),
        ("walker-pd3", "windward/NoisyWalker2d-v0", "pd3", THREE, THREE, 15_000_000),
        ("ant-pd2", "windward/NoisyAnt-v0", "pd2", THREE, THREE, 15_000_000),
        ("ant-pd3", "windward/NoisyAnt-v0", "pd3", THREE, ALONE, 15_000_000),
        ("halfcheetah-pd1", "windward/NoisyHalfCheetah-v0", "pd1", FIVE, PD1, 10_000_000),
        ("hopper-clean", "Hopper-v5", "pd2", ALONE, ALONE, 10_000_000),
    ],
)
def test_at_the_papers_scale_the_settings_are_the_appendixs(
    name: str, env: str, signal: str, base: Any, ours: Any, steps: int
) -> None:
    entry = ENTRIES[name]
    settings = replace(entry.default, scale="paper")
    size = size_of(settings, entry)
    every = robust_training.make_groups(settings, size)
    sigmas = {"baseline": base, f"MF-GPC {signal.upper()}": ours}
    assert [(g.method, g.values["sigma"]) for g in every] == [
        (method, sigma) for method, grid in sigmas.items() for sigma in grid
    ]
    for group in every:
        assert len(group.shown) == 25
        for run in group.shown:
            assert (run.goal, run.settings["env"]) == (steps, env)
            agent = run.settings["agent"]
            assert agent["sigma"] == group.values["sigma"]
            assert agent["widths"] == [256, 256, 256]
            assert (agent["num_atoms"], agent["num_envs"], agent["learning_rate"]) == (51, 4, 3e-4)
            assert ("robust" in agent) == (group.method != "baseline")
            if "robust" in agent:
                robust = agent["robust"]
                assert (robust["signal"], robust["h"], robust["every_episodes"]) == (signal, 5, 3)
                assert robust["weight_decay"] > 0
                assert robust["simulator"] == {}  # four noisy copies
                assert robust["form"] == ("critic_units" if signal == "pd2" else "vector_head")


def test_the_sweep_covers_sigma_eta_weight_decay_and_h() -> None:
    entry = ENTRIES["walker-pd3-sweep"]
    every = robust_training.make_groups(entry.default, entry.sizes["laptop"])
    varied: dict[str, set[float]] = {}
    for group in every:
        for name, value in group.values.items():
            varied.setdefault(name, set()).add(value)
    assert set(varied) == {"sigma", "eta", "weight_decay", "h"}
    assert all(len(values) > 1 for values in varied.values())
    assert not any(group.judged for group in every)
    assert len({run.name for group in every for run in group.shown}) == 3 * len(every)


def test_studies_share_their_baselines_and_nothing_else() -> None:
    def names(study: str) -> dict[str, set[str]]:
        entry = ENTRIES[study]
        made = robust_training.make_groups(entry.default, entry.sizes["laptop"])
        return {
            kind: {r.name for g in made if (g.method == "baseline") == base for r in g.shown}
            for kind, base in (("base", True), ("ours", False))
        }

    pd2, pd3, walker = names("hopper-pd2"), names("hopper-pd3"), names("walker-pd3")
    assert pd2["base"] == pd3["base"]
    assert not pd2["ours"] & pd3["ours"]
    assert not pd3["base"] & walker["base"]
    assert not pd3["base"] & pd3["ours"]


@pytest.mark.parametrize("name", list(ENTRIES))
@pytest.mark.parametrize("scale", ["paper", "laptop", "smoke"])
def test_what_chooses_is_not_shown(name: str, scale: Any) -> None:
    entry = ENTRIES[name]
    settings = robust_training.scaled(replace(entry.default, scale=scale), entry)
    made = robust_training.make_groups(settings, size_of(settings, entry))
    shown = {run.settings["seed"] for group in made for run in group.shown}
    judged = {run.settings["seed"] for group in made for run in group.judged}
    assert not shown & judged
    assert min(shown) == SHOWN


def _curve(run: Run, root: Path, value: float) -> None:
    folder = run.folder(root)
    folder.mkdir(parents=True, exist_ok=True)
    steps = np.linspace(run.goal / 4, run.goal, 4).astype(int)
    write_rows(
        folder / "curves.csv",
        [{"steps": s, "eval_return": value + i, "eval_worst": value} for i, s in enumerate(steps)],
    )


def test_the_best_is_the_best_of_the_seeds_that_choose(tmp_path: Path) -> None:
    entry = ENTRIES["hopper-pd3"]
    every = robust_training.make_groups(entry.default, entry.sizes["laptop"])
    for i, group in enumerate(every):
        for run in group.judged:
            _curve(run, tmp_path, 10.0 * i)
        for run in group.shown:
            _curve(run, tmp_path, -10.0 * i)  # the order of the shown ones is the other way round
    best = groups.best(every, tmp_path)
    assert {method: group.name for method, group in best.items()} == {
        "baseline": every[2].name, "MF-GPC PD3": every[5].name
    }  # fmt: skip
    assert groups.score(every[2], tmp_path) == 20 + (2 + 3) / 2  # the last half of four


def test_a_run_that_failed_chooses_nothing(tmp_path: Path) -> None:
    entry = ENTRIES["hopper-pd3"]
    every = robust_training.make_groups(entry.default, entry.sizes["laptop"])[:2]
    for i, group in enumerate(every):
        for run in group.judged:
            _curve(run, tmp_path, 10.0 * i)
    assert groups.best(every, tmp_path) == {"baseline": every[1]}
    (every[1].judged[0].folder(tmp_path) / store.ERROR).write_text("NotFinite")
    assert groups.score(every[1], tmp_path) is None
    assert groups.best(every, tmp_path) == {"baseline": every[0]}


def test_runs_that_choose_are_no_longer_than_those_that_are_shown() -> None:
    entry = ENTRIES["walker-pd3"]
    fewer = replace(entry.default, scale="paper", steps=1_000_000)
    assert size_of(fewer, entry).tune_steps == 1_000_000
    assert size_of(replace(fewer, tune_steps=2_000_000), entry).tune_steps == 2_000_000
    more = replace(entry.default, steps=900_000)
    assert size_of(more, entry).tune_steps == entry.sizes["laptop"].tune_steps


def test_a_method_without_a_score_has_no_best(tmp_path: Path) -> None:
    entry = ENTRIES["hopper-pd2"]  # of MF-GPC there is one group, which nothing chooses
    every = robust_training.make_groups(entry.default, entry.sizes["laptop"])
    assert [bool(group.judged) for group in every] == [True, True, True, False]
    assert groups.best(every, tmp_path) == {"MF-GPC PD2": every[3]}
    for run in every[1].judged:
        _curve(run, tmp_path, -5.0)
    assert groups.best(every, tmp_path) == {"baseline": every[1], "MF-GPC PD2": every[3]}


def test_numbers_by_hand(tmp_path: Path) -> None:
    entry = ENTRIES["hopper-pd3"]
    group = robust_training.make_groups(entry.default, entry.sizes["laptop"])[0]
    for run, value in zip(group.shown, (100.0, 200.0, 600.0), strict=True):
        _curve(run, tmp_path, value)
    told = groups.numbers(groups.curves_of(group.shown, tmp_path))
    assert told.final == (103.0, 203.0, 603.0)
    assert told.reached == (300_000,) * 3
    assert told.mean is not None
    assert told.mean.value == pytest.approx(303.0)
    assert told.error == pytest.approx(np.std([103, 203, 603], ddof=1) / np.sqrt(3))


# End to end, at a size that takes seconds.


def _study(folder: Path, **changes: Any) -> RobustTraining:
    default = ENTRIES["pendulum-sine"].default
    how = Execution(runs=folder / "runs", jobs=1)
    small: dict[str, Any] = {"base_sigmas": (0.2,), "sigmas": (0.1, 0.3)}
    small |= {"steps": 200, "tune_steps": 100}
    return replace(default, scale="smoke", out=folder / "out", how=how, **(small | changes))


@pytest.fixture(scope="module", autouse=True)
def _same_commit() -> Iterator[None]:
    """Whoever commits while the tests run changes no page of theirs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_folder, "commit", lambda: "a commit")
        yield


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished study."""
    folder = tmp_path_factory.mktemp("study")
    catalogue.run(_study(folder), Console(quiet=True))
    return folder


def _summary(folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / "out" / "summary.json").read_text())
    return summary


def test_it_writes_what_it_reports(done: Path) -> None:
    summary = _summary(done)
    assert {path.name for path in (done / "out").iterdir()} == {
        ".guard", "best.pdf", "best.png", "curves.csv", "raw.pdf",
        "raw.png", "report.html", "study.json", "summary.json",
    }  # fmt: skip
    with (done / "out" / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [group["method"] for group in summary["groups"]] == ["baseline", "MF-GPC PD3"]
    for group in summary["groups"]:
        for run in group["runs"]:
            mine = [
                r for r in rows if (r["group"], r["seed"]) == (group["group"], str(run["seed"]))
            ]
            assert [int(row["steps"]) for row in mine] == [100, 200]
            assert float(mine[-1]["eval_return"]) == pytest.approx(run["final_return"], rel=1e-4)
            assert run["finished"]
        assert [run["seed"] for run in group["runs"]] == [100, 101]
    best = max(summary["scores"], key=summary["scores"].__getitem__)
    assert summary["chosen"] == {"baseline": "baseline, σ = 0.2", "MF-GPC PD3": best}
    flags = "--scale smoke --steps 200 --tune-steps 100 --base-sigmas 0.2 --sigmas 0.1 0.3 --out"
    assert summary["command"].startswith(f"windward run pendulum-sine {flags}")
    page = (done / "out" / "report.html").read_text()
    assert "Learning curves, interquartile mean" in page
    assert (done / "out" / "best.pdf").read_bytes().startswith(b"%PDF")
    # Every run has its TensorBoard file.
    assert all(list(run.glob("events*")) for run in (done / "runs").iterdir())


def test_a_plan_goes_by_finished_runs(
    done: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of a longer study of the same groups: at the pace that their runs had."""
    study = replace(_study(done, steps=10_000), out=tmp_path)
    catalogue.run(replace(study, how=replace(study.how, dry_run=True)), Console(width=200))
    assert "core-hours (by finished runs)" in " ".join(capsys.readouterr().out.split())
    assert not list(tmp_path.iterdir())


def test_finished_runs_are_not_repeated_and_files_are_the_same(
    done: Path, console: Console
) -> None:
    marks = sorted((done / "runs").glob("*/finished.json"))
    assert len(marks) == 2 + 4
    before = [(path.stat().st_mtime_ns, path.read_bytes()) for path in marks]
    names = ("summary.json", "curves.csv", "report.html", "best.pdf")
    files = [(done / "out" / name).read_bytes() for name in names]
    catalogue.run(_study(done), console)
    assert [(path.stat().st_mtime_ns, path.read_bytes()) for path in marks] == before
    assert [(done / "out" / name).read_bytes() for name in names] == files


def test_other_settings_under_the_same_name_are_refused(done: Path, console: Console) -> None:
    changed = _study(done, sigmas=(0.1,))
    with pytest.raises(
        ValueError, match=r"other settings \(sigmas was \[0.1, 0.3\], now \[0.1\]\)"
    ):
        catalogue.run(changed, console)


def test_a_setting_that_came_later_is_not_held_against_results(tmp_path: Path) -> None:
    study_folder.claim(tmp_path, {"eta": 0.2})
    study_folder.claim(tmp_path, {"eta": 0.2, "new": 5})
    with pytest.raises(ValueError, match="new was 5, now 7"):
        study_folder.claim(tmp_path, {"eta": 0.2, "new": 7})
    with pytest.raises(ValueError, match=r"was begun with other settings \(eta was 0\.2, now 0\.3"):
        study_folder.claim(tmp_path, {"eta": 0.3, "new": 5})
    assert json.loads((tmp_path / study_folder.STUDY).read_text()) == {"eta": 0.2, "new": 5}
    (tmp_path / study_folder.RESULTS).touch()
    with pytest.raises(ValueError, match="holds results with other settings"):
        study_folder.claim(tmp_path, {"eta": 0.3, "new": 5})


def test_more_steps_go_on_and_a_failing_seed_leaves_the_rest(
    done: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _summary(done)
    train = trainings.train

    def some_fail(task: Task) -> Pace:
        if task.run.settings["seed"] == 101 and "robust" in task.run.settings["agent"]:
            raise RuntimeError("the simulator is gone")
        return train(task)

    monkeypatch.setattr(trainings, "train", some_fail)
    longer = _study(done, steps=300, drop_worst=1)
    with pytest.raises(ValueError, match=r"(?s)1 of 6 runs failed.*RuntimeError: the simulator is"):
        catalogue.run(longer, console)
    summary = _summary(done)
    base, ours = summary["groups"]
    assert [run["steps"] for run in base["runs"]] == [300, 300]
    assert [run["steps"] for run in ours["runs"]] == [300, 200]
    assert [run["finished"] for run in ours["runs"]] == [True, False]
    page = (done / "out" / "report.html").read_text()
    assert "the simulator is gone" in page
    assert "of each group the 1 run(s) with the lowest final return" in page
    # The shorter study is as it was.
    entry = ENTRIES["pendulum-sine"]
    study = robust_training.scaled(_study(done), entry)
    made = robust_training.make_groups(study, size_of(study, entry))
    shorter = groups.numbers(groups.curves_of(made[0].shown, done / "runs"))
    assert list(shorter.final) == [run["final_return"] for run in before["groups"][0]["runs"]]


def _pretend(monkeypatch: pytest.MonkeyPatch, broken: Callable[[Run], bool]) -> list[str]:
    """Runs that take no time; those that are broken fail. Gives the names of all that began."""
    begun: list[str] = []

    def train(task: Task) -> Pace:
        begun.append(task.run.name)
        if broken(task.run):
            raise RuntimeError("the simulator is gone")
        _curve(task.run, task.folder.parent, 1.0)
        return Pace(0, 0.0)

    monkeypatch.setattr(trainings, "train", train)
    return begun


def _ours(run: Run) -> bool:
    return "robust" in run.settings["agent"]


@pytest.mark.parametrize("all_groups", [False, True])
def test_a_method_whose_choosing_runs_failed_is_trained_no_further(
    all_groups: bool, tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = _study(tmp_path, base_sigmas=(0.2, 0.4), all_groups=all_groups)
    begun = _pretend(monkeypatch, _ours)
    shown = 4 if all_groups else 2
    told = rf"(?s)^2 of {4 + shown} runs failed; .*MF-GPC-PD3-s0.1-seed0-.*MF-GPC-PD3-s0.3-seed0-"
    with pytest.raises(ValueError, match=told):
        catalogue.run(study, console)
    assert not any("MF-GPC" in name and "seed10" in name for name in begun)
    summary = _summary(tmp_path)
    assert {group["method"] for group in summary["groups"]} == {"baseline"}
    assert summary["chosen"] == {"baseline": "baseline, σ = 0.2"}
    assert "MF-GPC PD3 is not shown" in summary["found"]
    assert "the simulator is gone" in (tmp_path / "out" / "report.html").read_text()
    # The same command tries again, and then it is there.
    begun = _pretend(monkeypatch, lambda run: False)
    summary = catalogue.run(study, console)
    assert list(summary["chosen"]) == ["baseline", "MF-GPC PD3"]
    assert all("MF-GPC" in name for name in begun)


def test_if_no_method_has_a_score_nothing_is_shown(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = _study(tmp_path, base_sigmas=(0.2, 0.4))
    begun = _pretend(monkeypatch, lambda run: True)
    with pytest.raises(ValueError, match=r"(?s)^all 4 of 4 runs failed\. .*baseline.*MF-GPC-PD3"):
        catalogue.run(study, console)
    assert len(begun) == 4
    assert all("seed0-" in name for name in begun)
    assert not (tmp_path / "out" / "report.html").exists()


def test_if_no_return_is_a_number_it_says_so(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(task: Task) -> Pace:
        _curve(task.run, task.folder.parent, np.nan)
        return Pace(0, 0.0)

    monkeypatch.setattr(trainings, "train", train)
    with pytest.raises(ValueError, match="no setting has a finite return on every seed"):
        catalogue.run(_study(tmp_path, base_sigmas=(0.2, 0.4)), console)


def test_the_worst_runs_can_be_left_out_of_the_bands_but_are_there(tmp_path: Path) -> None:
    entry = ENTRIES["hopper-pd3"]
    group = robust_training.make_groups(entry.default, entry.sizes["laptop"])[0]
    for run, value in zip(group.shown, (100.0, 900.0, 300.0), strict=True):
        _curve(run, tmp_path, value)
    drawing = groups.drawn_of([group], tmp_path, drop=2)[group.name]
    assert [seed for seed, *_ in drawing.raw] == [100, 101, 102]
    _, x, y = drawing.raw[1]
    np.testing.assert_allclose(drawing.mean.y, on_grid([(x, y)], 300_000.0)[1][0])


def test_nothing_to_draw_is_told(tmp_path: Path, console: Console) -> None:
    study = _study(tmp_path)
    with pytest.raises(ValueError, match="there is nothing to draw"):
        catalogue.run(replace(study, how=replace(study.how, train=False)), console)


def test_a_plan_says_what_it_costs_and_does_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["run", "ant-pd3", "--scale", "paper", "--dry-run"])
    out = " ".join(capsys.readouterr().out.split())
    assert "what baseline, MF-GPC PD3 take is known once a run is finished" in out
    assert "15,000,000" in out
    # 1e6 transitions of Ant-v5: 4 bytes of 2·105 + 8 + 2 numbers, and the process.
    need = (4 * 1e6 * 220 + planning.PROCESS) / 2**30
    assert f"{need:.1f} GiB of memory each" in out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--steps 130000", "steps must be a multiple of segment"),
        ("--sigma 0.3", "use --base-sigmas and --sigmas"),
        ("--sigmas 0.1 0.1", "sigmas must not name a value twice"),
        ("--signal None --eta 1e-5 --weight-decay 0", "give a --signal"),
        ("--eval-every 1000000", "eval_every must be at most steps"),
        ("--tune-seeds 101", "tune_seeds must be at most 100"),
        ("--env Hoper-v5", "Hoper"),
        ("--jobs 0", "jobs must be an integer of at least 1"),
    ],
)
def test_bad_flags_end_in_one_clear_line(
    flags: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(f"run hopper-pd3 --dry-run {flags}".split())
    assert end.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_every_study_of_the_issue_has_a_name_and_says_what_it_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    main(["list"])
    out = capsys.readouterr().out
    names = (
        "lds-low lds-high hopper-pd1 hopper-pd2 hopper-pd3 hopper-clean walker-pd2 walker-pd3 "
        "walker-pd3-sweep ant-pd2 ant-pd3 halfcheetah-pd1 pendulum-fgsm pendulum-sine regret-rate "
        "dimension cartpole-discrete headroom-linear diagnose recovery learning"
    )
    missing = [name for name in names.split() if f" {name} " not in out]
    assert missing == []


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ENTRIES))
def test_every_study_runs_at_the_smallest_scale(name: str, tmp_path: Path) -> None:
    text = io.StringIO()
    how = Execution(runs=tmp_path / "runs", jobs=1)
    small = replace(ENTRIES[name].default, scale="smoke", out=tmp_path / "out", how=how)
    summary = catalogue.run(small, Console(file=text, width=200))
    assert not summary["failed"]
    assert all(run["finished"] for group in summary["groups"] for run in group["runs"])
    assert ENTRIES[name].title.split(",")[0] in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.slow
def test_a_study_that_is_killed_again_and_again_ends_like_one_that_went_through(
    tmp_path: Path,
) -> None:
    """`kill -9` of the command three times while processes of its own train."""
    flags = "run pendulum-sine --scale smoke --base-sigmas 0.2 --jobs 2"

    def command(folder: Path) -> subprocess.Popen[bytes]:
        folder.mkdir(exist_ok=True)
        arguments = [sys.executable, "-m", "windward.cli", *flags.split()]
        return subprocess.Popen(arguments, cwd=folder, stdout=subprocess.DEVNULL)

    def progress(folder: Path) -> int:
        return sum(p.stat().st_size for p in folder.glob("out/runs/*/curves.csv"))

    torn, whole = tmp_path / "torn", tmp_path / "whole"
    for _ in range(3):
        before, process = progress(torn), command(torn)
        while progress(torn) == before and process.poll() is None:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert command(torn).wait() == 0
    assert command(whole).wait() == 0
    folders = [each / "out/studies/pendulum-sine-smoke" for each in (torn, whole)]
    one, two = ((each / "curves.csv").read_bytes() for each in folders)
    assert one == two
    summaries = [json.loads((each / "summary.json").read_text()) for each in folders]
    for each in summaries:
        del each["core_hours"]  # which is of no result
    assert summaries[0] == summaries[1]


def test_the_speeds_of_plans_are_those_of_runs_in_the_repository() -> None:
    seen: dict[tuple[str, str | None], list[float]] = {}
    with tarfile.open(ROOT / "docs" / "results" / "training" / "runs.tar.gz") as archive:
        for member in archive:
            if not member.name.endswith("/finished.json"):
                continue
            folder = member.name.rpartition("/")[0]
            kept, done = (
                json.load(cast(IO[bytes], archive.extractfile(f"{folder}/{name}.json")))
                for name in ("settings", "finished")
            )
            settings, (units, seconds) = kept["settings"], done["pace"]
            signal = settings["agent"].get("robust", {}).get("signal")
            if seconds:
                seen.setdefault((settings["env"], signal), []).append(units / seconds)
    speeds = runpy.run_path(str(ROOT / "tools" / "paper_costs.py"))["SPEEDS"]
    told = {(env, each): v for env, row in speeds.items() for each, v in row.items()}
    assert told.keys() == seen.keys()
    for key, speed in told.items():
        assert min(seen[key]) - 0.5 <= speed <= max(seen[key]) + 0.5, key
