"""The command line: help teaches, bad values end in one clear line, JSON is JSON."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from windward import envs
from windward.agents import D4PG
from windward.cli import STUDIES, main
from windward.studies.evaluation import report as evaluation_report
from windward.studies.evaluation.evaluate import Evaluate
from windward.studies.runs.locks import Lock


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--help"], "demo"),
        (["evaluate", "--help"], "--disturbance sine:amp=0.2,period=60 --channel qvel"),
        (["evaluate", "--help"], "only load files that you trust"),
        (["run", "--help"], "regret-rate"),
        (["run", "lds-low", "--help"], "periods of the sinusoid for tuning"),
        (["bench", "--help"], "NumPy loop"),
        (["bench", "--help"], "mujoco.rollout"),
    ],
)
def test_help(args: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(args)
    assert end.value.code == 0
    assert expected in " ".join(capsys.readouterr().out.split())


def test_list_names_studies_disturbances_and_environments(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["list"])
    out = capsys.readouterr().out
    assert all(study.name in out for study in STUDIES.values())
    assert "sine:amplitude=" in out
    assert all(name in out for name in envs.IDS)
    assert "300,000" in out  # what docs/results has of the trainings


def test_list_shows_the_channels_of_an_environment(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list", "--env", "InvertedPendulum-v5"])
    out = capsys.readouterr().out
    assert all(name in out for name in ("qpos", "force:pole", "mass:cart", "(3,)"))


def test_list_of_an_unknown_environment_ends_in_one_clear_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["list", "--env", "CartPol-v1"])
    assert end.value.code == 2
    assert "CartPole" in capsys.readouterr().err


def test_evaluate_prints_numbers_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = (
        "evaluate --model shipped --env Pendulum-v1 --disturbance bias:value=0.2 --channel qvel "
        "--seeds 2 --episodes 2 --learner mf-gpc --h 2 --freeze-after 1 --max-steps 5 "
        f"--out {tmp_path}"
    )
    main(command.split())
    out = capsys.readouterr().out
    assert "adapted - base" in out
    assert "worst tenth" in out
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["command"] == "windward " + command
    assert len(summary["M"][0]) == 2
    assert "--freeze-after 1" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("--model none.zip", "error: there is no file 'none.zip'"),
        ("--seeds 0", "error: seeds must be an integer of at least 1; got 0"),
        ("--channel nowhere", "error: there is no channel 'nowhere'"),
        ("--signal pd9", "error: signal must be one of"),
    ],
)
def test_evaluate_ends_in_one_clear_line(
    change: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = (
        f"evaluate --model shipped --env Pendulum-v1 --disturbance bias:value=1 --out {tmp_path}"
    )
    with pytest.raises(SystemExit) as end:
        main(f"{command} --channel qvel {change}".split())
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith(message)


def test_demo_is_an_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shorter(settings: Evaluate, *rest: Any) -> Any:
        return whole(replace(settings, max_steps=10), *rest)

    whole = evaluation_report.run
    monkeypatch.setattr(evaluation_report, "run", shorter)
    main(["demo", "--seeds", "1", "--episodes", "1", "--out", str(tmp_path)])
    assert "adapted - base" in capsys.readouterr().out
    files = {"episodes.csv", "evaluation.png", "report.html", "summary.json", "trace.csv"}
    for part in ("hopper", "pole"):
        assert files <= {path.name for path in (tmp_path / part).iterdir()}
        summary = json.loads((tmp_path / part / "summary.json").read_text())
        assert summary["command"].startswith("windward demo --seeds 1 --episodes 1")


def test_train_writes_curves_networks_and_scalars(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = (
        f"train --env Pendulum-v1 --steps 240 --out {tmp_path} --eval-every 120 --eval-episodes 1 "
        "--widths 8 --batch-size 16 --min-replay 16 --replay-size 1000"
    )
    main(command.split())
    assert "after 240 steps" in capsys.readouterr().out
    rows = (tmp_path / "curves.csv").read_text().splitlines()
    assert rows[0].startswith("steps,updates,eval_return")
    assert len(rows) == 3
    assert {path.name for path in tmp_path.iterdir()} >= {"best.npz", "last.npz"}
    assert list(tmp_path.glob("events.out.tfevents*"))


def test_train_leaves_a_folder_alone_that_another_process_trains_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = f"train --env Pendulum-v1 --steps 10 --out {tmp_path}".split()
    with Lock(tmp_path), pytest.raises(SystemExit) as end:
        main(command)
    assert end.value.code == 2
    assert "is held by process" in " ".join(capsys.readouterr().err.split())
    main(command)
    assert not (tmp_path / "lock.json").exists()


def test_train_holds_its_folder_while_it_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learn(agent: D4PG, steps: int, *, out: Path, **_: Any) -> None:
        with pytest.raises(ValueError, match=rf"{out} is held by process {os.getpid()} on"):
            Lock(out).__enter__()

    monkeypatch.setattr(D4PG, "learn", learn)
    main(f"train --env Pendulum-v1 --steps 10 --out {tmp_path}".split())


def test_train_on_discrete_actions_ends_in_one_clear_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["train", "--env", "CartPole-v1", "--steps", "10"])
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("error: D4PG needs continuous actions")


def test_an_unknown_study_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["run", "lds-lwo"])
    assert end.value.code == 2
    assert "lds-low" in capsys.readouterr().err


def test_a_bad_value_ends_in_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["run", "lds-low", "--out", "/proc/nowhere"])
    assert end.value.code == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: out must be a folder")
    assert "Traceback" not in captured.err


def test_bench_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    main(
        ["bench", "linear", "--json", "--seeds", "2", "--T", "50", "--numpy-steps", "20",
         "--repeats", "1"]
    )  # fmt: skip
    assert json.loads(capsys.readouterr().out)["ratio"] > 0
