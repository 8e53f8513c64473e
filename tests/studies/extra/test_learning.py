"""`learning` end to end at a small size: resuming, what is not repeated, and numbers by hand."""

import csv
import io
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from windward.agents import D4PG, Settings
from windward.atomic import write_rows
from windward.cli import main
from windward.studies.extra import learning, sbx_ddpg
from windward.studies.extra import learning_curves as curves
from windward.studies.extra.learning import Learning
from windward.studies.runs.locks import Lock

COMMITTED = Path(__file__).parents[3] / "docs" / "results" / "learning"

SMALL = Settings(
    widths=(8,), batch_size=16, min_replay=16, replay_size=1000, samples_per_insert=2, segment=120
)
FLAGS = (
    "--widths 8 --batch-size 16 --min-replay 16 --replay-size 1000 --samples-per-insert 2 "
    "--segment 120"
)


def _study(folder: Path, **changes: object) -> Learning:
    tiny = Learning(
        envs=("Pendulum-v1",), seeds=(3, 4), steps=240, sbx_seeds=0, eval_every=40,
        eval_episodes=1, runs=folder / "runs", out=folder / "out", settings=SMALL,
    )  # fmt: skip
    return replace(tiny, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished study."""
    folder = tmp_path_factory.mktemp("learning")
    learning.run(_study(folder), Console(quiet=True))
    return folder


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def _write(path: Path, returns: list[float], every: int = 100) -> None:
    """A curve as a run of D4PG or of SBX would leave it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_rows(
        path,
        [
            {"steps": every * i, "updates": i, "eval_return": value, "eval_worst": value - i}
            for i, value in enumerate(returns, 1)
        ],
    )


def test_it_writes_what_it_reports(finished: Path) -> None:
    summary = json.loads((finished / "out" / "summary.json").read_text())
    (entry,) = summary["curves"]
    finals = []
    for run, seed in zip(entry["runs"], (3, 4), strict=True):
        rows = _rows(finished / "out" / f"Pendulum-v1-d4pg-{seed}.csv")
        assert [int(row["steps"]) for row in rows] == [40, 80, 120, 160, 200, 240]
        assert rows == _rows(finished / "runs" / f"Pendulum-v1-{seed}" / "curves.csv")
        assert run["final_return"] == float(rows[-1]["eval_return"])
        assert run["updates"] == int(rows[-1]["updates"]) > 0
        finals.append(run["final_return"])
    assert entry["final_return"] == pytest.approx((finals[0] + finals[1]) / 2)
    assert entry["worst_evaluation"] == min(finals)
    assert entry["complete"]
    assert summary["settings"]["settings"]["widths"] == [8]
    assert (finished / "out" / "learning.png").read_bytes().startswith(b"\x89PNG")
    assert (finished / "out" / "learning.pdf").read_bytes().startswith(b"%PDF")


def test_the_committed_curves_give_the_committed_numbers(tmp_path: Path, console: Console) -> None:
    for path in COMMITTED.glob("*.csv"):
        shutil.copy(path, tmp_path)
    study = Learning(train=False, runs=tmp_path / "none", out=tmp_path)
    found = learning.run(study, console)
    assert found["curves"] == json.loads((COMMITTED / "summary.json").read_text())["curves"]


def test_finished_runs_are_not_repeated(finished: Path, console: Console) -> None:
    checkpoints = sorted((finished / "runs").glob("*/last.npz"))
    before = [(path.stat().st_mtime_ns, path.read_bytes()) for path in checkpoints]
    summary = json.loads((finished / "out" / "summary.json").read_text())
    again = learning.run(_study(finished), console)
    assert again["curves"] == summary["curves"]
    assert [(path.stat().st_mtime_ns, path.read_bytes()) for path in checkpoints] == before


def test_a_run_begun_by_train_is_taken_up(
    finished: Path, tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = "--steps 120 --eval-every 40 --eval-episodes 1 --seed 3"
    main(f"train --env Pendulum-v1 {options} {FLAGS}".split())
    steps_here: list[int] = []
    learn = D4PG.learn

    def counted(agent: D4PG, total: int, **options: Any) -> D4PG:
        learn(agent, total, callback=lambda a: steps_here.append(a.num_timesteps), **options)
        return agent

    monkeypatch.setattr(D4PG, "learn", counted)
    study = _study(tmp_path, seeds=(3,), runs=Learning.runs)
    learning.run(study, console)
    assert steps_here == [160, 200, 240]
    # And it is the run that was never stopped.
    name = "Pendulum-v1-d4pg-3.csv"
    assert _rows(study.out / name) == _rows(finished / "out" / name)


def test_drawing_nothing_is_refused(tmp_path: Path, console: Console) -> None:
    with pytest.raises(ValueError, match=r"there is no curve in .* --no-train"):
        learning.run(_study(tmp_path, train=False), console)


def test_drawing_shows_what_there_is_and_trains_nothing(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "D4PG", None)
    console = Console(record=True, width=120, file=io.StringIO())
    study = _study(
        tmp_path, train=False, steps=2000, seeds=(3, 4, 5), sbx_seeds=1,
        runs=finished / "runs",
    )  # fmt: skip
    _write(study.out / "Pendulum-v1-sbx-ddpg-3.csv", [-float(i) for i in range(50)], every=40)
    _write(study.out / "Pendulum-v1-d4pg-5.csv", [-7.0] * 60, every=40)
    ours, theirs = learning.run(study, console)["curves"]
    assert [run["progress"] for run in ours["runs"]] == [
        "240 of 2000 steps", "240 of 2000 steps", "2000 of 2000 steps",
    ]  # fmt: skip
    assert [run["complete"] for run in ours["runs"]] == [False, False, True]
    assert not ours["complete"]
    assert theirs["complete"]
    # The last five of fifty evaluations are -45 to -49, with worst episodes 46 to 50 lower.
    assert theirs["final_return"] == -47
    assert theirs["worst_evaluation"] == -49
    assert theirs["runs"][0]["worst_episode"] == -99
    said = console.export_text()
    assert "240 of 2000" in said
    assert "-47.0" in said


def test_drawing_runs_with_other_settings_is_refused(
    finished: Path, tmp_path: Path, console: Console
) -> None:
    other = replace(SMALL, widths=(9,), gamma=0.9)
    study = _study(finished, train=False, settings=other, out=tmp_path)
    with pytest.raises(
        ValueError, match=r"settings \(widths was \[8\], now \[9\]; gamma was 0.99, n"
    ):
        learning.run(study, console)


def test_drawing_runs_with_other_evaluations_is_refused(
    finished: Path, tmp_path: Path, console: Console
) -> None:
    study = _study(finished, train=False, eval_episodes=2, eval_every=80, out=tmp_path)
    with pytest.raises(ValueError, match=r"eval_every was 40, now 80; eval_episodes was 1, now 2"):
        learning.run(study, console)


def test_other_settings_under_one_name_are_refused(
    finished: Path, tmp_path: Path, console: Console
) -> None:
    """Also with other runs: the curves of SBX in `out` would else pass for those of now."""
    before = (finished / "out" / "summary.json").read_bytes()
    for changes, said in (
        ({"settings": replace(SMALL, gamma=0.9)}, r"gamma was 0.99, now 0.9"),
        ({"eval_episodes": 2}, r"eval_episodes was 1, now 2"),
        ({"steps": 480}, r"steps was 240, now 480"),
    ):
        study = _study(finished, runs=tmp_path, **changes)
        with pytest.raises(ValueError, match=rf"other settings \({said}\): give another --out"):
            learning.run(study, console)
    assert not any(tmp_path.iterdir())
    assert (finished / "out" / "summary.json").read_bytes() == before


def test_more_seeds_come_under_the_same_name(tmp_path: Path, console: Console) -> None:
    _write(tmp_path / "out" / "Pendulum-v1-d4pg-3.csv", [1.0])
    for seeds in ((3,), (3, 4)):
        (entry,) = learning.run(_study(tmp_path, train=False, seeds=seeds), console)["curves"]
        assert [run["seed"] for run in entry["runs"]] == list(seeds)


def test_a_run_that_another_process_makes_is_left_alone(
    finished: Path, tmp_path: Path, console: Console
) -> None:
    with (
        Lock(finished / "runs" / "Pendulum-v1-4"),
        pytest.raises(ValueError, match=r"Pendulum-v1-4 is held by process \d+ on"),
    ):
        learning.run(_study(finished, out=tmp_path), console)
    assert not list((finished / "runs").glob("*/lock.json"))


def test_a_run_that_is_not_begun_has_no_numbers(tmp_path: Path, console: Console) -> None:
    study = _study(tmp_path, train=False, envs=("Hopper-v5", "Pendulum-v1"))
    _write(study.out / "Hopper-v5-d4pg-4.csv", [1.0, 2.0], every=40)
    hopper, pendulum = learning.run(study, console)["curves"]
    assert [run["progress"] for run in hopper["runs"]] == ["0 of 240 steps", "80 of 240 steps"]
    assert [run["final_return"] for run in hopper["runs"]] == [None, 2]
    assert hopper["final_return"] == 2
    assert pendulum["final_return"] is None


def test_the_mean_is_over_steps_that_all_have() -> None:
    job = curves.Job("Pendulum-v1", "D4PG", 0, 100, 10)
    long, short = (
        curves.Curve(job, [{"steps": str(s), "eval_return": str(factor * s)} for s in steps])
        for steps, factor in (((10, 20, 30, 40), 1), ((10, 30), 3))
    )
    steps, mean = curves.mean_curve([long, short])
    np.testing.assert_array_equal(steps, [10, 30])
    np.testing.assert_array_equal(mean, [20, 60])


def test_lengths_by_environment() -> None:
    asked = {(job.env, job.steps, job.eval_every) for job in learning.jobs(Learning())}
    assert asked == {
        ("InvertedPendulum-v5", 50_000, 5_000),
        ("Pendulum-v1", 50_000, 5_000),
        ("Hopper-v5", 1_000_000, 20_000),
        ("HalfCheetah-v5", 1_000_000, 20_000),
    }
    hopper = [job[1:3] for job in learning.jobs(Learning()) if job.env == "Hopper-v5"]
    assert hopper == [("D4PG", 10), ("D4PG", 11), ("D4PG", 12), ("SBX DDPG", 10)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"envs": ()}, "envs must name at least one"),
        ({"seeds": (1, 1)}, "seeds must name at least one, none of them twice"),
        ({"envs": ("Pendulmu-v1",)}, "Pendulum"),
        ({"steps": 30}, "eval_every must be at most steps, 30"),
        ({"steps": 0}, "steps must be"),
        ({"sbx_seeds": -1}, "sbx_seeds must be"),
    ],
)
def test_bad_settings_are_refused(
    changes: dict[str, object], message: str, tmp_path: Path, console: Console
) -> None:
    with pytest.raises(ValueError, match=message):
        learning.run(_study(tmp_path, **changes), console)


def test_without_sbx_it_says_so_and_goes_on(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "find_spec", lambda name: None)
    console = Console(record=True, width=120, file=io.StringIO())
    summary = learning.run(_study(finished, sbx_seeds=2, out=tmp_path / "out"), console)
    assert "pip install 'windward[sb3]'" in console.export_text()
    assert [entry["complete"] for entry in summary["curves"]] == [True, False]
    assert summary["peers"] == {}


def test_sbx_has_jax_as_its_users_do_and_its_failure_is_told(
    finished: Path, tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, str] = {}

    def fails(command: list[str], env: dict[str, str], **_: Any) -> Any:
        seen.update(env)
        return subprocess.CompletedProcess(command, returncode=1)

    monkeypatch.setattr(learning, "find_spec", lambda name: True)
    monkeypatch.setattr(subprocess, "run", fails)
    monkeypatch.setenv("PJRT_NPROC", "to be put back by monkeypatch")
    monkeypatch.delenv("PJRT_NPROC")
    with pytest.raises(ValueError, match="did not finish on Pendulum-v1"):
        learning.run(_study(finished, sbx_seeds=1, out=tmp_path), console)
    assert seen
    assert "PJRT_NPROC" not in seen


def test_a_finished_run_of_sbx_counts_for_its_own_settings_alone(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def at_once(command: list[str], **_: Any) -> Any:
        sbx_ddpg.main(Path(command[-1]))
        return subprocess.CompletedProcess(command, returncode=0)

    def train(
        env: str, seed: int, steps: int, eval_every: int, eval_episodes: int, settings: Settings,
        out: Path,
    ) -> None:  # fmt: skip
        asked.append((env, seed, steps, eval_every, eval_episodes, settings))
        _write(out, [1.0] * (steps // eval_every), eval_every)

    monkeypatch.setattr(sbx_ddpg, "train", train)
    monkeypatch.setattr(subprocess, "run", at_once)
    monkeypatch.setattr(learning, "_train_d4pg", lambda job, study: None)
    monkeypatch.setattr(learning, "find_spec", lambda name: True)
    monkeypatch.setattr(learning, "version", lambda name: "made up")
    monkeypatch.setattr(learning.study_folder, "commit", lambda: None)  # git is a process, too
    study = _study(tmp_path, sbx_seeds=1)
    for _ in range(2):
        assert learning.run(study, console)["curves"][1]["complete"]
    assert asked == [("Pendulum-v1", 3, 240, 40, 1, SMALL)]
    # With other settings what is in `runs` is refused, and in another folder it is made anew.
    other = replace(study, settings=replace(SMALL, gamma=0.9), out=tmp_path / "other")
    with pytest.raises(ValueError, match=r"v1-3-sbx-ddpg holds .* \(gamma was 0.99, now 0.9\)"):
        learning.run(other, console)
    learning.run(replace(other, runs=tmp_path / "others"), console)
    assert [settings.gamma for *_, settings in asked] == [0.99, 0.9]
    (tmp_path / "others" / "Pendulum-v1-3-sbx-ddpg" / "task.json").write_text("{")
    with pytest.raises(ValueError, match=r"task.json is damaged .*: delete .*v1-3-sbx-ddpg"):
        learning.run(replace(other, runs=tmp_path / "others"), console)


def test_sbx_is_evaluated_on_the_same_episodes() -> None:
    pytest.importorskip("stable_baselines3")
    from windward.studies.extra.sbx_ddpg import evaluate

    agent = D4PG("Pendulum-v1", seed=5, widths=(8,))
    theirs = evaluate(agent, "Pendulum-v1", episodes=2, seed=5)
    np.testing.assert_allclose(theirs, agent.evaluate(2, seed=5), rtol=1e-6)


@pytest.mark.slow
def test_sbx_runs_once_with_as_many_updates(
    finished: Path, tmp_path: Path, console: Console
) -> None:
    pytest.importorskip("sbx")
    study = _study(finished, sbx_seeds=1, out=tmp_path)
    ours, theirs = learning.run(study, console)["curves"]
    path = tmp_path / "Pendulum-v1-sbx-ddpg-3.csv"
    rows = _rows(path)
    assert [int(row["steps"]) for row in rows] == [40, 80, 120, 160, 200, 240]
    assert theirs["final_return"] == float(rows[-1]["eval_return"])
    assert abs(theirs["runs"][0]["updates"] - ours["runs"][0]["updates"]) <= 3
    own = finished / "runs" / "Pendulum-v1-3-sbx-ddpg" / "curves.csv"
    assert _rows(own) == rows
    before = own.stat().st_mtime_ns
    learning.run(study, console)
    assert own.stat().st_mtime_ns == before
