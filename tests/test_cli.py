"""The command line: help teaches, bad values end in one clear line, JSON is JSON."""

import json
from pathlib import Path

import pytest

from windward import envs
from windward.cli import STUDIES, main

pytestmark = pytest.mark.usefixtures("cheap_compiling")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--help"], "demo"),
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


def test_list_names_every_study(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list"])
    out = capsys.readouterr().out
    assert all(study.name in out for study in STUDIES.values())


def test_list_names_disturbances_and_environments(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list"])
    out = capsys.readouterr().out
    assert "sine:amplitude=" in out
    assert all(name in out for name in envs.IDS)


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
