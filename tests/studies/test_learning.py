"""`learning` end to end at a small size: resuming, what is not repeated, and numbers by hand."""

import csv
import io
import json
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
from windward.studies import curves, learning
from windward.studies.learning import Learning

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
        tmp_path, train=False, steps=2000, eval_every=100, seeds=(3, 4, 5), sbx_seeds=1,
        runs=finished / "runs",
    )  # fmt: skip
    _write(study.out / "Pendulum-v1-sbx-ddpg-3.csv", [-float(i) for i in range(20)])
    _write(study.out / "Pendulum-v1-d4pg-5.csv", [-7.0] * 25)
    ours, theirs = learning.run(study, console)["curves"]
    assert [run["progress"] for run in ours["runs"]] == [
        "240 of 2000 steps", "240 of 2000 steps", "2000 of 2000 steps",
    ]  # fmt: skip
    assert [run["complete"] for run in ours["runs"]] == [False, False, True]
    assert not ours["complete"]
    assert theirs["complete"]
    # The last two of twenty evaluations are -18 and -19, with worst episodes 19 and 20 lower.
    assert theirs["final_return"] == -18.5
    assert theirs["worst_evaluation"] == -19
    assert theirs["runs"][0]["worst_episode"] == -39
    said = console.export_text()
    assert "240 of 2000" in said
    assert "-18.5" in said


def test_drawing_runs_with_other_settings_is_refused(finished: Path, console: Console) -> None:
    study = _study(finished, train=False, settings=replace(SMALL, widths=(9,), gamma=0.9))
    with pytest.raises(ValueError, match=r"other settings \(widths, gamma\)"):
        learning.run(study, console)


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


def test_sbx_is_evaluated_on_the_same_episodes() -> None:
    pytest.importorskip("stable_baselines3")
    from windward.studies.sbx_ddpg import evaluate

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
    before = path.stat().st_mtime_ns
    learning.run(study, console)
    assert path.stat().st_mtime_ns == before
